//! `portcullis dev`: the whole system on loopback, with a real node and nothing to configure.
//!
//! Finds or installs `starknet-devnet`, starts it on a free port, deploys and wires the contracts,
//! fills the store with sample content, runs the edge with the embedded defaults and fresh keys,
//! and prints what to try. Ends both on Ctrl-C. A node that runs already (`--node`) is never
//! started, restarted or stopped.

mod content;
mod greeting;
mod network;
mod node;
mod secrets;

use super::{DevArguments, INTERNAL, USAGE};
use crate::config::{Config, NodeUrl};
use crate::process::inherited::Inherited;
use crate::process::lifecycle::Signals;
use crate::process::server;
use crate::telemetry::Log;
use content::ContentError;
use network::{Network, NetworkError};
use node::{Devnet, StartError};
use secrets::{Accounts, KeyError};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// The embedded defaults; the node's URL is filled in.
const CONFIG: &str = include_str!("../../../conf/dev/portcullis.toml");

/// Why `dev` could not start.
#[derive(Debug)]
enum DevError {
    Node(StartError),
    NodeUrl(String),
    State(PathBuf, std::io::Error),
    Keys(KeyError),
    Network(NetworkError),
    Content(ContentError),
    Config(crate::config::Errors),
    Bind(server::StartError),
}

impl std::fmt::Display for DevError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Node(error) => error.fmt(f),
            Self::NodeUrl(error) => write!(f, "--node: {error}"),
            Self::State(path, error) => {
                write!(f, "can not keep state under {}: {error}", path.display())
            }
            Self::Keys(error) => write!(f, "can not keep keys: {error}"),
            Self::Network(error) => write!(f, "can not make the network: {error}"),
            Self::Content(error) => write!(f, "can not fill the store: {error}"),
            Self::Config(errors) => errors.fmt(f),
            Self::Bind(error) => error.fmt(f),
        }
    }
}

pub(super) fn run(arguments: &DevArguments) -> ExitCode {
    match start(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("portcullis dev: {error}");
            ExitCode::from(match error {
                DevError::NodeUrl(_) | DevError::Config(_) | DevError::Bind(_) => USAGE,
                DevError::Node(_)
                | DevError::State(..)
                | DevError::Keys(_)
                | DevError::Network(_)
                | DevError::Content(_) => INTERNAL,
            })
        }
    }
}

fn start(arguments: &DevArguments) -> Result<(), DevError> {
    let state = &*arguments.state;
    let failed = |error| DevError::State(state.to_owned(), error);
    if arguments.fresh && state.exists() {
        std::fs::remove_dir_all(state).map_err(failed)?;
    }
    std::fs::create_dir_all(state).map_err(failed)?;
    let state = &*state.canonicalize().map_err(failed)?;
    let Some((url, devnet)) = wait_for(node(arguments, state), state)? else { return Ok(()) };
    let Some(text) = wait_for(make(&url, state, arguments), state)? else { return Ok(()) };
    std::fs::write(state.join("portcullis.toml"), &text).map_err(failed)?;
    if arguments.prepare {
        println!("portcullis serve --config {}", state.join("portcullis.toml").display());
        return Ok(());
    }
    let config = Config::parse(&text, std::env::vars_os()).map_err(DevError::Config)?;
    let log = Log::install(&config.log);
    let bound = server::bind(&config, log, Inherited::default()).map_err(DevError::Bind)?;
    print!("{}", greeting::text(&url, &arguments.state, &bound));
    bound.run();
    // the node goes last, so that requests in flight can finish
    drop(devnet);
    Ok(())
}

/// Runs `task` to its end, or `None` when a signal came first.
fn wait_for<T>(
    task: impl Future<Output = Result<T, DevError>>,
    state: &Path,
) -> Result<Option<T>, DevError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| DevError::State(state.to_owned(), error))?;
    runtime.block_on(async {
        let mut signals = Signals::new();
        tokio::select! {
            done = task => done.map(Some),
            () = signals.wait() => Ok(None),
        }
    })
}

/// The node's URL, and the node when it is ours.
async fn node(
    arguments: &DevArguments,
    state: &Path,
) -> Result<(String, Option<Devnet>), DevError> {
    if let Some(url) = &arguments.node {
        NodeUrl::parse(url).map_err(DevError::NodeUrl)?;
        return Ok((url.clone(), None));
    }
    let devnet = Devnet::start(&state.join("node.log")).await.map_err(DevError::Node)?;
    Ok((devnet.url(), Some(devnet)))
}

/// Makes the network, and the configuration that pins it.
async fn make(url: &str, state: &Path, arguments: &DevArguments) -> Result<String, DevError> {
    let accounts = Accounts::in_folder(state).map_err(DevError::Keys)?;
    let reading = format!("[node]\nurl = \"{url}\"\n[admin]\n");
    let node = Config::parse(&reading, []).map_err(DevError::Config)?.node;
    let network = Network::on(&node, accounts).await.map_err(DevError::Network)?;
    network.make(!arguments.without_v2).await.map_err(DevError::Network)?;
    content::fill(state).await.map_err(DevError::Content)?;
    let state = state.display().to_string();
    Ok(CONFIG
        .replace("NODE_URL", url)
        .replace("STATE", &state)
        .replace("# PINS\n", &network.pins()))
}
