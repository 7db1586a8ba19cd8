//! The sidecar: the service endpoints, and the pings to the hub of podcasts.

use super::endpoint::serve;
use super::shared::Shared;
use super::store::Storage;
use super::{Built, Part};
use crate::process::inherited::Inherited;
use portcullis_base::config::{Config, ConnectionsConfig};
use portcullis_base::telemetry::Task;
use portcullis_edge::sidecar::{HubPings, Settings, Sidecar};
use std::sync::Arc;

/// Serves the endpoints and pings the hub, if there is a `[sidecar]` and a store.
pub(crate) fn build(
    config: &Config,
    settings: Option<Settings>,
    storage: Option<&Storage>,
    shared: &Shared,
    inherited: &mut Inherited,
) -> Built<Sidecar> {
    let own = config.sidecar.as_ref().zip(settings);
    let Some(((config, settings), storage)) = own.zip(storage) else {
        return Ok((None, Part::default()));
    };
    let Storage { store, runtime } = storage.clone();
    let metrics = Arc::clone(&shared.process.metrics);
    let sidecar = Arc::new(Sidecar::new(config, settings, store, metrics, runtime));
    let (own, limits) = (Arc::clone(&sidecar), ConnectionsConfig::PUBLIC);
    let listener = serve(
        own,
        &config.listen,
        limits,
        &config.clients,
        shared,
        inherited,
    )?;
    let pings = HubPings::new(Arc::clone(&sidecar));
    let pings = Part::task(Task::HubPings, pings, &shared.process.metrics);
    Ok((Some(sidecar), listener.and(pings)))
}
