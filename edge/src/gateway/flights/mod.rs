//! Single-flight for reads: identical concurrent reads are one call to the node.

use super::cache::CacheKey;
use ahash::RandomState;
use parking_lot::Mutex;
use portcullis_filters::position::ChainPosition;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use tokio::sync::oneshot;

/// The flights that are under way, each with its followers.
///
/// The first request leads and calls the node itself; the others follow and get its answer. When a
/// leader goes away, one of its followers leads instead. This is no [`Shared`], whose task and
/// channel would cost each miss 3,700 instructions more (callgrind).
///
/// [`Shared`]: portcullis_base::io::shared::Shared
pub(super) struct Flights<T>(Mutex<HashMap<FlightKey, Vec<oneshot::Sender<T>>, RandomState>>);

/// A read, and the chain epoch and position at which its flight began. No read joins a flight with
/// another epoch or position: the answer may be older than what this instance has reported about
/// the chain since.
#[derive(Clone, PartialEq, Eq)]
struct FlightKey {
    at: FlightStart,
    call: Arc<CacheKey>,
}

impl Hash for FlightKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        // few flights of one read begin at different positions
        self.call.hash(state);
    }
}

pub(super) type FlightStart = (u64, Option<ChainPosition>);

/// A request's part in a flight.
pub(super) enum Role<T> {
    /// Fetches the answer for all.
    Leader(Leader<T>),
    /// Receives the answer, or an error when the leader is gone; after an error it joins again.
    Follower(oneshot::Receiver<T>),
}

/// The leader of a flight. If it is dropped without an answer, one of its followers leads instead.
pub(super) struct Leader<T> {
    flights: Arc<Flights<T>>,
    key: FlightKey,
    is_complete: bool,
}

impl<T> Flights<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::default()))
    }

    /// Joins the flight for this read, or starts one.
    pub(super) fn join(self: &Arc<Self>, at: FlightStart, call: Arc<CacheKey>) -> Role<T> {
        match self.0.lock().entry(FlightKey { at, call }) {
            Entry::Vacant(entry) => {
                let key = entry.key().clone();
                entry.insert(Vec::new());
                Role::Leader(Leader {
                    flights: Arc::clone(self),
                    key,
                    is_complete: false,
                })
            }
            Entry::Occupied(mut entry) => {
                let (sender, receiver) = oneshot::channel();
                entry.get_mut().push(sender);
                Role::Follower(receiver)
            }
        }
    }
}

impl<T: Clone> Leader<T> {
    /// Completes the flight: followers get this answer, later callers start a new one.
    pub(super) fn complete(mut self, answer: &T) {
        self.is_complete = true;
        for follower in self.remove() {
            // an error means that the follower is gone
            let _ = follower.send(answer.clone());
        }
    }
}

impl<T> Leader<T> {
    fn remove(&self) -> Vec<oneshot::Sender<T>> {
        self.flights.0.lock().remove(&self.key).unwrap_or_default()
    }
}

impl<T> Drop for Leader<T> {
    fn drop(&mut self) {
        // a later flight may have this key by now
        if !self.is_complete {
            self.remove();
        }
    }
}

#[cfg(test)]
mod tests;
