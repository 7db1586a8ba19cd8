//! A relay with its environment: a folder of secrets, a node that records what reaches it, and
//! clients with the token.

use std::net::SocketAddr;

use portcullis_filters::felt::Felt;

use super::chain::{self, OWNER_KEY, PINS, VERIFIER_KEY, felt, is_add};
use super::devnet::{self, Network};
use super::expect::{rpc_refused, submitted};
use super::user::{ID, Signed, User};
use crate::support::client::Client;
use crate::support::edge::{AMPLE, Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::{Act, Call, Node};
use crate::support::request::Request;
use crate::support::response::Response;

/// The token of every relay here.
pub(crate) const TOKEN: &str = "token-of-the-tests-0123456789abcdef";

/// A running relay with its environment.
pub(crate) struct Stage {
    pub(crate) edge: Edge,
    pub(crate) node: Node,
    pub(crate) setup: Setup,
    pub(crate) folder: Folder,
    pins: Vec<(String, String)>,
}

/// One attempt to bypass the relay: its description, the body, the reason of the refusal.
pub(crate) type Trick<'a> = (&'a str, Vec<u8>, &'a str);

impl Stage {
    /// In front of the scripted chain.
    pub(crate) fn scripted() -> Self {
        Self::with_script(chain::honest, &[])
    }

    /// In front of the scripted chain, with some keys set to other TOML values.
    pub(crate) fn scripted_with(keys: &[(&str, &str)]) -> Self {
        Self::with_script(chain::honest, keys)
    }

    /// In front of a chain that this script plays, with some keys set to other TOML values.
    pub(crate) fn with_script(
        script: impl Fn(&Call) -> Vec<Act> + Send + Sync + 'static,
        keys: &[(&str, &str)],
    ) -> Self {
        let (node, folder) = (Node::start(script), Folder::new());
        let setup = setup(node.address(), &folder, keys);
        let pins = PINS
            .map(|(name, pin)| (name.to_owned(), pin.to_owned()))
            .to_vec();
        Self {
            edge: setup.start(),
            node,
            setup,
            folder,
            pins,
        }
    }

    /// In front of a real node, over a proxy that records its requests.
    pub(crate) fn on_devnet() -> Self {
        Self::on(devnet::network(), devnet::network().forward())
    }

    /// In front of a real node, over a proxy that does as `script` says.
    pub(crate) fn on(
        network: &Network,
        script: impl Fn(&Call) -> Vec<Act> + Send + Sync + 'static,
    ) -> Self {
        let (node, folder) = (Node::start(script), Folder::new());
        let mut setup = common_setup(node.address(), &folder);
        for (name, value) in &network.pins {
            setup = setup.set(&format!("relay.pins.{name}"), &format!("\"{value}\""));
        }
        for role in ["owner", "verifier", "faucet"] {
            let file = network.file(&format!("{role}.key"));
            setup = setup.set(&format!("relay.keys.{role}_file"), &format!("\"{file}\""));
        }
        Self {
            edge: setup.start(),
            node,
            setup,
            folder,
            pins: network.pins.clone(),
        }
    }

    /// The address of a pin.
    pub(crate) fn pin(&self, name: &str) -> Felt {
        let pin = self.pins.iter().find(|(own, _)| own == name);
        felt(&pin.expect("a pin of this name").1)
    }

    /// A transaction that the relay accepts: an approval of some tokens for the staking pool.
    pub(crate) fn fine(&self, user: &User, nonce: u64) -> Signed {
        let args = [self.pin("staking"), Felt::from(5_u64), Felt::ZERO];
        user.invoke(
            &[super::user::call(self.pin("token"), "approve", &args)],
            nonce,
        )
    }

    /// A new connection to the relay.
    pub(crate) fn client(&self) -> Client {
        Client::connect(self.edge.relay())
    }

    /// Sends one request over its own connection, unchanged.
    pub(crate) fn ask(&self, request: &Request) -> Response {
        self.client().ask(request)
    }

    /// Sends a body to a path, with the token.
    pub(crate) fn post(&self, path: &str, body: impl AsRef<[u8]>) -> Response {
        self.ask(&post(path, body))
    }

    /// `GET /readyz` with the token.
    pub(crate) fn ready(&self) -> Response {
        self.ask(&authorised(Request::new("GET", "/readyz")))
    }

    /// The transactions submitted to the node.
    pub(crate) fn adds(&self) -> Vec<Call> {
        self.node.calls().into_iter().filter(is_add).collect()
    }

    /// Asserts that each trick is refused for its reason and never reaches the node, and that the
    /// transaction it was derived from is accepted.
    pub(crate) fn assert_tricks(&self, fine: &Signed, tricks: &[Trick<'_>]) {
        for (what, body, reason) in tricks {
            // a body that is not a request has no id
            let id = if matches!(*reason, "parse_error" | "batch") {
                "null"
            } else {
                ID
            };
            rpc_refused(&self.post("/rpc", body), reason, id, what);
        }
        assert_eq!(
            self.adds().len(),
            0,
            "nothing of what was refused reaches the node"
        );
        self.assert_passes(fine);
    }

    /// Asserts that the transaction is accepted, and is the only one that the node gets.
    pub(crate) fn assert_passes(&self, fine: &Signed) {
        submitted(
            &self.post("/rpc", fine.body()),
            fine.hash,
            "the untouched transaction",
        );
        assert_eq!(
            self.adds().len(),
            1,
            "the untouched transaction reaches the node, once"
        );
    }
}

/// A relay in front of the scripted chain at this address.
pub(crate) fn setup(node: SocketAddr, folder: &Folder, keys: &[(&str, &str)]) -> Setup {
    let mut setup = common_setup(node, folder);
    for (name, pin) in PINS {
        setup = setup.set(&format!("relay.pins.{name}"), &format!("\"{pin}\""));
    }
    for (name, text) in [("owner", OWNER_KEY), ("verifier", VERIFIER_KEY)] {
        let file = folder.secret(&format!("{name}.key"), text);
        setup = setup.set(&format!("relay.keys.{name}_file"), &format!("\"{file}\""));
    }
    keys.iter()
        .fold(setup, |setup, (key, value)| setup.set(key, value))
}

fn common_setup(node: SocketAddr, folder: &Folder) -> Setup {
    let token = folder.secret("relay.token", TOKEN);
    Setup::before(node)
        .unset("gateway.listen")
        .unset("gateway.requests_per_minute")
        .set("relay.listen", "\"127.0.0.1:0\"")
        .set("relay.requests_per_minute", &AMPLE.to_string())
        .set("relay.token_files", &format!("\"{token}\""))
        .set("relay.policy.identity_verification_mode", "\"v2\"")
        .set("relay.policy.verification_v2_required", "true")
        .set("relay.policy.ecosystem_ready", "true")
        .set(
            "store.url",
            &format!("\"sqlite:{}\"", folder.file("journal.db")),
        )
}

/// The request with the token.
pub(crate) fn authorised(request: Request) -> Request {
    request.with("Authorization", &format!("Bearer {TOKEN}"))
}

/// A body to a path, with the token.
pub(crate) fn post(path: &str, body: impl AsRef<[u8]>) -> Request {
    authorised(Request::post(body).line(&format!("POST {path} HTTP/1.1")))
}
