//! A request on its connection, over HTTP/1 or HTTP/2: its body in, its response out.
//!
//! The head is with Pingora's session (`session`); this is the rest of the request. `reply` says
//! what a response contains, this module how it leaves: over HTTP/1 as bytes that go out in one
//! write, over HTTP/2 as a head and pieces of a body, as fast as the client takes them.

use super::http1::{BodyError, Connection};
use super::http2::stream::H2Stream;
use super::progress::STALL;
use super::rendered::{Gone, Rendered};
use crate::reply::{Body, BodyStream, LAST_CHUNK, Reply, ResponseContext, chunk};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use http::Version;
use pingora::http::RequestHeader;
use portcullis_base::io::{cold, within};
use portcullis_filters::head::Head;
use portcullis_filters::policy;
use portcullis_filters::verdict::{Reason, Refusal};
use std::pin::pin;
use std::time::Duration;
use tokio::time::Instant;

/// A request whose head is parsed.
pub struct Request(pub(super) Transport);

/// The connection or stream on which the request is read and answered.
pub(super) enum Transport {
    Http1(Box<Connection>),
    Http2(Box<H2Stream>),
}

/// Why a body is incomplete.
#[derive(Debug)]
pub enum Incomplete {
    /// The body is refused, and the rest of it is still in transit.
    Refused(Refusal),
    /// The client left: there is nobody to answer.
    Gone,
}

impl Request {
    /// The version of HTTP.
    pub fn version(&self) -> Version {
        match &self.0 {
            Transport::Http1(connection) => connection.version(),
            Transport::Http2(_) => Version::HTTP_2,
        }
    }

    /// The head as the policy judges it. Over HTTP/2 parsing drops no field, so there are no raw
    /// bytes.
    pub fn head<'a>(&'a self, header: &'a RequestHeader) -> Head<'a> {
        let (raw, peer) = match &self.0 {
            Transport::Http1(connection) => (connection.head(), connection.peer()),
            Transport::Http2(stream) => (&[][..], stream.peer()),
        };
        Head {
            method: header.method.as_str(),
            target: header.raw_path(),
            version: header.version,
            headers: &header.headers,
            raw,
            peer,
        }
    }

    /// Whether the head is cached for the next request of the connection, extensions included.
    pub fn is_head_cached(&self) -> bool {
        matches!(&self.0, Transport::Http1(connection) if connection.is_head_cached())
    }

    /// The whole body, if it arrived with the head.
    pub fn take_whole_body(&mut self) -> Option<Bytes> {
        match &mut self.0 {
            Transport::Http1(connection) => connection.take_whole_body(),
            Transport::Http2(_) => None,
        }
    }

    /// The whole body of a request that is refused, if it arrived with the head. Otherwise nothing
    /// more of it can be read, except to discard it.
    pub fn take_arrived_body(&mut self) -> Option<Bytes> {
        match &mut self.0 {
            Transport::Http1(connection) => connection.take_whole_body(),
            Transport::Http2(stream) => stream.take_arrived_body(),
        }
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// Returns [`BodyError`] if the client left or the framing is broken.
    async fn read_body(&mut self) -> Result<Option<Bytes>, BodyError> {
        match &mut self.0 {
            Transport::Http1(connection) => connection.read_body().await,
            Transport::Http2(stream) => stream.read_body().await,
        }
    }

    /// Reads the whole body of at most `max` bytes within `timeout`. The bytes that arrive
    /// count, not the declared length.
    ///
    /// # Errors
    /// Returns `body_too_large`, `request_timeout`, `conflicting_framing` for malformed chunks, or
    /// [`Incomplete::Gone`].
    pub async fn read_whole_body(
        &mut self,
        timeout: Duration,
        max: usize,
    ) -> Result<Bytes, Incomplete> {
        match within(timeout, cold(self.collect_body(max))).await {
            Some(result) => result,
            None => Err(refused(
                Reason::RequestTimeout,
                "the body did not arrive in time",
            )),
        }
    }

    async fn collect_body(&mut self, max: usize) -> Result<Bytes, Incomplete> {
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        loop {
            let piece = match self.read_body().await {
                Ok(Some(piece)) => piece,
                // a body in one piece is not copied
                Ok(None) if all.is_empty() => return Ok(first),
                Ok(None) => return Ok(all.freeze()),
                Err(BodyError::Gone) => return Err(Incomplete::Gone),
                Err(BodyError::Malformed) => {
                    return Err(refused(
                        Reason::ConflictingFraming,
                        "the body's framing is broken",
                    ));
                }
            };
            policy::within_size(first.len().max(all.len()) + piece.len(), max)
                .map_err(Incomplete::Refused)?;
            if all.is_empty() && self.is_body_read() {
                first = piece;
            } else {
                // copied, so that a few bytes do not hold the whole buffer that they are a part of
                all.extend_from_slice(&piece);
            }
        }
    }

    /// Reads and drops the rest of a refused body if it is small and already under way, so that the
    /// connection can be used again. Returns whether the end was reached.
    pub async fn discard_body(&mut self, timeout: Duration) -> bool {
        let rest = async {
            let mut bytes = 0;
            loop {
                match self.read_body().await {
                    Ok(Some(piece)) => bytes += piece.len(),
                    Ok(None) => return true,
                    Err(_) => return false,
                }
                if bytes > policy::MAX_BODY {
                    return false;
                }
            }
        };
        within(timeout, pin!(rest)).await.unwrap_or(false)
    }

    /// Whether there is no body, or no more of it.
    pub fn is_body_read(&self) -> bool {
        match &self.0 {
            Transport::Http1(connection) => connection.is_body_read(),
            Transport::Http2(stream) => stream.is_body_read(),
        }
    }

    /// Sends 100 Continue to a client that waits for it.
    ///
    /// # Errors
    /// Returns [`Gone`] if the client left.
    pub async fn write_continue(&mut self) -> Result<(), Gone> {
        match &mut self.0 {
            Transport::Http1(connection) => {
                let head = Body::from("HTTP/1.1 100 Continue\r\n\r\n");
                Ok(connection.write(&mut head.into_pieces(), STALL).await?)
            }
            Transport::Http2(stream) => stream.write_continue(),
        }
    }

    /// Whether another request may follow on the connection. Always true over HTTP/2, where the
    /// connection itself decides.
    pub fn keeps_alive(&self) -> bool {
        match &self.0 {
            Transport::Http1(connection) => connection.keeps_alive(),
            Transport::Http2(_) => true,
        }
    }

    /// Allows no further request.
    pub fn stop_keepalive(&mut self) {
        if let Transport::Http1(connection) = &mut self.0 {
            connection.stop_keepalive();
        }
    }

    /// Marks the connection to be closed after it has read and dropped what the client still sends.
    /// Over HTTP/2 the end of the stream suffices.
    pub fn linger(&mut self) {
        if let Transport::Http1(connection) = &mut self.0 {
            connection.linger();
        }
    }

    /// Whether the connection has reached its lifetime by `now`. HTTP/2 connections check that
    /// themselves.
    pub fn is_old(&self, now: Instant) -> bool {
        matches!(&self.0, Transport::Http1(connection) if connection.is_old(now))
    }

    /// Sends a response. The client has `timeout` to read each part, and longer while it reads
    /// steadily.
    ///
    /// Renders before it returns, so that the future does not hold the context while the client
    /// reads.
    pub fn send<'a>(
        &'a mut self,
        reply: &'a mut Reply,
        context: &ResponseContext<'_>,
        timeout: Duration,
    ) -> impl Future<Output = Sent> + Send + use<'a> {
        let mut rendered = Rendered::new(self.version(), reply, context);
        let without_body = context.without_body;
        async move {
            let mut bytes = reply.body.length();
            let mut result = self
                .write(&mut rendered, timeout)
                .await
                .map_err(Unsent::from);
            if result.is_ok()
                && let Some(rest) = reply.rest.take().filter(|_| !without_body)
            {
                result = cold(stream(self, rest, &mut bytes, timeout)).await;
            }
            Sent { bytes, result }
        }
    }

    /// Sends a response, then closes the connection. Ignores errors: the client may be gone.
    pub async fn send_and_close(mut self, mut response: Rendered, timeout: Duration) {
        let _ = self.write(&mut response, timeout).await;
    }

    /// Writes a response, or the start of one, and removes the written bytes from it. Passed by
    /// value, the response would be held once by each future on the way.
    async fn write(&mut self, rendered: &mut Rendered, timeout: Duration) -> Result<(), Gone> {
        match (&mut self.0, rendered) {
            (Transport::Http1(connection), Rendered::Http1(pieces)) => {
                Ok(connection.write(pieces, timeout).await?)
            }
            (Transport::Http2(stream), Rendered::Http2(response)) => {
                cold(stream.respond(response, timeout)).await
            }
            _ => Err(Gone),
        }
    }

    /// Writes more of a body whose length was not known: a chunk over HTTP/1.1, and plain bytes
    /// over HTTP/1.0, where the end of the connection ends it.
    async fn write_piece(&mut self, piece: Bytes, timeout: Duration) -> Result<(), Gone> {
        // an empty chunk would be the last one
        if piece.is_empty() {
            return Ok(());
        }
        match &mut self.0 {
            Transport::Http2(stream) => stream.write_piece(piece, timeout).await,
            Transport::Http1(connection) if connection.version() == Version::HTTP_11 => {
                Ok(connection
                    .write(&mut chunk(piece).into_pieces(), timeout)
                    .await?)
            }
            Transport::Http1(connection) => Ok(connection
                .write(&mut Body::from(piece).into_pieces(), timeout)
                .await?),
        }
    }

    /// Ends a body whose length was not known.
    async fn write_end(&mut self, timeout: Duration) -> Result<(), Gone> {
        match &mut self.0 {
            Transport::Http2(stream) => stream.end(),
            Transport::Http1(connection) if connection.version() == Version::HTTP_11 => {
                Ok(connection
                    .write(&mut Body::from(LAST_CHUNK).into_pieces(), timeout)
                    .await?)
            }
            Transport::Http1(_) => Ok(()),
        }
    }
}

fn refused(reason: Reason, message: &'static str) -> Incomplete {
    Incomplete::Refused(Refusal::new(reason, message))
}

/// The sent part of a response.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Bytes of the body.
    pub bytes: usize,
    /// Whether the whole response was sent.
    pub result: Result<(), Unsent>,
}

/// Why a response was not sent whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// The rest of the body could not be generated.
    Aborted,
    /// The client left, or does not read.
    Gone,
}

impl From<Gone> for Unsent {
    fn from(Gone: Gone) -> Self {
        Self::Gone
    }
}

/// Sends the rest of a body as it is generated.
async fn stream(
    request: &mut Request,
    mut rest: BodyStream,
    sent: &mut usize,
    timeout: Duration,
) -> Result<(), Unsent> {
    while let Some(piece) = rest.0.next().await {
        let piece = piece.map_err(|_| Unsent::Aborted)?;
        *sent += piece.len();
        request.write_piece(piece, timeout).await?;
    }
    Ok(request.write_end(timeout).await?)
}
