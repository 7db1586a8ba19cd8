//! Slots for lookups of accounts and for the rendering of feeds, shared fairly among clients.
//!
//! A client gets a slot only while more are free than it holds, so no client ever holds all: of
//! eight, one client gets four, a second one two, and two more one each. Where the host is not the
//! client's choice, one client may hold all but a reserve.

use parking_lot::Mutex;
use portcullis_base::io::within;
use portcullis_filters::client::ClientKey;
use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Notify;

/// How long a client waits for a slot.
const QUEUE_TIMEOUT: Duration = Duration::from_secs(3);

/// Slots, and the clients that hold them.
#[derive(Debug)]
pub(super) struct Turns {
    table: Mutex<Table>,
    freed: Notify,
}

#[derive(Debug)]
struct Table {
    free: usize,
    /// While more than these are free, any client gets one.
    reserve: usize,
    /// Slots held, by client.
    held: HashMap<ClientKey, usize>,
}

/// A slot held by a client; freed on drop.
#[derive(Debug)]
pub(super) struct Turn {
    turns: Arc<Turns>,
    client: ClientKey,
}

impl Turns {
    /// Slots that are shared equally.
    pub(super) fn equal(slots: usize) -> Arc<Self> {
        Self::with_reserve(slots, slots)
    }

    /// Slots of which one client may hold all but `reserve`.
    pub(super) fn with_reserve(slots: usize, reserve: usize) -> Arc<Self> {
        let table = Table {
            free: slots,
            reserve,
            held: HashMap::new(),
        };
        Arc::new(Self {
            table: Mutex::new(table),
            freed: Notify::new(),
        })
    }

    /// Waits for a slot; `None` after [`QUEUE_TIMEOUT`].
    pub(super) async fn take(self: &Arc<Self>, client: ClientKey) -> Option<Turn> {
        let turn = async {
            loop {
                // registered before the check, so that no freed slot is missed
                let freed = self.freed.notified();
                if self.table.lock().take(client) {
                    return Turn {
                        turns: Arc::clone(self),
                        client,
                    };
                }
                freed.await;
            }
        };
        within(QUEUE_TIMEOUT, pin!(turn)).await
    }
}

impl Table {
    fn take(&mut self, client: ClientKey) -> bool {
        let held = self.held.get(&client).copied().unwrap_or_default();
        let is_fair = held < self.free || self.free > self.reserve;
        if is_fair {
            self.free -= 1;
            self.held.insert(client, held + 1);
        }
        is_fair
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let mut table = self.turns.table.lock();
        table.free += 1;
        if let Some(held) = table.held.get_mut(&self.client) {
            *held -= 1;
            if *held == 0 {
                table.held.remove(&self.client);
            }
        }
        drop(table);
        self.turns.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_reserve_is_left_for_other_clients() {
        let turns = Turns::with_reserve(8, 2);
        let client = |host: u8| ClientKey::of([192, 0, 2, host].into());
        let mut taken = Vec::new();
        for (host, slots) in [(1, 6), (2, 1), (3, 1), (4, 0)] {
            let before = taken.len();
            while let Some(turn) = turns.take(client(host)).await {
                taken.push(turn);
            }
            assert_eq!(taken.len() - before, slots, "client {host}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_client_holds_all_slots() {
        let turns = Turns::equal(8);
        let client = |host: u8| ClientKey::of([192, 0, 2, host].into());
        let mut taken = Vec::new();
        for (host, slots) in [(1, 4), (2, 2), (3, 1), (4, 1), (5, 0)] {
            let before = taken.len();
            while let Some(turn) = turns.take(client(host)).await {
                taken.push(turn);
            }
            assert_eq!(taken.len() - before, slots, "client {host}");
        }
        drop(taken.pop());
        assert!(
            turns.take(client(1)).await.is_none(),
            "it holds more than are free"
        );
        assert!(turns.take(client(5)).await.is_some());
        drop(taken);
        assert!(
            turns.table.lock().held.is_empty(),
            "no client is remembered"
        );
    }
}
