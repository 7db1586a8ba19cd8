//! Responses to requests that reach no phase of the proxy, in the envelope of their surface.

use super::Surface;
use crate::http::clients::Settings as _;
use crate::http::context::ServerContext;
use crate::http::{ErrorResponder, Rendered, message_of};
use crate::reply::{ErrorFormat, Persistence, Reply, ResponseContext};
use http::Version;
use portcullis_base::telemetry::{HttpLine, RequestLine, RequestRecord};
use portcullis_filters::client::{Client, TrustedProxies};
use portcullis_filters::policy;
use portcullis_filters::verdict::{Reason, Refusal};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// The error responder of a surface.
pub struct SurfaceErrors<S> {
    surface: Arc<S>,
    process: ServerContext,
}

impl<S> SurfaceErrors<S> {
    /// Responds in the envelope of `surface`.
    pub fn new(surface: Arc<S>, process: ServerContext) -> Self {
        Self { surface, process }
    }
}

impl<S: Surface> ErrorResponder for SurfaceErrors<S> {
    fn respond(&self, reason: Reason, peer: Option<IpAddr>, version: Version) -> Rendered {
        let request_id = self.process.request_ids.mint();
        let request_id = request_id.as_str();
        // the head was not read, so a client behind a trusted proxy counts as the proxy
        let client = Client::identify(peer, std::iter::empty(), &TrustedProxies::default());
        let mut refusal = Refusal::new(reason, message_of(reason));
        if reason == Reason::WrongHttpMethod {
            let is_rpc = S::STYLE == ErrorFormat::JsonRpc;
            refusal.allow = Some(if is_rpc {
                policy::RPC_METHODS
            } else {
                "GET, HEAD, POST"
            });
        }
        let reply = Reply::refusal(S::STYLE, &refusal, request_id);
        self.process.log_request(&RequestLine {
            surface: S::NAME,
            request_id,
            client,
            record: &RequestRecord::default(),
            http: HttpLine::default(),
            reason: reply.reason,
            status: reply.status,
            bytes: reply.body.length(),
            total: Duration::ZERO,
        });
        let settings = self.surface.running().settings();
        let rate = self.surface.rate_limit(client);
        let context = ResponseContext {
            request_id,
            quota: rate.map(|rate| (&settings.limits_of(client).quota_header, rate)),
            cross_origin: None,
            persistence: Persistence::Close,
            chunks: false,
            without_body: false,
        };
        Rendered::new(version, &reply, &context)
    }
}
