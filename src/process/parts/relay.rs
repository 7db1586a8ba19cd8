//! The relay: the protected write path.

use super::endpoint::serve;
use super::shared::Shared;
use super::store::Storage;
use super::{Built, Part};
use crate::config::{Config, ConnectionsConfig};
use crate::node::NodeClient;
use crate::node::chain::Chain;
use crate::process::inherited::Inherited;
use crate::relay::settings::Keys;
use crate::relay::{Parts, Relay};
use crate::telemetry::Task;
use portcullis_filters::bearer::Tokens;
use std::sync::Arc;

/// Serves writes and settles open intents, if there are tokens and keys for it, and a store.
pub(crate) fn build(
    config: &Config,
    tokens: Option<Tokens>,
    keys: Option<Keys>,
    storage: Option<&Storage>,
    shared: &Shared,
    inherited: &mut Inherited,
) -> Built<Relay> {
    let (Some(own), Some(tokens), Some(keys), Some(storage)) =
        (&config.relay, tokens, keys, storage)
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
            tokens,
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
    Ok((Some(relay), listener.and(reconciliation)))
}
