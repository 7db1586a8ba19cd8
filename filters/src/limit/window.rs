//! The admission times of one client, exact, in about ten bits each.
//!
//! In: times that don't go backwards. Out: how many of them are still in the window, and which is
//! the oldest. Kept are the oldest time and, in a ring of bits, the difference of each time to the
//! one before it. A window with one time in it has no ring.
//!
//! It never forgets a time that still counts. Next: `code` for the bits, `blocks` for the ring,
//! and `recent`, which keeps the windows.

use super::blocks::{Blocks, Place};
use super::code::{Code, LONGEST};
use super::{Millis, Quota, WINDOW_MILLIS};

/// Times that follow each other; at least one.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    oldest: Millis,
    /// From the oldest time to the newest.
    spread: u32,
    count: u32,
    /// Where the differences begin.
    head: Place,
}

impl Times {
    pub(super) fn oldest(self) -> Millis {
        self.oldest
    }

    pub(super) fn newest(self) -> Millis {
        Millis(self.oldest.0.saturating_add(u64::from(self.spread)))
    }

    /// How many there are.
    pub(super) fn count(self) -> u32 {
        self.count
    }

    /// What is left when the oldest goes; there must be another.
    fn without_oldest(self, code: Code, blocks: &Blocks) -> Self {
        let (difference, length) = code.decode(blocks.read(self.head));
        Self {
            oldest: Millis(self.oldest.0.saturating_add(u64::from(difference))),
            spread: self.spread.saturating_sub(difference),
            count: self.count.saturating_sub(1),
            head: blocks.after(self.head, length),
        }
    }
}

/// The window of one client.
#[derive(Debug)]
pub(super) struct Window {
    /// All that it holds, also those that no longer count.
    times: Times,
    /// Where the differences end.
    tail: Place,
}

impl Window {
    /// A window with one time in it.
    pub(super) fn starting_at(now: Millis) -> Self {
        let times = Times { oldest: now, spread: 0, count: 1, head: Place::NOWHERE };
        Self { times, tail: Place::NOWHERE }
    }

    /// All times in it.
    pub(super) fn times(&self) -> Times {
        self.times
    }

    /// The times that still count at `now`; `None` if none does.
    pub(super) fn counted(&self, now: Millis, code: Code, blocks: &Blocks) -> Option<Times> {
        if now.since(self.times.newest()) >= WINDOW_MILLIS {
            return None;
        }
        let mut times = self.times;
        while now.since(times.oldest) >= WINDOW_MILLIS && times.count > 1 {
            times = times.without_oldest(code, blocks);
        }
        Some(times)
    }

    /// Adds `now`, which is not before the newest time and less than a window after it, and lets
    /// go of those that are no longer `counted`.
    pub(super) fn admit(&mut self, counted: Times, now: Millis, code: Code, blocks: &mut Blocks) {
        let difference = u32::try_from(now.since(counted.newest())).unwrap_or(LONGEST);
        let (bits, length) = code.encode(difference);
        self.times = counted;
        if self.tail == Place::NOWHERE {
            self.tail = blocks.ring();
            self.times.head = self.tail;
        } else if counted.count > 1 {
            self.times.head = blocks.make_room(counted.head, self.tail, length);
        }
        self.tail = blocks.write(self.tail, bits, length);
        self.times.spread = counted.spread.saturating_add(difference);
        self.times.count = counted.count.saturating_add(1);
    }

    /// Gives back the ring.
    pub(super) fn release(self, blocks: &mut Blocks) {
        blocks.release(self.tail);
    }

    /// Lets go of all but the latest times, as many as the quota, and writes them in its code.
    /// Older ones can't matter: while one of them counts, so do as many as the quota.
    pub(super) fn recode(&mut self, from: Code, to: Code, quota: Quota, blocks: &mut Blocks) {
        let mut rest = self.times;
        while rest.count > quota.requests() {
            rest = rest.without_oldest(from, blocks);
        }
        if from == to {
            self.times = rest;
            return;
        }
        let mut window = Self::starting_at(rest.oldest);
        while rest.count > 1 {
            rest = rest.without_oldest(from, blocks);
            window.admit(window.times, rest.oldest, to, blocks);
        }
        core::mem::replace(self, window).release(blocks);
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::arithmetic_side_effects, reason = "the numbers are small")]

    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    fn quotas() -> impl Strategy<Value = Quota> {
        let requests = prop_oneof![1u32..=500, 500u32..=100_000, Just(Quota::MAX)];
        requests.prop_map(|requests| Quota::per_minute(requests).unwrap())
    }

    fn times(window: &Window, code: Code, blocks: &Blocks) -> Vec<u64> {
        let rest = std::iter::successors(Some(window.times), |rest| {
            (rest.count > 1).then(|| rest.without_oldest(code, blocks))
        });
        rest.map(|rest| rest.oldest.0).collect()
    }

    fn fits(window: &Window, code: Code, quota: Quota, blocks: &Blocks) -> bool {
        let bound = code.most_bits(quota).div_ceil(480).max(1);
        window.tail == Place::NOWHERE || blocks.count(window.tail) <= bound
    }

    proptest! {
        #[test]
        fn a_window_keeps_all_times_in_bounded_space(
            quota in quotas(),
            steps in prop::collection::vec(
                prop_oneof![0u64..3, 0u64..700, 12_000u64..13_000, 0u64..=59_999], 1..800,
            ),
        ) {
            let code = Code::for_quota(quota);
            let mut blocks = Blocks::new();
            let mut now = 1_000_000;
            let mut kept = VecDeque::from([now]);
            let mut window = Window::starting_at(Millis(now));
            for step in steps {
                now += step;
                kept.retain(|time| time + WINDOW_MILLIS > now);
                let counted = window.counted(Millis(now), code, &blocks);
                prop_assert_eq!(counted.map(|times| times.oldest.0), kept.front().copied());
                let count = counted.map_or(0, Times::count);
                prop_assert_eq!(usize::try_from(count).unwrap(), kept.len());
                match counted {
                    None => std::mem::replace(&mut window, Window::starting_at(Millis(now)))
                        .release(&mut blocks),
                    Some(counted) if counted.count < quota.requests() => {
                        window.admit(counted, Millis(now), code, &mut blocks);
                    }
                    Some(_) => continue,
                }
                kept.push_back(now);
                prop_assert!(fits(&window, code, quota, &blocks));
                prop_assert_eq!(window.times.newest(), Millis(now));
            }
            let held = times(&window, code, &blocks);
            prop_assert!(held.ends_with(kept.make_contiguous()));
        }

        #[test]
        fn a_window_that_is_recoded_keeps_its_latest_times(
            from in quotas(), to in quotas(), steps in prop::collection::vec(0u64..600, 0..99),
        ) {
            let [from_code, to_code] = [from, to].map(Code::for_quota);
            let mut blocks = Blocks::new();
            let mut now = 0;
            let mut window = Window::starting_at(Millis(0));
            for step in steps.iter().take(usize::try_from(from.requests()).unwrap() - 1) {
                now += step;
                window.admit(window.times, Millis(now), from_code, &mut blocks);
            }
            let before = times(&window, from_code, &blocks);
            window.recode(from_code, to_code, to, &mut blocks);
            let after = times(&window, to_code, &blocks);
            let most = usize::try_from(to.requests()).unwrap();
            prop_assert_eq!(after.len(), before.len().min(most));
            prop_assert!(before.ends_with(&after));
            prop_assert!(fits(&window, to_code, to, &blocks));
        }
    }
}
