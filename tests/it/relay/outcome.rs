//! Responses to a client when the node fails: before a transaction was sent, and after.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

use portcullis_filters::felt::Felt;

use crate::support::check::each;
use crate::support::client::PATIENCE;
use crate::support::node::{Act, Call, Latch};
use crate::support::relay::chain::{
    self, USER_KEY, honest, is_add, is_view, method, receipt, result, took,
};
use crate::support::relay::expect::{common, refused, rpc_refused, submitted};
use crate::support::relay::stage::Stage;
use crate::support::relay::user::{ID, User, call};
use crate::support::script::{
    ANSWER_CAP, SECRET, http, json, padded_envelope, send, send_and_close, sized,
};

/// A faulty response of the node.
type Fault = fn(&Call) -> Vec<Act>;

/// One proof is valid for the whole test, and a node that hangs times out soon.
const KEYS: [(&str, &str); 3] = [
    ("relay.pins_max_age", "\"1m\""),
    ("node.timeout", "\"1s\""),
    ("node.connect_timeout", "\"500ms\""),
];
const MINT: &str = r#"{"recipient":"0x9","card_id":"7"}"#;

const FAULTS: [(&str, Fault, &str); 7] = [
    ("silence", |_| vec![Act::Hang], "upstream_timeout"),
    (
        "a connection that ends",
        |_| vec![Act::Close],
        "upstream_unreachable",
    ),
    ("half an answer", half, "upstream_invalid"),
    ("a redirect", redirect, "upstream_redirect"),
    ("an error status", failure, "upstream_status"),
    ("garbage", garbage, "upstream_invalid"),
    ("too much", flood, "upstream_oversized"),
];

fn half(call: &Call) -> Vec<Act> {
    let whole = crate::support::script::result(call, "\"0x1\"");
    send_and_close(&whole[..whole.len() - 1])
}

fn redirect(_: &Call) -> Vec<Act> {
    send(http(
        "302 Found",
        &["Location: http://127.0.0.1:1/", "Content-Length: 0"],
        "",
    ))
}

fn failure(_: &Call) -> Vec<Act> {
    send(sized(
        "500 Internal Server Error",
        &["Content-Type: text/plain"],
        SECRET,
    ))
}

fn garbage(_: &Call) -> Vec<Act> {
    send(json(SECRET))
}

fn flood(call: &Call) -> Vec<Act> {
    send(json(padded_envelope(call, ANSWER_CAP + 1)))
}

/// A chain on which every account is verified, so that a card can be minted.
fn verified(call: &Call) -> Vec<Act> {
    let is_the_view = method(call) == "starknet_call" && is_view(call, "is_verified");
    if is_the_view {
        result(call, "[\"0x1\"]")
    } else {
        honest(call)
    }
}

#[test]
fn node_errors_before_sending_have_their_reasons() {
    each(FAULTS, |(what, fault, reason)| {
        let fails = Arc::new(AtomicBool::new(false));
        let now = Arc::clone(&fails);
        let script = move |call: &Call| {
            if now.load(Ordering::Relaxed) {
                fault(call)
            } else {
                verified(call)
            }
        };
        let stage = Stage::with_script(script, &KEYS);
        assert_eq!(
            stage.ready().status,
            200,
            "{what}: the pins are proven before"
        );
        fails.store(true, Ordering::Relaxed);
        let fine = stage.fine(&User::with_key(USER_KEY), 0);
        rpc_refused(&stage.post("/rpc", fine.body()), reason, ID, what);
        assert_eq!(stage.adds().len(), 0, "{what}: nothing was sent");
    });
}

#[test]
fn an_operation_whose_reads_fail_is_not_begun() {
    let script = |call: &Call| match method(call).as_str() {
        "starknet_getNonce" => failure(call),
        _ => verified(call),
    };
    let stage = Stage::with_script(script, &KEYS);
    refused(
        &stage.post("/mint-card", MINT),
        "upstream_status",
        "no nonce",
    );
    assert_eq!(stage.adds().len(), 0, "nothing was sent");
}

/// Responses to a submission that leave open whether the node accepted it.
const UNCLEAR: [(&str, Fault); 7] = [
    ("silence", |_| vec![Act::Hang]),
    ("a connection that ends", |_| vec![Act::Close]),
    ("half an answer", half),
    ("an error status", failure),
    ("garbage", garbage),
    ("another hash", |call| took(call, Felt::from(0x666_u64))),
    ("no hash", |call| result(call, "{}")),
];

#[test]
fn an_unanswered_transaction_is_not_sent_twice() {
    each(UNCLEAR, |(what, fault)| {
        let landed = Arc::new(AtomicBool::new(false));
        let (stage, landed) = (unclear(fault, Arc::clone(&landed)), landed);
        let fine = stage.fine(&User::with_key(USER_KEY), 0);
        for time in ["the first time", "again"] {
            let answer = stage.post("/rpc", fine.body());
            let why = format!("{what}, {time}");
            let stated = rpc_refused(&answer, "outcome_unknown", ID, &why);
            assert_eq!(stated["transaction_hash"], fine.hash.to_string(), "{why}");
        }
        landed.store(true, Ordering::Relaxed);
        submitted(
            &stage.post("/rpc", fine.body()),
            fine.hash,
            "the chain has it after all",
        );
        assert_eq!(stage.adds().len(), 1, "{what}: it was sent once");
    });
}

#[test]
fn an_unanswered_operation_is_not_repeated() {
    each(UNCLEAR, |(what, fault)| {
        let landed = Arc::new(AtomicBool::new(false));
        let (stage, landed) = (unclear(fault, Arc::clone(&landed)), landed);
        let first = refused(&stage.post("/mint-card", MINT), "outcome_unknown", what);
        let again = refused(&stage.post("/mint-card", MINT), "outcome_unknown", what);
        assert_eq!(
            first["transaction_hash"], again["transaction_hash"],
            "{what}: one transaction"
        );
        let hash = first["transaction_hash"].as_str().unwrap();
        assert!(Felt::parse(hash).is_some(), "{what}: {hash} is its hash");
        landed.store(true, Ordering::Relaxed);
        let answer = stage.post("/mint-card", MINT);
        common(&answer, what);
        assert_eq!(answer.status, 200, "{what}: {}", answer.text());
        assert_eq!(
            answer.json()["transaction_hash"],
            hash,
            "{what}: the chain has it after all"
        );
        assert_eq!(stage.adds().len(), 1, "{what}: it was sent once");
    });
}

/// A chain that responds to a submission with `fault`; a receipt exists once `landed` is set.
fn unclear(fault: Fault, landed: Arc<AtomicBool>) -> Stage {
    let script = move |call: &Call| match method(call).as_str() {
        _ if is_add(call) => fault(call),
        "starknet_getTransactionReceipt" if landed.load(Ordering::Relaxed) => receipt(call),
        _ => verified(call),
    };
    Stage::with_script(script, &KEYS)
}

#[test]
fn a_rejected_transaction_can_be_sent_again() {
    each(
        [
            (52, "nonce_conflict"),
            (53, "rejected"),
            (54, "rejected"),
            (55, "rejected"),
            (-32602, "rejected"),
        ],
        |(code, reason)| {
            let script = move |call: &Call| {
                if is_add(call) {
                    chain::error(call, code)
                } else {
                    honest(call)
                }
            };
            let stage = Stage::with_script(script, &KEYS);
            let fine = stage.fine(&User::with_key(USER_KEY), 0);
            for sent in [1, 2] {
                let answer = stage.post("/rpc", fine.body());
                rpc_refused(&answer, reason, ID, &format!("code {code}"));
                assert_eq!(
                    stage.adds().len(),
                    sent,
                    "code {code}: no other call to the node"
                );
            }
        },
    );
}

#[test]
fn an_error_of_devnet_itself_is_definite_only_there() {
    each(
        [(true, "rejected", 2), (false, "outcome_unknown", 1)],
        |(is_devnet, reason, sent)| {
            let script = move |call: &Call| match method(call).as_str() {
                _ if is_add(call) => chain::error(call, -1),
                "devnet_getConfig" if is_devnet => result(call, "{}"),
                _ => honest(call),
            };
            let stage = Stage::with_script(script, &KEYS);
            let fine = stage.fine(&User::with_key(USER_KEY), 0);
            for time in ["the first time", "again"] {
                rpc_refused(&stage.post("/rpc", fine.body()), reason, ID, time);
            }
            assert_eq!(stage.adds().len(), sent, "{reason}");
        },
    );
}

/// A chain that accepts a submission under the hash that the test sets.
fn taking(latch: Option<Latch>) -> (Stage, Arc<Mutex<Felt>>) {
    let hash = Arc::new(Mutex::new(Felt::ZERO));
    let known = Arc::clone(&hash);
    let script = move |call: &Call| {
        if !is_add(call) {
            return honest(call);
        }
        let wait = latch.clone().map(Act::Hold);
        wait.into_iter()
            .chain(took(call, *known.lock().unwrap()))
            .collect()
    };
    (
        Stage::with_script(script, &[("relay.pins_max_age", "\"1m\"")]),
        hash,
    )
}

#[test]
fn a_duplicate_at_the_node_counts_as_accepted() {
    let script = |call: &Call| {
        if is_add(call) {
            chain::error(call, 59)
        } else {
            honest(call)
        }
    };
    let stage = Stage::with_script(script, &KEYS);
    let fine = stage.fine(&User::with_key(USER_KEY), 0);
    stage.assert_passes(&fine);
    submitted(&stage.post("/rpc", fine.body()), fine.hash, "again");
    assert_eq!(stage.adds().len(), 1, "it is answered from the journal");
}

#[test]
fn concurrent_duplicates_are_sent_once() {
    let latch = Latch::default();
    let (stage, hash) = taking(Some(latch.clone()));
    let fine = stage.fine(&User::with_key(USER_KEY), 0);
    *hash.lock().unwrap() = fine.hash;
    let mut clients: Vec<_> = (0..4).map(|_| stage.client()).collect();
    for client in &mut clients {
        client.send(crate::support::relay::stage::post("/rpc", fine.body()).bytes());
    }
    let deadline = Instant::now() + PATIENCE;
    while stage.adds().is_empty() {
        assert!(Instant::now() < deadline, "none of them reaches the node");
    }
    latch.open();
    for client in &mut clients {
        submitted(&client.response(), fine.hash, "each of them");
    }
    assert_eq!(stage.adds().len(), 1, "four requests, one transaction");
}

#[test]
fn a_reused_nonce_is_a_conflict() {
    let (stage, hash) = taking(None);
    let user = User::with_key(USER_KEY);
    let fine = stage.fine(&user, 0);
    *hash.lock().unwrap() = fine.hash;
    submitted(&stage.post("/rpc", fine.body()), fine.hash, "the first");
    let other = user.invoke(&[call(stage.pin("staking"), "withdraw", &[])], 0);
    let answer = stage.post("/rpc", other.body());
    let error = rpc_refused(&answer, "nonce_conflict", ID, "the second");
    assert_eq!(
        error["transaction_hash"],
        fine.hash.to_string(),
        "it names the pending one"
    );
    assert_eq!(answer.header("Retry-After"), Some("1"));
    assert!(answer.text().contains("pre_confirmed"), "{}", answer.text());
    assert_eq!(stage.adds().len(), 1, "the node gets the first only");
}
