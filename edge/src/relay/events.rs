//! Sends events to the backend: what becomes of its writes. Performs the I/O of
//! [`portcullis_filters::events`], and decides nothing. One of the processes that share a store
//! sends them; when that ends, or is suspended, another one continues.

use super::receiver::Receiver;
use arc_swap::ArcSwapOption;
use async_trait::async_trait;
use futures_util::future::join_all;
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use portcullis_base::fetch;
use portcullis_base::io::cold;
use portcullis_base::secrets::chance::drawn;
use portcullis_base::telemetry::{Condition, Finding, Metrics};
use portcullis_filters::chance::Chance;
use portcullis_filters::events::{
    BATCH, Backlog, DueTimes, Entry, Event, EventKind, EventOutcome, Failures, NewEvent, Outbox,
    Settlement, Trouble, Waiting, round,
};
use portcullis_filters::post::Answer;
use portcullis_filters::txm::io::{JournalError, Stored};
use portcullis_store::{Chore, ChoreLock, Store, StoreError};
use std::panic;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::runtime::Handle;
use tokio::task::JoinSet;
use tokio::time::sleep;

/// Time between two rounds: an event is sent about a second after it was recorded.
const INTERVAL: Duration = Duration::from_secs(1);
/// Timeout of an attempt: a receiver stores an event, and works on it later.
const TIMEOUT: Duration = Duration::from_secs(5);

/// The events, and their receiver.
pub(super) struct Events {
    /// `None` while no events are sent.
    receiver: ArcSwapOption<Receiver>,
    store: Arc<Store>,
    metrics: Arc<Metrics>,
}

/// The task that sends events.
pub struct EventSender {
    pub(super) events: Arc<Events>,
    /// The threads that work on the store, as for requests.
    pub(super) runtime: Handle,
}

#[async_trait]
impl BackgroundService for EventSender {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        // dropping the set ends the task
        let mut running = JoinSet::new();
        running.spawn_on(run(Arc::clone(&self.events)), &self.runtime);
        tokio::select! {
            _ = shutdown.changed() => {}
            Some(Err(error)) = running.join_next() => if let Ok(panic) = error.try_into_panic() {
                panic::resume_unwind(panic);
            },
        }
    }
}

impl Events {
    pub(super) fn new(
        receiver: Option<Receiver>,
        store: &Arc<Store>,
        metrics: &Arc<Metrics>,
    ) -> Self {
        Self {
            receiver: ArcSwapOption::from(receiver.map(Arc::new)),
            store: Arc::clone(store),
            metrics: Arc::clone(metrics),
        }
    }

    /// Sends later events to another receiver, or none.
    pub(super) fn change(&self, receiver: Option<Receiver>) {
        self.receiver.store(receiver.map(Arc::new));
    }
}

/// Sends events until the process ends.
async fn run(events: Arc<Events>) {
    let mut sender = Sender {
        chore: ChoreLock::of(Chore::Events),
        failures: Failures::default(),
        is_ours: false,
        cause: String::new(),
        events,
    };
    loop {
        let receiver = sender.events.receiver.load_full();
        let is_full = match receiver {
            Some(receiver) => sender.round(receiver).await,
            None => sender.rest().await,
        };
        if !is_full {
            sleep(INTERVAL).await;
        }
    }
}

struct Sender {
    events: Arc<Events>,
    chore: ChoreLock,
    failures: Failures,
    /// Whether this process sends them.
    is_ours: bool,
    /// Why the last attempt failed; empty if it did not.
    cause: String,
}

impl Sender {
    /// Sends the due events, unless another process does. Returns whether more may be due.
    async fn round(&mut self, receiver: Arc<Receiver>) -> bool {
        let events = Arc::clone(&self.events);
        let Events { store, metrics, .. } = &*events;
        let acquired = cold(self.chore.try_acquire(store)).await;
        let was_ours = std::mem::replace(&mut self.is_ours, acquired.unwrap_or(false));
        let mut is_full = false;
        if self.is_ours {
            let outbox = StoreOutbox {
                store,
                receiver,
                cause: Mutex::default(),
            };
            // the condition of the store covers an error
            let sent = cold(round(&outbox)).await.unwrap_or_default();
            if !was_ours {
                log::info!("this process sends the events of writes");
            }
            is_full = sent.len() == BATCH;
            let cause = outbox.cause.into_inner();
            for one in &sent {
                self.note(one, &cause);
            }
        }
        if let Ok(backlog) = store.events().backlog().await {
            metrics.relay.events_backlog(&backlog);
            self.report(&backlog);
        }
        is_full
    }

    /// Leaves the events to processes that have a receiver.
    async fn rest(&mut self) -> bool {
        let _released = self.chore.release().await;
        self.is_ours = false;
        let none = Backlog::default();
        self.failures = Failures::default();
        self.events.metrics.relay.events_backlog(&none);
        self.report(&none);
        false
    }

    /// Counts and logs what became of an event: of failures in a row, the first is a warning.
    fn note(&mut self, one: &Settlement<Event>, cause: &str) {
        let Events { store, metrics, .. } = &*self.events;
        let outcome = one.settled.outcome();
        metrics.relay.event(outcome);
        self.failures.note(outcome, store.now_us());
        let event = &one.sent.event;
        let kind = EventKind::of(event.previous, event.state);
        let kind = kind.map(EventKind::name).unwrap_or_default();
        let transaction_hash = event.transaction_hash;
        let cause = match one.answer {
            Answer::Status(410) => "status 410: the receiver wants no more events".to_owned(),
            Answer::Status(status) => format!("status {status}"),
            Answer::None => cause.to_owned(),
        };
        match outcome {
            EventOutcome::Delivered => {
                self.cause = String::new();
                log::debug!(kind, transaction_hash:%; "event delivered");
            }
            EventOutcome::Failed if self.cause.is_empty() => {
                log::warn!(
                    kind, transaction_hash:%, cause;
                    "event not delivered: it is sent again"
                );
                self.cause = cause;
            }
            EventOutcome::Failed => {
                log::debug!(kind, transaction_hash:%, cause; "event not delivered");
                self.cause = cause;
            }
            EventOutcome::GivenUp => {
                log::error!(kind, transaction_hash:%, cause; "event given up after three days");
            }
        }
    }

    fn report(&self, backlog: &Backlog) {
        let Events { store, metrics, .. } = &*self.events;
        let cause = match self.failures.trouble(backlog, store.now_us()) {
            Some(Trouble::Late) if !self.is_ours => {
                Some("another instance sends them: see its log")
            }
            Some(Trouble::Late) if self.cause.is_empty() => Some("they are behind"),
            Some(Trouble::Late) => Some(&*self.cause),
            Some(Trouble::GivenUp) => Some("an event was given up after three days: see the log"),
            None => None,
        };
        let found = cause.map(|cause| Finding {
            subject: String::new(),
            cause: cause.to_owned(),
            is_failing: false,
            needs_node: false,
        });
        let found = found.into_iter().collect();
        let conditions = &metrics.conditions;
        conditions.update(Condition::Events, found, SystemTime::now());
    }
}

/// The store and the receiver, for one round.
struct StoreOutbox<'a> {
    store: &'a Store,
    receiver: Arc<Receiver>,
    /// Why an attempt had no answer.
    cause: Mutex<String>,
}

impl StoreOutbox<'_> {
    async fn attempt(&self, event: &Event) -> Answer {
        let Some(post) = self.receiver.post(event, self.store.now_us()) else {
            return Answer::None;
        };
        match fetch::post(&self.receiver.url, post, TIMEOUT).await {
            Ok(status) => Answer::Status(status),
            Err(error) => {
                *self.cause.lock() = error.to_string();
                Answer::None
            }
        }
    }
}

/// Converts the result of statements. The condition of the store has the cause.
fn stored<T>(done: Result<T, StoreError>) -> Stored<T> {
    done.map_err(|error| {
        log::debug!("events: {error}");
        JournalError::Failed
    })
}

impl Outbox for StoreOutbox<'_> {
    type Event = Event;

    fn now_us(&self) -> i64 {
        self.store.now_us()
    }

    fn chance(&self) -> Chance {
        drawn()
    }

    async fn cursor(&self) -> Stored<i64> {
        stored(self.store.events().cursor().await)
    }

    async fn entries(&self, after: i64) -> Stored<Vec<Entry>> {
        stored(self.store.events().entries(after).await)
    }

    async fn keep(&self, events: &[NewEvent], from: i64, to: i64, now_us: i64) -> Stored<bool> {
        stored(self.store.events().keep(events, from, to, now_us).await)
    }

    async fn due(&self, times: DueTimes) -> Stored<Vec<Waiting<Event>>> {
        stored(self.store.events().due(times).await)
    }

    async fn send(&self, events: &[Waiting<Event>]) -> Vec<Answer> {
        join_all(events.iter().map(|one| self.attempt(&one.event))).await
    }

    async fn settle(&self, settlements: &[Settlement<Event>], due_us: Option<i64>) -> Stored<()> {
        stored(self.store.events().settle(settlements, due_us).await)
    }
}
