//! A request whose head is parsed.
//!
//! Pingora parses each head that is new. Those who ask most send the same head with every request
//! of a connection, but for the digits of its `Content-Length`: once Pingora has parsed it twice,
//! what it made of it is used again ([`Known`]), and a request that came whole needs no session of
//! Pingora's at all. A request over HTTP/2 is an [`Exchange`], beside others on its connection.

use super::connection::{Connection, opened};
use super::http2::Exchange;
use super::known::Known;
use bytes::{Bytes, BytesMut};
use http::Method;
use pingora_core::protocols::Shutdown;
use pingora_core::protocols::http::ServerSession;
use pingora_http::RequestHeader;
use portcullis_filters::head::Head;
use std::any::Any;
use std::future::poll_fn;
use tokio::time::Instant;

/// Seconds that Pingora is told to keep a connection, so that it gives it back: how long it may be
/// idle is the gate's to say.
const KEPT: u64 = 60;

/// A request whose head is parsed, on its connection.
pub struct Request(Kind);

enum Kind {
    Parsed {
        session: Box<ServerSession>,
        learned: Option<Box<Known>>,
    },
    Repeated {
        connection: Box<Connection>,
        known: Box<Known>,
        /// Until it is read.
        body: Option<Bytes>,
        keeps_alive: bool,
    },
    Http2(Box<Exchange>),
}

impl Request {
    /// Has Pingora parse the head that `read` begins with. `None` if it is none, asks for a tunnel,
    /// or has a fragment in its target: the client is told, and the connection closed. `twice` if
    /// the last head was this one but for its length.
    pub(super) async fn parse(
        connection: Box<Connection>,
        read: BytesMut,
        twice: bool,
    ) -> Option<Self> {
        let mut session = Box::new(ServerSession::new_http1(connection));
        session.set_keepalive(Some(KEPT));
        // the body and the answer are under deadlines of their own
        session.set_read_timeout(None);
        session.set_pipelined_prefix(read);
        let parsed = session.read_request().await.unwrap_or(false);
        let connection = opened(&session);
        let is_none = !parsed
            || session.req_header().method == Method::CONNECT
            || has_fragment(connection.head());
        if is_none {
            connection.refuse_head();
            session.shutdown().await;
            return None;
        }
        connection.open();
        let stays = twice && session.get_keepalive().is_some();
        let learned = stays.then(|| Known::new(connection.head(), session.req_header()));
        Some(Self(Kind::Parsed { session, learned: learned.flatten().map(Box::new) }))
    }

    /// A request that came whole, with a head that Pingora parsed before.
    pub(super) fn repeated(connection: Box<Connection>, known: Box<Known>, body: Bytes) -> Self {
        Self(Kind::Repeated { connection, known, body: Some(body), keeps_alive: true })
    }

    /// A request of a connection that has many at a time.
    pub(super) fn http2(exchange: Exchange) -> Self {
        Self(Kind::Http2(Box::new(exchange)))
    }

    /// The head.
    pub fn header(&self) -> &RequestHeader {
        match &self.0 {
            Kind::Parsed { session, .. } => session.req_header(),
            Kind::Repeated { known, .. } => known.header(),
            Kind::Http2(exchange) => exchange.header(),
        }
    }

    /// The head, as the policy judges it. Over HTTP/2 no field is dropped when a head is parsed, so
    /// there are no bytes beside the fields.
    pub fn head(&self) -> Head<'_> {
        let header = self.header();
        let (raw, peer) = match &self.0 {
            Kind::Http2(exchange) => (&[][..], exchange.peer()),
            kind => kind.connection().map_or((&[][..], None), |own| (own.head(), own.peer())),
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

    /// What was noted of this head when it came before, if it did and that is a `T`. To be noted
    /// again.
    pub fn notes<T: Any>(&mut self) -> Option<Box<T>> {
        match &mut self.0 {
            Kind::Repeated { known, .. } => known.notes.take()?.downcast().ok(),
            _ => None,
        }
    }

    /// Notes something of the head, for the case that it comes again. It is to hold for whatever
    /// length a body has.
    pub fn note(&mut self, notes: Box<dyn Any + Send + Sync>) {
        if let Kind::Repeated { known, .. } = &mut self.0 {
            known.notes = Some(notes);
        }
    }

    /// The body, if it came with a head that was known, and nothing behind it.
    pub fn take_body(&mut self) -> Option<Bytes> {
        match &mut self.0 {
            Kind::Repeated { body, .. } => body.take(),
            _ => None,
        }
    }

    /// The client is still sending what nobody reads: see [`Connection::linger`]. HTTP/2 has a word
    /// for it, which the end of the answer says.
    pub fn linger(&self) {
        if let Some(connection) = self.0.connection() {
            connection.linger();
        }
    }

    /// Whether its connection, where it has one for itself, has served long enough by `now`.
    pub fn is_old(&self, now: Instant) -> bool {
        self.0.connection().is_some_and(|connection| connection.is_old(now))
    }

    /// The exchange, if the answer is to be sent over HTTP/2.
    pub fn as_http2(&mut self) -> Option<&mut Exchange> {
        match &mut self.0 {
            Kind::Http2(exchange) => Some(exchange),
            _ => None,
        }
    }

    /// The next piece of the body; `None` at its end.
    ///
    /// # Errors
    /// The client left, or what it sends is no body.
    pub async fn read_body(&mut self) -> pingora_core::Result<Option<Bytes>> {
        match &mut self.0 {
            Kind::Parsed { session, .. } => session.read_request_body().await,
            Kind::Repeated { body, .. } => Ok(body.take()),
            Kind::Http2(exchange) => exchange.read_body().await,
        }
    }

    /// Whether there is no body, or no more of it.
    pub fn is_body_read(&mut self) -> bool {
        match &mut self.0 {
            Kind::Parsed { session, .. } => session.is_body_done(),
            Kind::Repeated { .. } => true,
            Kind::Http2(exchange) => exchange.is_body_read(),
        }
    }

    /// Tells a client that waits for it to go on: 100 (Continue).
    ///
    /// # Errors
    /// The client left.
    pub async fn write_continue(&mut self) -> pingora_core::Result<()> {
        match &mut self.0 {
            Kind::Parsed { session, .. } => session.write_continue_response().await,
            Kind::Repeated { .. } => Ok(()),
            Kind::Http2(exchange) => exchange.write_continue(),
        }
    }

    /// Whether another request may follow on the connection. One over HTTP/2 has no say in that.
    pub fn keeps_alive(&self) -> bool {
        match &self.0 {
            Kind::Parsed { session, .. } => session.get_keepalive().is_some(),
            Kind::Repeated { keeps_alive, .. } => *keeps_alive,
            Kind::Http2(_) => true,
        }
    }

    /// No other request follows.
    pub fn close(&mut self) {
        match &mut self.0 {
            Kind::Parsed { session, .. } => session.set_keepalive(None),
            Kind::Repeated { keeps_alive, .. } => *keeps_alive = false,
            Kind::Http2(_) => {}
        }
    }

    /// Sends these bytes of the answer; over HTTP/2, of its body.
    ///
    /// # Errors
    /// The client left.
    pub async fn send(&mut self, pieces: [Bytes; 3]) -> pingora_core::Result<()> {
        match &mut self.0 {
            Kind::Http2(exchange) => exchange.send(pieces).await,
            _ => {
                self.put(pieces);
                self.flush().await
            }
        }
    }

    /// Puts bytes of an answer over HTTP/1 where [`Self::flush`] sends them from.
    pub fn put(&self, pieces: [Bytes; 3]) {
        if let Some(connection) = self.0.connection() {
            connection.answer(pieces);
        }
    }

    /// Sends what was put.
    ///
    /// # Errors
    /// The client left.
    pub async fn flush(&mut self) -> pingora_core::Result<()> {
        match &mut self.0 {
            // which flushes the connection; boxed, because few heads are new
            Kind::Parsed { session, .. } => Box::pin(session.finish_body()).await.map(|_| ()),
            Kind::Repeated { connection, .. } => {
                Ok(poll_fn(|cx| connection.poll_outbox(cx)).await.map_err(gone)?)
            }
            Kind::Http2(_) => Ok(()),
        }
    }

    /// The request is answered: its connection, if it goes on.
    pub(super) async fn finish(self) -> Option<Box<Connection>> {
        match self.0 {
            Kind::Parsed { session, learned } => {
                // boxed, so that the task of a connection is not as large as a session
                let finished = Box::pin(session.finish()).await;
                let (stream, _) = finished.ok().flatten()?.into_parts();
                let mut connection: Box<Connection> = stream.into_any().downcast().ok()?;
                connection.learn(learned);
                Some(connection)
            }
            Kind::Repeated { mut connection, known, keeps_alive, .. } => {
                if !keeps_alive {
                    Shutdown::shutdown(&mut *connection).await;
                    return None;
                }
                connection.learn(Some(known));
                Some(connection)
            }
            Kind::Http2(_) => None,
        }
    }
}

impl Kind {
    /// The connection that the request has for itself.
    fn connection(&self) -> Option<&Connection> {
        match self {
            Self::Parsed { session, .. } => Some(opened(session)),
            Self::Repeated { connection, .. } => Some(connection),
            Self::Http2(_) => None,
        }
    }
}

/// Whether the target has a fragment, which Pingora would cut off; it is no part of any target (RFC
/// 9112, section 3.2).
fn has_fragment(head: &[u8]) -> bool {
    let line = head.split(|byte| *byte == b'\n').next().unwrap_or_default();
    line.iter().skip_while(|byte| **byte != b' ').any(|byte| *byte == b'#')
}

fn gone(error: std::io::Error) -> Box<pingora_core::Error> {
    pingora_core::Error::because(pingora_core::ErrorType::WriteError, "the client left", error)
}
