//! `portcullis dev`: the whole system on loopback, with a real node and nothing to configure.
//!
//! Finds or installs `starknet-devnet`, starts it on a free port, deploys and wires the contracts,
//! fills the store with sample content, runs the edge with the embedded defaults and new keys, and
//! prints commands to try. Ctrl-C stops both. A running node (`--node`) is never started, restarted
//! or stopped.

mod content;
mod greeting;
mod network;
mod node;
mod secrets;

use super::{Failure, INTERNAL, Outcome, USAGE, block_on};
use crate::config::{self, Config, Listen, NodeUrl};
use crate::process::inherited::Inherited;
use crate::process::lifecycle::Signals;
use crate::process::server;
use crate::telemetry::Log;
use content::ContentError;
use network::{Network, NetworkError, Verification};
use node::{Devnet, StartError};
use secrets::{Accounts, KeyError};
use std::ffi::OsString;
use std::io;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use thiserror::Error;

/// The embedded defaults; the node's URL, the folder, the pins and the addresses of the sidecar are
/// filled in.
const CONFIG: &str = include_str!("../../../conf/dev/portcullis.toml");

/// Why `dev` could not start.
#[derive(Debug, Error)]
enum DevError {
    #[error("{0}")]
    Node(#[from] StartError),
    #[error("--node: {0}")]
    NodeUrl(String),
    #[error("cannot use the folder {0}: {1}")]
    State(PathBuf, io::Error),
    #[error("cannot create the keys: {0}")]
    Keys(#[from] KeyError),
    #[error("cannot set up the network: {0}")]
    Network(#[from] NetworkError),
    #[error("cannot import the sample content: {0}")]
    Content(#[from] ContentError),
    #[error("{0}")]
    Config(#[from] config::Errors),
    #[error("{0}")]
    Bind(server::StartError),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # everything, until Ctrl-C
  portcullis dev
  # another chain, other keys, another store
  portcullis dev --fresh
  # where port 8080 is in use
  PORTCULLIS__GATEWAY__LISTEN=127.0.0.1:9080 portcullis dev
  # on a running node
  portcullis dev --node http://127.0.0.1:5050/rpc
  # only the contracts and a configuration for serve
  portcullis dev --node http://127.0.0.1:5050/rpc --state net --prepare

Exit codes:
  0   stopped by a signal
  2   usage, or an address in use
  70  the node, the network or the folder is unusable")]
pub(super) struct Arguments {
    /// Use the running node at this URL instead of starting one.
    #[arg(long, value_name = "URL")]
    node: Option<String>,
    /// Folder for keys, tokens, the configuration and the store.
    #[arg(long, value_name = "DIR", default_value = ".portcullis")]
    state: PathBuf,
    /// Delete what an earlier run left there.
    #[arg(long)]
    fresh: bool,
    /// Set up the network and write the configuration for `portcullis serve`; run nothing.
    #[arg(long, requires = "node")]
    prepare: bool,
    /// Leave V2 verification off, to be activated by POST /require-v2.
    #[arg(long)]
    without_v2: bool,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    match start(arguments) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Failure(error.code(), format!("portcullis dev: {error}"))),
    }
}

impl DevError {
    fn code(&self) -> u8 {
        match self {
            Self::NodeUrl(_) | Self::Config(_) | Self::Bind(_) => USAGE,
            Self::Node(_)
            | Self::State(..)
            | Self::Keys(_)
            | Self::Network(_)
            | Self::Content(_) => INTERNAL,
        }
    }
}

fn start(arguments: &Arguments) -> Result<(), DevError> {
    let state = &*arguments.state;
    let failed = |error| DevError::State(state.to_owned(), error);
    if arguments.fresh && state.exists() {
        std::fs::remove_dir_all(state).map_err(failed)?;
    }
    std::fs::create_dir_all(state).map_err(failed)?;
    let state = &*state.canonicalize().map_err(failed)?;
    let Some((url, devnet)) = wait_for(node(arguments, state), state)? else { return Ok(()) };
    let Some(text) = wait_for(make(&url, state, arguments), state)? else { return Ok(()) };
    let text = with_sidecar(&text, std::env::vars_os())?;
    std::fs::write(state.join("portcullis.toml"), &text).map_err(failed)?;
    if arguments.prepare {
        println!("portcullis serve --config {}", state.join("portcullis.toml").display());
        return Ok(());
    }
    let config = Config::parse(&text, std::env::vars_os())?;
    let log = Log::install(&config.log);
    let bound = server::bind(&config, log, Inherited::default()).map_err(DevError::Bind)?;
    let publisher = config.sidecar.as_ref().map_or("", |sidecar| &sidecar.feeds.publisher_did);
    print!("{}", greeting::text(&url, publisher, &arguments.state, &bound));
    bound.run();
    // the node stops last, so that requests in flight can finish
    drop(devnet);
    Ok(())
}

/// The configuration with the sidecar's address from the environment, and the origin there, which
/// feeds and podcasts contain.
fn with_sidecar(
    text: &str,
    env: impl IntoIterator<Item = (OsString, OsString)>,
) -> Result<String, config::Errors> {
    let filled = |listen: &str, base_url: &str| {
        text.replace("SIDECAR", listen).replace("BASE_URL", base_url)
    };
    let default = filled("127.0.0.1:8082", "http://127.0.0.1:8082");
    let Some(sidecar) = Config::parse(&default, env)?.sidecar else { return Ok(default) };
    let Listen::Tcp(mut address) = sidecar.listen else { return Ok(default) };
    let listen = address.to_string();
    if address.ip().is_unspecified() {
        address.set_ip(Ipv4Addr::LOCALHOST.into());
    }
    // port 0 is resolved later, and http:// is for loopback only
    if address.port() == 0 || !address.ip().is_loopback() {
        return Ok(default);
    }
    let scheme = if sidecar.tls.is_some() { "https" } else { "http" };
    Ok(filled(&listen, &format!("{scheme}://{address}")))
}

/// The result of `task`, or `None` if a signal arrives first.
fn wait_for<T>(
    task: impl Future<Output = Result<T, DevError>>,
    state: &Path,
) -> Result<Option<T>, DevError> {
    let done = block_on(async {
        let mut signals = Signals::install();
        tokio::select! {
            done = task => done.map(Some),
            () = signals.wait() => Ok(None),
        }
    });
    done.map_err(|error| DevError::State(state.to_owned(), error))?
}

/// The node's URL, and the node if this process started it.
async fn node(arguments: &Arguments, state: &Path) -> Result<(String, Option<Devnet>), DevError> {
    if let Some(url) = &arguments.node {
        NodeUrl::parse(url).map_err(DevError::NodeUrl)?;
        return Ok((url.clone(), None));
    }
    let devnet = Devnet::start(&state.join("node.log")).await?;
    Ok((devnet.url(), Some(devnet)))
}

/// Sets up the network; returns the configuration that pins it.
async fn make(url: &str, state: &Path, arguments: &Arguments) -> Result<String, DevError> {
    let accounts = Accounts::in_folder(state)?;
    let reading = format!("[node]\nurl = \"{url}\"\n[admin]\n");
    let node = Config::parse(&reading, [])?.node;
    let network = Network::on(&node, accounts).await?;
    let verification = if arguments.without_v2 { Verification::V1 } else { Verification::V2 };
    network.make(verification).await?;
    content::fill(state).await?;
    let state = state.display().to_string();
    Ok(CONFIG
        .replace("NODE_URL", url)
        .replace("STATE", &state)
        .replace("# PINS\n", &network.pins()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn feeds_contain_the_port_of_the_sidecar() {
        const TEXT: &str = "[node]\nurl = \"http://127.0.0.1:5050\"\n[sidecar]\n\
                            listen = \"SIDECAR\"\nbase_url = \"BASE_URL\"\n";
        let listen = |listen| vec![("LISTEN", listen)];
        let tls = vec![("TLS__CERTIFICATE_FILE", "c"), ("TLS__KEY_FILE", "k")];
        for (env, expected) in [
            (vec![], "http://127.0.0.1:8082"),
            (listen("127.0.0.1:9082"), "http://127.0.0.1:9082"),
            (listen("[::1]:9082"), "http://[::1]:9082"),
            (listen("0.0.0.0:9082"), "http://127.0.0.1:9082"),
            (listen("127.0.0.1:0"), "http://127.0.0.1:8082"),
            (listen("unix:/run/sidecar"), "http://127.0.0.1:8082"),
            (tls, "https://127.0.0.1:8082"),
            (vec![("LISTEN", "[::1]:1"), ("BASE_URL", "https://a.example")], "https://a.example"),
        ] {
            let env = || {
                let name = |name| OsString::from(format!("PORTCULLIS__SIDECAR__{name}"));
                env.iter().map(move |(key, value)| (name(*key), OsString::from(*value)))
            };
            let text = with_sidecar(TEXT, env()).unwrap();
            let sidecar = Config::parse(&text, env()).unwrap().sidecar.unwrap();
            assert_eq!(sidecar.base_url, expected);
        }
    }
}
