//! What every surface of the process shares.

use crate::http::RequestIds;
use crate::http::drain::Stop;
use crate::telemetry::{Log, Metrics, RequestLine, Surface};
use std::sync::Arc;

/// Shared by all surfaces. Cheap to clone.
#[derive(Clone)]
pub struct Process {
    /// Where request ids come from.
    pub request_ids: Arc<RequestIds>,
    /// How far a stop is.
    pub stop: Arc<Stop>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// The log.
    pub log: Log,
}

impl Process {
    /// Counts and logs a request that is over. The operator's own are only logged.
    pub fn request_is_over(&self, line: &RequestLine<'_>) {
        match line.surface {
            Surface::Gateway => self.metrics.request(line.reason, line.bytes, line.total),
            Surface::Relay => self.metrics.relay.request(line.reason, line.total),
            Surface::Sidecar => self.metrics.sidecar.request(line.reason, line.total),
            Surface::Admin => {}
        }
        self.log.request(line);
    }
}
