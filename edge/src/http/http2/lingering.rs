//! Streams that are answered before their client has ended them.
//!
//! Such a stream stays open for a moment, as an HTTP/1 connection lingers: most clients end it
//! within that time, and `h2` reports the faults of the others. After it, `h2` asks the client to
//! stop: it sends RST_STREAM with NO_ERROR when the stream is dropped (RFC 9113, section 8.1).

use super::timed_io::FrameTimer;
use bytes::Bytes;
use h2::{Reason, SendStream};
use portcullis_base::io::LazyTimer;
use std::collections::VecDeque;
use std::task::Context;
use std::time::Duration;
use tokio::time::Instant;

/// How long an answered stream stays open. Its client may send what fits the stream's window.
const LINGER: Duration = Duration::from_secs(1);

/// The answered streams of a connection, the oldest first.
pub(super) struct Lingering {
    streams: VecDeque<Answered>,
    /// The older of more streams are dropped.
    max: usize,
    timer: LazyTimer,
}

struct Answered {
    id: u32,
    stream: SendStream<Bytes>,
    until: Instant,
}

impl Lingering {
    pub(super) fn new(max: usize) -> Self {
        Self {
            streams: VecDeque::new(),
            max,
            timer: LazyTimer::default(),
        }
    }

    /// Keeps an answered stream open, unless its client has ended it.
    pub(super) fn add(&mut self, stream: SendStream<Bytes>, timer: &FrameTimer) {
        let id = stream.stream_id().as_u32();
        if !timer.streams.lock().is_open(id) {
            timer.malformed.take(id);
            return;
        }
        if self.streams.len() >= self.max {
            self.streams.pop_front();
        }
        self.streams.push_back(Answered {
            id,
            stream,
            until: Instant::now() + LINGER,
        });
    }

    /// Drops the streams that have ended or lingered long enough, and resets those with a fault.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>, timer: &FrameTimer) {
        if self.streams.is_empty() {
            return;
        }
        {
            let open = timer.streams.lock();
            self.streams.retain_mut(|answered| {
                let is_too_wide = open.is_too_wide(answered.id);
                if is_too_wide {
                    // `h2` counts no window in which it has nothing to send
                    answered.stream.send_reset(Reason::FLOW_CONTROL_ERROR);
                }
                let is_open = open.is_open(answered.id);
                if !is_open {
                    // its trailers may have been malformed, which the answer does not change
                    timer.malformed.take(answered.id);
                }
                is_open && !is_too_wide
            });
        }
        while let Some(oldest) = self.streams.front()
            && self.timer.poll_until(oldest.until, cx).is_ready()
        {
            self.streams.pop_front();
        }
    }

    /// Drops all streams.
    pub(super) fn clear(&mut self) {
        self.streams.clear();
    }
}
