//! Deadlines for the bytes of an HTTP/2 connection, in both directions.
//!
//! The `h2` crate has no clock. [`TimedIo`] fails when the client reads nothing for too long, and
//! when a head is not completed in time. For that it follows the frames that pass (`frames`). It
//! passes on few heads at once, because `h2` decodes all of them before it returns the first. It
//! passes on only whole heads: the others wait here, in the client's share.

use super::bounds::{Bounds, largest_block};
use super::frames::{Frames, Passed};
use super::heads::Malformed;
use super::open_streams::OpenStreams;
use super::pace::Pace;
use super::refusals::Refusals;
use crate::http::http1::Limits;
use crate::http::progress::{Progress, WriteClock, acknowledged};
use crate::http::waiting::ClientPermit;
use bytes::{Bytes, BytesMut};
use parking_lot::Mutex;
use pingora::protocols::SocketDigest;
use portcullis_base::io::{Exhausted, LazyTimer};
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

/// Bytes that `h2` gets in one turn of the connection's task. Without this bound, the runtime ends
/// a turn only after 128 reads, which may be megabytes, and polls the input of others only after
/// dozens of turns.
const TURN: usize = 16 << 10;
/// Bytes of a turn that a request counts as, because it costs more than reading it.
const OF_A_REQUEST: usize = 1 << 10;
/// The state of a timed stream. Shared, because `h2` owns the stream and gives no access to it.
#[derive(Debug)]
pub(super) struct FrameTimer {
    /// Written bytes wait, because the client does not read.
    pub(super) is_stuck: AtomicBool,
    /// The stream failed because a head arrived too slowly.
    pub(super) head_was_late: AtomicBool,
    /// An unfinished head does not fit the client's share; nothing more is read.
    pub(super) is_over_share: AtomicBool,
    /// The streams that `h2` would serve although they are malformed.
    pub(super) malformed: Malformed,
    /// The streams that the client has not ended. Only the connection's task locks them.
    pub(super) streams: Mutex<OpenStreams>,
    /// Requests whose heads `h2` has got.
    pub(super) requests: AtomicUsize,
    /// Streams that were refused, by `h2` or by us.
    pub(super) refused: AtomicUsize,
    /// Heads that `h2` may still get in this round.
    room: AtomicUsize,
    /// Bytes that `h2` may still get in this turn.
    turn: AtomicUsize,
    /// Heads that `h2` gets in a round.
    heads_at_once: usize,
    /// `None` for a Unix socket.
    pub(super) socket: Option<Arc<SocketDigest>>,
}

impl FrameTimer {
    fn new(socket: Option<Arc<SocketDigest>>, heads_at_once: usize) -> Self {
        Self {
            is_stuck: AtomicBool::new(false),
            head_was_late: AtomicBool::new(false),
            is_over_share: AtomicBool::new(false),
            malformed: Malformed::default(),
            streams: Mutex::default(),
            requests: AtomicUsize::new(0),
            refused: AtomicUsize::new(0),
            room: AtomicUsize::new(heads_at_once),
            turn: AtomicUsize::new(TURN),
            heads_at_once,
            socket,
        }
    }

    /// Starts a turn of the connection's task, and allows it [`TURN`] again.
    pub(super) fn start_turn(&self) {
        self.turn.store(TURN, Ordering::Relaxed);
    }

    /// Whether the connection has to end: nothing more is read.
    pub(super) fn must_end(&self) -> bool {
        self.is_over_share.load(Ordering::Relaxed) || self.streams.lock().has_fault
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
    bytes_at_once: usize,
    header_timeout: Duration,
    write_timeout: Duration,
    frames: Frames,
    pace: Pace,
    pace_alarm: LazyTimer,
    refusals: Refusals,
    /// Bytes that were followed and not yet passed on.
    ready: Bytes,
    /// Bytes that were read after the last head of a round.
    held: BytesMut,
    /// The memory of an unfinished head; `None` for a trusted proxy, which sends whole ones.
    unfinished: Option<ClientPermit>,
    /// Since when a frame other than DATA is incomplete.
    partial_since: Option<Instant>,
    read_alarm: LazyTimer,
    /// Runs while the client reads nothing.
    write_clock: Option<WriteClock>,
    write_alarm: LazyTimer,
}

impl<S> TimedIo<S> {
    /// Wraps `inner`, with the timeouts of `limits`; `socket` shows what the client has read. The
    /// `bounds` limit the bytes that are read at once, and the heads that `h2` gets in a round.
    pub(super) fn new(
        inner: S,
        socket: Option<Arc<SocketDigest>>,
        limits: &Limits,
        bounds: Bounds,
        pace: Pace,
        unfinished: Option<ClientPermit>,
    ) -> (Self, Arc<FrameTimer>) {
        let timer = Arc::new(FrameTimer::new(socket, bounds.heads_at_once()));
        let io = Self {
            inner,
            timer: Arc::clone(&timer),
            bytes_at_once: bounds.bytes_at_once(),
            header_timeout: limits.header_timeout,
            write_timeout: limits.write_timeout,
            frames: Frames::new(largest_block(limits.header_size)),
            pace,
            pace_alarm: LazyTimer::default(),
            refusals: Refusals::default(),
            ready: Bytes::new(),
            held: BytesMut::new(),
            unfinished,
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
            // its first poll lets other tasks and the driver run before it wakes this one
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
        self.timer.turn.store(
            left.saturating_sub(bytes + begun * OF_A_REQUEST),
            Ordering::Relaxed,
        );
        self.pace.add_requests(begun);
        self.pace.spend(mem::take(&mut self.frames.without_content));
        self.pace.spend_reset(mem::take(&mut self.frames.resets));
    }

    /// Follows the written bytes, and counts refused streams.
    fn follow(&mut self, bytes: &[u8]) {
        self.pace.add_written(bytes.len());
        self.refusals.pass(bytes);
        let before = self
            .timer
            .refused
            .swap(self.refusals.count, Ordering::Relaxed);
        self.pace.spend_refused(self.refusals.count - before);
    }

    /// Returns the result of a write or a flush, or an error after too long without progress.
    fn written<T>(
        &mut self,
        cx: &mut Context<'_>,
        written: Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        self.timer
            .is_stuck
            .store(written.is_pending(), Ordering::Relaxed);
        if written.is_ready() {
            self.write_clock = None;
            return written;
        }
        let clock = self
            .write_clock
            .get_or_insert_with(|| WriteClock::new(self.write_timeout));
        // the number of bytes left is not known here, but it has not changed
        let socket = self.timer.socket.as_deref();
        let progress = || Progress {
            acknowledged: acknowledged(socket),
            left: 0,
        };
        let given_up = clock.poll(cx, &mut self.write_alarm, progress);
        given_up.map(|()| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> TimedIo<S> {
    /// Reads from the held bytes, or else from the client.
    fn poll_bytes(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.held.is_empty() {
            let room = self.bytes_at_once.min(buf.remaining());
            if room == buf.remaining() {
                return Pin::new(&mut self.inner).poll_read(cx, buf);
            }
            let mut part = ReadBuf::new(buf.initialize_unfilled_to(room));
            let read = Pin::new(&mut self.inner).poll_read(cx, &mut part);
            let length = part.filled().len();
            buf.advance(length);
            return read;
        }
        let bytes = self.held.split_to(self.held.len().min(buf.remaining()));
        buf.put_slice(&bytes);
        if self.held.is_empty() {
            // most connections never hold anything
            self.held = BytesMut::new();
        }
        Poll::Ready(Ok(()))
    }

    /// Reads until `h2` gets some bytes, or the client has sent no more.
    fn poll_frames(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        loop {
            if !self.ready.is_empty() {
                self.pass_on(buf);
                return Poll::Ready(Ok(()));
            }
            if self.timer.must_end() {
                return Poll::Pending;
            }
            if self.frames.are_broken {
                // `h2` had the chance to report the error
                return Poll::Ready(Err(io::ErrorKind::InvalidData.into()));
            }
            if self.timer.room.load(Ordering::Relaxed) == 0 {
                // the connection reads on once it has accepted these heads
                return Poll::Pending;
            }
            ready!(self.poll_turn(cx));
            if self.poll_bytes(cx, buf)?.is_pending() {
                return self.poll_late(cx);
            }
            if buf.filled().len() == before {
                return Poll::Ready(Ok(()));
            }
            self.follow_read(buf, before);
            if self.count_unfinished().is_err() {
                self.timer.is_over_share.store(true, Ordering::Relaxed);
                return Poll::Pending;
            }
            if buf.filled().len() > before {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// Fails when a frame other than DATA is not complete in time.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(since) = self.partial_since else {
            return Poll::Pending;
        };
        self.read_alarm
            .poll_until(since + self.header_timeout, cx)
            .map(|()| {
                self.timer.head_was_late.store(true, Ordering::Relaxed);
                Err(io::ErrorKind::TimedOut.into())
            })
    }

    /// Passes on what is ready, as far as it fits.
    fn pass_on(&mut self, buf: &mut ReadBuf<'_>) {
        buf.put_slice(&self.ready.split_to(self.ready.len().min(buf.remaining())));
        if self.ready.is_empty() {
            self.ready = Bytes::new();
            // less always fits
            let _ = self.count_unfinished();
        }
    }

    /// Charges the waiting bytes to the client.
    fn count_unfinished(&mut self) -> Result<(), Exhausted> {
        let waits = self.frames.waiting() + self.ready.len();
        self.unfinished
            .as_mut()
            .map_or(Ok(()), |permit| permit.resize(waits))
    }

    /// Follows the bytes that were read after `before`, and leaves in `buf` those that `h2` gets at
    /// once.
    fn follow_read(&mut self, buf: &mut ReadBuf<'_>, before: usize) {
        let bytes = buf.filled().get(before..).unwrap_or_default();
        let mut room = self.timer.room.load(Ordering::Relaxed);
        let Passed {
            length,
            whole,
            earlier,
            another,
        } = self.frames.pass(
            bytes,
            &mut room,
            &self.timer.malformed,
            &mut self.timer.streams.lock(),
        );
        if let Some(rest) = bytes.get(length..).filter(|rest| !rest.is_empty()) {
            let held = mem::replace(&mut self.held, BytesMut::from(rest));
            self.held.unsplit(held);
        }
        buf.set_filled(if earlier.is_empty() {
            before + whole
        } else {
            before
        });
        debug_assert!(self.ready.is_empty(), "what is ready is passed on first");
        self.ready = Bytes::from(earlier);
        self.timer.room.store(room, Ordering::Relaxed);
        self.count(length);
        if another || self.frames.are_whole() {
            self.partial_since = None;
        }
        if !self.frames.are_whole() {
            self.partial_since.get_or_insert_with(Instant::now);
        }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for TimedIo<S> {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        self.get_mut().poll_frames(cx, buf)
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
