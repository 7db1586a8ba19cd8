//! Operations that the operator has switched off.

use super::operations::{operations, text};
use crate::support::check::each;
use crate::support::relay::chain::USER_KEY;
use crate::support::relay::devnet::own_network;
use crate::support::relay::expect::refused;
use crate::support::relay::stage::{Stage, post};
use crate::support::relay::user::User;

const KEY: &str = "relay.operations";

/// Applies another list of operations.
fn set(stage: &Stage, value: &str) {
    stage.edge.rewrite(&stage.setup.clone().set(KEY, value));
    stage.edge.signal("HUP");
    let line = stage
        .edge
        .line(KEY, |line| line["key"] == KEY && line["to"] == value);
    assert_eq!(line["effective"], "now");
}

#[test]
fn an_operation_off_the_list_is_refused() {
    let stage = Stage::scripted_with(&[(KEY, "[]")]);
    let mut bodies: Vec<_> = operations()
        .iter()
        .map(|(path, body)| (*path, text(body, None)))
        .collect();
    let phrase = r#"{"confirm":"ACTIVATE PERMANENT V2 VERIFICATION"}"#;
    bodies.push(("/require-v2", phrase.to_owned()));
    assert_eq!(bodies.len(), 10, "all operations");
    each(&bodies, |(path, body)| {
        refused(&stage.post(path, body), "operation_disabled", path);
        refused(&stage.post(path, "{"), "parse_error", path);
    });
    assert_eq!(stage.adds().len(), 0, "nothing of it reaches the node");
    let user = User::with_key(USER_KEY);
    stage.post("/rpc", stage.fine(&user, 0).body());
    assert_eq!(stage.adds().len(), 1, "transactions of users are served");
    assert_eq!(stage.ready().status, 200);
}

#[test]
fn the_list_applies_to_each_operation_alone() {
    let stage = Stage::scripted();
    let all = operations();
    let (path, body) = &all[3];
    assert_eq!(*path, "/mint-card");
    let reason = |path: &str, body: &str| {
        let answer = stage.post(path, body).json();
        answer["error"]["reason"].as_str().map(str::to_owned)
    };
    let disabled = Some("operation_disabled".to_owned());
    for (list, is_off) in [
        ("[\"register\"]", true),
        ("[\"mint-card\", \"register\"]", false),
        ("[\"faucet-drip\"]", true),
    ] {
        set(&stage, list);
        let found = reason(path, &text(body, None));
        assert_eq!(found == disabled, is_off, "{list}: {found:?}");
    }
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_repeat_is_answered_when_its_operation_is_off() {
    let network = own_network();
    let stage = Stage::on(&network, network.forward());
    let drip = |identity: &str, key: &str| {
        let user = network.funded();
        let (address, public_key) = (user.address, user.key.public_key());
        let members = format!(r#""recipient":"{address}","public_key":"{public_key}""#);
        let body = format!(r#"{{"identity":"{identity}",{members}}}"#);
        post("/faucet-drip", body).with("Idempotency-Key", key)
    };
    let first = drip("0xd1", "first");
    let written = stage.ask(&first);
    assert_eq!(written.status, 200, "{}", written.text());
    set(&stage, "[\"mint-card\"]");
    let again = stage.ask(&first);
    assert_eq!((again.status, again.text()), (200, written.text()));
    let second = drip("0xd2", "second");
    refused(&stage.ask(&second), "operation_disabled", "a new one");
    assert_eq!(stage.adds().len(), 1, "one reached the node");
    set(&stage, "[\"faucet-drip\"]");
    assert_eq!(stage.ask(&second).status, 200, "its key is free");
}
