//! What a request carries through the phases, for its response headers, its log line and metrics.

use crate::http::RequestId;
use crate::http::context::ServerContext;
use crate::http::drain::InFlight;
use crate::telemetry::{RequestLine, Surface};
use pingora_limits::inflight::Guard;
use portcullis_filters::client::Client;
use portcullis_filters::verdict::Reason;
use std::time::Duration;
use tokio::time::Instant;

/// The context of one request.
pub struct Context {
    pub(super) started: Instant,
    pub(super) request_id: RequestId,
    /// The method or operation, one of a closed list.
    pub(super) method: &'static str,
    /// The time spent on the node.
    pub(super) upstream: Duration,
    /// The client's share of its requests in flight, until the response is out.
    pub(super) slot: Option<Guard>,
    /// `None` until a response is sent: a client that left before has no log line.
    pub(super) outcome: Option<Outcome>,
    _in_flight: InFlight,
}

/// What was sent.
#[derive(Clone, Copy)]
pub(super) struct Outcome {
    pub(super) client: Client,
    pub(super) reason: Option<Reason>,
    pub(super) status: u16,
    pub(super) bytes: usize,
}

impl Context {
    pub(super) fn new(process: &ServerContext) -> Self {
        Self {
            started: Instant::now(),
            request_id: process.request_ids.mint(),
            method: "",
            upstream: Duration::ZERO,
            slot: None,
            outcome: None,
            _in_flight: process.drain.enter(),
        }
    }

    /// Logs and counts the request.
    pub(super) fn log(&self, surface: Surface, process: &ServerContext) {
        let Some(outcome) = self.outcome else { return };
        process.log_request(&RequestLine {
            surface,
            request_id: self.request_id.as_str(),
            client: outcome.client,
            method: self.method,
            reason: outcome.reason,
            status: outcome.status,
            bytes: outcome.bytes,
            upstream: self.upstream,
            total: self.started.elapsed(),
        });
    }
}
