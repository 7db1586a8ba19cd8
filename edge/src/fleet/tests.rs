//! Tests the scripts with a real server, and the leases of several instances against their quota.

use super::connect::Credentials;
use super::limit::{ClientWindows, Decision, SharedLimit};
use super::messages::{Answer, Counted, Purpose};
use super::{Fleet, Heartbeat};
use ahash::RandomState;
use portcullis_base::config::{FleetConfig, FleetUrl, WhenDown};
use portcullis_base::io::monotonic;
use portcullis_base::secrets::Secret;
use portcullis_base::telemetry::{Metrics, Surface};
use portcullis_filters::chain::schedule::{Published, lease};
use portcullis_filters::client::ClientKey;
use portcullis_filters::limit::lease::{Granted, Lease, Message, Step, Terms};
use portcullis_filters::limit::{Quota, RateLimiter};
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::time::Instant;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 9);

fn client() -> ClientKey {
    ClientKey::of(ADDRESS.into())
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The URL of the server.
pub(super) fn url() -> String {
    std::env::var("PORTCULLIS_TEST_REDIS")
        .expect("PORTCULLIS_TEST_REDIS is set: run this under tests/lib/redis.sh")
}

/// The name of a fleet, which no other test uses.
pub(super) fn name() -> String {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    format!(
        "unit-{}-{}",
        std::process::id(),
        NEXT.fetch_add(1, Ordering::Relaxed)
    )
}

/// An instance of this fleet, connected to the server.
async fn instance(name: &str, terms: Terms) -> Arc<Fleet> {
    let config = FleetConfig {
        url: FleetUrl::parse(&url()).expect("a URL"),
        password_file: None,
        ca_file: None,
        secret_file: "unused".into(),
        name: name.to_owned(),
        when_down: WhenDown::Share,
        floor_per_minute: 1,
        lease: terms.life,
    };
    let credentials = Credentials::of(Secret::new(b"fleet-0123456789abcdef0123456789".to_vec()));
    let mut fleet = Fleet::new(&config, credentials, Arc::new(Metrics::default())).unwrap();
    let own = Arc::get_mut(&mut fleet).unwrap();
    // a busy machine is no failure of the store
    (own.terms, own.store.patience) = (terms, Duration::from_secs(5));
    assert!(
        fleet.store.is_down(),
        "nothing is sent before the first heartbeat"
    );
    // a busy machine may take longer than a heartbeat waits
    while fleet.store.needs_connections() {
        Heartbeat(Arc::clone(&fleet)).send().await;
    }
    fleet
}

/// As a server whose memory is full for some keys does, or one that forbids them.
#[tokio::test]
#[ignore = "needs Redis: run tests/run"]
async fn a_server_that_answers_with_errors_is_down() {
    let fleet = instance(&name(), terms()).await;
    let store = &fleet.store;
    let key = store.key(Surface::Gateway, Counted::Requests, client());
    let set = redis::cmd("SET").arg(&key).arg("no record").to_owned();
    store.call::<()>(&key, &set).await.unwrap();
    let mut lease = Lease::default();
    for failed in 0..3 {
        assert!(!store.needs_connections(), "after {failed} errors");
        let message = lease.message(millis(0), &fleet.terms, || 0);
        let sent = store.send(&key, 0, &message, &fleet.terms, 20, Purpose::Lease);
        sent.await.expect_err("it is no record");
    }
    assert!(store.needs_connections(), "it is down");
    let cause = store.failure().expect("it is down for a cause");
    assert!(cause.contains("WRONGTYPE"), "{cause}");
}

#[tokio::test]
#[ignore = "needs Redis: run tests/run"]
async fn instances_share_values_and_one_holds_at_a_time() {
    let name = name();
    let [one, other] = [
        instance(&name, terms()).await,
        instance(&name, terms()).await,
    ];
    assert_eq!(other.value("a").await.unwrap(), None);
    one.set_value("a", b"value", None).await.unwrap();
    assert_eq!(other.value("a").await.unwrap().unwrap(), b"value");
    one.set_value("a", b"short", Some(millis(1))).await.unwrap();
    while other.value("a").await.unwrap().is_some() {}
    one.set_value("a", b"value", None).await.unwrap();
    other.remove_value("a").await.unwrap();
    assert_eq!(one.value("a").await.unwrap(), None);

    let long = Duration::from_secs(60);
    assert!(one.lock("a", long).await.unwrap());
    assert!(one.lock("a", long).await.unwrap(), "longer");
    assert!(!other.lock("a", long).await.unwrap());
    other.unlock("a").await.unwrap();
    assert!(
        !other.lock("a", long).await.unwrap(),
        "only its holder releases it"
    );
    one.unlock("a").await.unwrap();
    assert!(other.lock("a", millis(1)).await.unwrap());
    while !one.lock("a", long).await.unwrap() {}
}

/// A minute is 600 ms here.
fn terms() -> Terms {
    Terms {
        window: millis(600),
        cell: millis(10),
        life: millis(300),
        want: 16,
    }
}

/// Windows of this many clients, with a quota that no test reaches.
fn windows(capacity: u32) -> Arc<ClientWindows> {
    let quota = Quota::per_minute(Quota::MAX).unwrap();
    let capacity = NonZeroU32::new(capacity).unwrap();
    Arc::new(RateLimiter::with_values(
        quota,
        capacity,
        RandomState::new(),
    ))
}

/// Sends a message of one lease about one client, with a quota of 20.
struct Sender {
    fleet: Arc<Fleet>,
    lease: Lease,
    started: Instant,
}

impl Sender {
    async fn new(name: &str) -> Self {
        let terms = Terms::of_a_minute(Duration::from_secs(30));
        Self {
            fleet: instance(name, terms).await,
            lease: Lease::default(),
            started: Instant::now(),
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    fn message(&mut self) -> Message {
        self.lease.message(self.now(), &self.fleet.terms, || 0)
    }

    async fn send(&self, message: &Message) -> Answer {
        let store = &self.fleet.store;
        let key = store.key(Surface::Gateway, Counted::Requests, client());
        store
            .send(&key, 0, message, &self.fleet.terms, 20, Purpose::Lease)
            .await
            .unwrap()
    }

    fn apply(&mut self, message: &Message, answer: Answer) -> Granted {
        let Answer::Granted(granted) = answer else {
            panic!("granted, not {answer:?}")
        };
        self.lease
            .answer(message, granted, self.now(), self.fleet.terms.life);
        self.lease.release();
        granted
    }

    async fn exchange(&mut self) -> Granted {
        let message = self.message();
        let answer = self.send(&message).await;
        self.apply(&message, answer)
    }

    fn take(&mut self) -> bool {
        let step = self.lease.take(self.now(), &self.fleet.terms);
        matches!(step, Step::Admitted { .. })
    }
}

#[tokio::test]
#[ignore = "needs Redis: run tests/run"]
async fn a_repeated_message_counts_once() {
    let name = name();
    let (mut one, mut other) = (Sender::new(&name).await, Sender::new(&name).await);
    assert_eq!(one.exchange().await.granted, 10, "half of what is left");
    (0..3).for_each(|_| assert!(one.take()));
    let lost = one.message();
    one.send(&lost).await;
    one.lease.release();
    assert!(one.take(), "it may use what it held");
    let granted = one.exchange().await;
    assert_eq!(
        granted.granted + granted.left,
        16,
        "3 of the lost message, 1 of this one: {granted:?}"
    );
    one.send(&lost).await;
    let granted = other.exchange().await;
    assert!(
        granted.granted + granted.left <= 8,
        "a message that was overtaken changes nothing"
    );
}

#[tokio::test]
#[ignore = "needs Redis: run tests/run"]
async fn an_unanswered_use_is_reported_again() {
    let name = name();
    let (mut one, mut other) = (Sender::new(&name).await, Sender::new(&name).await);
    one.exchange().await;
    (0..4).for_each(|_| assert!(one.take()));
    let never_sent = one.message();
    assert_eq!(never_sent.number, 2);
    one.lease.release();
    let granted = one.exchange().await;
    assert_eq!(
        granted.granted + granted.left,
        16,
        "the 4 are in the third message"
    );
    let granted = other.exchange().await;
    assert!(granted.left <= 8, "{granted:?}");
}

#[tokio::test]
#[ignore = "needs Redis: run tests/run"]
async fn a_store_that_forgot_is_told_a_whole_window() {
    let name = name();
    let mut one = Sender::new(&name).await;
    one.exchange().await;
    (0..5).for_each(|_| assert!(one.take()));
    one.exchange().await;
    let key = one
        .fleet
        .store
        .key(Surface::Gateway, Counted::Requests, client());
    one.fleet.store.forget(&key).await;
    let message = one.message();
    assert!(matches!(one.send(&message).await, Answer::Forgotten));
    one.lease.forgotten(one.now());
    assert!(!one.take(), "what was granted counts no more");
    let message = one.lease.message(one.now(), &one.fleet.terms, || 5);
    let answer = one.send(&message).await;
    let granted = one.apply(&message, answer);
    assert_eq!(
        granted.granted + granted.left,
        15,
        "the 5 of the last window count"
    );
}

#[tokio::test]
#[ignore = "needs Redis: run tests/run"]
async fn a_lease_used_while_it_is_renewed_is_not_used_twice() {
    let mut one = Sender::new(&name()).await;
    assert_eq!(one.exchange().await.granted, 10);
    (0..8).for_each(|_| assert!(one.take()));
    let message = one.message();
    assert_eq!(message.hold, 2);
    let answer = one.send(&message).await;
    assert!(one.take() && one.take(), "both are held meanwhile");
    let granted = one.apply(&message, answer);
    assert_eq!(
        granted.granted, 6,
        "half of the 12 that are left, with the 2 that are held"
    );
    let rest = (0..20).filter(|_| one.take()).count();
    assert_eq!(rest, 4, "2 of them are used");
}

#[tokio::test]
#[ignore = "needs Redis: run tests/run"]
async fn an_unused_lease_returns_with_the_next_message() {
    let name = name();
    let (mut one, mut other) = (Sender::new(&name).await, Sender::new(&name).await);
    assert_eq!(one.exchange().await.granted, 10);
    assert_eq!(
        other.exchange().await.granted,
        2,
        "a quarter of the 10 that are left: one more is live"
    );
    let expired = one.now() + Duration::from_secs(31);
    let message = one.lease.message(expired, &one.fleet.terms, || 0);
    assert_eq!(message.hold, 0, "its time is over");
    let answer = one.send(&message).await;
    assert_eq!(
        one.apply(&message, answer).granted,
        4,
        "of 18, with another live"
    );
}

#[tokio::test]
#[ignore = "needs Redis: run tests/run"]
async fn the_store_never_sees_an_address() {
    let name = name();
    let mut one = Sender::new(&name).await;
    one.exchange().await;
    let key = one
        .fleet
        .store
        .key(Surface::Gateway, Counted::Requests, client());
    assert!(!key.contains(&ADDRESS.to_string()), "{key}");
    let other = one
        .fleet
        .store
        .key(Surface::Relay, Counted::Requests, client());
    assert_ne!(
        key.split(':').nth(2),
        other.split(':').nth(2),
        "surfaces cannot be compared"
    );
}

#[tokio::test]
#[ignore = "needs Redis: run tests/run"]
async fn a_closed_connection_is_an_outage_that_reports_end() {
    let name = name();
    let one = instance(&name, terms()).await;
    let limit = one.limit(
        Surface::Gateway,
        Counted::Requests,
        windows(100),
        Instant::now(),
    );
    // a busy machine may take longer than a request waits
    while !matches!(limit.decide(client(), 20).await, Decision::Admitted(_)) {}
    one.store.break_connection();
    while !one.store.is_down() {
        // from the lease, then from the rest of the quota: a fleet of one has all of it
        limit.decide(client(), 20).await;
    }
    assert!(one.failure().is_some(), "the cause is known");
    let alone = (0..40)
        .filter(|_| limit.decide_now(client(), 20).is_some())
        .count();
    assert_eq!(alone, 40, "nobody waits for a store that is down");
    // a heartbeat ends it, unless it takes longer than it waits
    while one.store.is_down() {
        Heartbeat(Arc::clone(&one)).send().await;
    }
    let other = instance(&name, terms()).await;
    let other = other.limit(
        Surface::Gateway,
        Counted::Requests,
        windows(100),
        Instant::now(),
    );
    let granted = other.decide(client(), 20).await;
    assert!(
        !matches!(granted, Decision::Admitted(_)),
        "all was used, and reported: {granted:?}"
    );
}

#[test]
fn a_small_lease_is_renewed_when_it_is_used_up() {
    let (mut lease, terms) = (Lease::default(), terms());
    let mut renews = |granted| {
        let now = Duration::ZERO;
        let message = lease.message(now, &terms, || 0);
        let answer = Granted {
            granted,
            left: 100,
            retry: Duration::ZERO,
        };
        lease.answer(&message, answer, now, terms.life);
        let steps = (0..granted).map(|_| {
            let step = lease.take(now, &terms);
            lease.release();
            step == Step::Admitted { renews: true }
        });
        steps.filter(|renews| *renews).count()
    };
    assert_eq!(renews(16), 5, "with a quarter left");
    assert_eq!(
        renews(2),
        1,
        "with the last: it is small because many instances hold others"
    );
}

#[test]
fn leases_of_a_larger_quota_are_larger() {
    let terms = Terms::of_a_minute(Duration::from_secs(30));
    assert_eq!(terms.with_quota(10).want, 16, "the store grants fewer");
    assert_eq!(terms.with_quota(180).want, 16);
    assert_eq!(terms.with_quota(12_000).want, 1_000, "five seconds");
    let single = Terms { want: 1, ..terms };
    assert_eq!(
        single.with_quota(12_000).want,
        1,
        "each decided by the store"
    );
}

/// Interval of polls.
const INTERVAL: Duration = Duration::from_secs(1);

async fn follows(fleet: &Fleet) -> Published {
    fleet.follow(Some(INTERVAL), 0).await.unwrap()
}

async fn publishes(fleet: &Fleet, state: &str) -> Published {
    fleet
        .publish(state, monotonic::now(), INTERVAL, 0)
        .await
        .unwrap()
}

fn state(published: &Published) -> &str {
    published.state.as_ref().map_or("", |(state, _)| state)
}

#[tokio::test]
#[ignore = "needs Redis: run tests/run"]
async fn the_first_leads_until_it_resigns() {
    let name = name();
    let (one, other) = (
        instance(&name, terms()).await,
        instance(&name, terms()).await,
    );
    let member = one.follow(None, 0).await.unwrap();
    assert!(
        !member.leads && !one.leads(),
        "who is no candidate never leads"
    );
    let elected = follows(&one).await;
    assert!(elected.leads && elected.is_elected && one.leads());
    assert!(!follows(&other).await.leads && !other.leads(), "one leads");
    let published = publishes(&one, "first").await;
    assert!(published.leads && !published.is_elected, "its lead goes on");
    let seen = follows(&other).await;
    assert_eq!(state(&seen), "first");
    assert!(
        monotonic::now() - seen.state.unwrap().1 < INTERVAL,
        "and it is fresh"
    );
    one.resign().await;
    let heir = follows(&other).await;
    assert!(heir.leads && heir.is_elected, "at once");
    assert_eq!(state(&heir), "first", "it inherits what was published");
    assert!(
        !publishes(&one, "late").await.leads,
        "who resigned publishes no more"
    );
    assert_eq!(state(&follows(&one).await), "first");
}

/// The store lets it lead again at once, by a new fence: it may have missed another leader.
#[tokio::test]
#[ignore = "needs Redis: run tests/run"]
async fn a_lost_lead_is_a_new_one() {
    let one = instance(&name(), terms()).await;
    follows(&one).await;
    publishes(&one, "first").await;
    let again = follows(&one).await;
    assert!(again.leads && again.is_elected, "by another fence");
    assert_eq!(state(&again), "first");
}

#[tokio::test]
#[ignore = "needs Redis: run tests/run"]
async fn an_older_fence_publishes_nothing() {
    let name = name();
    let (sleeper, other) = (
        instance(&name, terms()).await,
        instance(&name, terms()).await,
    );
    follows(&sleeper).await;
    publishes(&sleeper, "first").await;
    // as if it did not know that its lease has ended
    let stale = *sleeper.store.leadership.lead.lock();
    sleeper.resign().await;
    follows(&other).await;
    publishes(&other, "second").await;
    *sleeper.store.leadership.lead.lock() = stale;
    assert!(sleeper.leads(), "it thinks so");
    let dropped = publishes(&sleeper, "from before").await;
    assert!(!dropped.leads && !sleeper.leads(), "the store knows better");
    assert_eq!(state(&dropped), "second");
    other.resign().await;
    *sleeper.store.leadership.lead.lock() = stale;
    let elected = publishes(&sleeper, "from before").await;
    assert!(elected.leads && elected.is_elected, "nobody else leads");
    assert_eq!(
        state(&elected),
        "second",
        "but what it published is dropped"
    );
}

#[tokio::test]
#[ignore = "needs Redis: run tests/run"]
async fn a_lead_ends_here_without_an_answer() {
    let one = instance(&name(), terms()).await;
    follows(&one).await;
    tokio::time::pause();
    tokio::time::advance(lease(INTERVAL) / 2).await;
    assert!(one.leads());
    tokio::time::advance(lease(INTERVAL) / 2).await;
    assert!(!one.leads(), "another instance may lead by now");
    assert_eq!(
        lease(INTERVAL * 5),
        INTERVAL * 15,
        "longer where polls are rare"
    );
}

#[tokio::test]
#[ignore = "needs Redis: run tests/run"]
async fn an_age_counts_from_the_poll() {
    let name = name();
    let (one, other) = (
        instance(&name, terms()).await,
        instance(&name, terms()).await,
    );
    follows(&one).await;
    let polled = monotonic::now() - INTERVAL;
    one.publish("old", polled, INTERVAL, 0).await.unwrap();
    let (_, since) = follows(&other).await.state.unwrap();
    let age = monotonic::now() - since;
    assert!(
        age >= INTERVAL && age < INTERVAL * 2,
        "as old as it was when it was sent: {age:?}"
    );
}

#[tokio::test]
#[ignore = "needs Redis: run tests/run"]
async fn followers_are_told_what_is_new() {
    let name = name();
    let (one, other) = (
        instance(&name, terms()).await,
        instance(&name, terms()).await,
    );
    follows(&one).await;
    publishes(&one, "first").await;
    other.pushed().await;
    publishes(&one, "first").await;
    let more = tokio::time::timeout(millis(100), other.pushed()).await;
    assert!(more.is_err(), "the same again is nothing new");
    publishes(&one, "second").await;
    other.pushed().await;
}

#[tokio::test]
#[ignore = "needs Redis: run tests/run"]
async fn the_newest_epoch_of_all_is_known_to_all() {
    let name = name();
    let (one, other) = (
        instance(&name, terms()).await,
        instance(&name, terms()).await,
    );
    assert_eq!(follows(&one).await.epoch, 0);
    other
        .follow(Some(INTERVAL), 1_763_880_000_123)
        .await
        .unwrap();
    assert_eq!(follows(&one).await.epoch, 1_763_880_000_123);
    other.follow(Some(INTERVAL), 7).await.unwrap();
    assert_eq!(
        follows(&one).await.epoch,
        1_763_880_000_123,
        "it only grows"
    );
}

/// Sends requests of one client to all instances; returns when each admission was requested and
/// decided.
async fn flood(
    limits: Vec<Arc<SharedLimit>>,
    quota: u32,
    lasts: Duration,
) -> Vec<(Instant, Instant)> {
    let end = Instant::now() + lasts;
    let mut tasks = Vec::new();
    for limit in limits {
        tasks.push(tokio::spawn(async move {
            let mut admitted = Vec::new();
            while Instant::now() < end {
                let requested = Instant::now();
                match limit.decide(client(), quota).await {
                    Decision::Admitted(_) => admitted.push((requested, Instant::now())),
                    _ => tokio::task::yield_now().await,
                }
            }
            admitted
        }));
    }
    let mut all = Vec::new();
    for task in tasks {
        all.extend(task.await.unwrap());
    }
    all.sort();
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "needs Redis: run tests/run"]
async fn no_window_holds_more_than_the_quota() {
    for (instances, quota) in [(1, 60), (3, 60), (5, 7), (3, 1)] {
        let name = name();
        let (mut fleets, mut limits) = (Vec::new(), Vec::new());
        for _ in 0..instances {
            let fleet = instance(&name, terms()).await;
            limits.push(fleet.limit(
                Surface::Gateway,
                Counted::Requests,
                windows(100),
                Instant::now(),
            ));
            fleets.push(fleet);
        }
        let admitted = flood(limits, quota, millis(2_000)).await;
        // on a busy machine an answer may take longer than a request waits
        let alone = fleets
            .iter()
            .flat_map(|fleet| fleet.metrics.fleet.fallback());
        let most_of_all = u64::from(quota) + alone.map(|(_, count)| count).sum::<u64>();
        for (first, (requested, _)) in admitted.iter().enumerate() {
            // only what was certainly admitted in this window
            let over = *requested + terms().window;
            let most = admitted[first..]
                .iter()
                .filter(|(_, known)| *known < over)
                .count();
            assert!(
                most as u64 <= most_of_all,
                "{instances}: {most} of {most_of_all}"
            );
        }
        assert!(
            admitted.len() >= quota as usize,
            "{instances}: {} admitted",
            admitted.len()
        );
    }
}
