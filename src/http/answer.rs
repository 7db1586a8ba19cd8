//! An answer on its way: whole, or piece by piece, in the form that its connection takes.
//!
//! What is said is `reply`'s, how it is sent is the gate's; this is where HTTP/1 and HTTP/2 part.
//! Over HTTP/1 an answer is bytes that wait in the connection and leave in one write; over HTTP/2
//! it is a head and pieces of a body, sent as the client has room for them. No deadline is kept
//! here.

use crate::http::Request;
use crate::reply::{self, Body, Reply, ResponseContext};
use bytes::Bytes;
use http::{Response, Version};
use pingora_core::Result;

/// An answer, ready to be sent. The lease on its memory stays with the reply.
pub enum Answer {
    /// As HTTP/1 writes it: in its connection.
    Http1,
    /// As HTTP/2 frames it.
    Http2(Box<Framed>),
}

/// A head and the body that is there.
pub struct Framed {
    head: Response<()>,
    body: [Bytes; 3],
    /// Whether more of the body is to come.
    has_rest: bool,
}

impl Answer {
    /// The answer to `request`.
    pub fn new(request: &Request, reply: &Reply, facts: &ResponseContext<'_>) -> Self {
        if request.header().version != Version::HTTP_2 {
            request.put(reply::render(reply, facts));
            return Self::Http1;
        }
        let head = reply::http2_head(reply, facts);
        let is_head = facts.without_body;
        let body = if is_head { Default::default() } else { reply.body.pieces().clone() };
        let has_rest = reply.rest.is_some() && !is_head;
        Self::Http2(Box::new(Framed { head, body, has_rest }))
    }

    /// Sends it; where there is a rest, that is to follow.
    ///
    /// # Errors
    /// The client left.
    pub async fn send(self, request: &mut Request) -> Result<()> {
        match self {
            Self::Http1 => request.flush().await,
            // boxed, so that an answer over HTTP/1 is not as large
            Self::Http2(framed) => Box::pin(framed.send(request)).await,
        }
    }
}

impl Framed {
    async fn send(self: Box<Self>, request: &mut Request) -> Result<()> {
        let Some(exchange) = request.as_http2() else { return Ok(()) };
        let Self { head, body, has_rest } = *self;
        if !has_rest {
            return exchange.answer(head, body).await;
        }
        exchange.begin(head)?;
        exchange.send(body).await
    }
}

/// Sends more of a body whose end was not known: a chunk to HTTP/1.1, and to HTTP/1.0 the bytes.
///
/// # Errors
/// The client left.
pub async fn send_more(request: &mut Request, piece: Bytes) -> Result<()> {
    // an empty chunk would be the last one
    if piece.is_empty() {
        return Ok(());
    }
    let has_chunks = request.header().version == Version::HTTP_11;
    let piece = if has_chunks { reply::chunk(piece) } else { piece.into() };
    request.send(piece.into_pieces()).await
}

/// Says that such a body is whole; HTTP/1.0 is told by the end of its connection.
///
/// # Errors
/// The client left.
pub async fn end(request: &mut Request) -> Result<()> {
    if let Some(exchange) = request.as_http2() {
        return exchange.end();
    }
    if request.header().version == Version::HTTP_11 {
        request.send(Body::from(reply::LAST_CHUNK).into_pieces()).await?;
    }
    Ok(())
}
