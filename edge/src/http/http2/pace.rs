//! Limits the frames that a client sends without a header block or content.
//!
//! PING, SETTINGS, PRIORITY and WINDOW_UPDATE cost a client a few bytes, and `h2` handles as many
//! as arrive (CVE-2019-9512, CVE-2019-9513, CVE-2019-9515). Pure. In: such frames, requests, and
//! bytes of responses. Out: when to read on. A client that sends too many is not disconnected: the
//! frames wait in its own socket. An honest client sends them in proportion to its requests and
//! responses.

use std::time::Duration;
use tokio::time::Instant;

/// The cost of a frame, in bytes of responses: a client updates its two windows at most once per
/// 512 bytes.
const FRAME: i64 = 256;
/// 256 frames at once: a new connection sends a few.
const BURST: i64 = 256 * FRAME;
/// 100 frames per second, for PING in particular.
const PER_SECOND: i64 = 100 * FRAME;
/// 8 frames per request: its priority, its windows, its reset.
const PER_REQUEST: i64 = 8 * FRAME;
/// The cost of a stream that is refused with REFUSED_STREAM: what its request has added, and as
/// much again, because a client can have thousands refused while its other streams wait.
const REFUSED: i64 = 2 * PER_REQUEST;

/// The frames that a connection may still send.
#[derive(Debug)]
pub(super) struct Pace {
    /// In bytes of responses; negative when too many were read at once.
    left: i64,
    /// How many clients share the connection.
    clients: i64,
    /// The time up to which the budget was refilled.
    since: Instant,
}

impl Pace {
    /// Creates the pace of a connection that this number of clients share.
    pub(super) fn new(clients: usize, now: Instant) -> Self {
        let clients = i64::try_from(clients).unwrap_or(i64::MAX / BURST);
        Self {
            left: BURST * clients,
            clients,
            since: now,
        }
    }

    /// Counts frames that were read.
    pub(super) fn spend(&mut self, frames: usize) {
        self.take(frames, FRAME);
    }

    /// Counts streams that the client has reset, which takes back what their requests have added.
    pub(super) fn spend_reset(&mut self, streams: usize) {
        self.take(streams, PER_REQUEST);
    }

    /// Counts streams that were refused.
    pub(super) fn spend_refused(&mut self, streams: usize) {
        self.take(streams, REFUSED);
    }

    /// Counts requests that were started.
    pub(super) fn add_requests(&mut self, number: usize) {
        self.add(
            i64::try_from(number)
                .unwrap_or(i64::MAX)
                .saturating_mul(PER_REQUEST),
        );
    }

    /// Counts bytes that were written.
    pub(super) fn add_written(&mut self, bytes: usize) {
        self.add(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    /// Whether the next frame may be read without reading the clock.
    pub(super) fn is_open(&self) -> bool {
        self.left >= 0
    }

    /// When to read on; `now` if at once.
    pub(super) fn opens_at(&mut self, now: Instant) -> Instant {
        let rate = PER_SECOND.saturating_mul(self.clients);
        let millis = now.saturating_duration_since(self.since).as_millis();
        self.since = now;
        self.add(
            i64::try_from(millis)
                .unwrap_or(i64::MAX)
                .saturating_mul(rate)
                / 1000,
        );
        let lacks = u64::try_from(-self.left).unwrap_or(0);
        now + Duration::from_millis(lacks.saturating_mul(1000).div_ceil(rate.unsigned_abs()))
    }

    fn take(&mut self, number: usize, cost: i64) {
        let cost = i64::try_from(number)
            .unwrap_or(i64::MAX)
            .saturating_mul(cost);
        self.left = self.left.saturating_sub(cost);
    }

    fn add(&mut self, bytes: i64) {
        debug_assert!(bytes >= 0, "nothing is taken back");
        self.left = self
            .left
            .saturating_add(bytes)
            .min(BURST.saturating_mul(self.clients));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    /// Frames that are read in these seconds, 100 at once, from a client that always has more.
    fn flood(pace: &mut Pace, start: Instant, seconds: u32) -> usize {
        let (mut now, mut frames) = (start, 0);
        while now < start + seconds * SECOND {
            if !pace.is_open() {
                now = now.max(pace.opens_at(now));
                continue;
            }
            pace.spend(100);
            frames += 100;
        }
        frames
    }

    #[test]
    fn a_flood_is_read_at_the_rate() {
        let start = Instant::now();
        for (clients, most) in [(1, 256 + 60 * 100), (100, 100 * (256 + 60 * 100))] {
            let frames = flood(&mut Pace::new(clients, start), start, 60);
            // 100 are read at once
            assert!(
                (most - 200..=most + 200).contains(&frames),
                "{frames} of {clients} clients"
            );
        }
    }

    #[test]
    fn responses_and_requests_allow_more() {
        let start = Instant::now();
        let mut pace = Pace::new(1, start);
        for (earn, frames) in [
            // two windows for each 512 bytes of a response of 4 MiB
            (Pace::add_written as fn(&mut Pace, usize), 8_192),
            (Pace::add_requests, 8),
        ] {
            for _ in 0..1_000 {
                earn(&mut pace, if frames == 8 { 1 } else { 512 });
                pace.spend(if frames == 8 { 8 } else { 2 });
                assert!(pace.is_open(), "{frames}");
            }
        }
    }

    #[test]
    fn rapid_resets_are_slowed() {
        let start = Instant::now();
        let mut pace = Pace::new(1, start);
        let reset = (0..1_000).take_while(|_| {
            pace.add_requests(1);
            pace.spend(1);
            pace.spend_reset(1);
            pace.is_open()
        });
        assert!((200..=256).contains(&reset.count()), "one frame each");
    }

    #[test]
    fn refused_streams_are_slowed() {
        let start = Instant::now();
        let mut pace = Pace::new(1, start);
        let refused = (0..1_000).take_while(|_| {
            pace.add_requests(1);
            pace.spend_refused(1);
            pace.is_open()
        });
        assert!(
            (16..=32).contains(&refused.count()),
            "of a connection, before it has to wait"
        );
    }

    #[test]
    fn what_is_not_used_is_not_saved() {
        let start = Instant::now();
        let mut pace = Pace::new(1, start);
        let later = start + 3_600 * SECOND;
        assert!(pace.opens_at(later) <= later);
        assert!(flood(&mut pace, later, 1) <= 256 + 200);
    }

    #[test]
    fn many_at_once_are_waited_for() {
        let start = Instant::now();
        let mut pace = Pace::new(1, start);
        pace.spend(256 + 1_000);
        assert!(!pace.is_open());
        assert_eq!(pace.opens_at(start), start + 10 * SECOND);
        assert_eq!(pace.opens_at(start + 4 * SECOND), start + 10 * SECOND);
        assert!(pace.opens_at(start + 10 * SECOND) <= start + 10 * SECOND);
        assert!(pace.is_open());
    }
}
