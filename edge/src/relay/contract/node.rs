//! A `starknet-devnet`, and URLs that lead to it and misbehave on command.
//!
//! The product's contracts are not deployed: a URL answers for them what the pins require.

use super::suite::Mode;
use portcullis_filters::felt::Felt;
use portcullis_filters::secret::{Secret, SecretKey};
use portcullis_filters::tx::selector;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Kills the node as soon as this process ends, which closes the pipe that the script reads.
const KEEPER: &str = r#""$0" --host 127.0.0.1 --port 0 --seed 0 --chain-id PORTCULLIS_DEV \
--block-generation-on demand --state-archive-capacity full 2>&1 & exec >&2; read -r _; kill -9 $!"#;
/// The class of every account of a devnet.
const CLASS: &str = "0x5b4b537eaa2399e3aa99c4e2e0208ebd6c71bc1467938cd52c798c601e43564";
/// STRK, which pays fees.
const TOKEN: &str = "0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d";
const REGISTRY: &str = "0x200";
const STAKING: &str = "0x201";
const CARD: &str = "0x202";
const USERSHIP: &str = "0x203";
const BRIDGE: &str = "0x204";
const L1_BRIDGE: &str = "0x1111";
/// The class of a contract that is not deployed is its address plus this.
const CLASSES: u64 = 0x1000;

/// A running devnet.
struct Devnet {
    address: SocketAddr,
    accounts: Vec<Value>,
    _keeper: Child,
}

/// Devnets that no test uses at the moment.
static FREE: Mutex<Vec<Devnet>> = Mutex::new(Vec::new());

/// A devnet that one test has to itself.
pub(super) struct Network(Option<Devnet>);

impl Drop for Network {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            FREE.lock()
                .expect("no test panics here")
                .extend(self.0.take());
        }
    }
}

fn felt(text: &str) -> Felt {
    Felt::parse(text).expect("a felt")
}

impl Network {
    /// A devnet that another test has left, or a new one.
    pub(super) async fn take() -> Self {
        let free = FREE.lock().expect("no test panics here").pop();
        if free.is_some() {
            return Self(free);
        }
        let (address, keeper) = start();
        let params = "{}";
        let accounts = ask(address, "devnet_getPredeployedAccounts", params).await;
        let accounts = accounts.as_array().expect("they are a list").clone();
        Self(Some(Devnet {
            address,
            accounts,
            _keeper: keeper,
        }))
    }

    fn devnet(&self) -> &Devnet {
        self.0.as_ref().expect("it is there until it is dropped")
    }

    /// A member of the owner's account, and of the verifier's.
    fn both(&self, member: &str) -> [&str; 2] {
        [0, 1].map(|account| {
            let value = &self.devnet().accounts[account][member];
            value.as_str().expect("it is a text")
        })
    }

    /// The keys of owner and verifier.
    pub(super) fn keys(&self) -> [SecretKey; 2] {
        self.both("private_key").map(|text| {
            let secret = Secret::new(text.as_bytes().to_vec());
            SecretKey::parse(&secret).expect("it is a key")
        })
    }

    /// The pins of a relay, in TOML.
    pub(super) fn pins(&self) -> String {
        let [owner, verifier] = self.both("address");
        let mut pins = format!(
            "chain_id = \"PORTCULLIS_DEV\"\naccount_class = \"{CLASS}\"\nowner = \"{owner}\"\n\
             verifier = \"{verifier}\"\nl1_bridge = \"{L1_BRIDGE}\"\n"
        );
        for (name, address) in [
            ("token", TOKEN),
            ("registry", REGISTRY),
            ("staking", STAKING),
            ("card", CARD),
            ("usership", USERSHIP),
            ("bridge", BRIDGE),
        ] {
            let class = class_of(felt(address));
            pins += &format!("{name} = \"{address}\"\n{name}_class = \"{class}\"\n");
        }
        pins
    }

    /// Sends a request that succeeds, and returns the result.
    pub(super) async fn ask(&self, method: &str, params: &str) -> Value {
        ask(self.devnet().address, method, params).await
    }

    /// The results of the views of contracts that are not deployed.
    fn views(&self) -> HashMap<(Felt, Felt), Vec<Felt>> {
        let [owner, verifier] = self.both("address");
        let rows: &[(&str, &str, &[&str])] = &[
            (REGISTRY, "verification_v2_required", &["0x1"]),
            (REGISTRY, "account_class_hash", &[CLASS]),
            (REGISTRY, "owner", &[owner]),
            (REGISTRY, "verifier", &[verifier]),
            (REGISTRY, "wiring", &[CARD, STAKING, USERSHIP, BRIDGE]),
            (CARD, "owner", &[owner]),
            (CARD, "minter", &[owner]),
            (CARD, "registry", &[REGISTRY]),
            (CARD, "bridge", &[BRIDGE]),
            (STAKING, "owner", &[owner]),
            (STAKING, "token", &[TOKEN]),
            (STAKING, "registry", &[REGISTRY]),
            (USERSHIP, "submitter", &[verifier]),
            (USERSHIP, "registry", &[REGISTRY]),
            (BRIDGE, "owner", &[owner]),
            (BRIDGE, "token", &[TOKEN]),
            (BRIDGE, "card", &[CARD]),
            (BRIDGE, "l1_bridge", &[L1_BRIDGE]),
        ];
        let views = rows.iter().map(|(to, view, result)| {
            let result = result.iter().map(|text| felt(text)).collect();
            ((felt(to), selector(view)), result)
        });
        views.collect()
    }
}

fn class_of(address: Felt) -> Felt {
    Felt::from(address.to_u64().unwrap_or(0) + CLASSES)
}

fn start() -> (SocketAddr, Child) {
    let mut keeper = Command::new("sh")
        .args(["-c", KEEPER, "starknet-devnet"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let output = keeper.stdout.take().expect("it is piped");
    let mut lines = BufReader::new(output).lines();
    let stated = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, address) = line.split_once("listening on ")?;
        address.trim().parse().ok()
    });
    let address = stated.expect("these tests need starknet-devnet 0.10.1 on PATH");
    std::thread::spawn(move || lines.for_each(drop));
    (address, keeper)
}

async fn ask(address: SocketAddr, method: &str, params: &str) -> Value {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":{params}}}"#);
    let answer = forward(address, body.as_bytes()).await;
    assert!(answer["error"].is_null(), "{method} {params}: {answer}");
    answer["result"].clone()
}

/// Sends a body to the devnet, and returns that of the response.
async fn forward(address: SocketAddr, body: &[u8]) -> Value {
    let mut stream = TcpStream::connect(address).await.expect("the devnet runs");
    let head = format!(
        "POST /rpc HTTP/1.1\r\nHost: devnet\r\nContent-Type: application/json\r\n\
         Content-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    let request = [head.as_bytes(), body].concat();
    stream.write_all(&request).await.expect("the devnet reads");
    let mut response = Vec::new();
    stream.read_to_end(&mut response).await.expect("it answers");
    let text = String::from_utf8(response).expect("it is text");
    let (_, body) = text.split_once("\r\n\r\n").expect("it has a head");
    serde_json::from_str(body).expect("it is JSON")
}

/// A URL that leads to the devnet.
pub(super) struct Url {
    address: SocketAddr,
    mode: watch::Sender<Mode>,
    way: Arc<Way>,
}

/// Everything that a URL answers from.
struct Way {
    devnet: SocketAddr,
    verifier: Felt,
    views: HashMap<(Felt, Felt), Vec<Felt>>,
    mode: watch::Receiver<Mode>,
}

impl Url {
    pub(super) async fn of(network: &Network) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (mode, observed) = watch::channel(Mode::Up);
        let [_, verifier] = network.both("address");
        let way = Arc::new(Way {
            devnet: network.devnet().address,
            verifier: felt(verifier),
            views: network.views(),
            mode: observed,
        });
        tokio::spawn(accept(listener, Arc::clone(&way)));
        Self { address, mode, way }
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}/rpc", self.address)
    }

    /// Answers in another way; the connections are closed.
    pub(super) async fn set(&self, mode: Mode) {
        let before = self.mode.send_replace(mode);
        if before == Mode::Down && mode != Mode::Down {
            let listener = TcpListener::bind(self.address).await;
            let listener = listener.expect("the port is still ours");
            tokio::spawn(accept(listener, Arc::clone(&self.way)));
        }
        // the tasks of listeners and connections see it
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Serves until the URL is down.
async fn accept(listener: TcpListener, way: Arc<Way>) {
    let mut mode = way.mode.clone();
    let down = mode.wait_for(|mode| *mode == Mode::Down);
    let mut down = std::pin::pin!(down);
    loop {
        tokio::select! {
            _ = &mut down => return,
            accepted = listener.accept() => {
                let Ok((stream, _)) = accepted else { return };
                tokio::spawn(Arc::clone(&way).serve(stream));
            }
        }
    }
}

impl Way {
    /// Serves one connection until it is closed, or the mode changes.
    async fn serve(self: Arc<Self>, mut stream: TcpStream) {
        let mut mode = self.mode.clone();
        mode.mark_unchanged();
        let served = async {
            let mut read = Vec::new();
            while let Some(body) = request(&mut stream, &mut read).await {
                let request: Value = serde_json::from_slice(&body).expect("the driver sends JSON");
                let mode = *self.mode.borrow();
                let answer = self.answer(&request, mode).await;
                let method = request["method"].as_str().unwrap_or_default();
                if mode == Mode::Mute && method.starts_with("starknet_add") {
                    return std::future::pending().await;
                }
                let body = answer.to_string();
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\
                     Content-Length: {}\r\n\r\n",
                    body.len()
                );
                let response = [head.as_bytes(), body.as_bytes()].concat();
                if stream.write_all(&response).await.is_err() {
                    return;
                }
            }
        };
        tokio::select! {
            () = served => {}
            _ = mode.changed() => {}
        }
    }

    async fn answer(&self, request: &Value, mode: Mode) -> Value {
        let id = &request["id"];
        let answer =
            |member: &str, value: Value| json!({"jsonrpc": "2.0", "id": id, member: value});
        if let Some(result) = self.pinned(request) {
            return answer("result", result);
        }
        let Mode::Behind(blocks) = mode else {
            return self.forward(request).await;
        };
        let missing = |code: i64| answer("error", json!({"code": code, "message": "not found"}));
        let head = ask(self.devnet, "starknet_blockNumber", "[]").await;
        let shown = head.as_u64().expect("it is a number") - blocks;
        let mut request = request.clone();
        if let Some(id) = request.pointer_mut("/params/block_id") {
            if id["block_number"].as_u64() > Some(shown) {
                return missing(24);
            }
            if id.is_string() {
                *id = json!({"block_number": shown});
            }
        }
        match request["method"].as_str() {
            Some("starknet_blockNumber") => answer("result", json!(shown)),
            Some("starknet_getTransactionReceipt" | "starknet_getTransactionByHash") => {
                let receipt = json!({"jsonrpc": "2.0", "id": 1, "params": request["params"],
                    "method": "starknet_getTransactionReceipt"});
                let found = self.forward(&receipt).await;
                let number = found["result"]["block_number"].as_u64();
                if found["error"].is_null() && number.is_none_or(|number| number > shown) {
                    missing(29)
                } else {
                    self.forward(&request).await
                }
            }
            _ => self.forward(&request).await,
        }
    }

    async fn forward(&self, request: &Value) -> Value {
        forward(self.devnet, request.to_string().as_bytes()).await
    }

    /// The answer for a contract that is not deployed.
    fn pinned(&self, request: &Value) -> Option<Value> {
        let params = &request["params"];
        let stated = |value: &Value| value.as_str().and_then(Felt::parse);
        match request["method"].as_str()? {
            "starknet_getClassHashAt" => {
                let address = stated(&params["contract_address"])?;
                let is_pinned = self.views.keys().any(|(to, _)| *to == address);
                let is_pinned = is_pinned || address == felt(TOKEN);
                if !is_pinned {
                    return None;
                }
                Some(json!(class_of(address).to_string()))
            }
            "starknet_call" => {
                let call = &params["request"];
                let to = stated(&call["contract_address"])?;
                let view = stated(&call["entry_point_selector"])?;
                if view == selector("is_authorised_verifier") {
                    let is_it = stated(&call["calldata"][0])? == self.verifier;
                    return Some(json!([if is_it { "0x1" } else { "0x0" }]));
                }
                let result = self.views.get(&(to, view))?;
                Some(result.iter().map(Felt::to_string).collect())
            }
            _ => None,
        }
    }
}

/// The body of the next request; `None` at the end.
async fn request(stream: &mut TcpStream, read: &mut Vec<u8>) -> Option<Vec<u8>> {
    loop {
        let head = read.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(head) = head {
            let text = str::from_utf8(&read[..head]).ok()?.to_ascii_lowercase();
            let length = text
                .lines()
                .find_map(|line| line.strip_prefix("content-length:"));
            let length: usize = length?.trim().parse().ok()?;
            if read.len() >= head + 4 + length {
                let rest = read.split_off(head + 4 + length);
                let body = std::mem::replace(read, rest).split_off(head + 4);
                return Some(body);
            }
        }
        if stream.read_buf(read).await.ok()? == 0 {
            return None;
        }
    }
}
