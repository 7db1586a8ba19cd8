//! The state that several instances share: exact limits of their clients, one watch of the chain,
//! and the certificates that one instance orders for all.
//!
//! An instance leases a part of a client's quota from Valkey or Redis, by one atomic script
//! (`lease.lua`), and admits requests by its lease: one message per dozen requests. A lease ends by
//! the store's clock there and a monotonic one here, so no two clocks are compared. The store sees
//! clients only as keyed digests. Without the store, each instance admits its part.
//!
//! Reading order: `limit` (a surface's limit; one client's lease is in the filters), `store` (which
//! sends `messages`), `servers` (of a cluster, by `slots`), `connect`, `heartbeat` (after an
//! outage), `leader` and `leadership` (who watches the chain), `values` (sealed values), `tickets`.

#[cfg(test)]
mod conformance;
mod connect;
mod heartbeat;
mod leader;
mod leadership;
mod limit;
mod messages;
#[cfg(test)]
#[path = "../../../filters/tests/simulation/leases/script.rs"]
mod script;
mod servers;
mod slots;
mod store;
#[cfg(test)]
mod tests;
mod tickets;
#[cfg(test)]
#[path = "../../../filters/tests/simulation/toolkit.rs"]
pub(crate) mod toolkit;
mod values;

pub use connect::{Credentials, CredentialsError, FleetError};
pub use heartbeat::Heartbeat;
pub use limit::{ClientWindows, Decision, SharedLimit};
pub use messages::Counted;
pub use store::ping;
pub use tickets::TicketKeys;

use parking_lot::Mutex;
use portcullis_base::config::{FleetConfig, WhenDown};
use portcullis_base::telemetry::{Metrics, Surface};
use portcullis_filters::limit::lease::Terms;
use std::sync::Arc;
use store::Store;
use tokio::time::Instant;

/// The state that instances of one name share.
pub struct Fleet {
    store: Store,
    terms: Terms,
    when_down: WhenDown,
    floor: u32,
    limits: Mutex<Vec<Arc<SharedLimit>>>,
    metrics: Arc<Metrics>,
}

impl Fleet {
    /// Creates the fleet. Does not connect yet: [`Heartbeat`] does.
    ///
    /// # Errors
    /// The URL or the certificates are invalid, or the kernel returned no random bytes.
    pub fn new(
        config: &FleetConfig,
        credentials: Credentials,
        metrics: Arc<Metrics>,
    ) -> Result<Arc<Self>, FleetError> {
        Ok(Arc::new(Self {
            store: Store::new(config, credentials, Arc::clone(&metrics))?,
            terms: Terms::of_a_minute(config.lease),
            when_down: config.when_down,
            floor: config.floor_per_minute,
            limits: Mutex::default(),
            metrics,
        }))
    }

    /// Reads the files again and uses them from now on. An open connection to the store keeps its
    /// password.
    ///
    /// # Errors
    /// Returns every file that is unusable: none is used then.
    pub fn renew(&self) -> Result<(), Vec<CredentialsError>> {
        self.store.renew()
    }

    /// Creates the shared limit of a surface's clients. `clients` counts the admissions of this
    /// instance, by the time since `started`.
    pub fn limit(
        self: &Arc<Self>,
        surface: Surface,
        counted: Counted,
        clients: Arc<ClientWindows>,
        started: Instant,
    ) -> Arc<SharedLimit> {
        let limit = SharedLimit::new(Arc::clone(self), surface, counted, clients, started);
        let limit = Arc::new(limit);
        self.limits.lock().push(Arc::clone(&limit));
        limit
    }

    /// Why the store is unavailable, if it is.
    pub fn failure(&self) -> Option<String> {
        self.store.failure()
    }

    /// Whether requests fail while the store is unavailable.
    pub fn refuses_without_store(&self) -> bool {
        self.when_down == WhenDown::Refuse
    }

    /// A client's part of a quota, while the store is unavailable.
    fn part_of(&self, quota: u32, counted: Counted) -> u32 {
        match self.when_down {
            // before the first answer, the number of instances is unknown
            WhenDown::Share => {
                let part = quota.checked_div(self.store.instances()).unwrap_or(0);
                let floor = match counted {
                    Counted::Requests => self.floor,
                    Counted::FailedTokens => 1,
                };
                part.max(floor).min(quota)
            }
            WhenDown::Local | WhenDown::Refuse => quota,
        }
    }
}
