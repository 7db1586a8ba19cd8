//! The record of a request: what is observed while it is answered, for its log line and its trace.

use std::time::Duration;
use tokio::time::Instant;

/// The observations about one request. Its surface writes them.
#[derive(Debug, Default)]
pub struct RequestRecord {
    /// The method or operation, one of a closed list; empty if it is unknown.
    pub method: &'static str,
    /// The time spent waiting for the node.
    pub upstream: Duration,
    /// The position in `node.url` of the URL that answered, if one did.
    pub node: Option<usize>,
    /// The code of the node's error, if the answer is one and stages are recorded.
    pub error_code: Option<i64>,
    /// The stages of its trace; `None` without `[trace]`.
    pub stages: Option<Vec<Stage>>,
}

impl RequestRecord {
    /// Adds a stage, unless stages are not recorded.
    pub fn add(&mut self, stage: Stage) {
        if let Some(stages) = &mut self.stages {
            stages.push(stage);
        }
    }
}

/// A stage of a request.
#[derive(Clone, Copy, Debug)]
pub struct Stage {
    /// The name of its span, one of a closed list.
    pub name: &'static str,
    /// Whether it is a call to the node, sent with [`super::TraceContext::traceparent`].
    pub is_call: bool,
    /// Begin and end.
    pub time: [Instant; 2],
}
