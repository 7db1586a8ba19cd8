//! The promises of the journal's methods about idempotency keys.

use super::journal::{epoch, included, new, store};
use super::{Stage, owner};
use portcullis_filters::ledger::{Change, Claim, ClaimToken, IntentId, NewIntent};
use portcullis_filters::txm::io::{JournalIo as _, KeyOf};
use portcullis_filters::txm::outcome::Outcome;
use portcullis_filters::verdict::Reason;

const OWN: ClaimToken = ClaimToken([1; 16]);
const OTHER: ClaimToken = ClaimToken([2; 16]);
const REQUEST: [u8; 32] = [1; 32];
const OTHER_REQUEST: [u8; 32] = [2; 32];

fn key<'a>(epoch: &'a str, digest: &'a [u8; 32]) -> KeyOf<'a> {
    KeyOf {
        epoch,
        key: "a-key",
        operation: "faucet-drip",
        digest,
    }
}

/// Claims the key for its request.
async fn claim<S: Stage>(stage: &S, of: &KeyOf<'_>, token: ClaimToken) -> Claim {
    let claimed = stage.io().claim(of, &token).await;
    claimed.expect("the store answers")
}

/// The intent that the key names, if it is claimed and has no answer.
async fn named<S: Stage>(stage: &S, of: &KeyOf<'_>) -> Option<IntentId> {
    match claim(stage, of, OTHER).await {
        Claim::Open { intent } => intent.map(|it| it.id),
        other => panic!("the key is claimed: {other:?}"),
    }
}

async fn link<S: Stage>(stage: &S, of: &KeyOf<'_>, id: IntentId) -> bool {
    let linked = stage.io().link(of, id).await;
    linked.expect("the store answers")
}

fn outcome() -> Outcome {
    Outcome::refused(Reason::Reverted, "it reverted")
}

pub(crate) async fn a_key_is_claimed_once<S: Stage>(stage: &S) {
    let epoch = epoch(stage).await;
    let (of, of_other) = (key(&epoch, &REQUEST), key(&epoch, &OTHER_REQUEST));
    assert_eq!(claim(stage, &of, OWN).await, Claim::New);
    let again = claim(stage, &of, OWN).await;
    assert_eq!(again, Claim::New, "its commit may not have been confirmed");
    let open = Claim::Open { intent: None };
    assert_eq!(claim(stage, &of, OTHER).await, open);
    assert_eq!(claim(stage, &of_other, OTHER).await, Claim::Conflict);
    if let Some(other) = stage.other() {
        assert_eq!(other.claim(&of, &OTHER).await, Ok(open));
    }
}

pub(crate) async fn a_claim_is_released_by_its_token<S: Stage>(stage: &S) {
    let epoch = epoch(stage).await;
    let of = key(&epoch, &REQUEST);
    let release = async |token| stage.io().release_claim(&of, &token).await;
    assert_eq!(release(OWN).await, Ok(false), "nobody claimed it");
    assert_eq!(claim(stage, &of, OWN).await, Claim::New);
    assert_eq!(release(OTHER).await, Ok(false));
    assert_eq!(release(OWN).await, Ok(true));
    assert_eq!(claim(stage, &of, OTHER).await, Claim::New, "it is free");
}

pub(crate) async fn a_key_names_the_intent_of_its_request<S: Stage>(stage: &S) {
    let (io, epoch) = (stage.io(), epoch(stage).await);
    let of = key(&epoch, &REQUEST);
    let first = NewIntent {
        digest: REQUEST,
        ..new(owner(stage), &epoch, 1)
    };
    let [own, foreign] = [
        store(stage, &first).await,
        store(stage, &new(owner(stage), &epoch, 2)).await,
    ];
    assert_eq!(claim(stage, &of, OWN).await, Claim::New);
    assert!(!link(stage, &of, foreign).await, "of another request");
    assert!(link(stage, &of, own).await);
    assert!(link(stage, &of, own).await, "it names it already");
    let other = key(&epoch, &OTHER_REQUEST);
    assert!(
        !link(stage, &other, own).await,
        "the key is not this request's"
    );
    assert_eq!(named(stage, &of).await, Some(own));
    assert_eq!(
        io.release_claim(&of, &OWN).await,
        Ok(false),
        "it has an intent"
    );
    let found = io.requested(&epoch, &REQUEST, Some(&of)).await;
    let linked = found.expect("the store answers").linked;
    assert_eq!(linked.map(|it| it.id), Some(own));
    let rejected = io.apply(own, &Change::Rejected("not sent")).await;
    assert_eq!(rejected, Ok(true));
    let second = NewIntent {
        digest: REQUEST,
        ..new(owner(stage), &epoch, 3)
    };
    let next = store(stage, &second).await;
    assert!(link(stage, &of, next).await, "the former one is rejected");
    assert_eq!(named(stage, &of).await, Some(next));
}

pub(crate) async fn a_key_repeats_its_first_answer<S: Stage>(stage: &S) {
    let (io, epoch) = (stage.io(), epoch(stage).await);
    let of = key(&epoch, &REQUEST);
    let first = NewIntent {
        digest: REQUEST,
        ..new(owner(stage), &epoch, 1)
    };
    let id = store(stage, &first).await;
    let answer = async |id| io.answer(&of, id, &outcome(), "request-1").await;
    assert_eq!(answer(id).await, Ok(false), "nobody claimed the key");
    assert_eq!(claim(stage, &of, OWN).await, Claim::New);
    assert_eq!(answer(id).await, Ok(false), "the key names no intent");
    assert!(link(stage, &of, id).await);
    assert_eq!(io.apply(id, &included(5)).await, Ok(true));
    assert_eq!(answer(id).await, Ok(true));
    assert_eq!(answer(id).await, Ok(false), "the first one stays");
    match claim(stage, &of, OTHER).await {
        Claim::Answered { intent, .. } => assert_eq!(intent.map(|it| it.id), Some(id)),
        other => panic!("it is answered: {other:?}"),
    }
    for change in [
        Change::Displaced {
            from: None,
            why: "gone",
        },
        Change::Lost("it is gone for good"),
    ] {
        assert_eq!(io.apply(id, &change).await, Ok(true));
    }
    assert_eq!(named(stage, &of).await, Some(id), "the answer is not true");
}

pub(crate) async fn a_key_is_of_one_epoch<S: Stage>(stage: &S) {
    let (io, epoch) = (stage.io(), epoch(stage).await);
    let first = NewIntent {
        digest: REQUEST,
        ..new(owner(stage), &epoch, 1)
    };
    let id = store(stage, &first).await;
    assert_eq!(claim(stage, &key(&epoch, &REQUEST), OWN).await, Claim::New);
    assert!(link(stage, &key(&epoch, &REQUEST), id).await);
    let of_next = key("another-epoch", &REQUEST);
    assert_eq!(claim(stage, &of_next, OTHER).await, Claim::New);
    assert!(
        !link(stage, &of_next, id).await,
        "the intent is of another epoch"
    );
    let found = io
        .requested("another-epoch", &REQUEST, Some(&of_next))
        .await;
    let found = found.expect("the store answers");
    assert_eq!((found.linked, found.newest), (None, None));
}
