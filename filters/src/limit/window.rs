//! The admissions of one client that count.

use super::{Millis, Quota, WINDOW_MILLIS};
use alloc::collections::VecDeque;

/// Admissions that fit into a ring's first allocation.
const FIRST_ROOM: usize = 4;

/// The window of one client: a ring of two bytes per admission, at least one.
///
/// The newest time is stored whole, the earlier ones as their lowest 16 bits: none is 60,000 ms or
/// more before the newest, so 65,536 values tell them apart. A time that still counts is never
/// dropped.
#[derive(Debug)]
pub(super) struct Window {
    newest: Millis,
    /// The admissions before the newest, oldest first.
    earlier: VecDeque<u16>,
}

/// The admissions that count at some time; at least one, and at most the quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Counted {
    pub(super) oldest: Millis,
    pub(super) count: u32,
}

impl Window {
    /// A window with one admission.
    pub(super) const fn starting_at(now: Millis) -> Self {
        Self {
            newest: now,
            earlier: VecDeque::new(),
        }
    }

    pub(super) fn newest(&self) -> Millis {
        self.newest
    }

    /// The number of stored admissions: at least those that count now. It may exceed a quota that
    /// was lowered.
    pub(super) fn len(&self) -> u32 {
        u32::try_from(self.earlier.len())
            .unwrap_or(u32::MAX)
            .saturating_add(1)
    }

    pub(super) fn heap_bytes(&self) -> usize {
        self.earlier.capacity().saturating_mul(size_of::<u16>())
    }

    /// Admits a request at `now`, not before the newest, unless the quota is spent.
    pub(super) fn admit(&mut self, now: Millis, quota: Quota) -> bool {
        if now.since(self.newest) >= WINDOW_MILLIS {
            *self = Self::starting_at(now);
            return true;
        }
        self.drop_over(now);
        if self.len() >= quota.requests() {
            return false;
        }
        if self.earlier.len() == self.earlier.capacity() {
            // doubles, but never has room for more than the quota
            let room = earlier_than_newest(quota).saturating_sub(self.earlier.len());
            self.earlier
                .reserve_exact(self.earlier.len().max(FIRST_ROOM).min(room));
        }
        debug_assert!(now >= self.newest, "admissions are in the order of time");
        self.earlier.push_back(lowest_bits(self.newest));
        self.newest = now;
        debug_assert!(
            self.len() <= quota.requests(),
            "no more than the quota is admitted"
        );
        true
    }

    /// The latest admissions that count at `now`, at most as many as the quota; `now` is not before
    /// the newest. Older ones change no verdict: while one of them counts, so does a whole quota of
    /// later ones.
    pub(super) fn counted(&self, now: Millis, quota: Quota) -> Option<Counted> {
        if now.since(self.newest) >= WINDOW_MILLIS {
            return None;
        }
        let over = match self.earlier.front() {
            Some(time) if self.is_over(*time, now) => self
                .earlier
                .partition_point(|time| self.is_over(*time, now)),
            _ => 0,
        };
        let over = over.max(
            self.earlier
                .len()
                .saturating_sub(earlier_than_newest(quota)),
        );
        let oldest = self
            .earlier
            .get(over)
            .map_or(self.newest, |time| self.restored(*time));
        let over = u32::try_from(over).unwrap_or(u32::MAX);
        let count = self.len().saturating_sub(over);
        debug_assert!(
            (1..=quota.requests().max(1)).contains(&count),
            "{count} count"
        );
        Some(Counted { oldest, count })
    }

    /// Drops admissions that no longer count at `now`, and memory beyond the quota.
    pub(super) fn trim(&mut self, now: Millis, quota: Quota) {
        self.drop_over(now.max(self.newest));
        self.earlier.shrink_to(earlier_than_newest(quota));
    }

    fn drop_over(&mut self, now: Millis) {
        while self
            .earlier
            .front()
            .is_some_and(|time| self.is_over(*time, now))
        {
            self.earlier.pop_front();
        }
    }

    fn is_over(&self, time: u16, now: Millis) -> bool {
        now.since(self.restored(time)) >= WINDOW_MILLIS
    }

    /// The whole time of which `time` has the lowest bits.
    fn restored(&self, time: u16) -> Millis {
        let age = lowest_bits(self.newest).wrapping_sub(time);
        Millis(self.newest.0.saturating_sub(age.into()))
    }
}

fn lowest_bits(time: Millis) -> u16 {
    let [low, high, ..] = time.0.to_le_bytes();
    u16::from_le_bytes([low, high])
}

fn earlier_than_newest(quota: Quota) -> usize {
    usize::try_from(quota.requests().saturating_sub(1)).unwrap_or(usize::MAX)
}
