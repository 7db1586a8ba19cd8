//! Nonces, keys and senders that are contested: by somebody else who uses a signing key, by a chain
//! that started again, by a client that leaves.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use portcullis_filters::felt::Felt;
use serde_json::Value;

use crate::admin::{eventually, series};
use crate::operator::{ask, local};
use crate::support::check::each;
use crate::support::client2::Client2;
use crate::support::folder::Folder;
use crate::support::node::{Act, Call, Latch, Node};
use crate::support::relay::chain::{
    OWNER_KEY, VERIFIER_KEY, block, error, felt, honest, is_add, is_view, method, receipt, result,
};
use crate::support::relay::devnet::Network;
use crate::support::relay::expect::{refused, rpc_refused};
use crate::support::relay::stage::{Stage, post, setup};
use crate::support::relay::user::{BOUNDS, ID, User, call};
use crate::support::secure::{Pair, secured};

const MINT: &str = r#"{"recipient":"0x9","card_id":"7"}"#;
const OTHER: &str = r#"{"recipient":"0x9","card_id":"8"}"#;
const KEYS: [(&str, &str); 1] = [("relay.pins_max_age", "\"1m\"")];

/// A chain on which every account is verified, and which has every transaction.
fn accepting(call: &Call) -> Vec<Act> {
    match method(call).as_str() {
        _ if is_add(call) => error(call, 59),
        "starknet_getTransactionReceipt" => receipt(call),
        "starknet_call" if is_view(call, "is_verified") => result(call, "[\"0x1\"]"),
        _ => honest(call),
    }
}

/// The states of an operation's intents, oldest first.
fn states(stage: &Stage, operation: &str) -> Vec<Value> {
    let found = ask(
        &stage.edge,
        &local(&format!("/journal?operation={operation}")),
    )
    .json();
    let writes = found["writes"].as_array().cloned().unwrap_or_default();
    writes
        .iter()
        .rev()
        .map(|write| write["state"].clone())
        .collect()
}

/// A node whose owner account gets ahead by one nonce at each of the first `times` calls of `at`,
/// which fail with `code`.
fn overtaken(
    at: &'static str,
    code: i64,
    times: u64,
) -> impl Fn(&Call) -> Vec<Act> + Send + Sync + 'static {
    let nonce = AtomicU64::new(0);
    move |call| match method(call).as_str() {
        name if name == at && nonce.load(Ordering::Relaxed) < times => {
            nonce.fetch_add(1, Ordering::Relaxed);
            error(call, code)
        }
        "starknet_getNonce" => result(call, &format!("\"{:#x}\"", nonce.load(Ordering::Relaxed))),
        _ => accepting(call),
    }
}

/// A node that refuses what is sent to it, since it counts one nonce more from then on.
fn overtaken_by_a_stranger(call: &Call) -> Vec<Act> {
    static SENT: AtomicBool = AtomicBool::new(false);
    match method(call).as_str() {
        _ if is_add(call) => {
            SENT.store(true, Ordering::Relaxed);
            error(call, 52)
        }
        "starknet_getNonce" if SENT.load(Ordering::Relaxed) => result(call, "\"0x1\""),
        _ => accepting(call),
    }
}

#[test]
fn a_write_that_is_delivered_twice_is_written_once() {
    let add = "starknet_addInvokeTransaction";
    for code in [52, 53, 54, 55] {
        let stage = Stage::with_script(overtaken(add, code, 1), &KEYS);
        let answer = stage.post("/mint-card", MINT);
        assert_eq!(answer.status, 200, "{code}: {}", answer.text());
        assert_eq!(stage.adds().len(), 1, "{code}: the chain shows it");
        assert_eq!(states(&stage, "mint-card"), ["succeeded"], "{code}");
    }
}

#[test]
fn a_nonce_is_replaced_only_before_anything_was_sent() {
    let stage = Stage::with_script(overtaken("starknet_estimateFee", 41, 1), &KEYS);
    let answer = stage.post("/mint-card", MINT);
    assert_eq!(
        answer.status,
        200,
        "the estimate failed for the nonce: {}",
        answer.text()
    );
    assert_eq!(
        stage.adds().len(),
        1,
        "only the second was signed to be sent"
    );

    let hidden = |call: &Call| match method(call).as_str() {
        "starknet_getTransactionReceipt" => error(call, 29),
        _ => overtaken_by_a_stranger(call),
    };
    let stage = Stage::with_script(hidden, &KEYS);
    let answer = stage.post("/mint-card", MINT);
    refused(
        &answer,
        "outcome_unknown",
        "nobody knows who used the nonce",
    );
    assert_eq!(stage.adds().len(), 1, "no second one");
    assert_eq!(states(&stage, "mint-card"), ["displaced"]);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_key_used_elsewhere_and_a_restarted_chain() {
    // it is restarted, so no other test can have it afterwards
    let network = Arc::new(Network::make());
    let key = std::fs::read_to_string(network.file("owner.key")).expect("the key's file");
    let (forward, once) = (network.forward(), AtomicBool::new(true));
    let foreign = User::with_key(key.trim());
    let same = Arc::clone(&network);
    let script = move |message: &Call| {
        if is_add(message) && once.swap(false, Ordering::Relaxed) {
            let sent = &message.json()["params"]["invoke_transaction"];
            let text = |name: &str| felt(sent[name].as_str().expect("a felt"));
            let (sender, nonce) = (text("sender_address"), text("nonce").to_u64().unwrap());
            let (pins, args) = (&same.pins, [sender, 0_u64.into(), 0_u64.into()]);
            let (_, token) = pins
                .iter()
                .find(|(name, _)| name == "token")
                .expect("a pin");
            let faster = [call(felt(token), "transfer", &args)];
            let faster = foreign.invoke_from(sender, &faster, nonce, BOUNDS);
            let params = format!(r#"{{"invoke_transaction":{}}}"#, faster.text);
            same.ask("starknet_addInvokeTransaction", &params);
        }
        forward(message)
    };
    let mut stage = Stage::on(&network, script);
    // who used the nonce is known once its block is settled
    stage.edge.signal("KILL");
    stage.edge.wait();
    stage.setup = stage.setup.set("relay.confirmations", "0");
    stage.edge = stage.setup.start();
    let user = network.deployed();
    let (address, public_key) = (user.address, user.key.public_key());
    let body =
        format!(r#"{{"identity":"0x77","account":"{address}","public_key":"{public_key}"}}"#);
    let answer = stage.post("/register", &body);
    assert_eq!(
        answer.status,
        200,
        "sent with the next nonce: {}",
        answer.text()
    );
    assert_eq!(states(&stage, "register"), ["lost", "succeeded"]);

    let fine = stage.fine(&user, 1);
    assert_eq!(
        stage.ready().status,
        200,
        "this proof is still valid when the chain restarts"
    );
    network.ask("devnet_restart", "{}");
    refused(
        &stage.post("/register", &body),
        "pins_unproven",
        "there is no registry",
    );
    rpc_refused(
        &stage.post("/rpc", fine.body()),
        "pins_unproven",
        ID,
        "a user's",
    );
    refused(
        &stage.post("/require-v2", "{}"),
        "pins_unproven",
        "nothing to activate",
    );
    let mint = format!(r#"{{"recipient":"{address}","card_id":"7"}}"#);
    refused(
        &stage.post("/mint-card", mint),
        "pins_unproven",
        "no contracts",
    );
}

#[test]
fn keys_do_not_answer_for_a_restarted_chain() {
    let (again, later) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (is_again, is_later) = (Arc::clone(&again), Arc::clone(&later));
    let script = move |call: &Call| match method(call).as_str() {
        "starknet_getBlockWithTxHashes" if is_again.load(Ordering::Relaxed) => block(call, 9),
        "starknet_call" if is_view(call, "minted_to") && !is_again.load(Ordering::Relaxed) => {
            result(call, "[\"0x9\"]")
        }
        "starknet_getNonce" if is_later.load(Ordering::Relaxed) => result(call, "\"0x1\""),
        _ => accepting(call),
    };
    let mut stage = Stage::with_script(script, &KEYS);
    let mint = |stage: &Stage, key, body| {
        stage.ask(&post("/mint-card", body).with("Idempotency-Key", key))
    };
    let hash_of = |stage: &Stage, key, body| {
        let answer = mint(stage, key, body);
        assert_eq!(answer.status, 200, "{key}: {}", answer.text());
        answer.json()["transaction_hash"].clone()
    };
    assert_eq!(hash_of(&stage, "a", MINT), "", "it is minted");
    assert_eq!(hash_of(&stage, "b", MINT), "", "it is minted");
    refused(
        &mint(&stage, "b", OTHER),
        "idempotency_conflict",
        "in one life of the chain",
    );

    again.store(true, Ordering::Relaxed);
    refused(
        &mint(&stage, "a", MINT),
        "pins_unproven",
        "the new chain is not in force yet",
    );
    eventually(&stage.edge, "it is", |_| stage.ready().status == 200);
    let first = mint(&stage, "a", MINT);
    assert_eq!(first.status, 200, "{}", first.text());
    assert_ne!(
        first.json()["transaction_hash"],
        "",
        "the new chain has no such card"
    );
    assert_eq!(
        mint(&stage, "a", MINT).text(),
        first.text(),
        "stored for this one"
    );
    later.store(true, Ordering::Relaxed);
    assert_ne!(
        hash_of(&stage, "b", OTHER),
        "",
        "the key is free on the new chain"
    );
    stage.edge.signal("KILL");
    stage.edge.wait();
    stage.edge = stage.setup.start();
    assert_eq!(
        mint(&stage, "a", MINT).text(),
        first.text(),
        "also after a restart"
    );
}

#[test]
fn the_relays_own_accounts_may_not_send() {
    let stage = Stage::scripted();
    each(
        [
            ("owner", "0x100", OWNER_KEY),
            ("verifier", "0x101", VERIFIER_KEY),
        ],
        |(name, at, key)| {
            let args = [stage.pin("staking"), 5_u64.into(), Felt::ZERO];
            let approve = call(stage.pin("token"), "approve", &args);
            let signed = User::with_key(key).invoke_from(felt(at), &[approve], 0, BOUNDS);
            rpc_refused(
                &stage.post("/rpc", signed.body()),
                "sender_not_allowed",
                ID,
                name,
            );
        },
    );
    assert_eq!(
        stage.adds().len(),
        0,
        "nothing of what was refused reaches the node"
    );
    let found = ask(&stage.edge, &local("/journal?state=refused")).json();
    assert_eq!(
        found["writes"].as_array().map(Vec::len),
        Some(2),
        "both are journaled: {found}"
    );
}

#[test]
fn a_reset_request_is_still_judged_and_journaled() {
    let (folder, pair) = (Folder::new(), Pair::new());
    let (reached, latch) = (Latch::default(), Latch::default());
    let (tell, hold) = (reached.clone(), latch.clone());
    let node = Node::start(move |call| {
        let is_it = method(call) == "starknet_call" && is_view(call, "is_verified");
        let wait = [Act::Tell(tell.clone()), Act::Hold(hold.clone())];
        wait.into_iter()
            .filter(|_| is_it)
            .chain(honest(call))
            .collect()
    });
    pair.write(&folder);
    let edge = secured(setup(node.address(), &folder, &KEYS), "relay", &folder).start();
    let mut client = Client2::connect(edge.relay(), &pair);
    let mut begun = client.send(&post("/mint-card", MINT)).expect("it is sent");
    assert!(reached.wait(), "the relay reads the state");
    begun.body.send_reset(h2::Reason::CANCEL);
    drop(begun);
    // the relay handles the reset before it answers a later request of the connection
    let probe = crate::support::request::Request::new("GET", "/healthz");
    assert_eq!(client.ask(&probe).status, 200);
    latch.open();
    eventually(&edge, "the refusal is counted", |metrics| {
        let labels = ["operation=\"mint-card\"", "outcome=\"refused\""];
        series(metrics, "portcullis_relay_writes_total", &labels) >= 1.0
    });
    eventually(&edge, "it is journaled", |_| {
        let found = ask(&edge, &local("/journal?state=refused")).json();
        found["writes"].to_string().contains("not_verified")
    });
}
