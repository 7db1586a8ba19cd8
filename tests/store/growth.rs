//! The room that a year takes: bytes per refusal and per write, as the databases report them.

use crate::world::{NOW, World, change, intent, refuse};
use futures_util::future::join_all;
use portcullis_store::{Intended, IntentState, NewIntent, Store};

/// A backend that repeats a refused request as often as the relay's default limit permits: 600
/// times a minute.
const INTERVAL_US: i64 = 100_000;
/// Refusals of 100 minutes: a page or two of the database more or less does not matter.
const REFUSALS: i64 = 60_000;
/// Writes: their rows fill many pages.
const WRITES: i64 = 2_000;
/// Signed transactions of real libraries.
const TRANSACTIONS: &str = include_str!("../../filters/tests/vectors/writes.ndjson");

/// Bytes of all tables and indexes.
async fn size(world: &World) -> i64 {
    let size = if world.is_sqlite() {
        "SELECT (page_count - freelist_count) * page_size \
         FROM pragma_page_count, pragma_freelist_count, pragma_page_size"
    } else {
        "SELECT CAST(sum(pg_total_relation_size(oid)) AS BIGINT) FROM pg_class \
         WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace"
    };
    world.number(size).await
}

/// Bytes per 1,000 of these steps; 64 run concurrently.
async fn growth<F: Future<Output = ()>>(world: &World, steps: i64, step: impl Fn(i64) -> F) -> i64 {
    let before = size(world).await;
    let mut next = 0;
    while next < steps {
        let until = (next + 64).min(steps);
        join_all((next..until).map(&step)).await;
        next = until;
    }
    1_000 * (size(world).await - before) / steps
}

async fn write(store: &Store, transaction: &str, at: i64) {
    let number = at.unsigned_abs();
    let new = NewIntent {
        transaction,
        ..intent(number)
    };
    let now_us = NOW + at * INTERVAL_US;
    let intents = store.intents();
    let Ok(Intended::New(id)) = intents.intend(&new, now_us).await else {
        panic!("it is new")
    };
    for state in [IntentState::Accepted, IntentState::Succeeded] {
        assert!(intents.apply(id, &change(state, ""), now_us).await.unwrap());
    }
}

pub(crate) async fn a_thousand_refusals_take_five_kib(world: World) {
    let store = world.open().await;
    let bytes = growth(&world, REFUSALS, |at| {
        refuse(&store, "mint-card", "not_verified", NOW + at * INTERVAL_US)
    })
    .await;
    println!("{bytes} bytes per 1,000 refusals");
    assert!(bytes <= 5 * 1_024, "{bytes} bytes per 1,000 refusals");
}

pub(crate) async fn a_thousand_writes_take_six_mib(world: World) {
    let store = world.open().await;
    let first = TRANSACTIONS.lines().next().unwrap();
    let first: serde_json::Value = serde_json::from_str(first).unwrap();
    let transaction = first["body"].as_str().unwrap();
    let bytes = growth(&world, WRITES, |at| write(&store, transaction, at)).await;
    println!("{bytes} bytes per 1,000 writes");
    assert!(bytes <= 6 << 20, "{bytes} bytes per 1,000 writes");
}
