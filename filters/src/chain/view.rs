//! The view by which answers are cached: how far the chain is, and whether it is observed.
//!
//! A poll of the watch renews it. An answer is cached under the view from before its request, with
//! the [`Validity`] that the view gives it, so an answer from before a rollback never hits, however
//! late it is inserted.

use super::continuity::Step;
use crate::position::ChainPosition;
use crate::rpc::CachePolicy;
use core::time::Duration;

/// How long the chain's id and the API's version are cached. They do not change while a node runs,
/// but a node may be replaced.
const BRIEFLY: Duration = Duration::from_secs(10);

/// The observed chain at one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct View {
    /// Bumped whenever continuity cannot be proved: answers of an earlier generation do not count.
    pub generation: u64,
    /// Whether the chain is observed; otherwise the cache is bypassed.
    pub in_use: bool,
    /// When `in_use` ends, unless it is renewed; `None` if the next poll decides.
    until: Option<Duration>,
    /// The chain's position, if known.
    position: Option<ChainPosition>,
    /// The newest block whose answers may be cached.
    pub settled: Option<u64>,
    /// Changes whenever blocks are accepted on L1; `None` if that is unknown.
    pub l1: Option<u64>,
}

/// How long a cached answer is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    generation: u64,
    /// The state of L1 that the answer depends on, if any.
    l1: Option<u64>,
    until: Option<Duration>,
}

impl View {
    /// The view as it is at `now`.
    #[must_use]
    pub fn at(self, now: Duration) -> Self {
        let is_renewed = self.until.is_none_or(|until| now < until);
        Self {
            in_use: self.in_use && is_renewed,
            ..self
        }
    }

    /// The chain's position, if the chain is observed.
    pub fn position(&self) -> Option<ChainPosition> {
        if self.in_use { self.position } else { None }
    }

    /// Whether the chain is known to be at this position, or later.
    pub fn reaches(&self, position: ChainPosition) -> bool {
        self.position().is_some_and(|own| own >= position)
    }

    /// The view after a poll, which is valid until the next poll, or until `until`.
    #[must_use]
    pub fn after(step: &Step, until: Option<Duration>) -> Self {
        let chain = step.chain;
        Self {
            generation: step.generation,
            in_use: chain.is_some(),
            until,
            position: chain.and_then(|chain| chain.position),
            settled: chain.and_then(|chain| chain.settled),
            l1: chain.and_then(|chain| chain.l1),
        }
    }

    /// The view until the next poll, if nothing that was cached may count any longer.
    #[must_use]
    pub fn suspended(self) -> Self {
        Self {
            generation: self.generation.saturating_add(1),
            ..Self::default()
        }
    }

    /// The view until the next poll, if what was cached may count again then.
    #[must_use]
    pub fn paused(self) -> Self {
        Self {
            in_use: false,
            ..self
        }
    }

    /// How long an answer that was requested under this view is valid; `generation` is the current
    /// one.
    ///
    /// # Errors
    /// Returns why it may not be cached, for the log.
    pub fn validity(
        &self,
        policy: CachePolicy,
        generation: u64,
        now: Duration,
    ) -> Result<Validity, &'static str> {
        let lasting = Validity {
            generation: self.generation,
            l1: None,
            until: None,
        };
        let validity = match policy {
            CachePolicy::Briefly => Validity {
                until: Some(now.saturating_add(BRIEFLY)),
                ..lasting
            },
            CachePolicy::WithBlock(_) => lasting,
            CachePolicy::UntilL1(_) if self.l1.is_none() => {
                return Err("the head of L1 is unknown");
            }
            CachePolicy::UntilL1(_) => Validity {
                l1: self.l1,
                ..lasting
            },
        };
        let is_settled = match policy {
            CachePolicy::Briefly => true,
            CachePolicy::WithBlock(block) | CachePolicy::UntilL1(block) => {
                self.settled >= Some(block)
            }
        };
        if !is_settled || !self.in_use || self.generation != generation {
            return Err("its block is not settled in this epoch");
        }
        Ok(validity)
    }

    /// Whether an answer of this validity counts at `now`.
    pub fn holds(&self, validity: Validity, now: Duration) -> bool {
        self.in_use
            && validity.generation == self.generation
            && (validity.l1.is_none() || validity.l1 == self.l1)
            && validity.until.is_none_or(|until| now < until)
    }
}
