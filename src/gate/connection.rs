//! One client connection, as Pingora sees it: a stream that watches over the heads read from it.

use super::Voice;
use async_trait::async_trait;
use bytes::{Buf, Bytes};
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID, UniqueIDType,
};
use portcullis_filters::verdict::Reason;
use std::fmt;
use std::io;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::{Instant, Sleep};

/// A client that is told off while it still sends gets this long to read it; RFC 9112, section 9.6.
const LINGER: Duration = Duration::from_secs(2);
/// And this much more of what it sends is taken in meanwhile, and dropped.
const LINGER_BYTES: usize = 1 << 20;

/// Pingora reads no head of more fields.
const PINGORA_FIELDS: usize = 256;

/// Bounds of each connection.
#[derive(Debug)]
pub struct Limits {
    /// Bytes of a head.
    pub header_size: usize,
    /// From the first byte of a head to its last.
    pub header_timeout: Duration,
    /// A client that connects and says nothing; between requests Pingora keeps this time.
    pub idle_timeout: Duration,
    /// The age at which a connection serves its last request.
    pub lifetime: Duration,
}

/// Nothing has come yet.
const NEW: u8 = 0;
/// Between requests: whatever comes next begins a head.
const IDLE: u8 = 1;
/// A head has begun and no filter has seen it.
const HEAD: u8 = 2;
/// A filter has the request: its body and its answer pass untouched.
const OPEN: u8 = 3;
/// The head was refused: our words go out, and nothing else.
const REFUSED: u8 = 4;

/// A client's stream.
pub struct Connection {
    inner: Stream,
    peer: Option<IpAddr>,
    limits: Arc<Limits>,
    voice: Arc<dyn Voice>,
    born: Instant,
    phase: AtomicU8,
    /// Bytes are on their way that nobody will read.
    lingers: AtomicBool,
    /// The head so far, while it is read.
    head: Vec<u8>,
    alarm: Option<Pin<Box<Sleep>>>,
    /// What goes out with the next flush.
    outbox: Mutex<[Bytes; 3]>,
}

/// The connection under a session, if it came through a gate.
pub fn opened(session: &ServerSession) -> Option<&Connection> {
    let stream = session.as_http1()?.stream();
    (**stream).as_any().downcast_ref()
}

impl Connection {
    pub(super) fn new(
        inner: Stream,
        peer: Option<IpAddr>,
        limits: Arc<Limits>,
        voice: Arc<dyn Voice>,
    ) -> Self {
        Self {
            inner,
            peer,
            limits,
            voice,
            born: Instant::now(),
            phase: AtomicU8::new(NEW),
            lingers: AtomicBool::new(false),
            head: Vec::new(),
            alarm: None,
            outbox: Mutex::default(),
        }
    }

    /// The address at the other end; `None` for a Unix socket.
    pub fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// A filter has the head: its clock stops.
    pub fn head_is_read(&self) {
        self.phase.store(OPEN, Ordering::Relaxed);
    }

    /// Puts a whole answer, in pieces, where the next flush sends it from. Pingora's own way of
    /// writing an answer would build a header map for it, and write twice.
    pub fn answer(&self, pieces: [Bytes; 3]) {
        *self.outbox.lock().unwrap_or_else(PoisonError::into_inner) = pieces;
    }

    /// The request is over: the next byte begins a head.
    pub fn request_is_over(&self) {
        self.phase.store(IDLE, Ordering::Relaxed);
    }

    /// The client is still sending what nobody reads: take some of it in when the connection is
    /// closed, so that the answer is not lost with it.
    pub fn linger(&self) {
        self.lingers.store(true, Ordering::Relaxed);
    }

    /// Whether the connection has served long enough by `now`.
    pub fn is_old(&self, now: Instant) -> bool {
        now.duration_since(self.born) >= self.limits.lifetime
    }

    fn phase(&self) -> u8 {
        self.phase.load(Ordering::Relaxed)
    }

    /// Notes what was read while a head is awaited.
    fn note(&mut self, read: &[u8]) {
        if matches!(self.phase(), NEW | IDLE) && !read.is_empty() {
            self.phase.store(HEAD, Ordering::Relaxed);
            self.head.clear();
            self.alarm = None;
        }
        // a body may follow in the same read: what a head may be is enough to tell what it was
        let room = self.limits.header_size.saturating_sub(self.head.len());
        self.head.extend_from_slice(&read[..read.len().min(room)]);
    }

    fn refuse(&mut self, reason: Reason) {
        self.phase.store(REFUSED, Ordering::Relaxed);
        self.lingers.store(true, Ordering::Relaxed);
        self.answer(self.voice.refuse(reason, self.peer));
    }

    fn poll_noted(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = ready!(Pin::new(&mut self.inner).poll_read(cx, buf));
        self.note(buf.filled().get(before..).unwrap_or_default());
        Poll::Ready(result)
    }

    /// A read, or `None` when `limit` has passed since the first of these waited. What comes in one
    /// piece, as nearly all heads do, sets no alarm.
    fn poll_within(
        &mut self,
        limit: Duration,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<Option<io::Result<()>>> {
        if let Poll::Ready(result) = self.poll_noted(cx, buf) {
            return Poll::Ready(Some(result));
        }
        let alarm = self.alarm.get_or_insert_with(|| Box::pin(tokio::time::sleep(limit)));
        alarm.as_mut().poll(cx).map(|()| None)
    }

    /// The first bytes in time, or the end of the stream.
    fn poll_first(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let read = ready!(self.poll_within(self.limits.idle_timeout, cx, buf));
        Poll::Ready(read.unwrap_or(Ok(())))
    }

    /// Reads of a head in time and size, or the end of the stream.
    fn poll_head(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.head.len() >= self.limits.header_size {
            self.refuse(Reason::HeaderTooLarge);
            return self.poll_outbox(cx);
        }
        match ready!(self.poll_within(self.limits.header_timeout, cx, buf)) {
            Some(result) => Poll::Ready(result),
            None => {
                self.refuse(Reason::RequestTimeout);
                self.poll_outbox(cx)
            }
        }
    }

    /// Sends what is in the outbox.
    fn poll_outbox(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let pieces = self.outbox.get_mut().unwrap_or_else(PoisonError::into_inner);
        for piece in pieces {
            while !piece.is_empty() {
                let sent = ready!(Pin::new(&mut self.inner).poll_write(cx, piece))?;
                if sent == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                piece.advance(sent);
            }
        }
        Pin::new(&mut self.inner).poll_flush(cx)
    }
}

/// Why Pingora refused a head by itself: it answers 405 to CONNECT and 400 to anything malformed.
fn refusal_of(head: &[u8]) -> Reason {
    if head.starts_with(b"CONNECT ") {
        return Reason::WrongHttpMethod;
    }
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    let fields = lines.take_while(|line| !line.trim_ascii().is_empty());
    let (mut count, mut lengths) = (0, 0);
    for line in fields {
        count += 1;
        let mut parts = line.splitn(2, |byte| *byte == b':');
        let name = parts.next().unwrap_or_default().trim_ascii();
        let value = parts.next().unwrap_or_default().trim_ascii();
        if name.eq_ignore_ascii_case(b"transfer-encoding") {
            return Reason::ConflictingFraming;
        }
        if name.eq_ignore_ascii_case(b"content-length") {
            lengths += 1;
            if lengths > 1 || value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
                return Reason::ConflictingFraming;
            }
        }
    }
    if count > PINGORA_FIELDS {
        return Reason::HeaderTooLarge;
    }
    Reason::InvalidRequest
}

impl AsyncRead for Connection {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        match this.phase() {
            OPEN => Pin::new(&mut this.inner).poll_read(cx, buf),
            HEAD => this.poll_head(cx, buf),
            REFUSED => this.poll_outbox(cx),
            NEW => this.poll_first(cx, buf),
            _ => this.poll_noted(cx, buf),
        }
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        if this.phase() == HEAD {
            this.refuse(refusal_of(&this.head));
        }
        if this.phase() == REFUSED {
            ready!(this.poll_outbox(cx))?;
            return Poll::Ready(Ok(data.len()));
        }
        Pin::new(&mut this.inner).poll_write(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_outbox(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().inner).poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for Connection {
    async fn shutdown(&mut self) {
        if self.lingers.load(Ordering::Relaxed) {
            let rest = async {
                // a client that is gone needs no farewell
                let _ = self.inner.flush().await;
                let _ = AsyncWriteExt::shutdown(&mut self.inner).await;
                let mut taken = 0;
                let mut sink = [0; 4096];
                while taken < LINGER_BYTES {
                    match self.inner.read(&mut sink).await {
                        Ok(read) if read > 0 => taken += read,
                        _ => break,
                    }
                }
            };
            let _ = tokio::time::timeout(LINGER, rest).await;
        }
        Shutdown::shutdown(&mut *self.inner).await;
    }
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // without the head: it is the client's
        f.debug_struct("Connection").field("peer", &self.peer).finish_non_exhaustive()
    }
}

impl UniqueID for Connection {
    fn id(&self) -> UniqueIDType {
        self.inner.id()
    }
}

impl Ssl for Connection {
    fn get_ssl_digest(&self) -> Option<Arc<SslDigest>> {
        self.inner.get_ssl_digest()
    }

    fn selected_alpn_proto(&self) -> Option<ALPN> {
        self.inner.selected_alpn_proto()
    }
}

impl GetTimingDigest for Connection {
    fn get_timing_digest(&self) -> Vec<Option<TimingDigest>> {
        self.inner.get_timing_digest()
    }
}

impl GetProxyDigest for Connection {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.get_proxy_digest()
    }
}

impl GetSocketDigest for Connection {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        self.inner.get_socket_digest()
    }
}

impl Peek for Connection {}
