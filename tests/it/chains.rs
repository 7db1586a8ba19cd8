//! Several URLs of the node: whichever answers, the chain that is served stays the same.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use portcullis_filters::felt::Felt;
use serde_json::{Value, json};

use crate::admin::{eventually, metrics};
use crate::support::check::{assert_error, assert_result, each};
use crate::support::client::{Client, PATIENCE};
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::{Act, Call, Latch, Node};
use crate::support::relay::chain::{honest, method};
use crate::support::relay::stage::{self, authorised};
use crate::support::request::{Request, rpc};
use crate::support::response::Response;
use crate::support::script::result;

/// The chain of a node: its id, and the second of its first block; `None` if the node is down.
type Life = Option<(&'static str, u64)>;

const ONE: Life = Some(("ONE", 1));
const TWO: Life = Some(("TWO", 1));
/// The chain of [`ONE`], begun again.
const ANEW: Life = Some(("ONE", 2));

/// A node that answers reads with its name.
struct Named {
    node: Node,
    life: Arc<Mutex<Life>>,
}

impl Named {
    fn start(name: &'static str, life: Life) -> Self {
        let life = Arc::new(Mutex::new(life));
        let shared = Arc::clone(&life);
        let node = Node::start(move |call| {
            let Some((id, mined)) = *shared.lock().unwrap() else {
                return vec![Act::Close];
            };
            let id = Felt::from_short_string(id)
                .expect("a short string")
                .to_string();
            let answer = match method(call).as_str() {
                "starknet_chainId" => json!(id),
                "starknet_getBlockWithTxHashes" => block(call, mined),
                "starknet_specVersion" => json!("0.10.2"),
                _ => json!(name),
            };
            vec![Act::Send(result(call, &answer.to_string()))]
        });
        Self { node, life }
    }

    fn becomes(&self, life: Life) {
        *self.life.lock().unwrap() = life;
    }

    fn url(&self) -> String {
        format!("http://{}/rpc", self.node.address())
    }

    /// The requests for anything but the chain.
    fn reads(&self) -> usize {
        self.node
            .calls()
            .iter()
            .filter(|call| is_read(call))
            .count()
    }
}

fn is_read(call: &Call) -> bool {
    !["starknet_chainId", "starknet_getBlockWithTxHashes"].contains(&method(call).as_str())
}

/// The requested block; the first one decides what [`Life`] is about.
fn block(call: &Call, mined: u64) -> Value {
    let number = &call.json()["params"]["block_id"]["block_number"];
    let status = "ACCEPTED_ON_L2";
    json!({"status": status, "block_number": number, "block_hash": "0xb", "timestamp": mined})
}

fn before(nodes: &[&Named]) -> Setup {
    let urls: Vec<String> = nodes.iter().map(|node| node.url()).collect();
    Setup::before(nodes[0].node.address()).set("node.url", &json!(urls).to_string())
}

fn ask(edge: &Edge) -> Response {
    edge.ask(&Request::post(rpc("7", "starknet_blockNumber", "[]")))
}

fn assert_from(edge: &Edge, name: &str, why: &str) {
    assert_result(&ask(edge), "7", &json!(name).to_string(), why);
}

/// Waits until the log says that this URL is excluded.
fn excluded(edge: &Edge, node: &Named) -> String {
    let line = edge.line("an excluded URL", |line| {
        let message = line["message"].as_str().unwrap_or_default();
        line["url"] == node.url() && message.contains("excluded")
    });
    line["message"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_failover_never_changes_the_chain() {
    each(
        [("another chain id", TWO), ("another first block", ANEW)],
        |(what, other)| {
            let (a, b) = (Named::start("a", ONE), Named::start("b", other));
            let edge = before(&[&a, &b]).start();
            assert_from(&edge, "a", what);
            a.becomes(None);
            for _ in 0..20 {
                assert_error(&ask(&edge), "upstream_unreachable", "7", what);
            }
            excluded(&edge, &b);
            a.becomes(ONE);
            until(&edge, "a");
            assert_eq!(b.reads(), 0, "{what}: nothing was read from it");
            let lines = edge.lines();
            let logged = lines
                .iter()
                .filter(|line| line.contains("excluded"))
                .count();
            assert_eq!(logged, 1, "{what}: logged once: {lines:?}");
        },
    );
}

/// Asks until the node of this name answers.
fn until(edge: &Edge, name: &str) {
    let deadline = Instant::now() + PATIENCE;
    while ask(edge).text() != format!(r#"{{"jsonrpc":"2.0","id":7,"result":"{name}"}}"#) {
        assert!(Instant::now() < deadline, "{name} never answers");
        // no data arrives here: a wait of 20 ms, to avoid a busy loop
        let _silence = edge.client().silent_for(Duration::from_millis(20));
    }
}

#[test]
fn another_url_of_the_chain_takes_over() {
    let (a, b) = (Named::start("a", ONE), Named::start("b", ONE));
    let edge = before(&[&a, &b]).start();
    assert_from(&edge, "a", "the first is preferred");
    a.becomes(None);
    for _ in 0..20 {
        assert!(
            ask(&edge).status == 200 || a.reads() < 5,
            "the second URL serves"
        );
    }
    assert_from(&edge, "b", "the second has the same chain");
}

#[test]
fn a_switch_of_urls_is_one_event() {
    let (a, b) = (Named::start("a", ONE), Named::start("b", ONE));
    let edge = before(&[&a, &b]).start();
    let switch_to = |node: &Named| {
        edge.line("the switch", |line| {
            line["message"] == "node URL switched" && line["to"] == node.url()
        })
    };
    assert_from(&edge, "a", "the first is preferred");
    a.becomes(None);
    until(&edge, "b");
    let away = switch_to(&b);
    assert_eq!(away["level"], "warn");
    assert_eq!(away["from"], a.url());
    assert_eq!(away["cause"], "the connection ended before the answer");
    let attempts = |node: u8, outcome: &str| {
        let outcome = format!(r#"node="{node}",outcome="{outcome}""#);
        metrics(&edge)[&format!("portcullis_node_attempts_total{{{outcome}}}")]
    };
    assert!(
        attempts(0, "ok") >= 1.0 && attempts(1, "ok") >= 1.0,
        "both answered"
    );
    let failed = attempts(0, "unreachable") + attempts(0, "cut");
    assert!(failed >= 1.0, "attempts are counted, not only calls");
    assert_eq!(attempts(1, "unreachable"), 0.0);
    for (node, index) in [(&a, 0), (&b, 1)] {
        let info = format!(
            r#"portcullis_node_info{{node="{index}",url="{}"}}"#,
            node.url()
        );
        assert_eq!(metrics(&edge)[&info], 1.0, "the index is explained");
    }
    let is_open = |open: f64| {
        let pair = [("0", open), ("1", 0.0)];
        move |now: &BTreeMap<String, f64>| {
            let name = |node| format!(r#"portcullis_node_breaker_open{{node="{node}"}}"#);
            pair.iter().all(|(node, open)| now[&name(node)] == *open)
        }
    };
    while !is_open(1.0)(&metrics(&edge)) {
        assert_from(
            &edge,
            "b",
            "attempts at the first fail until its breaker opens",
        );
    }

    a.becomes(ONE);
    until(&edge, "a");
    let back = switch_to(&a);
    assert_eq!(
        (&back["level"], &back["from"]),
        (&json!("info"), &json!(b.url()))
    );
    eventually(&edge, "the breaker is closed", is_open(0.0));
    let lines = edge.lines();
    let logged = lines
        .iter()
        .filter(|line| line.contains("node URL switched"))
        .count();
    assert_eq!(logged, 2, "one line for each change: {lines:?}");
}

#[test]
fn a_url_that_hangs_delays_no_probe_of_another() {
    let (hangs, probed) = (Latch::default(), Latch::default());
    let (mode, seen) = (hangs.clone(), probed.clone());
    let stuck = Node::start(move |_| match mode.is_open() {
        false => vec![Act::Close],
        true => vec![Act::Tell(seen.clone()), Act::Hang],
    });
    let (b, c) = (Named::start("b", None), Named::start("c", ONE));
    let urls = json!([format!("http://{}/rpc", stuck.address()), b.url(), c.url()]);
    let edge = Setup::before(stuck.address())
        .set("node.url", &urls.to_string())
        .start();
    let is_open = |node: u8| {
        let name = format!(r#"portcullis_node_breaker_open{{node="{node}"}}"#);
        metrics(&edge)[&name] == 1.0
    };
    while !is_open(0) || !is_open(1) {
        assert_from(&edge, "c", "the others are down");
    }
    hangs.open();
    assert!(probed.wait(), "the first URL is probed, and hangs");
    b.becomes(ONE);
    eventually(&edge, "the second URL was probed", |_| !is_open(1));
    let timeouts = r#"portcullis_node_attempts_total{node="0",outcome="timeout"}"#;
    assert_eq!(metrics(&edge)[timeouts], 0.0, "the first still hangs");
}

#[test]
fn a_url_that_returns_with_another_chain_is_excluded() {
    let (a, b) = (Named::start("a", ONE), Named::start("b", ONE));
    let edge = before(&[&a, &b]).start();
    assert_from(&edge, "a", "the first is preferred");
    a.becomes(None);
    until(&edge, "b");
    let before = a.reads();
    a.becomes(TWO);
    let why = excluded(&edge, &a);
    assert!(
        why.contains("its chain is TWO, the served one is ONE"),
        "{why}"
    );
    for _ in 0..20 {
        assert_from(&edge, "b", "the first has another chain now");
    }
    assert_eq!(a.reads(), before, "nothing was read from it");
}

#[test]
fn a_chain_that_changes_in_place_is_noticed() {
    let (a, b) = (Named::start("a", ONE), Named::start("b", ONE));
    let edge = before(&[&a, &b]).start();
    assert_from(&edge, "a", "its connection stays open");
    a.becomes(TWO);
    excluded(&edge, &a);
    for _ in 0..20 {
        assert_from(&edge, "b", "the first has another chain now");
    }
    a.becomes(ONE);
    until(&edge, "a");
}

#[test]
fn a_chain_that_begins_anew_everywhere_is_served() {
    let (a, b) = (Named::start("a", ONE), Named::start("b", ONE));
    let edge = before(&[&a, &b]).start();
    assert_from(&edge, "a", "before");
    // a poll is three calls, so its chain is known
    b.node.wait_for_calls(4);
    [&a, &b].into_iter().for_each(|node| node.becomes(ANEW));
    // the one that is queried first is excluded, until the other has the new chain as well
    edge.line("one is excluded", |line| {
        line["message"]
            .as_str()
            .is_some_and(|text| text.contains("node URL is excluded"))
    });
    edge.line("it is used again", |line| {
        line["message"] == "node URL is used again"
    });
    until(&edge, "a");
}

#[test]
fn the_configured_chain_id_decides() {
    let (a, b) = (Named::start("a", ONE), Named::start("b", TWO));
    let edge = before(&[&a, &b]).set("node.chain_id", "\"TWO\"").start();
    for _ in 0..5 {
        assert_from(&edge, "b", "the first has another chain");
    }
    let edge = before(&[&a]).set("node.chain_id", "\"TWO\"").start();
    for _ in 0..5 {
        assert_error(
            &ask(&edge),
            "upstream_unreachable",
            "7",
            "the only URL has another chain",
        );
    }
    assert_eq!(a.reads(), 0, "nothing was read from it");
}

#[test]
fn a_later_block_can_identify_the_chain() {
    let a = Named::start("a", ONE);
    let b = Named::start("b", ONE);
    let edge = before(&[&a, &b]).set("node.anchor", "12").start();
    assert_from(&edge, "a", "it has block 12");
    let calls = a.node.calls();
    let requested = calls
        .iter()
        .filter(|call| method(call) == "starknet_getBlockWithTxHashes")
        .filter(|call| call.json()["params"]["block_id"] != "latest");
    for call in requested {
        assert_eq!(
            call.json()["params"]["block_id"]["block_number"],
            12,
            "not block 0"
        );
    }
}

#[test]
fn the_relay_writes_to_one_chain() {
    let (down, folder) = (Arc::new(Mutex::new(false)), Folder::new());
    let now = Arc::clone(&down);
    let node = Node::start(move |call| {
        if *now.lock().unwrap() {
            vec![Act::Close]
        } else {
            honest(call)
        }
    });
    let other = Named::start("other", TWO);
    let urls = json!([format!("http://{}/rpc", node.address()), other.url()]).to_string();
    let edge = stage::setup(
        node.address(),
        &folder,
        &[("relay.pins_max_age", "\"100ms\"")],
    )
    .set("node.url", &urls)
    .start();
    let ready = || {
        let request = authorised(Request::new("GET", "/readyz"));
        Client::connect(edge.relay()).ask(&request)
    };
    assert_eq!(ready().status, 200, "the first has the pinned chain");
    *down.lock().unwrap() = true;
    excluded(&edge, &other);
    let deadline = Instant::now() + PATIENCE;
    while ready().status != 503 {
        assert!(
            Instant::now() < deadline,
            "an earlier proof is valid for 100 ms"
        );
    }
    assert_eq!(other.reads(), 0, "only its chain id was requested");
}

#[test]
fn a_live_check_names_each_wrong_url() {
    let (a, b) = (Named::start("a", ONE), Named::start("b", TWO));
    let (c, gone) = (Named::start("c", ANEW), Named::start("gone", None));
    for (pin, nodes, failures) in [
        ("\"\"", vec![&a], vec![]),
        (
            "\"\"",
            vec![&a, &b],
            vec![(&b, "its chain is TWO, the served one is ONE")],
        ),
        (
            "\"TWO\"",
            vec![&a, &b],
            vec![(&a, "its chain is ONE, the served one is TWO")],
        ),
        (
            "\"TWO\"",
            vec![&a],
            vec![(&a, "its chain is ONE, the served one is TWO")],
        ),
        ("\"ONE\"", vec![&a], vec![]),
        (
            "\"\"",
            vec![&a, &c],
            vec![(&c, "its block 0 differs from the served one's")],
        ),
        (
            "\"\"",
            vec![&gone, &a, &b],
            vec![
                (&gone, "unreachable"),
                (&b, "its chain is TWO, the served one is ONE"),
            ],
        ),
    ] {
        let output = before(&nodes)
            .set("node.chain_id", pin)
            .run_with("check", &["--live"], "");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let wanted = i32::from(!failures.is_empty());
        assert_eq!(output.status.code(), Some(wanted), "{pin}: {text}");
        for (node, cause) in failures {
            let is_named = |line: &str| line.contains(&node.url()) && line.contains(cause);
            assert!(text.lines().any(is_named), "{} {cause}: {text}", node.url());
        }
    }
}
