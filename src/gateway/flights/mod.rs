//! Identical reads at the same time are one call to the node.
//!
//! The first who asks leads: its own request asks the node, with no task between. Whoever asks the
//! same meanwhile follows, and is handed the answer. A leader that goes away fails nobody: those
//! who followed it are told, and one of them leads. The table holds nothing but what some request
//! is waiting for, or was when it gave up less than a node's timeout ago.

use super::asked::Asked;
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
    asked: Arc<Asked>,
}

/// A place in a flight.
pub(super) enum Seat<T> {
    /// To ask the node, and to tell the others.
    Leads(Lead<T>),
    /// To be told. An error says that the leader has gone: join again.
    Follows(oneshot::Receiver<T>),
}

/// The leader's place. Dropped without an answer, it leaves those who follow to lead themselves.
pub(super) struct Lead<T> {
    flights: Arc<Flights<T>>,
    key: Key,
    has_landed: bool,
}

impl<T> Flights<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Table::default())))
    }

    /// A place in the flight for this read; the first leads.
    pub(super) fn join(self: &Arc<Self>, epoch: u64, asked: Arc<Asked>) -> Seat<T> {
        match self.lock().entry(Key { epoch, asked }) {
            Entry::Vacant(entry) => {
                let key = entry.key().clone();
                entry.insert(Vec::new());
                Seat::Leads(Lead { flights: Arc::clone(self), key, has_landed: false })
            }
            Entry::Occupied(mut entry) => {
                let (teller, told) = oneshot::channel();
                entry.get_mut().push(teller);
                Seat::Follows(told)
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Table<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Clone> Lead<T> {
    /// The flight is over: everybody has this answer, and who comes now asks anew.
    pub(super) fn land(mut self, answer: &T) {
        self.has_landed = true;
        for follower in self.leave() {
            // one that went away needs none
            let _ = follower.send(answer.clone());
        }
    }
}

impl<T> Lead<T> {
    fn leave(&self) -> Vec<oneshot::Sender<T>> {
        self.flights.lock().remove(&self.key).unwrap_or_default()
    }
}

impl<T> Drop for Lead<T> {
    fn drop(&mut self) {
        if !self.has_landed {
            self.leave();
        }
    }
}

#[cfg(test)]
mod tests;
