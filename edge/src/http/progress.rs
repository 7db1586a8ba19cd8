//! Whether a client takes a response fast enough.
//!
//! In: the progress so far, and the time. Out: how long to wait for more, or that the response is
//! given up. Both versions of HTTP need this, because a socket's buffer is refilled in large steps:
//! a slow reader of a large response may show no progress here for a minute, while its TCP
//! acknowledges bytes all the time.

use pingora::protocols::SocketDigest;
use portcullis_base::io::LazyTimer;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::time::Instant;

/// A client that takes nothing of a response for this long is disconnected.
pub(super) const STALL: Duration = Duration::from_secs(10);
/// 8 KiB per second: a slower client has until the write timeout, and no longer.
const PACE: u64 = 16 << 10;
const PACE_WINDOW: Duration = Duration::from_secs(2);

/// How much of a response the client has taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Progress {
    /// Bytes that its TCP acknowledged; `None` if the response does not wait for the socket, or if
    /// the socket is a Unix socket.
    pub(super) acknowledged: Option<u64>,
    /// Bytes that are not written.
    pub(super) left: usize,
}

impl Progress {
    /// Bytes that the client took since an earlier time.
    fn since(self, earlier: Self) -> u64 {
        match (self.acknowledged, earlier.acknowledged) {
            (Some(now), Some(then)) => now.saturating_sub(then),
            _ => earlier.left.saturating_sub(self.left) as u64,
        }
    }
}

/// Bytes that the TCP of a socket's other end acknowledged.
pub(super) fn acknowledged(socket: Option<&SocketDigest>) -> Option<u64> {
    Some(socket?.tcp_info()?.tcpi_bytes_acked)
}

/// The time that a client has for one response. It starts when the response first has to wait, so
/// one that is taken at once reads no clock.
pub(super) struct WriteClock {
    timeout: Duration,
    mark: Option<Mark>,
}

/// The progress at one time, and when to compare it.
struct Mark {
    deadline: Instant,
    progress: Progress,
    until: Instant,
}

impl WriteClock {
    /// Creates the clock of a response with this `timeout`. A client that keeps up [`PACE`] gets
    /// all of the response.
    pub(super) fn new(timeout: Duration) -> Self {
        Self {
            timeout,
            mark: None,
        }
    }

    /// Ready when the response is given up.
    pub(super) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        timer: &mut LazyTimer,
        progress: impl Fn() -> Progress,
    ) -> Poll<()> {
        if self.mark.is_none() {
            self.judge(progress(), Instant::now());
        }
        while let Some(Mark { until, .. }) = self.mark {
            ready!(timer.poll_until(until, cx));
            self.judge(progress(), Instant::now());
        }
        Poll::Ready(())
    }

    /// Compares with the last mark, and sets the next one unless the response is given up.
    fn judge(&mut self, progress: Progress, now: Instant) {
        let Some(Mark {
            deadline,
            progress: before,
            until,
        }) = self.mark.take()
        else {
            let deadline = now + self.timeout;
            self.mark = Some(Mark {
                deadline,
                progress,
                until: deadline.min(now + STALL),
            });
            return;
        };
        let is_overdue = until > deadline;
        let goes_on = if is_overdue {
            progress.since(before) >= PACE
        } else {
            progress != before
        };
        if goes_on {
            let is_late = now >= deadline;
            let until = if is_late {
                now + PACE_WINDOW
            } else {
                deadline.min(now + STALL)
            };
            self.mark = Some(Mark {
                deadline,
                progress,
                until,
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    /// The second in which a response with the progress `taken` is given up; `None` if it is not
    /// within ten minutes.
    fn given_up(timeout: Duration, taken: impl Fn(u64) -> Progress) -> Option<u64> {
        let start = Instant::now();
        let mut clock = WriteClock::new(timeout);
        (0..600).find(|second| {
            let now = start + Duration::from_secs(*second);
            if clock.mark.as_ref().is_none_or(|mark| now >= mark.until) {
                clock.judge(taken(*second), now);
            }
            clock.mark.is_none()
        })
    }

    fn acked(bytes: u64) -> Progress {
        Progress {
            acknowledged: Some(bytes),
            left: 4 << 20,
        }
    }

    fn unread(left: u64) -> Progress {
        Progress {
            acknowledged: None,
            left: usize::try_from(left).expect("it is small"),
        }
    }

    #[test]
    fn a_response_is_given_up_without_progress() {
        const KIB: u64 = 1 << 10;
        let second = Duration::from_secs(1);
        type Taken = fn(u64) -> Progress;
        let cases: [(&str, Duration, Taken, Option<u64>); 10] = [
            ("nothing", MINUTE, |_| acked(0), Some(10)),
            (
                "nothing, over a Unix socket",
                MINUTE,
                |_| unread(9),
                Some(10),
            ),
            (
                "nothing after 15 s",
                MINUTE,
                |at| acked(at.min(15)),
                Some(30),
            ),
            ("nothing, in a short time", second, |_| acked(0), Some(1)),
            ("a byte per second", MINUTE, |at| acked(at), Some(62)),
            (
                "a byte per second, in a short time",
                second,
                |at| acked(at),
                Some(3),
            ),
            ("8 KiB per second", MINUTE, |at| acked(at * 8 * KIB), None),
            (
                "24 KiB in steps of a window",
                MINUTE,
                |at| unread((600 - at) / 2 * 48 * KIB),
                None,
            ),
            (
                "24 KiB until 90 s",
                MINUTE,
                |at| acked(at.min(90) * 24 * KIB),
                Some(92),
            ),
            (
                "what others take",
                MINUTE,
                |_| Progress {
                    acknowledged: None,
                    left: 7,
                },
                Some(10),
            ),
        ];
        for (what, timeout, taken, expected) in cases {
            assert_eq!(given_up(timeout, taken), expected, "{what}");
        }
    }
}
