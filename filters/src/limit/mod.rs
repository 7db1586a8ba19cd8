//! The rate limit: an exact sliding window of one minute for each client.
//!
//! In: a [`ClientKey`] and the time. Out: a [`RateLimitStatus`]. An admitted request counts for
//! exactly [`WINDOW`], a refused one does not count. So no 60 s hold more admissions than the
//! quota, and no request within it is refused. An admission takes two bytes (`limiter`); a full
//! table evicts the least recently seen client. 100,000 clients with 180 requests each take under
//! 48 MiB.
//!
//! It never reads a clock and never makes a hash key: both are arguments. Reading order: `limiter`,
//! `recent`, `window`, `busiest`, `lease`.

mod busiest;
pub mod lease;
mod limiter;
mod recent;
#[cfg(test)]
mod tests;
mod window;

use crate::client::ClientKey;
use core::convert::Infallible;
use core::hash::BuildHasher;

pub use self::busiest::Busy;
pub use self::limiter::RateLimiter;

/// How long an admitted request counts.
pub const WINDOW: core::time::Duration = core::time::Duration::from_millis(WINDOW_MILLIS);

const WINDOW_MILLIS: u64 = 60_000;

/// The whole seconds of [`WINDOW`], for headers.
pub const WINDOW_SECONDS: u32 = 60;

/// Judges a client's rate by one [`RateLimiter`], or by several. A policy never waits for it.
pub trait Limiter {
    /// Settles a check that is pending.
    type Ticket;

    /// Judges a request at `now` and counts it if it passes.
    fn check(&self, client: ClientKey, now: Millis) -> RateCheck<Self::Ticket>;

    /// The client's status, as far as it is known without waiting; changes nothing.
    fn peek(&self, client: ClientKey, now: Millis) -> RateLimitStatus;
}

impl<S: BuildHasher, T> Limiter for RateLimiter<S, T> {
    type Ticket = Infallible;

    fn check(&self, client: ClientKey, now: Millis) -> RateCheck<Infallible> {
        RateCheck::Decided(self.check(client, now))
    }

    fn peek(&self, client: ClientKey, now: Millis) -> RateLimitStatus {
        self.peek(client, now)
    }
}

/// The result of checking a request against a limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RateCheck<T> {
    /// The client's status after the request.
    Decided(RateLimitStatus),
    /// The ticket for a decision that takes time; the request passes until it is settled.
    Pending(T),
}

impl<T> RateCheck<T> {
    /// Judges the status; passes while it is pending.
    pub(crate) fn judge<E>(
        &self,
        limit: impl FnOnce(RateLimitStatus) -> Result<(), E>,
    ) -> Result<(), E> {
        match self {
            Self::Decided(status) => limit(*status),
            Self::Pending(_) => Ok(()),
        }
    }
}

/// Milliseconds since the process began, on a monotonic clock.
///
/// Where threads race, a time before the client's latest admission counts as the time of that
/// admission.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Millis(pub u64);

impl Millis {
    fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// How many requests of one client are admitted in any [`WINDOW`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota(u32);

impl Quota {
    /// The largest quota; no client reaches it.
    pub const MAX: u32 = 1_000_000_000;

    /// Refuses no request, so that all in the window are counted.
    pub(crate) const UNLIMITED: Self = Self(Self::MAX);

    /// A quota of 1 to [`Quota::MAX`] requests; `None` for any other number.
    #[must_use]
    pub const fn per_minute(requests: u32) -> Option<Self> {
        if 1 <= requests && requests <= Self::MAX {
            Some(Self(requests))
        } else {
            None
        }
    }

    /// The number of requests.
    #[must_use]
    pub const fn requests(self) -> u32 {
        self.0
    }
}

/// A client's rate limit after a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RateLimitStatus {
    /// Whether this request passes.
    pub admitted: bool,
    /// How many more requests would pass now.
    pub remaining: u32,
    /// Whole seconds, rounded up and at least 1, until the oldest counted request leaves the
    /// window; [`WINDOW_SECONDS`] if none is counted. For a refused request: when to try again.
    pub reset_seconds: u32,
}
