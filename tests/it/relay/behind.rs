//! Nodes that are some blocks behind, and blocks that come back: a write that the chain has is
//! never written again, whatever a node shows for a while.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::{Value, json};

use super::rollbacks::{DISPLACED, RECEIPT, SUCCEEDED, roll_back, written};
use crate::admin::eventually;
use crate::support::client::Client;
use crate::support::node::{Act, Call, Node};
use crate::support::relay::chain::{error, is_add, method, result};
use crate::support::relay::devnet::{Network, own_network};
use crate::support::relay::stage::{Stage, post};
use crate::support::relay::user::User;
use crate::support::request::Request;
use crate::support::script::{json as answer, send};

/// A view of the chain: fresh, or as it was at a block.
#[derive(Clone, Default)]
struct View {
    /// The newest block that it shows, plus one; 0 for all of them.
    until: Arc<AtomicU64>,
    /// Whether it closes each connection.
    is_away: Arc<AtomicBool>,
}

impl View {
    fn stands_at(&self, number: u64) {
        self.until.store(number + 1, Ordering::SeqCst);
    }

    fn catches_up(&self) {
        self.until.store(0, Ordering::SeqCst);
    }

    fn is_away(&self) {
        self.is_away.store(true, Ordering::SeqCst);
    }

    /// The answers of a node with this view.
    fn script(&self, network: &Network) -> impl Fn(&Call) -> Vec<Act> + Send + Sync + 'static {
        let (view, forward, address) = (self.clone(), network.forward(), network.address);
        move |call| {
            if view.is_away.load(Ordering::SeqCst) {
                return vec![Act::Close];
            }
            let Some(head) = view.until.load(Ordering::SeqCst).checked_sub(1) else {
                return forward(call);
            };
            let ask = |body: &Value| {
                Client::connect(address)
                    .ask(&Request::post(body.to_string()))
                    .body
            };
            let mut asked = call.json();
            match method(call).as_str() {
                "starknet_blockNumber" => result(call, &head.to_string()),
                RECEIPT => {
                    let body = ask(&asked);
                    let found: Value = serde_json::from_slice(&body).expect("JSON");
                    match found["result"]["block_number"].as_u64() {
                        Some(number) if number <= head => send(answer(body)),
                        _ => error(call, 29),
                    }
                }
                _ if is_add(call) => error(call, 52),
                _ => {
                    if let Some(block) = asked["params"].get_mut("block_id") {
                        if block.is_string() {
                            *block = json!({"block_number": head});
                        }
                        if block["block_number"].as_u64() > Some(head) {
                            return error(call, 24);
                        }
                    }
                    send(answer(ask(&asked)))
                }
            }
        }
    }
}

fn drip(user: &User, identity: u32) -> Request {
    let (address, key) = (user.address, user.key.public_key());
    let body =
        format!(r#"{{"identity":"{identity:#x}","recipient":"{address}","public_key":"{key}"}}"#);
    post("/faucet-drip", body).with("Idempotency-Key", &format!("drip-{identity:#x}"))
}

/// The block of a transaction.
fn block_of(network: &Network, hash: &Value) -> u64 {
    let receipt = network.ask(RECEIPT, &format!(r#"{{"transaction_hash":{hash}}}"#));
    receipt["block_number"].as_u64().expect("it is in a block")
}

/// How many drips an account has had since it was given its money.
fn drips(network: &Network, user: &User) -> u64 {
    let params = json!({"address": user.address.to_string(), "unit": "FRI", "block_id": "latest"});
    let balance = network.ask("devnet_getAccountBalance", &params.to_string());
    let balance: u128 = balance["amount"]
        .as_str()
        .expect("an amount")
        .parse()
        .expect("a number");
    let whole = 1_000_000_000_000_000_000;
    u64::try_from((balance - 100 * whole) / (10 * whole)).expect("a small number")
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_drip_is_paid_once_though_the_next_url_is_a_block_behind() {
    let network = own_network();
    let (first, second) = (View::default(), View::default());
    let other = Node::start(second.script(&network));
    let mut stage = Stage::on(&network, first.script(&network));
    let urls = [stage.node.address(), other.address()].map(|at| format!("http://{at}/rpc"));
    stage.edge.signal("KILL");
    stage.edge.wait();
    stage.setup = stage.setup.set("node.url", &json!(urls).to_string());
    stage.edge = stage.setup.start();
    let user = network.funded();
    let request = drip(&user, 0x91);
    let hash = written(&network, &stage.ask(&request), "the first");
    second.stands_at(block_of(&network, &hash) - 1);
    first.is_away();
    let meanwhile = stage.ask(&request);
    // on a slow machine the drip is in doubt by then: 409 in_progress
    let is_open = meanwhile.status >= 500 || meanwhile.text().contains("in_progress");
    assert!(is_open, "nobody shows it: {}", meanwhile.text());
    second.catches_up();
    eventually(&stage.edge, "the node shows it again", |metrics| {
        metrics.get(SUCCEEDED) == Some(&1.0)
    });
    assert_eq!(
        written(&network, &stage.ask(&request), "again"),
        hash,
        "the same one"
    );
    assert_eq!(drips(&network, &user), 1, "it was paid once");
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_drip_is_paid_once_though_a_balancer_goes_back_a_block_for_seconds() {
    let network = own_network();
    let view = View::default();
    let stage = Stage::on(&network, view.script(&network));
    let user = network.funded();
    let request = drip(&user, 0x92);
    let hash = written(&network, &stage.ask(&request), "the first");
    view.stands_at(block_of(&network, &hash) - 1);
    eventually(&stage.edge, "the journal doubts it", |metrics| {
        metrics.get(DISPLACED) == Some(&1.0)
    });
    let meanwhile = stage.ask(&request);
    assert!(
        meanwhile.status != 200,
        "nobody shows it: {}",
        meanwhile.text()
    );
    view.catches_up();
    eventually(&stage.edge, "the node shows it again", |metrics| {
        metrics.get(SUCCEEDED) == Some(&1.0)
    });
    assert_eq!(
        written(&network, &stage.ask(&request), "again"),
        hash,
        "the same one"
    );
    assert_eq!(drips(&network, &user), 1, "it was paid once");
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_drip_that_the_chain_includes_again_is_paid_once() {
    let network = own_network();
    let stage = Stage::on(&network, network.forward());
    let user = network.funded();
    let request = drip(&user, 0x93);
    let hash = written(&network, &stage.ask(&request), "the first");
    roll_back(&network, &hash);
    eventually(&stage.edge, "it is in doubt", |metrics| {
        metrics.get(DISPLACED) == Some(&1.0)
    });
    // as a public network does after a reorganisation
    let add = stage.adds().into_iter().next().expect("it was sent").json();
    network.ask(&method_of(&add), &add["params"].to_string());
    assert_eq!(
        written(&network, &stage.ask(&request), "again"),
        hash,
        "the same one"
    );
    assert_eq!(drips(&network, &user), 1, "it was paid once");
    eventually(&stage.edge, "the journal has it again", |metrics| {
        metrics.get(SUCCEEDED) == Some(&1.0)
    });
}

fn method_of(call: &Value) -> String {
    call["method"].as_str().expect("a method").to_owned()
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_registration_that_was_rolled_back_is_never_called_done() {
    let network = own_network();
    let (stage, user) = (Stage::on(&network, network.forward()), network.deployed());
    let (address, key) = (user.address, user.key.public_key());
    let body = format!(r#"{{"identity":"0x94","account":"{address}","public_key":"{key}"}}"#);
    let keyed = |key: &str| post("/register", &body).with("Idempotency-Key", key);
    let hash = written(&network, &stage.post("/register", &body), "without a key");
    let already = stage.ask(&keyed("late"));
    assert_eq!(
        already.json()["idempotent"],
        true,
        "nothing is to be done: {}",
        already.text()
    );
    roll_back(&network, &hash);
    let again = written(&network, &stage.ask(&keyed("late")), "it is done again");
    roll_back(&network, &again);
    written(&network, &stage.ask(&keyed("late")), "each time");
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn every_key_of_one_write_follows_it() {
    let network = own_network();
    let (forward, gate) = (network.forward(), crate::support::node::Latch::default());
    let reached = crate::support::node::Latch::default();
    let (held, tell) = (gate.clone(), reached.clone());
    let stage = Stage::on(&network, move |call| {
        if is_add(call) && !held.is_open() {
            let hold = vec![Act::Tell(tell.clone()), Act::Hold(held.clone())];
            return hold.into_iter().chain(forward(call)).collect();
        }
        forward(call)
    });
    let user = network.deployed();
    let (address, key) = (user.address, user.key.public_key());
    let body = format!(r#"{{"identity":"0x95","account":"{address}","public_key":"{key}"}}"#);
    let keyed = |key: &str| post("/register", &body).with("Idempotency-Key", key);
    let begin = |key: &str| {
        let mut client = stage.client();
        assert!(client.send(keyed(key).bytes()), "it is sent");
        client
    };
    let mut first = begin("one");
    assert!(reached.wait(), "it is on its way to the node");
    let mut second = begin("two");
    eventually(&stage.edge, "both are in flight", |now| {
        now["portcullis_requests_in_flight"] >= 2.0
    });
    gate.open();
    let hash = written(&network, &first.response(), "the first");
    assert_eq!(
        written(&network, &second.response(), "the second"),
        hash,
        "it joined"
    );
    roll_back(&network, &hash);
    for key in ["two", "one"] {
        written(&network, &stage.ask(&keyed(key)), key);
    }
}
