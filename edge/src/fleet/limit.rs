//! The limit of one surface's clients, across all instances.
//!
//! In: a client, its quota, and the recent admissions of this instance. Out: a [`Decision`]. A
//! request with a lease is decided at once; otherwise it waits for one message, which all requests
//! of its client share. A message runs in a task of its own, which does not end with the client's
//! request.

use super::Fleet;
use super::messages::{Answer, Counted, Purpose, Unanswered};
use super::servers::Server;
use super::slots::Slot;
use ahash::RandomState;
use futures_util::StreamExt as _;
use futures_util::stream;
use parking_lot::Mutex;
use portcullis_base::config::WhenDown;
use portcullis_base::io::clock::millis;
use portcullis_base::telemetry::Surface;
use portcullis_filters::client::ClientKey;
use portcullis_filters::limit::lease::{Alone, Lease, Step, Terms};
use portcullis_filters::limit::{Millis, RateLimiter};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

/// How long a request waits for the store in total: for one message, and for its own turn.
const WAIT: Duration = Duration::from_millis(25);
/// Concurrent messages after an outage: half of those that may be under way.
const REPORTS: usize = 256;

/// The decision about a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    /// The request is admitted; this many more are left, as far as known.
    Admitted(u32),
    /// The request is refused: no quota is left for this long.
    Refused(Duration),
    /// The store is unavailable: this instance may admit this many in its own window. If it admits
    /// the request, [`SharedLimit::admitted_alone`] must be called.
    Alone(u32),
    /// The store is unavailable, and nothing is admitted without it.
    Unavailable,
}

/// The shared limit of a surface's clients.
pub struct SharedLimit {
    fleet: Arc<Fleet>,
    surface: Surface,
    counted: Counted,
    terms: Terms,
    clients: Arc<ClientWindows>,
    /// The instant from which windows and leases measure time.
    started: Instant,
    /// Number of members created so far.
    members: AtomicU64,
}

/// The windows of this instance, and next to each the client's lease: both are evicted together.
pub type ClientWindows = RateLimiter<RandomState, Arc<Member>>;

/// A client, as long as its window is stored.
pub struct Member {
    client: ClientKey,
    /// Distinguishes its leases in the store from those of an evicted member of the same client,
    /// which count until they end.
    number: u64,
    /// The key of the client's record in the store.
    key: String,
    /// The part of the keys that it is of.
    slot: Slot,
    lease: Mutex<Lease>,
    /// Signalled after each message.
    answered: Notify,
    /// Number of messages without an answer.
    failures: AtomicU32,
    /// The newest quota, for reports.
    quota: AtomicU32,
}

impl SharedLimit {
    pub(super) fn new(
        fleet: Arc<Fleet>,
        surface: Surface,
        counted: Counted,
        clients: Arc<ClientWindows>,
        started: Instant,
    ) -> Self {
        let want = if counted == Counted::Requests {
            fleet.terms.want
        } else {
            1
        };
        let terms = Terms {
            want,
            ..fleet.terms
        };
        Self {
            fleet,
            surface,
            counted,
            terms,
            clients,
            started,
            members: AtomicU64::new(0),
        }
    }

    /// Decides about a request at once, if its client has a lease, or is known to have none for
    /// some time. Otherwise [`SharedLimit::decide`] does.
    pub fn decide_now(self: &Arc<Self>, client: ClientKey, quota: u32) -> Option<Decision> {
        self.step(&self.member(client), quota)
    }

    /// Decides about a request within 25 ms.
    pub async fn decide(self: &Arc<Self>, client: ClientKey, quota: u32) -> Decision {
        let member = self.member(client);
        let deadline = Instant::now() + WAIT;
        let failures = member.failures.load(Ordering::Relaxed);
        loop {
            let mut answered = pin!(member.answered.notified());
            answered.as_mut().enable();
            if let Some(decision) = self.step(&member, quota) {
                return decision;
            }
            let waited = timeout_at(deadline, answered).await;
            if waited.is_err() || member.failures.load(Ordering::Relaxed) != failures {
                return self.decide_alone(&member, self.now(), quota);
            }
        }
    }

    /// Records a request that was admitted after [`Decision::Alone`].
    pub fn admitted_alone(&self, client: ClientKey) {
        self.member(client)
            .lease
            .lock()
            .record(self.now(), &self.terms);
        self.fell_back();
    }

    /// How many more requests of the client may pass, as far as known; `None` for an unknown
    /// client.
    pub fn remaining(&self, client: ClientKey) -> Option<u32> {
        let member = self.clients.value(client)?;
        let lease = member.lease.lock();
        lease.known_remaining(self.now(), &self.terms)
    }

    /// Reports the unreported admissions of all clients whose records these servers hold.
    pub(super) async fn report(self: &Arc<Self>, servers: &[Arc<Server>]) {
        let store = &self.fleet.store;
        let members = self.clients.values(|member: &Arc<Member>| {
            store.is_held_by(member.slot, servers) && member.lease.lock().has_unreported()
        });
        let report = |member: Arc<Member>| async move {
            let claimed = member.lease.lock().claim();
            if claimed {
                let quota = member.quota.load(Ordering::Relaxed);
                self.exchange(&member, quota, Purpose::Report).await;
            }
        };
        stream::iter(members)
            .for_each_concurrent(REPORTS, report)
            .await;
    }

    /// Takes a request from the lease; sends a message if one is needed and none is under way.
    fn step(self: &Arc<Self>, member: &Arc<Member>, quota: u32) -> Option<Decision> {
        let now = self.now();
        member.quota.store(quota, Ordering::Relaxed);
        if self.fleet.store.is_down_for(member.slot) {
            return Some(self.decide_alone(member, now, quota));
        }
        let (decision, sends) = {
            let mut lease = member.lease.lock();
            match lease.take(now, &self.terms) {
                Step::Admitted { renews } => (Some(Decision::Admitted(lease.remaining())), renews),
                Step::Refused(retry) => (Some(Decision::Refused(retry)), false),
                Step::Waits { sends } => (None, sends),
            }
        };
        if sends {
            let (limit, member) = (Arc::clone(self), Arc::clone(member));
            tokio::spawn(async move { limit.exchange(&member, quota, Purpose::Lease).await });
        }
        decision
    }

    /// Decides without the store: leases are used up, then `fleet.when_down` applies.
    fn decide_alone(&self, member: &Member, now: Duration, quota: u32) -> Decision {
        let fleet = &self.fleet;
        let mut lease = member.lease.lock();
        if lease.take_held(now, &self.terms) {
            return Decision::Admitted(lease.remaining());
        }
        match fleet.when_down {
            WhenDown::Refuse => Decision::Unavailable,
            WhenDown::Local => Decision::Alone(quota),
            WhenDown::Share => match lease.take_spare(now, &self.terms, fleet.store.instances()) {
                Alone::Admitted => {
                    self.fell_back();
                    Decision::Admitted(lease.remaining())
                }
                Alone::Refused(retry) => Decision::Refused(retry),
                Alone::Part => Decision::Alone(fleet.part_of(quota, self.counted)),
            },
        }
    }

    /// Counts a request that was admitted without the store.
    fn fell_back(&self) {
        if self.counted == Counted::Requests {
            self.fleet.metrics.fleet.fell_back(self.surface);
        }
    }

    /// Sends the message that the caller has claimed. One more follows if the store has forgotten
    /// the client.
    async fn exchange(&self, member: &Member, quota: u32, purpose: Purpose) {
        let (store, terms) = (&self.fleet.store, self.terms.with_quota(quota));
        let mut answer = Ok(Answer::Forgotten);
        for _ in 0..2 {
            let now = self.now();
            let recent = || self.clients.admitted(member.client, Millis(millis(now)));
            let message = member.lease.lock().message(now, &terms, recent);
            let (key, holder) = (&member.key, member.number);
            answer = store
                .send(key, holder, &message, &terms, quota, purpose)
                .await;
            let mut lease = member.lease.lock();
            match answer {
                Ok(Answer::Granted(granted)) => {
                    lease.answer(&message, granted, self.now(), terms.life);
                }
                Ok(Answer::Forgotten) => {
                    lease.forgotten(self.now());
                    continue;
                }
                Err(Unanswered) => {}
            }
            break;
        }
        if !matches!(answer, Ok(Answer::Granted(_))) {
            member.failures.fetch_add(1, Ordering::Relaxed);
        }
        member.lease.lock().release();
        member.answered.notify_waiters();
    }

    fn member(&self, client: ClientKey) -> Arc<Member> {
        self.clients.value_or_insert(client, || {
            let key = self.fleet.store.key(self.surface, self.counted, client);
            let number = self.members.fetch_add(1, Ordering::Relaxed);
            Arc::new(Member::new(client, number, key))
        })
    }

    /// The time of windows and leases.
    fn now(&self) -> Duration {
        self.started.elapsed()
    }
}

impl Member {
    fn new(client: ClientKey, number: u64, key: String) -> Self {
        let (lease, answered) = (Mutex::default(), Notify::new());
        let (failures, quota) = (AtomicU32::new(0), AtomicU32::new(0));
        let slot = Slot::of(&key);
        Self {
            client,
            number,
            key,
            slot,
            lease,
            answered,
            failures,
            quota,
        }
    }
}
