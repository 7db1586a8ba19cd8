//! `check --live`: the node and the pins; poolers and standbys of PostgreSQL.

use super::api;
use super::report::{Finding, Kind, Report, Status};
use portcullis_base::config::{Config, NodeConfig, NodeUrl, NonEmpty, StoreConfig};
use portcullis_base::io::MemoryPool;
use portcullis_base::secrets::Secret;
use portcullis_base::telemetry::Metrics;
use portcullis_edge::http::clients::Running;
use portcullis_edge::node::chain::{Chain, RpcError};
use portcullis_edge::node::{Credentials, MAX_ANSWER, Node, NodeClient, Poller};
use portcullis_edge::relay::pins::Prover;
use portcullis_edge::relay::settings::{Keys, LiveSecrets, Pinned, Pins, Settings};
use portcullis_filters::chain::NodeMode;
use portcullis_store::{Store, Topology};
use serde_json::Value;
use std::sync::Arc;

/// Checks each URL of the node, and proves the pins if there is a relay.
pub(super) async fn check(
    config: &Config,
    relay: Option<(LiveSecrets, Keys)>,
    report: &mut Report,
) {
    for url in config.node.url.iter() {
        let chain = Chain(client(&config.node, url));
        api::check(config, &chain, url, report).await;
        if let Some(brand) = brand(&chain).await {
            report.add(Finding::ok(
                Kind::Node,
                &url.shown(),
                format!("it is {brand}"),
            ));
        }
    }
    // compared as replicas, for which the checks are stricter; their age is not compared
    let of_replicas = NodeConfig {
        mode: NodeMode::Replicas,
        max_block_age: None,
        ..config.node.clone()
    };
    let poller = Poller::new(&of_replicas, &load(&of_replicas, Arc::default()));
    if poller.is_needed() {
        for (index, url) in config.node.url.iter().enumerate() {
            let url = url.shown();
            report.add(match poller.check(index, config.node.timeout).await {
                Ok(()) => Finding::ok(Kind::Node, &url, "it is of the served chain"),
                Err(why) => Finding::failed(Kind::Node, &url, format!("the served chain: {why}")),
            });
        }
        let compared = poller.compare(config.node.timeout).await;
        for (url, found) in config.node.url.iter().zip(compared) {
            let url = url.shown();
            report.add(match found {
                Some(Ok(head)) => Finding::ok(Kind::Node, &url, format!("its head is {head}")),
                Some(Err(why)) => Finding::failed(Kind::Node, &url, why),
                // its chain was refused, or could not be read, above
                None => continue,
            });
        }
    }
    if let Some((own, (secrets, keys))) = config.relay.as_ref().zip(relay) {
        let settings = Settings::new(&own.live, secrets.tokens, Pinned::new(&own.pins));
        let running = Arc::new(Running::new(settings, &own.clients));
        let pins = Arc::new(Pins::new(own, &keys));
        prove(pins, running, &config.node, report).await;
    }
}

/// Implementations, each with a method that only it has, and that returns its version or
/// configuration.
const BRANDS: [(&str, &str); 3] = [
    ("Pathfinder", "pathfinder_version"),
    ("Juno", "juno_version"),
    ("starknet-devnet", "devnet_getConfig"),
];

/// The node's implementation and version, if it reports them.
async fn brand(chain: &Chain) -> Option<String> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || ".-+".contains(c);
    for (brand, method) in BRANDS {
        match chain.ask(method, "[]").await {
            Ok(Value::Object(_)) => return Some(brand.to_owned()),
            Ok(Value::String(version))
                if version.contains('.') && version.len() <= 40 && version.chars().all(is_part) =>
            {
                return Some(format!("{brand} {version}"));
            }
            // unreachable, or busy
            Err(RpcError::Node(_)) => return None,
            _ => {}
        }
    }
    None
}

/// Checks for a pooler in front of PostgreSQL, reported with the status `pooled`, and for standbys;
/// compares the replica.
pub(super) async fn store(
    config: &StoreConfig,
    password: Option<&Secret>,
    pooled: Status,
    report: &mut Report,
) {
    const KEY: &str = "store.url";
    // an error is reported where the store is opened
    if let Ok(Some(found)) = Store::topology(config, password).await {
        if found.shares_sessions {
            report.add(Finding::new(Kind::Store, KEY, pooled, POOLED));
        } else {
            report.add(Finding::ok(
                Kind::Store,
                KEY,
                "a connection has its session for itself",
            ));
        }
        report.add(standbys(KEY, found));
    }
    if let Some(url) = &config.read_url {
        report.add(replica(url, Store::compare_replica(config, password).await));
    }
}

const POOLED: &str = "a pooler in transaction mode is in front of PostgreSQL, and lets two \
    processes hold one lock: connect to PostgreSQL itself, or set pool_mode = session";

fn standbys(key: &str, found: Topology) -> Finding {
    match found {
        Topology {
            is_standby: true, ..
        } => {
            let message = "it is a standby, and accepts no writes: name the primary";
            Finding::failed(Kind::Store, key, message)
        }
        Topology { standbys: 0, .. } => Finding::ok(Kind::Store, key, "no standby follows it"),
        Topology {
            is_synchronous: true,
            standbys,
            ..
        } => {
            let message = format!("commits wait for its standbys ({standbys})");
            Finding::ok(Kind::Store, key, message)
        }
        Topology { standbys, .. } => {
            let message = format!(
                "it has standbys ({standbys}), and commits wait for none: one that is promoted may \
                 lack the newest writes; set synchronous_standby_names at PostgreSQL"
            );
            Finding::new(Kind::Store, key, Status::Note, message)
        }
    }
}

fn replica(url: &str, compared: Result<String, String>) -> Finding {
    const KEY: &str = "store.read_url";
    match compared {
        Ok(found) => Finding::ok(Kind::Store, KEY, format!("{url} {found}")),
        Err(cause) => {
            let message = format!("{url}: {cause}: documents are read from store.url meanwhile");
            Finding::new(Kind::Store, KEY, Status::Note, message)
        }
    }
}

/// Proves the relay's pins.
async fn prove(
    pins: Arc<Pins>,
    running: Arc<Running<Settings>>,
    node: &NodeConfig,
    report: &mut Report,
) {
    let metrics = Arc::new(Metrics::default());
    let shared = load(node, Arc::clone(&metrics));
    let chain = Chain(NodeClient::new(
        node,
        &shared,
        MemoryPool::new(16 * MAX_ANSWER),
    ));
    let prover = Prover::new(pins, Arc::new(chain), running, None, metrics);
    let proof = prover.prove().await;
    for pin in &proof.pins {
        let status = if pin.ok { Status::Ok } else { Status::Failed };
        let found = Some(pin.actual.clone()).filter(|actual| *actual != pin.expected);
        let finding = Finding::new(Kind::Pin, pin.name, status, pin.expected.clone());
        report.add(finding.with_found(found));
    }
    if !proof.is_ready() && proof.pins.iter().all(|pin| pin.ok) {
        let message = "the chain started again while the pins were read: check again";
        report.add(Finding::failed(Kind::Pin, "epoch", message));
    }
}

/// A client of this URL alone. Which chain it has is checked later.
pub(super) fn client(config: &NodeConfig, url: &NodeUrl) -> NodeClient {
    let config = NodeConfig {
        url: NonEmpty::new(vec![url.clone()]).expect("the list has one URL"),
        chain_id: None,
        ..config.clone()
    };
    let node = load(&config, Arc::default());
    NodeClient::new(&config, &node, MemoryPool::new(MAX_ANSWER))
}

/// The node with its credentials. If they are unusable, each call fails with the cause.
fn load(config: &NodeConfig, metrics: Arc<Metrics>) -> Arc<Node> {
    Node::new(
        config,
        Credentials::load(&config.live, &config.url),
        metrics,
    )
}
