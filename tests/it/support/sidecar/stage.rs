//! A sidecar with its environment: a folder of secrets, a store with content, and clients.

use std::net::{Ipv4Addr, SocketAddr};

use sqlx::{AssertSqlSafe, Connection as _, SqliteConnection};

use super::content;
use crate::support::client::Client;
use crate::support::edge::{AMPLE, Edge, Setup};
use crate::support::folder::Folder;
use crate::support::request::Request;
use crate::support::response::Response;

/// The prefix of all links.
pub(crate) const BASE: &str = "https://cards.example";
/// The secret that signs sessions.
pub(crate) const SESSION_SECRET: &str = "the-secret-of-sessions-0123456789abcdef";
/// The secret that signs the verifier's events.
pub(crate) const WEBHOOK_SECRET: &str = "the-secret-of-the-verifier-0123456789ab";

/// An unused address: the sidecar contacts no node.
const NODE: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 9);

/// A running sidecar with its environment.
pub(crate) struct Stage {
    pub(crate) edge: Edge,
    pub(crate) setup: Setup,
    pub(crate) folder: Folder,
}

impl Stage {
    /// With the test content.
    pub(crate) fn new() -> Self {
        Self::with(&[])
    }

    /// With the test content, and some keys set to other TOML values.
    pub(crate) fn with(keys: &[(&str, &str)]) -> Self {
        let stage = Self::empty(keys);
        stage.sql(&content::everything());
        stage
    }

    /// With an empty store.
    pub(crate) fn empty(keys: &[(&str, &str)]) -> Self {
        let folder = Folder::new();
        let setup = setup(&folder, keys);
        Self {
            edge: setup.start(),
            setup,
            folder,
        }
    }

    /// Kills the process, and starts another one on the same store.
    pub(crate) fn restart(&mut self) {
        self.edge.signal("KILL");
        self.edge.wait();
        self.edge = self.setup.start();
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.edge.sidecar())
    }

    /// Sends one request over its own connection, unchanged.
    pub(crate) fn ask(&self, request: &Request) -> Response {
        self.client().ask(request)
    }

    /// `GET` of a path.
    pub(crate) fn get(&self, path: &str) -> Response {
        self.ask(&Request::new("GET", path))
    }

    /// `GET` of a path with this header.
    pub(crate) fn get_with(&self, path: &str, name: &str, value: &str) -> Response {
        self.ask(&Request::new("GET", path).with(name, value))
    }

    /// Sends any request as `HEAD`; asserts that no byte follows the head.
    pub(crate) fn head(&self, request: &Request, path: &str) -> Response {
        let mut client = self.client();
        let request = request.clone().line(&format!("HEAD {path} HTTP/1.1"));
        client.send(request.with("Connection", "close").bytes());
        let response = client.response_to_head();
        client.ends("an answer to HEAD has no body");
        response
    }

    /// Runs statements on the store, as the product's backend does while the sidecar runs.
    pub(crate) fn sql(&self, statements: &str) {
        let url = format!("sqlite:{}", self.folder.file("store.db"));
        let statements = sqlx::raw_sql(AssertSqlSafe(statements.to_owned()));
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build();
        runtime.unwrap().block_on(async {
            let mut connection = SqliteConnection::connect(&url).await.unwrap();
            statements.execute(&mut connection).await.unwrap();
            connection.close().await.unwrap();
        });
    }
}

/// The configuration of a sidecar alone.
pub(crate) fn setup(folder: &Folder, keys: &[(&str, &str)]) -> Setup {
    let sessions = folder.secret("session.secret", SESSION_SECRET);
    let webhook = folder.secret("webhook.secret", WEBHOOK_SECRET);
    let setup = Setup::before(NODE)
        .unset("gateway.listen")
        .unset("gateway.requests_per_minute")
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("sidecar.base_url", &format!("\"{BASE}\""))
        .set("sidecar.requests_per_minute", &AMPLE.to_string())
        .set(
            "sidecar.session.hs256_secret_files",
            &format!("[\"{sessions}\"]"),
        )
        .set(
            "sidecar.age.webhook_secret_files",
            &format!("[\"{webhook}\"]"),
        )
        .set(
            "store.url",
            &format!("\"sqlite:{}\"", folder.file("store.db")),
        );
    keys.iter()
        .fold(setup, |setup, (key, value)| setup.set(key, value))
}

/// A body to a path, with the media type of JSON.
pub(crate) fn post(path: &str, body: impl AsRef<[u8]>) -> Request {
    Request::post(body).line(&format!("POST {path} HTTP/1.1"))
}

/// A text, encoded for a query.
pub(crate) fn encoded(text: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    let bytes = text.bytes().map(|byte| match plain(byte) {
        true => char::from(byte).to_string(),
        false => format!("%{byte:02X}"),
    });
    bytes.collect()
}
