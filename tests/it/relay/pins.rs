//! Pins: what must hold on the chain before any write, reported by `/readyz`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;

use crate::support::client::{Client, PATIENCE};
use crate::support::folder::Folder;
use crate::support::node::{Act, Call, Latch, Node};
use crate::support::relay::chain::{self, USER_KEY, felt, honest, is_add, method, result, took};
use crate::support::relay::expect::{common, refused, rpc_refused, submitted};
use crate::support::relay::stage::{Stage, authorised, post, setup};
use crate::support::relay::user::{ID, User};
use crate::support::request::Request;
use crate::support::response::Response;
use portcullis_filters::tx::selector;

const EXECUTE: &str = r#"{"identity":"0x1d"}"#;
/// Checked without the chain: the two configured keys differ.
const KEYS: &str = "owner_and_verifier_keys";

/// The pins of a response by name: whether each holds, and the observed value.
fn pins(answer: &Response, why: &str) -> BTreeMap<String, (bool, String)> {
    common(answer, why);
    let body = answer.json();
    let stated: Vec<_> = body.as_object().unwrap().keys().cloned().collect();
    assert_eq!(stated, ["checked_at", "pins", "ready"], "{why}: {body}");
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let rows = body["pins"].as_array().unwrap();
    let pins: BTreeMap<_, _> = rows
        .iter()
        .map(|pin| {
            (
                text(&pin["pin"]),
                (pin["ok"].as_bool().unwrap(), text(&pin["actual"])),
            )
        })
        .collect();
    assert_eq!(pins.len(), rows.len(), "{why}: a pin is there once: {body}");
    let all = pins.values().all(|(ok, _)| *ok);
    assert_eq!(body["ready"], all, "{why}: ready is what all pins are");
    assert_eq!(
        answer.status,
        if all { 200 } else { 503 },
        "{why}: the status says the same"
    );
    pins
}

/// The names of the failing pins.
fn failing(answer: &Response, why: &str) -> Vec<String> {
    let pins = pins(answer, why);
    pins.into_iter()
        .filter(|(_, (ok, _))| !ok)
        .map(|(name, _)| name)
        .collect()
}

#[test]
fn every_pin_of_a_correct_chain_matches() {
    let stage = Stage::scripted();
    let answer = stage.ready();
    let pins = pins(&answer, "a good chain");
    assert_eq!(answer.status, 200, "{}", answer.text());
    for name in [
        "chain_id",
        "account_class",
        "registry_owner",
        "card_minter",
        "bridge_token",
        KEYS,
    ] {
        assert!(
            pins.contains_key(name),
            "{name} is one of {:?}",
            pins.keys()
        );
    }
    let head = authorised(Request::new("HEAD", "/readyz"));
    let mut client = stage.client();
    client.send(head.bytes());
    assert_eq!(
        client.response_to_head().status,
        200,
        "the same without a body"
    );
}

#[test]
fn without_a_node_nothing_is_written() {
    let folder = Folder::new();
    let edge = setup(Node::nowhere(), &folder, &[]).start();
    let ask = |request: &Request| Client::connect(edge.relay()).ask(request);
    let found = pins(&ask(&authorised(Request::new("GET", "/readyz"))), "no node");
    for (name, (ok, actual)) in found {
        let expected = if name == KEYS {
            (true, "different")
        } else {
            (false, "unreadable")
        };
        assert_eq!((ok, actual.as_str()), expected, "{name}");
    }
    refused(
        &ask(&post("/recovery-execute", EXECUTE)),
        "pins_unproven",
        "an operation",
    );
    let user = User::with_key(USER_KEY);
    let call = crate::support::relay::user::call(felt("0x201"), "withdraw", &[]);
    let body = user.invoke(&[call], 0).body();
    rpc_refused(
        &ask(&post("/rpc", body)),
        "pins_unproven",
        ID,
        "a transaction",
    );
}

#[test]
fn a_configured_mismatch_fails_its_pin_only() {
    for (key, value, pin) in [
        ("relay.pins.chain_id", "\"SN_MAIN\"", "chain_id"),
        ("relay.pins.card_class", "\"0x666\"", "card_class"),
        ("relay.pins.token_class", "\"0x666\"", "token_class"),
        ("relay.pins.l1_bridge", "\"0x666\"", "bridge_l1_contract"),
        (
            "relay.pins.minimum_balance",
            "\"1001 STRK\"",
            "owner_balance verifier_balance",
        ),
    ] {
        let stage = Stage::scripted_with(&[(key, value)]);
        let found = failing(&stage.ready(), key);
        assert_eq!(found.join(" "), pin, "{key} = {value}");
        refused(
            &stage.post("/recovery-execute", EXECUTE),
            "pins_unproven",
            key,
        );
        assert_eq!(stage.adds().len(), 0, "{key}: nothing is written");
    }
}

/// A contract and a view with a wrong result, and the pins that detect it.
const WRONG: [(&str, &str, &str); 21] = [
    (
        "0x200",
        "verification_v2_required",
        "verification_v2_required",
    ),
    ("0x200", "account_class_hash", "account_class"),
    ("0x200", "owner", "registry_owner"),
    ("0x200", "verifier", "registry_verifier"),
    ("0x200", "wiring", "registry_wiring"),
    (
        "0x200",
        "is_authorised_verifier",
        "owner_is_not_a_verifier verifier_authorised",
    ),
    ("0x202", "owner", "card_owner"),
    ("0x202", "minter", "card_minter"),
    ("0x202", "registry", "card_registry"),
    ("0x202", "bridge", "card_bridge"),
    ("0x201", "owner", "staking_owner"),
    ("0x201", "token", "staking_token"),
    ("0x201", "registry", "staking_registry"),
    ("0x203", "submitter", "usership_submitter"),
    ("0x203", "registry", "usership_registry"),
    ("0x204", "owner", "bridge_owner"),
    ("0x204", "token", "bridge_token"),
    ("0x204", "card", "bridge_card"),
    ("0x204", "l1_bridge", "bridge_l1_contract"),
    ("0x100", "get_public_key", "owner_key"),
    ("0x101", "get_public_key", "verifier_key"),
];

#[test]
fn a_contract_mismatch_fails_its_pin_only() {
    let wrong = Arc::new(Mutex::new(("", "")));
    let shared = Arc::clone(&wrong);
    let script = move |call: &Call| {
        let (contract, view) = *shared.lock().unwrap();
        let request = &call.json()["params"]["request"];
        let is_it = request["contract_address"] == contract
            && request["entry_point_selector"] == selector(view).to_string();
        if is_it {
            result(call, "[\"0x666\"]")
        } else {
            honest(call)
        }
    };
    let stage = Stage::with_script(script, &[("relay.pins_max_age", "\"100ms\"")]);
    for (contract, view, expected) in WRONG {
        *wrong.lock().unwrap() = (contract, view);
        let why = format!("{view} of {contract}");
        wait_for(&stage, expected, &why);
        refused(
            &stage.post("/recovery-execute", EXECUTE),
            "pins_unproven",
            &why,
        );
    }
    *wrong.lock().unwrap() = ("", "");
    wait_for(&stage, "", "everything is right again");
    assert_eq!(stage.adds().len(), 0, "nothing was written");
}

/// Waits until exactly these pins fail.
fn wait_for(stage: &Stage, expected: &str, why: &str) {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let found = failing(&stage.ready(), why).join(" ");
        if found == expected {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "{why}: {expected:?} expected, {found:?} fails"
        );
    }
}

#[test]
fn a_node_of_another_version_gets_no_writes() {
    let script = |call: &Call| match method(call).as_str() {
        "starknet_specVersion" => result(call, "\"0.9.0\""),
        _ => honest(call),
    };
    let stage = Stage::with_script(script, &[]);
    assert_eq!(failing(&stage.ready(), "0.9"), ["spec_version"]);
    refused(
        &stage.post("/recovery-execute", EXECUTE),
        "pins_unproven",
        "0.9",
    );
}

#[test]
fn a_restart_during_a_proof_voids_it() {
    let next = Mutex::new(0);
    let script = move |call: &Call| {
        if method(call) != "starknet_getBlockWithTxHashes" {
            return honest(call);
        }
        let mut life = next.lock().unwrap();
        *life += 1;
        chain::block(call, *life)
    };
    let stage = Stage::with_script(script, &[]);
    let answer = stage.ready();
    assert_eq!(answer.status, 503, "{}", answer.text());
    refused(
        &stage.post("/recovery-execute", EXECUTE),
        "pins_unproven",
        "two lives",
    );
}

#[test]
fn one_key_for_two_roles_is_never_ready() {
    let folder = Folder::new();
    let node = Node::start(honest);
    let same = folder.secret("same.key", chain::OWNER_KEY);
    let edge = setup(node.address(), &folder, &[])
        .set("relay.keys.verifier_file", &format!("\"{same}\""))
        .start();
    let answer = Client::connect(edge.relay()).ask(&authorised(Request::new("GET", "/readyz")));
    assert_eq!(failing(&answer, "one key"), [KEYS, "verifier_key"]);
}

#[test]
fn one_proof_serves_many_requests() {
    let user = User::with_key(USER_KEY);
    let hash = Arc::new(Mutex::new(user.address));
    let known = Arc::clone(&hash);
    let script = move |call: &Call| {
        if is_add(call) {
            took(call, *known.lock().unwrap())
        } else {
            honest(call)
        }
    };
    let stage = Stage::with_script(script, &[("relay.pins_max_age", "\"1m\"")]);
    let proofs = || {
        let calls = stage.node.calls();
        calls
            .iter()
            .filter(|call| method(call) == "starknet_specVersion")
            .count()
    };
    for _ in 0..5 {
        assert_eq!(stage.ready().status, 200, "ready");
    }
    for nonce in 0..5 {
        let fine = stage.fine(&user, nonce);
        *hash.lock().unwrap() = fine.hash;
        submitted(&stage.post("/rpc", fine.body()), fine.hash, "a write");
    }
    assert_eq!(proofs(), 1, "ten requests, one proof");
}

#[test]
fn concurrent_readiness_checks_share_one_proof() {
    let latch = Latch::default();
    let held = latch.clone();
    let script = move |call: &Call| {
        let wait = (method(call) == "starknet_specVersion").then(|| Act::Hold(held.clone()));
        wait.into_iter().chain(honest(call)).collect()
    };
    let stage = Stage::with_script(script, &[("relay.pins_max_age", "\"1m\"")]);
    let mut clients: Vec<_> = (0..8).map(|_| stage.client()).collect();
    for client in &mut clients {
        client.send(authorised(Request::new("GET", "/readyz")).bytes());
    }
    stage.node.wait_for_calls(2);
    latch.open();
    for client in &mut clients {
        assert_eq!(client.response().status, 200, "ready");
    }
    let calls = stage.node.calls();
    let proofs = calls
        .iter()
        .filter(|call| method(call) == "starknet_specVersion")
        .count();
    assert_eq!(proofs, 1, "eight requests, one proof");
}
