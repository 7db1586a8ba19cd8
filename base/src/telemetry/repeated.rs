//! Identical refusals of one client: the first ones in a window have log lines of their own, the
//! others are counted and become one line at its end.
//!
//! A client that ignores its 429s can be refused a hundred thousand times a second. A line for each
//! would displace every other line of the journal.

use super::surface::Surface;
use parking_lot::Mutex;
use portcullis_filters::client::{Client, ClientKey};
use portcullis_filters::verdict::Reason;
use std::collections::HashMap;
use tokio::time::{Duration, Instant};

/// 10 s: an operator who follows the log sees soon enough that a flood continues.
const WINDOW: Duration = Duration::from_secs(10);
/// Refusals of a window with a line of their own, so that a few manual requests are all logged.
const OWN_LINES: u64 = 10;
/// Kinds of refusals that are counted concurrently, about 1 MiB. Refusals beyond these are counted
/// by surface and reason, without the client.
const MAX_KINDS: usize = 10_000;

/// The key of identical refusals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Kind {
    pub(super) surface: Surface,
    pub(super) reason: Reason,
    /// The RPC method, operation or function.
    pub(super) method: &'static str,
    /// `None` for all clients that are counted together.
    client: Option<ClientKey>,
}

/// The refusals of one kind that have no line of their own.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Repeated {
    pub(super) kind: Kind,
    /// The client, as its first refusal of the window identified it.
    pub(super) client: Option<Client>,
    /// The number of further ones.
    pub(super) more: u64,
}

struct Counted {
    since: Instant,
    client: Option<Client>,
    refusals: u64,
}

/// The refusals of the present windows.
#[derive(Default)]
pub(super) struct Refusals(Mutex<HashMap<Kind, Counted>>);

impl Refusals {
    /// Counts a refusal; returns whether it has a line of its own.
    pub(super) fn count(
        &self,
        surface: Surface,
        reason: Reason,
        method: &'static str,
        client: Client,
        now: Instant,
    ) -> bool {
        let mut kinds = self.0.lock();
        let mut kind = Kind {
            surface,
            reason,
            method,
            client: Some(client.key),
        };
        let mut client = Some(client);
        if kinds.len() >= MAX_KINDS && !kinds.contains_key(&kind) {
            (kind.method, kind.client, client) = ("", None, None);
        }
        let counted = kinds.entry(kind).or_insert(Counted {
            since: now,
            client,
            refusals: 0,
        });
        counted.refusals += 1;
        counted.refusals <= OWN_LINES
    }

    /// Removes the windows that are over at `now`, and returns their refusals without lines of
    /// their own.
    pub(super) fn take(&self, now: Instant) -> Vec<Repeated> {
        let mut kinds = self.0.lock();
        let over = kinds.extract_if(|_, counted| now - counted.since >= WINDOW);
        let repeated = over.map(
            |(
                kind,
                Counted {
                    client, refusals, ..
                },
            )| {
                let more = refusals.saturating_sub(OWN_LINES);
                Repeated { kind, client, more }
            },
        );
        let repeated = repeated.filter(|repeated| repeated.more > 0).collect();
        // frees the memory of a flood by many clients
        if kinds.is_empty() {
            kinds.shrink_to_fit();
        }
        repeated
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    const LIMITED: Reason = Reason::RateLimited;

    impl Refusals {
        fn is_own_line(&self, number: u32, now: Instant) -> bool {
            self.count(Surface::Gateway, LIMITED, "", client(number), now)
        }
    }

    fn client(number: u32) -> Client {
        Client::at(IpAddr::V4(Ipv4Addr::from_bits(number)))
    }

    #[test]
    fn a_flood_has_ten_lines_and_a_sum() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let own = (0..41_217).filter(|_| refusals.is_own_line(1, now)).count();
        assert_eq!(own, 10);
        assert!(refusals.take(now).is_empty(), "its window is not over");
        let repeated = refusals.take(now + WINDOW);
        assert_eq!(repeated.len(), 1);
        assert_eq!(
            (repeated[0].more, repeated[0].client),
            (41_207, Some(client(1)))
        );
        assert!(refusals.take(now + WINDOW).is_empty());
        assert!(
            refusals.is_own_line(1, now + WINDOW),
            "another window begins"
        );
    }

    #[test]
    fn other_clients_reasons_and_methods_have_their_own_lines() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        while refusals.is_own_line(1, now) {}
        assert!(refusals.is_own_line(2, now));
        for (surface, reason, method) in [
            (Surface::Gateway, Reason::InvalidParams, ""),
            (Surface::Gateway, LIMITED, "starknet_call"),
            (Surface::Relay, LIMITED, ""),
        ] {
            assert!(
                refusals.count(surface, reason, method, client(1), now),
                "{reason:?}"
            );
        }
    }

    #[test]
    fn a_flood_of_many_clients_is_bounded_too() {
        let (refusals, now) = (Refusals::default(), Instant::now());
        let own = (0..100_000).filter(|number| refusals.is_own_line(*number, now));
        assert_eq!(own.count(), MAX_KINDS + 10);
        assert!(refusals.0.lock().len() <= MAX_KINDS + 1);
        let repeated = refusals.take(now + WINDOW);
        assert_eq!(repeated.len(), 1);
        assert_eq!(
            (repeated[0].client, repeated[0].more),
            (None, 100_000 - 10_000 - 10)
        );
    }
}
