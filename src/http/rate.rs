//! The rate limit of one request: by this instance's window, and by the fleet's limit if there is
//! one.
//!
//! A policy uses it like any limiter, and may not wait. So a request that needs an answer of the
//! fleet's store is admitted for the moment, and is counted or refused by `Clients::settle` before
//! anything else happens. Without `[fleet]` nothing is ever unsettled.

use super::clients::{ClientLimits, Clients};
use crate::fleet::{Decision, SharedLimit};
use crate::io::cold;
use portcullis_filters::client::ClientKey;
use portcullis_filters::limit::{Limiter, Millis, RateLimitStatus, WINDOW_SECONDS};
use portcullis_filters::verdict::{Reason, Refusal};
use std::cell::Cell;
use std::sync::Arc;
use tokio::time::Instant;

/// The limiter of one request.
pub struct RequestLimiter<'a> {
    clients: &'a Clients,
    quota: u32,
    now: Instant,
    unsettled: Cell<Option<Unsettled>>,
}

/// What is open after the policy has admitted a request.
#[derive(Clone, Copy, Debug)]
pub enum Unsettled {
    /// The fleet's store decides about this client.
    Waits(ClientKey),
    /// The store is unavailable, and nothing is admitted without it.
    Unavailable,
}

impl<'a> RequestLimiter<'a> {
    /// The limiter of a request that arrived at `now`.
    pub(crate) fn new(clients: &'a Clients, limits: &ClientLimits, now: Instant) -> Self {
        Self { clients, quota: limits.per_minute(), now, unsettled: Cell::new(None) }
    }

    /// When the request arrived.
    pub fn now(&self) -> Millis {
        self.clients.millis(self.now)
    }

    /// What is open, if anything is.
    pub(crate) fn unsettled(&self) -> Option<Unsettled> {
        self.unsettled.get()
    }

    #[cold]
    fn check_shared(&self, shared: &Arc<SharedLimit>, client: ClientKey) -> RateLimitStatus {
        let own = self.clients.limiter().peek(client, self.now());
        if !own.admitted {
            return own;
        }
        let unsettled = match shared.decide_now(client, self.quota) {
            None => Unsettled::Waits(client),
            Some(Decision::Unavailable) => Unsettled::Unavailable,
            Some(decision) => {
                return self.clients.apply(shared, decision, client, self.quota, self.now());
            }
        };
        self.unsettled.set(Some(unsettled));
        own
    }
}

impl Limiter for RequestLimiter<'_> {
    fn check(&self, client: ClientKey, now: Millis) -> RateLimitStatus {
        match self.clients.shared() {
            None => self.clients.limiter().check(client, now),
            Some(shared) => self.check_shared(shared, client),
        }
    }

    fn peek(&self, client: ClientKey, now: Millis) -> RateLimitStatus {
        self.clients.limited(client, self.clients.limiter().peek(client, now))
    }
}

impl Clients {
    /// Waits for the fleet's store, at most 25 ms, and counts the request if it passes.
    ///
    /// # Errors
    /// The store is unavailable, and nothing is admitted without it.
    pub(crate) async fn settle(
        &self,
        unsettled: Unsettled,
        limits: &ClientLimits,
    ) -> Result<Option<RateLimitStatus>, Refusal> {
        let quota = limits.per_minute();
        if let (Unsettled::Waits(client), Some(shared)) = (unsettled, self.shared()) {
            let decision = cold(shared.decide(client, quota)).await;
            if decision != Decision::Unavailable {
                let now = self.millis(Instant::now());
                return Ok(Some(self.apply(shared, decision, client, quota, now)));
            }
        }
        let message = "limits are shared, and their store does not answer: try again";
        Err(Refusal::new(Reason::FleetUnavailable, message))
    }

    /// Counts the request in this instance's window if the decision admits it.
    fn apply(
        &self,
        shared: &SharedLimit,
        decision: Decision,
        client: ClientKey,
        quota: u32,
        now: Millis,
    ) -> RateLimitStatus {
        let admit = |remaining: u32| {
            let own = self.limiter().check(client, now);
            RateLimitStatus { admitted: true, remaining: own.remaining.min(remaining), ..own }
        };
        match decision {
            Decision::Admitted(remaining) => admit(remaining),
            Decision::Refused(retry) => {
                let seconds = u32::try_from(retry.as_millis().div_ceil(1000));
                let reset_seconds = seconds.unwrap_or(WINDOW_SECONDS).clamp(1, WINDOW_SECONDS);
                RateLimitStatus { admitted: false, remaining: 0, reset_seconds }
            }
            Decision::Alone(most) => {
                let own = self.limiter().peek(client, now);
                let admitted = quota.saturating_sub(own.remaining);
                let Some(remaining) = most.checked_sub(admitted + 1) else {
                    return RateLimitStatus { admitted: false, remaining: 0, ..own };
                };
                shared.admitted_alone(client);
                admit(remaining)
            }
            Decision::Unavailable => self.limiter().peek(client, now),
        }
    }

    /// A status of this instance's window, with what is left of the fleet's limit.
    pub(super) fn limited(&self, client: ClientKey, own: RateLimitStatus) -> RateLimitStatus {
        let Some(left) = self.shared().and_then(|shared| shared.remaining(client)) else {
            return own;
        };
        let remaining = own.remaining.min(left);
        RateLimitStatus { admitted: remaining > 0, remaining, ..own }
    }
}
