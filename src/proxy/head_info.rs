//! What a head says, read once for all requests of a connection that have the same head.

use super::surface::Surface;
use crate::http::{Request, X_REQUEST_ID};
use http::header::{EXPECT, HOST, ORIGIN, TRANSFER_ENCODING};
use http::{HeaderValue, Method};
use pingora::http::RequestHeader;
use portcullis_filters::head;
use std::sync::Arc;

/// A head that was read. Everything in it holds for each request with that head.
pub(super) struct HeadInfo<S: Surface> {
    /// The settings in force when it was read.
    pub(super) settings: Arc<S::Settings>,
    /// The surface's judgement, by these settings.
    pub(super) judged: S::Judged,
    pub(super) is_head: bool,
    /// Whether the framing of the body can be trusted.
    pub(super) is_framed: bool,
    pub(super) awaits_continue: bool,
    has_request_id: bool,
    has_traceparent: bool,
    has_origin: bool,
}

impl<S: Surface> HeadInfo<S> {
    /// Reads a head, unless it is cached and was read under the same settings.
    pub(super) fn of(header: &mut RequestHeader, request: &Request, surface: &S) -> Arc<Self> {
        let settings = surface.settings();
        let cached = header.extensions.get::<Arc<Self>>();
        if let Some(cached) = cached.filter(|cached| Arc::ptr_eq(&cached.settings, &settings)) {
            return Arc::clone(cached);
        }
        let judged = surface.judge(&settings, &request.head(header));
        let fields = &header.headers;
        let info = Arc::new(Self {
            settings,
            judged,
            is_head: header.method == Method::HEAD,
            // some parsers read chunks that others refuse, and HTTP/1.1 demands a Host
            is_framed: !fields.contains_key(TRANSFER_ENCODING) && fields.contains_key(HOST),
            awaits_continue: fields.contains_key(EXPECT),
            has_request_id: fields.contains_key(&X_REQUEST_ID),
            has_traceparent: fields.contains_key(&head::TRACEPARENT),
            has_origin: fields.contains_key(ORIGIN),
        });
        if request.is_head_cached() {
            header.extensions_mut().insert(Arc::clone(&info));
        }
        info
    }

    /// The client's own id for its request, well-formed or not.
    pub(super) fn request_id<'a>(&self, header: &'a RequestHeader) -> Option<&'a HeaderValue> {
        if self.has_request_id { header.headers.get(&X_REQUEST_ID) } else { None }
    }

    /// The trace context to pass on.
    pub(super) fn traceparent<'a>(&self, header: &'a RequestHeader) -> Option<&'a [u8]> {
        if self.has_traceparent { head::traceparent(&header.headers) } else { None }
    }

    /// The origin of the web page that sent the request.
    pub(super) fn origin<'a>(&self, header: &'a RequestHeader) -> Option<&'a HeaderValue> {
        if self.has_origin { header.headers.get(ORIGIN) } else { None }
    }
}
