//! Budgets: what counts in a day, from when, until when, and for whom.

use crate::world::{EPOCH, NOW, World, advance, change, felt, intend, intent};
use portcullis_store::IntentState::{Accepted, Lost, Rejected, Reverted, Sent, Succeeded};
use portcullis_store::{
    Budget, Budgets, Change, Intended, IntentId, IntentState, NewIntent, OverBudget, Store,
};
use std::sync::Arc;
use tokio::task::JoinSet;

const DAY: i64 = 24 * 60 * 60 * 1_000_000;
/// The end of the minute of [`NOW`], from which on its fees do not count a day later.
const NEXT: i64 = NOW + 40_000_000;
const STRK: u128 = 1_000_000_000_000_000_000;
const GFRI: u128 = 1_000_000_000;

fn drip(number: u64, limit: u32) -> NewIntent<'static> {
    NewIntent {
        budgets: Budgets {
            drips: Some(limit),
            fees: None,
        },
        ..intent(number)
    }
}

/// An operation that may cost this many fri.
fn costly(number: u64, max_fee: u128, limit: u128) -> NewIntent<'static> {
    let budgets = Budgets {
        drips: None,
        fees: Some(limit),
    };
    NewIntent {
        operation: "register",
        max_fee,
        budgets,
        ..intent(number)
    }
}

async fn intend_at(store: &Store, new: &NewIntent<'_>, now_us: i64) -> Option<OverBudget> {
    match store.intents().intend(new, now_us).await.unwrap() {
        Intended::New(_) => None,
        Intended::OverBudget(over) => Some(over),
        other => panic!("{new:?}: {other:?}"),
    }
}

async fn used(store: &Store, budgets: Budgets, now_us: i64) -> [f64; 2] {
    let used = store
        .intents()
        .budgets_used(&budgets, EPOCH, now_us)
        .await
        .unwrap();
    assert_eq!(used.map(|(budget, _)| budget), Budget::ALL);
    used.map(|(_, part)| part)
}

pub(crate) async fn a_drip_counts_until_it_is_a_day_old(world: World) {
    let store = world.open().await;
    for (number, at) in [(1, NOW), (2, NOW + 5)] {
        assert_eq!(intend_at(&store, &drip(number, 2), at).await, None);
    }
    let until = |until_us| {
        Some(OverBudget {
            budget: Budget::Faucet,
            until_us,
        })
    };
    assert_eq!(
        intend_at(&store, &drip(3, 2), NOW + 9).await,
        until(NOW + DAY)
    );
    let last = NOW + DAY - 1;
    assert_eq!(
        intend_at(&store, &drip(3, 2), last).await,
        until(NOW + DAY),
        "the last moment"
    );
    assert_eq!(
        intend_at(&store, &drip(3, 1), last).await,
        until(NOW + 5 + DAY),
        "a smaller one"
    );
    let limit = Budgets {
        drips: Some(2),
        fees: None,
    };
    assert_eq!(used(&store, limit, last).await, [1.0, 0.0]);
    assert_eq!(used(&store, limit, NOW + DAY).await, [0.5, 0.0]);
    assert_eq!(
        intend_at(&store, &drip(3, 2), NOW + DAY).await,
        None,
        "the first is a day old"
    );
    let entries = store.journal().entries(1, 10).await.unwrap().len();
    assert_eq!(entries, 6, "two of each, and none of what is over a budget");
}

pub(crate) async fn only_drips_that_may_pay_count(world: World) {
    let store = world.open().await;
    let mut number = 0;
    for (end, counts) in [
        (Sent, true),
        (Accepted, true),
        (Succeeded, true),
        (Reverted, false),
        (Rejected, false),
        (Lost, false),
    ] {
        let epoch = end.name();
        let new = |number| NewIntent {
            epoch,
            ..drip(number, 1)
        };
        number += 2;
        let id = intend(&store, &new(number)).await;
        if end != Sent {
            assert!(advance(&store, id, end).await);
        }
        let over = intend_at(&store, &new(number + 1), NOW).await;
        assert_eq!(over.is_some(), counts, "{end:?}");
    }
    let register = NewIntent {
        operation: "register",
        ..intent(100)
    };
    intend(&store, &register).await;
    assert_eq!(
        intend_at(&store, &drip(101, 1), NOW).await,
        None,
        "another operation is no drip"
    );
    assert!(
        intend_at(&store, &drip(102, 1), NOW).await.is_some(),
        "in this epoch"
    );
}

/// Records what leads to a state, a receipt with what it cost.
async fn settle(store: &Store, id: IntentId, state: IntentState, fee: Option<u128>) -> bool {
    let change = match change(state, "why") {
        Change::Included { outcome, block, .. } => Change::Included {
            outcome,
            fee,
            block,
        },
        other => other,
    };
    store.intents().apply(id, &change, NOW).await.unwrap()
}

pub(crate) async fn fees_count_highest_then_actual(world: World) {
    let store = world.open().await;
    let limit = 10 * STRK;
    let first = intend(&store, &costly(1, 6 * STRK, limit)).await;
    let until = |until_us| {
        Some(OverBudget {
            budget: Budget::Fees,
            until_us,
        })
    };
    let second = costly(2, 5 * STRK, limit);
    // its minute ends later, but no wait is longer than a day
    assert_eq!(
        intend_at(&store, &second, NOW + 1).await,
        until(NOW + 1 + DAY)
    );
    let budgets = second.budgets;
    assert_eq!(used(&store, budgets, NOW + 1).await, [0.0, 0.6]);
    let pays = async |id: IntentId, state: IntentState, fee| {
        assert!(settle(&store, id, state, fee).await);
    };
    pays(first, Succeeded, Some(2 * STRK)).await;
    assert_eq!(
        used(&store, budgets, NOW + 1).await,
        [0.0, 0.2],
        "its receipt states less"
    );
    assert_eq!(intend_at(&store, &second, NOW + 1).await, None);
    let third = costly(3, 3 * STRK, limit);
    assert_eq!(
        intend_at(&store, &third, NEXT).await,
        None,
        "exactly all of it"
    );
    let fourth = costly(4, 1, limit);
    let last = NEXT + DAY - 1;
    assert_eq!(
        intend_at(&store, &fourth, last).await,
        until(NEXT + DAY),
        "one fri more"
    );
    assert_eq!(
        intend_at(&store, &fourth, NEXT + DAY).await,
        None,
        "the first two are a day old"
    );
    assert_eq!(
        used(&store, budgets, NEXT + DAY).await,
        [0.0, 3_000_000_001.0 / 1e10]
    );
    let too_much = costly(5, 11 * STRK, limit);
    let now = NEXT + 3 * DAY;
    assert_eq!(
        intend_at(&store, &too_much, now).await,
        until(now + DAY),
        "alone"
    );
}

pub(crate) async fn only_fees_that_may_be_paid_count(world: World) {
    let store = world.open().await;
    for (number, end, expected) in [
        (1, Sent, 1.0),
        (2, Reverted, 0.5),
        (3, Succeeded, 0.5),
        (4, Rejected, 0.0),
        (5, Lost, 0.0),
    ] {
        let new = NewIntent {
            epoch: end.name(),
            ..costly(number, 4 * GFRI, 4 * GFRI)
        };
        let id = intend(&store, &new).await;
        if end != Sent {
            let fee = Some(2 * GFRI - 1);
            assert!(settle(&store, id, end, fee).await);
        }
        let intents = store.intents();
        let [_, (_, part)] = intents
            .budgets_used(&new.budgets, end.name(), NOW)
            .await
            .unwrap();
        assert_eq!(part, expected, "{end:?}: rounded up to gfri");
    }
    let user = NewIntent {
        operation: "invoke",
        ..intent(7)
    };
    let id = intend(&store, &user).await;
    assert!(settle(&store, id, Succeeded, Some(STRK)).await);
    let limit = Budgets {
        drips: None,
        fees: Some(STRK),
    };
    assert_eq!(
        used(&store, limit, NOW).await,
        [0.0, 0.0],
        "a user pays for it"
    );
    let huge = costly(8, u128::MAX, 1_000_000 * STRK);
    assert!(
        intend_at(&store, &huge, NOW).await.is_some(),
        "more than 64 bits hold"
    );
}

pub(crate) async fn repeats_are_known_over_a_budget(world: World) {
    let store = world.open().await;
    let id = intend(&store, &drip(1, 1)).await;
    assert!(intend_at(&store, &drip(2, 1), NOW).await.is_some());
    for repeat in [
        drip(1, 1),
        NewIntent {
            digest: drip(1, 1).digest,
            ..drip(3, 1)
        },
    ] {
        let known = store.intents().intend(&repeat, NOW).await.unwrap();
        assert!(
            matches!(&known, Intended::Known(intent) if intent.id == id),
            "{known:?}"
        );
    }
    let both = Budgets {
        drips: Some(1),
        fees: Some(GFRI),
    };
    let later = NewIntent {
        max_fee: 2 * GFRI,
        budgets: both,
        ..intent(4)
    };
    let over = intend_at(&store, &later, NOW + 7).await;
    let until_us = NOW + 7 + DAY;
    assert_eq!(
        over,
        Some(OverBudget {
            budget: Budget::Fees,
            until_us
        }),
        "the later of both"
    );
}

pub(crate) async fn parallel_intents_stay_in_budget(world: World) {
    let one = Arc::new(world.open().await);
    let two = match world.is_sqlite() {
        true => Arc::clone(&one),
        false => Arc::new(world.open().await),
    };
    let limits = Budgets {
        drips: Some(7),
        fees: Some(5 * STRK),
    };
    let mut tasks = JoinSet::new();
    for number in 0..24 {
        let store = Arc::clone(if number % 2 == 0 { &one } else { &two });
        // each of several accounts
        let (signer, max_fee) = (felt(number % 3), STRK);
        tasks.spawn(async move {
            let new = NewIntent {
                signer,
                max_fee,
                budgets: limits,
                ..intent(number)
            };
            intend_at(&store, &new, NOW).await
        });
    }
    let over = tasks.join_all().await;
    assert_eq!(
        over.iter().filter(|over| over.is_none()).count(),
        5,
        "as many as both permit"
    );
    assert_eq!(used(&one, limits, NOW).await, [5.0 / 7.0, 1.0]);
}

pub(crate) async fn older_drips_count_and_older_fees_do_not(world: World) {
    let store = world.open().await;
    let id = intend(
        &store,
        &NewIntent {
            max_fee: STRK,
            ..intent(1)
        },
    )
    .await;
    let limits = Budgets {
        drips: Some(1),
        fees: Some(STRK),
    };
    assert_eq!(used(&store, limits, NOW).await, [1.0, 1.0]);
    store.close().await;
    // the tables before migration 9
    world.undo_displaced().await;
    let triggers = match world.is_sqlite() {
        true => {
            "DROP TRIGGER intent_may_cost; DROP TRIGGER intent_costs; \
             DROP TRIGGER intent_is_dated_anew"
        }
        false => "DROP FUNCTION sum_fee CASCADE; DROP FUNCTION move_fee CASCADE",
    };
    world.raw(triggers).await.unwrap();
    world
        .raw(
            "DROP TABLE fee_sum; DROP INDEX intent_drips; \
             ALTER TABLE intent DROP COLUMN fee_gfri; \
             DELETE FROM _sqlx_migrations WHERE version = 9",
        )
        .await
        .unwrap();
    let store = world.open().await;
    assert_eq!(used(&store, limits, NOW).await, [1.0, 0.0]);
    assert!(settle(&store, id, Succeeded, Some(STRK)).await);
    assert_eq!(
        used(&store, limits, NOW).await,
        [1.0, 0.0],
        "not by its receipt, either"
    );
}
