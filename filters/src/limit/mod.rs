//! How many requests a client may make: an exact sliding window of one minute.
//!
//! In: a [`ClientKey`] and the time. Out: a [`Standing`]. Every admitted request occupies its place
//! for exactly [`WINDOW`]; a refused one occupies none. So no 60 s hold more admissions than the
//! quota, and nobody is refused below it. Exact doesn't mean large: times are kept as differences
//! in a few bits each (`window`), and clients in a map of fixed size (`recent`), which forgets the
//! one it hasn't seen for the longest. 100,000 clients with 180 requests each take under 32 MiB.
//!
//! It never reads a clock and never makes a hash key: both are arguments. Threads use
//! [`SharedLimiter`]; one thread can use [`Limiter`].

mod blocks;
mod busiest;
mod chunks;
mod code;
mod recent;
mod shared;
#[cfg(test)]
mod tests;
mod window;

use core::hash::BuildHasher;
use core::num::NonZeroU32;

pub use self::busiest::Busy;
pub use self::shared::SharedLimiter;

use self::blocks::Blocks;
use self::code::Code;
use self::recent::Recent;
use self::window::{Times, Window};
use crate::client::ClientKey;

/// How long an admitted request counts.
pub const WINDOW: core::time::Duration = core::time::Duration::from_millis(WINDOW_MILLIS);

const WINDOW_MILLIS: u64 = 60_000;

/// The whole seconds of [`WINDOW`], for headers.
pub const WINDOW_SECONDS: u32 = 60;

/// Milliseconds since the process began, on a clock that doesn't go backwards.
///
/// Where threads race with their times to a client, one that comes too late counts as the time of
/// the client's latest admission.
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
    /// The largest quota; it is as good as none.
    pub const MAX: u32 = 1_000_000_000;

    /// A quota of 1 to [`Quota::MAX`] requests; `None` for any other number.
    #[must_use]
    pub fn per_minute(requests: u32) -> Option<Self> {
        (1..=Self::MAX).contains(&requests).then_some(Self(requests))
    }

    /// The number of requests.
    #[must_use]
    pub const fn requests(self) -> u32 {
        self.0
    }
}

/// Where a client stands with its quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Whether this request passes.
    pub admitted: bool,
    /// How many more requests would pass now.
    pub remaining: u32,
    /// Whole seconds, rounded up and at least 1, until the oldest counted request leaves the
    /// window; [`WINDOW_SECONDS`] if none is counted. For a refused request: when to try again.
    pub reset_seconds: u32,
}

/// The limiter for one thread.
#[derive(Debug)]
pub struct Limiter<S> {
    recent: Recent<S>,
    blocks: Blocks,
    quota: Quota,
    code: Code,
    capacity: u32,
    evicted: u64,
}

impl<S: BuildHasher> Limiter<S> {
    /// A limiter that remembers at most `capacity` clients.
    ///
    /// Clients choose their keys, so the hasher should be keyed with chance.
    #[must_use]
    pub fn new(quota: Quota, capacity: NonZeroU32, hasher: S) -> Self {
        Self {
            recent: Recent::new(hasher),
            blocks: Blocks::new(),
            quota,
            code: Code::for_quota(quota),
            capacity: capacity.get(),
            evicted: 0,
        }
    }

    /// Judges a request, counts it if it passes, and notes that the client was seen.
    pub fn check(&mut self, client: ClientKey, now: Millis) -> Standing {
        let room = self.len() < self.capacity;
        self.check_hashed(self.recent.hash(client), client, now, || room)
    }

    /// Tells what [`Limiter::check`] would, but counts nothing and notes nothing.
    #[must_use]
    pub fn peek(&self, client: ClientKey, now: Millis) -> Standing {
        self.peek_hashed(self.recent.hash(client), client, now)
    }

    /// Changes the quota. What is known of the clients stays known.
    pub fn set_quota(&mut self, quota: Quota) {
        let code = Code::for_quota(quota);
        for window in self.recent.windows_mut() {
            window.recode(self.code, code, quota, &mut self.blocks);
        }
        (self.quota, self.code) = (quota, code);
    }

    /// How many clients are remembered.
    #[must_use]
    pub fn len(&self) -> u32 {
        self.recent.len()
    }

    /// Whether no client is remembered.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many clients were forgotten to make room for others.
    #[must_use]
    pub fn evicted(&self) -> u64 {
        self.evicted
    }

    /// The bytes in use, without the allocator's own.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>().saturating_add(self.heap_bytes())
    }

    fn heap_bytes(&self) -> usize {
        self.recent.heap_bytes().saturating_add(self.blocks.heap_bytes())
    }

    /// `room` is asked only for a client that isn't known; the least recently seen one goes if
    /// there is none.
    fn check_hashed(
        &mut self,
        hash: u64,
        client: ClientKey,
        now: Millis,
        room: impl FnOnce() -> bool,
    ) -> Standing {
        let Some(window) = self.recent.see(hash, client) else {
            let window = Window::starting_at(now);
            let times = window.times();
            if room() {
                self.recent.insert(hash, client, window);
            } else if let Some(forgotten) = self.recent.replace_oldest(hash, client, window) {
                forgotten.release(&mut self.blocks);
                self.evicted = self.evicted.saturating_add(1);
            }
            return Standing { admitted: true, ..self.standing(Some(times), now) };
        };
        let now = now.max(window.times().newest());
        match window.counted(now, self.code, &self.blocks) {
            Some(times) if times.count() >= self.quota.0 => return self.standing(Some(times), now),
            Some(times) => window.admit(times, now, self.code, &mut self.blocks),
            None => {
                core::mem::replace(window, Window::starting_at(now)).release(&mut self.blocks);
            }
        }
        let times = window.times();
        Standing { admitted: true, ..self.standing(Some(times), now) }
    }

    fn peek_hashed(&self, hash: u64, client: ClientKey, now: Millis) -> Standing {
        let Some(window) = self.recent.get(hash, client) else {
            return self.standing(None, now);
        };
        let now = now.max(window.times().newest());
        self.standing(window.counted(now, self.code, &self.blocks), now)
    }

    /// How the next request would stand.
    fn standing(&self, counted: Option<Times>, now: Millis) -> Standing {
        let remaining = self.quota.0.saturating_sub(counted.map_or(0, Times::count));
        let age = counted.map_or(0, |times| now.since(times.oldest()));
        let seconds = WINDOW_MILLIS.saturating_sub(age).div_ceil(1000);
        let reset_seconds = u32::try_from(seconds).unwrap_or(WINDOW_SECONDS).max(1);
        Standing { admitted: remaining > 0, remaining, reset_seconds }
    }
}
