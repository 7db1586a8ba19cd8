//! What every surface of the process shares.

use crate::edge::RequestIds;
use crate::stop::Stop;
use crate::telemetry::{Log, Metrics};
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
