//! Cooldowns are decided where an intent is stored; and of rows that a wrong clock dated in the
//! future, those further ahead than the window of a limit do not count, and no wait is longer.

use crate::world::{EPOCH, NOW, World, advance, felt, intend, intent};
use portcullis::store::{
    Binding, Budget, Budgets, Intended, IntentState, NewIntent, Opening, OverBudget, Store,
};
use portcullis_filters::webhook::AgeStatus::Pending;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;
const DAY: i64 = 24 * HOUR;
const YEARS: i64 = 12 * 365 * DAY;
const STRK: u128 = 1_000_000_000_000_000_000;

/// A drip of this number to a recipient, once a day.
fn drip(number: u64, recipient: u64) -> NewIntent<'static> {
    let cooldown = Some(Duration::from_secs(24 * 3_600));
    NewIntent {
        subject: Some(felt(recipient)),
        cooldown,
        ..intent(number)
    }
}

/// Until when an intent is refused; `None` if it is stored.
async fn refused_until(store: &Store, new: &NewIntent<'_>, now_us: i64) -> Option<i64> {
    match store.intents().intend(new, now_us).await.unwrap() {
        Intended::New(_) => None,
        Intended::OverBudget(OverBudget { until_us, .. }) | Intended::TooSoon { until_us, .. } => {
            Some(until_us)
        }
        other => panic!("{new:?}: {other:?}"),
    }
}

pub(crate) async fn a_recipient_has_one_drip_in_its_cooldown(world: World) {
    let store = world.open().await;
    let first = intend(&store, &drip(1, 0xa)).await;
    let Intended::TooSoon { last, until_us } = store
        .intents()
        .intend(&drip(2, 0xa), NOW + HOUR)
        .await
        .unwrap()
    else {
        panic!("it has had one");
    };
    assert_eq!((last.id, until_us), (first, NOW + DAY));
    let stored = store
        .intents()
        .by_hash(EPOCH, drip(2, 0xa).transaction_hash)
        .await
        .unwrap();
    assert_eq!(stored, None);
    assert_eq!(
        refused_until(&store, &drip(2, 0xa), NOW + DAY - 1).await,
        Some(NOW + DAY)
    );
    assert_eq!(
        refused_until(&store, &drip(3, 0xb), NOW).await,
        None,
        "another recipient"
    );
    let known = store.intents().intend(&drip(1, 0xa), NOW).await.unwrap();
    assert!(
        matches!(&known, Intended::Known(known) if known.id == first),
        "{known:?}"
    );
    let without = NewIntent {
        cooldown: None,
        ..drip(4, 0xa)
    };
    assert_eq!(
        refused_until(&store, &without, NOW).await,
        None,
        "without a cooldown"
    );
    assert_eq!(
        refused_until(&store, &drip(5, 0xa), NOW + DAY).await,
        None,
        "a day later"
    );
    let other = NewIntent {
        operation: "register",
        ..drip(6, 0xa)
    };
    assert_eq!(
        refused_until(&store, &other, NOW + DAY).await,
        None,
        "another operation"
    );
}

pub(crate) async fn a_refused_drip_binds_nothing(world: World) {
    let store = world.open().await;
    intend(&store, &drip(1, 0xa)).await;
    let bound = NewIntent {
        identity: Some(felt(0x1d)),
        ..drip(2, 0xa)
    };
    assert!(refused_until(&store, &bound, NOW).await.is_some());
    let other = store
        .faucet()
        .check(EPOCH, felt(0x1d), felt(0xb))
        .await
        .unwrap();
    assert_eq!(other, Binding::Bound, "nothing was stored");
}

pub(crate) async fn what_paid_nothing_starts_no_cooldown(world: World) {
    let store = world.open().await;
    let mut number = 0;
    for (end, is_refused) in [
        (IntentState::Accepted, true),
        (IntentState::Succeeded, true),
        (IntentState::Reverted, false),
        (IntentState::Rejected, false),
        (IntentState::Lost, false),
    ] {
        number += 2;
        let id = intend(&store, &drip(number, number)).await;
        assert!(advance(&store, id, end).await);
        let until = refused_until(&store, &drip(number + 1, number), NOW).await;
        assert_eq!(until.is_some(), is_refused, "{end:?}");
    }
}

pub(crate) async fn one_of_parallel_drips_is_paid(world: World) {
    let one = Arc::new(world.open().await);
    let two = match world.is_sqlite() {
        true => Arc::clone(&one),
        false => Arc::new(world.open().await),
    };
    let mut tasks = JoinSet::new();
    for number in 0..16 {
        let store = Arc::clone(if number % 2 == 0 { &one } else { &two });
        tasks.spawn(async move { refused_until(&store, &drip(number, 0xa), NOW).await });
    }
    let refused = tasks.join_all().await;
    assert_eq!(
        refused.iter().filter(|until| until.is_none()).count(),
        1,
        "{refused:?}"
    );
}

pub(crate) async fn a_cooldown_of_the_future_is_none(world: World) {
    let store = world.open().await;
    for (recipient, ahead, until) in [
        (0xa, HOUR, Some(NOW + DAY)),
        (0xb, DAY, Some(NOW + DAY)),
        (0xc, DAY + 1, None),
        (0xd, YEARS, None),
    ] {
        let at = NOW + ahead;
        assert_eq!(
            refused_until(&store, &drip(2 * recipient, recipient), at).await,
            None
        );
        let again = drip(2 * recipient + 1, recipient);
        assert_eq!(
            refused_until(&store, &again, NOW).await,
            until,
            "{ahead} us ahead"
        );
    }
    // the one of the future hides no other
    assert_eq!(
        refused_until(&store, &drip(100, 0xd), NOW + HOUR).await,
        Some(NOW + DAY)
    );
}

pub(crate) async fn budgets_forget_the_future(world: World) {
    let store = world.open().await;
    let budgets = Budgets {
        drips: Some(3),
        fees: Some(3 * STRK),
    };
    let mut numbers = 0..;
    let mut next = || NewIntent {
        max_fee: STRK,
        budgets,
        ..intent(numbers.next().unwrap())
    };
    let used = async |now_us| {
        let used = store
            .intents()
            .budgets_used(&budgets, EPOCH, now_us)
            .await
            .unwrap();
        assert_eq!(used.map(|(budget, _)| budget), Budget::ALL);
        used.map(|(_, part)| part)
    };
    for _ in 0..3 {
        assert_eq!(refused_until(&store, &next(), NOW + YEARS).await, None);
    }
    assert_eq!(used(NOW).await, [0.0, 0.0], "12 years ahead");
    for _ in 0..3 {
        assert_eq!(
            refused_until(&store, &next(), NOW + HOUR).await,
            None,
            "of all of it"
        );
    }
    assert_eq!(
        used(NOW).await,
        [1.0, 1.0],
        "an hour ahead: as if it were of now"
    );
    assert_eq!(
        refused_until(&store, &next(), NOW).await,
        Some(NOW + DAY),
        "within a day"
    );
    let later = NOW + HOUR + DAY + 60 * SECOND;
    assert_eq!(
        refused_until(&store, &next(), later).await,
        None,
        "and no longer"
    );
}

pub(crate) async fn sessions_of_the_future_lock_nobody_out(world: World) {
    let store = world.open().await;
    let mut numbers = 0..;
    let mut open = async |user: &str, now_us| {
        let name = format!("{:048x}", numbers.next().unwrap());
        store
            .ages()
            .open_session(user, &name, now_us, now_us + DAY)
            .await
            .unwrap()
    };
    let expected = |wait: Option<i64>| {
        wait.map_or(Opening::Opened, |wait| Opening::TooMany {
            retry_at_us: NOW + wait,
        })
    };
    for (user, ahead, wait) in [
        ("a second", SECOND, Some(60 * SECOND)),
        ("a minute", 60 * SECOND, Some(60 * SECOND)),
        ("an hour", HOUR, None),
        ("years", YEARS, None),
    ] {
        for _ in 0..5 {
            assert_eq!(open(user, NOW + ahead).await, Opening::Opened);
        }
        assert_eq!(
            open(user, NOW).await,
            expected(wait),
            "five of a minute, {user} ahead"
        );
    }
    for (user, ahead, wait) in [("hours", 2 * HOUR, Some(DAY)), ("more", YEARS, None)] {
        for minute in 0..10 {
            let at = NOW + ahead + minute * 60 * SECOND;
            assert_eq!(open(user, at).await, Opening::Opened);
        }
        let known = store
            .ages()
            .user(user, crate::age::clock(NOW))
            .await
            .unwrap()
            .map(|user| user.status);
        assert_eq!(known, wait.map(|_| Pending), "ten that wait, {user} ahead");
        assert_eq!(
            open(user, NOW).await,
            expected(wait),
            "ten that wait, {user} ahead"
        );
    }
}
