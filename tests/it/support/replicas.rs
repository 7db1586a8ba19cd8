//! Real nodes of one chain, each with as much of it as a test mines there.
//!
//! A block of a `starknet-devnet` follows from the state, its number and its time: nodes that start
//! at the same second with the same seed, and mine at the same times, have the same blocks. Each is
//! behind a [`Node`] that forwards, records what is requested, and can be cut off.

use std::net::SocketAddr;
use std::process::Child;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};

use crate::support::client::Client;
use crate::support::edge::{Setup, scratch_path};
use crate::support::node::{Act, Node};
use crate::support::relay::chain::method;
use crate::support::relay::devnet;
use crate::support::request::{Request, rpc};
use crate::support::script::{json as answer, send};

/// The contract of the reads of [`nonce_at`]: polls ask for another.
const CONTRACT: &str = "0xabc";
/// Seconds between two blocks.
const BLOCK: u64 = 10;
const START: u64 = 1_000;

/// One node.
pub(crate) struct Replica {
    node: SocketAddr,
    way: Node,
    is_away: Arc<AtomicBool>,
    _keeper: Child,
}

impl Replica {
    /// A node with block 0, and with these arguments.
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let start = START.to_string();
        let arguments = [&["--start-time", &start], arguments].concat();
        let (node, keeper) = devnet::start(&scratch_path("replica"), &arguments);
        let is_away = Arc::new(AtomicBool::new(false));
        let now = Arc::clone(&is_away);
        let way = Node::start(move |call| {
            if now.load(Ordering::SeqCst) {
                return vec![Act::Close];
            }
            send(answer(
                Client::connect(node).ask(&Request::post(&call.body)).body,
            ))
        });
        Self {
            node,
            way,
            is_away,
            _keeper: keeper,
        }
    }

    /// One that knows the state at every block.
    pub(crate) fn archive() -> Self {
        Self::start(&devnet::ARCHIVE)
    }

    /// Several archives.
    pub(crate) fn archives<const COUNT: usize>() -> [Self; COUNT] {
        std::array::from_fn(|_| Self::archive())
    }

    /// Asks the node itself.
    pub(crate) fn ask(&self, method: &str, params: &Value) -> Value {
        let request = Request::post(rpc("1", method, &params.to_string()));
        let body = Client::connect(self.node).ask(&request).json();
        assert!(body["error"].is_null(), "{method} {params}: {body}");
        body["result"].clone()
    }

    pub(crate) fn head(&self) -> u64 {
        self.ask("starknet_blockNumber", &json!([]))
            .as_u64()
            .expect("a number")
    }

    /// Mines blocks of the common chain until this is the newest.
    pub(crate) fn mine_to(&self, number: u64) {
        (self.head() + 1..=number).for_each(|number| self.mine_at(START + BLOCK * number));
    }

    /// Mines a block at a time of its own, so that it is of no other node's chain.
    pub(crate) fn fork(&self) {
        self.mine_at(START + BLOCK * (self.head() + 1) + 1);
    }

    fn mine_at(&self, time: u64) {
        self.ask(
            "devnet_setTime",
            &json!({"time": time, "generate_block": true}),
        );
    }

    /// Takes this block back, and what follows it.
    pub(crate) fn abort_from(&self, number: u64) {
        self.ask(
            "devnet_abortBlocks",
            &json!({"starting_block_id": {"block_number": number}}),
        );
    }

    /// Closes every connection from now on, or no longer.
    pub(crate) fn is_away(&self, is_away: bool) {
        self.is_away.store(is_away, Ordering::SeqCst);
    }

    pub(crate) fn url(&self) -> String {
        format!("http://{}/rpc", self.way.address())
    }

    /// The blocks of the reads of [`nonce_at`] that reached it.
    pub(crate) fn reads(&self) -> Vec<Value> {
        let calls = self.way.calls().into_iter().map(|call| call.json());
        let reads = calls.filter(|call| call["params"]["contract_address"] == CONTRACT);
        reads
            .map(|call| call["params"]["block_id"].clone())
            .collect()
    }

    /// The requests with this method that reached it.
    pub(crate) fn count(&self, name: &str) -> usize {
        self.way
            .calls()
            .iter()
            .filter(|call| method(call) == name)
            .count()
    }
}

/// A gateway with an admin listener before these nodes.
pub(crate) fn before(replicas: &[&Replica]) -> Setup {
    let urls: Vec<_> = replicas.iter().map(|replica| replica.url()).collect();
    let node = replicas.first().expect("there is one").way.address();
    Setup::before(node)
        .set("node.url", &json!(urls).to_string())
        .set("gateway.requests_per_minute", "100000")
}

/// A read of state at this block.
pub(crate) fn nonce_at(block: &Value) -> Request {
    let params = json!({"block_id": block, "contract_address": CONTRACT}).to_string();
    Request::post(rpc("7", "starknet_getNonce", &params))
}
