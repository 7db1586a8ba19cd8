//! Identical reads at the same time are one call to the node.
//!
//! The first who asks takes a future along; whoever asks the same while it is under way shares it.
//! Nobody runs it but those who wait: it is polled by all of them, so one that goes away fails none
//! of the others, and it is dropped when the last has gone. A flight is therefore never without a
//! request that waits for it, and the table is bounded by the requests in flight.

use futures_util::FutureExt as _;
use futures_util::future::{BoxFuture, Shared, WeakShared};
use portcullis_filters::verdict::ReadCall;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What several may wait for.
pub(super) type Flight<T> = Shared<BoxFuture<'static, T>>;

/// The flights under way.
pub(super) struct Flights<T: Clone>(Mutex<Table<T>>);

struct Table<T: Clone> {
    under_way: HashMap<Key, UnderWay<T>>,
    /// Tells a flight from a later one of the same key.
    next: u64,
}

/// What a flight answers, and in which life of the chain it began: nobody joins one of an earlier.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    epoch: u64,
    call: Arc<ReadCall>,
}

struct UnderWay<T: Clone> {
    number: u64,
    flight: WeakShared<BoxFuture<'static, T>>,
}

/// How somebody came to a flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    /// It began for this one.
    Leads,
    /// It was under way.
    Joins,
}

impl<T: Clone + Send + Sync + 'static> Flights<T> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self(Mutex::new(Table { under_way: HashMap::new(), next: 0 })))
    }

    /// The flight for this call, which `begin` makes if there is none.
    pub(super) fn join<F: Future<Output = T> + Send + 'static>(
        self: &Arc<Self>,
        epoch: u64,
        call: Arc<ReadCall>,
        begin: impl FnOnce() -> F,
    ) -> (Flight<T>, Part) {
        let key = Key { epoch, call };
        let mut table = self.lock();
        let number = table.next;
        let entry = table.under_way.entry(key);
        if let Entry::Occupied(entry) = &entry
            // else everybody who waited has gone
            && let Some(flight) = entry.get().flight.upgrade()
        {
            return (flight, Part::Joins);
        }
        let place = Place { flights: Arc::clone(self), key: entry.key().clone(), number };
        let fetch = begin();
        let flight = async move {
            let _place = place;
            fetch.await
        };
        let flight = flight.boxed().shared();
        if let Some(weak) = flight.downgrade() {
            entry.insert_entry(UnderWay { number, flight: weak });
            table.next += 1;
        }
        (flight, Part::Leads)
    }

    fn lock(&self) -> MutexGuard<'_, Table<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A flight's place in the table, left when it is over or dropped.
struct Place<T: Clone + Send + Sync + 'static> {
    flights: Arc<Flights<T>>,
    key: Key,
    number: u64,
}

impl<T: Clone + Send + Sync + 'static> Drop for Place<T> {
    fn drop(&mut self) {
        let mut table = self.flights.lock();
        let is_ours =
            table.under_way.get(&self.key).is_some_and(|found| found.number == self.number);
        if is_ours {
            table.under_way.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests;
