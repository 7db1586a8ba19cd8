//! One connection to the node, with or without TLS, and one HTTP/1.1 exchange over it: a request in
//! one write, and its answer, read whole and strictly.
//!
//! `httparse` parses the head; the rest follows RFC 9112 without its leniency. A connection is
//! reused only after exactly one complete answer to its request was read from it.

use super::{MAX_ANSWER, NodeError};
use bytes::{Buf, Bytes, BytesMut};
use httparse::{Header, ParserConfig, Status};
use portcullis_base::io::{
    Exhausted, LazyTimer, MemoryPermit, READ_SIZE, parse_retry_after, poll_read_some,
};
use portcullis_filters::chain::ConnectionId;
use std::future::poll_fn;
use std::io::{self, ErrorKind};
use std::mem::MaybeUninit;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};
use tokio::net::TcpStream;
use tokio::time::Instant;
use tokio_rustls::client::TlsStream;

/// 16 KiB: the head of a node's answer takes a few hundred bytes.
const MAX_HEAD: usize = 16 << 10;
/// Header fields of one head.
const MAX_FIELDS: usize = 64;
/// Interim answers (1xx) before the final one.
const MAX_INTERIM: usize = 8;
/// 64 bytes: a chunk's size and extensions.
const MAX_CHUNK_LINE: usize = 64;

/// A connection to the node.
#[derive(Debug)]
pub(super) struct Connection {
    stream: NodeStream,
    /// Distinguishes it from every other connection of the process.
    pub(super) id: ConnectionId,
    /// Bytes read but not consumed.
    buffer: BytesMut,
    reusable: bool,
    /// `Node::check` when the connection's chain was checked.
    pub(super) chain_check: u64,
    pub(super) opened: Instant,
    /// The deadline of the current exchange.
    timer: LazyTimer,
}

/// Why an exchange has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ExchangeError {
    /// The connection ended before the first byte of an answer.
    BeforeAnswer,
    /// The answer has this status, not 200, and this `Retry-After`.
    Status(u16, Option<Duration>),
    /// The answer cannot be passed on.
    Answer(NodeError),
    /// The connection ended after this many bytes of the body.
    CutOff(usize),
}

impl From<Exhausted> for ExchangeError {
    fn from(exhausted: Exhausted) -> Self {
        Self::Answer(exhausted.into())
    }
}

impl From<NodeError> for ExchangeError {
    fn from(error: NodeError) -> Self {
        Self::Answer(error)
    }
}

/// How a body ends.
enum Framing {
    Length(usize),
    Chunked,
    Close,
}

struct Head {
    framing: Framing,
    keep_alive: bool,
}

const INVALID: ExchangeError = ExchangeError::Answer(NodeError::Invalid);

impl Connection {
    pub(super) fn new(stream: NodeStream) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let (buffer, timer) = (BytesMut::new(), LazyTimer::default());
        Self {
            stream,
            id: ConnectionId(NEXT.fetch_add(1, Ordering::Relaxed)),
            buffer,
            reusable: false,
            chain_check: 0,
            opened: Instant::now(),
            timer,
        }
    }

    /// Whether the last exchange left the connection ready for another.
    pub(super) fn is_reusable(&self) -> bool {
        self.reusable && self.buffer.is_empty()
    }

    /// Whether an idle connection has received neither an end of stream nor unsolicited bytes.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.stream.is_quiet()
    }

    /// Sends `request` and reads the body of its answer, until `deadline`.
    pub(super) async fn exchange(
        &mut self,
        request: Vec<u8>,
        deadline: Instant,
        permit: &mut MemoryPermit,
    ) -> Result<Bytes, ExchangeError> {
        let mut timer = std::mem::take(&mut self.timer);
        let answer = timer
            .within(deadline, pin!(self.ask(request, permit)))
            .await;
        self.timer = timer;
        answer.unwrap_or(Err(ExchangeError::Answer(NodeError::Timeout)))
    }

    async fn ask(
        &mut self,
        request: Vec<u8>,
        permit: &mut MemoryPermit,
    ) -> Result<Bytes, ExchangeError> {
        self.reusable = false;
        let written = async {
            self.stream.write_all(&request).await?;
            // TLS may still buffer a part of the request
            self.stream.flush().await
        };
        written.await.map_err(|_| ExchangeError::BeforeAnswer)?;
        // freed now, so that the next request can reuse the memory
        drop(request);
        let head = self.read_head().await?;
        let body = match head.framing {
            Framing::Length(length) => self.read_length(length, permit).await?,
            // boxed: the future of the usual framing stays smaller
            Framing::Chunked => Box::pin(self.read_chunks(permit)).await?,
            Framing::Close => self.read_to_end(permit).await?,
        };
        self.reusable = head.keep_alive;
        Ok(body)
    }

    async fn read_head(&mut self) -> Result<Head, ExchangeError> {
        let mut interim = 0;
        let mut began = false;
        loop {
            if !self.buffer.is_empty()
                && let Some(head) = self.take_head(&mut interim)?
            {
                return Ok(head);
            }
            if self.buffer.len() >= MAX_HEAD {
                return Err(INVALID);
            }
            match poll_fn(|cx| poll_read_some(&mut self.stream, cx, &mut self.buffer)).await {
                Ok(read) if read > 0 => began = true,
                // an end or an error
                _ if began => return Err(INVALID),
                _ => return Err(ExchangeError::BeforeAnswer),
            }
        }
    }

    /// Takes the final head off the buffer, with any interim responses before it.
    fn take_head(&mut self, interim: &mut usize) -> Result<Option<Head>, ExchangeError> {
        loop {
            let mut fields = [const { MaybeUninit::uninit() }; MAX_FIELDS];
            let mut response = httparse::Response::new(&mut []);
            let parser = ParserConfig::default();
            let parsed = parser
                .parse_response_with_uninit_headers(&mut response, &self.buffer, &mut fields)
                .map_err(|_| INVALID)?;
            let Status::Complete(length) = parsed else {
                return Ok(None);
            };
            if length > MAX_HEAD {
                return Err(INVALID);
            }
            match response.code.unwrap_or(0) {
                200 => {
                    let head = Head::parse(&response)?;
                    self.buffer.advance(length);
                    return Ok(Some(head));
                }
                100 | 102..=199 if *interim < MAX_INTERIM => {
                    *interim += 1;
                    self.buffer.advance(length);
                }
                100 | 102..=199 => return Err(INVALID),
                code => {
                    let wait = retry_after(&response);
                    return Err(ExchangeError::Status(code, wait));
                }
            }
        }
    }

    async fn read_length(
        &mut self,
        length: usize,
        permit: &mut MemoryPermit,
    ) -> Result<Bytes, ExchangeError> {
        permit.reserve(length)?;
        self.buffer
            .reserve(length.saturating_sub(self.buffer.len()));
        while self.buffer.len() < length {
            let cut_off = ExchangeError::CutOff(self.buffer.len());
            self.read_more().await.map_err(|_| cut_off)?;
        }
        // the rest must not share the body's memory: an idle connection would hold all of it
        let rest = BytesMut::from(self.buffer.get(length..).unwrap_or_default());
        let mut body = std::mem::replace(&mut self.buffer, rest);
        body.truncate(length);
        Ok(body.freeze())
    }

    async fn read_to_end(&mut self, permit: &mut MemoryPermit) -> Result<Bytes, ExchangeError> {
        loop {
            within_bound(self.buffer.len())?;
            permit.reserve(self.buffer.len() + READ_SIZE)?;
            self.buffer.reserve(READ_SIZE);
            match self.stream.read_buf(&mut self.buffer).await {
                Ok(0) => return Ok(self.buffer.split().freeze()),
                Ok(_) => {}
                Err(_) => return Err(INVALID),
            }
        }
    }

    /// Reads a chunked body; RFC 9112, section 7.1.
    async fn read_chunks(&mut self, permit: &mut MemoryPermit) -> Result<Bytes, ExchangeError> {
        let mut body = BytesMut::new();
        loop {
            let size = self.read_chunk_size().await?;
            if size == 0 {
                self.skip_trailers().await?;
                return Ok(body.freeze());
            }
            let total =
                usize::try_from(size).map_or(usize::MAX, |size| body.len().saturating_add(size));
            within_bound(total)?;
            permit.reserve(total)?;
            while body.len() < total {
                if self.buffer.is_empty() {
                    self.read_more().await?;
                }
                let piece = self.buffer.len().min(total - body.len());
                body.extend_from_slice(&self.buffer.split_to(piece));
            }
            self.read_line_end().await?;
        }
    }

    async fn read_chunk_size(&mut self) -> Result<u64, ExchangeError> {
        loop {
            if self
                .buffer
                .first()
                .is_some_and(|digit| !digit.is_ascii_hexdigit())
            {
                // `httparse` takes a line without digits for the last chunk
                return Err(INVALID);
            }
            match httparse::parse_chunk_size(&self.buffer) {
                Ok(Status::Complete((length, size))) if length <= MAX_CHUNK_LINE => {
                    let line = self.buffer.split_to(length);
                    // `httparse` skips a bare LF in an extension, where a proxy may end the line
                    if line.iter().position(|byte| *byte == b'\n') != Some(length - 1) {
                        return Err(INVALID);
                    }
                    return Ok(size);
                }
                Ok(Status::Partial) if self.buffer.len() < MAX_CHUNK_LINE => {
                    self.read_more().await?;
                }
                _ => return Err(INVALID),
            }
        }
    }

    /// Skips trailers, which end with an empty line.
    async fn skip_trailers(&mut self) -> Result<(), ExchangeError> {
        let mut skipped = 0;
        loop {
            match self.buffer.iter().position(|byte| *byte == b'\n') {
                Some(end) => {
                    let is_empty = matches!(self.buffer.get(..end), Some([] | [b'\r']));
                    self.buffer.advance(end + 1);
                    skipped += end + 1;
                    if is_empty {
                        return Ok(());
                    }
                }
                None => self.read_more().await?,
            }
            if skipped + self.buffer.len() > MAX_HEAD {
                return Err(INVALID);
            }
        }
    }

    async fn read_line_end(&mut self) -> Result<(), ExchangeError> {
        while self.buffer.len() < 2 {
            self.read_more().await?;
        }
        if !self.buffer.starts_with(b"\r\n") {
            return Err(INVALID);
        }
        self.buffer.advance(2);
        Ok(())
    }

    async fn read_more(&mut self) -> Result<(), ExchangeError> {
        if self.buffer.capacity() == self.buffer.len() {
            self.buffer.reserve(READ_SIZE);
        }
        match self.stream.read_buf(&mut self.buffer).await {
            Ok(read) if read > 0 => Ok(()),
            _ => Err(INVALID),
        }
    }
}

impl Head {
    /// Parses the head of a 200 response: RFC 9112, section 6.3. A length that is stated twice or
    /// in two ways is invalid.
    fn parse(response: &httparse::Response<'_, '_>) -> Result<Self, ExchangeError> {
        let fields = &*response.headers;
        let coding = single(fields, "transfer-encoding")?;
        let length = single(fields, "content-length")?;
        let framing = match (coding, length) {
            (None, Some(length)) => Framing::Length(parse_length(length)?),
            (Some(coding), None) if coding.eq_ignore_ascii_case(b"chunked") => Framing::Chunked,
            (None, None) => Framing::Close,
            _ => return Err(INVALID),
        };
        match single(fields, "content-encoding")? {
            None => {}
            Some(coding) if coding.eq_ignore_ascii_case(b"identity") => {}
            Some(_) => return Err(INVALID),
        }
        let connection = single(fields, "connection")?.unwrap_or_default();
        let keep_alive = !matches!(framing, Framing::Close)
            && match response.version {
                Some(1) => !has_token(connection, b"close"),
                _ => has_token(connection, b"keep-alive"),
            };
        Ok(Self {
            framing,
            keep_alive,
        })
    }
}

/// How long the node wants to be left alone, if it refuses calls as too many.
fn retry_after(response: &httparse::Response<'_, '_>) -> Option<Duration> {
    if !matches!(response.code, Some(429 | 503)) {
        return None;
    }
    let field = single(response.headers, "retry-after").ok()??;
    parse_retry_after(field, SystemTime::now())
}

fn within_bound(bytes: usize) -> Result<(), ExchangeError> {
    if bytes > MAX_ANSWER {
        Err(NodeError::Oversized.into())
    } else {
        Ok(())
    }
}

/// The value of a field that may occur at most once.
fn single<'a>(fields: &[Header<'a>], name: &str) -> Result<Option<&'a [u8]>, ExchangeError> {
    let mut named = fields
        .iter()
        .filter(|field| field.name.eq_ignore_ascii_case(name));
    let value = named.next().map(|field| field.value.trim_ascii());
    if named.next().is_some() {
        Err(INVALID)
    } else {
        Ok(value)
    }
}

fn parse_length(text: &[u8]) -> Result<usize, ExchangeError> {
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(INVALID);
    }
    let length = str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let length = length.unwrap_or(usize::MAX);
    within_bound(length).map(|()| length)
}

fn has_token(list: &[u8], token: &[u8]) -> bool {
    list.split(|byte| *byte == b',')
        .any(|item| item.trim_ascii().eq_ignore_ascii_case(token))
}

/// The bytes of a connection.
#[derive(Debug)]
pub(super) enum NodeStream {
    Plain(TcpStream),
    /// Boxed: the state of a session is large.
    Secured(Box<TlsStream<TcpStream>>),
}

impl NodeStream {
    /// Whether neither the end of the stream nor any bytes have arrived.
    pub(super) fn is_quiet(&mut self) -> bool {
        match self {
            Self::Plain(stream) => {
                let read = stream.try_read(&mut [0]);
                read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            }
            // through the session, which may have messages of its own, such as tickets
            Self::Secured(stream) => {
                let mut byte = [0];
                let mut buffer = ReadBuf::new(&mut byte);
                let mut cx = Context::from_waker(Waker::noop());
                Pin::new(&mut **stream)
                    .poll_read(&mut cx, &mut buffer)
                    .is_pending()
            }
        }
    }
}

impl AsyncRead for NodeStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Secured(stream) => Pin::new(&mut **stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for NodeStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, data),
            Self::Secured(stream) => Pin::new(&mut **stream).poll_write(cx, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Secured(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Secured(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_base::io::MemoryPool;
    use tokio::net::TcpListener;

    #[tokio::test]
    async fn an_idle_connection_holds_no_large_answer() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let stream = TcpStream::connect(listener.local_addr().unwrap())
            .await
            .unwrap();
        let (mut node, _) = listener.accept().await.unwrap();
        let answering = tokio::spawn(async move {
            for size in [1 << 20, 2] {
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
                node.write_all(head.as_bytes()).await.unwrap();
                node.write_all(&vec![b' '; size]).await.unwrap();
            }
            node
        });
        let memory = MemoryPool::new(MAX_ANSWER);
        let mut connection = Connection::new(NodeStream::Plain(stream));
        for size in [1 << 20, 2] {
            let mut permit = MemoryPermit::of(&memory);
            let body = connection.ask(b"GET".to_vec(), &mut permit).await.unwrap();
            assert_eq!(body.len(), size);
        }
        assert!(connection.is_reusable());
        assert!(
            connection.buffer.capacity() <= 2 * READ_SIZE,
            "{}",
            connection.buffer.capacity()
        );
        answering.await.unwrap();
    }
}
