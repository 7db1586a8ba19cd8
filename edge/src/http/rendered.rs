//! A response as its version of HTTP sends it: bytes, or a head and pieces of a body.

use crate::reply::{self, Reply, ResponseContext};
use bytes::Bytes;
use http::{Response, Version};

/// A response, rendered for a version of HTTP. The memory permit stays with the reply.
pub enum Rendered {
    /// The head and the body, as bytes.
    Http1([Bytes; 3]),
    /// A response over HTTP/2, which has frames of its own.
    Http2(Box<H2Response>),
}

/// A head and the part of the body that has arrived.
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

impl Rendered {
    /// The response to a request of this version.
    pub fn new(version: Version, reply: &Reply, context: &ResponseContext<'_>) -> Self {
        if version != Version::HTTP_2 {
            return Self::Http1(reply::render(reply, context));
        }
        let head = reply::http2_head(reply, context);
        let has_body = !context.without_body;
        let body = if has_body {
            reply.body.in_few_pieces()
        } else {
            Default::default()
        };
        let is_streamed = reply.rest.is_some() && has_body;
        Self::Http2(Box::new(H2Response {
            head,
            body,
            is_streamed,
        }))
    }
}
