//! `portcullis check`: everything that is wrong with a configuration, at once.
//!
//! With `--live` it also asks each URL of the node what it is, through the same policy and the same
//! client as a request would go.

use super::{CHECK_FAILED, CheckArguments, INTERNAL};
use crate::config::{Config, NodeConfig, NodeUrl, NonEmpty};
use crate::node::{Fault, MAX_ANSWER, Memory, Node};
use crate::telemetry::Metrics;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::policy::GatewayPolicy;
use portcullis_filters::rpc::{Method, MethodSet};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

pub(super) fn run(arguments: &CheckArguments) -> ExitCode {
    let config = match Config::load(&arguments.file.config, std::env::vars_os()) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(CHECK_FAILED);
        }
    };
    println!("{}: ok", arguments.file.config.display());
    if !arguments.live {
        return ExitCode::SUCCESS;
    }
    match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime.block_on(live(&config.node)),
        Err(error) => {
            eprintln!("portcullis check: {error}");
            ExitCode::from(INTERNAL)
        }
    }
}

async fn live(config: &NodeConfig) -> ExitCode {
    let mut all_answered = true;
    for url in config.urls.iter() {
        for method in [Method::SpecVersion, Method::ChainId] {
            let (answer, took) = ask(url, config, method).await;
            let verdict = match answer {
                Ok(text) => text,
                Err(fault) => {
                    all_answered = false;
                    format!("FAILED: {}", fault.name())
                }
            };
            println!("{url:<40} {:<24} {verdict} ({took:.0?})", method.name());
        }
    }
    if all_answered { ExitCode::SUCCESS } else { ExitCode::from(CHECK_FAILED) }
}

async fn ask(
    url: &NodeUrl,
    config: &NodeConfig,
    method: Method,
) -> (Result<String, Fault>, Duration) {
    let urls = NonEmpty::new(vec![url.clone()]).expect("one URL is not none");
    let config = NodeConfig { urls, ..config.clone() };
    let node = Node::new(&config, Memory::new(MAX_ANSWER), Arc::new(Metrics::new()));
    let policy = GatewayPolicy {
        methods: MethodSet::new(&[method]),
        trusted_proxies: TrustedProxies::default(),
    };
    let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, method.name());
    let permit =
        policy.inspect(request.as_bytes()).expect("a call without parameters is permitted");
    let mut took = Duration::ZERO;
    let answer = node.fetch(&permit, None, &mut took).await;
    let answer = answer.map(|answer| String::from_utf8_lossy(&answer.payload).into_owned());
    (answer, took)
}
