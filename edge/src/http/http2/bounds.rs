//! The bounds of one HTTP/2 connection, which depend on its sender.
//!
//! Pure. In: the sender, and its wasted requests. Out: the settings of `h2`, and when the
//! connection has to end. A trusted proxy's connection has many clients, and none of them may end
//! it for the others.

use h2::server::Builder;
use http::HeaderMap;
use std::ops::Range;
use std::time::Duration;
use tokio::time::Instant;

/// Concurrent requests of one connection: the least that RFC 9113, section 6.5.2, recommends.
const MAX_STREAMS: u32 = 100;
/// 64 KiB of a request's body may be in transit: as much as the largest has.
const STREAM_WINDOW: u32 = 64 << 10;
/// 256 KiB over all requests of a connection: no other bound counts bytes in transit.
const CONNECTION_WINDOW: u32 = 256 << 10;
/// 64 KiB of each response may wait in `h2`; the rest waits with its request.
const SEND_BUFFER: usize = 64 << 10;
/// Above this many times the size of a header list, `h2` ends the connection.
const LARGEST_LIST: usize = 4;
/// Malformed requests after which a connection ends; an honest client sends none. They count for
/// the connection's life, so a trusted proxy gets GOAWAY, which ends no request, after half of
/// [`CLIENTS_OF_A_PROXY`] times as many.
const MAX_MALFORMED: usize = 32;
/// Requests in [`WASTE_WINDOW`] without a response, or with a refused head, after which a client
/// has to reconnect. Leaving a page resets a few, "rapid reset" (CVE-2023-44487) thousands.
const MAX_WASTED: usize = 100;
const WASTE_WINDOW: Duration = Duration::from_secs(60);
/// Factor for the bounds of a trusted proxy, whose connection has many clients and must not end for
/// one of them.
const CLIENTS_OF_A_PROXY: usize = 100;
/// How long late frames of a stream that was reset or answered early are ignored: long enough for a
/// client on a slow line to learn of that (RFC 9113, section 5.1).
const REMEMBERED: Duration = Duration::from_secs(5);
/// Frames of streams that are no longer remembered, after which a connection ends. Each costs one
/// RST_STREAM; a client that uploads while it is refused sends thousands.
const MAX_LATE: usize = 100_000;
/// Bytes by which unread DATA frames, such as late frames of a refused upload, may fall short of
/// 256 each. `h2` ends a connection beyond half its window: 512 empty frames.
const SHORT_FRAMES: usize = (CONNECTION_WINDOW as usize) / 2;
/// A client's first connections remember as many streams as they may open, which takes 40 KiB, and
/// may send 32 times as many short frames. A browser opens one, a wallet a few.
const FULL_CONNECTIONS: usize = 8;
const SHORT_FRAMES_TIMES: usize = 32;
/// Streams that a client's further connections remember, and that linger there.
const FEW_REMEMBERED: usize = 2;
/// Heads that `h2` decodes before the first of them is accepted or refused. Their memory in
/// `h2` stays allocated for the connection's life.
const HEADS_AT_ONCE: usize = 8;
const FEW_HEADS_AT_ONCE: usize = 2;
/// Bytes that are read at once on a client's further connections. Those after the last head that
/// `h2` gets are held.
const SMALL_READ: usize = 2 << 10;

/// A client's first connections do not count in its share: a browser opens one, an office dozens.
/// The next 96 do, which leaves a quarter of the share for requests.
const UNCOUNTED_CONNECTIONS: usize = 80;
const COUNTED_CONNECTIONS: usize = 96;
/// 64 KiB: a connection with the buffers of TLS and `h2`, and the memory that requests leave there.
const CONNECTION: usize = 64 << 10;

/// The sender of a connection's requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::http) enum Sender {
    /// A trusted proxy, for many clients.
    Proxy,
    /// One client, with the number of its connections, this one included.
    Client { connections: usize },
}

/// The bounds of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds(Sender);

/// How a connection continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The connection stays open.
    GoOn,
    /// The client has to reconnect; requests under way are answered.
    Reconnect,
    /// The connection ends at once.
    BreakOff,
}

/// Requests without a response, in the current window.
pub(super) struct Waste {
    /// [`Waste::OWN`] or [`Waste::FORWARDED`] for each.
    amount: usize,
    /// When the window began.
    since: Instant,
}

/// Twice the limit: a head a little over it gets our response, a larger one that of `h2`.
fn list_size(header_size: usize) -> usize {
    2 * header_size
}

/// Bytes of the largest header block that `h2` decodes.
pub(super) fn largest_block(header_size: usize) -> usize {
    LARGEST_LIST * list_size(header_size)
}

impl Bounds {
    pub(super) fn of(sender: Sender) -> Self {
        Self(sender)
    }

    /// How many clients may send the requests.
    pub(super) fn clients(self) -> usize {
        match self.0 {
            Sender::Proxy => CLIENTS_OF_A_PROXY,
            Sender::Client { .. } => 1,
        }
    }

    /// Whether this connection has lower bounds, because its client has many.
    fn is_one_of_many(self) -> bool {
        matches!(self.0, Sender::Client { connections } if connections > FULL_CONNECTIONS)
    }

    /// Bytes of the client's share that the connection itself takes.
    pub(super) fn memory(self) -> usize {
        const COUNTED: Range<usize> = Range {
            start: UNCOUNTED_CONNECTIONS + 1,
            end: UNCOUNTED_CONNECTIONS + COUNTED_CONNECTIONS + 1,
        };
        match self.0 {
            Sender::Client { connections } if COUNTED.contains(&connections) => CONNECTION,
            _ => 0,
        }
    }

    /// Streams whose late frames are ignored.
    fn remembered(self) -> usize {
        if self.is_one_of_many() {
            return FEW_REMEMBERED;
        }
        self.clients() * MAX_STREAMS as usize
    }

    /// Streams that stay open for a moment after their response.
    pub(super) fn lingering(self) -> usize {
        if self.is_one_of_many() {
            return FEW_REMEMBERED;
        }
        MAX_STREAMS as usize
    }

    /// Heads that `h2` gets before the first of them is accepted or refused.
    pub(super) fn heads_at_once(self) -> usize {
        if self.is_one_of_many() {
            FEW_HEADS_AT_ONCE
        } else {
            HEADS_AT_ONCE
        }
    }

    /// Bytes that are read at once.
    pub(super) fn bytes_at_once(self) -> usize {
        if self.is_one_of_many() {
            SMALL_READ
        } else {
            usize::MAX
        }
    }

    fn short_frames(self) -> usize {
        match self.0 {
            Sender::Proxy => CLIENTS_OF_A_PROXY * SHORT_FRAMES,
            Sender::Client { .. } if self.is_one_of_many() => SHORT_FRAMES,
            Sender::Client { .. } => SHORT_FRAMES_TIMES * SHORT_FRAMES,
        }
    }

    /// Sets the bounds that `h2` enforces.
    pub(super) fn apply(self, builder: &mut Builder, header_size: usize) {
        let list = u32::try_from(list_size(header_size)).unwrap_or(u32::MAX);
        builder
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(list)
            .initial_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buffer_size(SEND_BUFFER)
            .max_pending_accept_reset_streams(self.clients() * MAX_STREAMS as usize)
            .max_concurrent_reset_streams(self.remembered())
            .reset_stream_duration(REMEMBERED)
            .data_frame_budget(self.short_frames())
            .max_local_error_reset_streams(Some(self.clients() * MAX_LATE));
    }

    /// Whether a trusted proxy forwarded the request with these fields.
    pub(super) fn is_forwarded(self, fields: &HeaderMap) -> bool {
        self.0 == Sender::Proxy && fields.contains_key("x-forwarded-for")
    }

    /// Judges a connection by its wasted and its malformed requests.
    pub(super) fn judge(self, wasted: &Waste, malformed: usize) -> Verdict {
        match self.0 {
            Sender::Client { .. } if malformed >= MAX_MALFORMED => Verdict::BreakOff,
            Sender::Proxy if malformed >= MAX_MALFORMED * CLIENTS_OF_A_PROXY / 2 => {
                Verdict::Reconnect
            }
            _ if wasted.is_abuse() => Verdict::Reconnect,
            _ => Verdict::GoOn,
        }
    }
}

impl Waste {
    /// The weight of a request of the peer itself.
    pub(super) const OWN: usize = CLIENTS_OF_A_PROXY;
    /// The weight of a request that a trusted proxy forwarded.
    pub(super) const FORWARDED: usize = 1;

    pub(super) fn new(now: Instant) -> Self {
        Self {
            amount: 0,
            since: now,
        }
    }

    pub(super) fn add(&mut self, amount: usize, now: Instant) {
        if now.duration_since(self.since) >= WASTE_WINDOW {
            *self = Self::new(now);
        }
        self.amount += amount;
    }

    fn is_abuse(&self) -> bool {
        self.amount > MAX_WASTED * CLIENTS_OF_A_PROXY
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use Verdict::{BreakOff, GoOn, Reconnect};
    use http::HeaderValue;

    const CLIENT: Sender = Sender::Client { connections: 1 };

    #[test]
    fn abuse_is_of_one_minute() {
        let start = Instant::now();
        let mut waste = Waste::new(start);
        for second in 0..600 {
            waste.add(CLIENTS_OF_A_PROXY, start + Duration::from_secs(second));
            assert!(!waste.is_abuse(), "one in a second, for ten minutes");
        }
        for _ in 0..2 * MAX_WASTED {
            waste.add(CLIENTS_OF_A_PROXY, start + Duration::from_secs(600));
        }
        assert!(waste.is_abuse(), "hundreds at once");
    }

    #[test]
    fn a_proxy_may_waste_a_hundred_times_as_much() {
        let forwarded = HeaderMap::from_iter([(
            http::HeaderName::from_static("x-forwarded-for"),
            HeaderValue::from_static("192.0.2.1"),
        )]);
        let none = HeaderMap::new();
        for (sender, fields, wasted, verdict) in [
            (CLIENT, &none, 100, GoOn),
            (CLIENT, &none, 101, Reconnect),
            // a client may claim anything
            (CLIENT, &forwarded, 101, Reconnect),
            (Sender::Proxy, &none, 101, Reconnect),
            (Sender::Proxy, &forwarded, 1_000, GoOn),
            (Sender::Proxy, &forwarded, 10_000, GoOn),
            (Sender::Proxy, &forwarded, 10_001, Reconnect),
        ] {
            let (bounds, now) = (Bounds::of(sender), Instant::now());
            let mut waste = Waste::new(now);
            let is_forwarded = bounds.is_forwarded(fields);
            let each = if is_forwarded {
                Waste::FORWARDED
            } else {
                Waste::OWN
            };
            (0..wasted).for_each(|_| waste.add(each, now));
            assert_eq!(
                bounds.judge(&waste, 0),
                verdict,
                "{sender:?}: {wasted}, {fields:?}"
            );
        }
    }

    #[test]
    fn only_a_client_s_connection_is_broken_off() {
        for (sender, malformed, verdict) in [
            (CLIENT, 31, GoOn),
            (CLIENT, 32, BreakOff),
            (Sender::Proxy, 1_599, GoOn),
            (Sender::Proxy, 1_600, Reconnect),
            (Sender::Proxy, 1_000_000, Reconnect),
        ] {
            let waste = Waste::new(Instant::now());
            assert_eq!(
                Bounds::of(sender).judge(&waste, malformed),
                verdict,
                "{sender:?} {malformed}"
            );
        }
    }

    #[test]
    fn a_client_s_many_connections_count() {
        for (sender, memory) in [
            (CLIENT, 0),
            (Sender::Client { connections: 80 }, 0),
            (Sender::Client { connections: 81 }, 64 << 10),
            (Sender::Client { connections: 176 }, 64 << 10),
            (Sender::Client { connections: 177 }, 0),
            (Sender::Proxy, 0),
        ] {
            assert_eq!(Bounds::of(sender).memory(), memory, "{sender:?}");
        }
    }

    #[test]
    fn a_client_s_first_connections_remember_all_streams() {
        for (sender, remembered) in [
            (CLIENT, 100),
            (Sender::Client { connections: 8 }, 100),
            (Sender::Client { connections: 9 }, 2),
            (Sender::Proxy, 10_000),
        ] {
            assert_eq!(Bounds::of(sender).remembered(), remembered, "{sender:?}");
        }
    }
}
