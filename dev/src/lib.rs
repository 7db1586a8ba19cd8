//! `portcullis dev`: the whole system on loopback, with a real node and nothing to configure.
//!
//! Takes its folder and its addresses first (`hold`). Then starts `starknet-devnet` on a free port,
//! deploys and wires the contracts, fills the store with sample content, runs the edge with the
//! embedded defaults and new keys, and prints commands to try. If the program of the node is
//! missing, the edge runs first, and the steps that need the node follow when it is built
//! (`install`). A node that ends is started again (`supervisor`). Ctrl-C stops both. A running node
//! (`--node`) is never started, restarted or stopped. It is only read, unless `--deploy` or
//! `--prepare` sets up the network on it.

pub mod attached;
mod content;
mod error;
mod greeting;
mod hold;
mod install;
mod network;
mod node;
mod secrets;
mod setup;
mod supervisor;

use error::DevError;
use greeting::Greeting;
use hold::Addresses;
use portcullis_base::config::Config;
use portcullis_base::telemetry::{Log, Surface};
use portcullis_program::command::{Failure, Outcome, block_on, output};
use portcullis_program::process::inherited::Inherited;
use portcullis_program::process::server;
use portcullis_program::process::signals::StopSignals;
use setup::Setup;
use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::ExitCode;
use supervisor::Supervisor;

/// The embedded defaults; the node's URL, the folder, the pins and the addresses are filled in.
const CONFIG: &str = include_str!("../../conf/dev/portcullis.toml");

/// Run the whole system on loopback, with a real node and nothing to configure.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # everything, until Ctrl-C
  portcullis dev
  # another chain, other keys, another store
  portcullis dev --fresh
  # where port 8080 is in use
  PORTCULLIS__GATEWAY__LISTEN=127.0.0.1:9080 portcullis dev
  # reads from any running node, without a relay; nothing is written to it
  portcullis dev --node https://starknet.example/rpc
  # on a running starknet-devnet, with contracts and a relay
  portcullis dev --node http://127.0.0.1:5050/rpc --deploy
  # only the contracts and a configuration for serve
  portcullis dev --node http://127.0.0.1:5050/rpc --state net --prepare

Exit codes:
  0   stopped by a signal
  2   usage, or an address or the folder in use
  70  the node, the network or the folder is unusable")]
pub struct Arguments {
    /// Use the running node at this URL instead of starting one; only read it.
    #[arg(long, value_name = "URL")]
    node: Option<String>,
    /// Folder for keys, tokens, the configuration and the store.
    #[arg(long, value_name = "DIR", default_value = ".portcullis")]
    state: PathBuf,
    /// Start over: delete the files that an earlier run wrote into the folder first.
    #[arg(long)]
    fresh: bool,
    /// Set up the network on that node, a starknet-devnet, and run the relay on it.
    #[arg(long, requires = "node")]
    deploy: bool,
    /// Set up the network on that node and write the configuration for `serve`; run nothing.
    #[arg(long, requires = "node")]
    prepare: bool,
    /// Leave V2 verification off, to be activated by POST /require-v2.
    #[arg(long)]
    without_v2: bool,
}

/// Runs until a signal stops it.
///
/// # Errors
/// The system cannot be started.
pub fn run(arguments: &Arguments) -> Outcome {
    match start(arguments) {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(error) => Err(Failure(error.code(), format!("portcullis dev: {error}"))),
    }
}

fn start(arguments: &Arguments) -> Result<(), DevError> {
    let state = &*arguments.state;
    let failed = |error| DevError::State(state.to_owned(), error);
    // change nothing before all of this is held
    let held = hold::lock(state)?;
    let state = &*state.canonicalize().map_err(failed)?;
    let mut addresses = Addresses::configured(CONFIG, std::env::vars_os())?;
    let mut inherited = Inherited::default();
    if !arguments.prepare {
        inherited = addresses.bind()?;
    }
    // from here on no signal is lost
    let mut signals = StopSignals::install().map_err(DevError::Runtime)?;
    if !arguments.prepare || arguments.fresh {
        let Some(()) = wait_for(hold::store_is_free(state), &mut signals)? else {
            return Ok(());
        };
    }
    if arguments.fresh {
        hold::empty(&held, &arguments.state).map_err(failed)?;
    }
    let Some(setup) = wait_for(Setup::make(arguments, state), &mut signals)? else {
        return Ok(());
    };
    let text = setup.configuration(&addresses.fill(CONFIG), state);
    let path = hold::write_config(state, &text).map_err(failed)?;
    if arguments.prepare {
        output::show(format!("portcullis serve --config {}\n", path.display()));
        return Ok(());
    }
    let has_relay = setup.pins.is_some();
    if !has_relay {
        let unused = addresses.of(Surface::Relay);
        drop(unused.and_then(|listen| inherited.claim(Surface::Relay.name(), listen)));
    }
    let env = std::env::vars_os().filter(|(name, _)| has_relay || !is_of(name, "RELAY"));
    let config = Config::parse(&text, env)?;
    let log = Log::install(&config.log);
    let bound = server::bind(&config, log, inherited)?;
    let publisher = config
        .sidecar
        .as_ref()
        .map_or("", |sidecar| &sidecar.live.feeds.publisher_did);
    let shown = setup.shown.clone();
    let greeting = Greeting {
        node: &shown,
        publisher,
        state: &arguments.state,
    };
    let supervisor = setup.supervise(&greeting, &bound, state);
    bound.run_until(signals);
    // the node stops last, so that requests in flight can finish
    supervisor.map_or(Ok(()), Supervisor::stop)
}

/// The result of `task`, or `None` if a signal arrives first.
fn wait_for<T>(
    task: impl Future<Output = Result<T, DevError>>,
    signals: &mut StopSignals,
) -> Result<Option<T>, DevError> {
    let done = block_on(async {
        tokio::select! {
            done = task => done.map(Some),
            () = signals.wait() => Ok(None),
        }
    });
    done.map_err(DevError::Runtime)?
}

/// Whether a variable of the environment is for this part of the configuration.
fn is_of(variable: &OsStr, part: &str) -> bool {
    let key = variable
        .to_str()
        .and_then(|name| name.strip_prefix("PORTCULLIS__"));
    key.and_then(|key| key.strip_prefix(part))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with("__"))
}
