//! The operator's listener, which shows all other parts, and the history of its plots.

use super::endpoint::Endpoint;
use super::shared::Shared;
use super::store::Storage;
use super::{Built, Part};
use crate::admin::{self, Access, Admin, History, Listener, Operator, Seen};
use crate::process::inherited::Inherited;
use crate::process::start_error::StartError;
use portcullis_base::config::{Config, ConnectionsConfig};
use portcullis_base::telemetry::{Surface, Task};
use portcullis_edge::http::NoTrust;
use portcullis_edge::proxy::Surfaces;
use portcullis_filters::bearer::Tokens;
use std::sync::Arc;
use std::time::SystemTime;

/// Builds the operator's listener, which shows these surfaces, if there is an `[admin]`.
pub(crate) fn build(
    config: &Config,
    tokens: Option<Option<Tokens>>,
    surfaces: &Surfaces,
    listeners: &[Listener],
    storage: Option<&Storage>,
    shared: &Shared,
    inherited: &mut Inherited,
) -> Built<Access> {
    let Some((config, tokens)) = config.admin.as_ref().zip(tokens) else {
        return Ok((None, Part::default()));
    };
    let limits = ConnectionsConfig::OPERATOR;
    let endpoint = Endpoint::bind(Surface::Admin, &config.listen, limits, inherited)?;
    let listen = endpoint.listener.listen.clone();
    if tokens.is_none() && !listen.is_local() {
        return Err(StartError::Open(listen));
    }
    let access = Arc::new(Access::new(listen, tokens));
    let journal = storage
        .filter(|_| surfaces.relay.is_some())
        .map(Storage::journal);
    let app = Arc::new(Operator::new(Admin {
        process: shared.process.clone(),
        started: SystemTime::now(),
        surfaces: surfaces.clone(),
        listeners: listeners
            .iter()
            .chain([&endpoint.listener])
            .cloned()
            .collect(),
        node: shared.client.status(),
        memory: Arc::clone(&shared.memory),
        journal,
        in_force: Arc::clone(&shared.in_force),
        access: Arc::clone(&access),
        history: History::default(),
        seen: Seen::default(),
        ready_needs_node: config.ready_needs_node,
        is_in_fleet: shared.fleet.is_some(),
    }));
    let history = Part::task(Task::History, app.sampler(), &shared.process.metrics);
    let errors = Arc::new(admin::errors(shared.process.clone()));
    let gate = endpoint
        .gate(app, Arc::new(NoTrust), errors, shared)
        .secured_by(shared.tls.clone());
    Ok((
        Some(access),
        history.and(endpoint.accept(gate, Some(1), shared)?),
    ))
}
