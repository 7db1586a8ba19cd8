//! The relay's driver, in the simulation.

use super::Bug;
use super::chain::{Action, Tx, felt};
use super::io::{SimIo, Statement};
use super::locks::Guard;
use super::machine::{HasAgenda as _, Shared, Slot};
use super::shown::Failure;
use super::world::{Fault, SKEW_US, World};
use crate::tables::RequestKey;
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{
    Binding, Change, Claim, ClaimToken, Inclusion, Intended, Intent, IntentId, IntentState,
    NewIntent, OwnedChange, OwnedIntent, Requested,
};
use portcullis_filters::tx::Invoke;
use portcullis_filters::txm::io::{
    Called, Flight, Io, JournalError, JournalIo, KeyOf, LockError, Note, Purpose, SignedText,
    Stored,
};
use portcullis_filters::txm::memory::Memory;
use portcullis_filters::txm::not_sent::NotSent;
use portcullis_filters::txm::outcome::Outcome;
use portcullis_filters::txm::settings::{Pins, Required, Role, Settings};
use portcullis_filters::window::Window;
use std::cmp::Reverse;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

/// The state that the operator is informed of.
fn noted(change: &Change<'_>) -> Option<IntentState> {
    match change {
        // what is given up was shown without its block, and is no rollback
        Change::Displaced { from, .. } => from.map(|_| IntentState::Displaced),
        Change::Lost(_) => Some(IntentState::Lost),
        _ => None,
    }
}

impl JournalIo for SimIo {
    fn clock_us(&self) -> i64 {
        let world = self.world.lock();
        let relay = &world.relays[self.relay];
        let wrong = if world.bug == Bug::WallClock {
            relay.clock_us
        } else {
            0
        };
        world.clock_us() + relay.skew_us + wrong
    }

    fn clock_error_us(&self) -> i64 {
        let world = self.world.lock();
        if world.is_exclusive {
            return 0;
        }
        world.relays[self.relay].error_us + SKEW_US
    }

    fn is_exclusive(&self) -> bool {
        self.world.lock().is_exclusive
    }

    async fn intend(&self, new: &NewIntent<'_>, now_us: i64) -> Stored<Intended> {
        let (new, relay) = (OwnedIntent::from(new), self.relay);
        self.world.lock().judge_floor(relay, new.borrowed().epoch);
        if self.world.lock().bug != Bug::SendFirst {
            return self.intend_with_others(new, now_us).await;
        }
        self.query(Statement::Write, move |world| {
            // replies first, and stores it a little later, if it still runs then
            let reply = world.journal.clone().intend(&new.borrowed(), now_us);
            world
                .agenda()
                .after(Duration::from_millis(60), move |world: &mut World| {
                    if world.relays[relay].io.is_some() {
                        world.journal.intend(&new.borrowed(), now_us);
                    }
                });
            reply
        })
        .await
    }

    async fn apply(&self, id: IntentId, change: &Change<'_>) -> Stored<bool> {
        let change = OwnedChange::from(change);
        let noted = noted(&change.borrowed());
        let now_us = self.clock_us();
        let is_applied = self.change_with_others(id, change, now_us).await?;
        if is_applied {
            self.world.lock().expect_note(self.relay, id, noted);
        }
        Ok(is_applied)
    }

    async fn intent(&self, id: IntentId) -> Stored<Option<Intent>> {
        self.read(move |world| world.journal.tables.intents.get(&id).cloned())
            .await
    }

    async fn requested(
        &self,
        epoch: &str,
        digest: &[u8; 32],
        key: Option<&KeyOf<'_>>,
    ) -> Stored<Requested> {
        let epoch = epoch.to_owned();
        let digest = *digest;
        let key = key.map(RequestKey::from);
        self.read(move |world| {
            let journal = world.read();
            let linked = key.and_then(|key| journal.linked(&key));
            Requested {
                linked,
                newest: journal.newest_by_digest(&epoch, &digest),
            }
        })
        .await
    }

    async fn unresolved(&self, epoch: &str, signer: Option<Felt>) -> Stored<Vec<Intent>> {
        let epoch = epoch.to_owned();
        let is_it = move |it: &Intent| {
            it.state.is_unresolved() && signer.is_none_or(|signer| it.signer == signer)
        };
        let found = self.read(move |world| world.journal.select(&epoch, is_it));
        let found = found.await?;
        if let Some(account) = signer {
            self.world.lock().note_open(self.relay, account, &found);
        }
        Ok(found)
    }

    async fn displaced(
        &self,
        epoch: &str,
        below: Option<IntentId>,
        limit: u32,
    ) -> Stored<Vec<Intent>> {
        let epoch = epoch.to_owned();
        let relay = self.relay;
        let found = self.read(move |world| {
            let is_it = |it: &Intent| {
                it.state == IntentState::Displaced && below.is_none_or(|below| it.id < below)
            };
            let mut found = world.journal.select(&epoch, is_it);
            found.sort_by_key(|it| Reverse(it.id));
            found.truncate(limit as usize);
            found
        });
        let found = found.await?;
        let page = found.iter().map(|it| it.id).collect();
        self.world.lock().oracle.notes.pages.insert(relay, page);
        Ok(found)
    }

    async fn of_slot(&self, epoch: &str, signer: Felt, nonce: u64) -> Stored<Vec<Intent>> {
        let epoch = epoch.to_owned();
        let is_it = move |it: &Intent| (it.signer, it.nonce) == (signer, nonce);
        self.read(move |world| world.journal.select(&epoch, is_it))
            .await
    }

    async fn included_anywhere(
        &self,
        epoch: &str,
        below: Option<IntentId>,
        limit: u32,
    ) -> Stored<Vec<Intent>> {
        let epoch = epoch.to_owned();
        self.read(move |world| world.journal.included_anywhere(&epoch, below, limit))
            .await
    }

    async fn included_newest(&self, epoch: &str, limit: u32) -> Stored<Vec<Intent>> {
        let epoch = epoch.to_owned();
        self.read(move |world| world.journal.included_newest(&epoch, limit))
            .await
    }

    async fn floor(&self, epoch: &str) -> Stored<Option<u64>> {
        let of = epoch.to_owned();
        let floor = self.read(move |world| {
            let included = world.journal.select(&of, |it| it.state.is_included());
            included
                .iter()
                .filter_map(|it| it.included)
                .map(|Inclusion { number, .. }| number)
                .max()
        });
        let floor = floor.await?;
        let floors = &mut self.world.lock().oracle.notes.floors;
        floors.insert((self.relay, epoch.to_owned()), floor);
        Ok(floor)
    }

    async fn last_of(
        &self,
        operation: &str,
        subject: Felt,
        epoch: &str,
        cooldown: Window,
    ) -> Stored<Option<Intent>> {
        let (operation, epoch) = (operation.to_owned(), epoch.to_owned());
        self.read(move |world| world.journal.last_of(&operation, subject, &epoch, cooldown))
            .await
    }

    async fn binding(&self, epoch: &str, identity: Felt, recipient: Felt) -> Stored<Binding> {
        let epoch = epoch.to_owned();
        self.read(move |world| world.journal.binding(&epoch, identity, recipient))
            .await
    }

    async fn claim(&self, key: &KeyOf<'_>, token: &ClaimToken) -> Stored<Claim> {
        let (key, token) = (RequestKey::from(key), *token);
        let (now_us, relay) = (self.clock_us(), self.relay);
        self.query(Statement::Write, move |world| {
            world.judge_claim(relay, &key.named);
            world.journal.claim(&key, token, now_us)
        })
        .await
    }

    async fn link(&self, key: &KeyOf<'_>, intent: IntentId) -> Stored<bool> {
        let key = RequestKey::from(key);
        self.query(Statement::Write, move |world| {
            let is_linked = world.journal.link(&key, intent);
            world.judge_links();
            is_linked
        })
        .await
    }

    async fn answer(
        &self,
        key: &KeyOf<'_>,
        intent: IntentId,
        outcome: &Outcome,
        _: &str,
    ) -> Stored<bool> {
        let key = RequestKey::from(key);
        let status = if outcome.reason().is_none() { 200 } else { 409 };
        let hash = outcome.transaction_hash.unwrap_or(Felt::ZERO).to_string();
        self.query(Statement::Write, move |world| {
            world.journal.answer(&key, intent, status, &hash)
        })
        .await
    }

    async fn release_claim(&self, key: &KeyOf<'_>, token: &ClaimToken) -> Stored<bool> {
        let (key, token) = (RequestKey::from(key), *token);
        self.query(Statement::Write, move |world| {
            world.journal.tables.release(&key.named, token)
        })
        .await
    }
}

impl Io for SimIo {
    type Trace = ();
    type Guard = Guard;

    fn pins(&self) -> &Pins {
        self.pins
    }

    fn settings(&self) -> Settings {
        self.world.lock().relays[self.relay].config.settings
    }

    fn now(&self) -> Duration {
        self.world.now()
    }

    fn sleep(&self, time: Duration) -> impl Future<Output = ()> + Send {
        self.world.sleep(time)
    }

    fn random(&self) -> Option<[u8; 16]> {
        {
            let mut world = self.world.lock();
            if world.fires(Fault::NoRandom, 300) {
                world.fail(self.relay, Failure::Random);
                return None;
            }
        }
        let mut bytes = [0; 16];
        bytes[..8].copy_from_slice(&self.world.lock().ticket().to_be_bytes());
        Some(bytes)
    }

    fn memory<T>(&self, use_it: impl FnOnce(&mut Memory) -> T) -> T {
        use_it(&mut self.memory.lock().expect("no task panics"))
    }

    async fn require(&self, required: Required) -> Result<String, NotSent> {
        let proof = self.prove().await;
        if let Some(epoch) = proof.proven(required) {
            return Ok(epoch);
        }
        let relay = self.relay;
        self.world.lock().fail(relay, Failure::Proof);
        Err(proof.refusal(required))
    }

    async fn epoch(&self) -> Result<String, NotSent> {
        let proof = self.prove().await;
        let found = self.found.lock().expect("no task panics").clone();
        match found {
            Some((epoch, _)) => Ok(epoch),
            None => {
                self.world.lock().fail(self.relay, Failure::Proof);
                Err(proof.refusal(Required::AllButV2))
            }
        }
    }

    fn forget_proof(&self) {
        *self.proof.lock().expect("no task panics") = None;
    }

    fn proven_head(&self, epoch: &str) -> Option<u64> {
        let found = self.found.lock().expect("no task panics").clone();
        let (_, head) = found.filter(|(of, _)| of == epoch)?;
        Some(head)
    }

    async fn lock(&self, role: Role, deadline: Duration) -> Result<Guard, LockError> {
        self.lock_account(*self.pins.accounts.of(role), deadline)
            .await
    }

    async fn check_lock(&self, guard: &mut Guard) -> Stored<()> {
        let (of, ticket) = (guard.of, guard.ticket);
        let is_held = self.read(move |world| {
            let holder = world.locks.get(&of).and_then(|lock| lock.holder);
            holder.is_some_and(|(_, holder)| holder == ticket) || world.bug == Bug::NoFence
        });
        if is_held.await? {
            self.world.lock().note_checked(self.relay, of);
            Ok(())
        } else {
            Err(JournalError::Failed)
        }
    }

    async fn unlock(&self, guard: Guard) {
        let _released = self.query(Statement::Write, |_| ()).await;
        self.unlock_account(guard);
    }

    fn sign(&self, role: Role, invoke: Invoke, purpose: Purpose) -> SignedText {
        let nonce = invoke.nonce.to_u64().expect("it is a nonce");
        let action = invoke
            .calls
            .first()
            .map_or(Action::Other, |call| Action::of(call.selector, &call.args));
        let of = &invoke.bounds;
        let sender = invoke.sender;
        let text = format!("{role:?} {sender} {nonce} {action:?} {of:?} {purpose:?}");
        let hash = felt(text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        }));
        let tx = Tx {
            hash,
            sender,
            nonce,
            action,
        };
        let mut world = self.world.lock();
        world.signed.insert(hash, tx);
        if purpose == Purpose::Write {
            let broken = world.judge_signed(self.relay, sender, nonce);
            world.oracle.report(broken);
            let broken = world.judge_other_hash(self.relay, &tx);
            world.oracle.report(broken);
        }
        if world.bug == Bug::BurnedNonce {
            let mut counters = self.counters.lock().expect("no task panics");
            counters.insert(invoke.sender, nonce + u64::from(purpose == Purpose::Write));
        }
        SignedText {
            hash,
            text: hash.to_string(),
        }
    }

    async fn add(&self, _: &str, transaction: &str, trace: Option<&()>) -> Called<Felt> {
        let (tx, bug) = {
            let world = self.world.lock();
            let of_user = world.texts.get(transaction).copied();
            let hash = of_user
                .or_else(|| Felt::parse(transaction))
                .expect("it was signed");
            (world.signed[&hash], world.bug)
        };
        let hash = tx.hash;
        if bug == Bug::SentIsBroadcast && trace.is_none() {
            return Ok(hash);
        }
        self.world.lock().judge_send(self.relay, &tx);
        let relay = self.relay;
        let [late, answered_late] = self.world.lock().provoke_sending(relay, &tx);
        self.world.sleep(late).await;
        let added = self.call_node(move |world| world.deliver(relay, tx));
        let added = added.await;
        self.world.sleep(answered_late).await;
        self.world.lock().record_answer(relay, hash, &added);
        if bug == Bug::LocalCounter {
            let mut counters = self.counters.lock().expect("no task panics");
            counters.insert(tx.sender, tx.nonce + 1);
        }
        match added {
            Err(portcullis_filters::txm::node::CallError::NoAnswer { cause, refusal, .. })
                if bug == Bug::CutIsUnsent =>
            {
                Err(portcullis_filters::txm::node::CallError::NoAnswer {
                    cause,
                    is_unsent: true,
                    refusal,
                })
            }
            added => added,
        }
    }

    async fn join(
        &self,
        flight: Flight,
        write: impl Future<Output = Outcome> + Send + 'static,
    ) -> Outcome {
        let bug = self.world.lock().bug;
        let key = match bug {
            Bug::JoinedByNothing => Flight {
                epoch: None,
                digest: [0; 32],
                key: None,
            },
            _ => flight,
        };
        let running = {
            let mut in_flight = self.in_flight.lock().expect("no task panics");
            let running = in_flight.get(&key).cloned();
            let slot = running.clone().unwrap_or_else(Slot::new);
            in_flight.entry(key.clone()).or_insert_with(|| slot.clone());
            (running.is_some(), slot)
        };
        let (is_running, slot) = running;
        if !is_running && self.world.lock().fires(Fault::OverFull, 600) {
            self.in_flight.lock().expect("no task panics").remove(&key);
            self.world.lock().fail(self.relay, Failure::Full);
            return NotSent::Overdue.into();
        }
        if !is_running {
            let (in_flight, world, filled) = (
                Arc::clone(&self.in_flight),
                self.world.clone(),
                slot.clone(),
            );
            let aborted = self.aborted_after();
            let relay = self.relay;
            self.spawn(async move {
                let write = unless_it_panics(&world, write);
                let outcome = match aborted {
                    Some(time) => first_of(write, world.sleep(time)).await,
                    None => Some(write.await),
                };
                if outcome.is_none() {
                    world.lock().fail(relay, Failure::Unconfirmed);
                }
                world.fill(&filled, outcome.unwrap_or_else(Outcome::interrupted));
                if bug == Bug::StoredAlready {
                    world.sleep(Duration::from_secs(60)).await;
                }
                in_flight.lock().expect("no task panics").remove(&key);
            });
        }
        slot.wait().await
    }

    fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.world.lock().agenda().start(self.relay, work);
    }

    fn stage<T: Send>(
        &self,
        (): &(),
        _: &'static str,
        work: impl Future<Output = T> + Send,
    ) -> impl Future<Output = T> + Send {
        work
    }

    fn wake(&self) {
        self.wake_up();
    }

    fn note(&self, note: Note<'_>) {
        let relay = self.relay;
        self.world.lock().noted(relay, &note);
        let line = match note {
            Note::Nonce(..) => return,
            Note::NotReadBack(operation) => format!("{operation} was not read back"),
            Note::Displaced(intent, why) => format!("intent {} is displaced: {why}", intent.id),
            Note::Lost(intent, why) => format!("intent {} is lost: {why}", intent.id),
            Note::Unreadable(intent, number) => {
                format!("block {number} cannot be read for intent {}", intent.id)
            }
            Note::Back(intent) => format!("intent {} is back", intent.id),
            Note::PaidTwice(drip, other) => {
                format!("drip {} is paid in addition to {}", drip.id, other.id)
            }
        };
        self.world.lock().note(|| format!("relay {relay}: {line}"));
    }
}

/// The outcome of a write, or that it is unknown if the write panics, as none must.
async fn unless_it_panics(world: &Shared<World>, write: impl Future<Output = Outcome>) -> Outcome {
    let mut write = pin!(write);
    let polled = poll_fn(move |context| {
        let poll = catch_unwind(AssertUnwindSafe(|| write.as_mut().poll(context)));
        match poll {
            Ok(Poll::Ready(outcome)) => Poll::Ready(Some(outcome)),
            Ok(Poll::Pending) => Poll::Pending,
            Err(_) => Poll::Ready(None),
        }
    });
    let outcome = polled.await;
    if outcome.is_none() {
        let broken = Err("answers: a write panics".to_owned());
        world.lock().oracle.report(broken);
    }
    outcome.unwrap_or_else(Outcome::interrupted)
}

impl SimIo {
    /// When a write in flight is dropped, if it is.
    fn aborted_after(&self) -> Option<Duration> {
        let mut world = self.world.lock();
        if !world.fires(Fault::Aborted, 300) {
            return None;
        }
        Some(world.millis(1, 200))
    }
}

/// The result of `work`, unless `end` comes first.
async fn first_of<T>(work: impl Future<Output = T>, end: impl Future<Output = ()>) -> Option<T> {
    let (mut work, mut end) = (pin!(work), pin!(end));
    poll_fn(|context| {
        if let Poll::Ready(done) = work.as_mut().poll(context) {
            return Poll::Ready(Some(done));
        }
        end.as_mut().poll(context).map(|()| None)
    })
    .await
}
