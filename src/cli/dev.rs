//! `portcullis dev`: the whole system on loopback, with a real node and nothing to configure.
//!
//! Finds or installs `starknet-devnet`, starts it on a free port, runs the edge before it with the
//! embedded defaults, and prints what to try. Ends both on Ctrl-C. A node that runs already
//! (`--node`) is used as it is: never started, restarted, reset or stopped.

mod node;

use super::{DevArguments, INTERNAL, USAGE};
use crate::config::{Config, Listen, NodeUrl};
use crate::server;
use crate::stop::Signals;
use crate::telemetry::Log;
use node::{Devnet, StartError};
use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

/// What the command keeps, in the working directory.
const STATE: &str = ".portcullis";
/// The embedded defaults; the node's URL is filled in.
const CONFIG: &str = include_str!("../../conf/dev/portcullis.toml");

/// Why `dev` could not start.
#[derive(Debug)]
enum DevError {
    Node(StartError),
    NodeUrl(String),
    State(std::io::Error),
    Config(crate::config::Errors),
    Bind(server::BindError),
}

impl std::fmt::Display for DevError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Node(error) => error.fmt(f),
            Self::NodeUrl(error) => write!(f, "--node: {error}"),
            Self::State(error) => write!(f, "can not keep state under {STATE}: {error}"),
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
                DevError::Node(_) | DevError::State(_) => INTERNAL,
            })
        }
    }
}

fn start(arguments: &DevArguments) -> Result<(), DevError> {
    let state = Path::new(STATE);
    if arguments.fresh && state.exists() {
        std::fs::remove_dir_all(state).map_err(DevError::State)?;
    }
    std::fs::create_dir_all(state).map_err(DevError::State)?;
    let (url, devnet) = match &arguments.node {
        Some(url) => (url.clone(), None),
        None => {
            let Some(devnet) = start_node(&state.join("node.log"))? else { return Ok(()) };
            (devnet.url(), Some(devnet))
        }
    };
    NodeUrl::parse(&url).map_err(DevError::NodeUrl)?;
    let text = CONFIG.replace("NODE_URL", &url);
    std::fs::write(state.join("portcullis.toml"), &text).map_err(DevError::State)?;
    let config = Config::parse(&text, std::env::vars_os()).map_err(DevError::Config)?;
    let log = Log::install(&config.log);
    let bound = server::bind(&config, log).map_err(DevError::Bind)?;
    print!("{}", greeting(&url, bound.gateway.as_ref(), bound.admin.as_ref()));
    bound.run();
    // the node goes last, so that requests in flight can finish
    drop(devnet);
    Ok(())
}

/// A node that answers, or `None` when a signal came first: then it is gone again.
fn start_node(log: &Path) -> Result<Option<Devnet>, DevError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.map_err(DevError::State)?.block_on(async {
        let mut signals = Signals::new();
        tokio::select! {
            devnet = Devnet::start(log) => devnet.map(Some).map_err(DevError::Node),
            () = signals.wait() => Ok(None),
        }
    })
}

fn greeting(node: &str, gateway: Option<&Listen>, admin: Option<&Listen>) -> String {
    let mut text = String::from("\nPortcullis runs.\n\n");
    let mut line = |text_line: String| {
        // writing to a string does not fail
        let _ = writeln!(text, "{text_line}");
    };
    if let Some(gateway) = gateway {
        line(format!("  gateway   http://{gateway}/rpc   (public, read-only)"));
    }
    if let Some(admin) = admin {
        line(format!("  admin     http://{admin}/metrics"));
    }
    line(format!("  node      {node}   (private: a client never sees it)"));
    line(format!("  config    {STATE}/portcullis.toml"));
    if let Some(gateway) = gateway {
        let post = format!("curl -s http://{gateway}/rpc -H 'content-type: application/json' -d");
        line("\nTry, in another terminal:\n".into());
        line("  # a read goes through".into());
        line(format!(
            "  {post} '{{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"starknet_chainId\"}}'"
        ));
        line("  # a view call: the STRK token's decimals".into());
        line(format!(
            "  {post} '{{\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"starknet_call\",\"params\":\
             {{\"request\":{{\"contract_address\":\"{STRK}\",\"entry_point_selector\":\
             \"{DECIMALS}\",\"calldata\":[]}},\"block_id\":\"latest\"}}}}'"
        ));
        line("  # a write does not: 403".into());
        line(format!(
            "  {post} '{{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\
             \"starknet_addInvokeTransaction\"}}'"
        ));
        line("  # nor does the node's administration: 403".into());
        line(format!("  {post} '{{\"jsonrpc\":\"2.0\",\"id\":4,\"method\":\"devnet_mint\"}}'"));
    }
    if let Some(admin) = admin {
        line("  # what came of them".into());
        line(format!("  curl -s http://{admin}/metrics | grep requests_total | grep -v ' 0$'"));
    }
    line("\nCtrl-C ends it all. Log lines follow.\n".into());
    text
}

/// The STRK token, predeployed on the node.
const STRK: &str = "0x4718f5a0fc34cc1af16a1cdee98ffb20c31f5cd61d6ab07201858f4287c938d";
/// The selector of `decimals`.
const DECIMALS: &str = "0x4c4fb1ab068f6039d5780c68dd0fa2f8742cceb3426d19667778ca7f3518a9";
