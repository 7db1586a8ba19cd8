//! A real node for all tests of this process, with the product's contracts deployed.
//!
//! Started by the first test that requests it, ended with the process. Every relay has its own
//! store and every test its own user, so they can share the chain. Nothing here writes with the
//! keys of the network after setup. Tests that roll blocks back have a network to themselves.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{LazyLock, Mutex, PoisonError};

use serde_json::Value;

use super::user::User;
use crate::support::client::Client;
use crate::support::edge::{program, scratch_path};
use crate::support::node::{Act, Call};
use crate::support::request::{Request, rpc};
use crate::support::script::{json, send};

/// Kills the node and removes its files as soon as this process ends, which closes the pipe that
/// the script reads. Only the node holds standard output, so that its end is visible.
const KEEPER: &str = r#"folder=$1; shift
"$0" --host 127.0.0.1 --port 0 --seed 0 --chain-id PORTCULLIS_DEV "$@" 2>&1 &
exec >&2; read -r _; kill -9 $!; rm -rf "$folder""#;
/// A node with this argument keeps the state at every block.
pub(crate) const ARCHIVE: [&str; 2] = ["--state-archive-capacity", "full"];

/// The product's network on the node.
pub(crate) struct Network {
    pub(crate) address: SocketAddr,
    folder: PathBuf,
    /// The relay's pins, by name.
    pub(crate) pins: Vec<(String, String)>,
    _keeper: Child,
}

/// The network, created on the first call.
pub(crate) fn network() -> &'static Network {
    static NETWORK: LazyLock<Network> = LazyLock::new(Network::make);
    &NETWORK
}

/// Networks that no test has at the moment.
static FREE: Mutex<Vec<Network>> = Mutex::new(Vec::new());

/// A network that one test has to itself: it may roll blocks back and write with the accounts, and
/// leaves the contracts in place for the next test.
pub(crate) struct OwnNetwork(Option<Network>);

/// A network that another test has left, or a new one.
pub(crate) fn own_network() -> OwnNetwork {
    let free = FREE.lock().unwrap_or_else(PoisonError::into_inner).pop();
    OwnNetwork(Some(free.unwrap_or_else(Network::make)))
}

impl Deref for OwnNetwork {
    type Target = Network;

    fn deref(&self) -> &Network {
        self.0.as_ref().expect("it is there until it is dropped")
    }
}

impl Drop for OwnNetwork {
    fn drop(&mut self) {
        FREE.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .extend(self.0.take());
    }
}

impl Network {
    /// A new network, on a node of its own.
    pub(crate) fn make() -> Self {
        let folder = scratch_path("net");
        let (address, keeper) = start(&folder, &ARCHIVE);
        let made = program()
            .args([
                "dev",
                "--prepare",
                "--node",
                &format!("http://{address}/rpc"),
                "--state",
            ])
            .arg(&folder)
            .output()
            .expect("the program can be started");
        assert!(
            made.status.success(),
            "{}",
            String::from_utf8_lossy(&made.stderr)
        );
        let text = std::fs::read_to_string(folder.join("portcullis.toml"))
            .expect("the configuration is written");
        let config: toml::Table = text.parse().expect("the configuration is TOML");
        let pins = config["relay"]["pins"]
            .as_table()
            .expect("the pins are a table");
        let text = |value: &toml::Value| value.as_str().unwrap_or_default().to_owned();
        let pins = pins
            .iter()
            .map(|(name, value)| (name.clone(), text(value)))
            .collect();
        Self {
            address,
            folder,
            pins,
            _keeper: keeper,
        }
    }

    /// The path of one of the network's files.
    pub(crate) fn file(&self, name: &str) -> String {
        self.folder.join(name).display().to_string()
    }

    /// Sends a request directly to the node; `params` in JSON. Returns its body.
    pub(crate) fn call(&self, method: &str, params: &str) -> Value {
        let mut client = Client::connect(self.address);
        client.ask(&Request::post(rpc("1", method, params))).json()
    }

    /// Sends a request that succeeds, and returns the result.
    pub(crate) fn ask(&self, method: &str, params: &str) -> Value {
        let body = self.call(method, params);
        assert!(body["error"].is_null(), "{method} {params}: {body}");
        body["result"].clone()
    }

    /// Forwards requests to the node, and returns its responses.
    pub(crate) fn forward(&self) -> impl Fn(&Call) -> Vec<Act> + Send + Sync + 'static {
        let address = self.address;
        move |call| {
            send(json(
                Client::connect(address)
                    .ask(&Request::post(&call.body))
                    .body,
            ))
        }
    }

    /// A new user, with 100 STRK and no account yet.
    pub(crate) fn funded(&self) -> User {
        static NEXT: AtomicU32 = AtomicU32::new(0x1000);
        let user = User::with_key(&format!("{:#x}", NEXT.fetch_add(1, Ordering::Relaxed)));
        let (address, amount) = (user.address, "100000000000000000000");
        let params = format!(r#"{{"address":"{address}","amount":{amount},"unit":"FRI"}}"#);
        self.ask("devnet_mint", &params);
        user
    }

    /// A new user with an account.
    pub(crate) fn deployed(&self) -> User {
        let user = self.funded();
        let deploy = user.deploy();
        let params = format!(r#"{{"deploy_account_transaction":{}}}"#, deploy.text);
        self.ask("starknet_addDeployAccountTransaction", &params);
        user
    }
}

/// Starts a node with these arguments. It and the folder go when the keeper's input is closed.
pub(crate) fn start(folder: &Path, arguments: &[&str]) -> (SocketAddr, Child) {
    let mut keeper = Command::new("sh")
        .args(["-c", KEEPER, "starknet-devnet"])
        .arg(folder)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("there is a shell");
    let mut lines = BufReader::new(keeper.stdout.take().expect("it is piped")).lines();
    let stated = lines.by_ref().map_while(Result::ok).find_map(|line| {
        let (_, address) = line.split_once("listening on ")?;
        address.trim().parse().ok()
    });
    let address = stated.expect("these tests need starknet-devnet 0.10.1 on PATH");
    std::thread::spawn(move || lines.for_each(drop));
    (address, keeper)
}

/// [`Network::ask`] of the shared network.
pub(crate) fn ask(method: &str, params: &str) -> Value {
    network().ask(method, params)
}

/// [`Network::funded`] of the shared network.
pub(crate) fn funded() -> User {
    network().funded()
}

/// [`Network::deployed`] of the shared network.
pub(crate) fn deployed() -> User {
    network().deployed()
}
