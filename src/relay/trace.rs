//! How long each stage of a write took, and which URL of the node answered: what the request's log
//! line and its trace report.

use crate::io::cold;
use crate::node::chain::CallTrace;
use crate::telemetry::Stage;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::time::Instant;

/// The request that a write belongs to, as the node's client needs it.
pub(crate) struct Trace {
    traceparent: Option<Vec<u8>>,
    upstream_us: AtomicU64,
    /// [`CallTrace::node`], plus one; 0 without an answer.
    node: AtomicUsize,
    /// `None` unless the request is traced.
    stages: Mutex<Option<Vec<Stage>>>,
}

impl Trace {
    /// Adds its stages to `stages`.
    pub(crate) fn new(traceparent: Option<&[u8]>, stages: Option<Vec<Stage>>) -> Self {
        let (traceparent, stages) = (traceparent.map(<[u8]>::to_vec), Mutex::new(stages));
        Self { traceparent, upstream_us: AtomicU64::new(0), node: AtomicUsize::new(0), stages }
    }

    /// The stages so far; later ones are not recorded.
    pub(crate) fn take_stages(&self) -> Option<Vec<Stage>> {
        self.stages.lock().take()
    }

    /// Does the work of a stage, and notes how long it took.
    pub(super) fn stage<T>(
        &self,
        name: &'static str,
        work: impl Future<Output = T> + Send,
    ) -> impl Future<Output = T> + Send {
        let work = cold(work);
        async move {
            let start = Instant::now();
            let done = work.await;
            self.note(Stage { name, is_call: false, time: [start, Instant::now()] });
            done
        }
    }

    /// Notes a call that submitted the transaction.
    pub(super) fn note_call(&self, start: Instant, call: CallTrace) {
        self.note(Stage { name: "send", is_call: true, time: [start, Instant::now()] });
        self.add(call);
    }

    /// The context of the trace, in the form of its header.
    pub(super) fn traceparent(&self) -> Option<&[u8]> {
        self.traceparent.as_deref()
    }

    fn note(&self, stage: Stage) {
        if let Some(stages) = &mut *self.stages.lock() {
            stages.push(stage);
        }
    }

    /// The time that the node took.
    pub(crate) fn upstream(&self) -> Duration {
        Duration::from_micros(self.upstream_us.load(Ordering::Relaxed))
    }

    /// The place of the node's URL that answered.
    pub(crate) fn node(&self) -> Option<usize> {
        self.node.load(Ordering::Relaxed).checked_sub(1)
    }

    fn add(&self, call: CallTrace) {
        let took = u64::try_from(call.took.as_micros()).unwrap_or(u64::MAX);
        self.upstream_us.fetch_add(took, Ordering::Relaxed);
        self.node.store(call.node.map_or(0, |node| node + 1), Ordering::Relaxed);
    }
}
