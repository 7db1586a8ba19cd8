//! Responses on their way out, whole or as a stream, over both versions of HTTP.
//!
//! `reply` says what a response contains, this module how it leaves: over HTTP/1 as bytes that go
//! out in one write, over HTTP/2 as a head and pieces of a body, as fast as the client takes them.

use super::request::Request;
use crate::io::{cold, within};
use crate::reply::{self, BodyStream, Reply, ResponseContext};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http::{Response, Version};
use std::time::Duration;

/// A response as its version of HTTP sends it. The memory permit stays with the reply.
pub enum Rendered {
    /// The head and the body, as bytes.
    Http1([Bytes; 3]),
    /// What HTTP/2 frames.
    Http2(Box<H2Response>),
}

/// A head and what is there of the body.
pub struct H2Response {
    pub(super) head: Response<()>,
    pub(super) body: [Bytes; 3],
    /// Whether more of the body follows.
    pub(super) is_streamed: bool,
}

/// The client left, or does not read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gone;

impl From<std::io::Error> for Gone {
    fn from(_: std::io::Error) -> Self {
        Self
    }
}

/// What went out of a response.
#[derive(Clone, Copy, Debug)]
pub struct Sent {
    /// Bytes of the body.
    pub bytes: usize,
    /// Whether that is all.
    pub result: Result<(), Unsent>,
}

/// Why a response did not go out whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unsent {
    /// The rest of the body could not be made.
    Aborted,
    /// The client left, or does not read.
    Gone,
}

impl From<Gone> for Unsent {
    fn from(Gone: Gone) -> Self {
        Self::Gone
    }
}

impl Rendered {
    /// The response to a request of this version.
    pub fn new(version: Version, reply: &Reply, context: &ResponseContext<'_>) -> Self {
        if version != Version::HTTP_2 {
            return Self::Http1(reply::render(reply, context));
        }
        let head = reply::http2_head(reply, context);
        let has_body = !context.without_body;
        let body = if has_body { reply.body.pieces().clone() } else { Default::default() };
        let is_streamed = reply.rest.is_some() && has_body;
        Self::Http2(Box::new(H2Response { head, body, is_streamed }))
    }
}

/// Sends a response, of which the client has to take each part within `timeout`.
///
/// Renders at once, so that the future holds nothing of that while the client reads.
pub fn send<'a>(
    request: &'a mut Request,
    reply: &'a mut Reply,
    context: &ResponseContext<'_>,
    timeout: Duration,
) -> impl Future<Output = Sent> + Send + use<'a> {
    let rendered = Rendered::new(request.version(), reply, context);
    let without_body = context.without_body;
    async move {
        let mut bytes = reply.body.length();
        let mut result = in_time(request.write(rendered), timeout).await;
        if result.is_ok()
            && let Some(rest) = reply.rest.take().filter(|_| !without_body)
        {
            result = cold(stream(request, rest, &mut bytes, timeout)).await;
        }
        Sent { bytes, result }
    }
}

/// Sends the rest of a body as it is made.
async fn stream(
    request: &mut Request,
    mut rest: BodyStream,
    sent: &mut usize,
    timeout: Duration,
) -> Result<(), Unsent> {
    while let Some(piece) = rest.0.next().await {
        let piece = piece.map_err(|_| Unsent::Aborted)?;
        *sent += piece.len();
        in_time(request.write_piece(piece), timeout).await?;
    }
    in_time(request.write_end(), timeout).await
}

async fn in_time(
    write: impl Future<Output = Result<(), Gone>>,
    timeout: Duration,
) -> Result<(), Unsent> {
    within(timeout, write).await.unwrap_or(Err(Gone)).map_err(Unsent::from)
}
