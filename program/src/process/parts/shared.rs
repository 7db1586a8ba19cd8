//! The state that several parts share: the context of the process, the node, the certificates, and
//! the fleet, which shares some of it between instances.

use super::Part;
use super::fleet::join;
use crate::process::peers::PeerCertificates;
use crate::process::start_error::StartError;
use crate::process::systemd::Runtimes;
use portcullis_base::config::{AppliedConfig, Config};
use portcullis_base::io::MemoryPool;
use portcullis_base::telemetry::{
    BySurface, Exporter, LabelValues, Log, Metrics, Surface, Task, Tracer, UNPLACED,
};
use portcullis_edge::fleet::{self, Fleet};
use portcullis_edge::http::RequestIds;
use portcullis_edge::http::certificates::Certificates;
use portcullis_edge::http::context::{Drain, ServerContext, UPLOAD_MEMORY};
use portcullis_edge::http::tls::Identities;
use portcullis_edge::node::{Credentials, Node, NodeClient, NodeError, Poller};
use portcullis_filters::chain::PurgeCause;
use portcullis_store::IntentState;
use std::sync::Arc;

/// The state that several parts share.
pub(crate) struct Shared {
    pub(crate) process: ServerContext,
    pub(crate) exporter: Option<Exporter>,
    pub(crate) in_force: Arc<AppliedConfig>,
    pub(crate) node: Arc<Node>,
    /// The node, over the connections of the gateway.
    pub(crate) client: Arc<NodeClient>,
    /// The memory for the node's answers.
    pub(crate) memory: Arc<MemoryPool>,
    pub(crate) tls: Certificates,
    pub(crate) fleet: Option<Arc<Fleet>>,
    pub(crate) runtimes: Arc<Runtimes>,
    pub(crate) peers: PeerCertificates,
}

impl Shared {
    /// Builds the shared state. Its additions are the export of traces, the polls of the node,
    /// those of the fleet, and the watch of the certificates of servers.
    pub(crate) fn new(
        config: &Config,
        log: Log,
        identities: &Identities,
        node: Credentials,
        fleet: Option<fleet::Credentials>,
    ) -> Result<(Self, Part), StartError> {
        let process = context(config, log);
        let metrics = &process.metrics;
        let tls = Certificates::default();
        let _changed = tls.change(identities);
        let secured = Surface::ALL.into_iter();
        for surface in secured.filter(|surface| tls.is_secured(*surface)) {
            metrics.handshakes.begin(surface);
        }
        let memory = MemoryPool::new(config.server.answer_memory.bytes());
        let node = Node::new(&config.node, Ok(node), Arc::clone(metrics));
        let client = NodeClient::new(&config.node, &node, Arc::clone(&memory));
        let poller = Poller::new(&config.node, &node);
        let poller = if poller.is_needed() {
            Some(Part::task(Task::NodePoller, poller, metrics))
        } else {
            None
        };
        let exporter = process.tracer.clone().map(Exporter::new);
        let trace = exporter
            .clone()
            .map(|exporter| Part::task(Task::Trace, exporter, metrics));
        let (fleet, fleet_part) = join(config, fleet, &tls, metrics)?;
        metrics.reloads.set_active(config.values.hash(), 0);
        let peers = PeerCertificates::new(config, Arc::clone(metrics));
        let peers_part = Part::task(Task::PeerCertificates, peers.clone(), metrics);
        let shared = Self {
            process,
            exporter,
            in_force: Arc::new(AppliedConfig::new(&config.values)),
            node,
            client: Arc::new(client),
            memory,
            tls,
            fleet,
            runtimes: Arc::default(),
            peers,
        };
        Ok((
            shared,
            trace
                .unwrap_or_default()
                .and(poller.unwrap_or_default())
                .and(fleet_part)
                .and(peers_part),
        ))
    }
}

fn context(config: &Config, log: Log) -> ServerContext {
    let mut intent_states = IntentState::ALL.map(IntentState::name).to_vec();
    intent_states.push(UNPLACED);
    let metrics = Arc::new(Metrics::new(&LabelValues {
        revision: crate::REVISION,
        node_errors: &NodeError::ALL.map(NodeError::name),
        cache_causes: &PurgeCause::ALL.map(PurgeCause::name),
        intent_states: &intent_states,
    }));
    log.report_panics_to(&metrics);
    ServerContext {
        request_ids: Arc::new(RequestIds::new()),
        drain: Drain::new(metrics.in_flight.clone()),
        log,
        uploads: MemoryPool::new(UPLOAD_MEMORY),
        waiting: Arc::default(),
        tracer: config
            .trace
            .clone()
            .map(|trace| Tracer::new(trace, schemes(config), Arc::clone(&metrics))),
        metrics,
    }
}

/// The scheme of each surface's listener.
fn schemes(config: &Config) -> BySurface<&'static str> {
    Surface::ALL.map(|surface| {
        let tls = match surface {
            Surface::Gateway => config.gateway.as_ref().and_then(|it| it.live.tls.as_ref()),
            Surface::Relay => config.relay.as_ref().and_then(|it| it.live.tls.as_ref()),
            Surface::Sidecar => config.sidecar.as_ref().and_then(|it| it.live.tls.as_ref()),
            Surface::Admin => config.admin.as_ref().and_then(|it| it.live.tls.as_ref()),
            Surface::Acme => None,
        };
        if tls.is_some() { "https" } else { "http" }
    })
}
