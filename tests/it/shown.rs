//! A node that is behind never takes back a receipt, a block or a head that was shown.
//!
//! A real node, and views of it that are a block behind: as a second URL, or as one of the nodes
//! behind the balancer of a single URL.

use std::net::SocketAddr;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::positions::stated;
use crate::support::client::{Client, PATIENCE};
use crate::support::edge::{Edge, Setup, scratch_path};
use crate::support::node::{Act, Node};
use crate::support::relay::devnet;
use crate::support::request::{Request, rpc};
use crate::support::response::Response;
use crate::support::script::{json as answer, send};

const RECEIPT: &str = "starknet_getTransactionReceipt";
const BLOCK: &str = "starknet_getBlockWithTxHashes";
const NUMBER: &str = "starknet_blockNumber";

/// A real node.
struct Devnet {
    address: SocketAddr,
    _keeper: Child,
}

impl Devnet {
    fn start() -> Self {
        let (address, keeper) = devnet::start(&scratch_path("shown"), &devnet::ARCHIVE);
        Self {
            address,
            _keeper: keeper,
        }
    }

    fn ask(&self, method: &str, params: &Value) -> Value {
        let request = Request::post(rpc("1", method, &params.to_string()));
        let body = Client::connect(self.address).ask(&request).json();
        assert!(body["error"].is_null(), "{method} {params}: {body}");
        body["result"].clone()
    }

    fn head(&self) -> u64 {
        self.ask(NUMBER, &json!([])).as_u64().expect("a number")
    }

    /// Mines a block with one transaction; returns its hash, which follows from the amount.
    fn mint(&self, amount: u64) -> Value {
        let params = json!({"address": "0x123", "amount": amount, "unit": "FRI"});
        self.ask("devnet_mint", &params)["tx_hash"].clone()
    }

    fn abort_from(&self, number: u64) {
        let params = json!({"starting_block_id": {"block_number": number}});
        self.ask("devnet_abortBlocks", &params);
    }
}

/// A URL of the node: some answers are those of a node that ends at an older block.
struct Url {
    node: Node,
    is_away: Arc<AtomicBool>,
    /// The newest block of the node that is behind.
    end: Arc<AtomicU64>,
    /// How many of the next calls it gets.
    behind: Arc<AtomicUsize>,
}

impl Url {
    fn of(devnet: &Devnet) -> Self {
        let (is_away, end) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let behind = Arc::new(AtomicUsize::new(0));
        let own = (Arc::clone(&is_away), Arc::clone(&end), Arc::clone(&behind));
        let address = devnet.address;
        let node = Node::start(move |call| {
            let (is_away, end, behind) = &own;
            if is_away.load(Ordering::SeqCst) {
                return vec![Act::Close];
            }
            let is_behind = behind
                .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| {
                    left.checked_sub(1)
                })
                .is_ok();
            let forward = |body: &Value| {
                Client::connect(address)
                    .ask(&Request::post(body.to_string()))
                    .json()
            };
            let body = call.json();
            let found = if is_behind {
                older(&body, end.load(Ordering::SeqCst), forward)
            } else {
                forward(&body)
            };
            send(answer(found.to_string()))
        });
        Self {
            node,
            is_away,
            end,
            behind,
        }
    }

    /// Has a node that ends at this block answer the next calls.
    fn falls_behind(&self, end: u64, calls: usize) {
        self.end.store(end, Ordering::SeqCst);
        self.behind.store(calls, Ordering::SeqCst);
    }

    fn catches_up(&self) {
        self.behind.store(0, Ordering::SeqCst);
    }

    fn is_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }
}

/// The answer of a node whose newest block is `end`.
fn older(body: &Value, end: u64, forward: impl Fn(&Value) -> Value) -> Value {
    let id = &body["id"];
    let error = |code: i64| {
        let error = json!({"code": code, "message": "not found"});
        json!({"jsonrpc": "2.0", "id": id, "error": error})
    };
    let mut body = body.clone();
    if body["params"]["block_id"] == "latest" {
        body["params"]["block_id"] = json!({"block_number": end});
    }
    let is_newer = |number: &Value| number.as_u64().is_some_and(|number| number > end);
    if body["method"] == NUMBER {
        return json!({"jsonrpc": "2.0", "id": id, "result": end});
    }
    if is_newer(&body["params"]["block_id"]["block_number"]) {
        return error(24);
    }
    let found = forward(&body);
    if is_newer(&found["result"]["block_number"]) {
        error(29)
    } else {
        found
    }
}

fn gateway(urls: &[&Url]) -> Edge {
    let names: Vec<_> = urls
        .iter()
        .map(|url| format!("http://{}/rpc", url.node.address()))
        .collect();
    Setup::before(urls[0].node.address())
        .set("node.url", &json!(names).to_string())
        .set("gateway.requests_per_minute", "100000")
        .set("gateway.cache.enabled", "true")
        .start()
}

fn receipt(edge: &Edge, hash: &Value) -> Response {
    edge.ask(&Request::post(rpc(
        "7",
        RECEIPT,
        &json!([hash]).to_string(),
    )))
}

fn block(edge: &Edge, id: &Value) -> Response {
    edge.ask(&Request::post(rpc("7", BLOCK, &json!([id]).to_string())))
}

fn number_of(response: &Response) -> Option<u64> {
    response.json()["result"]["block_number"].as_u64()
}

/// Waits until an answer says where the chain is.
fn is_watched(edge: &Edge) {
    let deadline = Instant::now() + PATIENCE;
    while stated(&block(edge, &json!("latest"))).is_none() {
        assert!(Instant::now() < deadline, "the chain is watched");
        let _silence = edge.client().silent_for(Duration::from_millis(20));
    }
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_failover_never_loses_a_shown_receipt() {
    let devnet = Devnet::start();
    devnet.mint(1);
    let (first, second) = (Url::of(&devnet), Url::of(&devnet));
    let before = devnet.head();
    second.falls_behind(before, usize::MAX);
    let edge = gateway(&[&first, &second]);
    is_watched(&edge);
    let hash = devnet.mint(2);
    let shown = receipt(&edge, &hash);
    assert_eq!(number_of(&shown), Some(before + 1), "{}", shown.text());
    let mut position = stated(&shown);
    first.is_away(true);
    for _ in 0..2 {
        let refused = receipt(&edge, &hash);
        assert_eq!(refused.status, 502, "{}", refused.text());
        assert!(refused.text().contains("lagging") || refused.text().contains("reached"));
        let now = stated(&refused);
        assert!(
            now.is_none() || now >= position,
            "{now:?} is before {position:?}"
        );
        position = now.max(position);
    }
    second.catches_up();
    let deadline = Instant::now() + PATIENCE;
    loop {
        let again = receipt(&edge, &hash);
        if again.status == 200 {
            assert_eq!(number_of(&again), Some(before + 1), "{}", again.text());
            break;
        }
        assert!(Instant::now() < deadline, "the second has the block");
    }
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_balancer_never_loses_a_shown_receipt() {
    let devnet = Devnet::start();
    devnet.mint(3);
    let url = Url::of(&devnet);
    let edge = gateway(&[&url]);
    is_watched(&edge);
    let before = devnet.head();
    let hash = devnet.mint(4);
    let shown = receipt(&edge, &hash);
    assert_eq!(number_of(&shown), Some(before + 1), "{}", shown.text());
    for calls in 1..4 {
        url.falls_behind(before, calls);
        let again = receipt(&edge, &hash);
        assert_eq!(
            number_of(&again),
            Some(before + 1),
            "{calls}: {}",
            again.text()
        );
        url.falls_behind(before, calls);
        let again = block(&edge, &json!({"block_number": before + 1}));
        assert_eq!(
            number_of(&again),
            Some(before + 1),
            "{calls}: {}",
            again.text()
        );
        url.falls_behind(before, calls);
        let head = edge.ask(&Request::post(rpc("7", NUMBER, "[]"))).json();
        assert_eq!(head["result"], before + 1, "{calls}: {head}");
        assert_eq!(
            number_of(&block(&edge, &json!("latest"))),
            Some(before + 1),
            "{calls}"
        );
    }
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_receipt_that_was_rolled_back_is_not_found() {
    let devnet = Devnet::start();
    devnet.mint(5);
    let url = Url::of(&devnet);
    let edge = gateway(&[&url]);
    is_watched(&edge);
    let hash = devnet.mint(6);
    let number = number_of(&receipt(&edge, &hash)).expect("it is accepted");
    devnet.abort_from(number);
    let gone = receipt(&edge, &hash);
    assert_eq!(
        gone.json()["error"]["code"],
        29,
        "within one request: {}",
        gone.text()
    );
    edge.line("the rollback", |line| {
        line["message"] == "the node went back to an earlier block"
    });
    assert_eq!(number_of(&block(&edge, &json!("latest"))), Some(number - 1));

    let hash = devnet.mint(7);
    assert_eq!(number_of(&receipt(&edge, &hash)), Some(number));
    devnet.abort_from(number);
    devnet.mint(8);
    let start = Instant::now();
    let gone = receipt(&edge, &hash);
    assert_eq!(
        gone.json()["error"]["code"],
        29,
        "its block has others: {}",
        gone.text()
    );
    assert!(start.elapsed() < PATIENCE);
}
