//! What a head says, read once for all the requests of a connection that have the same.

use super::surface::Service;
use crate::http::Request;
use crate::http::X_REQUEST_ID;
use crate::http::body;
use http::header::{EXPECT, HOST, ORIGIN, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Version};
use portcullis_filters::head;
use std::sync::Arc;
use std::time::Duration;

/// A refused body that is small and already sent is read, so that the connection can stay.
const DISCARD: Duration = Duration::from_millis(50);

/// A head that was read. Everything in it holds for each request with that head.
pub(super) struct ReadHead<S: Service> {
    /// What was in force.
    pub(super) settings: Arc<S::Settings>,
    /// What the surface made of it, by these settings.
    pub(super) judged: S::Judged,
    pub(super) version: Version,
    /// Whether the answer is to have no body.
    pub(super) is_head: bool,
    /// Whether the end of the body is told in a way that can be trusted.
    is_framed: bool,
    awaits_continue: bool,
    gives_request_id: bool,
    /// Of whatever form.
    has_trace: bool,
    has_origin: bool,
}

impl<S: Service> ReadHead<S> {
    /// The head of `request`: read now, unless it is one that was read under the same settings.
    pub(super) fn of(request: &mut Request, service: &S) -> Box<Self> {
        let settings = service.settings();
        let noted = request.notes::<Self>();
        if let Some(noted) = noted.filter(|noted| Arc::ptr_eq(&noted.settings, &settings)) {
            return noted;
        }
        let judged = service.judge(&settings, &request.head());
        let header = request.header();
        let fields = &header.headers;
        Box::new(Self {
            settings,
            judged,
            version: header.version,
            is_head: header.method == Method::HEAD,
            // chunks are not trusted: Pingora reads some that others do not. Nor is whoever leaves
            // out the one field that HTTP/1.1 demands
            is_framed: !fields.contains_key(TRANSFER_ENCODING) && fields.contains_key(HOST),
            awaits_continue: fields.contains_key(EXPECT),
            gives_request_id: fields.contains_key(&X_REQUEST_ID),
            has_trace: fields.contains_key(&head::TRACEPARENT),
            has_origin: fields.contains_key(ORIGIN),
        })
    }

    /// The client's own id for its request, of whatever form.
    pub(super) fn given_request_id<'a>(&self, request: &'a Request) -> Option<&'a HeaderValue> {
        let fields = &request.header().headers;
        if self.gives_request_id { fields.get(&X_REQUEST_ID) } else { None }
    }

    /// The trace context to pass on.
    pub(super) fn traceparent<'a>(&self, request: &'a Request) -> Option<&'a [u8]> {
        if self.has_trace { head::traceparent(&request.header().headers) } else { None }
    }

    /// The page that asks.
    pub(super) fn origin<'a>(&self, request: &'a Request) -> Option<&'a HeaderValue> {
        if self.has_origin { request.header().headers.get(ORIGIN) } else { None }
    }

    /// Whether the end of the request is known and reached, so that what comes next on the
    /// connection is another request. A small rest is read for that.
    pub(super) async fn reaches_end(&self, request: &mut Request) -> bool {
        // over HTTP/2 each has a stream for itself
        if self.version == Version::HTTP_2 {
            return true;
        }
        if !self.is_framed {
            return false;
        }
        // the client may or may not send a body that it was not told to send
        request.is_body_read()
            || (!self.awaits_continue && Box::pin(body::discard(request, DISCARD)).await)
    }
}
