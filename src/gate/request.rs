//! A request whose head is parsed.
//!
//! Pingora parses each head that is new. Those who ask most send the same head with every request
//! of a connection, but for the digits of its `Content-Length`: once Pingora has parsed it twice,
//! what it made of it is used again ([`Known`]), and a request that came whole needs no session of
//! Pingora's at all.

use super::Connection;
use super::connection::opened;
use super::known::Known;
use bytes::{Bytes, BytesMut};
use http::Method;
use pingora_core::protocols::http::ServerSession;
use pingora_http::RequestHeader;
use tokio::io::AsyncWriteExt;

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
}

impl Request {
    /// Has Pingora parse the head that `read` begins with. `None` if it is none, or asks for a
    /// tunnel: the client is told, and the connection closed. `twice` if the last head was this
    /// one but for its length.
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
        if !parsed || session.req_header().method == Method::CONNECT {
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

    /// The head.
    pub fn header(&self) -> &RequestHeader {
        match &self.0 {
            Kind::Parsed { session, .. } => session.req_header(),
            Kind::Repeated { known, .. } => known.header(),
        }
    }

    /// The connection.
    pub fn connection(&self) -> &Connection {
        match &self.0 {
            Kind::Parsed { session, .. } => opened(session),
            Kind::Repeated { connection, .. } => connection,
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
        }
    }

    /// Whether there is no body, or no more of it.
    pub fn is_body_read(&mut self) -> bool {
        match &mut self.0 {
            Kind::Parsed { session, .. } => session.is_body_done(),
            Kind::Repeated { .. } => true,
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
        }
    }

    /// Whether another request may follow on the connection.
    pub fn keeps_alive(&self) -> bool {
        match &self.0 {
            Kind::Parsed { session, .. } => session.get_keepalive().is_some(),
            Kind::Repeated { keeps_alive, .. } => *keeps_alive,
        }
    }

    /// No other request follows.
    pub fn close(&mut self) {
        match &mut self.0 {
            Kind::Parsed { session, .. } => session.set_keepalive(None),
            Kind::Repeated { keeps_alive, .. } => *keeps_alive = false,
        }
    }

    /// Sends these bytes of the answer.
    ///
    /// # Errors
    /// The client left.
    pub async fn send(&mut self, pieces: [Bytes; 3]) -> pingora_core::Result<()> {
        self.connection().answer(pieces);
        match &mut self.0 {
            // which flushes the connection
            Kind::Parsed { session, .. } => session.finish_body().await.map(|_| ()),
            Kind::Repeated { connection, .. } => Ok(connection.flush().await.map_err(gone)?),
        }
    }

    /// The request is answered: its connection, if it goes on.
    pub(super) async fn finish(self) -> Option<Box<Connection>> {
        match self.0 {
            Kind::Parsed { session, learned } => {
                let (stream, _) = session.finish().await.ok().flatten()?.into_parts();
                let mut connection: Box<Connection> = stream.into_any().downcast().ok()?;
                connection.learn(learned);
                Some(connection)
            }
            Kind::Repeated { mut connection, known, keeps_alive, .. } => {
                if !keeps_alive {
                    // a client that is gone needs no farewell
                    let _ = connection.shutdown().await;
                    return None;
                }
                connection.learn(Some(known));
                Some(connection)
            }
        }
    }
}

fn gone(error: std::io::Error) -> Box<pingora_core::Error> {
    pingora_core::Error::because(pingora_core::ErrorType::WriteError, "the client left", error)
}
