//! The gateway: the public read path, and the watch of the chain for its cache.

use super::endpoint::serve;
use super::shared::Shared;
use super::{Built, Part};
use crate::process::inherited::Inherited;
use portcullis_base::config::Config;
use portcullis_base::telemetry::Task;
use portcullis_edge::gateway::Gateway;
use std::sync::Arc;

/// Builds the gateway, if it is configured.
pub(crate) fn build(config: &Config, shared: &Shared, inherited: &mut Inherited) -> Built<Gateway> {
    let Some(own) = &config.gateway else {
        return Ok((None, Part::default()));
    };
    let (node, memory) = (Arc::clone(&shared.client), Arc::clone(&shared.memory));
    let gateway = Arc::new(Gateway::new(own, node, memory));
    let limits = own.connections.clone();
    let listener = serve(
        Arc::clone(&gateway),
        &own.listen,
        limits,
        &own.clients,
        shared,
        inherited,
    )?;
    let metrics = &shared.process.metrics;
    let watcher = gateway.watcher(own, &config.node, Arc::clone(metrics), shared.fleet.clone());
    Ok((
        Some(gateway),
        listener.and(Part::task(Task::CacheWatch, watcher, metrics)),
    ))
}
