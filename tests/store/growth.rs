//! The room that refusals take, as the databases report it.

use crate::world::{NOW, World, refuse};
use futures_util::future::join_all;
use portcullis_store::Store;
use std::ops::Range;

/// A backend that repeats a refused request as often as the relay's default limit permits: 600
/// times a minute.
const INTERVAL_US: i64 = 100_000;
/// Refusals of 20 minutes: a page or two of the database more or less does not matter.
const REFUSALS: i64 = 12_000;
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

/// Refuses this request that many times; 64 run concurrently.
async fn refuse_each(store: &Store, numbers: Range<i64>) {
    let numbers: Vec<i64> = numbers.collect();
    for some in numbers.chunks(64) {
        let refused = some.iter().map(|number| {
            let now_us = NOW + number * INTERVAL_US;
            refuse(store, "mint-card", "not_verified", now_us)
        });
        join_all(refused).await;
    }
}

pub(crate) async fn a_thousand_refusals_take_five_kib(world: World) {
    let store = world.open().await;
    // pages for rows that are written often exist afterwards, and PostgreSQL's maps of free room
    refuse_each(&store, 0..REFUSALS / 2).await;
    if !world.is_sqlite() {
        world.raw("VACUUM").await.unwrap();
    }
    let before = size(&world).await;
    refuse_each(&store, REFUSALS / 2..REFUSALS * 3 / 2).await;
    let bytes = 1_000 * (size(&world).await - before) / REFUSALS;
    assert!(bytes <= 5 * 1_024, "{bytes} bytes per 1,000 refusals");
}
