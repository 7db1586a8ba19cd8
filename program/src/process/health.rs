//! Checks everything once a second, and reports what is wrong to `telemetry::conditions`.
//!
//! The clients of the node know which URLs answer, the gateway's watch whether the cache may be
//! used, the relay which pins match. So requests are sent only to the store, to failed node URLs,
//! and to the node while the cache is bypassed.

use super::failures::{Failures, WINDOW, node_cause};
use super::parts::shared::Shared;
use super::parts::store::Storage;
use super::store_watch::{Probe, StoreWatch};
use async_trait::async_trait;
use futures_util::future::join_all;
use nix::sys::resource::{Resource, getrlimit};
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use portcullis_base::config::{AppliedConfig, MAX_NODE_TIMEOUT};
use portcullis_base::io::DescriptorUse;
use portcullis_base::telemetry::{Condition, Finding, Metrics, Requests, Surface};
use portcullis_edge::fleet::Fleet;
use portcullis_edge::http::certificates::Certificates;
use portcullis_edge::node::{NodeError, NodeStatus, Probes, Serving, Switch};
use portcullis_edge::proxy::Surfaces;
use portcullis_filters::certificate::Unfit;
use portcullis_filters::chain::UNREADABLE;
use portcullis_filters::verdict::Reason;
use portcullis_store::ReplicaStatus;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

/// How often everything is checked: an outage is in the log within two intervals.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often the time of the last pruning, and the sizes of the store, are read: alerts about them
/// wait for days.
const STORE_INTERVAL: Duration = Duration::from_secs(30);
/// How long a node may be silent while the watch of the chain gets no answers. A breaker would need
/// several calls of 8 s each, and there may be none.
const SILENCE: Duration = Duration::from_secs(4);
/// 14 days: automatic renewal happens 30 days before a certificate expires.
const RENEWAL: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// Watches the process and what it depends on.
pub(super) struct Health {
    node: NodeStatus,
    probes: Probes,
    surfaces: Surfaces,
    storage: Option<Storage>,
    fleet: Option<Arc<Fleet>>,
    metrics: Arc<Metrics>,
    in_force: Arc<AppliedConfig>,
    /// URLs that do not answer although their breakers are closed, each with the cause.
    silent: Mutex<Vec<(String, String)>>,
}

#[async_trait]
impl BackgroundService for Health {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        tokio::select! {
            _ = shutdown.changed() => {}
            _ = async {
                let requests = self.watch_requests();
                let stores = async {
                    tokio::join!(self.ask_store(), self.compare_replica(), self.measure_store())
                };
                tokio::join!(self.watch(), self.probe(), self.listen(), stores, requests)
            } => {}
        }
    }
}

impl Health {
    pub(super) fn new(shared: &Shared, surfaces: &Surfaces, storage: Option<&Storage>) -> Self {
        Self {
            node: shared.client.status(),
            probes: shared.client.probes(),
            surfaces: surfaces.clone(),
            storage: storage.cloned(),
            fleet: shared.fleet.clone(),
            metrics: Arc::clone(&shared.process.metrics),
            in_force: Arc::clone(&shared.in_force),
            silent: Mutex::default(),
        }
    }

    async fn watch(&self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        let (mut bypassed, mut starting) = (false, false);
        let mut served_since = SystemTime::UNIX_EPOCH;
        let mut serving = Serving::default();
        loop {
            ticks.tick().await;
            self.report(Condition::NodeUrl, self.node_urls());
            self.report(Condition::NodeStalled, self.stalled_urls());
            if let Some(Switch { from, to, cause }) = serving.update(&self.node.urls()) {
                self.metrics
                    .conditions
                    .node_switched(&from, &to, cause.as_deref());
            }
            // a bypass of less than an interval, as at the start, is not reported
            let was_bypassed = std::mem::replace(&mut bypassed, self.is_cache_bypassed());
            let lasts = was_bypassed && bypassed;
            self.report(Condition::Cache, self.bypassed_cache().filter(|_| lasts));
            let was_starting = std::mem::replace(&mut starting, self.is_starting());
            if was_starting || starting {
                served_since = SystemTime::now();
            }
            self.report(Condition::Pins, self.pins(served_since));
            self.report(Condition::Fleet, self.fleet());
            self.report(Condition::Certificate, certificates(&self.surfaces.tls));
            self.report(Condition::OpenFiles, open_files());
            self.report(Condition::Configuration, self.configuration());
        }
    }

    async fn watch_requests(&self) {
        let mut ticks = tokio::time::interval(WINDOW);
        let mut failures: [Failures; 3] = Default::default();
        loop {
            ticks.tick().await;
            let present = self.metrics.conditions.present();
            let all = self.requests().into_iter().zip(&mut failures);
            let found = all.filter_map(|((surface, requests), failures)| {
                let cause_of = |reason: &str| self.node_cause(reason);
                failures.end_window(surface, requests, &present, cause_of)
            });
            self.report(Condition::Requests, found);
        }
    }

    fn requests(&self) -> [(Surface, &Requests); 3] {
        let Metrics {
            requests,
            relay,
            sidecar,
            ..
        } = &*self.metrics;
        let [relay, sidecar] = [&relay.requests, &sidecar.requests];
        [
            (Surface::Gateway, requests),
            (Surface::Relay, relay),
            (Surface::Sidecar, sidecar),
        ]
    }

    /// How the node failed, if `reason` is a failure of the node.
    fn node_cause(&self, reason: &str) -> Option<String> {
        let failures: Vec<_> = self.nodes().flat_map(|node| node.failures()).collect();
        let is_of_node = reason.starts_with("upstream_");
        is_of_node.then(|| node_cause(reason, &failures).map(str::to_owned))?
    }

    /// Probes the store in a loop of its own, because a store that hangs must not delay other
    /// reports.
    async fn ask_store(&self) {
        let Some(storage) = &self.storage else { return };
        let mut watch = StoreWatch::default();
        loop {
            let failures = self
                .store_refusals()
                .saturating_add(storage.store.failures());
            let failed = probe_store(storage, watch.next(failures, Instant::now())).await;
            if failed.is_some() && matches!(storage.store.renew_password(), Ok(true)) {
                log::warn!("store.password_file: its content changed, and is used from now on");
            }
            if failed.is_some() {
                let store = Arc::clone(&storage.store);
                // a failure is that of the next probe, too
                let _followed = storage
                    .run(async move { store.follow_primary().await })
                    .await;
            }
            let cause = watch.after(failed, Instant::now());
            self.report(Condition::Store, cause.map(|cause| failure("", &cause)));
            tokio::time::sleep(watch.interval()).await;
        }
    }

    /// Checks how far the replica of the store is behind.
    async fn compare_replica(&self) {
        let Some(storage) = &self.storage else { return };
        let mut ticks = tokio::time::interval(INTERVAL);
        loop {
            ticks.tick().await;
            let store = Arc::clone(&storage.store);
            let checked = storage.run(async move { store.check_replica().await });
            let Some(Some(ReplicaStatus { lag, cause })) = checked.await else {
                return;
            };
            self.metrics.sidecar.replica(lag, cause.as_deref());
            self.report(Condition::Replica, cause.map(|cause| finding("", &cause)));
        }
    }

    /// Reads when old rows were last deleted, and how much the store holds. The metrics keep their
    /// values while that cannot be read.
    async fn measure_store(&self) {
        let Some(storage) = &self.storage else { return };
        let mut ticks = tokio::time::interval(STORE_INTERVAL);
        loop {
            ticks.tick().await;
            let store = Arc::clone(&storage.store);
            let read = storage.run(async move { (store.pruned_us().await, store.sizes().await) });
            let Some((pruned_us, sizes)) = read.await else {
                return;
            };
            if let Ok(pruned_us) = pruned_us {
                self.metrics.store_pruned.set(pruned_us / 1_000_000);
            }
            if let Ok(sizes) = sizes {
                self.metrics.store_bytes.set(sizes.bytes);
                self.metrics.relay.entries.set(sizes.entries);
            }
        }
    }

    /// Requests that were refused because the store failed.
    fn store_refusals(&self) -> u64 {
        let all = [&self.metrics.relay.requests, &self.metrics.sidecar.requests];
        let all = all.into_iter().flat_map(Requests::unanswered);
        all.filter(|(reason, _)| *reason == Reason::StoreUnavailable)
            .map(|(_, count)| count)
            .sum()
    }

    /// Probes the URLs that failed, even if there are no requests.
    async fn probe(&self) {
        let of_relay = self
            .surfaces
            .relay
            .as_ref()
            .map(|relay| relay.node().probes());
        let all = [Some(&self.probes), of_relay.as_ref()]
            .into_iter()
            .flatten();
        join_all(all.map(|probes| probes.run(INTERVAL))).await;
    }

    /// While the cache is bypassed, checks whether the node answers at all, even if there are no
    /// requests.
    async fn listen(&self) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            let silent = match self.is_cache_bypassed() {
                true => self.probes.silent_urls(SILENCE).await,
                false => Vec::new(),
            };
            *self.silent.lock() = silent;
        }
    }

    fn nodes(&self) -> impl Iterator<Item = NodeStatus> {
        let of_relay = self
            .surfaces
            .relay
            .as_ref()
            .map(|relay| relay.node().status());
        [Some(self.node.clone()), of_relay].into_iter().flatten()
    }

    fn report(&self, condition: Condition, found: impl IntoIterator<Item = Finding>) {
        let found = found.into_iter().collect();
        self.metrics
            .conditions
            .update(condition, found, SystemTime::now());
    }

    /// The URLs that do not answer or are left out; if that is all of them, requests fail. A URL
    /// that only fails at some calls is tried if no other answers, so it alone makes none fail.
    fn node_urls(&self) -> Vec<Finding> {
        let mut failures: BTreeMap<String, Option<String>> = BTreeMap::new();
        let mut partial = Vec::new();
        for url in self.nodes().flat_map(|node| node.urls()) {
            let is_partial = url.failure.is_none()
                && url
                    .known
                    .fault
                    .as_ref()
                    .is_some_and(|fault| !fault.is_total);
            if is_partial {
                partial.push(url.url.clone());
            }
            let known = failures.entry(url.url).or_default();
            let cause = url
                .failure
                .map(|error| url.cause.unwrap_or_else(|| error.name().to_owned()));
            let cause = cause
                .or(url.known.cause)
                .or(url.known.fault.map(|fault| fault.cause));
            *known = known.take().or(cause);
        }
        for (url, cause) in self.silent.lock().iter() {
            failures
                .entry(url.clone())
                .or_default()
                .get_or_insert_with(|| cause.clone());
        }
        let mut all = failures.iter();
        let is_failing = all.all(|(url, cause)| cause.is_some() && !partial.contains(url));
        let down = failures
            .into_iter()
            .filter_map(|(url, failure)| Some((url, failure?)));
        down.map(|(url, cause)| Finding {
            is_failing,
            ..finding(&url, &cause)
        })
        .collect()
    }

    /// The URLs that answer, but have no new block.
    fn stalled_urls(&self) -> Vec<Finding> {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let stalled = self.node.stalled_urls(now.as_secs()).into_iter();
        stalled.map(|(url, cause)| finding(&url, &cause)).collect()
    }

    fn is_starting(&self) -> bool {
        self.node
            .urls()
            .iter()
            .all(|url| url.failure == Some(NodeError::Starting))
    }

    fn is_cache_bypassed(&self) -> bool {
        let cache = self
            .surfaces
            .gateway
            .as_ref()
            .map(|gateway| gateway.cache());
        cache.is_some_and(|cache| cache.enabled && cache.suspended)
    }

    /// Why a request to the node failed most recently, if one did just now.
    fn last_failure(&self) -> Option<String> {
        let failures = self.node.failures().into_iter();
        let recent = failures.filter(|failure| failure.at.elapsed() <= INTERVAL * 2);
        recent
            .max_by_key(|failure| failure.at)
            .map(|failure| failure.cause)
    }

    /// Why the cache is bypassed, unless another condition already covers it.
    fn bypassed_cache(&self) -> Option<Finding> {
        let failed_poll = self.last_failure();
        let cause = match &self.fleet {
            None => match &failed_poll {
                Some(cause) => cause,
                None => "the watch of the chain gets no answers in time",
            },
            // without the store the gateway polls less often, and caches only for a while after
            // each poll
            Some(fleet) if fleet.failure().is_some() => return None,
            Some(_) => "neither the fleet nor the node reports the chain's position in time",
        };
        Some(Finding {
            needs_node: true,
            ..finding("", cause)
        })
    }

    /// A file that the last reload refused: what is applied is older, and a restart would fail.
    fn configuration(&self) -> Option<Finding> {
        let cause =
            "the last reload failed, and so would a restart: see the log, then reload again";
        self.in_force
            .last_reload()
            .failed
            .then(|| finding("", cause))
    }

    fn fleet(&self) -> Option<Finding> {
        let fleet = self.fleet.as_ref()?;
        let is_failing = fleet.refuses_without_store();
        fleet.failure().map(|cause| Finding {
            is_failing,
            ..finding("", &cause)
        })
    }

    /// The pins that do not match; `None` while the node starts, since its URL then has a
    /// condition.
    fn pins(&self, served_since: SystemTime) -> Option<Finding> {
        let proof = self.surfaces.relay.as_ref()?.newest_proof()?;
        if proof.is_ready() || SystemTime::UNIX_EPOCH + proof.checked_at < served_since {
            return None;
        }
        let failing: Vec<_> = proof.pins.iter().filter(|pin| !pin.ok).collect();
        let mut cause = match &*failing {
            [] => "the chain started again meanwhile".to_owned(),
            [only] => format!("not proven: {}", only.name),
            [first, rest @ ..] => format!("not proven: {} and {} more", first.name, rest.len()),
        };
        // if all are unreadable, the node is the cause; otherwise the chain differs
        let needs_node = !failing.is_empty() && failing.iter().all(|pin| pin.actual == UNREADABLE);
        if needs_node {
            cause += ", unreadable";
        }
        Some(Finding {
            needs_node,
            ..failure("", &cause)
        })
    }
}

/// A finding that does not make requests fail.
fn finding(subject: &str, cause: &str) -> Finding {
    let (subject, cause) = (subject.to_owned(), cause.to_owned());
    Finding {
        subject,
        cause,
        is_failing: false,
        needs_node: false,
    }
}

/// A finding that makes requests fail.
fn failure(subject: &str, cause: &str) -> Finding {
    Finding {
        is_failing: true,
        ..finding(subject, cause)
    }
}

fn certificates(certificates: &Certificates) -> Vec<Finding> {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let found = Surface::ALL.into_iter().filter_map(|surface| {
        let order = certificates.order(surface);
        if let Some(cause) = certificates.retry(surface) {
            let cause = match order {
                None => cause,
                Some(order) if order.words.is_empty() => "the first one is ordered".to_owned(),
                Some(order) => format!("the first one is ordered: {}", order.words),
            };
            return Some(failure(surface.name(), &cause));
        }
        let identity = certificates.of(surface)?;
        let left = Duration::from_secs(identity.not_after).saturating_sub(now);
        // the operator's own certificate may be for names that are not configured
        let unfit = match &order {
            Some(_) => identity.judge(now.as_secs()).err(),
            None => None,
        };
        let is_early = unfit == Some(Unfit::NotYetValid);
        // a certificate that ACME renews may be valid for days only
        let is_due = match &order {
            Some(order) => order.has_failed || left.is_zero() || is_early,
            None => left < RENEWAL,
        };
        is_due.then(|| {
            let mut cause = match (unfit, left.as_secs()) {
                (_, 0) => "it has expired".to_owned(),
                (Some(unfit), _) => unfit.to_string(),
                (None, seconds @ ..172_800) => {
                    format!("it expires in {} hours", seconds / (60 * 60))
                }
                (None, seconds) => format!("it expires in {} days", seconds / (24 * 60 * 60)),
            };
            if let Some(order) = order.filter(|order| !order.words.is_empty()) {
                cause = format!("{cause}: {}", order.words);
            }
            Finding {
                is_failing: left.is_zero() || is_early,
                ..finding(surface.name(), &cause)
            }
        })
    });
    found.collect()
}

/// Whether fewer than a tenth of the file descriptors are left, or clients are refused for lack of
/// them.
fn open_files() -> Option<Finding> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    // a file gets the lowest free number, so it shows how many are taken without listing them
    let next = File::open("/dev/null").map_or(i32::MAX, |file| file.as_raw_fd());
    let taken = u64::from(next.unsigned_abs()).min(limit);
    let is_failing = DescriptorUse::Client.is_reserved(next);
    let is_scarce = is_failing || taken.saturating_mul(10) > limit.saturating_mul(9);
    is_scarce.then(|| {
        let cause = format!("about {taken} of {limit} are in use");
        Finding {
            is_failing,
            ..finding("", &cause)
        }
    })
}

/// Probes the store on its own runtime. Returns the cause of a failure.
async fn probe_store(storage: &Storage, probe: Probe) -> Option<String> {
    let store = Arc::clone(&storage.store);
    let answer = storage.run(async move {
        let answer = match (store.ping().await, probe) {
            (Ok(()), Probe::Write) => store.ping_write().await,
            (answer, _) => answer,
        };
        match answer {
            Ok(()) => None,
            Err(failure) => Some(store.explain(failure).await.to_string()),
        }
    });
    match tokio::time::timeout(MAX_NODE_TIMEOUT, answer).await {
        Ok(Some(failure)) => failure,
        _ => Some("timeout".to_owned()),
    }
}
