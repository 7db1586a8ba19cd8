//! Records how long each stage of a write took and which URL of the node answered, for the
//! request's log line and its trace.

use crate::node::chain::CallTrace;
use parking_lot::Mutex;
use portcullis_base::io::cold;
use portcullis_base::telemetry::{RequestRecord, Stage};
use std::mem;
use tokio::time::Instant;

/// The trace of the request that a write belongs to.
pub(crate) struct Trace {
    traceparent: Option<Vec<u8>>,
    record: Mutex<RequestRecord>,
}

impl Trace {
    /// Creates a trace that adds to `record`.
    pub(crate) fn new(traceparent: Option<&[u8]>, record: RequestRecord) -> Self {
        Self {
            traceparent: traceparent.map(<[u8]>::to_vec),
            record: Mutex::new(record),
        }
    }

    /// Takes the record so far; later stages are not reported.
    pub(crate) fn take_record(&self) -> RequestRecord {
        mem::take(&mut *self.record.lock())
    }

    /// Runs a stage, and records how long it took.
    pub(super) fn stage<T>(
        &self,
        name: &'static str,
        work: impl Future<Output = T> + Send,
    ) -> impl Future<Output = T> + Send {
        let work = cold(work);
        async move {
            let start = Instant::now();
            let done = work.await;
            let stage = Stage {
                name,
                is_call: false,
                time: [start, Instant::now()],
            };
            self.record.lock().add(stage);
            done
        }
    }

    /// Records a call that submitted the transaction.
    pub(super) fn note_call(&self, start: Instant, call: CallTrace) {
        let stage = Stage {
            name: "send",
            is_call: true,
            time: [start, Instant::now()],
        };
        let mut record = self.record.lock();
        record.add(stage);
        record.upstream += call.took;
        record.node = call.node;
    }

    /// The trace context, as the value of its header.
    pub(super) fn traceparent(&self) -> Option<&[u8]> {
        self.traceparent.as_deref()
    }
}
