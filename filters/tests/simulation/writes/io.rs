//! The relay's driver in the simulation: each call takes its time, and may be lost, late, or the
//! last one of its process. Where a bug is planted, this driver has it.

use super::Bug;
use super::chain::View;
use super::machine::{HasAgenda as _, Process, Shared, Slot, fill};
use super::shown::Failure;
use super::world::{Fault, World};
use portcullis_filters::felt::Felt;
use portcullis_filters::txm::io::{Called, Flight, JournalError, LockError, Stored};
use portcullis_filters::txm::memory::Memory;
use portcullis_filters::txm::node::{CallError, ErrorObject};
use portcullis_filters::txm::outcome::Outcome;
use portcullis_filters::verdict::{Reason, Refusal};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

/// How long a call of the node may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// No request is on its way for longer.
const LONGEST: Duration = Duration::from_secs(60);
/// How long a proof is valid.
const PROOF: Duration = Duration::from_secs(5);
/// How long another chain must be reported before it is in force.
const PATIENCE_US: i64 = 10_000_000;
/// How long to wait for another process.
pub(super) const LOCK: Duration = Duration::from_secs(10);

/// One process of a relay.
pub(super) struct SimIo {
    pub(super) relay: Process,
    pub(super) world: Shared<World>,
    pub(super) memory: Mutex<Memory>,
    pub(super) proof: Mutex<Option<Proof>>,
    pub(super) last_epoch: Mutex<Option<String>>,
    pub(super) in_flight: Arc<Mutex<BTreeMap<Flight, Slot<Outcome>>>>,
    pub(super) counters: Mutex<BTreeMap<Felt, u64>>,
    pub(super) wakes: Mutex<Slot<()>>,
}

#[derive(Clone)]
pub(super) struct Proof {
    pub(super) epoch: Result<String, Outcome>,
    pub(super) head: u64,
    until: Duration,
}

/// The lock of an account.
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

pub(super) fn release(world: &Shared<World>, of: Felt, ticket: u64) {
    let mut world = world.lock();
    let lock = world.locks.entry(of).or_default();
    lock.waiting.retain(|(waiting, _)| *waiting != ticket);
    if lock.holder.is_some_and(|(_, holder)| holder == ticket) {
        lock.holder = None;
    }
    if lock.holder.is_none()
        && let Some((_, waker)) = lock.waiting.front()
    {
        waker.wake_by_ref();
    }
}

pub(super) fn no_answer<T>() -> Called<T> {
    let refusal = Refusal::new(Reason::UpstreamTimeout, "the node did not answer in time");
    Err(CallError::NoAnswer {
        cause: "timeout",
        is_unsent: false,
        refusal,
    })
}

pub(super) fn unreachable<T>() -> Called<T> {
    let refusal = Refusal::new(Reason::UpstreamUnreachable, "the node cannot be reached");
    Err(CallError::NoAnswer {
        cause: "unreachable",
        is_unsent: true,
        refusal,
    })
}

pub(super) fn returned<T>(code: i64) -> Called<T> {
    Err(CallError::Returned(ErrorObject {
        code,
        short_reason: None,
    }))
}

impl SimIo {
    pub(super) fn new(relay: Process, world: Shared<World>) -> Self {
        Self {
            relay,
            world,
            memory: Mutex::default(),
            proof: Mutex::default(),
            last_epoch: Mutex::default(),
            in_flight: Arc::default(),
            counters: Mutex::default(),
            wakes: Mutex::new(Slot::new()),
        }
    }

    /// A call of the node: sent, carried out, answered.
    pub(super) async fn call_node<T: Clone + Send + 'static>(
        &self,
        carry_out: impl FnOnce(&mut World) -> Called<T> + Send + 'static,
    ) -> Called<T> {
        let (slot, relay) = (Slot::new(), self.relay);
        {
            let mut world = self.world.lock();
            let sent = world.millis(1, 20);
            let is_late = world.fires(Fault::Late, 40);
            let late = if is_late {
                world.millis(100, 12_000)
            } else {
                Duration::ZERO
            };
            let is_lost = world.fires(Fault::CallLost, 80);
            let is_silent = world.fires(Fault::AnswerLost, 60) || sent + late > TIMEOUT;
            let crash = world.fires(Fault::Crash, 800);
            let answer = slot.clone();
            if is_lost || is_silent {
                let now = world.now();
                world.oracle.silent = world.oracle.silent.max(Some(now + TIMEOUT));
                let answer = slot.clone();
                let silent = move |world: &mut World| fill(world.agenda(), &answer, no_answer());
                world.agenda().after(TIMEOUT, silent);
            }
            if !is_lost {
                let begun = world.now();
                world.agenda().after(sent + late, move |world: &mut World| {
                    let is_cut_off = world.now() < world.relays[relay].cut_off_until;
                    // hours may have passed
                    if is_cut_off || world.now() > begun + LONGEST {
                        let silent =
                            move |world: &mut World| fill(world.agenda(), &answer, no_answer());
                        return world.agenda().after(TIMEOUT, silent);
                    }
                    let value = carry_out(world);
                    if crash {
                        world.crash(relay);
                    } else if !is_silent {
                        let back = world.millis(1, 10);
                        let answered =
                            move |world: &mut World| fill(world.agenda(), &answer, value);
                        world.agenda().after(back, answered);
                    }
                });
            }
        }
        let called = slot.wait().await;
        self.world.lock().record_call(relay, &called);
        called
    }

    /// A call that the serving URL answers from its view.
    pub(super) async fn ask<T: Clone + Send + 'static>(
        &self,
        read: impl FnOnce(&mut World, &View) -> Called<T> + Send + 'static,
    ) -> Called<T> {
        self.call_node(move |world| {
            let Some(url) = world.serving() else {
                return unreachable();
            };
            match world.view(url) {
                Some(view) => read(world, &view),
                None => unreachable(),
            }
        })
        .await
    }

    /// A call of one URL.
    pub(super) async fn ask_url<T: Clone + Send + 'static>(
        &self,
        url: usize,
        read: impl FnOnce(&mut World, &View) -> Called<T> + Send + 'static,
    ) -> Called<T> {
        self.call_node(move |world| match world.view(url) {
            Some(view) => read(world, &view),
            None => unreachable(),
        })
        .await
    }

    /// A statement of the store; one that `writes` may be committed without a confirmation.
    pub(super) async fn query<T: Clone + Send + 'static>(
        &self,
        writes: bool,
        carry_out: impl FnOnce(&mut World) -> T + Send + 'static,
    ) -> Stored<T> {
        let (slot, relay) = (Slot::new(), self.relay);
        {
            let mut world = self.world.lock();
            let took = world.millis(0, 4);
            let fails = world.fires(Fault::StoreFails, 150);
            let is_unknown = world.fires(Fault::CommitUnknown, 50) && writes;
            let is_applied = !is_unknown || world.chance.choose(2) == 0;
            let crash = world.fires(Fault::Crash, 1_000);
            let (answer, bug, begun) = (slot.clone(), world.bug, world.now());
            world.agenda().after(took, move |world: &mut World| {
                let fails = fails || world.now() > begun + LONGEST;
                let is_full = writes && !world.is_healed && world.now() < world.full_until;
                let value = match fails || is_full {
                    true => Err(JournalError::Failed),
                    false if is_unknown => {
                        if is_applied {
                            carry_out(world);
                        }
                        Err(match bug {
                            Bug::UnknownIsFailed => JournalError::Failed,
                            _ => JournalError::Unconfirmed,
                        })
                    }
                    false => Ok(carry_out(world)),
                };
                if crash {
                    world.crash(relay);
                } else {
                    fill(world.agenda(), &answer, value);
                }
            });
        }
        let stored = slot.wait().await;
        self.world.lock().record_query(relay, &stored);
        stored
    }

    /// Reads the journal.
    pub(super) async fn read<T: Clone + Send + 'static>(
        &self,
        read: impl FnOnce(&World) -> T + Send + 'static,
    ) -> Stored<T> {
        self.query(false, move |world| read(world)).await
    }

    pub(super) async fn prove(&self) -> Proof {
        let now = self.world.now();
        let cached = self.proof.lock().expect("no task panics").clone();
        if let Some(proof) = cached.filter(|proof| now < proof.until) {
            if proof.epoch.is_err() {
                self.world.lock().fail(self.relay, Failure::Proof);
            }
            return proof;
        }
        let read = self
            .ask(|_, view| Ok((format!("g{}", view.genesis), view.head().number)))
            .await;
        let (epoch, head) = match read {
            Ok((epoch, head)) => (self.agree(epoch).await, head),
            Err(_) => {
                self.world.lock().fail(self.relay, Failure::Proof);
                (Err(unproven()), 0)
            }
        };
        let valid = if epoch.is_ok() {
            PROOF
        } else {
            Duration::from_secs(1)
        };
        if let Ok(epoch) = &epoch {
            *self.last_epoch.lock().expect("no task panics") = Some(epoch.clone());
        }
        let proof = Proof {
            epoch,
            head,
            until: now + valid,
        };
        *self.proof.lock().expect("no task panics") = Some(proof.clone());
        proof
    }

    /// The epoch, if the relays of the store write to it.
    async fn agree(&self, epoch: String) -> Result<String, Outcome> {
        let reported = epoch.clone();
        let agreed = self.query(true, move |world| {
            let now_us = world.clock_us();
            world.journal.tables.agree(&reported, now_us, PATIENCE_US)
        });
        match agreed.await {
            Ok(expected) if expected == epoch => Ok(epoch),
            _ => {
                self.world.lock().fail(self.relay, Failure::Proof);
                Err(unproven())
            }
        }
    }

    /// Waits for a lock, at most until a deadline, or for so long while another process has it.
    pub(super) async fn acquire(
        &self,
        of: Felt,
        deadline: Duration,
        patience: Duration,
    ) -> Result<Guard, LockError> {
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
            let is_first = lock
                .waiting
                .front()
                .is_none_or(|(first, _)| *first == ticket);
            if lock.holder.is_none() && is_first {
                lock.waiting.retain(|(waiting, _)| *waiting != ticket);
                lock.holder = Some((relay, ticket));
                return Poll::Ready(Ok(()));
            }
            let is_elsewhere = lock.holder.is_some_and(|(holder, _)| holder != relay);
            let is_over = now >= deadline || (is_elsewhere && now >= start + patience);
            if is_over {
                if bug == Bug::LockLeaked {
                    lock.waiting.retain(|(waiting, _)| *waiting != ticket);
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
            match lock
                .waiting
                .iter_mut()
                .find(|(waiting, _)| *waiting == ticket)
            {
                Some(waiting) => waiting.1 = waker.clone(),
                None => lock.waiting.push_back((ticket, waker.clone())),
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
        granted?;
        Ok(guard)
    }

    pub(super) fn counted(&self, account: Felt, nonce: u64) -> u64 {
        let counters = self.counters.lock().expect("no task panics");
        nonce.max(counters.get(&account).copied().unwrap_or(0))
    }
}

fn unproven() -> Outcome {
    Outcome::refused(Reason::PinsUnproven, "the chain's pins are not proven")
}
