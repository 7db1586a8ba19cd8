//! `portcullis dev`: the whole system on loopback, with a real node and nothing to configure.
//!
//! Takes its folder and its addresses first (`hold`). Then finds or installs `starknet-devnet`,
//! starts it on a free port, deploys and wires the contracts, fills the store with sample content,
//! runs the edge with the embedded defaults and new keys, and prints commands to try. A node that
//! ends is started again (`supervisor`). Ctrl-C stops both. A running node (`--node`) is never
//! started, restarted or stopped.

mod content;
mod greeting;
mod hold;
mod network;
mod node;
mod secrets;
mod supervisor;

use super::{Failure, INTERNAL, Outcome, USAGE, block_on};
use crate::config::{self, Config, NodeUrl};
use crate::process::inherited::Inherited;
use crate::process::lifecycle::Signals;
use crate::process::server;
use crate::store::StoreError;
use crate::telemetry::Log;
use content::ContentError;
use hold::Addresses;
use network::{Network, NetworkError, Verification};
use node::{Devnet, StartError};
use secrets::{Accounts, KeyError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use supervisor::Supervisor;
use thiserror::Error;

/// The embedded defaults; the node's URL, the folder, the pins and the addresses are filled in.
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
    #[error(
        "the folder {0} is in use by process {1}, another `portcullis dev`; stop that, or name \
         another folder with --state"
    )]
    Held(PathBuf, String),
    #[error("cannot use the store: {0}")]
    Store(StoreError),
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
  2   usage, or an address or the folder in use
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
            Self::NodeUrl(_) | Self::Config(_) | Self::Bind(_) | Self::Held(..) => USAGE,
            Self::Node(_)
            | Self::State(..)
            | Self::Store(_)
            | Self::Keys(_)
            | Self::Network(_)
            | Self::Content(_) => INTERNAL,
        }
    }
}

fn start(arguments: &Arguments) -> Result<(), DevError> {
    let state = &*arguments.state;
    let failed = |error| DevError::State(state.to_owned(), error);
    // nothing changes before all of this is ours
    let _lock = hold::lock(state)?;
    let state = &*state.canonicalize().map_err(failed)?;
    let mut addresses = Addresses::configured(CONFIG, std::env::vars_os())?;
    let mut inherited = Inherited::default();
    if !arguments.prepare {
        inherited = addresses.bind()?;
    }
    if !arguments.prepare || arguments.fresh {
        let Some(()) = wait_for(hold::store_is_free(state), state)? else { return Ok(()) };
    }
    if arguments.fresh {
        hold::empty(state).map_err(failed)?;
    }
    let Some((url, devnet)) = wait_for(node(arguments, state), state)? else { return Ok(()) };
    let verification = Verification::without_v2(arguments.without_v2);
    let text = addresses.fill(CONFIG);
    let Some(text) = wait_for(make(&text, &url, state, verification), state)? else {
        return Ok(());
    };
    std::fs::write(state.join("portcullis.toml"), &text).map_err(failed)?;
    if arguments.prepare {
        println!("portcullis serve --config {}", state.join("portcullis.toml").display());
        return Ok(());
    }
    let config = Config::parse(&text, std::env::vars_os())?;
    let log = Log::install(&config.log);
    let bound = server::bind(&config, log, inherited).map_err(DevError::Bind)?;
    let publisher = config.sidecar.as_ref().map_or("", |sidecar| &sidecar.feeds.publisher_did);
    print!("{}", greeting::text(&url, publisher, &arguments.state, &bound));
    let state = state.to_owned();
    let supervisor = devnet.map(|devnet| {
        Supervisor::watch(devnet, async move || {
            let network = network(&url, &state).await?;
            Ok(network.make(verification).await?)
        })
    });
    bound.run();
    // the node stops last, so that requests in flight can finish
    drop(supervisor);
    Ok(())
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

/// Sets up the network and the store; returns the configuration for them.
async fn make(
    text: &str,
    url: &str,
    state: &Path,
    verification: Verification,
) -> Result<String, DevError> {
    let network = network(url, state).await?;
    network.make(verification).await?;
    content::fill(state).await?;
    let state = state.display().to_string();
    Ok(text.replace("NODE_URL", url).replace("STATE", &state).replace("# PINS\n", &network.pins()))
}

/// The network on the node at this URL, with the keys of the folder.
async fn network(url: &str, state: &Path) -> Result<Network, DevError> {
    let accounts = Accounts::in_folder(state)?;
    let reading = format!("[node]\nurl = \"{url}\"\n[admin]\n");
    let node = Config::parse(&reading, [])?.node;
    Ok(Network::on(&node, accounts).await?)
}
