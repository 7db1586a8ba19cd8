//! What the gate says to requests that no filter sees: connections over the cap, heads that are too
//! large, too slow or malformed.

use crate::gate::Voice;
use crate::gateway::Gateway;
use crate::process::Process;
use crate::reply::Reply;
use crate::telemetry::{RequestLine, Surface};
use portcullis_filters::client::Client;
use portcullis_filters::verdict::Reason;
use std::fmt::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

/// Refuses in the words of the gateway.
pub struct GateVoice {
    surface: Surface,
    /// Whose limits an answer tells, at the gateway.
    gateway: Option<Arc<Gateway>>,
    process: Process,
}

impl GateVoice {
    /// The voice of one surface's gate.
    pub fn new(surface: Surface, gateway: Option<Arc<Gateway>>, process: Process) -> Self {
        Self { surface, gateway, process }
    }

    fn count(&self, reply: &Reply, request_id: &str, client: Client) {
        let Process { metrics, log, .. } = &self.process;
        if self.surface == Surface::Gateway {
            metrics.request(reply.reason, reply.length(), Duration::ZERO);
        }
        log.request(&RequestLine {
            surface: self.surface.name(),
            request_id,
            client: client.shown(log.shown()),
            method: "",
            reason: reply.reason,
            status: reply.status,
            bytes: reply.length(),
            upstream: Duration::ZERO,
            total: Duration::ZERO,
        });
    }

    /// `RateLimit-Policy` and `RateLimit` of the peer. The head was not read, so a client behind a
    /// proxy is not told from the proxy; nothing is counted.
    fn limits(&self, client: Client) -> String {
        let Some(gateway) = &self.gateway else { return String::new() };
        let standing = gateway.standing(client);
        format!(
            "ratelimit-policy: {}\r\nratelimit: \"minute\";r={};t={}\r\n",
            gateway.settings().quota_header.to_str().unwrap_or_default(),
            standing.remaining,
            standing.reset_seconds
        )
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
        let request_id = self.process.request_ids.mint();
        let request_id = request_id.to_str().unwrap_or_default();
        let client = Client::at(peer.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)));
        let reply = Reply::error(reason, message, None, request_id);
        self.count(&reply, request_id, client);
        let mut head = format!(
            "HTTP/1.1 {} {phrase}\r\ncache-control: no-store\r\nx-content-type-options: nosniff\r\n\
             x-request-id: {request_id}\r\ncontent-type: application/json\r\n\
             content-length: {}\r\nconnection: close\r\n{}",
            reply.status,
            reply.length(),
            self.limits(client)
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
