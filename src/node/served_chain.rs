//! The chain that is served: every URL of the node must have it.
//!
//! `node.chain_id` pins the chain, otherwise the first URL that answers does, with its anchor. The
//! chain of a new connection is checked before it carries a request, and `guard` polls each URL
//! once a second: a chain can change behind open connections. A URL of another chain is excluded. A
//! single URL without `node.chain_id` is not checked: its chain is the served one.

use super::chain::BlockIdentity;
use crate::config::NodeConfig;
use parking_lot::Mutex;
use portcullis_filters::felt::Felt;
use serde_json::Value;
use std::sync::atomic::{AtomicU64, Ordering};

/// The identity of a URL's chain; `None` for the parts that the URL does not report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ChainIdentity {
    id: Option<Felt>,
    anchor: Option<BlockIdentity>,
}

impl ChainIdentity {
    /// Reads the results of `starknet_chainId` and of the request for the anchor block.
    pub(super) fn read(id: Option<&Value>, anchor: Option<&Value>) -> Self {
        let id = id.and_then(Value::as_str).and_then(Felt::parse);
        Self {
            id,
            anchor: anchor.and_then(|block| BlockIdentity::read(block).ok()),
        }
    }

    fn id(self) -> String {
        let text = self
            .id
            .map(|id| id.to_short_string().unwrap_or_else(|| id.to_string()));
        text.unwrap_or_else(|| "none".to_owned())
    }
}

/// The last finding about a URL.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum UrlStatus {
    #[default]
    Unknown,
    Serves,
    Excluded,
}

/// The chain that is served, shared by all clients of the node.
#[derive(Debug)]
pub(super) struct ServedChain {
    chain_id: Option<Felt>,
    pub(super) anchor: u64,
    has_several_urls: bool,
    /// Changes when the chain of every connection has to be checked again.
    epoch: AtomicU64,
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    pin: Option<ChainIdentity>,
    urls: Vec<UrlStatus>,
}

impl ServedChain {
    pub(super) fn new(config: &NodeConfig) -> Self {
        Self {
            chain_id: config.chain_id,
            anchor: config.anchor,
            has_several_urls: config.url.len() > 1,
            epoch: AtomicU64::new(0),
            state: Mutex::new(State {
                pin: None,
                urls: vec![UrlStatus::Unknown; config.url.len()],
            }),
        }
    }

    /// Whether a URL could be of another chain.
    pub(super) fn is_checked(&self) -> bool {
        self.has_several_urls || self.chain_id.is_some()
    }

    /// Whether it is known which chain is served.
    pub(super) fn is_pinned(&self) -> bool {
        self.state.lock().pin.is_some()
    }

    /// The epoch; the chain of a connection from an earlier one has to be checked again.
    pub(super) fn epoch(&self) -> u64 {
        self.epoch.load(Ordering::Acquire)
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
        let mut state = self.state.lock();
        let verdict = self.compare(&mut state, index, found);
        let status = if verdict.is_ok() {
            UrlStatus::Serves
        } else {
            UrlStatus::Excluded
        };
        let Some(known) = state.urls.get_mut(index) else {
            return verdict;
        };
        let before = std::mem::replace(known, status);
        match &verdict {
            Ok(()) if before == UrlStatus::Excluded => log::info!(url; "node URL is used again"),
            Err(why) if before != UrlStatus::Excluded => {
                self.epoch.fetch_add(1, Ordering::AcqRel);
                log::error!(url; "node URL is excluded: {why}");
            }
            _ => {}
        }
        verdict
    }

    fn compare(&self, state: &mut State, index: usize, found: ChainIdentity) -> Result<(), String> {
        let State { pin, urls } = state;
        let id = self.chain_id.or(pin.and_then(|pin| pin.id));
        if (pin.is_some() || id.is_some()) && found.id != id {
            let served = ChainIdentity { id, anchor: None };
            return Err(format!(
                "its chain is {}, the served one is {}",
                found.id(),
                served.id()
            ));
        }
        if pin.is_none_or(|pin| pin == found) {
            *pin = Some(found);
            return Ok(());
        }
        // the only URL that served the chain restarted it: as with a single URL, the new chain is
        // served
        let serves = |url: &usize| urls.get(*url) == Some(&UrlStatus::Serves);
        if serves(&index) && (0..urls.len()).filter(serves).count() == 1 {
            *pin = Some(found);
            self.epoch.fetch_add(1, Ordering::AcqRel);
            return Ok(());
        }
        let (anchor, id) = (self.anchor, found.id());
        Err(format!(
            "its chain is {id}, but its block {anchor} differs from the served one's"
        ))
    }
}
