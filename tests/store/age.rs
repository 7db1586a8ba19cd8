//! Proofs of age: sessions have limits, an event counts once, and order of arrival does not count.

use crate::world::{NOW, World};
use portcullis_filters::hmac::{self, Secrets};
use portcullis_filters::policy::MediaType;
use portcullis_filters::secret::Secret;
use portcullis_filters::webhook::AgeStatus::{self, Expired, Pending, Rejected, Revoked, Verified};
use portcullis_filters::webhook::{
    AgeClock, AgeRecord, AgeReport, Signature, SignedEvent, Verdict, WebhookPolicy, decide,
};
use portcullis_store::EventOutcome::{self, Applied, Conflict, Duplicate, Invalid, Stale};
use portcullis_store::{Opening, Store};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::task::JoinSet;

const SECOND: i64 = 1_000_000;
const DAY: i64 = 86_400 * SECOND;

/// This time, and verifications without an end that last.
pub(crate) fn clock(now_us: i64) -> AgeClock {
    AgeClock {
        now_us,
        validity_us: 365 * DAY,
    }
}

/// The name of a session.
pub(crate) fn reference(number: u64) -> String {
    format!("{number:048x}")
}

/// An event of the subject, this many seconds after [`NOW`], as the verifier signs it.
pub(crate) fn event(id: &str, subject: u64, status: AgeStatus, second: u32) -> SignedEvent {
    let at = |second: u32| format!("2023-11-14T22:{:02}:{:02}Z", 20 + second / 60, second % 60);
    let proof = match status {
        Verified => format!(
            "\"age_band\":\"18_plus\",\"verified_at\":\"{}\",\"expires_at\":\"{}\"",
            at(second),
            at(second + 600)
        ),
        _ => "\"age_band\":null,\"verified_at\":null,\"expires_at\":null".to_owned(),
    };
    let body = format!(
        "{{\"event_id\":\"{id}\",\"subject_ref\":\"{}\",\"status\":\"{}\",{proof},\
         \"occurred_at\":\"{}\"}}",
        reference(subject),
        status.name(),
        at(second)
    );
    let secret = || Secret::new(vec![7; 32]);
    let digits: String = hmac::sign(&secret(), body.as_bytes())
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    let policy = WebhookPolicy {
        secrets: Secrets::new(vec![secret()]).unwrap(),
        age_bands: vec!["18_plus".to_owned()],
    };
    let signature = Signature::of([digits.as_bytes()]);
    policy
        .inspect(signature, MediaType::Json, body.as_bytes(), NOW + DAY)
        .unwrap()
}

async fn open(store: &Store, user: &str, subject: u64) {
    let opening = store
        .ages()
        .open_session(user, &reference(subject), NOW, NOW + DAY)
        .await
        .unwrap();
    assert_eq!(opening, Opening::Opened, "{user} {subject}");
}

async fn take(store: &Store, event: &SignedEvent) -> EventOutcome {
    store.ages().record_event(event, clock(NOW)).await.unwrap()
}

/// How the user stands now.
async fn status(store: &Store, user: &str) -> Option<AgeStatus> {
    store
        .ages()
        .user(user, clock(NOW))
        .await
        .unwrap()
        .map(|user| user.status)
}

pub(crate) async fn sessions_are_limited_per_minute_and_at_once(world: World) {
    let store = world.open().await;
    let mut numbers = 0..;
    let mut open = async |user: &str, now_us| {
        let name = reference(numbers.next().unwrap());
        store
            .ages()
            .open_session(user, &name, now_us, now_us + DAY)
            .await
            .unwrap()
    };
    for second in 0..5 {
        assert_eq!(
            open("u", NOW + second * SECOND).await,
            Opening::Opened,
            "{second}"
        );
    }
    let full = Opening::TooMany {
        retry_at_us: NOW + 60 * SECOND,
    };
    assert_eq!(open("u", NOW + 5 * SECOND).await, full);
    assert_eq!(open("u", NOW + 60 * SECOND - 1).await, full);
    assert_eq!(
        open("v", NOW + 5 * SECOND).await,
        Opening::Opened,
        "each user has limits of their own"
    );
    for minute in 1..6 {
        assert_eq!(
            open("u", NOW + minute * 60 * SECOND).await,
            Opening::Opened,
            "{minute}"
        );
    }
    let full = Opening::TooMany {
        retry_at_us: NOW + DAY,
    };
    assert_eq!(open("u", NOW + 600 * SECOND).await, full);
    assert_eq!(open("u", NOW + DAY).await, Opening::Opened, "one has ended");
    assert!(matches!(
        open("u", NOW + DAY).await,
        Opening::TooMany { .. }
    ));
    assert_eq!(
        take(&store, &event("e", 1, Verified, 0)).await,
        Applied(Verified)
    );
    assert_eq!(
        open("u", NOW + DAY).await,
        Opening::Opened,
        "one is answered"
    );
}

pub(crate) async fn five_of_parallel_sessions_are_opened(world: World) {
    let store = Arc::new(world.open().await);
    let other = if world.is_sqlite() {
        Arc::clone(&store)
    } else {
        Arc::new(world.open().await)
    };
    let mut tasks = JoinSet::new();
    for number in 0..20 {
        let store = Arc::clone(if number % 2 == 0 { &store } else { &other });
        tasks.spawn(async move {
            store
                .ages()
                .open_session("u", &reference(number), NOW, NOW + DAY)
                .await
                .unwrap()
        });
    }
    let openings = tasks.join_all().await;
    let opened = openings
        .iter()
        .filter(|opening| **opening == Opening::Opened)
        .count();
    assert_eq!(opened, 5);
}

pub(crate) async fn the_newest_event_sets_the_status(world: World) {
    let store = world.open().await;
    assert_eq!(store.ages().user("u", clock(NOW)).await.unwrap(), None);
    open(&store, "u", 1).await;
    assert_eq!(status(&store, "u").await, Some(Pending));
    assert_eq!(
        store.ages().user("u", clock(NOW + DAY)).await.unwrap(),
        None,
        "nothing was stored"
    );
    assert_eq!(
        take(&store, &event("e1", 1, Verified, 10)).await,
        Applied(Verified)
    );
    let user = store.ages().user("u", clock(NOW)).await.unwrap().unwrap();
    assert_eq!(
        (user.status, user.age_band.as_deref()),
        (Verified, Some("18_plus"))
    );
    let (verified, expires) = (user.verified_us.unwrap(), user.expires_us.unwrap());
    assert_eq!(expires - verified, 600 * SECOND);
    for (now_us, expected) in [(expires - 1, Verified), (expires, Expired)] {
        let user = store
            .ages()
            .user("u", clock(now_us))
            .await
            .unwrap()
            .unwrap();
        assert_eq!(user.status, expected, "at its end it reads as expired");
    }
    open(&store, "u", 2).await;
    assert_eq!(
        status(&store, "u").await,
        Some(Verified),
        "a new session takes nothing away"
    );
    assert_eq!(
        take(&store, &event("e2", 2, Revoked, 5)).await,
        Applied(Revoked)
    );
    assert_eq!(
        status(&store, "u").await,
        Some(Verified),
        "another session ends nothing"
    );
    assert_eq!(
        take(&store, &event("e3", 1, Revoked, 10)).await,
        Applied(Revoked)
    );
    let user = store.ages().user("u", clock(NOW)).await.unwrap().unwrap();
    assert_eq!(
        (user.status, user.age_band, user.verified_us),
        (Revoked, None, None)
    );
}

pub(crate) async fn a_repeated_event_finds_its_first_outcome(world: World) {
    let mut store = world.open().await;
    open(&store, "u", 1).await;
    open(&store, "v", 2).await;
    let applied = event("applied", 1, Verified, 10);
    let stale = event("stale", 1, Rejected, 9);
    let invalid = event("invalid", 1, Pending, 11);
    assert_eq!(take(&store, &applied).await, Applied(Verified));
    assert_eq!(take(&store, &stale).await, Stale);
    assert_eq!(take(&store, &invalid).await, Invalid);
    assert_eq!(
        take(&store, &event("later", 1, Revoked, 12)).await,
        Applied(Revoked)
    );
    for restarts in 0..2 {
        for (event, outcome) in [
            (&applied, Verdict::Applied),
            (&stale, Verdict::Stale),
            (&invalid, Verdict::Invalid),
        ] {
            let expected = Duplicate {
                outcome,
                state: Verified,
            };
            assert_eq!(
                take(&store, event).await,
                expected,
                "after {restarts} restarts"
            );
        }
        for other in [
            event("applied", 1, Verified, 13),
            event("applied", 1, Rejected, 10),
            event("applied", 2, Verified, 10),
            event("applied", 9, Verified, 10),
        ] {
            assert_eq!(take(&store, &other).await, Conflict, "{other:?}");
        }
        assert_eq!(status(&store, "u").await, Some(Revoked));
        assert_eq!(status(&store, "v").await, Some(Pending));
        store.close().await;
        store = world.open().await;
    }
}

pub(crate) async fn events_of_unknown_subjects_are_not_stored(world: World) {
    let store = world.open().await;
    let event = event("e", 1, Verified, 10);
    for _ in 0..2 {
        assert_eq!(take(&store, &event).await, EventOutcome::UnknownSubject);
    }
    open(&store, "u", 1).await;
    assert_eq!(
        take(&store, &event).await,
        Applied(Verified),
        "it came a moment too early"
    );
}

/// Each at once with all others, over two stores where there can be two.
async fn take_at_once(
    world: &World,
    store: Store,
    events: Vec<SignedEvent>,
) -> (Store, Vec<EventOutcome>) {
    let store = Arc::new(store);
    let other = if world.is_sqlite() {
        Arc::clone(&store)
    } else {
        Arc::new(world.open().await)
    };
    let mut tasks = JoinSet::new();
    for (at, event) in events.into_iter().enumerate() {
        let store = Arc::clone(if at % 2 == 0 { &store } else { &other });
        tasks.spawn(async move { take(&store, &event).await });
    }
    let outcomes = tasks.join_all().await;
    drop(other);
    (Arc::into_inner(store).unwrap(), outcomes)
}

pub(crate) async fn one_of_parallel_equal_events_is_applied(world: World) {
    let mut store = world.open().await;
    for round in 0..3 {
        open(&store, "u", round).await;
        let events = (0..50)
            .map(|_| event(&format!("e{round}"), round, Verified, 10))
            .collect();
        let (again, outcomes) = take_at_once(&world, store, events).await;
        store = again;
        let applied = outcomes
            .iter()
            .filter(|one| **one == Applied(Verified))
            .count();
        let repeated = Duplicate {
            outcome: Verdict::Applied,
            state: Verified,
        };
        let repeated = outcomes.iter().filter(|one| **one == repeated).count();
        assert_eq!((applied, repeated), (1, 49), "{outcomes:?}");
    }
}

pub(crate) async fn one_of_parallel_events_with_one_id_counts(world: World) {
    let store = world.open().await;
    open(&store, "u", 0).await;
    open(&store, "v", 1).await;
    let events = (0..40)
        .map(|number| event("e", number % 4 / 2, Verified, 10))
        .collect();
    let (store, outcomes) = take_at_once(&world, store, events).await;
    let count = |expected| outcomes.iter().filter(|one| **one == expected).count();
    let repeated = Duplicate {
        outcome: Verdict::Applied,
        state: Verified,
    };
    assert_eq!(
        (count(Applied(Verified)), count(repeated), count(Conflict)),
        (1, 19, 20)
    );
    let one = status(&store, "u").await == Some(Verified);
    assert_eq!(
        status(&store, "v").await == Some(Verified),
        !one,
        "and the other is as it was"
    );
}

pub(crate) async fn a_verification_outlives_later_attempts(world: World) {
    let mut store = world.open().await;
    for round in 0..8 {
        let user = format!("u{round}");
        for number in 0..5 {
            open(&store, &user, round * 5 + number).await;
        }
        let statuses = [Verified, Rejected, Verified, Rejected, Expired];
        let events = (0..5).map(|number| {
            let second = (number * 3 + round) % 5;
            let id = format!("e{round}-{number}");
            event(
                &id,
                round * 5 + number,
                statuses[number as usize],
                second as u32 / 2,
            )
        });
        let events: Vec<SignedEvent> = events.collect();
        let (again, outcomes) = take_at_once(&world, store, events).await;
        store = again;
        assert!(
            outcomes.iter().all(|one| matches!(one, Applied(_))),
            "{outcomes:?}"
        );
        assert_eq!(status(&store, &user).await, Some(Verified), "round {round}");
    }
}

/// A model of the store, in memory.
#[derive(Default)]
struct Model {
    subjects: HashMap<u64, AgeReport>,
}

impl Model {
    fn take(&mut self, subject: u64, event: &SignedEvent) -> EventOutcome {
        let (status, occurred_us) = (event.status(), event.occurred_us());
        let known = self.subjects.get(&subject);
        let standing = AgeRecord {
            status: known.map_or(Pending, |report| report.status),
            last_occurred_us: known.map(|report| report.occurred_us),
        };
        match decide(standing, status, occurred_us) {
            Verdict::Stale => return Stale,
            Verdict::Invalid => return Invalid,
            Verdict::Applied => {}
        }
        self.subjects.insert(subject, AgeReport::of(event));
        Applied(status)
    }

    /// Nothing of a story ends.
    fn status(&self) -> AgeStatus {
        let reports = || self.subjects.values();
        if reports().any(|report| report.status == Verified) {
            return Verified;
        }
        let newest = reports().map(|report| (report.occurred_us, report.status));
        newest.max().map_or(Pending, |(_, status)| status)
    }
}

pub(crate) async fn every_order_of_events_follows_the_rules(world: World) {
    let store = world.open().await;
    // of two sessions of one user: subject, status, second
    let stories = [
        [
            (0, Verified, 10),
            (0, Rejected, 20),
            (1, Pending, 15),
            (1, Verified, 25),
        ],
        [
            (0, Verified, 10),
            (0, Revoked, 10),
            (1, Expired, 10),
            (1, Verified, 10),
        ],
        [
            (0, Pending, 5),
            (0, Rejected, 10),
            (0, Expired, 15),
            (1, Revoked, 12),
        ],
    ];
    for (story, events) in stories.iter().enumerate() {
        for (run, order) in orders_of_four().into_iter().enumerate() {
            let run = story * 24 + run;
            let (user, first) = (format!("u{run}"), 2 * run as u64);
            open(&store, &user, first).await;
            open(&store, &user, first + 1).await;
            let mut model = Model::default();
            for at in order {
                let (subject, then, second) = events[at];
                let event = event(&format!("e{run}-{at}"), first + subject, then, second);
                let expected = model.take(subject, &event);
                assert_eq!(
                    take(&store, &event).await,
                    expected,
                    "{events:?} as {order:?}: {at}"
                );
                let expected = model.status();
                let found = status(&store, &user).await;
                assert_eq!(found, Some(expected), "{events:?} as {order:?}: {at}");
            }
        }
    }
}

fn orders_of_four() -> Vec<[usize; 4]> {
    let mut orders = Vec::new();
    for a in 0..4 {
        for b in (0..4).filter(|b| *b != a) {
            for c in (0..4).filter(|c| *c != a && *c != b) {
                orders.push([a, b, c, 6 - a - b - c]);
            }
        }
    }
    orders
}
