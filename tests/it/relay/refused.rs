//! Refusals of the chain before anything is sent, and a faucet without money.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use crate::operator::{ask, local};
use crate::support::node::{Act, Call};
use crate::support::relay::chain::{
    USER_KEY, error, honest, is_add, is_view, method, receipt, result,
};
use crate::support::relay::expect::{refused, rpc_refused};
use crate::support::relay::stage::Stage;
use crate::support::relay::user::{ID, User};

const MINT: &str = r#"{"recipient":"0x9","card_id":"7"}"#;
/// One proof is valid for the whole test.
const KEYS: [(&str, &str); 1] = [("relay.pins_max_age", "\"1m\"")];
const STRK: u128 = 1_000_000_000_000_000_000;

#[test]
fn a_failed_estimate_is_no_revert() {
    let script = |call: &Call| match method(call).as_str() {
        "starknet_estimateFee" => error(call, 41),
        "starknet_call" if is_view(call, "is_verified") => result(call, "[\"0x1\"]"),
        _ => honest(call),
    };
    let stage = Stage::with_script(script, &KEYS);
    let refusal = refused(
        &stage.post("/mint-card", MINT),
        "refused_by_chain",
        "the estimate",
    );
    assert!(
        refusal["transaction_hash"].is_null(),
        "nothing was submitted"
    );
    assert_eq!(stage.adds().len(), 0, "nothing was sent");
    let found = ask(&stage.edge, &local("/journal?state=refused")).json();
    assert!(
        found["writes"].to_string().contains("refused_by_chain"),
        "{found}"
    );
}

#[test]
fn without_its_contracts_a_chain_is_unproven() {
    let gone = Arc::new(AtomicBool::new(false));
    let is_gone = Arc::clone(&gone);
    let script = move |call: &Call| {
        let is_gone = is_gone.load(Ordering::Relaxed);
        match method(call).as_str() {
            "starknet_call" | "starknet_estimateFee" if is_gone => error(call, 20),
            _ => honest(call),
        }
    };
    let stage = Stage::with_script(script, &KEYS);
    assert_eq!(stage.ready().status, 200, "the proof is valid for a minute");
    gone.store(true, Ordering::Relaxed);
    refused(
        &stage.post("/mint-card", MINT),
        "pins_unproven",
        "an operation",
    );
    refused(
        &stage.post("/require-v2", "{}"),
        "pins_unproven",
        "without confirmation",
    );
    let fine = stage.fine(&User::with_key(USER_KEY), 0);
    rpc_refused(
        &stage.post("/rpc", fine.body()),
        "pins_unproven",
        ID,
        "a transaction",
    );
    let ready = stage.ready();
    assert_eq!(ready.status, 503, "{}", ready.text());
    assert!(ready.header("Retry-After").is_some(), "when to ask again");
}

/// A chain whose accounts all have this many STRK, and which has every transaction.
fn with_money(strk: &Arc<AtomicU64>) -> impl Fn(&Call) -> Vec<Act> + Send + Sync + 'static {
    let strk = Arc::clone(strk);
    move |call| match method(call).as_str() {
        _ if is_add(call) => error(call, 59),
        "starknet_getTransactionReceipt" => receipt(call),
        "starknet_call" if is_view(call, "balance_of") => {
            let fri = u128::from(strk.load(Ordering::Relaxed)) * STRK;
            result(call, &format!("[\"{fri:#x}\",\"0x0\"]"))
        }
        _ => honest(call),
    }
}

/// A drip to the user for this identity.
fn drip(identity: u32) -> String {
    let User { key, address } = User::with_key(USER_KEY);
    let key = key.public_key();
    format!(r#"{{"identity":"{identity:#x}","recipient":"{address}","public_key":"{key}"}}"#)
}

#[test]
fn an_empty_faucet_pays_and_reserves_nothing() {
    let strk = Arc::new(AtomicU64::new(5));
    let stage = Stage::with_script(with_money(&strk), &KEYS);
    let answer = stage.post("/faucet-drip", drip(1));
    refused(&answer, "faucet_empty", "half a drip is left");
    assert!(answer.header("Retry-After").is_some(), "it may be refilled");
    assert_eq!(stage.adds().len(), 0, "nothing was sent");
    strk.store(1_000, Ordering::Relaxed);
    let answer = stage.post("/faucet-drip", drip(2));
    assert_eq!(
        answer.status,
        200,
        "no binding, no cooldown: {}",
        answer.text()
    );
}

#[test]
fn the_pin_of_a_faucet_requires_one_drip() {
    let strk = Arc::new(AtomicU64::new(19));
    let folder = crate::support::folder::Folder::new();
    let file = format!("\"{}\"", folder.secret("faucet.key", USER_KEY));
    let keys = [
        ("relay.pins.faucet", "\"0x102\""),
        ("relay.keys.faucet_file", &file),
    ];
    let stage = Stage::with_script(with_money(&strk), &keys);
    let ready = stage.ready();
    let pins = ready.json()["pins"].as_array().cloned().unwrap_or_default();
    let failing: Vec<_> = pins.iter().filter(|pin| pin["ok"] == false).collect();
    let [pin] = failing.as_slice() else {
        panic!("{}", ready.text())
    };
    assert_eq!(
        (&pin["pin"], &pin["expected"]),
        (&"faucet_balance".into(), &"at least 20 STRK".into())
    );
    refused(
        &stage.post("/faucet-drip", drip(1)),
        "faucet_empty",
        "less than amount and fee",
    );
    refused(
        &stage.post("/mint-card", MINT),
        "pins_unproven",
        "nothing else is written either",
    );
    assert_eq!(stage.adds().len(), 0, "nothing was sent");
}
