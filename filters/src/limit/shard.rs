//! A part of the clients, for one thread at a time: where a request is judged.
//!
//! In: a client, its hash and the time. Out: its [`RateLimitStatus`]. The owner decides whether a
//! new client has room; without room it evicts the least recently seen one.

use super::recent::Recent;
use super::window::{Counted, Window};
use super::{Millis, Quota, RateLimitStatus, WINDOW_MILLIS, WINDOW_SECONDS};
use crate::client::ClientKey;

#[derive(Debug)]
pub(super) struct Shard {
    recent: Recent,
    quota: Quota,
    evicted: u64,
}

impl Shard {
    pub(super) const fn new(quota: Quota) -> Self {
        Self { recent: Recent::new(), quota, evicted: 0 }
    }

    pub(super) fn recent(&self) -> &Recent {
        &self.recent
    }

    pub(super) fn evicted(&self) -> u64 {
        self.evicted
    }

    pub(super) fn set_quota(&mut self, quota: Quota) {
        self.recent.windows_mut().for_each(|window| window.trim(quota));
        self.quota = quota;
    }

    /// Judges a request and counts it if it passes. `take_place` is called for a new client only.
    pub(super) fn check(
        &mut self,
        hash: u64,
        client: ClientKey,
        now: Millis,
        take_place: impl FnOnce() -> bool,
    ) -> RateLimitStatus {
        let Some(window) = self.recent.see(hash, client) else {
            let window = Window::starting_at(now);
            let status = self.status(window.counted(now), now);
            if take_place() {
                self.recent.insert(hash, client, window);
            } else if self.recent.replace_oldest(hash, client, window) {
                self.evicted = self.evicted.saturating_add(1);
            }
            return RateLimitStatus { admitted: true, ..status };
        };
        let now = now.max(window.newest());
        let admitted = window.admit(now, self.quota);
        let counted = window.counted(now);
        RateLimitStatus { admitted, ..self.status(counted, now) }
    }

    pub(super) fn peek(&self, hash: u64, client: ClientKey, now: Millis) -> RateLimitStatus {
        let Some(window) = self.recent.get(hash, client) else { return self.status(None, now) };
        let now = now.max(window.newest());
        self.status(window.counted(now), now)
    }

    /// The status of the next request.
    fn status(&self, counted: Option<Counted>, now: Millis) -> RateLimitStatus {
        let count = counted.map_or(0, |counted| counted.count);
        let remaining = self.quota.requests().saturating_sub(count);
        let age = counted.map_or(0, |counted| now.since(counted.oldest));
        let seconds = WINDOW_MILLIS.saturating_sub(age).div_ceil(1000);
        let reset_seconds = u32::try_from(seconds).unwrap_or(WINDOW_SECONDS).max(1);
        RateLimitStatus { admitted: remaining > 0, remaining, reset_seconds }
    }
}
