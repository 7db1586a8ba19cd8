//! The busiest clients, for the operator's page.
//!
//! In: the limiter and the time. Out: the clients with the most requests that count. A shard is
//! locked for [`STEP`] clients at a time, so that no request waits for the whole walk.
//!
//! Listing changes nothing: it does not delay a client's eviction.

use alloc::vec::Vec;

use super::limiter::{STEP, Shard};
use super::{Millis, Quota, RateLimiter};
use crate::client::ClientKey;

/// A client and the number of its requests that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Busy {
    /// The client.
    pub client: ClientKey,
    /// Its requests admitted in the window.
    pub requests: u32,
}

/// The busiest clients so far, busiest first.
struct Top {
    most: usize,
    busy: Vec<Busy>,
}

impl Top {
    /// The number of requests above which a client is listed.
    fn floor(&self) -> u32 {
        let last = self.busy.last().filter(|_| self.busy.len() >= self.most);
        last.map_or(0, |last| last.requests)
    }

    fn add(&mut self, busy: Busy) {
        let place = self
            .busy
            .partition_point(|other| other.requests >= busy.requests);
        self.busy.insert(place, busy);
        self.busy.truncate(self.most);
    }
}

impl<S, T> RateLimiter<S, T> {
    /// The clients with the most requests that count at `now`, busiest first; at most `most`.
    #[must_use]
    pub fn busiest(&self, now: Millis, most: usize) -> Vec<Busy> {
        let mut top = Top {
            most,
            busy: Vec::new(),
        };
        for shard in self.shards() {
            let mut from = Some(0);
            while let Some(number) = from {
                from = shard.lock().list_busiest(number, now, &mut top);
            }
        }
        top.busy
    }
}

impl<T> Shard<T> {
    /// Adds the clients of [`STEP`] slots; returns the number of the next slot, if there is one.
    fn list_busiest(&self, from: u32, now: Millis, top: &mut Top) -> Option<u32> {
        let end = from.saturating_add(STEP);
        for number in from..end {
            let (client, record) = self.recent().at(number)?;
            let Some(window) = &record.window else {
                continue;
            };
            // a window holds at least as many as count, so most clients are skipped here
            if window.len() <= top.floor() {
                continue;
            }
            if let Some(counted) = window.counted(now.max(window.newest()), Quota::UNLIMITED) {
                top.add(Busy {
                    client,
                    requests: counted.count,
                });
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
    use crate::limit::WINDOW_MILLIS;

    fn limiter(capacity: u32) -> RateLimiter<RandomState> {
        let capacity = NonZeroU32::new(capacity).unwrap();
        RateLimiter::new(
            Quota::per_minute(1_000).unwrap(),
            capacity,
            RandomState::new(),
        )
    }

    fn client(number: u32) -> ClientKey {
        ClientKey::of(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    proptest! {
        #[test]
        fn the_busiest_match_a_count_of_all_clients(
            checks in prop::collection::vec((0u32..600, 0u64..90_000), 0..900),
            sharded: bool,
            most in 0usize..12,
        ) {
            let limiter = limiter(if sharded { 5_000 } else { 1_000 });
            let mut checks = checks;
            checks.sort_by_key(|(_, at)| *at);
            let now = 90_000;
            let mut counts = HashMap::new();
            for (number, at) in checks {
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
