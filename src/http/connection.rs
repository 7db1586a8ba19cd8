//! One client connection: its heads are read here, whole and in time, before Pingora parses them.

use super::gate::Voice;
use super::known::{Known, MAX_SIZE, are_alike};
use super::request::Request;
use crate::http::drain::{LAST_CALL, Watched};
use crate::io::deadline::{Alarm, within};
use crate::io::step::poll_step;
use async_trait::async_trait;
use bytes::{Buf, Bytes, BytesMut};
use pingora_core::protocols::http::ServerSession;
use pingora_core::protocols::raw_connect::ProxyDigest;
use pingora_core::protocols::tls::SslDigest;
use pingora_core::protocols::{
    ALPN, GetProxyDigest, GetSocketDigest, GetTimingDigest, Peek, Shutdown, SocketDigest, Ssl,
    Stream, TimingDigest, UniqueID, UniqueIDType,
};
use portcullis_filters::verdict::Reason;
use std::fmt;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::time::Instant;

/// A client that is told off while it still sends gets this long to read it; RFC 9112, section 9.6.
const LINGER: Duration = Duration::from_secs(2);
/// And this much more of what it sends is taken in meanwhile, and dropped.
const LINGER_BYTES: usize = 1 << 20;

/// Pingora reads no head of more fields.
pub(super) const PINGORA_FIELDS: usize = 256;

/// Bounds of each connection.
#[derive(Debug)]
pub struct Limits {
    /// Bytes of a head.
    pub header_size: usize,
    /// From the first byte of a head to its last.
    pub header_timeout: Duration,
    /// A client that takes nothing of what is written over HTTP/2; over HTTP/1 the app says.
    pub write_timeout: Duration,
    /// A client that says nothing, after it connected or between two requests.
    pub idle_timeout: Duration,
    /// The age at which a connection serves its last request.
    pub lifetime: Duration,
}

/// A client's stream.
pub struct Connection {
    inner: Stream,
    peer: Option<IpAddr>,
    limits: Arc<Limits>,
    voice: Arc<dyn Voice>,
    stop: Watched,
    born: Instant,
    /// The head is parsed: what comes now is the body.
    is_open: AtomicBool,
    /// Bytes are on their way that nobody will read.
    lingers: AtomicBool,
    /// The last head that was read.
    head: Vec<u8>,
    /// It, parsed, if it came twice.
    known: Option<Box<Known>>,
    /// Rings when the client says nothing for too long, or had its time to read the last word.
    alarm: Alarm,
    /// What goes out with the next flush.
    outbox: Mutex<[Bytes; 3]>,
    /// Until when the client may read what it was told last.
    lingers_until: Option<Instant>,
    /// Bytes dropped meanwhile.
    taken: usize,
}

/// The connection under a session that the gate made.
pub(super) fn opened(session: &ServerSession) -> &Connection {
    let stream = session.as_http1().map(|http1| http1.stream());
    let connection = stream.and_then(|stream| (**stream).as_any().downcast_ref());
    connection.expect("the gate makes sessions of HTTP/1 over its own connections")
}

impl Connection {
    pub(super) fn new(
        inner: Stream,
        peer: Option<IpAddr>,
        limits: Arc<Limits>,
        voice: Arc<dyn Voice>,
        stop: Watched,
    ) -> Self {
        Self {
            inner,
            peer,
            limits,
            voice,
            stop,
            born: Instant::now(),
            is_open: AtomicBool::new(false),
            lingers: AtomicBool::new(false),
            head: Vec::new(),
            known: None,
            alarm: Alarm::default(),
            outbox: Mutex::default(),
            lingers_until: None,
            taken: 0,
        }
    }

    /// The address at the other end; `None` for a Unix socket.
    pub fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    /// The head is parsed.
    pub(super) fn open(&self) {
        self.is_open.store(true, Ordering::Relaxed);
    }

    /// The head is none that can be parsed: that is told when the connection is closed.
    pub(super) fn refuse_head(&self) {
        self.refuse(refusal_of(&self.head));
    }

    /// Puts a whole answer, in pieces, where the next flush sends it from. Pingora's own way of
    /// writing an answer would build a header map for it, and write twice.
    pub fn answer(&self, pieces: [Bytes; 3]) {
        *self.outbox.lock().unwrap_or_else(PoisonError::into_inner) = pieces;
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

    /// The last head that was read.
    pub fn head(&self) -> &[u8] {
        &self.head
    }

    /// Keeps what Pingora made of the last head, for the case that it comes again.
    pub(super) fn learn(&mut self, known: Option<Box<Known>>) {
        self.known = known;
        if self.head.len() > MAX_SIZE {
            // it will not be known, and an idle connection keeps no buffer
            self.head = Vec::new();
        }
    }

    /// Waits for the next request, and reads its head: whole and in time. `None` when the
    /// connection is over; a client that is refused was told.
    ///
    /// Nothing is kept for a request before its first byte is there.
    pub(super) async fn next_request(mut self: Box<Self>) -> Option<Request> {
        self.is_open.store(false, Ordering::Relaxed);
        let mut read = BytesMut::new();
        let mut wait = Wait::default();
        if !poll_fn(|cx| self.poll_first(cx, &mut read, &mut wait)).await {
            // in order, so that the client sees that nothing more will come
            Shutdown::shutdown(&mut *self).await;
            return None;
        }
        if let Some(known) = self.known.take()
            && let Some(body) = known.body_of(&mut read)
        {
            return Some(Request::repeated(self, known, body));
        }
        let refusal = match within(self.limits.header_timeout, self.rest_of_head(&mut read)).await {
            Some(Ok(end)) => {
                let begins = read.iter().position(|byte| !is_line_end(*byte)).unwrap_or(0);
                let head = read.get(begins..end).unwrap_or_default();
                let twice = are_alike(&self.head, head);
                self.head.clear();
                self.head.extend_from_slice(head);
                return Request::parse(self, read, twice).await;
            }
            Some(Err(Unread::Gone)) => return None,
            Some(Err(Unread::TooLarge)) => Reason::HeaderTooLarge,
            None => Reason::RequestTimeout,
        };
        self.refuse(refusal);
        Shutdown::shutdown(&mut *self).await;
        None
    }

    /// The first bytes of a request: false when the client leaves, or says nothing for too long.
    /// Once a stop has begun, that is not long.
    fn poll_first(
        &mut self,
        cx: &mut Context<'_>,
        read: &mut BytesMut,
        wait: &mut Wait,
    ) -> Poll<bool> {
        if let Poll::Ready(result) = poll_step(&mut self.inner, cx, read) {
            return Poll::Ready(result.is_ok_and(|bytes| bytes > 0));
        }
        let until = wait.until.get_or_insert_with(|| Instant::now() + self.limits.idle_timeout);
        if !wait.is_last && self.stop.has_begun() {
            wait.is_last = true;
            *until = (*until).min(Instant::now() + LAST_CALL);
        }
        self.alarm.poll_until(*until, cx).map(|()| false)
    }

    /// Reads until the head is whole, and says where it ends.
    async fn rest_of_head(&mut self, read: &mut BytesMut) -> Result<usize, Unread> {
        let mut searched = 0;
        loop {
            match end_of_head(read, searched) {
                Some(end) if end <= self.limits.header_size => return Ok(end),
                Some(_) => return Err(Unread::TooLarge),
                None if read.len() >= self.limits.header_size => return Err(Unread::TooLarge),
                // the end may have begun with what was read last
                None => searched = read.len().saturating_sub(2),
            }
            match poll_fn(|cx| poll_step(&mut self.inner, cx, read)).await {
                Ok(bytes) if bytes > 0 => {}
                _ => return Err(Unread::Gone),
            }
        }
    }

    /// Says the last word, and takes in what the client is still sending until it has read that.
    /// What fails here fails because the client is gone.
    fn poll_farewell(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let _ = ready!(self.poll_outbox(cx));
        let _ = ready!(Pin::new(&mut self.inner).poll_shutdown(cx));
        let mut dropped = BytesMut::new();
        while self.taken < LINGER_BYTES {
            match ready!(poll_step(&mut self.inner, cx, &mut dropped)) {
                Ok(bytes) if bytes > 0 => self.taken += bytes,
                _ => break,
            }
            dropped.clear();
        }
        Poll::Ready(())
    }

    fn refuse(&self, reason: Reason) {
        self.lingers.store(true, Ordering::Relaxed);
        self.answer(self.voice.refuse(reason, self.peer));
    }

    /// Sends what is in the outbox, as much as goes with one call.
    pub(super) fn poll_outbox(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let pieces = self.outbox.get_mut().unwrap_or_else(PoisonError::into_inner);
        while pieces.iter().any(|piece| !piece.is_empty()) {
            let mut sent = ready!(match &*pieces {
                // most answers are one piece: the kernel takes that with less ado
                [piece, second, third] if second.is_empty() && third.is_empty() => {
                    Pin::new(&mut self.inner).poll_write(cx, piece)
                }
                pieces => {
                    let slices = pieces.each_ref().map(|piece| IoSlice::new(piece));
                    Pin::new(&mut self.inner).poll_write_vectored(cx, &slices)
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
        Pin::new(&mut self.inner).poll_flush(cx)
    }
}

/// A wait for the first bytes of a request.
#[derive(Default)]
struct Wait {
    /// Until when, once it is known that there is a wait.
    until: Option<Instant>,
    /// A stop has begun, and the time was cut for it.
    is_last: bool,
}

/// Why a head was not read.
enum Unread {
    /// The client left.
    Gone,
    /// It is larger than a head may be.
    TooLarge,
}

fn is_line_end(byte: u8) -> bool {
    matches!(byte, b'\r' | b'\n')
}

/// Where the head ends that `read` begins with, looked for from `searched` on: after an empty line
/// (RFC 9112, section 2.2; like Pingora's parser, any before the request line do not count, and a
/// line may end with LF alone).
fn end_of_head(read: &[u8], searched: usize) -> Option<usize> {
    let begins = read.iter().position(|byte| !is_line_end(*byte))?;
    let from = searched.max(begins);
    memchr::memchr_iter(b'\n', read.get(from..)?).find_map(|at| {
        let next = from + at + 1;
        match read.get(next..)? {
            [b'\n', ..] => Some(next + 1),
            [b'\r', b'\n', ..] => Some(next + 2),
            _ => None,
        }
    })
}

/// Why a head is refused before it is judged: 405 for CONNECT, as Pingora has it, and 400 for
/// anything malformed.
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
        if !this.is_open.load(Ordering::Relaxed) {
            // Pingora has a whole head and wants more of it: there is none
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut this.inner).poll_read(cx, buf)
    }
}

impl AsyncWrite for Connection {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().inner).poll_write(cx, data)
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.get_mut().poll_outbox(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if this.lingers.load(Ordering::Relaxed) {
            let until = *this.lingers_until.get_or_insert_with(|| Instant::now() + LINGER);
            if this.alarm.poll_until(until, cx).is_pending() {
                ready!(this.poll_farewell(cx));
            }
        }
        Pin::new(&mut this.inner).poll_shutdown(cx)
    }
}

#[async_trait]
impl Shutdown for Connection {
    async fn shutdown(&mut self) {
        // a client that is gone needs no farewell, and over TLS one may have to be waited for
        let _ = within(2 * LINGER, AsyncWriteExt::shutdown(self)).await;
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
        // asked for with every request, and read by nobody
        Vec::new()
    }
}

impl GetProxyDigest for Connection {
    fn get_proxy_digest(&self) -> Option<Arc<ProxyDigest>> {
        self.inner.get_proxy_digest()
    }
}

impl GetSocketDigest for Connection {
    fn get_socket_digest(&self) -> Option<Arc<SocketDigest>> {
        // asked for with every request, and read by nobody: the gate knows the peer
        None
    }
}

impl Peek for Connection {}
