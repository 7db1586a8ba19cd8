//! Rows that pruning deletes, and those that it never does.

use crate::transfer::{ANN, BOB};
use crate::world::World;
use portcullis_base::io::clock::now_us;
use portcullis_store::{PruneBefore, Pruned, Retention};
use std::time::Duration;

/// Before this, everything is old.
const LIMIT: i64 = 1_000_000;

fn everything_before(limit: i64) -> PruneBefore {
    PruneBefore {
        keys_us: limit,
        refusals_us: limit,
        suggestions_us: limit,
        age_sessions_us: limit,
        age_events_us: limit,
        feed_items_us: Some(limit),
    }
}

pub(crate) async fn pruning_deletes_only_what_is_not_needed(world: World) {
    let store = world.open().await;
    for statement in [
        // of each table a row that is old, one that is not, and whatever is old and needed
        "INSERT INTO idempotency (key, operation, digest, status, body, created_us, epoch) \
         VALUES ('old', 'drip', 'd', 200, '', 1, 'e'), ('new', 'drip', 'd', 200, '', 1000000, 'e')",
        "INSERT INTO feed_item (feed, post_uri, author_did, sort_us) \
         VALUES ('showcase', 'old', 'a', 999999), ('showcase', 'new', 'a', 1000000)",
        "INSERT INTO feed_label (feed, post_uri, label) VALUES ('showcase', 'old', 'rare')",
        "INSERT INTO age_session (subject_ref, user_id, status, last_occurred_us, created_us, \
         expires_us) VALUES ('old', 'u', 'pending', NULL, 1, 999999), \
         ('used', 'u', 'verified', 5, 1, 999999), ('new', 'u', 'pending', NULL, 1, 1000000)",
        "INSERT INTO age_event (event_id, digest, subject_ref, status, occurred_us, received_us, \
         outcome, status_after) VALUES ('old', 'd', 'used', 'verified', 5, 999999, 'applied', \
         'verified'), ('new', 'd', 'used', 'verified', 5, 1000000, 'stale', 'verified')",
        "INSERT INTO age_user (user_id, status, last_occurred_us) VALUES ('u', 'verified', 5)",
    ] {
        world.raw(statement).await.unwrap();
    }
    for (viewer, built) in [(ANN, 1), (ANN, 2), (ANN, 3), (BOB, 1), ("*", 999_999)] {
        snapshot(&world, viewer, built).await;
    }
    snapshot(&world, "*", LIMIT).await;

    let all = everything_before(LIMIT);
    let pruned = store
        .prune(&PruneBefore {
            feed_items_us: None,
            ..all
        })
        .await
        .unwrap();
    assert_eq!(pruned.feed_items, 0, "feed items stay unless requested");
    let then = store.prune(&all).await.unwrap();
    assert_eq!(
        then,
        Pruned {
            feed_items: 1,
            ..Pruned::default()
        }
    );
    let expected = Pruned {
        keys: 1,
        refusals: 0,
        suggestions: 6,
        age_sessions: 1,
        age_events: 1,
        feed_items: 0,
    };
    assert_eq!(
        pruned, expected,
        "two snapshots of Ann's and the old one of everybody"
    );
    for (table, rows) in [
        ("idempotency", 1),
        ("feed_item", 1),
        ("feed_label", 0),
        ("age_session", 2),
        ("age_event", 1),
        ("age_user", 1),
        ("suggestion", 6),
    ] {
        assert_eq!(
            world.number(&format!("SELECT count(*) FROM {table}")).await,
            rows,
            "{table}"
        );
    }
}

pub(crate) async fn the_store_keeps_when_it_was_pruned(world: World) {
    let store = world.open().await;
    let long_ago = "UPDATE pruning SET pruned_us = 1";
    world.raw(long_ago).await.unwrap();
    // PostgreSQL has the clock of this machine, which the store knows to half of a round trip
    let before = now_us();
    store.prune(&everything_before(LIMIT)).await.unwrap();
    let pruned = store.pruned_us().await.unwrap();
    assert!(
        (before..=store.now_us()).contains(&pruned),
        "{before}, then {pruned}"
    );
    store.close().await;

    let store = world.open().await;
    assert_eq!(store.pruned_us().await.unwrap(), pruned, "after a restart");
    world.raw(long_ago).await.unwrap();
    world
        .raw("DROP TABLE feed_label; DROP TABLE feed_item")
        .await
        .unwrap();
    store.prune(&everything_before(LIMIT)).await.unwrap_err();
    assert_eq!(
        store.pruned_us().await.unwrap(),
        1,
        "a prune that fails changes nothing"
    );
}

pub(crate) async fn pruning_asks_the_store_for_the_time(world: World) {
    const DAY: Duration = Duration::from_secs(24 * 3_600);
    let store = world.open().await;
    let mut now = now_us();
    if !world.is_sqlite() {
        // the database's clock is a week behind that of this machine
        let behind = "CREATE FUNCTION public.clock_timestamp() RETURNS timestamptz LANGUAGE sql \
                      AS $$ SELECT pg_catalog.clock_timestamp() - interval '7 days' $$";
        world.raw(behind).await.unwrap();
        let path =
            "ALTER ROLE CURRENT_USER IN DATABASE \"{}\" SET search_path = public, pg_catalog";
        let name = world.url.rsplit('/').next().unwrap();
        world.raw(&path.replace("{}", name)).await.unwrap();
        now -= 7 * 24 * 3_600_000_000;
    }
    store.close().await;
    let store = world.open().await;
    let insert = |key: &str, at: i64| {
        format!(
            "INSERT INTO idempotency (key, operation, digest, status, body, created_us, epoch) \
             VALUES ('{key}', 'drip', 'd', 200, '', {at}, 'e')"
        )
    };
    let minute = 60_000_000;
    for (key, age) in [("young", minute), ("old", 24 * 60 * minute + minute)] {
        world.raw(&insert(key, now - age)).await.unwrap();
    }
    let retention = Retention {
        keys: DAY,
        refusals: DAY,
        suggestions: DAY,
        age_sessions: DAY,
        age_events: DAY,
        feed_items: None,
    };
    assert_eq!(store.prune_by(&retention).await.unwrap().keys, 1);
    let left = world.texts("SELECT key FROM idempotency").await;
    assert_eq!(left, ["young"]);
}

async fn snapshot(world: &World, viewer: &str, built: i64) {
    for rank in [1, 2] {
        let row = format!(
            "INSERT INTO suggestion VALUES ('{viewer}', {built}, {rank}, 'a', 'p', 'r', {built})"
        );
        world.raw(&row).await.unwrap();
    }
}

pub(crate) async fn a_session_with_a_new_event_stays(world: World) {
    let store = world.open().await;
    let opened = "INSERT INTO age_session (subject_ref, user_id, status, created_us, expires_us) \
                  VALUES ('s', 'u', 'pending', 1, 2)";
    world.raw(opened).await.unwrap();
    let event = "UPDATE age_session SET status = 'verified', last_occurred_us = 5";
    if world.is_sqlite() {
        world.raw(event).await.unwrap();
        store.prune(&everything_before(LIMIT)).await.unwrap();
    } else {
        let before = everything_before(LIMIT);
        world.behind(event, store.prune(&before)).await.unwrap();
    }
    assert_eq!(world.number("SELECT count(*) FROM age_session").await, 1);
    store.close().await;
}

pub(crate) async fn each_viewer_keeps_the_newest_snapshot(world: World) {
    let store = world.open().await;
    let fill = "WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000) \
                INSERT INTO suggestion SELECT 'did:web:' || (i % 2000), i, 1, 'a', 'p', 'r', i \
                FROM n";
    world.raw(fill).await.unwrap();
    let forgotten = store.prune(&everything_before(LIMIT)).await.unwrap();
    assert_eq!(forgotten.suggestions, 7_000);
    assert_eq!(world.number("SELECT count(*) FROM suggestion").await, 2_000);
    assert_eq!(
        store.prune(&everything_before(LIMIT)).await.unwrap(),
        Pruned::default()
    );
}
