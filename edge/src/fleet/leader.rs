//! One watcher of the chain for all instances: who leads, and the state that the leader published.
//!
//! The store elects by a lease and a fence, in each heartbeat: the first candidate leads
//! until it has published nothing for the length of its lease. It publishes the state of the chain,
//! a text that `gateway` reads. Publications of other instances are dropped, so a leader that was
//! suspended changes nothing. Ages are measured by the store's clock, and continued by the
//! monotonic one here.

use super::leadership::Part;
use super::{Fleet, FleetError};
use portcullis_base::io::monotonic;
use portcullis_filters::chain::schedule::{Published, lease};
use std::time::Duration;
use tokio::time::Instant;

impl Fleet {
    /// Whether the store answers.
    pub fn is_available(&self) -> bool {
        !self.store.is_down()
    }

    /// Whether it is still unknown if the store answers.
    pub fn is_connecting(&self) -> bool {
        self.store.is_down() && self.failure().is_none()
    }

    /// Number of live instances, as last known; at least 1.
    pub fn instances(&self) -> u32 {
        self.store.instances().max(1)
    }

    /// Whether this instance leads by its own clock. The store may have elected another one
    /// already.
    pub fn leads(&self) -> bool {
        self.store.leadership.lead().is_some()
    }

    /// Reads the published state. With `candidate`, the interval of its polls, this instance leads
    /// if no other does. `epoch` is the newest epoch that this instance named.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn follow(
        &self,
        candidate: Option<Duration>,
        epoch: u64,
    ) -> Result<Published, FleetError> {
        let part = candidate.map_or(Part::Member, |interval| Part::Candidate {
            lease: lease(interval),
        });
        self.published(part, epoch).await
    }

    /// Publishes the state that a poll at `polled` showed, if this instance still leads.
    ///
    /// # Errors
    /// The store does not answer.
    pub async fn publish(
        &self,
        state: &str,
        polled: Duration,
        interval: Duration,
        epoch: u64,
    ) -> Result<Published, FleetError> {
        let lease = lease(interval);
        let part = match self.leads() {
            true => Part::Leader {
                lease,
                state,
                polled: monotonic::instant(polled),
            },
            false => Part::Candidate { lease },
        };
        self.published(part, epoch).await
    }

    /// Lets another instance lead.
    pub async fn resign(&self) {
        if self.leads() {
            // without an answer, the lease expires
            let _ended = self.store.heartbeat(Part::Resign, 0).await;
        }
    }

    /// Waits until a leader publishes something new.
    pub async fn pushed(&self) {
        self.store.pushed.notified().await;
    }

    async fn published(&self, part: Part<'_>, epoch: u64) -> Result<Published, FleetError> {
        let (before, sent) = (self.store.leadership.lead(), Instant::now());
        let heard = self.store.heartbeat(part, epoch).await?;
        let age = heard
            .now
            .checked_sub(heard.polled)
            .filter(|_| !heard.state.is_empty());
        // both are rounded down
        let polled = age.and_then(|age| sent.checked_sub(Duration::from_millis(age + 1)));
        let leads = heard.fence != 0;
        Ok(Published {
            leads,
            is_elected: leads && before.is_none_or(|before| before.fence != heard.fence),
            state: polled.map(|polled| (heard.state, monotonic::of(polled))),
            epoch: heard.epoch,
        })
    }
}
