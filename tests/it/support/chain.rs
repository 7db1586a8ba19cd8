//! A node with a chain that a test can extend, revert and mine again.
//!
//! In: changes of the chain by the test. Out: responses of a Starknet node, to the watch and to
//! clients alike; calls of clients are recognized by the trace context that [`question`] adds. As
//! on a real development node, a block's hash does not cover its contents.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};

use crate::support::edge::Setup;
use crate::support::node::{Act, Call, Node};
use crate::support::request::{Request, rpc};
use crate::support::script::{envelope, json as answer, send};

/// The trace context that marks a client's call; the watch does not send it.
const TRACE: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";

/// A block: its own time, the hashes of its transactions and of the classes declared in it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Block {
    pub(crate) time: u64,
    pub(crate) transactions: Vec<&'static str>,
    pub(crate) classes: Vec<&'static str>,
}

/// A chain whose first block is mined at second 0.
#[derive(Clone, Debug, Default)]
pub(crate) struct Chain {
    pub(crate) blocks: Vec<Block>,
    /// The newest block that is accepted on L1.
    pub(crate) l1: Option<usize>,
    pub(crate) health: Health,
    /// How blocks are written.
    pub(crate) style: Style,
    /// The node no longer has block 0.
    pub(crate) is_pruned: bool,
}

/// The form in which a node writes blocks, as another version of it may change it.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Style {
    #[default]
    Plain,
    /// Further members, and hashes with leading zeros.
    Rich,
}

/// The health of a node.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(crate) enum Health {
    /// Responds correctly.
    #[default]
    Well,
    /// Closes every connection.
    Away,
    /// Responds with nonsense.
    Mad,
}

impl Chain {
    /// Adds a block.
    pub(crate) fn mine(&mut self, time: u64, transactions: &[&'static str]) {
        let transactions = transactions.to_vec();
        self.blocks.push(Block {
            time,
            transactions,
            classes: Vec::new(),
        });
    }

    /// Adds a block with a class.
    pub(crate) fn declare(&mut self, time: u64, class: &'static str) {
        self.blocks.push(Block {
            time,
            transactions: Vec::new(),
            classes: vec![class],
        });
    }

    fn at(&self, id: &Value) -> Option<usize> {
        let head = self.blocks.len() - 1;
        let number = match id {
            Value::String(tag) if tag == "l1_accepted" => return self.l1,
            Value::String(_) => return Some(head),
            _ if id["block_hash"].is_string() => {
                (0..=head).find(|number| id["block_hash"] == hash(*number))?
            }
            _ => usize::try_from(id["block_number"].as_u64()?).ok()?,
        };
        (number <= head && !(self.is_pruned && number == 0)).then_some(number)
    }

    fn status(&self, number: usize) -> &'static str {
        if self.l1 >= Some(number) {
            "ACCEPTED_ON_L1"
        } else {
            "ACCEPTED_ON_L2"
        }
    }

    /// The result, or the error's code.
    fn answer(&self, method: &str, params: &Value) -> Result<Value, i64> {
        match method {
            _ if self.health == Health::Mad => Ok(json!("what?")),
            "starknet_getBlockWithTxHashes" => {
                let number = self.at(&params["block_id"]).ok_or(24)?;
                let Block {
                    time, transactions, ..
                } = &self.blocks[number];
                let mut block = json!({
                    "status": self.status(number), "block_hash": hash(number),
                    "block_number": number, "timestamp": time, "transactions": transactions,
                });
                if self.style == Style::Rich {
                    block["block_hash"] = json!(format!("{:#066x}", number + 0x100));
                    block["starknet_version"] = json!("0.14.1");
                    block["l2_gas_price"] = json!({"price_in_fri": "0x1", "price_in_wei": "0x1"});
                }
                Ok(block)
            }
            "starknet_getTransactionReceipt" => {
                let wanted = params["transaction_hash"].as_str().unwrap_or_default();
                let holds = |block: &Block| block.transactions.contains(&wanted);
                let number = self.blocks.iter().position(holds).ok_or(29)?;
                Ok(json!({
                    "transaction_hash": wanted, "finality_status": self.status(number),
                    "block_number": number, "time": self.blocks[number].time,
                }))
            }
            "starknet_getClass" => {
                let number = self.at(&params["block_id"]).ok_or(24)?;
                let wanted = params["class_hash"].as_str().unwrap_or_default();
                let holds = |block: &Block| block.classes.contains(&wanted);
                let declared = self
                    .blocks
                    .iter()
                    .position(holds)
                    .filter(|at| *at <= number);
                declared.map(|_| json!({"abi": wanted})).ok_or(28)
            }
            "starknet_blockNumber" => Ok(json!(self.blocks.len() - 1)),
            _ => Ok(json!("0x1")),
        }
    }
}

fn hash(number: usize) -> String {
    format!("{:#x}", number + 0x100)
}

/// A node over a chain that the test can change.
pub(crate) struct ChainNode {
    pub(crate) node: Node,
    pub(crate) chain: Arc<Mutex<Chain>>,
}

impl ChainNode {
    /// A node with a chain of these blocks.
    pub(crate) fn start(chain: Chain) -> Self {
        let chain = Arc::new(Mutex::new(chain));
        let node = Node::start(script(&chain));
        Self { node, chain }
    }

    /// A gateway with the cache enabled and a short poll interval.
    pub(crate) fn setup(&self) -> Setup {
        Setup::before(self.node.address())
            .set("gateway.cache.enabled", "true")
            .set("gateway.cache.watch_interval", "\"100ms\"")
    }

    /// Applies a change to the chain.
    pub(crate) fn change(&self, change: impl FnOnce(&mut Chain)) {
        change(&mut self.chain.lock().unwrap());
    }

    /// The clients' calls that reached the node: method and block, or method alone.
    pub(crate) fn requests(&self) -> Vec<String> {
        let calls = self.node.calls().into_iter().filter(is_a_client_s);
        let stated = calls.map(|call| {
            let body = call.json();
            let method = body["method"]
                .as_str()
                .unwrap_or_default()
                .replace("starknet_", "");
            match &body["params"]["block_id"] {
                Value::Null => method,
                block => format!("{method} {block}"),
            }
        });
        stated.collect()
    }

    /// The number of calls by the watch.
    pub(crate) fn looks(&self) -> usize {
        self.node
            .calls()
            .iter()
            .filter(|call| !is_a_client_s(call))
            .count()
    }
}

/// The script of a node over `chain`.
fn script(chain: &Arc<Mutex<Chain>>) -> impl Fn(&Call) -> Vec<Act> + Send + Sync + 'static {
    let chain = Arc::clone(chain);
    move |call| {
        let body = call.json();
        let method = body["method"].as_str().unwrap_or_default();
        let chain = chain.lock().unwrap();
        if chain.health == Health::Away {
            return vec![Act::Close];
        }
        match chain.answer(method, &body["params"]) {
            Ok(result) => send(answer(envelope(call, &result.to_string()))),
            Err(code) => send(answer(format!(
                r#"{{"jsonrpc":"2.0","id":{},"error":{{"code":{code},"message":"not found"}}}}"#,
                call.id()
            ))),
        }
    }
}

fn is_a_client_s(call: &Call) -> bool {
    call.headers().iter().any(|(name, _)| name == "traceparent")
}

/// A client's request.
pub(crate) fn question(method: &str, params: &str) -> Request {
    let method = format!("starknet_{method}");
    Request::post(rpc("1", &method, params)).with("traceparent", TRACE)
}
