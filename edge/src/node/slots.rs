//! The concurrent calls of clients to one URL: each takes a slot, or waits a short time for one.
//!
//! The pure crate decides (`portcullis_filters::concurrency`); this module holds its state behind a
//! lock, and wakes the calls that wait. The calls of the relay and the polls take no slot: they are
//! few, and no client's read may hold them up.

use super::answer::failure_class;
use super::target::Answered;
use super::{CallFailure, NodeError};
use parking_lot::Mutex;
use portcullis_base::io::monotonic;
use portcullis_filters::chain::FailureClass;
use portcullis_filters::client::ClientKey;
use portcullis_filters::concurrency::{
    Admission, CostClass, Ended, Entry, Place, ReadStats, Started,
};
use std::time::Duration;
use tokio::sync::oneshot::{Receiver, Sender, channel};
use tokio::time::{Instant, timeout_at};

/// The read of a client that a call is made for.
#[derive(Clone, Copy, Debug)]
pub struct ClientRead {
    /// The client, whose reads wait for each other.
    pub client: ClientKey,
    /// The class of the method.
    pub class: CostClass,
    /// The latest time at which the call may start.
    pub until: Instant,
}

/// The slots of one URL.
#[derive(Debug)]
pub(super) struct Slots(Mutex<Admission<Sender<Started>>>);

/// A slot that a call holds. Dropped without an end, the call was abandoned.
pub(super) struct Slot<'a> {
    slots: &'a Slots,
    started: Started,
    /// How and when the call ended.
    ended: Option<(Ended, Instant)>,
}

/// A call that waits for a slot.
struct Waiting<'a> {
    slots: &'a Slots,
    class: CostClass,
    place: Place,
    slot: Receiver<Started>,
}

impl Slots {
    /// Slots for at most `most` concurrent calls of each class.
    pub(super) fn new(most: usize) -> Self {
        let most = u32::try_from(most).unwrap_or(u32::MAX);
        Self(Mutex::new(Admission::new(most)))
    }

    /// The state of each class.
    pub(super) fn stats(&self) -> ReadStats {
        self.0.lock().stats()
    }

    /// Takes a slot, and waits for it if necessary.
    ///
    /// # Errors
    /// Returns [`NodeError::Crowded`] if the call is refused.
    pub(super) async fn take(&self, read: &ClientRead) -> Result<Slot<'_>, NodeError> {
        let mut slot = None;
        let entry = self.enter(read, || {
            let (sender, receiver) = channel();
            slot = Some(receiver);
            sender
        });
        match (entry, slot) {
            (Entry::Starts(started), _) => Ok(self.slot(started)),
            (Entry::Waits(place), Some(slot)) => {
                let waiting = Waiting {
                    slots: self,
                    class: read.class,
                    place,
                    slot,
                };
                // boxed: few calls wait
                Box::pin(waiting.wait(read.until)).await
            }
            _ => Err(NodeError::Crowded),
        }
    }

    fn enter(&self, read: &ClientRead, waiter: impl FnOnce() -> Sender<Started>) -> Entry {
        let mut admission = self.0.lock();
        let now = monotonic::now();
        let entry = admission.enter(read.class, read.client, now, waiter);
        if !matches!(entry, Entry::Starts(_)) {
            start_waiting(&mut admission, now);
        }
        entry
    }

    fn slot(&self, started: Started) -> Slot<'_> {
        Slot {
            slots: self,
            started,
            ended: None,
        }
    }

    fn release(&self, started: Started, ended: Ended, at: Instant) {
        let now = monotonic::of(at);
        let mut admission = self.0.lock();
        admission.end(started, ended, now);
        start_waiting(&mut admission, now);
    }
}

/// Hands free slots to the calls that wait.
fn start_waiting(admission: &mut Admission<Sender<Started>>, now: Duration) {
    while let Some((waiter, started)) = admission.next(now) {
        if let Err(started) = waiter.send(started) {
            // its caller has just left
            admission.end(started, Ended::Failed, now);
        }
    }
}

impl<'a> Waiting<'a> {
    async fn wait(mut self, until: Instant) -> Result<Slot<'a>, NodeError> {
        match timeout_at(until, &mut self.slot).await {
            Ok(Ok(started)) => Ok(self.slots.slot(started)),
            _ => Err(NodeError::Crowded),
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut admission = self.slots.0.lock();
        if admission.leave(self.class, self.place, monotonic::now()) {
            return;
        }
        drop(admission);
        self.slot.close();
        // a slot that arrived at the last moment
        if let Ok(started) = self.slot.try_recv() {
            self.slots.release(started, Ended::Failed, Instant::now());
        }
    }
}

impl Slot<'_> {
    /// Releases the slot after a call that ended like this.
    pub(super) fn end(mut self, result: &Result<Answered, CallFailure>) {
        let ended = match result {
            Ok(answered) => match failure_class(&answered.payload) {
                None => Ended::Timed,
                Some(FailureClass::Limited) => Ended::Refused,
                Some(_) => Ended::Failed,
            },
            Err(CallFailure::Busy) => Ended::Refused,
            Err(failure) if failure.error() == NodeError::Timeout => Ended::Timed,
            Err(_) => Ended::Failed,
        };
        let at = match result {
            Ok(answered) => answered.at,
            Err(_) => Instant::now(),
        };
        self.ended = Some((ended, at));
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        let (ended, at) = match self.ended {
            Some(ended) => ended,
            None => (Ended::Abandoned, Instant::now()),
        };
        self.slots.release(self.started, ended, at);
    }
}
