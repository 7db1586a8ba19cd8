//! The room that refusals take, as the databases report it.

use crate::world::{NOW, World, refuse};
use futures_util::future::join_all;

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

pub(crate) async fn a_thousand_refusals_take_five_kib(world: World) {
    let store = world.open().await;
    let bytes = growth(&world, REFUSALS, |at| {
        refuse(&store, "mint-card", "not_verified", NOW + at * INTERVAL_US)
    })
    .await;
    assert!(bytes <= 5 * 1_024, "{bytes} bytes per 1,000 refusals");
}
