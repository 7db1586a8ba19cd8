//! Writes whose blocks the node rolls back (`devnet_abortBlocks`), and writes that a crash left
//! unsent: a repeat sends the same transaction again, and no response names one that the chain does
//! not have.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::UNIX_EPOCH;

use serde_json::Value;
use sqlx::Connection as _;

use crate::admin::{eventually, metrics};
use crate::support::check::each;
use crate::support::client::Client;
use crate::support::node::{Act, Call};
use crate::support::relay::chain::{is_add, method};
use crate::support::relay::devnet::{Network, own_network};
use crate::support::relay::expect::{refused, submitted};
use crate::support::relay::stage::{Stage, post};
use crate::support::relay::user::{User, call};
use crate::support::request::{Request, rpc};
use crate::support::response::Response;

pub(super) const DISPLACED: &str = r#"portcullis_relay_journal_intents{state="displaced"}"#;
const LOST: &str = r#"portcullis_relay_journal_intents{state="lost"}"#;
pub(super) const SUCCEEDED: &str = r#"portcullis_relay_journal_intents{state="succeeded"}"#;
pub(super) const RECEIPT: &str = "starknet_getTransactionReceipt";

/// Rolls back everything from the block of this transaction on.
pub(super) fn roll_back(network: &Network, hash: &Value) {
    let receipt = network.ask(RECEIPT, &format!(r#"{{"transaction_hash":{hash}}}"#));
    let block = &receipt["block_number"];
    let params = format!(r#"{{"starting_block_id":{{"block_number":{block}}}}}"#);
    network.ask("devnet_abortBlocks", &params);
    assert!(!is_on_chain(network, hash), "{hash} is rolled back");
}

fn abort_latest(node: SocketAddr) {
    let abort = rpc(
        "1",
        "devnet_abortBlocks",
        r#"{"starting_block_id":"latest"}"#,
    );
    Client::connect(node).ask(&Request::post(abort));
}

fn is_on_chain(network: &Network, hash: &Value) -> bool {
    network.call(RECEIPT, &format!(r#"{{"transaction_hash":{hash}}}"#))["error"].is_null()
}

/// Asserts that a response reports a transaction that the chain has; returns its hash.
pub(super) fn written(network: &Network, response: &Response, why: &str) -> Value {
    assert_eq!(response.status, 200, "{why}: {}", response.text());
    let hash = response.json()["transaction_hash"].clone();
    assert!(
        is_on_chain(network, &hash),
        "{why}: the chain has no {hash}"
    );
    hash
}

/// A drip to a user, and the registration of its account.
fn bodies(user: &User, identity: u32) -> [(&'static str, String); 2] {
    let (address, key) = (user.address, user.key.public_key());
    let body = |member| {
        format!(r#"{{"identity":"{identity:#x}","{member}":"{address}","public_key":"{key}"}}"#)
    };
    [
        ("/faucet-drip", body("recipient")),
        ("/register", body("account")),
    ]
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn rolled_back_operations_are_sent_again_as_they_were_signed() {
    let network = own_network();
    let stage = Stage::on(&network, network.forward());
    each([(1, None), (2, Some("key"))], |(identity, key)| {
        for (path, body) in bodies(&network.deployed(), identity) {
            let ask = || {
                let request = post(path, &body);
                let request = key.into_iter().fold(request, |request, key| {
                    request.with("Idempotency-Key", &format!("{key}{path}"))
                });
                stage.ask(&request)
            };
            let why = format!("{path}, key {key:?}");
            let first = written(&network, &ask(), &why);
            roll_back(&network, &first);
            let again = written(&network, &ask(), &format!("{why}, rolled back"));
            assert_eq!(again, first, "{why}: the same transaction");
            if key.is_some() {
                assert_eq!(
                    written(&network, &ask(), &why),
                    again,
                    "{why}: it is stored again"
                );
            }
            roll_back(&network, &again);
        }
    });
    eventually(&stage.edge, "all are in doubt", |metrics| {
        metrics.get(DISPLACED) == Some(&4.0)
    });
    assert_eq!(metrics(&stage.edge)[LOST], 0.0, "none is given up");
    stage.edge.line("a warning", |line| {
        line["level"] == "warn"
            && line["message"]
                .as_str()
                .unwrap()
                .contains("is displaced: block rolled back")
    });
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_rollback_frees_nonces_for_other_writes() {
    let network = own_network();
    let (stage, user) = (Stage::on(&network, network.forward()), network.deployed());
    let [(drip, first), (register, registration)] = bodies(&user, 0x11);
    let hash = written(&network, &stage.post(drip, &first), "the first");
    roll_back(&network, &hash);
    written(
        &network,
        &stage.post(register, &registration),
        "another one with its nonce",
    );
    let other = network.deployed();
    let [(_, body), _] = bodies(&other, 0x12);
    written(&network, &stage.post(drip, body), "another-drip");
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_rollback_releases_a_faucet_binding() {
    let network = own_network();
    let (stage, user) = (Stage::on(&network, network.forward()), network.funded());
    let [(drip, first), _] = bodies(&user, 0x21);
    roll_back(
        &network,
        &written(&network, &stage.post(drip, first), "one identity"),
    );
    eventually(&stage.edge, "it is in doubt", |metrics| {
        metrics.get(DISPLACED) == Some(&1.0)
    });
    let [(_, other), _] = bodies(&user, 0x22);
    written(
        &network,
        &stage.post(drip, other),
        "another identity, as if nothing had been",
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn rolled_back_transactions_of_users_return() {
    let network = own_network();
    let (stage, user) = (Stage::on(&network, network.forward()), network.deployed());
    let fine = stage.fine(&user, 1);
    let hash = Value::from(fine.hash.to_string());
    for time in ["first", "again"] {
        submitted(&stage.post("/rpc", fine.body()), fine.hash, time);
        settled(&stage);
        roll_back(&network, &hash);
    }
    let args = [stage.pin("bridge"), 7_u64.into(), 0_u64.into()];
    let approve = call(stage.pin("token"), "approve", &args);
    let other = user.invoke(&[approve], 1);
    submitted(
        &stage.post("/rpc", other.body()),
        other.hash,
        "another one with its nonce",
    );
}

/// Waits until a check from now on finds no open intent.
fn settled(stage: &Stage) {
    const CHECKED: &str = "portcullis_relay_reconciled_timestamp_seconds";
    const OLDEST: &str = "portcullis_relay_oldest_open_intent_timestamp_seconds";
    let now = UNIX_EPOCH.elapsed().expect("after 1970").as_secs_f64();
    eventually(&stage.edge, "its receipt is journaled", |metrics| {
        metrics[CHECKED] > now
            && metrics.get(SUCCEEDED) >= Some(&1.0)
            && metrics.get(OLDEST) == Some(&0.0)
    });
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_restarted_relay_writes_rolled_back_operations_again() {
    let network = own_network();
    let (mut stage, user) = (Stage::on(&network, network.forward()), network.deployed());
    let [(drip, body), _] = bodies(&user, 0x41);
    let request = post(drip, &body).with("Idempotency-Key", "k-41");
    let first = written(&network, &stage.ask(&request), "the first");
    stage.edge.signal("KILL");
    stage.edge.wait();
    roll_back(&network, &first);
    stage.edge = stage.setup.start();
    written(&network, &stage.ask(&request), "after the restart");
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_write_in_flight_survives_a_rollback() {
    let network = own_network();
    let (forward, address) = (network.forward(), network.address);
    let once = AtomicBool::new(true);
    let script = move |call: &Call| {
        let answer = forward(call);
        if is_add(call) && once.swap(false, Ordering::Relaxed) {
            abort_latest(address);
        }
        answer
    };
    let (stage, user) = (Stage::on(&network, script), network.deployed());
    let [(drip, body), _] = bodies(&user, 0x51);
    let first = stage.post(drip, &body);
    assert_eq!(first.status, 202, "there is no receipt: {}", first.text());
    eventually(&stage.edge, "the same is sent again", |metrics| {
        metrics.get(SUCCEEDED) == Some(&1.0)
    });
    assert!(is_on_chain(&network, &first.json()["transaction_hash"]));
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_rollback_after_the_receipt_is_noticed() {
    let network = own_network();
    let (forward, address) = (network.forward(), network.address);
    let (is_sent, once) = (AtomicBool::new(false), AtomicBool::new(true));
    let script = move |call: &Call| {
        let answer = forward(call);
        is_sent.fetch_or(is_add(call), Ordering::Relaxed);
        if method(call) == RECEIPT
            && is_sent.load(Ordering::Relaxed)
            && once.swap(false, Ordering::Relaxed)
        {
            abort_latest(address);
        }
        answer
    };
    let (stage, user) = (Stage::on(&network, script), network.deployed());
    let [_, (register, body)] = bodies(&user, 0x81);
    refused(
        &stage.post(register, &body),
        "in_progress",
        "the chain has lost it",
    );
    written(&network, &stage.post(register, &body), "again");
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_crash_before_sending_is_no_unknown_outcome() {
    let network = own_network();
    let forward = network.forward();
    let fails = AtomicBool::new(true);
    let script = move |call: &Call| {
        if is_add(call) && fails.swap(false, Ordering::Relaxed) {
            return vec![Act::Close];
        }
        forward(call)
    };
    let (mut stage, user) = (Stage::on(&network, script), network.deployed());
    let [(drip, body), _] = bodies(&user, 0x61);
    let request = post(drip, &body).with("Idempotency-Key", "k-61");
    refused(&stage.ask(&request), "outcome_unknown", "it was sent");
    stage.edge.signal("KILL");
    stage.edge.wait();
    // as if the crash had been one statement earlier
    sql(&stage, "UPDATE intent SET state = 'intended'");
    stage.edge = stage.setup.start();
    let hash = written(&network, &stage.ask(&request), "it was never sent");
    assert_eq!(written(&network, &stage.ask(&request), "again"), hash);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_cooldown_names_the_earlier_drip() {
    let network = own_network();
    let (stage, user) = (Stage::on(&network, network.forward()), network.funded());
    let [(drip, body), _] = bodies(&user, 0x71);
    let hash = written(&network, &stage.post(drip, &body), "the first");
    let again = post(drip, &body).with("Idempotency-Key", "another-drip");
    let error = refused(&stage.ask(&again), "faucet_cooldown", "the second");
    assert_eq!(error["transaction_hash"], hash);
}

fn sql(stage: &Stage, statement: &'static str) {
    let url = format!("sqlite:{}", stage.folder.file("journal.db"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut store = sqlx::SqliteConnection::connect(&url).await.unwrap();
        sqlx::raw_sql(statement).execute(&mut store).await.unwrap();
    });
}
