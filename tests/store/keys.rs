//! Idempotency keys and the faucet's bindings.

use crate::world::{EPOCH, NOW, World, advance, felt, intend, intent, token};
use portcullis_filters::felt::Felt;
use portcullis_store::{Binding, Claim, Intended, IntentId, IntentState, NewIntent, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;
use tokio::task::JoinSet;

/// The operation that [`claim`] claims the key `k` for.
const OPERATION: &str = "faucet-drip";

fn digest() -> [u8; 32] {
    intent(1).digest
}

/// Claims a key for the request of the first intent.
async fn claimed(store: &Store, key: &str, owner: u8) -> Claim {
    store
        .keys(EPOCH)
        .claim(key, OPERATION, &digest(), &token(owner), NOW)
        .await
        .unwrap()
}

/// Claims the key `k`, each time as another request.
async fn claim(store: &Store) -> Claim {
    static OWNERS: AtomicU8 = AtomicU8::new(100);
    claimed(store, "k", OWNERS.fetch_add(1, Ordering::Relaxed)).await
}

/// A transaction of the request that the key `k` was claimed for.
fn keyed(number: u64) -> NewIntent<'static> {
    NewIntent {
        digest: digest(),
        idempotency_key: Some("k"),
        ..intent(number)
    }
}

async fn answer(store: &Store, id: IntentId, status: u16, body: &str) -> bool {
    let keys = store.keys(EPOCH);
    keys.answer("k", OPERATION, &digest(), id, status, body)
        .await
        .unwrap()
}

async fn release(store: &Store, owner: u8) -> bool {
    store.keys(EPOCH).release("k", &token(owner)).await.unwrap()
}

fn open() -> Claim {
    Claim::Open { intent: None }
}

/// The answer of a key, without its intent.
fn answer_of(claim: Claim) -> Option<(u16, String)> {
    match claim {
        Claim::Answered { status, body, .. } => Some((status, body)),
        _ => None,
    }
}

pub(crate) async fn a_key_identifies_one_request_across_restarts(world: World) {
    let mut store = world.open().await;
    assert_eq!(claim(&store).await, Claim::New);
    for restarts in 0..2 {
        assert_eq!(claim(&store).await, open(), "after {restarts} restarts");
        for (operation, digest) in [(OPERATION, [0; 32]), ("mint-card", digest())] {
            let other = store
                .keys(EPOCH)
                .claim("k", operation, &digest, &token(9), NOW)
                .await;
            assert_eq!(other.unwrap(), Claim::Conflict, "{operation}");
        }
        store.close().await;
        store = world.open().await;
    }
    let id = intend(&store, &keyed(1)).await;
    let keys = store.keys(EPOCH);
    for (operation, digest) in [(OPERATION, [0; 32]), ("mint-card", digest())] {
        assert!(
            !keys
                .answer("k", operation, &digest, id, 200, "x")
                .await
                .unwrap()
        );
        assert!(!keys.link("k", operation, &digest, id, NOW).await.unwrap());
    }
    assert!(
        !keys
            .answer("other", OPERATION, &digest(), id, 200, "x")
            .await
            .unwrap()
    );
    assert!(answer(&store, id, 200, "{\"ok\":true}").await);
    assert!(
        !answer(&store, id, 500, "later").await,
        "the first answer stays"
    );
    store.close().await;
    let store = world.open().await;
    let expected = Some((200, "{\"ok\":true}".to_owned()));
    assert_eq!(answer_of(claim(&store).await), expected);
    let other = store
        .keys(EPOCH)
        .claim("k", OPERATION, &[0; 32], &token(9), NOW)
        .await
        .unwrap();
    assert_eq!(
        other,
        Claim::Conflict,
        "an answer is for its own request only"
    );
    assert_eq!(
        claimed(&store, "K", 1).await,
        Claim::New,
        "keys differ by case"
    );
}

pub(crate) async fn a_linked_key_cannot_be_released(world: World) {
    let store = world.open().await;
    assert_eq!(claimed(&store, "k", 1).await, Claim::New);
    let id = intend(&store, &keyed(1)).await;
    assert!(!release(&store, 1).await);
    let Claim::Open {
        intent: Some(found),
    } = claimed(&store, "k", 1).await
    else {
        panic!("it names its intent");
    };
    assert_eq!(found.id, id);
    let again = store.intents().intend(&keyed(2), NOW).await.unwrap();
    assert!(
        matches!(again, Intended::Known(known) if known.id == id),
        "a key has one intent"
    );
    let foreign = NewIntent {
        idempotency_key: Some("k"),
        ..intent(3)
    };
    let foreign = store.intents().intend(&foreign, NOW).await.unwrap();
    assert_eq!(foreign, Intended::KeyConflict);
    assert!(advance(&store, id, IntentState::Rejected).await);
    let next = intend(&store, &keyed(2)).await;
    assert!(!answer(&store, id, 202, "{}").await, "it names the next");
    assert!(answer(&store, next, 202, "{}").await);
    let Claim::Answered {
        status: 202,
        intent: Some(found),
        ..
    } = claim(&store).await
    else {
        panic!("the answer reports its intent");
    };
    assert_eq!(found.id, next);
}

pub(crate) async fn a_key_names_the_intent_that_stands(world: World) {
    let store = world.open().await;
    let link = async |id| {
        store
            .keys(EPOCH)
            .link("k", OPERATION, &digest(), id, NOW)
            .await
            .unwrap()
    };
    let id = intend(
        &store,
        &NewIntent {
            idempotency_key: None,
            ..keyed(1)
        },
    )
    .await;
    assert!(!link(id).await, "it was not claimed");
    assert_eq!(claim(&store).await, Claim::New);
    assert!(
        link(id).await && link(id).await,
        "a request that joined, twice"
    );
    assert!(advance(&store, id, IntentState::Succeeded).await);
    assert!(answer(&store, id, 200, "x").await);
    let other = intend(
        &store,
        &NewIntent {
            nonce: 50,
            ..intent(50)
        },
    )
    .await;
    assert!(!link(other).await, "it stands");
    assert!(advance(&store, id, IntentState::Displaced).await);
    assert!(!link(other).await, "it is in doubt");
    let replacing = NewIntent {
        nonce: 1,
        replaces: Some(id),
        idempotency_key: None,
        ..keyed(2)
    };
    let next = intend(&store, &replacing).await;
    assert!(link(next).await, "it was replaced");
    assert_eq!(
        answer_of(claim(&store).await),
        None,
        "the next has no answer"
    );
    assert!(!link(id).await, "not back");
}

pub(crate) async fn a_claim_is_released_by_its_owner_only(world: World) {
    let store = world.open().await;
    assert_eq!(claimed(&store, "k", 1).await, Claim::New);
    assert_eq!(
        claimed(&store, "k", 1).await,
        Claim::New,
        "its owner repeats it"
    );
    assert_eq!(claimed(&store, "k", 2).await, open(), "another joins");
    assert!(!release(&store, 2).await);
    assert_eq!(claimed(&store, "k", 2).await, open());
    assert!(release(&store, 1).await);
    assert_eq!(claimed(&store, "k", 2).await, Claim::New);
}

pub(crate) async fn a_key_belongs_to_one_epoch(world: World) {
    let store = world.open().await;
    assert_eq!(claim(&store).await, Claim::New);
    let id = intend(&store, &keyed(1)).await;
    assert!(answer(&store, id, 200, "{}").await);
    let later = store
        .keys("epoch-2")
        .claim("k", "mint-card", &[0; 32], &token(1), NOW)
        .await;
    assert_eq!(
        later.unwrap(),
        Claim::New,
        "another request, on a chain that started again"
    );
    assert!(store.keys("epoch-2").release("k", &token(1)).await.unwrap());
    assert_eq!(
        answer_of(claim(&store).await),
        Some((200, "{}".to_owned())),
        "untouched"
    );
}

pub(crate) async fn a_link_to_another_epoch_names_nothing(world: World) {
    let store = world.open().await;
    let id = intend(&store, &keyed(1)).await;
    assert!(advance(&store, id, IntentState::Succeeded).await);
    let later = store.keys("epoch-2");
    let claim = async |owner| {
        later
            .claim("k", OPERATION, &digest(), &token(owner), NOW)
            .await
            .unwrap()
    };
    let link = async |id| {
        later
            .link("k", OPERATION, &digest(), id, NOW)
            .await
            .unwrap()
    };
    assert_eq!(claim(1).await, Claim::New);
    assert!(!link(id).await);
    let stale = format!("UPDATE idempotency SET intent_id = {id} WHERE epoch = 'epoch-2'");
    world.raw(&stale).await.unwrap();
    assert!(!link(id).await, "it was linked by an earlier version");
    let answered = later.answer("k", OPERATION, &digest(), id, 200, "x").await;
    assert!(!answered.unwrap());
    assert_eq!(claim(1).await, open());
    let key = Some(("k", OPERATION));
    let intents = store.intents();
    let found = intents.requested("epoch-2", &digest(), key).await.unwrap();
    assert_eq!((found.linked, found.newest), (None, None));
    assert_eq!(
        store.prune_keys(NOW + 1).await.unwrap(),
        1,
        "it is not needed"
    );
    assert_eq!(claim(2).await, Claim::New);
    world.raw(&stale).await.unwrap();
    let answer = "UPDATE idempotency SET status = 200, body = 'x' WHERE epoch = 'epoch-2'";
    world.raw(answer).await.unwrap();
    assert_eq!(
        claim(2).await,
        open(),
        "its answer is of the other epoch, too"
    );
    let next = NewIntent {
        epoch: "epoch-2",
        ..keyed(2)
    };
    let next = intend(&store, &next).await;
    assert!(link(next).await, "it is linked anew");
    let first = answer_of(claimed(&store, "k", 3).await);
    assert_eq!(first, None, "the key of the first epoch is another one");
}

pub(crate) async fn a_key_released_during_its_link_is_dated(world: World) {
    let store = world.open().await;
    let unkeyed = NewIntent {
        idempotency_key: None,
        ..keyed(1)
    };
    let id = intend(&store, &unkeyed).await;
    assert_eq!(claim(&store).await, Claim::New);
    let keys = store.keys(EPOCH);
    let link = async { keys.link("k", OPERATION, &digest(), id, NOW).await.unwrap() };
    let is_linked = match world.is_sqlite() {
        // only PostgreSQL has two writers
        true => link.await,
        false => world.behind("DELETE FROM idempotency", link).await,
    };
    assert!(is_linked);
    let created = "SELECT created_us FROM idempotency";
    assert_eq!(world.number(created).await, NOW);
}

pub(crate) async fn older_keys_get_the_epochs_of_their_intents(world: World) {
    let store = world.open().await;
    assert_eq!(claim(&store).await, Claim::New);
    intend(&store, &keyed(1)).await;
    assert_eq!(claimed(&store, "bare", 1).await, Claim::New);
    store.close().await;
    // the tables before migration 6
    world.undo_displaced().await;
    world
        .raw(
            "CREATE TABLE older AS SELECT key, operation, digest, intent_id, status, body, \
             created_us FROM idempotency; DROP TABLE idempotency; \
             CREATE TABLE idempotency (key TEXT, operation TEXT NOT NULL, digest TEXT NOT NULL, \
             intent_id BIGINT, status BIGINT, body TEXT, created_us BIGINT NOT NULL, \
             CONSTRAINT idempotency_pkey PRIMARY KEY (key)); \
             INSERT INTO idempotency SELECT * FROM older; DROP TABLE older; \
             DELETE FROM _sqlx_migrations WHERE version = 6",
        )
        .await
        .unwrap();
    let store = world.open().await;
    let Claim::Open { intent: Some(_) } = claim(&store).await else {
        panic!("it is linked")
    };
    let bare = claimed(&store, "bare", 2).await;
    assert_eq!(bare, Claim::New, "it is of no known epoch");
}

pub(crate) async fn a_lost_intent_releases_what_it_held(world: World) {
    let store = world.open().await;
    let recipient = felt(0xa);
    assert_eq!(claim(&store).await, Claim::New);
    let drip = NewIntent {
        idempotency_key: Some("k"),
        ..drip(1, felt(1), recipient)
    };
    let id = intend(&store, &drip).await;
    assert!(advance(&store, id, IntentState::Succeeded).await);
    assert!(answer(&store, id, 200, "{}").await);
    assert!(advance(&store, id, IntentState::Displaced).await);
    let other = store
        .faucet()
        .check(EPOCH, felt(2), recipient)
        .await
        .unwrap();
    assert_eq!(other, Binding::RecipientElsewhere, "in doubt, it is held");
    assert!(matches!(claim(&store).await, Claim::Answered { .. }));
    assert!(advance(&store, id, IntentState::Lost).await);
    let Claim::Open { intent: Some(lost) } = claim(&store).await else {
        panic!("the answer is withdrawn");
    };
    assert_eq!((lost.id, lost.state), (id, IntentState::Lost));
    let other = store
        .faucet()
        .check(EPOCH, felt(2), recipient)
        .await
        .unwrap();
    assert_eq!(other, Binding::Bound, "the binding is released");
    let drip = NewIntent {
        cooldown: Some(Duration::from_secs(3_600)),
        ..drip
    };
    assert_ne!(
        intend(&store, &drip).await,
        id,
        "it is written again, under its key"
    );
}

pub(crate) async fn a_known_intent_is_linked_too(world: World) {
    let store = world.open().await;
    let id = intend(&store, &intent(1)).await;
    assert_eq!(claim(&store).await, Claim::New);
    let known = store.intents().intend(&keyed(1), NOW).await.unwrap();
    assert!(
        matches!(&known, Intended::Known(intent) if intent.id == id),
        "{known:?}"
    );
    let Claim::Open {
        intent: Some(found),
    } = claim(&store).await
    else {
        panic!()
    };
    assert_eq!(found.id, id);
    assert_eq!(store.journal().newest(9).await.unwrap().len(), 2);
}

pub(crate) async fn a_request_is_about_the_intent_of_its_key_and_the_newest(world: World) {
    let store = world.open().await;
    let ids = async |key, operation, digest: [u8; 32]| {
        let of = Some((key, operation));
        let found = store.intents().requested(EPOCH, &digest, of).await.unwrap();
        [found.linked, found.newest].map(|intent| intent.map(|intent| intent.id))
    };
    assert_eq!(ids("k", OPERATION, digest()).await, [None, None]);
    let first = intend(&store, &keyed(1)).await;
    assert_eq!(
        ids("k", OPERATION, digest()).await,
        [Some(first), Some(first)]
    );
    assert_eq!(ids("other", OPERATION, digest()).await, [None, Some(first)]);
    assert_eq!(
        ids("k", "another", digest()).await,
        [None, Some(first)],
        "not its operation"
    );
    assert_eq!(
        ids("k", OPERATION, [0; 32]).await,
        [None, None],
        "not its body"
    );
    assert!(advance(&store, first, IntentState::Succeeded).await);
    let next = intend(
        &store,
        &NewIntent {
            idempotency_key: None,
            ..keyed(2)
        },
    )
    .await;
    assert_eq!(
        ids("k", OPERATION, digest()).await,
        [Some(first), Some(next)]
    );
    assert!(advance(&store, next, IntentState::Rejected).await);
    assert_eq!(
        ids("k", OPERATION, digest()).await,
        [Some(first), Some(first)]
    );
}

pub(crate) async fn a_key_that_is_gone_is_claimed_again(world: World) {
    let store = world.open().await;
    let id = intend(&store, &keyed(1)).await;
    let Claim::Open {
        intent: Some(found),
    } = claim(&store).await
    else {
        panic!()
    };
    assert_eq!(found.id, id);
    let other = store
        .keys(EPOCH)
        .claim("k", OPERATION, &[0; 32], &token(1), NOW)
        .await
        .unwrap();
    assert_eq!(other, Claim::Conflict);
}

pub(crate) async fn a_released_key_is_free(world: World) {
    let store = world.open().await;
    assert_eq!(claimed(&store, "k", 1).await, Claim::New);
    assert!(release(&store, 1).await);
    assert!(!release(&store, 1).await);
    assert_eq!(claimed(&store, "k", 2).await, Claim::New);
    let id = intend(&store, &keyed(1)).await;
    assert!(answer(&store, id, 200, "").await);
    assert!(!release(&store, 2).await, "an answer stays");
}

/// Sixteen claims of one key at once, each by another request.
async fn claims_at_once(store: &Arc<Store>) -> Vec<Claim> {
    let mut tasks = JoinSet::new();
    for task in 1..=16 {
        let store = Arc::clone(store);
        tasks.spawn(async move { claimed(&store, "k", task).await });
    }
    tasks.join_all().await
}

pub(crate) async fn one_of_parallel_claims_is_new(world: World) {
    let store = Arc::new(world.open().await);
    let claims = claims_at_once(&store).await;
    assert_eq!(
        claims.iter().filter(|claim| **claim == Claim::New).count(),
        1,
        "{claims:?}"
    );
    let open = claims
        .iter()
        .filter(|claim| matches!(claim, Claim::Open { intent: None }));
    assert_eq!(open.count(), 15);
}

pub(crate) async fn old_keys_are_pruned_unless_needed(world: World) {
    let store = world.open().await;
    let keys = store.keys(EPOCH);
    let claim = async |key, number, at| {
        let digest = intent(number).digest;
        keys.claim(key, OPERATION, &digest, &token(1), NOW + at)
            .await
            .unwrap()
    };
    for (key, number, at) in [
        ("bare", 0, 1),
        ("linked", 1, 1),
        ("both", 2, 1),
        ("young", 3, 5),
    ] {
        assert_eq!(claim(key, number, at).await, Claim::New);
    }
    for (number, key) in [(1, "linked"), (2, "both")] {
        let new = NewIntent {
            idempotency_key: Some(key),
            ..intent(number)
        };
        let id = intend(&store, &new).await;
        assert!(advance(&store, id, IntentState::Succeeded).await);
        if key == "both" {
            assert!(
                keys.answer(key, OPERATION, &new.digest, id, 200, "")
                    .await
                    .unwrap()
            );
        }
    }
    assert_eq!(store.prune_keys(NOW + 1).await.unwrap(), 0);
    assert_eq!(store.prune_keys(NOW + 5).await.unwrap(), 2);
    assert_eq!(store.prune_keys(NOW + 5).await.unwrap(), 0);
    let found = async |key, number| matches!(claim(key, number, 9).await, Claim::New);
    assert!(found("bare", 0).await && found("both", 2).await);
    assert!(
        !found("linked", 1).await,
        "it names an intent, and has no answer"
    );
    let young = keys
        .claim("young", OPERATION, &intent(3).digest, &token(2), NOW)
        .await
        .unwrap();
    assert_eq!(young, open());
    assert_eq!(
        store.intents().counts_by_state().await.unwrap(),
        [(IntentState::Succeeded, 2)]
    );
    assert_eq!(store.journal().newest(9).await.unwrap().len(), 2 * 3);
}

pub(crate) async fn an_identity_has_one_recipient_and_conversely(world: World) {
    let mut store = world.open().await;
    use Binding::{Bound, IdentityElsewhere, RecipientElsewhere};
    let steps = [
        (false, EPOCH, 1, 0xa, Bound),
        (false, EPOCH, 1, 0xa, Bound),
        (false, EPOCH, 1, 0xb, IdentityElsewhere),
        (false, EPOCH, 2, 0xa, RecipientElsewhere),
        (true, EPOCH, 2, 0xa, RecipientElsewhere),
        (false, EPOCH, 2, 0xb, Bound),
        (true, EPOCH, 2, 0xa, IdentityElsewhere),
        (false, EPOCH, 2, 0xb, Bound),
        (false, "epoch-2", 2, 0xa, Bound),
    ];
    for (number, (restart, epoch, identity, recipient, expected)) in steps.into_iter().enumerate() {
        if restart {
            store.close().await;
            store = world.open().await;
        }
        let (from, to) = (felt(identity), felt(recipient));
        assert_eq!(
            store.faucet().check(epoch, from, to).await.unwrap(),
            expected,
            "first"
        );
        let drip = NewIntent {
            epoch,
            ..drip(number, from, to)
        };
        let why = format!("{epoch} {identity} {recipient:x}");
        assert_eq!(bound(&store, &drip).await, expected, "{why}");
    }
}

/// A drip that binds.
fn drip(number: usize, identity: Felt, recipient: Felt) -> NewIntent<'static> {
    NewIntent {
        identity: Some(identity),
        subject: Some(recipient),
        ..intent(number as u64)
    }
}

/// The binding with which an intent was stored, or not stored.
async fn bound(store: &Store, drip: &NewIntent<'_>) -> Binding {
    match store.intents().intend(drip, NOW).await.unwrap() {
        Intended::New(_) => Binding::Bound,
        Intended::Elsewhere(binding) => binding,
        other => panic!("{drip:?} is new, not {other:?}"),
    }
}

pub(crate) async fn one_of_parallel_bindings_counts(world: World) {
    let store = Arc::new(world.open().await);
    let mut tasks = JoinSet::new();
    for identity in 0..16 {
        let store = Arc::clone(&store);
        let drip = drip(identity, felt(identity as u64), felt(0xa));
        tasks.spawn(async move { bound(&store, &drip).await });
    }
    let came = tasks.join_all().await;
    assert_eq!(
        came.iter().filter(|one| **one == Binding::Bound).count(),
        1,
        "{came:?}"
    );
    assert_eq!(
        came.iter()
            .filter(|one| **one == Binding::RecipientElsewhere)
            .count(),
        15
    );
}

pub(crate) async fn a_binding_stays_with_an_effective_intent(world: World) {
    use Binding::{Bound, RecipientElsewhere};
    use IntentState::{Lost, Rejected, Succeeded};
    let store = world.open().await;
    let recipient = felt(0xa);
    let for_another = async || {
        store
            .faucet()
            .check(EPOCH, felt(2), recipient)
            .await
            .unwrap()
    };
    for (number, end, expected) in [
        (1, Rejected, Bound),
        (2, Lost, Bound),
        (3, Succeeded, RecipientElsewhere),
        (4, Rejected, RecipientElsewhere),
    ] {
        let id = intend(&store, &drip(number, felt(1), recipient)).await;
        assert_eq!(
            for_another().await,
            RecipientElsewhere,
            "a drip is under way"
        );
        assert!(advance(&store, id, end).await);
        assert_eq!(for_another().await, expected, "{number}: {end:?}");
    }
}

pub(crate) async fn what_is_bound_elsewhere_stores_no_intent(world: World) {
    let store = world.open().await;
    assert_eq!(claim(&store).await, Claim::New);
    intend(&store, &drip(3, felt(1), felt(0xa))).await;
    let other = drip(2, felt(2), felt(0xa));
    let other = NewIntent {
        idempotency_key: Some("k"),
        digest: digest(),
        ..other
    };
    assert_eq!(bound(&store, &other).await, Binding::RecipientElsewhere);
    assert_eq!(
        store.intents().counts_by_state().await.unwrap(),
        [(IntentState::Sent, 1)]
    );
    assert_eq!(store.journal().newest(9).await.unwrap().len(), 2);
    assert_eq!(claim(&store).await, open(), "its key is not linked");
}
