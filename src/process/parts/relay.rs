//! The relay: the protected write path.

use super::endpoint::serve;
use super::shared::Shared;
use super::store::Storage;
use super::{Built, Part};
use crate::config::{ConnectionsConfig, NodeConfig};
use crate::node::NodeClient;
use crate::node::chain::Chain;
use crate::process::inherited::Inherited;
use crate::relay::settings::{Keys, Settings};
use crate::relay::{Parts, Relay};
use crate::telemetry::Task;
use std::sync::Arc;

/// Serves writes and settles open intents, if there are settings and keys for it, and a store.
pub(crate) fn build(
    config: &NodeConfig,
    settings: Option<Settings>,
    keys: Option<Keys>,
    storage: Option<&Storage>,
    shared: &Shared,
    inherited: &mut Inherited,
) -> Built<Relay> {
    let Some(((settings, keys), storage)) = settings.zip(keys).zip(storage) else {
        return Ok((None, Part::default()));
    };
    let Storage { store, runtime } = storage.clone();
    // its own connections, so that writes do not queue behind reads
    let chain = Chain(NodeClient::new(
        config,
        &shared.node,
        Arc::clone(&shared.memory),
    ));
    let metrics = Arc::clone(&shared.process.metrics);
    let config = &settings.config.clone();
    let relay = Relay::new(
        config,
        Parts {
            settings,
            keys,
            chain,
            store,
            metrics,
            runtime,
        },
    );
    let (own, limits) = (Arc::clone(&relay), ConnectionsConfig::BACKEND);
    let listener = serve(
        own,
        &config.listen,
        limits,
        &config.clients,
        shared,
        inherited,
    )?;
    let reconciliation = relay.reconciliation();
    let metrics = &shared.process.metrics;
    let reconciliation = Part::task(Task::Reconciliation, reconciliation, metrics);
    Ok((Some(relay), listener.and(reconciliation)))
}
