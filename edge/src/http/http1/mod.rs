//! One HTTP/1 connection: reads each head whole and in time, writes responses, closes in order.
//!
//! Pingora's own reader has a timeout per read but none for a whole head, keeps its buffers while a
//! client is silent, and closes without reading the bytes in transit, which costs the client the
//! response. In: bytes. Out: a head for the proxy, to which the connection is lent as the request.

mod message;

pub(super) use message::MAX_FIELDS;

use super::errors::ErrorResponder;
use super::peer::Peer;
use super::progress::{Progress, WriteClock, acknowledged};
use super::rendered::Rendered;
use super::waiting::ClientMemory;
use crate::http::context::{ConnectionGuard, DRAIN_KEEPALIVE};
use bytes::{Buf, Bytes, BytesMut};
use http::Version;
use message::{
    BodyReader, CachedHead, Decoded, MAX_CACHED_SIZE, Malformed, ParsedHead, differ_in_length_only,
    end_of_head, parse, start_of_head,
};
use pingora::http::RequestHeader;
use pingora::protocols::Stream;
use portcullis_base::io::{LazyTimer, cold, poll_read_some, within};
use portcullis_filters::verdict::Reason;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::task::yield_now;
use tokio::time::{Instant, timeout};

/// How long to keep reading after an early response, so that the client sees it before the reset
/// (RFC 9112, section 9.6). Repeated while the client uploads [`LINGER_BYTES`] in that time.
const LINGER: Duration = Duration::from_secs(2);
/// 64 KiB: a slower upload is not waited for.
const LINGER_BYTES: usize = 64 << 10;
/// The longest time that a connection lingers.
const LINGER_MAX: Duration = Duration::from_secs(30);
/// 32 MiB: the most that is read while lingering, so that an endless upload ends.
const LINGER_MAX_BYTES: usize = 32 << 20;

/// Bounds of each connection.
#[derive(Debug)]
pub(super) struct Limits {
    /// Bytes of a head.
    pub(super) header_size: usize,
    /// Time from the first byte of a head to its last.
    pub(super) header_timeout: Duration,
    /// For a client that reads nothing, over HTTP/2; over HTTP/1 the app decides.
    pub(super) write_timeout: Duration,
    /// For a client that is silent, after it connected or between two requests.
    pub(super) idle_timeout: Duration,
    /// The idle timeout of a trusted proxy.
    pub(super) proxy_idle_timeout: Duration,
    /// The age at which a connection serves its last request.
    pub(super) lifetime: Duration,
}

impl Limits {
    /// How long this peer may be silent.
    pub(super) fn idle_timeout(&self, peer: &Peer) -> Duration {
        if peer.is_proxy() {
            self.proxy_idle_timeout
        } else {
            self.idle_timeout
        }
    }
}

/// A client's connection over HTTP/1, and the request that is read from it.
pub(super) struct Connection {
    io: Stream,
    peer: Peer,
    limits: Arc<Limits>,
    errors: Arc<dyn ErrorResponder>,
    drain: ConnectionGuard,
    /// When the connection is old: the request that is then current is its last one.
    old_at: Instant,
    /// Armed once and then postponed, so that a request sets no timer of its own.
    idle_timer: LazyTimer,
    /// Bytes after the head: of the body, or of another request.
    buffer: BytesMut,
    /// The last head that was read.
    head: Vec<u8>,
    /// The parsed head, if the previous request had the same one.
    cached: Option<Box<CachedHead>>,
    version: Version,
    body: BodyReader,
    keeps_alive: bool,
    /// Request bytes remain unread: linger before closing.
    lingers: bool,
}

/// Why reading a body ended early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyError {
    /// The client left.
    Gone,
    /// The framing is broken.
    Malformed,
}

/// Why a head was not read.
enum HeadError {
    Gone,
    TooLarge,
}

impl Connection {
    pub(super) fn new(
        io: Stream,
        peer: Peer,
        limits: Arc<Limits>,
        errors: Arc<dyn ErrorResponder>,
        drain: ConnectionGuard,
    ) -> Self {
        let old_at = Instant::now() + limits.lifetime;
        Self {
            io,
            peer,
            limits,
            errors,
            drain,
            old_at,
            idle_timer: LazyTimer::default(),
            buffer: BytesMut::new(),
            head: Vec::new(),
            cached: None,
            version: Version::HTTP_11,
            body: BodyReader::DONE,
            keeps_alive: true,
            lingers: false,
        }
    }

    /// The address at the other end; `None` for a Unix socket.
    pub(super) fn peer(&self) -> Option<IpAddr> {
        self.peer.address
    }

    /// The memory of the client's requests; `None` for a trusted proxy.
    pub(super) fn memory(&self) -> Option<&Arc<ClientMemory>> {
        self.peer.memory.as_ref()
    }

    /// The version of the last request.
    pub(super) fn version(&self) -> Version {
        self.version
    }

    /// The last head as it was received.
    pub(super) fn head(&self) -> &[u8] {
        &self.head
    }

    /// Whether the last head was taken from the cache and will return there, with its extensions.
    pub(super) fn is_head_cached(&self) -> bool {
        self.cached.as_ref().is_some_and(|cached| cached.is_lent())
    }

    /// Whether the connection has reached its lifetime by `now`.
    pub(super) fn is_old(&self, now: Instant) -> bool {
        now >= self.old_at
    }

    /// Whether another request may follow.
    pub(super) fn keeps_alive(&self) -> bool {
        // a pipelined request is not served: the end of a request must not depend on another one
        self.keeps_alive && self.is_input_read()
    }

    fn is_input_read(&self) -> bool {
        self.is_body_read() && self.buffer.is_empty()
    }

    /// Allows no further request.
    pub(super) fn stop_keepalive(&mut self) {
        self.keeps_alive = false;
    }

    /// Allows no further request; bytes that the client still sends are dropped before closing.
    pub(super) fn linger(&mut self) {
        self.lingers = true;
        self.keeps_alive = false;
    }

    /// Waits for the next request and reads its head. `None` when the connection is over; if a head
    /// was refused, its response has been sent.
    ///
    /// No buffer is held for a request before its first byte arrives.
    pub(super) async fn next_head(&mut self) -> Option<Box<RequestHeader>> {
        let mut wait = IdleWait::default();
        if !poll_fn(|cx| self.poll_first_bytes(cx, &mut wait)).await {
            if wait.drains {
                self.peer.ends("the process shuts down");
            } else if wait.until.is_some_and(|until| Instant::now() >= until) {
                self.peer.ends("it was idle for too long");
            }
            cold(self.close()).await;
            return None;
        }
        self.peer.count_request();
        if let Some(cached) = &mut self.cached
            && let Some((header, length)) = cached.take_match(&mut self.buffer)
        {
            self.body = BodyReader::Length(length);
            return Some(header);
        }
        let timeout = self.limits.header_timeout;
        let end = within(timeout, pin!(self.read_rest_of_head())).await;
        let refusal = match end {
            Some(Ok(end)) => match self.take_head(end) {
                Ok(header) => return Some(header),
                Err(reason) => reason,
            },
            Some(Err(HeadError::Gone)) => return None,
            Some(Err(HeadError::TooLarge)) => Reason::HeaderTooLarge,
            None => Reason::RequestTimeout,
        };
        let peer = self.peer();
        cold(self.refuse(refusal, peer)).await;
        None
    }

    /// Waits for the first bytes of a request. Returns false when the client leaves or is silent
    /// for too long; once the process drains, it has at most [`DRAIN_KEEPALIVE`].
    fn poll_first_bytes(&mut self, cx: &mut Context<'_>, wait: &mut IdleWait) -> Poll<bool> {
        if let Poll::Ready(result) = poll_read_some(&mut self.io, cx, &mut self.buffer) {
            return Poll::Ready(result.is_ok_and(|bytes| bytes > 0));
        }
        let until = wait
            .until
            .get_or_insert_with(|| Instant::now() + self.limits.idle_timeout(&self.peer));
        if !wait.drains && self.drain.has_begun() {
            wait.drains = true;
            *until = (*until).min(Instant::now() + DRAIN_KEEPALIVE);
        }
        self.idle_timer.poll_until(*until, cx).map(|()| false)
    }

    /// Reads until the head is whole, and returns where it ends.
    async fn read_rest_of_head(&mut self) -> Result<usize, HeadError> {
        let mut searched = 0;
        loop {
            match end_of_head(&self.buffer, searched) {
                Some(end) if end <= self.limits.header_size => return Ok(end),
                Some(_) => return Err(HeadError::TooLarge),
                None if self.buffer.len() >= self.limits.header_size => {
                    return Err(HeadError::TooLarge);
                }
                // the last bytes may be the start of the end
                None => searched = self.buffer.len().saturating_sub(2),
            }
            match poll_fn(|cx| poll_read_some(&mut self.io, cx, &mut self.buffer)).await {
                Ok(bytes) if bytes > 0 => {}
                _ => return Err(HeadError::Gone),
            }
        }
    }

    /// Parses the head that ends at `end`, and caches it if it was received twice.
    fn take_head(&mut self, end: usize) -> Result<Box<RequestHeader>, Reason> {
        let start = start_of_head(&self.buffer).unwrap_or(0).min(end);
        self.buffer.advance(start);
        let head = self.buffer.split_to(end - start).freeze();
        let came_twice = differ_in_length_only(&self.head, &head);
        self.head.clear();
        self.head.extend_from_slice(&head);
        let ParsedHead {
            header,
            body,
            keeps_alive,
        } = parse(&head)?;
        (self.version, self.body, self.keeps_alive) = (header.version, body, keeps_alive);
        let cached = (came_twice && keeps_alive).then(|| CachedHead::new(&head, &header));
        self.cached = cached.flatten().map(Box::new);
        Ok(header)
    }

    /// The whole body, if it arrived with the head and nothing follows it.
    pub(super) fn take_whole_body(&mut self) -> Option<Bytes> {
        self.body.take_whole(&mut self.buffer)
    }

    /// The next piece of the body; `None` at its end.
    pub(super) async fn read_body(&mut self) -> Result<Option<Bytes>, BodyError> {
        loop {
            match self.body.decode(&mut self.buffer) {
                Ok(Decoded::Piece(piece)) => return Ok(Some(piece)),
                Ok(Decoded::End) => return Ok(None),
                Ok(Decoded::Incomplete) => {}
                Err(Malformed) => return Err(BodyError::Malformed),
            }
            match poll_fn(|cx| poll_read_some(&mut self.io, cx, &mut self.buffer)).await {
                Ok(bytes) if bytes > 0 => {}
                _ => return Err(BodyError::Gone),
            }
        }
    }

    /// Whether the body, or a part of it, did not arrive with the head.
    pub(super) fn waits_for_body(&self) -> bool {
        match self.body {
            BodyReader::Length(length) => length > self.buffer.len() as u64,
            _ => true,
        }
    }

    /// Whether there is no body, or no more of it.
    pub(super) fn is_body_read(&self) -> bool {
        self.body == BodyReader::DONE
    }

    /// Writes all pieces, as long as the client reads them in time.
    pub(super) async fn write(
        &mut self,
        pieces: &mut [Bytes; 3],
        timeout: Duration,
    ) -> io::Result<()> {
        let mut clock = WriteClock::new(timeout);
        poll_fn(|cx| match self.poll_write(cx, pieces) {
            Poll::Ready(written) => Poll::Ready(written),
            Poll::Pending => {
                let Self { io, idle_timer, .. } = self;
                let progress = || Progress {
                    acknowledged: acknowledged(io.get_socket_digest().as_deref()),
                    left: pieces.iter().map(Bytes::len).sum(),
                };
                let given_up = clock.poll(cx, idle_timer, progress);
                given_up.map(|()| Err(io::ErrorKind::TimedOut.into()))
            }
        })
        .await
    }

    fn poll_write(
        &mut self,
        cx: &mut Context<'_>,
        pieces: &mut [Bytes; 3],
    ) -> Poll<io::Result<()>> {
        while pieces.iter().any(|piece| !piece.is_empty()) {
            let mut sent = ready!(match &*pieces {
                // most responses are one piece, for which the kernel does less
                [piece, second, third] if second.is_empty() && third.is_empty() => {
                    Pin::new(&mut self.io).poll_write(cx, piece)
                }
                pieces => {
                    let slices = pieces.each_ref().map(|piece| IoSlice::new(piece));
                    Pin::new(&mut self.io).poll_write_vectored(cx, &slices)
                }
            })?;
            if sent == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            for piece in &mut *pieces {
                let of_this = sent.min(piece.len());
                piece.advance(of_this);
                sent -= of_this;
            }
        }
        Pin::new(&mut self.io).poll_flush(cx)
    }

    /// Finishes a request; returns whether the connection stays open. `header` is the request's
    /// head, if Pingora returned it.
    pub(super) async fn finish(&mut self, header: Option<Box<RequestHeader>>) -> bool {
        if !self.keeps_alive() {
            // more of the request may be in transit, and a reset would cost the client the response
            self.lingers |= !self.is_input_read();
            self.peer.ends("no other request may follow the last one");
            drop(header);
            self.free();
            cold(self.close()).await;
            return false;
        }
        if let (Some(cached), Some(header)) = (&mut self.cached, header) {
            cached.give_back(header);
        }
        self.buffer = BytesMut::new();
        if self.head.len() > MAX_CACHED_SIZE {
            // a head of this size is not cached, and an idle connection holds no buffer
            self.head = Vec::new();
        }
        true
    }

    /// Frees the buffers of the last request, because the client decides how long closing takes.
    fn free(&mut self) {
        (self.head, self.buffer, self.cached) = (Vec::new(), BytesMut::new(), None);
    }

    /// Refuses the request of this client, and closes.
    pub(super) async fn refuse(&mut self, reason: Reason, client: Option<IpAddr>) {
        self.lingers = true;
        self.peer.ends("its request head was refused");
        self.free();
        let response = self.errors.respond(reason, client, Version::HTTP_11);
        if let Rendered::Http1(mut pieces) = response {
            // a client that is gone reads nothing, and the connection closes either way
            let _ = timeout(LINGER, self.write(&mut pieces, LINGER)).await;
        }
        self.close().await;
    }

    /// Closes in order, so that the client sees the end. Lingers first if request bytes are unread.
    async fn close(&mut self) {
        let close = async {
            if self.lingers {
                self.drop_input().await;
            }
            let _ = self.io.shutdown().await;
        };
        // over TLS the end itself may have to wait for the client
        let _ = within(LINGER_MAX + LINGER, pin!(close)).await;
    }

    /// Ends the output, then reads and drops while the client uploads fast enough.
    async fn drop_input(&mut self) {
        let _ = timeout(LINGER, self.io.shutdown()).await;
        let end = Instant::now() + LINGER_MAX;
        let mut dropped = 0;
        loop {
            let before = dropped;
            let upload = async {
                while dropped < LINGER_MAX_BYTES {
                    self.buffer.clear();
                    match poll_fn(|cx| poll_read_some(&mut self.io, cx, &mut self.buffer)).await {
                        Ok(bytes) if bytes > 0 => dropped += bytes,
                        _ => return,
                    }
                    // an upload at full speed would delay other requests
                    yield_now().await;
                }
            };
            let is_over = timeout(LINGER, upload).await.is_ok() || Instant::now() >= end;
            if is_over || dropped - before < LINGER_BYTES || self.drain.has_begun() {
                return;
            }
        }
    }
}

/// A wait for the first bytes of a request.
#[derive(Default)]
struct IdleWait {
    /// The deadline; `None` until the first read is pending.
    until: Option<Instant>,
    /// The deadline was shortened because the process drains.
    drains: bool,
}
