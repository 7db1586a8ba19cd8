//! What the gate says to requests that no filter sees: connections over the cap, heads that are too
//! large, too slow or malformed.

use super::RequestIds;
use crate::gate::Voice;
use crate::reply::Reply;
use crate::telemetry::{Log, Metrics, RequestLine, Surface, Verdict};
use portcullis_filters::client::Client;
use portcullis_filters::verdict::Reason;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// Refuses in the words of the gateway.
pub struct GateVoice {
    surface: Surface,
    request_ids: Arc<RequestIds>,
    metrics: Arc<Metrics>,
    log: Log,
}

impl GateVoice {
    /// The voice of one surface's gate.
    pub fn new(
        surface: Surface,
        request_ids: Arc<RequestIds>,
        metrics: Arc<Metrics>,
        log: Log,
    ) -> Self {
        Self { surface, request_ids, metrics, log }
    }

    fn count(&self, reply: &Reply, verdict: Verdict, request_id: &str, peer: Option<IpAddr>) {
        if self.surface == Surface::Gateway {
            self.metrics.request(verdict, reply.reason, reply.length(), Duration::ZERO);
        }
        let client = Client::at(peer.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        self.log.request(&RequestLine {
            surface: self.surface.name(),
            request_id,
            client: client.shown(self.log.shown()),
            method: "",
            verdict,
            reason: reply.reason,
            status: reply.status,
            bytes: reply.length(),
            upstream: Duration::ZERO,
            total: Duration::ZERO,
        });
    }
}

impl Voice for GateVoice {
    fn refuse(&self, reason: Reason, peer: Option<IpAddr>) -> Vec<u8> {
        let (phrase, message) = match reason {
            Reason::Overloaded => ("Service Unavailable", "too many connections"),
            Reason::HeaderTooLarge => {
                ("Request Header Fields Too Large", "the request's head is too large")
            }
            Reason::RequestTimeout => ("Request Timeout", "the request's head came too slowly"),
            Reason::WrongHttpMethod => ("Method Not Allowed", "this is no proxy: send POST /rpc"),
            Reason::ConflictingFraming => {
                ("Bad Request", "Content-Length or Transfer-Encoding is not usable")
            }
            _ => ("Bad Request", "the request's head is malformed"),
        };
        let verdict = match reason {
            Reason::Overloaded => Verdict::Failed,
            _ => Verdict::Refused,
        };
        let request_id = self.request_ids.mint();
        let request_id = request_id.to_str().unwrap_or_default();
        let reply = Reply::error(reason, message, None, request_id);
        self.count(&reply, verdict, request_id, peer);
        let mut head = format!(
            "HTTP/1.1 {} {phrase}\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\n\
             x-request-id: {request_id}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n",
            reply.status,
            reply.length()
        );
        if reason == Reason::WrongHttpMethod {
            head.push_str("allow: POST, OPTIONS\r\n");
        }
        if let Some(seconds) = reply.retry_after {
            // writing to a string does not fail
            let _ = write!(head, "retry-after: {seconds}\r\n");
        }
        head.push_str("\r\n");
        let mut words = head.into_bytes();
        reply.body.iter().for_each(|piece| words.extend_from_slice(piece));
        words
    }
}
