//! Idempotency keys and the faucet's bindings.

use crate::world::{EPOCH, NOW, World, felt, intend, intent};
use portcullis::store::{Binding, Claim, Intended, IntentState, NewIntent, Store, StoreError};
use portcullis_filters::felt::Felt;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const DIGEST: [u8; 32] = [0x11; 32];

/// Claims the key `k` when nothing counts as abandoned.
async fn claim(store: &Store) -> Claim {
    store.keys(EPOCH).claim("k", "register", &DIGEST, NOW, 0).await.unwrap()
}

fn open() -> Claim {
    Claim::Open { intent: None, since_us: NOW }
}

fn answered(status: u16, body: &str) -> Claim {
    Claim::Answered { status, body: body.to_owned(), intent: None }
}

pub(crate) async fn a_key_identifies_one_request_across_restarts(world: World) {
    let mut store = world.open().await;
    assert_eq!(claim(&store).await, Claim::New);
    for restarts in 0..2 {
        assert_eq!(claim(&store).await, open(), "after {restarts} restarts");
        for (operation, digest) in [("register", [0; 32]), ("mint-card", DIGEST)] {
            let other =
                store.keys(EPOCH).claim("k", operation, &digest, NOW + 1, NOW + 2).await.unwrap();
            assert_eq!(other, Claim::Conflict, "{operation}");
        }
        store.close().await;
        store = world.open().await;
    }
    assert!(store.keys(EPOCH).answer("k", 200, "{\"ok\":true}").await.unwrap());
    assert!(!store.keys(EPOCH).answer("k", 500, "later").await.unwrap(), "the first answer stays");
    assert!(!store.keys(EPOCH).answer("unknown", 200, "").await.unwrap());
    store.close().await;
    let store = world.open().await;
    assert_eq!(claim(&store).await, answered(200, "{\"ok\":true}"));
    let other = store.keys(EPOCH).claim("k", "register", &[0; 32], NOW, NOW + 1).await.unwrap();
    assert_eq!(other, Claim::Conflict, "an answer is for its own request only");
    let next = store.keys(EPOCH).claim("K", "register", &DIGEST, NOW, 0).await.unwrap();
    assert_eq!(next, Claim::New, "keys differ by case");
}

pub(crate) async fn a_linked_key_cannot_be_released(world: World) {
    let store = world.open().await;
    assert_eq!(claim(&store).await, Claim::New);
    let new = NewIntent { idempotency_key: Some("k"), ..intent(1) };
    let id = intend(&store, &new).await;
    assert!(!store.keys(EPOCH).release("k", NOW).await.unwrap());
    let later = store.keys(EPOCH).claim("k", "register", &DIGEST, NOW + 9, NOW + 9).await.unwrap();
    let Claim::Open { intent: Some(found), since_us: NOW } = later else { panic!("{later:?}") };
    assert_eq!(found.id, id);
    let other = NewIntent { idempotency_key: Some("k"), ..intent(2) };
    let refused = store.intents().intend(&other, NOW).await;
    assert!(matches!(refused, Err(StoreError::UnknownKey)), "a key has one intent: {refused:?}");
    assert!(store.intents().advance(id, IntentState::Rejected, None, NOW).await.unwrap());
    let id = intend(&store, &other).await;
    assert!(store.keys(EPOCH).answer("k", 202, "{}").await.unwrap());
    let Claim::Answered { status: 202, intent: Some(found), .. } = claim(&store).await else {
        panic!("the answer reports its intent");
    };
    assert_eq!(found.id, id);
}

pub(crate) async fn a_key_belongs_to_one_epoch(world: World) {
    let store = world.open().await;
    assert_eq!(claim(&store).await, Claim::New);
    assert!(store.keys(EPOCH).answer("k", 200, "{}").await.unwrap());
    let later = store.keys("epoch-2").claim("k", "mint-card", &[0; 32], NOW, 0).await.unwrap();
    assert_eq!(later, Claim::New, "another request, on a chain that started again");
    assert!(store.keys("epoch-2").release("k", NOW).await.unwrap());
    assert_eq!(claim(&store).await, answered(200, "{}"), "the first one is untouched");
}

pub(crate) async fn older_keys_get_the_epochs_of_their_intents(world: World) {
    let store = world.open().await;
    assert_eq!(claim(&store).await, Claim::New);
    intend(&store, &NewIntent { idempotency_key: Some("k"), ..intent(1) }).await;
    let bare = store.keys(EPOCH).claim("bare", "register", &DIGEST, NOW, 0).await.unwrap();
    assert_eq!(bare, Claim::New);
    store.close().await;
    // the tables before migration 6
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
    let Claim::Open { intent: Some(_), .. } = claim(&store).await else { panic!("it is linked") };
    let bare = store.keys(EPOCH).claim("bare", "register", &DIGEST, NOW, 0).await.unwrap();
    assert_eq!(bare, Claim::New, "it is of no known epoch");
}

pub(crate) async fn a_lost_intent_releases_what_it_held(world: World) {
    let store = world.open().await;
    let recipient = felt(0xa);
    assert_eq!(claim(&store).await, Claim::New);
    let drip = NewIntent { idempotency_key: Some("k"), ..drip(1, felt(1), recipient) };
    let id = intend(&store, &drip).await;
    assert!(store.intents().advance(id, IntentState::Succeeded, None, NOW).await.unwrap());
    assert!(store.keys(EPOCH).answer("k", 200, "{}").await.unwrap());
    let read = store.intents().get(id).await.unwrap().unwrap();
    assert!(store.intents().lose(&read, "block rolled back", NOW).await.unwrap());
    let Claim::Open { intent: Some(lost), .. } = claim(&store).await else {
        panic!("the answer is withdrawn");
    };
    assert_eq!((lost.id, lost.state), (id, IntentState::Lost));
    let other = store.faucet().check(EPOCH, felt(2), recipient).await.unwrap();
    assert_eq!(other, Binding::Bound, "the binding is released");
    let drip = NewIntent { cooldown: Some(Duration::from_secs(3_600)), ..drip };
    assert_ne!(intend(&store, &drip).await, id, "it is written again, under its key");
}

pub(crate) async fn a_known_intent_is_linked_too(world: World) {
    let store = world.open().await;
    let id = intend(&store, &intent(1)).await;
    assert_eq!(claim(&store).await, Claim::New);
    let again = NewIntent { idempotency_key: Some("k"), ..intent(1) };
    let known = store.intents().intend(&again, NOW).await.unwrap();
    assert!(matches!(&known, Intended::Known(intent) if intent.id == id), "{known:?}");
    let Claim::Open { intent: Some(found), .. } = claim(&store).await else { panic!() };
    assert_eq!(found.id, id);
    assert_eq!(store.journal().newest(9).await.unwrap().len(), 2);
}

pub(crate) async fn an_unclaimed_key_stores_no_intent(world: World) {
    let store = world.open().await;
    let new = NewIntent { idempotency_key: Some("k"), ..intent(1) };
    let refused = store.intents().intend(&new, NOW).await;
    assert!(matches!(refused, Err(StoreError::UnknownKey)), "{refused:?}");
    assert_eq!(store.intents().counts_by_state().await.unwrap(), []);
    assert_eq!(store.journal().newest(1).await.unwrap(), []);
    let id = intend(&store, &intent(1)).await;
    assert_eq!(id.0, 1, "nothing of it is left");
}

pub(crate) async fn a_released_key_is_free(world: World) {
    let store = world.open().await;
    assert_eq!(claim(&store).await, Claim::New);
    assert!(!store.keys(EPOCH).release("k", NOW - 1).await.unwrap(), "another's claim");
    assert_eq!(claim(&store).await, open());
    assert!(store.keys(EPOCH).release("k", NOW).await.unwrap());
    assert!(!store.keys(EPOCH).release("k", NOW).await.unwrap());
    assert_eq!(claim(&store).await, Claim::New);
    assert!(store.keys(EPOCH).answer("k", 200, "").await.unwrap());
    assert!(!store.keys(EPOCH).release("k", NOW).await.unwrap(), "an answer stays");
}

/// Sixteen claims of one key at once, each at an instant of its own.
async fn claims_at_once(store: &Arc<Store>, abandoned_before_us: i64) -> Vec<Claim> {
    let mut tasks = JoinSet::new();
    for task in 1..=16 {
        let store = Arc::clone(store);
        tasks.spawn(async move {
            let now = NOW + task;
            store
                .keys(EPOCH)
                .claim("k", "register", &DIGEST, now, abandoned_before_us)
                .await
                .unwrap()
        });
    }
    tasks.join_all().await
}

pub(crate) async fn one_of_parallel_claims_is_new(world: World) {
    let store = Arc::new(world.open().await);
    let claims = claims_at_once(&store, 0).await;
    assert_eq!(claims.iter().filter(|claim| **claim == Claim::New).count(), 1, "{claims:?}");
    let open = claims.iter().filter(|claim| matches!(claim, Claim::Open { intent: None, .. }));
    assert_eq!(open.count(), 15);
}

pub(crate) async fn one_caller_replaces_an_abandoned_claim(world: World) {
    let store = Arc::new(world.open().await);
    assert_eq!(claim(&store).await, Claim::New);
    let claims = claims_at_once(&store, NOW + 1).await;
    assert_eq!(claims.iter().filter(|claim| **claim == Claim::New).count(), 1, "{claims:?}");
    assert!(!store.keys(EPOCH).release("k", NOW).await.unwrap(), "it is no longer the first one's");
}

pub(crate) async fn old_keys_are_pruned_unless_needed(world: World) {
    let store = world.open().await;
    for (key, at) in [("answered", 1), ("bare", 1), ("linked", 1), ("both", 1), ("young", 5)] {
        let claim = store.keys(EPOCH).claim(key, "register", &DIGEST, NOW + at, 0).await.unwrap();
        assert_eq!(claim, Claim::New);
    }
    for (number, key) in [(1, "linked"), (2, "both")] {
        let new = NewIntent { idempotency_key: Some(key), ..intent(number) };
        let id = intend(&store, &new).await;
        assert!(store.intents().advance(id, IntentState::Succeeded, None, NOW).await.unwrap());
    }
    for key in ["answered", "both", "young"] {
        assert!(store.keys(EPOCH).answer(key, 200, "").await.unwrap());
    }
    assert_eq!(store.prune_keys(NOW + 1).await.unwrap(), 0);
    assert_eq!(store.prune_keys(NOW + 5).await.unwrap(), 3);
    assert_eq!(store.prune_keys(NOW + 5).await.unwrap(), 0);
    for (key, is_new) in
        [("answered", true), ("bare", true), ("both", true), ("linked", false), ("young", false)]
    {
        let claim = store.keys(EPOCH).claim(key, "register", &DIGEST, NOW, 0).await.unwrap();
        assert_eq!(claim == Claim::New, is_new, "{key}: {claim:?}");
    }
    assert_eq!(store.intents().counts_by_state().await.unwrap(), [(IntentState::Succeeded, 2)]);
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
        assert_eq!(store.faucet().check(epoch, from, to).await.unwrap(), expected, "first");
        let drip = NewIntent { epoch, ..drip(number, from, to) };
        let why = format!("{epoch} {identity} {recipient:x}");
        assert_eq!(bound(&store, &drip).await, expected, "{why}");
    }
}

/// A drip that binds.
fn drip(number: usize, identity: Felt, recipient: Felt) -> NewIntent<'static> {
    NewIntent { identity: Some(identity), subject: Some(recipient), ..intent(number as u64) }
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
    assert_eq!(came.iter().filter(|one| **one == Binding::Bound).count(), 1, "{came:?}");
    assert_eq!(came.iter().filter(|one| **one == Binding::RecipientElsewhere).count(), 15);
}

pub(crate) async fn a_binding_stays_with_an_effective_intent(world: World) {
    use Binding::{Bound, RecipientElsewhere};
    use IntentState::{Lost, Rejected, Succeeded};
    let store = world.open().await;
    let recipient = felt(0xa);
    let for_another = async || store.faucet().check(EPOCH, felt(2), recipient).await.unwrap();
    for (number, end, expected) in [
        (1, Rejected, Bound),
        (2, Lost, Bound),
        (3, Succeeded, RecipientElsewhere),
        (4, Rejected, RecipientElsewhere),
    ] {
        let id = intend(&store, &drip(number, felt(1), recipient)).await;
        assert_eq!(for_another().await, RecipientElsewhere, "a drip is under way");
        assert!(store.intents().advance(id, end, None, NOW).await.unwrap());
        assert_eq!(for_another().await, expected, "{number}: {end:?}");
    }
}

pub(crate) async fn what_is_bound_elsewhere_stores_no_intent(world: World) {
    let store = world.open().await;
    assert_eq!(claim(&store).await, Claim::New);
    intend(&store, &drip(1, felt(1), felt(0xa))).await;
    let other = NewIntent { idempotency_key: Some("k"), ..drip(2, felt(2), felt(0xa)) };
    assert_eq!(bound(&store, &other).await, Binding::RecipientElsewhere);
    assert_eq!(store.intents().counts_by_state().await.unwrap(), [(IntentState::Sent, 1)]);
    assert_eq!(store.journal().newest(9).await.unwrap().len(), 2);
    assert_eq!(claim(&store).await, open(), "its key is not linked");
}
