//! Who asks the most now: for whoever looks on, beside those who judge.
//!
//! In: the limiter and the time. Out: the clients with the most requests that count. A shard is
//! locked for [`STEP`] clients at a time, so that nobody who is judged waits for the whole walk.
//!
//! It changes nothing: looking at a client does not keep it from being forgotten.

use alloc::vec::Vec;

use super::{Limiter, Millis, SharedLimiter};
use crate::client::ClientKey;

/// Clients that are looked at under one lock: some microseconds.
const STEP: u32 = 256;

/// A client, and how many of its requests count now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The client.
    pub client: ClientKey,
    /// Its requests that were admitted in the window.
    pub requests: u32,
}

/// The busiest so far, busiest first.
struct Top {
    most: usize,
    busy: Vec<Busy>,
}

impl Top {
    /// What a client must have more than to be among them.
    fn floor(&self) -> u32 {
        let last = self.busy.last().filter(|_| self.busy.len() >= self.most);
        last.map_or(0, |last| last.requests)
    }

    fn add(&mut self, busy: Busy) {
        if busy.requests > self.floor() {
            let place = self.busy.partition_point(|other| other.requests >= busy.requests);
            self.busy.insert(place, busy);
            self.busy.truncate(self.most);
        }
    }
}

impl<S> SharedLimiter<S> {
    /// The clients with the most requests that count at `now`, busiest first; at most `most`.
    #[must_use]
    pub fn busiest(&self, now: Millis, most: usize) -> Vec<Busy> {
        let mut top = Top { most, busy: Vec::new() };
        if most == 0 {
            return top.busy;
        }
        for shard in self.locks() {
            let mut from = Some(0);
            while let Some(number) = from {
                from = shard.lock().offer(number, now, &mut top);
            }
        }
        top.busy
    }
}

impl<S> Limiter<S> {
    /// Looks at the clients in some slots, and says where the next ones begin.
    fn offer(&self, from: u32, now: Millis, top: &mut Top) -> Option<u32> {
        let end = from.saturating_add(STEP);
        for number in from..end {
            let (client, window) = self.recent.at(number)?;
            // all that it holds is no less than what counts: most need no closer look
            if window.times().count() <= top.floor() {
                continue;
            }
            let now = now.max(window.times().newest());
            if let Some(times) = window.counted(now, self.code, &self.blocks) {
                top.add(Busy { client, requests: times.count() });
            }
        }
        Some(end)
    }
}

#[cfg(test)]
mod tests {
    use core::num::NonZeroU32;
    use std::collections::HashMap;
    use std::hash::RandomState;
    use std::net::{IpAddr, Ipv4Addr};

    use proptest::prelude::*;

    use super::*;
    use crate::limit::{Quota, WINDOW_MILLIS};

    fn limiter(capacity: u32) -> SharedLimiter<RandomState> {
        let capacity = NonZeroU32::new(capacity).unwrap();
        SharedLimiter::new(Quota::per_minute(1_000).unwrap(), capacity, RandomState::new())
    }

    fn client(number: u32) -> ClientKey {
        ClientKey::of(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    proptest! {
        #[test]
        fn the_busiest_are_those_that_a_count_of_all_finds(
            asked in prop::collection::vec((0u32..600, 0u64..90_000), 0..900),
            sharded: bool,
            most in 0usize..12,
        ) {
            let limiter = limiter(if sharded { 5_000 } else { 1_000 });
            let mut asked = asked;
            asked.sort_by_key(|(_, at)| *at);
            let now = 90_000;
            let mut counts = HashMap::new();
            for (number, at) in asked {
                limiter.check(client(number), Millis(at));
                if now - at < WINDOW_MILLIS {
                    *counts.entry(client(number)).or_insert(0_u32) += 1;
                }
            }
            let found = limiter.busiest(Millis(now), most);
            for busy in &found {
                prop_assert_eq!(counts.get(&busy.client), Some(&busy.requests));
            }
            let mut expected: Vec<u32> = counts.into_values().collect();
            expected.sort_unstable_by(|a, b| b.cmp(a));
            expected.truncate(most);
            let found: Vec<u32> = found.iter().map(|busy| busy.requests).collect();
            prop_assert_eq!(found, expected);
        }
    }
}
