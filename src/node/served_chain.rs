//! The chain that is served, shared by all clients of the node: every URL must have it.
//!
//! [`ServedChain`] decides. The chain of a new connection is checked before it carries a request,
//! and `poller` polls each URL once a second: a chain can change behind open connections. A single
//! URL without `node.chain_id` is not checked: its chain is the served one.

use crate::config::NodeConfig;
use parking_lot::Mutex;
use portcullis_filters::chain::{ChainChange, ChainIdentity, ServedChain};
use std::sync::atomic::{AtomicU64, Ordering};

/// The served chain, and which connections were checked against it.
#[derive(Debug)]
pub(super) struct CheckedChain {
    anchor: u64,
    is_checked: bool,
    /// Bumped when the chain of every connection has to be checked again.
    check: AtomicU64,
    served: Mutex<ServedChain>,
}

impl CheckedChain {
    pub(super) fn new(config: &NodeConfig) -> Self {
        let served = ServedChain::new(config.url.len(), config.chain_id, config.anchor);
        Self {
            anchor: config.anchor,
            is_checked: served.is_checked(),
            check: AtomicU64::new(0),
            served: Mutex::new(served),
        }
    }

    /// Whether a URL could be of another chain.
    pub(super) fn is_checked(&self) -> bool {
        self.is_checked
    }

    /// Whether it is known which chain is served.
    pub(super) fn is_pinned(&self) -> bool {
        self.served.lock().is_pinned()
    }

    /// The number of the block that identifies the chain.
    pub(super) fn anchor(&self) -> u64 {
        self.anchor
    }

    /// The number of the current check; a connection of an earlier one has to be checked again.
    pub(super) fn check(&self) -> u64 {
        self.check.load(Ordering::Acquire)
    }

    /// Compares the chain of the URL at `index` with the served one; logs a change.
    ///
    /// # Errors
    /// Returns in words how the chains differ.
    pub(super) fn judge(
        &self,
        index: usize,
        url: &str,
        found: ChainIdentity,
    ) -> Result<(), String> {
        let mut served = self.served.lock();
        let (verdict, change) = served.judge(index, found);
        if matches!(change, ChainChange::Excluded | ChainChange::Restarted) {
            self.check.fetch_add(1, Ordering::AcqRel);
        }
        match (change, &verdict) {
            (ChainChange::Returned, _) => log::info!(url; "node URL is used again"),
            (ChainChange::Excluded, Err(why)) => log::error!(url; "node URL is excluded: {why}"),
            _ => {}
        }
        verdict
    }
}
