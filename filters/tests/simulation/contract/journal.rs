//! The promises of the journal's methods about intents.

use super::{Commit, Stage, owner};
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{
    Binding, Budgets, Change, Inclusion, Intended, Intent, IntentId, IntentState, NewIntent,
};
use portcullis_filters::txm::io::{Io as _, JournalError, JournalIo};
use portcullis_filters::txm::settings::Required;
use portcullis_filters::window::Window;
use std::time::Duration;

const DRIP: &str = "faucet-drip";
const HOUR_US: i64 = 3_600_000_000;

/// An intent of the owner with this nonce, and a digest, a hash and a subject of its own.
pub(super) fn new<'a>(signer: Felt, epoch: &'a str, nonce: u64) -> NewIntent<'a> {
    NewIntent {
        operation: DRIP,
        digest: [u8::try_from(nonce).expect("nonces are small here"); 32],
        subject: Some(Felt::from(0x500 + nonce)),
        identity: None,
        request: "{}",
        epoch,
        born: 3,
        signer,
        nonce,
        transaction_hash: Felt::from(0x900 + nonce),
        transaction: "{}",
        idempotency_key: None,
        replaces: None,
        max_fee: 1_000_000_000,
        budgets: Budgets::default(),
        cooldown: None,
    }
}

/// The epoch that the relays of the store write to.
pub(super) async fn epoch<S: Stage>(stage: &S) -> String {
    let required = stage.io().require(Required::All).await;
    required.unwrap_or_else(|refused| panic!("the pins hold: {refused:?}"))
}

/// Stores an intent.
pub(super) async fn store<S: Stage>(stage: &S, new: &NewIntent<'_>) -> IntentId {
    let io = stage.io();
    match io.intend(new, io.clock_us()).await {
        Ok(Intended::New(id)) => id,
        other => panic!("it is new: {other:?}"),
    }
}

async fn apply<S: Stage>(stage: &S, id: IntentId, change: Change<'_>) -> bool {
    let applied = stage.io().apply(id, &change).await;
    applied.expect("the store answers")
}

/// The change by a receipt of a block.
fn block(number: u64) -> Inclusion {
    Inclusion {
        number,
        fingerprint: [7; 32],
    }
}

pub(super) fn included(number: u64) -> Change<'static> {
    Change::Included {
        outcome: Ok(()),
        fee: Some(1),
        block: Some(block(number)),
    }
}

/// The change of an intent that is gone from this block.
fn gone_from(number: u64) -> Change<'static> {
    let from = Some(block(number));
    Change::Displaced { from, why: "gone" }
}

fn ids(intents: &[Intent]) -> Vec<IntentId> {
    intents.iter().map(|it| it.id).collect()
}

pub(crate) async fn an_intent_is_durable_once_stored<S: Stage>(stage: &S) {
    let (io, epoch) = (stage.io(), epoch(stage).await);
    let new = new(owner(stage), &epoch, 1);
    let id = store(stage, &new).await;
    let stored = stage.stored(id).await.expect("another connection sees it");
    assert_eq!(stored.state, IntentState::Sent, "it may be sent now");
    assert_eq!(stored.transaction_hash, new.transaction_hash);
    assert_eq!((stored.nonce, stored.born), (new.nonce, Some(new.born)));
    assert_eq!(io.intent(id).await, Ok(Some(stored.clone())));
    assert_eq!(io.intent(IntentId(id.0 + 1_000)).await, Ok(None));
    if let Some(other) = stage.other() {
        assert_eq!(other.intent(id).await, Ok(Some(stored)));
    }
}

pub(crate) async fn a_slot_has_one_intent<S: Stage>(stage: &S) {
    let (io, epoch) = (stage.io(), epoch(stage).await);
    let first = new(owner(stage), &epoch, 1);
    let id = store(stage, &first).await;
    let io = stage.other().unwrap_or(io);
    let equal = NewIntent { nonce: 2, ..first };
    match io.intend(&equal, io.clock_us()).await {
        Ok(Intended::Known(known)) => assert_eq!(known.id, id),
        other => panic!("an equal request is stored: {other:?}"),
    }
    let second = NewIntent {
        nonce: 1,
        ..new(owner(stage), &epoch, 2)
    };
    match io.intend(&second, io.clock_us()).await {
        Ok(Intended::NonceTaken(taken)) => assert_eq!(taken.id, id),
        other => panic!("the nonce is taken: {other:?}"),
    }
    assert!(apply(stage, id, Change::Rejected("not sent")).await);
    let stored = io.intend(&second, io.clock_us()).await;
    assert!(matches!(stored, Ok(Intended::New(_))), "{stored:?}");
}

pub(crate) async fn changes_follow_the_states<S: Stage>(stage: &S) {
    let epoch = epoch(stage).await;
    let id = store(stage, &new(owner(stage), &epoch, 1)).await;
    let witness = Change::Lost("another one has its nonce");
    for (change, is_allowed, state) in [
        (Change::SentAgain, true, IntentState::Sent),
        // its first sender cannot know any more
        (Change::Rejected("refused"), false, IntentState::Sent),
        (Change::Accepted, true, IntentState::Accepted),
        (Change::Accepted, false, IntentState::Accepted),
        (included(5), true, IntentState::Succeeded),
        (witness, false, IntentState::Succeeded),
        (
            Change::Displaced {
                from: None,
                why: "gone",
            },
            true,
            IntentState::Displaced,
        ),
        (included(6), true, IntentState::Succeeded),
        // another block has it by now
        (gone_from(5), false, IntentState::Succeeded),
        (
            Change::Displaced {
                from: None,
                why: "gone",
            },
            true,
            IntentState::Displaced,
        ),
        (witness, true, IntentState::Lost),
        (Change::Accepted, false, IntentState::Lost),
        (included(7), true, IntentState::Succeeded),
    ] {
        let is_applied = apply(stage, id, change).await;
        assert_eq!(is_applied, is_allowed, "{change:?} in {state:?}");
        let stored = stage.stored(id).await.expect("it is stored");
        assert_eq!(stored.state, state, "after {change:?}");
    }
    let rejected = store(stage, &new(owner(stage), &epoch, 2)).await;
    assert!(apply(stage, rejected, Change::Rejected("not sent")).await);
    assert!(!apply(stage, rejected, Change::Accepted).await);
    let unknown = IntentId(id.0 + 1_000);
    let reply = stage.io().apply(unknown, &Change::Accepted).await;
    assert_eq!(reply, Err(JournalError::Failed), "there is no such intent");
}

pub(crate) async fn an_unconfirmed_commit_is_unknown<S: Stage>(stage: &S) {
    let (io, epoch) = (stage.io(), epoch(stage).await);
    for (commit, nonce) in [(Commit::Done, 1), (Commit::Undone, 2)] {
        let new = new(owner(stage), &epoch, nonce);
        stage.cut_commit(commit).await;
        let reply = io.intend(&new, io.clock_us()).await;
        assert_eq!(reply, Err(JournalError::Unconfirmed), "{commit:?}");
        let found = io.of_slot(&epoch, new.signer, nonce).await;
        let is_stored = found.expect("the store answers").len() == 1;
        assert_eq!(is_stored, commit == Commit::Done);
    }
    let id = store(stage, &new(owner(stage), &epoch, 3)).await;
    for commit in [Commit::Undone, Commit::Done] {
        stage.cut_commit(commit).await;
        let reply = io.apply(id, &Change::Accepted).await;
        assert!(reply.is_err(), "{commit:?}");
        let stored = stage.stored(id).await.expect("it is stored");
        let is_stored = stored.state == IntentState::Accepted;
        assert_eq!(is_stored, commit == Commit::Done);
    }
}

pub(crate) async fn intents_are_selected_by_epoch_and_signer<S: Stage>(stage: &S) {
    let (io, epoch) = (stage.io(), epoch(stage).await);
    let (owner, verifier) = (owner(stage), io.pins().accounts.verifier);
    let [third, first, second] = [
        store(stage, &new(owner, &epoch, 3)).await,
        store(stage, &new(verifier, &epoch, 1)).await,
        store(stage, &new(owner, &epoch, 2)).await,
    ];
    let other = "another-epoch";
    let open = async |epoch, signer| ids(&io.unresolved(epoch, signer).await.expect("it answers"));
    assert_eq!(
        open(&epoch, None).await,
        [third, first, second],
        "oldest first"
    );
    assert_eq!(open(&epoch, Some(owner)).await, [third, second]);
    assert_eq!(open(other, None).await, []);
    for id in [third, second] {
        assert!(apply(stage, id, included(5)).await);
        assert!(
            apply(
                stage,
                id,
                Change::Displaced {
                    from: None,
                    why: "gone"
                }
            )
            .await
        );
    }
    assert_eq!(open(&epoch, None).await, [first]);
    let doubtful = async |epoch, below, limit| {
        let found = io.displaced(epoch, below, limit).await;
        ids(&found.expect("it answers"))
    };
    assert_eq!(
        doubtful(&epoch, None, 9).await,
        [second, third],
        "newest first"
    );
    assert_eq!(doubtful(&epoch, None, 1).await, [second]);
    assert_eq!(doubtful(&epoch, Some(second), 9).await, [third]);
    assert_eq!(doubtful(other, None, 9).await, []);
    let slot =
        async |epoch, nonce| ids(&io.of_slot(epoch, owner, nonce).await.expect("it answers"));
    assert_eq!(slot(&epoch, 3).await, [third], "in any state");
    assert_eq!(slot(&epoch, 1).await, [], "of another account");
    assert_eq!(slot(other, 3).await, []);
}

pub(crate) async fn included_ones_come_newest_first<S: Stage>(stage: &S) {
    let (io, epoch) = (stage.io(), epoch(stage).await);
    assert_eq!(io.floor(&epoch).await, Ok(None));
    let mut stored = Vec::new();
    for (nonce, number) in [(1, 20), (2, 40), (3, 30)] {
        let id = store(stage, &new(owner(stage), &epoch, nonce)).await;
        assert!(apply(stage, id, included(number)).await);
        stored.push(id);
    }
    let newest = async |limit| ids(&io.included_newest(&epoch, limit).await.expect("it answers"));
    assert_eq!(newest(9).await, [stored[1], stored[2], stored[0]]);
    assert_eq!(newest(2).await, [stored[1], stored[2]]);
    assert_eq!(io.floor(&epoch).await, Ok(Some(40)));
    assert!(
        apply(
            stage,
            stored[1],
            Change::Displaced {
                from: None,
                why: "gone"
            }
        )
        .await
    );
    assert_eq!(newest(9).await, [stored[2], stored[0]]);
    assert_eq!(io.floor(&epoch).await, Ok(Some(30)), "it is not included");
    assert_eq!(io.floor("another-epoch").await, Ok(None));
}

pub(crate) async fn included_ones_without_a_block_are_apart<S: Stage>(stage: &S) {
    let (io, epoch) = (stage.io(), epoch(stage).await);
    let nowhere = Change::Included {
        outcome: Ok(()),
        fee: None,
        block: None,
    };
    let mut stored = Vec::new();
    for nonce in 1..=3 {
        let id = store(stage, &new(owner(stage), &epoch, nonce)).await;
        assert!(apply(stage, id, nowhere).await);
        stored.push(id);
    }
    let [first, second, third] = stored[..] else {
        panic!("three were stored");
    };
    let anywhere = async |below, limit| {
        let found = io.included_anywhere(&epoch, below, limit).await;
        ids(&found.expect("it answers"))
    };
    assert_eq!(anywhere(None, 9).await, [third, second, first]);
    assert_eq!(anywhere(None, 1).await, [third]);
    assert_eq!(anywhere(Some(third), 9).await, [second, first]);
    assert!(apply(stage, second, included(5)).await);
    assert_eq!(
        anywhere(None, 9).await,
        [third, first],
        "its block is known"
    );
    let newest = io.included_newest(&epoch, 9).await;
    assert_eq!(ids(&newest.expect("it answers")), [second]);
}

pub(crate) async fn a_request_finds_its_newest_intent<S: Stage>(stage: &S) {
    let (io, epoch) = (stage.io(), epoch(stage).await);
    let first = new(owner(stage), &epoch, 1);
    let digest = first.digest;
    let older = store(stage, &first).await;
    assert!(apply(stage, older, included(5)).await);
    let second = NewIntent {
        digest,
        ..new(owner(stage), &epoch, 2)
    };
    let newer = store(stage, &second).await;
    let newest = async |epoch| {
        let found = io.requested(epoch, &digest, None).await;
        let found = found.expect("the store answers");
        assert_eq!(found.linked, None, "it has no key");
        found.newest.map(|it| it.id)
    };
    assert_eq!(newest(&epoch).await, Some(newer));
    assert!(apply(stage, newer, Change::Rejected("not sent")).await);
    assert_eq!(
        newest(&epoch).await,
        Some(older),
        "rejected ones do not count"
    );
    assert_eq!(newest("another-epoch").await, None);
}

pub(crate) async fn a_cooldown_starts_with_what_pays<S: Stage>(stage: &S) {
    let (io, epoch) = (stage.io(), epoch(stage).await);
    let subject = Felt::from(0x77_u64);
    let of = |nonce| NewIntent {
        subject: Some(subject),
        ..new(owner(stage), &epoch, nonce)
    };
    let last = async || {
        let window = Window::new(io.clock_us(), HOUR_US);
        let found = io.last_of(DRIP, subject, &epoch, window).await;
        found.expect("the store answers").map(|it| it.id)
    };
    assert_eq!(last().await, None);
    let first = store(stage, &of(1)).await;
    let second = store(stage, &of(2)).await;
    assert_eq!(last().await, Some(second));
    assert!(apply(stage, second, Change::Rejected("not sent")).await);
    assert_eq!(last().await, Some(first));
    let too_soon = NewIntent {
        cooldown: Some(Duration::from_secs(60)),
        ..of(3)
    };
    let reply = io.intend(&too_soon, io.clock_us()).await;
    assert!(matches!(reply, Ok(Intended::TooSoon { .. })), "{reply:?}");
    let long_ago = Window::new(io.clock_us() - 3 * HOUR_US, HOUR_US);
    let found = io.last_of(DRIP, subject, &epoch, long_ago).await;
    assert_eq!(found, Ok(None), "the window is over");
}

pub(crate) async fn an_identity_has_one_recipient<S: Stage>(stage: &S) {
    let (io, epoch) = (stage.io(), epoch(stage).await);
    let [identity, recipient] = [0xaa_u64, 0xbb].map(Felt::from);
    let [other_identity, other_recipient] = [0xac_u64, 0xbc].map(Felt::from);
    let binding = async |epoch, identity, recipient| {
        let found = io.binding(epoch, identity, recipient).await;
        found.expect("the store answers")
    };
    assert_eq!(
        binding(&epoch, identity, recipient).await,
        Binding::Bound,
        "nothing prevents it"
    );
    let drip = NewIntent {
        subject: Some(recipient),
        identity: Some(identity),
        ..new(owner(stage), &epoch, 1)
    };
    let id = store(stage, &drip).await;
    assert_eq!(binding(&epoch, identity, recipient).await, Binding::Bound);
    let elsewhere = binding(&epoch, identity, other_recipient).await;
    assert_eq!(elsewhere, Binding::IdentityElsewhere);
    let elsewhere = binding(&epoch, other_identity, recipient).await;
    assert_eq!(elsewhere, Binding::RecipientElsewhere);
    let free = binding("another-epoch", identity, other_recipient).await;
    assert_eq!(free, Binding::Bound);
    assert!(apply(stage, id, Change::Rejected("not sent")).await);
    let free = binding(&epoch, identity, other_recipient).await;
    assert_eq!(free, Binding::Bound, "what paid nothing binds nothing");
}

pub(crate) async fn another_chain_stores_no_intent<S: Stage>(stage: &S) {
    let io = stage.io();
    let _in_force = epoch(stage).await;
    let reply = io
        .intend(&new(owner(stage), "another-epoch", 1), io.clock_us())
        .await;
    assert_eq!(reply, Ok(Intended::OtherChain));
}

pub(crate) async fn the_clock_is_that_of_the_store<S: Stage>(stage: &S) {
    let io = stage.io();
    let before = io.clock_us();
    assert!(before > 1_700_000_000_000_000, "microseconds since 1970");
    io.sleep(Duration::from_millis(50)).await;
    let after = io.clock_us();
    assert!(after >= before + 49_000, "{before} {after}");
    if let Some(other) = stage.other() {
        // the two are read one after the other, by a busy machine
        let apart = (other.clock_us() - io.clock_us()).abs();
        let error = io.clock_error_us() + 100_000;
        assert!(apart <= error, "{apart}, more than {error}");
    }
}

pub(crate) async fn a_lone_process_is_exclusive<S: Stage>(stage: &S) {
    assert_eq!(stage.io().is_exclusive(), stage.other().is_none());
}
