//! Identical reads at the same time are one call to the node.
//!
//! The first who asks leads: its own request asks the node, with no task between. Whoever asks the
//! same meanwhile follows, and is handed the answer. A leader that goes away fails nobody: those
//! who followed it are told, and one of them leads. The table holds nothing but what some request
//! is waiting for, or was when it gave up less than a node's timeout ago.

use super::cache_key::CacheKey;
use ahash::RandomState;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::oneshot;

/// The flights under way, and who follows each.
pub(super) struct Flights<T>(Mutex<Table<T>>);

type Table<T> = HashMap<Key, Vec<oneshot::Sender<T>>, RandomState>;

/// What a flight answers, and in which life of the chain it began: nobody joins one of an earlier.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    epoch: u64,
    asked: Arc<CacheKey>,
}

/// A place in a flight.
pub(super) enum Role<T> {
    /// To ask the node, and to tell the others.
    Leader(Leader<T>),
    /// To be told. An error says that the leader has gone: join again.
    Follower(oneshot::Receiver<T>),
}

/// The leader's place. Dropped without an answer, it leaves those who follow to lead themselves.
pub(super) struct Leader<T> {
    flights: Arc<Flights<T>>,
    key: Key,
    is_complete: bool,
}

impl<T> Flights<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Table::default())))
    }

    /// A place in the flight for this read; the first leads.
    pub(super) fn join(self: &Arc<Self>, epoch: u64, asked: Arc<CacheKey>) -> Role<T> {
        match self.lock().entry(Key { epoch, asked }) {
            Entry::Vacant(entry) => {
                let key = entry.key().clone();
                entry.insert(Vec::new());
                Role::Leader(Leader { flights: Arc::clone(self), key, is_complete: false })
            }
            Entry::Occupied(mut entry) => {
                let (teller, answer) = oneshot::channel();
                entry.get_mut().push(teller);
                Role::Follower(answer)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone> Leader<T> {
    /// The flight is over: everybody has this answer, and who comes now asks anew.
    pub(super) fn complete(mut self, answer: &T) {
        self.is_complete = true;
        for follower in self.leave() {
            // one that went away needs none
            let _ = follower.send(answer.clone());
        }
    }
}

impl<T> Leader<T> {
    fn leave(&self) -> Vec<oneshot::Sender<T>> {
        self.flights.lock().remove(&self.key).unwrap_or_default()
    }
}

impl<T> Drop for Leader<T> {
    fn drop(&mut self) {
        if !self.is_complete {
            self.leave();
        }
    }
}

#[cfg(test)]
mod tests;
