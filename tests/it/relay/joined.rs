//! One request at two relays of one PostgreSQL, in front of a real node: both give the answer
//! of one write, also while the account is busy, and neither takes the key of the other's request.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::admin::{eventually, series};
use crate::support::client::Client;
use crate::support::edge::Edge;
use crate::support::node::{Act, Call, Latch, Node};
use crate::support::postgres::Database;
use crate::support::relay::chain::is_add;
use crate::support::relay::devnet::{Network, own_network};
use crate::support::relay::expect::refused;
use crate::support::relay::stage::{Stage, post};
use crate::support::request::Request;

/// Two relays with one store. The node of the first takes no transaction until `accept` is opened;
/// that of the second can be cut off.
struct Pair {
    one: Edge,
    two: Edge,
    reached: Latch,
    accept: Latch,
    is_away: Arc<AtomicBool>,
    _nodes: (Stage, Node),
    _database: Database,
}

impl Pair {
    /// A proof of the pins is valid for `max_age`.
    fn start(network: &Network, max_age: &str) -> Self {
        let (reached, accept) = (Latch::default(), Latch::default());
        let (tell, hold, forward) = (reached.clone(), accept.clone(), network.forward());
        let first = move |call: &Call| {
            if is_add(call) && !hold.is_open() {
                let wait = vec![Act::Tell(tell.clone()), Act::Hold(hold.clone())];
                return wait.into_iter().chain(forward(call)).collect();
            }
            forward(call)
        };
        let is_away = Arc::new(AtomicBool::new(false));
        let (cut, forward) = (Arc::clone(&is_away), network.forward());
        let other = Node::start(move |call| {
            if cut.load(Ordering::SeqCst) {
                vec![Act::Close]
            } else {
                forward(call)
            }
        });
        let (mut stage, database) = (Stage::on(network, first), Database::new());
        stage.edge.signal("KILL");
        stage.edge.wait();
        let setup = stage.setup.set("store.url", &database.url());
        let setup = setup.set("relay.pins_max_age", &format!("\"{max_age}\""));
        let one = setup.start();
        let url = format!("\"http://{}/rpc\"", other.address());
        let setup = setup.set("node.url", &url);
        let two = setup.start();
        stage.setup = setup;
        Self {
            one,
            two,
            reached,
            accept,
            is_away,
            _nodes: (stage, other),
            _database: database,
        }
    }

    /// Both have proven the pins.
    fn are_ready(&self) {
        for edge in [&self.one, &self.two] {
            eventually(edge, "the pins are proven", |now| {
                now.get("portcullis_relay_pins_ready") == Some(&1.0)
            });
        }
    }
}

fn drip(network: &Network, identity: u32, key: Option<&str>) -> Request {
    let user = network.funded();
    let (address, public) = (user.address, user.key.public_key());
    let request = post(
        "/faucet-drip",
        format!(
            r#"{{"identity":"{identity:#x}","recipient":"{address}","public_key":"{public}"}}"#
        ),
    );
    key.into_iter()
        .fold(request, |request, key| request.with("Idempotency-Key", key))
}

fn begin(edge: &Edge, request: &Request) -> Client {
    let mut client = Client::connect(edge.relay());
    assert!(client.send(request.bytes()), "it is sent");
    client
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn the_same_drip_at_two_relays_of_a_busy_account_has_one_answer() {
    let network = own_network();
    for (round, key) in [(0, Some("joined")), (1, None)] {
        let pair = Pair::start(&network, "1m");
        pair.are_ready();
        let others: Vec<_> = (1..=6)
            .map(|other| drip(&network, 0x6000 + round * 16 + other, None))
            .collect();
        let mut busy: Vec<_> = others.iter().map(|other| begin(&pair.one, other)).collect();
        assert!(pair.reached.wait(), "the account is busy");
        let request = drip(&network, 0x7000 + round, key);
        let mut both = [begin(&pair.one, &request), begin(&pair.two, &request)];
        eventually(&pair.two, "it waits for the account there, too", |now| {
            series(now, "portcullis_relay_signer_queue", &["faucet"]) >= 0.0
        });
        pair.accept.open();
        for other in &mut busy {
            assert_eq!(other.response().status, 200);
        }
        let [first, second] = both.each_mut().map(Client::response);
        assert_eq!(first.status, 200, "{key:?}: {}", first.text());
        assert_eq!(second.status, 200, "{key:?}: {}", second.text());
        let [first, second] =
            [first, second].map(|answer| answer.json()["transaction_hash"].clone());
        assert_eq!(first, second, "{key:?}: one transaction");
        assert_ne!(first, "", "{key:?}");
    }
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_refusal_at_one_relay_leaves_the_key_to_the_request_at_the_other() {
    let network = own_network();
    let pair = Pair::start(&network, "100ms");
    pair.are_ready();
    let mut busy = begin(&pair.one, &drip(&network, 0x6101, None));
    assert!(pair.reached.wait(), "the account is busy");
    let request = drip(&network, 0x7101, Some("refused-elsewhere"));
    let mut waits = begin(&pair.one, &request);
    eventually(&pair.one, "it waits for the account", |now| {
        series(now, "portcullis_relay_signer_queue", &["faucet"]) == 1.0
    });
    pair.is_away.store(true, Ordering::SeqCst);
    let elsewhere = Client::connect(pair.two.relay()).ask(&request);
    refused(&elsewhere, "pins_unproven", "its node has just gone");
    pair.accept.open();
    assert_eq!(busy.response().status, 200);
    let first = waits.response();
    assert_eq!(
        first.status,
        200,
        "its key was not released: {}",
        first.text()
    );
    let other =
        Client::connect(pair.one.relay()).ask(&drip(&network, 0x7102, Some("refused-elsewhere")));
    refused(&other, "idempotency_conflict", "another body under the key");
    let again = Client::connect(pair.one.relay()).ask(&request);
    assert_eq!(
        again.json()["transaction_hash"],
        first.json()["transaction_hash"]
    );
}
