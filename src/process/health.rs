//! Checks everything once a second, and reports what is wrong to `telemetry::conditions`.
//!
//! The clients of the node know which URLs answer, the gateway's watch whether the cache may be
//! used, the relay which pins hold. Only the store and failed node URLs are sent a request.

use super::server::Storage;
use crate::config::MAX_NODE_TIMEOUT;
use crate::http::gate::Certificates;
use crate::io::DescriptorUse;
use crate::node::Node;
use crate::proxy::Surfaces;
use crate::telemetry::{Condition, Finding, Metrics, Surface};
use async_trait::async_trait;
use nix::sys::resource::{Resource, getrlimit};
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd as _;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// How often everything is checked: an outage is in the log within two of these.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often the store is asked.
const STORE_INTERVAL: Duration = Duration::from_secs(5);
/// 14 days: certificates that renew themselves do so 30 days before their end.
const RENEWAL: Duration = Duration::from_secs(14 * 24 * 60 * 60);

/// Watches the process and what it depends on.
pub(super) struct Health {
    pub(super) node: Arc<Node>,
    pub(super) surfaces: Surfaces,
    pub(super) storage: Option<Storage>,
    pub(super) metrics: Arc<Metrics>,
}

#[async_trait]
impl BackgroundService for Health {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        tokio::select! {
            _ = shutdown.changed() => {}
            _ = async { tokio::join!(self.watch(), self.probe(), self.ask_store()) } => {}
        }
    }
}

impl Health {
    async fn watch(&self) {
        let mut ticks = tokio::time::interval(INTERVAL);
        let mut bypassed = false;
        loop {
            ticks.tick().await;
            self.report(Condition::NodeUrl, self.node_urls());
            // for less than an interval, as at the start, it is no event
            let was_bypassed = std::mem::replace(&mut bypassed, self.is_cache_bypassed());
            self.report(Condition::Cache, self.cache(was_bypassed && bypassed));
            self.report(Condition::Pins, self.pins());
            self.report(Condition::Certificate, certificates(&self.surfaces.tls));
            self.report(Condition::OpenFiles, open_files());
        }
    }

    /// By itself, because a store that hangs must not delay what else is wrong.
    async fn ask_store(&self) {
        let Some(storage) = &self.storage else { return };
        let mut ticks = tokio::time::interval(STORE_INTERVAL);
        loop {
            ticks.tick().await;
            self.report(Condition::Store, ping(storage).await);
        }
    }

    /// Tries the URLs that failed, however few requests there are.
    async fn probe(&self) {
        loop {
            tokio::time::sleep(INTERVAL).await;
            for node in self.nodes() {
                node.probe().await;
            }
        }
    }

    fn nodes(&self) -> impl Iterator<Item = &Node> {
        let relay = self.surfaces.relay.as_ref().map(|relay| relay.node());
        [Some(&*self.node), relay].into_iter().flatten()
    }

    fn report(&self, condition: Condition, found: impl IntoIterator<Item = Finding>) {
        let found = found.into_iter().collect();
        self.metrics.conditions.update(condition, found, SystemTime::now());
    }

    /// The URLs that do not answer; if that is all of them, requests fail.
    fn node_urls(&self) -> Vec<Finding> {
        let mut failures: BTreeMap<String, Option<String>> = BTreeMap::new();
        for url in self.nodes().flat_map(Node::urls) {
            let known = failures.entry(url.url).or_default();
            let cause = url.failure.map(|name| url.cause.unwrap_or_else(|| name.to_owned()));
            *known = known.take().or(cause);
        }
        let is_failing = failures.values().all(Option::is_some);
        let down = failures.into_iter().filter_map(|(url, failure)| Some((url, failure?)));
        down.map(|(url, cause)| finding(&url, &cause, is_failing)).collect()
    }

    fn is_cache_bypassed(&self) -> bool {
        let cache = self.surfaces.gateway.as_ref().map(|gateway| gateway.cache());
        cache.is_some_and(|cache| cache.enabled && cache.suspended)
    }

    fn cache(&self, is_bypassed: bool) -> Option<Finding> {
        is_bypassed.then(|| finding("", "the watch of the chain gets no answers in time", false))
    }

    fn pins(&self) -> Option<Finding> {
        let proof =
            self.surfaces.relay.as_ref()?.newest_proof().filter(|proof| !proof.is_ready())?;
        let failing: Vec<&str> =
            proof.pins.iter().filter(|pin| !pin.ok).map(|pin| pin.name).collect();
        let cause = match &*failing {
            [] => "the chain started again meanwhile".to_owned(),
            [only] => format!("not proven: {only}"),
            [first, rest @ ..] => format!("not proven: {first} and {} more", rest.len()),
        };
        Some(finding("", &cause, true))
    }
}

fn finding(subject: &str, cause: &str, is_failing: bool) -> Finding {
    Finding { subject: subject.to_owned(), cause: cause.to_owned(), is_failing }
}

fn certificates(certificates: &Certificates) -> Vec<Finding> {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let found = Surface::ALL.into_iter().filter_map(|surface| {
        let end = Duration::from_secs(certificates.of(surface)?.not_after);
        let left = end.saturating_sub(now);
        (left < RENEWAL).then(|| {
            let cause = match left.as_secs() {
                0 => "it has expired".to_owned(),
                seconds => format!("it expires in {} days", seconds / (24 * 60 * 60)),
            };
            finding(surface.name(), &cause, left.is_zero())
        })
    });
    found.collect()
}

/// Whether fewer than a tenth of the file descriptors are left, or clients are refused for them.
fn open_files() -> Option<Finding> {
    let (limit, _) = getrlimit(Resource::RLIMIT_NOFILE).ok()?;
    // a file gets the lowest free number, so it shows how many are taken without listing them
    let next = File::open("/dev/null").map_or(i32::MAX, |file| file.as_raw_fd());
    let taken = u64::from(next.unsigned_abs()).min(limit);
    let is_failing = DescriptorUse::Client.is_reserved(next);
    let is_scarce = is_failing || taken.saturating_mul(10) > limit.saturating_mul(9);
    is_scarce.then(|| finding("", &format!("about {taken} of {limit} are in use"), is_failing))
}

/// Asks the store on its own runtime.
async fn ping(Storage { store, runtime }: &Storage) -> Option<Finding> {
    let store = Arc::clone(store);
    let answer =
        runtime.spawn(async move { store.ping().await.map_err(|error| error.to_string()) });
    match tokio::time::timeout(MAX_NODE_TIMEOUT, answer).await {
        Ok(Ok(answer)) => answer.err().map(|cause| finding("", &cause, true)),
        _ => Some(finding("", "timeout", true)),
    }
}
