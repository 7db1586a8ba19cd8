//! How much each client used and was refused recently, which orders the clients that wait.
//!
//! A client that was served less goes first. So does one that was refused less, up to a bound:
//! a client that asks for more than its share is behind all that do not, and clients that ask for
//! far more than that are equal among themselves.

use crate::client::ClientKey;
use alloc::collections::BTreeMap;
use core::time::Duration;

/// Calls count for one to two periods: a client of ten calls a minute has two or three.
const PERIOD_MILLIS: u64 = 10_000;
/// The parts of a period in which the earlier one counts less and less.
const PARTS: u32 = 16;
/// The most refusals that count: a client is behind by this much at most.
const MAX_REFUSED: u32 = 8 * PARTS;
/// Clients that are tracked; further ones count as new.
const MAX_CLIENTS: usize = 8_192;

/// The recent use of each client.
#[derive(Debug, Default)]
pub(super) struct Shares {
    clients: BTreeMap<ClientKey, Usage>,
    /// The number of the period.
    period: u64,
    /// The elapsed parts of the period.
    part: u32,
}

#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    /// Calls that started or wait.
    served: Recent,
    refused: Recent,
}

/// A count over one to two periods.
#[derive(Clone, Copy, Debug, Default)]
struct Recent {
    current: u32,
    previous: u32,
}

impl Recent {
    const fn next_period(self) -> Self {
        Self {
            current: 0,
            previous: self.current,
        }
    }

    /// The count, where calls of the previous period count for the rest of this one.
    const fn weight(self, part: u32) -> u32 {
        let current = self.current.saturating_mul(PARTS);
        let rest = PARTS.saturating_sub(part);
        current.saturating_add(self.previous.saturating_mul(rest))
    }

    const fn is_zero(self) -> bool {
        self.current == 0 && self.previous == 0
    }
}

impl Shares {
    /// Counts a call of a client, and returns its rank among those that wait: the lowest is first.
    pub(super) fn arrive(&mut self, client: ClientKey, now: Duration) -> u32 {
        self.advance(now);
        let Some(usage) = self.usage(client) else {
            return PARTS;
        };
        usage.served.current = usage.served.current.saturating_add(1);
        let Usage { served, refused } = *usage;
        let refused = refused.weight(self.part).min(MAX_REFUSED);
        served.weight(self.part).saturating_add(refused)
    }

    /// Counts a call that arrived, but is refused.
    pub(super) fn refuse(&mut self, client: ClientKey, now: Duration) {
        self.advance(now);
        if let Some(usage) = self.usage(client) {
            usage.served.current = usage.served.current.saturating_sub(1);
            usage.refused.current = usage.refused.current.saturating_add(1);
        }
    }

    fn usage(&mut self, client: ClientKey) -> Option<&mut Usage> {
        if self.clients.len() >= MAX_CLIENTS && !self.clients.contains_key(&client) {
            return None;
        }
        Some(self.clients.entry(client).or_default())
    }

    fn advance(&mut self, now: Duration) {
        let millis = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        let period = millis / PERIOD_MILLIS;
        for _ in self.period..period.min(self.period.saturating_add(2)) {
            self.clients.retain(|_, usage| {
                usage.served = usage.served.next_period();
                usage.refused = usage.refused.next_period();
                !usage.served.is_zero() || !usage.refused.is_zero()
            });
        }
        self.period = self.period.max(period);
        let elapsed = millis.checked_rem(PERIOD_MILLIS).unwrap_or_default();
        let part = elapsed.saturating_mul(PARTS.into()) / PERIOD_MILLIS;
        self.part = u32::try_from(part).unwrap_or(PARTS);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn client(number: u8) -> ClientKey {
        ClientKey::of(IpAddr::from([10, 0, 0, number]))
    }

    #[test]
    fn a_burst_of_a_client_waits_for_itself() {
        let mut shares = Shares::default();
        let burst: Vec<u32> = (0..5)
            .map(|_| shares.arrive(client(1), Duration::ZERO))
            .collect();
        assert!(burst.is_sorted_by(|earlier, later| earlier < later));
        let other = shares.arrive(client(2), Duration::ZERO);
        assert!(
            other < burst[1],
            "only the first call of the burst is equal"
        );
    }

    #[test]
    fn who_asks_for_too_much_is_behind() {
        let mut shares = Shares::default();
        for call in 0..100 {
            shares.arrive(client(1), Duration::ZERO);
            shares.arrive(client(2), Duration::ZERO);
            shares.refuse(client(2), Duration::ZERO);
            if call < 3 {
                shares.arrive(client(3), Duration::ZERO);
            }
        }
        let [served, refused, modest] =
            [1, 2, 3].map(|number| shares.arrive(client(number), Duration::ZERO));
        assert!(modest < refused && refused < served);
        assert_eq!(refused, MAX_REFUSED + PARTS, "refusals count up to a bound");
    }

    #[test]
    fn what_a_client_used_is_forgotten() {
        let mut shares = Shares::default();
        let at = Duration::from_secs;
        let mut ranks = Vec::new();
        for second in [0, 0, 9, 15, 19, 45] {
            ranks.push(shares.arrive(client(1), at(second)) / PARTS);
        }
        assert_eq!(ranks, [1, 2, 3, 2, 2, 1]);
        shares.refuse(client(1), at(80));
        shares.advance(at(120));
        assert!(shares.clients.is_empty());
    }
}
