//! Cooldowns are decided where an intent is stored; and rows that a wrong clock dated in the future
//! count from when they are first seen, so that no wait is longer than the window of a limit.

use crate::world::{EPOCH, NOW, World, advance, felt, intend, intent};
use portcullis_filters::webhook::AgeStatus::Pending;
use portcullis_store::{
    Binding, Budget, Budgets, Intended, IntentState, NewIntent, Opening, OverBudget, Store,
};
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

pub(crate) async fn a_cooldown_counts_from_when_it_is_seen(world: World) {
    let store = world.open().await;
    for (recipient, ahead) in [
        (0xa, 2 * SECOND),
        (0xb, HOUR),
        (0xc, 30 * HOUR),
        (0xd, YEARS),
    ] {
        let at = NOW + ahead;
        let [paid, again, later] = [0, 1, 2].map(|number| drip(3 * recipient + number, recipient));
        assert_eq!(refused_until(&store, &paid, at).await, None);
        for now in [NOW, NOW + HOUR, NOW + DAY - 1] {
            let until = refused_until(&store, &again, now).await;
            assert_eq!(until, Some(NOW + DAY), "{ahead} us ahead, at {now}");
        }
        let free = refused_until(&store, &later, NOW + DAY).await;
        assert_eq!(free, None, "{ahead} us ahead: a day after it was seen");
    }
}

pub(crate) async fn budgets_count_from_when_they_are_seen(world: World) {
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
    let used = async |store: &Store, now_us| {
        let intents = store.intents();
        let used = intents.budgets_used(&budgets, EPOCH, now_us).await.unwrap();
        assert_eq!(used.map(|(budget, _)| budget), Budget::ALL);
        used.map(|(_, part)| part)
    };
    let mut now = NOW;
    for ahead in [HOUR, 30 * HOUR, YEARS] {
        for _ in 0..3 {
            assert_eq!(refused_until(&store, &next(), now + ahead).await, None);
        }
        // by a decision, or by the regular task
        let until = match ahead {
            HOUR => store.date_anew(now).await.map(|()| None).unwrap(),
            _ => refused_until(&store, &next(), now).await,
        };
        // fees are summed by minute
        let in_a_day = now + DAY..=now + DAY + 60 * SECOND;
        assert!(until.is_none_or(|until| in_a_day.contains(&until)));
        assert_eq!(used(&store, now).await, [1.0, 1.0], "{ahead} us ahead");
        let later = now + DAY - SECOND;
        let until = refused_until(&store, &next(), later).await;
        assert!(in_a_day.contains(&until.expect("they stay where they are")));
        assert_eq!(used(&store, later).await, [1.0, 1.0]);
        now += DAY + 60 * SECOND;
        assert_eq!(used(&store, now).await, [0.0, 0.0], "and no longer");
    }
}

pub(crate) async fn a_lost_drip_that_is_dated_anew_counts_again(world: World) {
    let store = world.open().await;
    let budgets = Budgets {
        drips: None,
        fees: Some(3 * STRK),
    };
    let new = NewIntent {
        max_fee: STRK,
        ..intent(1)
    };
    let Intended::New(id) = store.intents().intend(&new, NOW + HOUR).await.unwrap() else {
        panic!("nothing forbids it");
    };
    assert!(advance(&store, id, IntentState::Lost).await);
    store.date_anew(NOW).await.unwrap();
    let used = async || {
        let used = store.intents().budgets_used(&budgets, EPOCH, NOW).await;
        let [_, (_, fees)] = used.unwrap();
        fees
    };
    assert_eq!(used().await, 0.0);
    assert!(advance(&store, id, IntentState::Succeeded).await);
    assert!(used().await > 0.3, "its minute exists");
}

pub(crate) async fn a_clock_of_1970_dates_nothing_anew(world: World) {
    let store = world.open().await;
    let id = intend(&store, &drip(1, 0xa)).await;
    store.date_anew(0).await.unwrap();
    assert_eq!(refused_until(&store, &drip(2, 0xb), 0).await, None);
    let known = store.intents().get(id).await.unwrap().unwrap();
    assert_eq!(known.created_us, NOW);
    let session = format!("{:048x}", 1);
    let opened = store
        .ages()
        .open_session("a", &session, NOW, NOW + DAY)
        .await;
    assert_eq!(opened.unwrap(), Opening::Opened);
    let session = format!("{:048x}", 2);
    let opened = store.ages().open_session("a", &session, 0, DAY).await;
    assert_eq!(opened.unwrap(), Opening::Opened);
    let status = store.ages().user("a", crate::age::clock(NOW + HOUR)).await;
    assert_eq!(status.unwrap().map(|user| user.status), Some(Pending));
}

pub(crate) async fn sessions_count_from_when_they_are_seen(world: World) {
    let store = world.open().await;
    let mut numbers = 0..;
    let mut open = async |user: &str, now_us| {
        let name = format!("{:048x}", numbers.next().unwrap());
        let ages = store.ages();
        let opening = ages.open_session(user, &name, now_us, now_us + DAY).await;
        opening.unwrap()
    };
    let refused = |wait| Opening::TooMany {
        retry_at_us: NOW + wait,
    };
    let minute = 60 * SECOND;
    for (user, ahead) in [
        ("two seconds", 2 * SECOND),
        ("two minutes", 2 * minute),
        ("an hour", HOUR),
        ("years", YEARS),
    ] {
        for _ in 0..5 {
            assert_eq!(open(user, NOW + ahead).await, Opening::Opened);
        }
        for now in [NOW, NOW + minute - 1] {
            assert_eq!(open(user, now).await, refused(minute), "{user} ahead");
        }
        let later = NOW + minute + SECOND;
        assert_eq!(open(user, later).await, Opening::Opened, "{user} ahead");
    }
    for (user, ahead) in [("hours", 2 * HOUR), ("more", YEARS)] {
        for passed in 0..10 {
            let at = NOW + ahead + passed * minute;
            assert_eq!(open(user, at).await, Opening::Opened);
        }
        for now in [NOW, NOW + HOUR, NOW + DAY - 1] {
            assert_eq!(open(user, now).await, refused(DAY), "{user} ahead");
        }
        let known = store.ages().user(user, crate::age::clock(NOW)).await;
        assert_eq!(known.unwrap().map(|user| user.status), Some(Pending));
        assert_eq!(open(user, NOW + DAY).await, Opening::Opened, "{user} ahead");
    }
}
