//! Tables of an earlier version, with rows of every kind.

use crate::age::clock;
use crate::world::{EPOCH, NOW, World, advance, felt, intend, intent, refuse, token};
use portcullis_filters::webhook::AgeStatus;
use portcullis_store::IntentState::{Accepted, Displaced, Lost, Rejected, Reverted, Succeeded};
use portcullis_store::{Binding, Budgets, Change, Claim, Intent, NewIntent, Search, Verified};

const STRK: u128 = 1_000_000_000_000_000_000;

/// Before migration 11.
pub(crate) async fn an_older_store_counts_as_pruned(world: World) {
    world.open().await.close().await;
    world.undo_pruning().await;
    let store = world.open().await;
    let pruned = store.pruned_us().await.unwrap();
    // SQLite's own clock has whole seconds
    let second = 1_000_000;
    let soon = store.now_us() - 60 * second..=store.now_us();
    assert!(soon.contains(&pruned), "at its migration: {pruned}");
}

/// Before migration 13, when the newest event of a user replaced a verification.
pub(crate) async fn a_verification_that_was_taken_away_returns(world: World) {
    world.open().await.close().await;
    world.undo_age_reports().await;
    // in 2100, and in 2001
    let (later, ended) = ("4102444800000000", "1000000000000000");
    world
        .raw(&format!(
            "INSERT INTO age_session (subject_ref, user_id, status, last_occurred_us, created_us, \
               expires_us) VALUES \
               ('a', 'u', 'verified', 5, 1, 9), ('b', 'u', 'rejected', 6, 1, 9), \
               ('c', 'v', 'verified', 5, 1, 9), ('d', 'w', 'verified', 5, 1, 9), \
               ('e', 'w', 'expired', 7, 1, 9);
             INSERT INTO age_event VALUES \
               ('1', '', 'a', 'verified', '18_plus', 4, {later}, 5, 5, 'applied', 'verified'), \
               ('2', '', 'd', 'verified', '18_plus', 4, {ended}, 5, 5, 'applied', 'verified');
             INSERT INTO age_user VALUES ('u', 'rejected', NULL, NULL, NULL, 6), \
               ('v', 'verified', '21_plus', 4, {later}, 5), ('w', 'expired', NULL, NULL, NULL, 7)"
        ))
        .await
        .unwrap();
    let store = world.open().await;
    for (user, band, status) in [
        ("u", Some("18_plus"), AgeStatus::Verified),
        ("v", Some("21_plus"), AgeStatus::Verified),
        ("w", None, AgeStatus::Expired),
    ] {
        let found = store.ages().user(user, clock(NOW)).await.unwrap().unwrap();
        assert_eq!(
            (found.status, found.age_band.as_deref()),
            (status, band),
            "{user}"
        );
    }
    world
        .raw(
            "DELETE FROM age_user WHERE user_id = 'u' AND status = 'verified' \
             AND age_band = '18_plus' AND last_occurred_us = 5",
        )
        .await
        .unwrap();
    let forgotten = store.forget("u").await.unwrap();
    assert_eq!(forgotten.age_user, 0, "the backend's row returned as well");
}

/// Before migration 10.
pub(crate) async fn intents_of_older_versions_are_kept(world: World) {
    let store = world.open().await;
    let mut ids = Vec::new();
    for (end, number) in [
        None,
        Some(Accepted),
        Some(Succeeded),
        Some(Reverted),
        Some(Rejected),
        Some(Lost),
    ]
    .into_iter()
    .zip(0..)
    {
        let identity = Some(felt(0x100 + number));
        let new = NewIntent {
            identity,
            max_fee: STRK,
            ..intent(number)
        };
        let id = intend(&store, &new).await;
        if let Some(end) = end {
            assert!(advance(&store, id, end).await);
        }
        ids.push(id);
    }
    let linked = NewIntent {
        idempotency_key: Some("linked"),
        ..intent(50)
    };
    let keys = store.keys(EPOCH);
    let claim = keys
        .claim("linked", linked.operation, &linked.digest, &token(1), NOW)
        .await;
    assert_eq!(claim.unwrap(), Claim::New);
    let linked_id = intend(&store, &linked).await;
    let claim = keys
        .claim("bare", linked.operation, &linked.digest, &token(1), NOW)
        .await;
    assert_eq!(claim.unwrap(), Claim::New);
    refuse(&store, "faucet-drip", "why", NOW).await;
    let all = async |store: &portcullis_store::Store| {
        store
            .journal()
            .search(&Search::default(), i64::MAX, 500)
            .await
            .unwrap()
    };
    let before = all(&store).await;
    let (counts, head) = (
        store.intents().counts_by_state().await.unwrap(),
        store.journal().verify().await.unwrap(),
    );
    store.close().await;
    world.undo_displaced().await;

    let store = world.open().await;
    let unknown = |intent: Intent| Intent {
        born: None,
        identity: None,
        included: None,
        ..intent
    };
    let expected: Vec<_> = before.into_iter().map(unknown).collect();
    assert_eq!(all(&store).await, expected);
    assert_eq!(store.intents().counts_by_state().await.unwrap(), counts);
    let verified = store.journal().verify().await.unwrap();
    assert!(matches!(verified, Verified::Whole { .. }), "{verified:?}");
    assert_eq!(verified, head);
    world
        .raw("DELETE FROM journal")
        .await
        .expect_err("it is protected");
    world
        .raw("UPDATE journal SET at_us = 0")
        .await
        .expect_err("it is protected");
    let keys = store.keys(EPOCH);
    let claim = keys
        .claim("linked", linked.operation, &linked.digest, &token(2), NOW)
        .await;
    assert!(matches!(claim.unwrap(), Claim::Open { intent: Some(it) } if it.id == linked_id));
    assert!(
        !keys.release("bare", &token(1)).await.unwrap(),
        "nobody owns it"
    );
    let limits = Budgets {
        drips: None,
        fees: Some(10 * STRK),
    };
    let [_, (_, part)] = store
        .intents()
        .budgets_used(&limits, EPOCH, NOW)
        .await
        .unwrap();
    assert_eq!(part, 0.4, "of what holds");

    // each works as a new one does
    let [open, accepted, succeeded, ..] = ids[..] else {
        panic!()
    };
    let change = Change::Included {
        outcome: Ok(()),
        fee: Some(STRK / 2),
        block: None,
    };
    assert!(store.intents().apply(accepted, &change, NOW).await.unwrap());
    let [_, (_, part)] = store
        .intents()
        .budgets_used(&limits, EPOCH, NOW)
        .await
        .unwrap();
    assert_eq!(part, 0.35);
    assert!(advance(&store, succeeded, Displaced).await);
    assert_eq!(
        store
            .intents()
            .displaced(EPOCH, None, 9)
            .await
            .unwrap()
            .len(),
        1
    );
    assert!(advance(&store, open, Rejected).await);
    let faucet = store.faucet();
    let check = |number: u64| faucet.check(EPOCH, felt(0x999), felt(0x5000 + number));
    assert_eq!(check(0).await.unwrap(), Binding::Bound, "released");
    assert_eq!(
        check(2).await.unwrap(),
        Binding::RecipientElsewhere,
        "in doubt, it is held"
    );
    let verified = store.journal().verify().await.unwrap();
    assert!(matches!(verified, Verified::Whole { .. }), "{verified:?}");
}
