//! The relay's driver in the simulation: each call takes its time, and may be lost, late, or the
//! last one of its process. Where a bug is planted, this driver has it.

use super::Bug;
use super::chain::View;
use super::machine::{HasAgenda as _, Process, Shared, Slot, fill};
use super::pins::Proof;
use super::world::{Fault, Lapse, World};
use portcullis_filters::felt::Felt;
use portcullis_filters::txm::io::{Called, Flight, JournalError, Stored};
use portcullis_filters::txm::lock_share::LockShare;
use portcullis_filters::txm::memory::Memory;
use portcullis_filters::txm::node::{CallError, ErrorObject};
use portcullis_filters::txm::outcome::Outcome;
use portcullis_filters::txm::settings::Pins;
use portcullis_filters::verdict::{Reason, Refusal};
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long a call of the node may take.
const TIMEOUT: Duration = Duration::from_secs(5);
/// No request is on its way for longer.
pub(super) const LONGEST: Duration = Duration::from_secs(60);

/// One process of a relay.
pub(super) struct SimIo {
    pub(super) relay: Process,
    pub(super) world: Shared<World>,
    pub(super) memory: Mutex<Memory>,
    /// Its configuration, as far as it does not change while it runs.
    pub(super) pins: &'static Pins,
    pub(super) proof: Mutex<Option<Proof>>,
    /// The newest epoch that a proof found, agreed or not, with its head.
    pub(super) found: Mutex<Option<(String, u64)>>,
    pub(super) in_flight: Arc<Mutex<BTreeMap<Flight, Slot<Outcome>>>>,
    pub(super) counters: Mutex<BTreeMap<Felt, u64>>,
    wakes: Mutex<Slot<()>>,
    /// Its shares of the accounts' locks.
    pub(super) lock_shares: Mutex<BTreeMap<Felt, LockShare>>,
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

/// What a statement of the store does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Statement {
    Read,
    /// It writes by itself: an error does not prove that nothing was stored.
    Write,
}

/// The error if a commit has no answer, which the driver may name or not.
pub(super) fn unconfirmed(drawn: u32) -> JournalError {
    match drawn {
        0 => JournalError::Unconfirmed,
        _ => JournalError::Failed,
    }
}

impl SimIo {
    pub(super) fn new(relay: Process, world: Shared<World>, pins: &'static Pins) -> Self {
        Self {
            relay,
            pins,
            world,
            memory: Mutex::default(),
            proof: Mutex::default(),
            found: Mutex::default(),
            in_flight: Arc::default(),
            counters: Mutex::default(),
            wakes: Mutex::new(Slot::new()),
            lock_shares: Mutex::default(),
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
        let relay = self.relay;
        self.call_node(move |world| {
            let Some(url) = world.serving(relay) else {
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

    /// A statement of the store; one that writes may be committed without a confirmation.
    pub(super) async fn query<T: Clone + Send + 'static>(
        &self,
        statement: Statement,
        carry_out: impl FnOnce(&mut World) -> T + Send + 'static,
    ) -> Stored<T> {
        let stored = self.perform(statement, carry_out).await;
        self.world.lock().record_query(self.relay, &stored);
        stored
    }

    /// [`SimIo::query`], of which no write learns.
    pub(super) async fn perform<T: Clone + Send + 'static>(
        &self,
        statement: Statement,
        carry_out: impl FnOnce(&mut World) -> T + Send + 'static,
    ) -> Stored<T> {
        let (slot, relay) = (Slot::new(), self.relay);
        {
            let writes = statement != Statement::Read;
            let mut world = self.world.lock();
            let took = world.millis(0, 4);
            let fails = world.fires(Fault::StoreFails, 150);
            let lapse = if writes { world.lapse.take() } else { None };
            let is_unknown = world.fires(Fault::CommitUnknown, 50) && writes || lapse.is_some();
            let (is_applied, error) = match lapse {
                Some(lapse) => (lapse == Lapse::Done, JournalError::Unconfirmed),
                None if is_unknown => {
                    let drawn = world.chance.choose(4);
                    (drawn.is_multiple_of(2), unconfirmed(drawn / 2))
                }
                None => (true, JournalError::Unconfirmed),
            };
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
                            _ => error,
                        })
                    }
                    false => Ok(carry_out(world)),
                };
                world.raise_alarm();
                if crash {
                    world.crash(relay);
                } else {
                    fill(world.agenda(), &answer, value);
                }
            });
        }
        slot.wait().await
    }

    /// Reads the journal.
    pub(super) async fn read<T: Clone + Send + 'static>(
        &self,
        read: impl FnOnce(&World) -> T + Send + 'static,
    ) -> Stored<T> {
        self.query(Statement::Read, move |world| read(world)).await
    }

    /// Wakes the reconciliation, now or when it waits next.
    pub(super) fn wake_up(&self) {
        let slot = self.wakes.lock().expect("no task panics").clone();
        self.world.fill(&slot, ());
    }

    /// Waits until it is woken, since it last waited.
    pub(super) async fn woken(&self) {
        let slot = self.wakes.lock().expect("no task panics").clone();
        slot.wait().await;
        *self.wakes.lock().expect("no task panics") = Slot::new();
    }

    pub(super) fn counted(&self, account: Felt, nonce: u64) -> u64 {
        let counters = self.counters.lock().expect("no task panics");
        nonce.max(counters.get(&account).copied().unwrap_or(0))
    }
}
