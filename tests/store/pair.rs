//! Two processes at one database, one of which may lose it in the middle of a command.

use crate::wire::{Cut, Moment, Request, Wire};
use crate::world::World;
use portcullis_store::{Store, StoreError};
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

/// Polls of a command with a transaction, and more.
const POLLS: u32 = 16;

pub(crate) struct Pair {
    pub(crate) stores: [Store; 2],
    /// Of each process; none leads to SQLite.
    wires: Option<[Wire; 2]>,
}

/// How a command ended that was interrupted.
#[derive(Debug)]
pub(crate) struct Interrupted<T> {
    /// The result that its caller got; `None` if it was dropped.
    pub(crate) done: Option<Result<T, StoreError>>,
    /// The moment, if the server ended the session at the commit.
    pub(crate) at_commit: Option<Moment>,
}

impl Pair {
    pub(crate) async fn open(world: &World) -> Self {
        if world.is_sqlite() {
            // as the commands of an operator do it
            let shared = async || Store::open_shared(&world.config(), None).await.unwrap();
            return Self {
                stores: [world.open().await, shared().await],
                wires: None,
            };
        }
        let wires = [Wire::to(world).await, Wire::to(world).await];
        let [one, two] = &wires;
        let open = async |wire: &Wire| Store::open(wire.config(), None).await.unwrap();
        Self {
            stores: [open(one).await, open(two).await],
            wires: Some(wires),
        }
    }

    pub(crate) async fn close(self) {
        for store in self.stores {
            store.close().await;
        }
    }

    /// Does the work of a store, and ends its session. On SQLite, work that consists of one
    /// transaction is dropped after a number of polls instead, as a task that is aborted is.
    pub(crate) async fn interrupt<T>(
        &self,
        at: usize,
        cut: Cut,
        is_one_transaction: bool,
        work: impl Future<Output = Result<T, StoreError>>,
    ) -> Interrupted<T> {
        if let Some(wires) = &self.wires {
            wires[at].arm(cut);
            let done = Some(work.await);
            return Interrupted {
                done,
                at_commit: wires[at].disarm(),
            };
        }
        let polls = match cut.request {
            // a statement that was begun alone may be done at any later time
            _ if !is_one_transaction => u32::MAX,
            Request::Number(number) => number,
            Request::Commit => POLLS,
        };
        let done = abandoned(work, polls).await;
        if done.is_none() {
            // waits until its transaction has ended
            self.stores[at].ping_write().await.unwrap();
        }
        Interrupted {
            done,
            at_commit: None,
        }
    }
}

/// Polls at most this often, and then drops the work.
async fn abandoned<T>(work: impl Future<Output = T>, polls: u32) -> Option<T> {
    let (mut work, mut left) = (pin!(work), polls);
    poll_fn(|context| match work.as_mut().poll(context) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if left == 0 => Poll::Ready(None),
        Poll::Pending => {
            left -= 1;
            Poll::Pending
        }
    })
    .await
}
