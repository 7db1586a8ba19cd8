//! The locks of accounts: a queue over all processes, except that a process keeps an account for
//! some of its own writes, as its share permits.

use super::Bug;
use super::io::SimIo;
use super::machine::{HasAgenda as _, Process, Shared};
use super::shares::Share;
use super::shown::Failure;
use super::world::World;
use portcullis_filters::felt::Felt;
use portcullis_filters::txm::io::LockError;
use portcullis_filters::txm::lock_share::LockShare;
use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::{Poll, Waker};
use std::time::Duration;

/// The lock of an account, or of a process' turn.
#[derive(Default)]
pub(super) struct Lock {
    pub(super) holder: Option<(Process, u64)>,
    waiting: VecDeque<Waiting>,
    /// The process that had it last.
    last: Option<Process>,
    pub(super) share: Share,
}

struct Waiting {
    relay: Process,
    ticket: u64,
    waker: Waker,
}

impl Lock {
    fn forget(&mut self, ticket: u64) {
        self.waiting.retain(|it| it.ticket != ticket);
    }
}

/// The right to write with an account.
pub(super) struct Guard {
    world: Shared<World>,
    pub(super) of: Felt,
    pub(super) ticket: u64,
    pub(super) is_released: bool,
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.is_released {
            release(&self.world, self.of, self.ticket);
        }
    }
}

fn release(world: &Shared<World>, of: Felt, ticket: u64) {
    let mut world = world.lock();
    let lock = world.locks.entry(of).or_default();
    lock.forget(ticket);
    if lock.holder.is_some_and(|(_, holder)| holder == ticket) {
        lock.holder = None;
    }
    if lock.holder.is_none()
        && let Some(next) = lock.waiting.front()
    {
        next.waker.wake_by_ref();
    }
}

impl SimIo {
    /// Locks an account.
    pub(super) async fn lock_account(
        &self,
        of: Felt,
        deadline: Duration,
    ) -> Result<Guard, LockError> {
        let left = deadline.saturating_sub(self.world.now());
        let wait = self.share(of, |share| share.wait(left));
        self.world.lock().judge_patience(self.relay, of, wait, left);
        let locked = self.acquire(of, deadline, wait).await;
        match locked {
            Ok((guard, was_here)) => {
                let now = self.world.now();
                self.share(of, |share| {
                    if !was_here {
                        share.begin(now);
                    }
                    share.begin_write();
                });
                Ok(guard)
            }
            Err(error) => {
                if error == LockError::HeldElsewhere {
                    self.share(of, LockShare::waited_in_vain);
                    let in_vain = &mut self.world.lock().oracle.notes.in_vain;
                    in_vain.insert((self.relay, of));
                }
                Err(error)
            }
        }
    }

    /// Unlocks an account; another write of this process comes first, if its share goes on.
    pub(super) fn unlock_account(&self, mut guard: Guard) {
        guard.is_released = true;
        let now = self.world.now();
        let share = self.share(guard.of, |share| *share);
        {
            let mut world = self.world.lock();
            let lock = world.locks.entry(guard.of).or_default();
            let is_own = |it: &Waiting| it.relay == self.relay;
            let waiting = lock.waiting.iter().filter(|it| is_own(it)).count();
            if share.goes_on(waiting, now)
                && let Some(at) = lock.waiting.iter().position(is_own)
                && let Some(next) = lock.waiting.remove(at)
            {
                let is_contended = lock
                    .waiting
                    .front()
                    .is_some_and(|it| it.relay != self.relay);
                lock.waiting.push_front(next);
                if is_contended {
                    world.judge_kept(guard.of);
                }
            }
        }
        release(&self.world, guard.of, guard.ticket);
    }

    fn share<T>(&self, of: Felt, use_it: impl FnOnce(&mut LockShare) -> T) -> T {
        use_it(
            self.lock_shares
                .lock()
                .expect("no task panics")
                .entry(of)
                .or_default(),
        )
    }

    /// Waits for a lock, at most until a deadline, or for so long while another process has it.
    /// Returns whether this process had it last, too.
    pub(super) async fn acquire(
        &self,
        of: Felt,
        deadline: Duration,
        patience: Duration,
    ) -> Result<(Guard, bool), LockError> {
        let (ticket, start) = {
            let mut world = self.world.lock();
            (world.ticket(), world.now())
        };
        let guard = Guard {
            world: self.world.clone(),
            of,
            ticket,
            is_released: false,
        };
        let mut is_timed = false;
        let relay = self.relay;
        let granted = poll_fn(|context| {
            let mut world = self.world.lock();
            let (now, bug) = (world.now(), world.bug);
            let lock = world.locks.entry(of).or_default();
            let is_first = lock.waiting.front().is_none_or(|it| it.ticket == ticket);
            if lock.holder.is_none() && is_first {
                lock.forget(ticket);
                lock.holder = Some((relay, ticket));
                let last = lock.last.replace(relay);
                let was_here = last == Some(relay);
                lock.share.granted(relay, last, now);
                world.oracle.notes.in_vain.remove(&(relay, of));
                return Poll::Ready(Ok(was_here));
            }
            let is_elsewhere = lock.holder.is_some_and(|(holder, _)| holder != relay);
            let is_over = now >= deadline || (is_elsewhere && now >= start + patience);
            if is_over {
                if bug == Bug::LockLeaked {
                    lock.forget(ticket);
                    lock.holder = Some((relay, 0));
                }
                let held = if is_elsewhere {
                    LockError::HeldElsewhere
                } else {
                    LockError::Deadline
                };
                return Poll::Ready(Err(held));
            }
            let waker = context.waker().clone();
            match lock.waiting.iter_mut().find(|it| it.ticket == ticket) {
                Some(waiting) => waiting.waker = waker.clone(),
                None => lock.waiting.push_back(Waiting {
                    relay,
                    ticket,
                    waker: waker.clone(),
                }),
            }
            if !std::mem::replace(&mut is_timed, true) {
                for end in [deadline, start + patience] {
                    let waker = waker.clone();
                    let wake = move |_: &mut World| waker.wake();
                    world.agenda().after(end.saturating_sub(now), wake);
                }
            }
            Poll::Pending
        });
        let granted = granted.await;
        if granted.is_err() {
            self.world.lock().fail(relay, Failure::Lock);
        }
        Ok((guard, granted?))
    }
}
