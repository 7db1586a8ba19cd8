//! The promises of the methods of a process: proofs, locks, flights, time.

use super::journal::epoch;
use super::{Mode, NAME, Stage, estimate_text, eventually, ok, owner, sent, signed, signed_with};
use futures_util::future::{join, join3, select};
use portcullis_filters::tx::Bounds;
use portcullis_filters::txm::io::{Flight, Io, LockError, NodeIo as _, Note, Purpose};
use portcullis_filters::txm::not_sent::NotSent;
use portcullis_filters::txm::outcome::Outcome;
use portcullis_filters::txm::settings::{Required, Role};
use portcullis_filters::verdict::Reason;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

const SOON: Duration = Duration::from_millis(300);
const LATER: Duration = Duration::from_secs(10);

fn reason_of<T: Debug>(result: Result<T, NotSent>) -> Option<Reason> {
    Outcome::from(result.expect_err("it is refused")).reason()
}

pub(crate) async fn a_proof_permits_writes_on_this_chain<S: Stage>(stage: &S) {
    let io = stage.io();
    stage.close_block().await;
    let anchor = ok(io.anchor().await);
    assert_eq!(io.require(Required::All).await, Ok(anchor.clone()));
    assert_eq!(io.epoch().await, Ok(anchor.clone()));
    let before = io.proven_head(&anchor).expect("it was read with the pins");
    let head = ok(io.head().await).number;
    assert!((1..=head).contains(&before), "{before}, not {head}");
    assert_eq!(io.proven_head("another-epoch"), None);
    stage.close_block().await;
    io.forget_proof();
    let proven = epoch(stage).await;
    assert_eq!(
        io.proven_head(&proven),
        Some(head + 1),
        "a forgotten proof is made anew"
    );
}

pub(crate) async fn another_chain_is_known_before_it_is_written<S: Stage>(stage: &S) {
    let io = stage.io();
    let former = epoch(stage).await;
    stage.start_over().await;
    eventually(stage, "the node shows another chain", async || {
        io.anchor().await.is_ok_and(|anchor| anchor != former)
    })
    .await;
    let next = ok(io.anchor().await);
    // the node may withhold reads for seconds, and the last epoch is the known one meanwhile
    eventually(stage, "a proof finds it, whatever is agreed", async || {
        io.forget_proof();
        io.epoch().await.is_ok_and(|epoch| epoch == next)
    })
    .await;
    let refused = io.require(Required::AllButV2).await;
    assert_eq!(reason_of(refused), Some(Reason::PinsUnproven));
    eventually(stage, "the new chain is in force", async || {
        io.require(Required::AllButV2)
            .await
            .is_ok_and(|epoch| epoch == next)
    })
    .await;
}

pub(crate) async fn the_epoch_is_known_without_a_node<S: Stage>(stage: &S) {
    let io = stage.io();
    let proven = epoch(stage).await;
    stage.set_url(0, Mode::Down).await;
    stage.set_url(1, Mode::Down).await;
    assert_eq!(
        io.require(Required::All).await,
        Ok(proven.clone()),
        "still valid"
    );
    io.forget_proof();
    assert_eq!(io.epoch().await, Ok(proven));
    let refused = io.require(Required::AllButV2).await;
    assert_eq!(reason_of(refused), Some(Reason::PinsUnproven));
}

pub(crate) async fn an_account_has_one_writer<S: Stage>(stage: &S) {
    let io = stage.io();
    let mut guard = io
        .lock(Role::Owner, io.now() + LATER)
        .await
        .expect("it is free");
    assert_eq!(io.check_lock(&mut guard).await, Ok(()));
    let start = io.now();
    let second = io.lock(Role::Owner, start + SOON).await;
    assert_eq!(second.err(), Some(LockError::Deadline));
    assert!(io.now() >= start + SOON, "it waits until its deadline");
    let other = io.lock(Role::Verifier, io.now() + SOON).await;
    io.unlock(other.expect("accounts write side by side")).await;
    let release = async {
        io.sleep(SOON).await;
        io.unlock(guard).await;
    };
    let waits = io.lock(Role::Owner, io.now() + LATER);
    let ((), next) = join(release, waits).await;
    io.unlock(next.expect("it is handed over")).await;
}

pub(crate) async fn a_dropped_guard_unlocks<S: Stage>(stage: &S) {
    let io = stage.io();
    drop(
        io.lock(Role::Owner, io.now() + LATER)
            .await
            .expect("it is free"),
    );
    let next = io.lock(Role::Owner, io.now() + LATER).await;
    io.unlock(next.expect("it is free again")).await;
    if let Some(other) = stage.other() {
        drop(
            io.lock(Role::Owner, io.now() + LATER)
                .await
                .expect("it is free"),
        );
        let theirs = other.lock(Role::Owner, other.now() + LATER).await;
        other.unlock(theirs.expect("its session is closed")).await;
    }
}

pub(crate) async fn processes_exclude_each_other<S: Stage>(stage: &S) {
    let (io, other) = (stage.io(), stage.other().expect("the store is shared"));
    let guard = io
        .lock(Role::Owner, io.now() + LATER)
        .await
        .expect("it is free");
    let theirs = other.lock(Role::Owner, other.now() + SOON).await;
    assert_eq!(theirs.err(), Some(LockError::HeldElsewhere));
    io.unlock(guard).await;
    let theirs = other.lock(Role::Owner, other.now() + LATER).await;
    let theirs = theirs.expect("it is handed over");
    let own = io.lock(Role::Owner, io.now() + SOON).await;
    assert_eq!(own.err(), Some(LockError::HeldElsewhere));
    other.unlock(theirs).await;
}

pub(crate) async fn a_waiting_process_gets_its_turn<S: Stage>(stage: &S) {
    let (io, other) = (stage.io(), stage.other().expect("the store is shared"));
    let end = io.now() + LATER;
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let writer = async || {
        while !is_over.load(Ordering::Relaxed) && io.now() < end {
            // while the other process has its turn, a write may wait in vain
            if let Ok(guard) = io.lock(Role::Owner, end).await {
                io.sleep(Duration::from_millis(100)).await;
                io.unlock(guard).await;
            }
        }
    };
    let waits = async {
        io.sleep(SOON).await;
        let start = other.now();
        let theirs = other.lock(Role::Owner, start + LATER).await;
        let waited = other.now() - start;
        is_over.store(true, Ordering::Relaxed);
        other.unlock(theirs.expect("its turn comes")).await;
        waited
    };
    let writers = join3(writer(), writer(), writer());
    let (waited, _) = join(waits, writers).await;
    assert!(
        waited < LATER / 2,
        "{waited:?}: while three writes are waiting"
    );
}

pub(crate) async fn a_lost_session_loses_its_lock<S: Stage>(stage: &S) {
    let (io, other) = (stage.io(), stage.other().expect("the store is shared"));
    let guard = io.lock(Role::Owner, io.now() + LATER).await;
    let mut guard = guard.expect("it is free");
    stage.end_sessions().await;
    assert!(io.check_lock(&mut guard).await.is_err());
    assert!(io.check_lock(&mut guard).await.is_err(), "it stays lost");
    let theirs = other.lock(Role::Owner, other.now() + LATER).await;
    other.unlock(theirs.expect("the store released it")).await;
    io.unlock(guard).await;
    let next = io.lock(Role::Owner, io.now() + LATER).await;
    let mut next = next.expect("a new session");
    assert_eq!(io.check_lock(&mut next).await, Ok(()));
    io.unlock(next).await;
}

fn flight(number: u8) -> Flight {
    Flight {
        epoch: Some("an-epoch".to_owned()),
        digest: [number; 32],
        key: None,
    }
}

/// A write that takes a while, and counts itself.
fn write<I: Io>(
    io: &Arc<I>,
    count: &Arc<AtomicU32>,
) -> impl Future<Output = Outcome> + Send + use<I> {
    let (io, count) = (Arc::clone(io), Arc::clone(count));
    async move {
        io.sleep(SOON).await;
        let done = count.fetch_add(1, Ordering::Relaxed);
        Outcome::refused(Reason::Reverted, format!("write {done}"))
    }
}

pub(crate) async fn equal_flights_share_one_write<S: Stage>(stage: &S) {
    let (io, count) = (stage.io(), Arc::default());
    let first = io.join(flight(1), write(io, &count));
    let second = io.join(flight(1), write(io, &count));
    let (first, second) = join(first, second).await;
    assert_eq!(first, second, "each gets the outcome");
    assert_eq!(count.load(Ordering::Relaxed), 1);
    let keyed = Flight {
        key: Some("a-key".to_owned()),
        ..flight(1)
    };
    let first = io.join(flight(1), write(io, &count));
    let second = io.join(keyed, write(io, &count));
    let (first, second) = join(first, second).await;
    assert_ne!(first, second, "neither key joins the other");
    assert_eq!(count.load(Ordering::Relaxed), 3, "an ended flight is over");
    let later = Flight {
        epoch: Some("another-epoch".to_owned()),
        ..flight(1)
    };
    let first = io.join(flight(1), write(io, &count));
    let second = io.join(later, write(io, &count));
    let (first, second) = join(first, second).await;
    assert_ne!(first, second, "of another epoch");
}

pub(crate) async fn a_flight_outlives_its_first_request<S: Stage>(stage: &S) {
    let (io, count) = (stage.io(), Arc::default());
    {
        let first = pin!(io.join(flight(1), write(io, &count)));
        let leaves = pin!(io.sleep(SOON / 3));
        let _left = select(first, leaves).await;
    }
    let _outcome = io.join(flight(1), write(io, &count)).await;
    assert_eq!(count.load(Ordering::Relaxed), 1, "the write went on");
}

pub(crate) async fn an_interrupted_write_is_unknown<S: Stage>(stage: &S) {
    let io = stage.io();
    let broken = || {
        let io = Arc::clone(io);
        async move {
            io.sleep(SOON).await;
            panic!("a planned panic");
        }
    };
    let first = io.join(flight(1), broken());
    let second = io.join(flight(1), broken());
    let (first, second) = join(first, second).await;
    for outcome in [first, second] {
        assert_eq!(outcome.reason(), Some(Reason::OutcomeUnknown));
    }
    let count = Arc::default();
    let next = io.join(flight(1), write(io, &count)).await;
    assert_eq!(next.reason(), Some(Reason::Reverted), "it is over");
}

pub(crate) async fn time_passes_while_it_sleeps<S: Stage>(stage: &S) {
    let io = stage.io();
    let start = io.now();
    io.sleep(SOON).await;
    assert!(io.now() >= start + SOON);
}

pub(crate) async fn chance_does_not_repeat<S: Stage>(stage: &S) {
    let io = stage.io();
    let first = io.random().expect("the system has chance");
    assert_ne!(io.random(), Some(first));
    if let Some(other) = stage.other() {
        assert_ne!(other.random(), Some(first));
    }
}

pub(crate) async fn memory_outlives_a_call<S: Stage>(stage: &S) {
    let io = stage.io();
    let place = || io.memory(|memory| std::ptr::from_mut(memory).addr());
    assert_eq!(place(), place());
    if let Some(other) = stage.other() {
        let theirs = other.memory(|memory| std::ptr::from_mut(memory).addr());
        assert_ne!(place(), theirs, "a process has its own");
    }
}

pub(crate) async fn spawned_work_runs_after_its_caller<S: Stage>(stage: &S) {
    let (io, count) = (stage.io(), Arc::new(AtomicU32::new(0)));
    let (own, counted) = (Arc::clone(io), Arc::clone(&count));
    io.spawn(async move {
        own.sleep(SOON).await;
        counted.fetch_add(1, Ordering::Relaxed);
    });
    assert_eq!(count.load(Ordering::Relaxed), 0, "it does not wait for it");
    eventually(stage, "the work is done", async || {
        count.load(Ordering::Relaxed) == 1
    })
    .await;
}

pub(crate) async fn a_stage_returns_its_result<S: Stage>(stage: &S) {
    let io = stage.io();
    let trace = stage.trace();
    assert_eq!(io.stage(&trace, "lock", async { 7 }).await, 7);
}

pub(crate) async fn a_wake_is_not_lost<S: Stage>(stage: &S) {
    let io = stage.io();
    io.wake();
    stage.woken().await;
    let wakes = async {
        io.sleep(SOON).await;
        io.wake();
    };
    join(wakes, stage.woken()).await;
}

pub(crate) async fn an_estimate_is_signed_for_itself<S: Stage>(stage: &S) {
    let io = stage.io();
    let signed = signed(stage, 1).await;
    let invoke = || signed_with(stage, 1, signed.nonce, Bounds::ZERO);
    let write = io.sign(Role::Owner, invoke(), Purpose::Write);
    assert_eq!(
        io.sign(Role::Owner, invoke(), Purpose::Write).hash,
        write.hash
    );
    let estimate = estimate_text(stage, 1, signed.nonce);
    assert_ne!(estimate.hash, write.hash, "of the query version");
    assert_ne!(write.hash, signed.hash, "with other bounds");
    let trace = stage.trace();
    let added = io.add(NAME, &signed.text, Some(&trace)).await;
    assert_eq!(ok(added), signed.hash, "the node computes the hash, too");
}

pub(crate) async fn pins_and_settings_are_at_hand<S: Stage>(stage: &S) {
    let io = stage.io();
    assert_ne!(io.pins().accounts.owner, io.pins().accounts.verifier);
    assert!(io.settings().receipt_timeout > Duration::ZERO);
    assert!(ok(io.class_hash_at(owner(stage)).await).is_some());
}

pub(crate) async fn notes_take_nothing_from_the_flow<S: Stage>(stage: &S) {
    let io = stage.io();
    io.note(Note::Nonce(Role::Owner, 3));
    io.note(Note::NotReadBack("faucet-drip"));
    let sent = sent(stage, 1).await;
    assert_eq!(ok(io.nonce(owner(stage)).await), sent.nonce + 1);
}
