//! The contract of `Io`, as a suite that every implementation passes: the relay's driver before a
//! real node and both databases, and the simulated one in its world.
//!
//! A case is a promise of the documentation of a method (`filters/src/txm/io.rs`), as an async
//! function of a [`Stage`]: the implementation, and what happens around it. Cases assume nothing
//! about a chain but that it continues. Reading order: `node`, `journal`, `keys`, `process`.

pub(crate) mod journal;
pub(crate) mod keys;
pub(crate) mod node;
pub(crate) mod process;

use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{Intent, IntentId};
use portcullis_filters::tx::{Bounds, Call, Invoke};
use portcullis_filters::txm::io::{Called, Io, NodeIo as _, Purpose, SignedText};
use portcullis_filters::txm::node::CallError;
use portcullis_filters::txm::settings::Role;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;

/// Passes the cases that every implementation has to `$with!`.
macro_rules! cases {
    ($with:ident) => {
        $with! {
            node:
                state_is_of_the_block_being_built
                an_undeployed_account_has_no_nonce
                only_accepted_blocks_are_read
                a_chain_that_starts_over_is_another
                an_estimate_has_prices_or_a_refusal
                a_receipt_names_its_block_once_accepted
                an_unknown_transaction_has_no_receipt
                a_slot_is_found_in_its_block
                a_rolled_back_transaction_is_in_no_block
                each_url_shows_its_own_chain
                a_url_names_sender_and_nonce
                an_unreachable_url_proves_nothing
                a_call_goes_to_the_next_url
                without_a_url_nothing_is_sent
                an_add_without_an_answer_may_be_sent
                a_transaction_is_taken_once
                what_was_shown_is_not_taken_back
                a_url_far_behind_has_no_say;
            journal:
                an_intent_is_durable_once_stored
                a_slot_has_one_intent
                changes_follow_the_states
                intents_are_selected_by_epoch_and_signer
                included_ones_come_newest_first
                included_ones_without_a_block_are_apart
                a_request_finds_its_newest_intent
                a_cooldown_starts_with_what_pays
                an_identity_has_one_recipient
                another_chain_stores_no_intent
                the_clock_is_that_of_the_store
                a_lone_process_is_exclusive;
            keys:
                a_key_is_claimed_once
                a_claim_is_released_by_its_token
                a_key_names_the_intent_of_its_request
                a_key_repeats_its_first_answer
                a_key_is_of_one_epoch;
            process:
                a_proof_permits_writes_on_this_chain
                another_chain_is_known_before_it_is_written
                the_epoch_is_known_without_a_node
                an_account_has_one_writer
                a_dropped_guard_unlocks
                equal_flights_share_one_write
                a_flight_outlives_its_first_request
                an_interrupted_write_is_unknown
                time_passes_while_it_sleeps
                chance_does_not_repeat
                memory_outlives_a_call
                spawned_work_runs_after_its_caller
                a_stage_returns_its_result
                a_wake_is_not_lost
                an_estimate_is_signed_for_itself
                pins_and_settings_are_at_hand
                notes_take_nothing_from_the_flow;
        }
    };
}

/// Passes the cases of a store that several processes share to `$with!`.
macro_rules! shared_cases {
    ($with:ident) => {
        $with! {
            journal:
                an_unconfirmed_commit_is_unknown;
            process:
                processes_exclude_each_other
                a_waiting_process_gets_its_turn
                a_lost_session_loses_its_lock;
        }
    };
}

pub(crate) use {cases, shared_cases};

/// How long a case waits for what takes its time.
const PATIENCE: Duration = Duration::from_secs(30);

/// An implementation, and what happens around it. Two URLs lead to one chain, which is extended by
/// [`Stage::close_block`] only.
pub(crate) trait Stage {
    /// The implementation.
    type Io: Io<Url = usize>;

    /// The driver of a process.
    fn io(&self) -> &Arc<Self::Io>;
    /// That of another process on the same store, if the store can be shared.
    fn other(&self) -> Option<&Arc<Self::Io>>;
    /// A trace.
    fn trace(&self) -> <Self::Io as Io>::Trace;
    /// An account that was never deployed.
    fn nobody(&self) -> Felt;
    /// A call of the owner that succeeds.
    fn effect(&self, number: u64) -> Effect;
    /// Returns once the process was woken, since it last waited here.
    async fn woken(&self);

    /// Closes the block that is being built.
    async fn close_block(&self);
    /// Takes the newest blocks back.
    async fn roll_back(&self, blocks: u64);
    /// Starts the chain over.
    async fn start_over(&self);
    /// Changes how a URL answers.
    async fn set_url(&self, url: usize, mode: Mode);

    /// Reads an intent over another connection to the store.
    async fn stored(&self, id: IntentId) -> Option<Intent>;
    /// Ends all sessions with the store.
    async fn end_sessions(&self);
    /// Loses the confirmation of the next commit of the process.
    async fn cut_commit(&self, commit: Commit);
}

/// How a URL answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    /// As the chain is.
    Up,
    /// It refuses connections.
    Down,
    /// It takes transactions without an answer to their submission.
    Mute,
    /// It shows the chain without its newest blocks.
    Behind(u64),
}

/// The fate of a commit without a confirmation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Commit {
    /// It is stored.
    Done,
    /// It is not.
    Undone,
}

/// A call, and a view whose result it changes.
pub(crate) struct Effect {
    pub(crate) call: Call,
    pub(crate) to: Felt,
    pub(crate) view: Felt,
    pub(crate) args: Vec<Felt>,
}

/// A transaction of the owner.
#[derive(Clone, Debug)]
pub(crate) struct Signed {
    pub(crate) nonce: u64,
    pub(crate) hash: Felt,
    pub(crate) text: String,
}

fn owner<S: Stage>(stage: &S) -> Felt {
    stage.io().pins().accounts.owner
}

/// The result of a call that must have one.
fn ok<T>(called: Called<T>) -> T {
    called.unwrap_or_else(|error| panic!("the node answers: {error:?}"))
}

/// The code of the node's error.
fn code_of<T: Debug>(called: Called<T>) -> i64 {
    match called {
        Err(CallError::Returned(error)) => error.code,
        other => panic!("the node refuses: {other:?}"),
    }
}

/// Whether a call without an answer was certainly not sent.
fn is_unsent<T: Debug>(called: Called<T>) -> bool {
    match called {
        Err(CallError::NoAnswer { is_unsent, .. }) => is_unsent,
        other => panic!("the node does not answer: {other:?}"),
    }
}

fn signed_with<S: Stage>(stage: &S, number: u64, nonce: u64, bounds: Bounds) -> Invoke {
    Invoke {
        sender: owner(stage),
        calls: vec![stage.effect(number).call],
        nonce: Felt::from(nonce),
        bounds,
    }
}

fn estimate_text<S: Stage>(stage: &S, number: u64, nonce: u64) -> SignedText {
    let invoke = signed_with(stage, number, nonce, Bounds::ZERO);
    stage.io().sign(Role::Owner, invoke, Purpose::Estimate)
}

/// Signs a transaction with the owner's next nonce.
async fn signed<S: Stage>(stage: &S, number: u64) -> Signed {
    let io = stage.io();
    let nonce = ok(io.nonce(owner(stage)).await);
    let estimate = ok(io.estimate(&estimate_text(stage, number, nonce).text).await);
    let twice = |(amount, price): (u64, u128)| (2 * amount, 2 * price);
    let bounds = Bounds {
        l1_gas: twice(estimate.l1_gas),
        l1_data_gas: twice(estimate.l1_data_gas),
        l2_gas: twice(estimate.l2_gas),
    };
    let invoke = signed_with(stage, number, nonce, bounds);
    let SignedText { hash, text } = io.sign(Role::Owner, invoke, Purpose::Write);
    Signed { nonce, hash, text }
}

/// Signs and submits a transaction.
async fn sent<S: Stage>(stage: &S, number: u64) -> Signed {
    let signed = signed(stage, number).await;
    assert_eq!(
        ok(stage.io().add(NAME, &signed.text, None).await),
        signed.hash
    );
    signed
}

/// The operation of which transactions are submitted.
const NAME: &str = "mint-card";

/// Waits until something holds.
async fn eventually<S: Stage>(stage: &S, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let io = stage.io();
    let end = io.now() + PATIENCE;
    while !holds().await {
        assert!(io.now() < end, "waited in vain: {what}");
        io.sleep(Duration::from_millis(100)).await;
    }
}
