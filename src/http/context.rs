//! What all listeners of the process share.

use crate::http::RequestIds;
use crate::http::drain::Drain;
use crate::telemetry::{Log, Metrics, RequestLine, Surface};
use std::sync::Arc;

/// Shared by all listeners. Cheap to clone.
#[derive(Clone)]
pub struct ServerContext {
    /// The source of request ids.
    pub request_ids: Arc<RequestIds>,
    /// Graceful shutdown.
    pub drain: Arc<Drain>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The log.
    pub log: Log,
}

impl ServerContext {
    /// Counts and logs a request. Those of the operator are logged only.
    pub fn log_request(&self, line: &RequestLine<'_>) {
        match line.surface {
            Surface::Gateway => self.metrics.request(line.reason, line.bytes, line.total),
            Surface::Relay => self.metrics.relay.requests.count(line.reason, line.total),
            Surface::Sidecar => self.metrics.sidecar.requests.count(line.reason, line.total),
            Surface::Admin => {}
        }
        self.log.request(line);
    }
}
