//! How slowly the bytes of an HTTP/2 connection may come and go.
//!
//! The `h2` crate has no clock. [`TimedIo`] fails when the client takes nothing of what is written
//! for too long, and when a head is started and not completed in time. For that it follows the
//! frames that pass (RFC 9113, section 4.1): their lengths, and in `heads` what they start. It
//! passes few heads at a time, because `h2` decodes all that it gets before it passes on any.

use super::heads::{END_HEADERS, Heads, Malformed};
use super::pace::Pace;
use super::refusals::Refusals;
use crate::http::progress::{Progress, WriteClock, acknowledged};
use crate::io::LazyTimer;
use bytes::BytesMut;
use pingora::protocols::SocketDigest;
use std::io::{self, IoSlice};
use std::mem;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::yield_now;
use tokio::time::Instant;

/// The client's preface, before its first frame; RFC 9113, section 3.4.
const PREFACE: usize = 24;
/// Bytes that `h2` gets in one turn of the connection's task. The runtime ends a turn after 128
/// reads only, which may be megabytes, and sees the input of others after dozens of turns.
const TURN: usize = 16 << 10;
/// A request counts as this many bytes of a connection's turn: it costs more than to read it.
const OF_A_REQUEST: usize = 1 << 10;
/// The head of a frame.
const FRAME_HEAD: usize = 9;
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const CONTINUATION: u8 = 9;

/// The state of a timed stream. Shared, because `h2` owns the stream and gives no access to it.
#[derive(Debug)]
pub(super) struct FrameTimer {
    /// Bytes wait that the client does not take.
    pub(super) is_stuck: AtomicBool,
    /// The stream failed because a head arrived too slowly.
    pub(super) head_was_late: AtomicBool,
    /// The streams that `h2` would serve although they are malformed.
    pub(super) malformed: Malformed,
    /// Requests whose heads `h2` has got.
    pub(super) requests: AtomicUsize,
    /// Streams that were refused, by `h2` or by us.
    pub(super) refused: AtomicUsize,
    /// Heads that `h2` may still get in this round.
    room: AtomicUsize,
    /// Bytes that `h2` may still get in this turn.
    turn: AtomicUsize,
    /// Heads of a round.
    heads_at_once: usize,
    /// `None` for a Unix socket.
    pub(super) socket: Option<Arc<SocketDigest>>,
}

impl FrameTimer {
    fn new(socket: Option<Arc<SocketDigest>>, heads_at_once: usize) -> Self {
        Self {
            is_stuck: AtomicBool::new(false),
            head_was_late: AtomicBool::new(false),
            malformed: Malformed::default(),
            requests: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            room: AtomicUsize::new(heads_at_once),
            turn: AtomicUsize::new(TURN),
            heads_at_once,
            socket,
        }
    }

    /// Starts another turn: the task of the connection runs.
    pub(super) fn start_turn(&self) {
        self.turn.store(TURN, Ordering::Relaxed);
    }

    /// Starts another round once the requests of the last one are accepted; returns whether heads
    /// may wait for it.
    pub(super) fn resume(&self) -> bool {
        self.room.swap(self.heads_at_once, Ordering::Relaxed) == 0
    }
}

/// A stream whose frames have deadlines.
pub(super) struct TimedIo<S> {
    inner: S,
    timer: Arc<FrameTimer>,
    header_timeout: Duration,
    write_timeout: Duration,
    frames: Frames,
    pace: Pace,
    pace_alarm: LazyTimer,
    refusals: Refusals,
    /// Bytes that were read behind the last head of a round.
    held: BytesMut,
    /// Since when a frame other than DATA is incomplete.
    partial_since: Option<Instant>,
    read_alarm: LazyTimer,
    /// Runs while the client takes nothing.
    write_clock: Option<WriteClock>,
    write_alarm: LazyTimer,
}

impl<S> TimedIo<S> {
    /// Over this `socket`. The times are for a head, and for some of what is written; `max_block`
    /// bounds a header block, and `h2` gets `heads_at_once`.
    pub(super) fn new(
        inner: S,
        socket: Option<Arc<SocketDigest>>,
        (header_timeout, write_timeout): (Duration, Duration),
        max_block: usize,
        heads_at_once: usize,
        pace: Pace,
    ) -> (Self, Arc<FrameTimer>) {
        let timer = Arc::new(FrameTimer::new(socket, heads_at_once));
        let io = Self {
            inner,
            timer: Arc::clone(&timer),
            header_timeout,
            write_timeout,
            frames: Frames::new(max_block),
            pace,
            pace_alarm: LazyTimer::default(),
            refusals: Refusals::default(),
            held: BytesMut::new(),
            partial_since: None,
            read_alarm: LazyTimer::default(),
            write_clock: None,
            write_alarm: LazyTimer::default(),
        };
        (io, timer)
    }

    /// Ready when it is this connection's turn, and the client has not sent too many frames.
    fn poll_turn(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.timer.turn.load(Ordering::Relaxed) == 0 {
            // the first poll of it has others run, and the driver, before it wakes this task
            return pin!(yield_now()).poll(cx);
        }
        while !self.pace.is_open() {
            let opens_at = self.pace.opens_at(Instant::now());
            ready!(self.pace_alarm.poll_until(opens_at, cx));
        }
        Poll::Ready(())
    }

    /// Counts bytes that were read, and the frames in them.
    fn count(&mut self, bytes: usize) {
        let requests = self.frames.heads.requests;
        let begun = requests - self.timer.requests.swap(requests, Ordering::Relaxed);
        let left = self.timer.turn.load(Ordering::Relaxed);
        self.timer.turn.store(left.saturating_sub(bytes + begun * OF_A_REQUEST), Ordering::Relaxed);
        self.pace.add_requests(begun);
        self.pace.spend(mem::take(&mut self.frames.without_content));
        self.pace.spend_reset(mem::take(&mut self.frames.resets));
    }

    /// Follows what was written.
    fn follow(&mut self, bytes: &[u8]) {
        self.pace.add_written(bytes.len());
        self.refusals.pass(bytes);
        let before = self.timer.refused.swap(self.refusals.count, Ordering::Relaxed);
        self.pace.spend_refused(self.refusals.count - before);
    }

    /// The result of a write or a flush; an error when none has made progress for too long.
    fn written<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.timer.is_stuck.store(written.is_pending(), Ordering::Relaxed);
        if written.is_ready() {
            self.write_clock = None;
            return written;
        }
        let clock = self.write_clock.get_or_insert_with(|| WriteClock::new(self.write_timeout));
        // how much is left is not known here, only that it is as much as before
        let socket = self.timer.socket.as_deref();
        let progress = || Progress { acknowledged: acknowledged(socket), left: 0 };
        let given_up = clock.poll(cx, &mut self.write_alarm, progress);
        given_up.map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> TimedIo<S> {
    /// Reads from what is held, or else from the client.
    fn poll_bytes(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.held.is_empty() {
            return Pin::new(&mut self.inner).poll_read(cx, buf);
        }
        let bytes = self.held.split_to(self.held.len().min(buf.remaining()));
        buf.put_slice(&bytes);
        if self.held.is_empty() {
            // most connections never hold anything
            self.held = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedIo<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.frames.are_broken {
            // `h2` has had its chance to say why
            return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
        }
        let mut room = this.timer.room.load(Ordering::Relaxed);
        if room == 0 {
            // the connection goes on once it has accepted these
            return Poll::Pending;
        }
        ready!(this.poll_turn(cx));
        let before = buf.filled().len();
        let read = this.poll_bytes(cx, buf);
        if read.is_ready() {
            let bytes = buf.filled().get(before..).unwrap_or_default();
            let Passed { length, another } =
                this.frames.pass(bytes, &mut room, &this.timer.malformed);
            if let Some(rest) = bytes.get(length..).filter(|rest| !rest.is_empty()) {
                let held = std::mem::replace(&mut this.held, BytesMut::from(rest));
                this.held.unsplit(held);
                buf.set_filled(before + length);
            }
            this.timer.room.store(room, Ordering::Relaxed);
            this.count(length);
            if another || this.frames.are_whole() {
                this.partial_since = None;
            }
            if !this.frames.are_whole() {
                this.partial_since.get_or_insert_with(Instant::now);
            }
            return read;
        }
        let Some(since) = this.partial_since else { return Poll::Pending };
        this.read_alarm.poll_until(since + this.header_timeout, cx).map(|()| {
            this.timer.head_was_late.store(true, Ordering::Relaxed);
            Err(io::ErrorKind::TimedOut.into())
        })
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for TimedIo<S> {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write(cx, data);
        if let Poll::Ready(Ok(length)) = written {
            this.follow(&data[..length]);
        }
        this.written(cx, written)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let written = Pin::new(&mut this.inner).poll_write_vectored(cx, pieces);
        if let Poll::Ready(Ok(mut length)) = written {
            for piece in pieces {
                let of_this = length.min(piece.len());
                this.follow(&piece[..of_this]);
                length -= of_this;
            }
        }
        this.written(cx, written)
    }

    fn is_write_vectored(&self) -> bool {
        self.inner.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.inner).poll_flush(cx);
        this.written(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.inner).poll_shutdown(cx);
        this.written(cx, shut)
    }
}

/// How far frames were followed.
struct Passed {
    length: usize,
    /// One frame was complete, and another has started.
    another: bool,
}

/// The position in the client's frames.
#[derive(Debug)]
struct Frames {
    /// Bytes left of the preface, or of the frame whose head has passed.
    left: usize,
    /// Whether these bytes are content.
    is_content: bool,
    head: [u8; FRAME_HEAD],
    /// Bytes of `head` that have passed.
    passed: usize,
    /// A request head is started and not completed.
    in_headers: bool,
    /// The current frame has a header block.
    has_block: bool,
    heads: Heads,
    /// Frames that have neither a head nor content, for [`Pace`].
    without_content: usize,
    /// RST_STREAM among them.
    resets: usize,
    /// Its header blocks cannot be followed.
    are_broken: bool,
}

impl Frames {
    fn new(max_block: usize) -> Self {
        Self {
            left: PREFACE,
            is_content: false,
            head: [0; FRAME_HEAD],
            passed: 0,
            in_headers: false,
            has_block: false,
            heads: Heads::new(max_block),
            without_content: 0,
            resets: 0,
            are_broken: false,
        }
    }

    /// Follows `bytes` to their end, or to that of the last head for which there is `room`.
    fn pass(&mut self, all: &[u8], room: &mut usize, malformed: &Malformed) -> Passed {
        let (mut bytes, mut another) = (all, false);
        while let Some((first, rest)) = bytes.split_first().filter(|_| *room > 0) {
            another |= self.are_whole();
            let requests = self.heads.requests;
            if self.left > 0 {
                let (of_this, rest) = bytes.split_at(self.left.min(bytes.len()));
                self.left -= of_this.len();
                bytes = rest;
                if self.has_block && !self.are_broken {
                    self.are_broken = self.heads.pass(of_this).is_none();
                    self.end_block(malformed);
                }
                *room -= (self.heads.requests - requests).min(*room);
                continue;
            }
            bytes = rest;
            if let Some(byte) = self.head.get_mut(self.passed) {
                *byte = *first;
            }
            self.passed += 1;
            if self.passed == FRAME_HEAD {
                self.start_frame();
                self.end_block(malformed);
                *room -= (self.heads.requests - requests).min(*room);
            }
        }
        Passed { length: all.len() - bytes.len(), another }
    }

    /// If the current frame has a block and is complete, looks at it.
    fn end_block(&mut self, malformed: &Malformed) {
        if self.has_block && self.left == 0 && !self.are_broken {
            self.are_broken = self.heads.end_frame(malformed).is_none();
        }
    }

    fn start_frame(&mut self) {
        let [high, middle, low, kind, flags, stream @ ..] = self.head;
        self.passed = 0;
        self.left = usize::from(high) << 16 | usize::from(middle) << 8 | usize::from(low);
        self.is_content = kind == DATA;
        self.has_block = matches!(kind, HEADERS | CONTINUATION);
        if self.has_block {
            self.in_headers = flags & END_HEADERS == 0;
        }
        let has_content = self.has_block || (self.is_content && self.left > 0);
        self.without_content += usize::from(!has_content);
        self.resets += usize::from(kind == RST_STREAM);
        match kind {
            HEADERS => self.heads.start(flags, u32::from_be_bytes(stream)),
            CONTINUATION => self.heads.resume(flags),
            _ => {}
        }
    }

    /// Whether nothing is incomplete except DATA, which the deadline of the body covers.
    fn are_whole(&self) -> bool {
        let is_whole = self.passed == 0 && (self.left == 0 || self.is_content);
        is_whole && !self.in_headers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(kind: u8, flags: u8, length: usize) -> Vec<u8> {
        let [.., high, middle, low] = length.to_be_bytes();
        let mut bytes = vec![high, middle, low, kind, flags, 0, 0, 0, 1];
        bytes.resize(FRAME_HEAD + length, b'x');
        bytes
    }

    fn whole_after(bytes: &[u8], step: usize) -> bool {
        let mut frames = after_the_preface();
        for piece in bytes.chunks(step) {
            frames.pass(piece, &mut 99, &Malformed::default());
        }
        frames.are_whole()
    }

    fn after_the_preface() -> Frames {
        let mut frames = Frames::new(1 << 20);
        frames.pass(&[b'p'; PREFACE], &mut 1, &Malformed::default());
        frames
    }

    #[test]
    fn a_head_ends_with_its_last_frame() {
        let settings = frame(4, 0, 30);
        let one = frame(HEADERS, END_HEADERS | 1, 70_000);
        let (begun, ended) = (frame(HEADERS, 0, 5), frame(CONTINUATION, END_HEADERS, 300));
        let (data, part) = (frame(DATA, 0, 900), [frame(DATA, 0, 900), one.clone()].concat());
        for (bytes, is_whole) in [
            (Vec::new(), true),
            (settings.clone(), true),
            (settings[..12].to_vec(), false),
            (one.clone(), true),
            (one[..one.len() - 1].to_vec(), false),
            (one[..3].to_vec(), false),
            (begun.clone(), false),
            ([begun.clone(), ended.clone()].concat(), true),
            ([begun.clone(), ended[..9].to_vec()].concat(), false),
            ([settings, begun, ended, data.clone()].concat(), true),
            // a body has a deadline of its own
            (data[..100].to_vec(), true),
            (part[..915].to_vec(), false),
            (part, true),
        ] {
            for step in [1, 7, 4096, 1 << 20] {
                let length = bytes.len();
                assert_eq!(whole_after(&bytes, step), is_whole, "{length} bytes by {step}");
            }
        }
    }

    #[test]
    fn each_head_has_its_own_time() {
        let mut frames = after_the_preface();
        let head = frame(HEADERS, END_HEADERS, 50);
        let (start, end) = head.split_at(20);
        let mut pass = |bytes: &[u8]| frames.pass(bytes, &mut 99, &Malformed::default()).another;
        assert!(pass(start), "one begins");
        assert!(!pass(end), "it ends, and no other begins");
        assert!(pass(start));
        assert!(!pass(&end[..10]), "it goes on");
        assert!(pass(&[&end[10..], start].concat()), "it ends, and another begins");
    }

    #[test]
    fn the_preface_is_timed_like_a_head() {
        assert!(!Frames::new(0).are_whole(), "a silent client has sent no preface");
        assert!(after_the_preface().are_whole());
    }
}
