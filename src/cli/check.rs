//! `portcullis check`: every mistake in a configuration, at once.
//!
//! Reads the secrets and the URL of the store, too; whether an address is in use and the database
//! answers, only a start finds out. With `--live` it also requests version and chain id from each
//! URL of the node, through the policy and the client that serve requests, compares the chains of
//! the URLs, and proves the relay's pins.

use super::{CHECK_FAILED, ConfigArgument, Failure, Outcome, block_on};
use crate::admin::Access;
use crate::config::{Config, NodeConfig, NodeUrl, NonEmpty};
use crate::http::clients::Running;
use crate::http::tls::Identities;
use crate::io::MemoryPool;
use crate::node::chain::Chain;
use crate::node::{ConnectionChoice, MAX_ANSWER, Node, NodeError};
use crate::process::server::StartError;
use crate::relay::pins::Prover;
use crate::relay::settings::{Keys, Pins, Settings};
use crate::secrets;
use crate::sidecar;
use crate::store::Store;
use crate::telemetry::Metrics;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::policy::GatewayPolicy;
use portcullis_filters::rpc::{Method, MethodSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # before a start or a reload
  portcullis check --config portcullis.toml
  # and is this the right node and the right chain?
  portcullis check --config portcullis.toml --live

Exit codes:
  0   no mistakes
  1   mistakes, all of them reported
  2   usage
  70  internal error")]
pub(super) struct Arguments {
    #[command(flatten)]
    file: ConfigArgument,
    /// Also request version and chain id from each URL of the node, and prove the relay's pins.
    #[arg(long)]
    live: bool,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let path = arguments.file.path()?;
    let config = Config::load(&path, std::env::vars_os());
    let config = config.map_err(|error| Failure(CHECK_FAILED, error.to_string()))?;
    let (relay, identities) = match (parts(&config), Identities::load(&config)) {
        (Ok(relay), Ok(identities)) => (relay, identities),
        (relay, identities) => {
            relay.err().iter().for_each(|error| eprintln!("{error}"));
            identities.err().iter().for_each(|errors| eprintln!("{errors}"));
            return Ok(ExitCode::from(CHECK_FAILED));
        }
    };
    let unlikely = config.warnings.iter().map(ToString::to_string);
    for warning in unlikely.chain(identities.warnings(SystemTime::now())) {
        eprintln!("warning: {warning}");
    }
    println!("{}: ok", path.display());
    if !arguments.live {
        return Ok(ExitCode::SUCCESS);
    }
    let is_fine = block_on(async {
        let mut is_fine = live(&config.node).await;
        if let Some((settings, keys)) = relay {
            is_fine &= pins(settings, &keys, &config.node).await;
        }
        is_fine
    });
    match is_fine {
        Ok(true) => Ok(ExitCode::SUCCESS),
        Ok(false) => Ok(ExitCode::from(CHECK_FAILED)),
        Err(error) => Err(Failure::internal(format_args!("portcullis check: {error}"))),
    }
}

/// Checks the store and reads every secret, as a start would; returns the relay's parts.
fn parts(config: &Config) -> Result<Option<(Settings, Keys)>, StartError> {
    if let Some(store) = &config.store {
        let password = secrets::read_optional(store.password_file.as_deref())?;
        Store::check(store, password.as_ref()).map_err(StartError::Store)?;
    }
    if let Some(config) = &config.sidecar {
        sidecar::Settings::load(config)?;
    }
    if let Some(config) = &config.admin {
        Access::load(config)?;
    }
    let Some(config) = &config.relay else { return Ok(None) };
    Ok(Some((Settings::load(config)?, Keys::load(config)?)))
}

/// Proves the relay's pins and prints them.
async fn pins(settings: Settings, keys: &Keys, node: &NodeConfig) -> bool {
    let config = settings.config.clone();
    let metrics = Arc::new(Metrics::default());
    let chain = Chain(Node::new(node, MemoryPool::new(16 * MAX_ANSWER), Arc::clone(&metrics)));
    let pins = Arc::new(Pins::new(&config, keys));
    let running = Arc::new(Running::new(settings, &config.clients));
    let prover = Prover::new(pins, Arc::new(chain), running, metrics);
    let proof = prover.prove().await;
    println!("\n{:<26} {:<7} expected, found", "pin", "");
    for pin in &proof.pins {
        let verdict = if pin.ok { "ok" } else { "FAILED" };
        println!("{:<26} {verdict:<7} {}", pin.name, pin.expected);
        if pin.actual != pin.expected {
            println!("{:<26} {:<7} {}", "", "", pin.actual);
        }
    }
    proof.is_ready()
}

async fn live(config: &NodeConfig) -> bool {
    let mut is_fine = true;
    for url in config.url.iter() {
        for method in [Method::SpecVersion, Method::ChainId] {
            let (answer, took) = ask(url, config, method).await;
            let verdict = match answer {
                Ok(text) => text,
                Err(fault) => {
                    is_fine = false;
                    format!("FAILED: {}", fault.name())
                }
            };
            println!("{url:<40} {:<24} {verdict} ({took:.0?})", method.name());
        }
    }
    let node = Node::new(config, MemoryPool::new(MAX_ANSWER), Arc::new(Metrics::default()));
    if let Some(guard) = node.chain_guard(config) {
        for (index, url) in config.url.iter().enumerate() {
            let checked = guard.check(index, config.timeout).await;
            is_fine &= checked.is_ok();
            let verdict = checked.map_or_else(|why| format!("FAILED: {why}"), |()| "ok".to_owned());
            println!("{url:<40} {:<24} {verdict}", "the served chain");
        }
    }
    is_fine
}

async fn ask(
    url: &NodeUrl,
    config: &NodeConfig,
    method: Method,
) -> (Result<String, NodeError>, Duration) {
    let urls = NonEmpty::new(vec![url.clone()]).expect("the list has one URL");
    let config = NodeConfig { url: urls, ..config.clone() };
    let node = Node::new(&config, MemoryPool::new(MAX_ANSWER), Arc::new(Metrics::default()));
    let policy = GatewayPolicy {
        methods: MethodSet::new(&[method]),
        trusted_proxies: TrustedProxies::default(),
    };
    let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, method.name());
    let permit =
        policy.inspect(request.as_bytes()).expect("a call without parameters is permitted");
    let request = |id, out: &mut Vec<u8>| permit.write_request(id, out);
    let start = Instant::now();
    let answer = node.fetch(request, ConnectionChoice::Pooled, None, start + node.timeout()).await;
    let answer = answer.map(|answer| String::from_utf8_lossy(&answer.payload).into_owned());
    (answer, start.elapsed())
}
