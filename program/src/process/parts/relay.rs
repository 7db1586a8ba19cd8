//! The relay: the protected write path.

use super::endpoint::serve;
use super::shared::Shared;
use super::store::Storage;
use super::{Built, Part};
use crate::process::inherited::Inherited;
use portcullis_base::config::{Config, ConnectionsConfig};
use portcullis_base::telemetry::Task;
use portcullis_edge::node::NodeClient;
use portcullis_edge::node::chain::Chain;
use portcullis_edge::relay::settings::{Keys, LiveSecrets};
use portcullis_edge::relay::{Parts, Relay};
use std::sync::Arc;

/// Serves writes, settles open intents and sends events, if there are secrets and keys for it, and
/// a store.
pub(crate) fn build(
    config: &Config,
    secrets: Option<LiveSecrets>,
    keys: Option<Keys>,
    storage: Option<&Storage>,
    shared: &Shared,
    inherited: &mut Inherited,
) -> Built<Relay> {
    let (Some(own), Some(secrets), Some(keys), Some(storage)) =
        (&config.relay, secrets, keys, storage)
    else {
        return Ok((None, Part::default()));
    };
    let Storage { store, runtime } = storage.clone();
    // its own connections, so that writes do not queue behind reads
    let chain = Chain(NodeClient::new(
        &config.node,
        &shared.node,
        Arc::clone(&shared.memory),
    ));
    let metrics = Arc::clone(&shared.process.metrics);
    let relay = Relay::new(
        own,
        Parts {
            secrets,
            keys,
            chain,
            store,
            metrics,
            runtime,
        },
    );
    let listener = serve(
        Arc::clone(&relay),
        &own.listen,
        ConnectionsConfig::BACKEND,
        &own.clients,
        shared,
        inherited,
    )?;
    let reconciliation = relay.reconciliation();
    let metrics = &shared.process.metrics;
    let reconciliation = Part::task(Task::Reconciliation, reconciliation, metrics);
    let events = Part::task(Task::Events, relay.event_sender(), metrics);
    Ok((Some(relay), listener.and(reconciliation).and(events)))
}
