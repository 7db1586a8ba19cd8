//! `check --live`: whether a URL of the node serves the needed version of the Starknet API, and
//! every method that the program uses.

use super::live;
use super::report::{Finding, Kind, Report};
use portcullis_base::config::{Config, NodeConfig, NodeUrl};
use portcullis_edge::node::chain::{Chain, RpcError, code};
use portcullis_edge::node::{Call, NodeClient};
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::networks::Networks;
use portcullis_filters::policy::GatewayPolicy;
use portcullis_filters::rpc::version::{NEEDED, is_needed, path_of_needed};
use portcullis_filters::rpc::{Method, MethodSet};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Methods that the program itself calls, whichever surfaces are on.
const OF_PROGRAM: [&str; 4] = [
    "starknet_blockNumber",
    "starknet_chainId",
    "starknet_getBlockWithTxHashes",
    "starknet_specVersion",
];
/// Further methods that the relay calls.
const OF_RELAY: [&str; 9] = [
    "starknet_addDeployAccountTransaction",
    "starknet_addInvokeTransaction",
    "starknet_call",
    "starknet_estimateFee",
    "starknet_getBlockWithReceipts",
    "starknet_getClassHashAt",
    "starknet_getNonce",
    "starknet_getTransactionByHash",
    "starknet_getTransactionReceipt",
];

/// Checks the version, the chain id and the methods of a URL.
pub(super) async fn check(config: &Config, chain: &Chain, url: &NodeUrl, report: &mut Report) {
    let version = fetch(&chain.0, Method::SpecVersion).await;
    let served = version.result.as_deref().ok().map(unquoted);
    let is_served = served.as_deref().is_some_and(is_needed);
    if let Some(served) = served.filter(|served| !is_needed(served)) {
        let remedy = remedy(&config.node, url).await;
        let message = format!("it serves version {served:?} of the Starknet API, not {NEEDED}");
        report.add(Finding::failed(
            Kind::Node,
            &url.shown(),
            format!("{message}: {remedy}"),
        ));
    } else {
        report.add(version.finding(url));
    }
    report.add(fetch(&chain.0, Method::ChainId).await.finding(url));
    // a node of another version has other methods, and one that is away has none
    if is_served {
        methods(config, chain, url, report).await;
    }
}

/// The answer to a call without parameters.
struct Fetched {
    method: Method,
    /// The result as JSON, or the failure in words.
    result: Result<String, String>,
    took: Duration,
}

impl Fetched {
    fn finding(&self, url: &NodeUrl) -> Finding {
        let name = self.method.name();
        let took = self.took;
        match &self.result {
            Ok(text) => Finding::ok(
                Kind::Node,
                &url.shown(),
                format!("{name}: {text} ({took:.0?})"),
            ),
            Err(text) => Finding::failed(
                Kind::Node,
                &url.shown(),
                format!("{name}: {text} ({took:.0?})"),
            ),
        }
    }
}

/// Calls a method of the node as a client's read.
async fn fetch(client: &NodeClient, method: Method) -> Fetched {
    let policy = GatewayPolicy {
        methods: MethodSet::new(&[method]),
        trusted_proxies: TrustedProxies::default(),
        blocked: Networks::default(),
        has_documents: false,
    };
    let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{}"}}"#, method.name());
    let permit = policy
        .inspect(request.as_bytes())
        .expect("a call without parameters is permitted");
    let request = |id, out: &mut Vec<u8>| permit.write_request(id, out);
    let start = Instant::now();
    let answer = client
        .fetch(Call::new(request, start + client.timeout()))
        .await;
    let result = match answer {
        Ok(answer) => {
            let text = String::from_utf8_lossy(&answer.payload).into_owned();
            if answer.is_result() {
                Ok(text)
            } else {
                Err(format!("the error {text}"))
            }
        }
        Err(error) => {
            let cause = client.status().failure_cause(0).unwrap_or_default();
            Err(format!("{}: {cause}", error.name()))
        }
    };
    Fetched {
        method,
        result,
        took: start.elapsed(),
    }
}

/// The text of a JSON string; other JSON as it is.
fn unquoted(json: &str) -> String {
    serde_json::from_str(json).unwrap_or_else(|_| json.to_owned())
}

/// Where the node serves the needed version, if it is found there.
async fn remedy(config: &NodeConfig, url: &NodeUrl) -> String {
    const ANOTHER: &str = "name a URL that serves it in node.url";
    let Some(path) = path_of_needed(&url.path) else {
        return ANOTHER.to_owned();
    };
    let there = NodeUrl {
        path,
        ..url.clone()
    };
    let found = fetch(&live::client(config, &there), Method::SpecVersion).await;
    match found.result.as_deref().map(unquoted) {
        Ok(version) if is_needed(&version) => {
            format!("{} serves {version}: set it in node.url", there.shown())
        }
        _ => format!("try {}, or {ANOTHER}", there.shown()),
    }
}

/// Tries every method that the program uses. Without parameters most calls are errors of the
/// parameters, which shows that the node has the method, and changes nothing.
async fn methods(config: &Config, chain: &Chain, url: &NodeUrl, report: &mut Report) {
    let mut names = BTreeSet::from(OF_PROGRAM);
    if let Some(gateway) = &config.gateway {
        names.extend(gateway.live.methods.iter().map(|method| method.name()));
    }
    if config.relay.is_some() {
        names.extend(OF_RELAY);
    }
    let count = names.len();
    let mut is_complete = true;
    for name in names {
        let cause = match chain.ask(name, "[]").await {
            Err(RpcError::Returned(error)) if error.code == code::METHOD_NOT_FOUND => {
                "the node does not have this method".to_owned()
            }
            Err(RpcError::Node(error)) => {
                let cause = chain.0.status().failure_cause(0).unwrap_or_default();
                format!("{}: {cause}", error.name())
            }
            Ok(_) | Err(RpcError::Returned(_) | RpcError::MalformedAnswer) => continue,
        };
        is_complete = false;
        report.add(Finding::failed(
            Kind::Node,
            &url.shown(),
            format!("{name}: {cause}"),
        ));
    }
    if is_complete {
        let message = format!("it has the {count} methods that are used");
        report.add(Finding::ok(Kind::Node, &url.shown(), message));
    }
}
