//! Budgets of a day: a write over them is refused before anything is sent, by every relay of the
//! store, also after a crash.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use crate::admin::eventually;
use crate::support::client::Client;
use crate::support::edge::Edge;
use crate::support::node::Call;
use crate::support::postgres::Database;
use crate::support::relay::chain::{error, honest, is_add, is_view, method, receipt, result};
use crate::support::relay::devnet::{Network, own_network};
use crate::support::relay::expect::refused;
use crate::support::relay::stage::{Stage, post};
use crate::support::request::Request;
use crate::support::response::Response;

const DRIPS: &str = "relay.faucet_per_day";
const FEES: &str = "relay.fees_per_day";
const DRIPS_USED: &str = r#"portcullis_relay_budget_used_ratio{budget="faucet"}"#;
const FEES_USED: &str = r#"portcullis_relay_budget_used_ratio{budget="fees"}"#;
const DAY: u32 = 24 * 60 * 60;

/// A drip to a new user.
fn drip(network: &Network, identity: u32) -> Request {
    let user = network.funded();
    let (address, key) = (user.address, user.key.public_key());
    post(
        "/faucet-drip",
        format!(r#"{{"identity":"{identity:#x}","recipient":"{address}","public_key":"{key}"}}"#),
    )
}

/// Sets a key of a running relay.
fn set(stage: &mut Stage, key: &str, value: &str) {
    stage.setup = stage.setup.clone().set(key, value);
    stage.edge.rewrite(&stage.setup);
    stage.edge.signal("HUP");
    let line = stage
        .edge
        .line(key, |line| line["key"] == *key && line["to"] == *value);
    assert_eq!(line["effective"], "now", "{key}");
}

/// Asserts that this is over a budget, and returns when there is room.
fn over(answer: &Response, why: &str) -> u32 {
    let error = refused(answer, "budget_exceeded", why);
    assert!(
        error["transaction_hash"].is_null(),
        "{why}: nothing was submitted"
    );
    let wait = answer
        .header("Retry-After")
        .and_then(|wait| wait.parse().ok());
    wait.expect("it says when there is room")
}

fn written(answer: &Response, why: &str) -> serde_json::Value {
    assert_eq!(answer.status, 200, "{why}: {}", answer.text());
    answer.json()["transaction_hash"].clone()
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn drips_of_a_day_are_counted_over_a_crash() {
    let network = own_network();
    let mut stage = Stage::on(&network, network.forward());
    set(&mut stage, DRIPS, "1");
    let first = drip(&network, 0xb1).with("Idempotency-Key", "first");
    let hash = written(&stage.ask(&first), "the first");
    let second = drip(&network, 0xb2);
    let wait = over(&stage.ask(&second), "the second");
    assert!(
        (DAY / 2..=DAY).contains(&wait),
        "until the first is a day old: {wait} s"
    );
    eventually(&stage.edge, "all is used", |now| {
        now.get(DRIPS_USED) == Some(&1.0)
    });
    stage.edge.signal("KILL");
    stage.edge.wait();
    stage.edge = stage.setup.start();
    over(&stage.ask(&second), "after the crash");
    assert_eq!(
        written(&stage.ask(&first), "its key"),
        hash,
        "the first answer"
    );
    assert_eq!(stage.adds().len(), 1, "one reached the node");
    set(&mut stage, DRIPS, "2");
    written(&stage.ask(&second), "under a larger budget");
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn fees_of_a_day_are_those_of_receipts() {
    let network = own_network();
    let mut stage = Stage::on(&network, network.forward());
    let hash = written(&stage.ask(&drip(&network, 0xb3)), "without a budget");
    let params = format!(r#"{{"transaction_hash":{hash}}}"#);
    let fee = &network.ask("starknet_getTransactionReceipt", &params)["actual_fee"];
    assert_eq!(fee["unit"], "FRI");
    let fee = fee["amount"]
        .as_str()
        .and_then(|hex| hex.strip_prefix("0x"));
    let fee = u128::from_str_radix(fee.expect("a felt"), 16).expect("128 bits");
    let gfri = fee.div_ceil(1_000_000_000);
    set(&mut stage, FEES, "\"1 STRK\"");
    let part = gfri as f64 / 1e9;
    eventually(&stage.edge, "what it cost", |now| {
        now.get(FEES_USED) == Some(&part)
    });
    set(&mut stage, FEES, &format!("\"{gfri}000000000 fri\""));
    let wait = over(&stage.ask(&drip(&network, 0xb4)), "one more");
    assert!(
        (DAY / 2..=DAY + 60).contains(&wait),
        "until its minute is a day old: {wait} s"
    );
    assert_eq!(stage.adds().len(), 1, "one reached the node");
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn parallel_relays_share_one_budget() {
    let network = own_network();
    let stage = Stage::on(&network, network.forward());
    let database = Database::new();
    let setup = stage
        .setup
        .clone()
        .set("store.url", &database.url())
        .set(DRIPS, "3");
    let relays = [setup.start(), setup.start()];
    let begin = |(relay, request): (&Edge, Request)| {
        let mut client = Client::connect(relay.relay());
        assert!(client.send(request.bytes()), "it is sent");
        client
    };
    let drips = (0xc0..0xc8).map(|identity| drip(&network, identity));
    let all: Vec<_> = relays.iter().cycle().zip(drips).map(begin).collect();
    let answers: Vec<_> = all
        .into_iter()
        .map(|mut client| client.response())
        .collect();
    let (paid, rest): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!(paid.len(), 3, "{answers:?}");
    for answer in rest {
        over(answer, "beyond three");
    }
    assert_eq!(stage.adds().len(), 3, "three reached the node");
}

/// A mint of this card.
fn mint(stage: &Stage, card: u32) -> Response {
    stage.post(
        "/mint-card",
        format!(r#"{{"recipient":"0x9","card_id":"{card}"}}"#),
    )
}

#[test]
fn what_takes_the_nonce_of_a_refused_operation_takes_its_budget() {
    let rejects = Arc::new(AtomicBool::new(true));
    let (now, accepted) = (Arc::clone(&rejects), AtomicUsize::new(0));
    let first = OnceLock::new();
    let script = move |call: &Call| match method(call).as_str() {
        _ if is_add(call) && now.load(Ordering::Relaxed) => error(call, 55),
        _ if is_add(call) => {
            accepted.fetch_add(1, Ordering::Relaxed);
            error(call, 59)
        }
        "starknet_getNonce" => result(
            call,
            &format!("\"{:#x}\"", accepted.load(Ordering::Relaxed)),
        ),
        "starknet_getTransactionReceipt" => {
            // the relay looks for the refused transaction first
            let asked = call.json()["params"]["transaction_hash"].to_string();
            if *first.get_or_init(|| asked.clone()) == asked {
                return error(call, 29);
            }
            receipt(call)
        }
        "starknet_call" if is_view(call, "is_verified") => result(call, "[\"0x1\"]"),
        _ => honest(call),
    };
    // any fee of this chain is less, and counts as that much
    let keys = [
        (FEES, "\"1000000000 fri\""),
        ("relay.pins_max_age", "\"1m\""),
    ];
    let stage = Stage::with_script(script, &keys);
    refused(&mint(&stage, 1), "rejected", "the node refuses it");
    rejects.store(false, Ordering::Relaxed);
    written(
        &mint(&stage, 2),
        "it has the nonce and the share of the first",
    );
    over(&mint(&stage, 3), "and used up");
    assert_eq!(
        stage.adds().len(),
        2,
        "what is over the budget does not reach the node"
    );
}
