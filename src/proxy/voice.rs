//! What the gate says to requests that no filter sees: connections over the cap, heads that are too
//! large, too slow or malformed.

use super::surface::Service;
use crate::http::Voice;
use crate::http::process::Process;
use crate::reply::{self, ErrorFormat, Persistence, Reply, ResponseContext};
use crate::telemetry::{RequestLine, Surface};
use bytes::Bytes;
use http::Response;
use portcullis_filters::client::{Client, TrustedProxies};
use portcullis_filters::policy;
use portcullis_filters::verdict::{Reason, Refusal};
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

/// Refuses in the words of a surface.
pub struct GateVoice<S> {
    surface: Surface,
    /// Whose limits an answer tells, where there are some.
    service: Option<Arc<S>>,
    process: Process,
}

impl<S> GateVoice<S> {
    /// The voice of one surface's gate.
    pub fn new(surface: Surface, service: Option<Arc<S>>, process: Process) -> Self {
        Self { surface, service, process }
    }
}

impl<S: Service> GateVoice<S> {
    fn say<T>(
        &self,
        reason: Reason,
        peer: Option<IpAddr>,
        form: impl FnOnce(&Reply, &ResponseContext<'_>) -> T,
    ) -> T {
        let message = match reason {
            Reason::Overloaded => "too many connections",
            Reason::HeaderTooLarge => "the request's head is too large",
            Reason::RequestTimeout => "the request's head came too slowly",
            Reason::WrongHttpMethod => "this is no proxy",
            Reason::ConflictingFraming => "Content-Length or Transfer-Encoding is not usable",
            _ => "the request's head is malformed",
        };
        let request_id = self.process.request_ids.mint();
        let request_id = request_id.as_str();
        let client = Client::identify(peer, std::iter::empty(), &TrustedProxies::default());
        let mut refusal = Refusal::new(reason, message);
        if reason == Reason::WrongHttpMethod {
            let is_rpc = S::STYLE == ErrorFormat::JsonRpc;
            refusal.allow = Some(if is_rpc { policy::RPC_METHODS } else { "GET, HEAD, POST" });
        }
        let reply = Reply::refusal(S::STYLE, &refusal, request_id);
        self.process.request_is_over(&RequestLine {
            surface: self.surface,
            request_id,
            client,
            method: "",
            reason: reply.reason,
            status: reply.status,
            bytes: reply.body.length(),
            upstream: Duration::ZERO,
            total: Duration::ZERO,
        });
        // the head was not read, so a client behind a proxy is not told from the proxy
        let standing = self.service.as_ref().and_then(|service| service.standing(client));
        let settings = self.service.as_ref().map(|service| service.settings());
        let quota = settings.as_ref().map(|settings| S::told(settings).quota).zip(standing);
        let facts = ResponseContext {
            request_id,
            quota,
            cross_origin: None,
            persistence: Persistence::Close,
            chunks: false,
            without_body: false,
        };
        form(&reply, &facts)
    }
}

impl<S: Service> Voice for GateVoice<S> {
    fn refuse(&self, reason: Reason, peer: Option<IpAddr>) -> [Bytes; 3] {
        self.say(reason, peer, reply::render)
    }

    fn refuse_http2(&self, reason: Reason, peer: Option<IpAddr>) -> (Response<()>, Bytes) {
        self.say(reason, peer, |reply, facts| {
            // a refusal is one piece
            let [text, ..] = reply.body.pieces();
            (reply::http2_head(reply, facts), text.clone())
        })
    }
}
