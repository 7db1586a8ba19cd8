//! Responses of the operator's listener to requests that reach no page, in plain text.

use super::page;
use crate::http::ErrorResponder;
use crate::http::context::ServerContext;
use crate::http::gate::message_of;
use crate::http::request::Rendered;
use crate::reply::{Body, Persistence, Reply, ResponseContext, status_and_code};
use crate::telemetry::{HttpLine, RequestLine, Surface};
use bytes::Bytes;
use http::Version;
use portcullis_filters::client::{Client, TrustedProxies};
use portcullis_filters::verdict::Reason;
use std::net::IpAddr;
use std::time::Duration;

/// The error responder of the operator's listener.
pub struct AdminErrors(pub ServerContext);

impl ErrorResponder for AdminErrors {
    fn respond(&self, reason: Reason, peer: Option<IpAddr>, version: Version) -> Rendered {
        let request_id = self.0.request_ids.mint();
        let (status, _) = status_and_code(reason);
        let reply = page::guarded(Reply {
            reason: Some(reason),
            body: Body::framed(message_of(reason), Bytes::new(), b"\n"),
            allow: (status == 405).then_some("GET, HEAD"),
            retry_after: matches!(status, 429 | 503).then_some(1),
            ..Reply::text(status, "")
        });
        self.0.log_request(&RequestLine {
            surface: Surface::Admin,
            request_id: request_id.as_str(),
            client: Client::identify(peer, std::iter::empty(), &TrustedProxies::default()),
            method: "",
            http: HttpLine::default(),
            reason: reply.reason,
            status,
            bytes: reply.body.length(),
            upstream: Duration::ZERO,
            node: None,
            total: Duration::ZERO,
        });
        let context = ResponseContext {
            request_id: request_id.as_str(),
            quota: None,
            cross_origin: None,
            persistence: Persistence::Close,
            chunks: false,
            without_body: false,
        };
        Rendered::new(version, &reply, &context)
    }
}
