//! What is in force on a surface: its settings, and the limits of its clients: requests and wrong
//! tokens in any minute, and requests at a time.
//!
//! Each surface has one [`Running`], whose settings a reload replaces. The policy counts.

use super::rate::Rate;
use crate::config::ClientsConfig;
use crate::fleet::{Counted, Fleet};
use crate::io::ClientShare;
use crate::telemetry::Surface;
use arc_swap::ArcSwap;
use http::HeaderValue;
use pingora_limits::inflight::{Guard, Inflight};
use portcullis_filters::client::{Client, ClientKey};
use portcullis_filters::limit::{Busy, Quota, RateLimitStatus};
use std::num::NonZeroU32;
use std::sync::Arc;
use tokio::time::Instant;

/// Wrong tokens that a client may send in any minute before its requests are refused unread.
pub(super) const MAX_FAILED_TOKENS: Quota = Quota::per_minute(10).unwrap();

/// The settings of a surface, which limit its clients.
pub trait Settings: Send + Sync + 'static {
    /// The limits of one client.
    fn limits(&self) -> &ClientLimits;
}

/// The settings in force on a surface, and its clients.
pub struct Running<S> {
    settings: ArcSwap<S>,
    clients: Clients,
}

impl<S: Settings> Running<S> {
    /// Starts with these settings.
    pub fn new(settings: S, config: &ClientsConfig) -> Self {
        let clients = Clients::new(settings.limits(), config);
        Self { settings: ArcSwap::from_pointee(settings), clients }
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<S> {
        self.settings.load_full()
    }

    /// Applies other settings to later requests.
    pub(crate) fn change(&self, settings: S) {
        let requests = &self.clients.requests;
        requests.window().set_quota(settings.limits().quota, requests.millis(Instant::now()));
        self.settings.store(Arc::new(settings));
    }

    /// The clients.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }
}

/// The limits of one client.
#[derive(Debug)]
pub struct ClientLimits {
    /// `RateLimit-Policy`, as every response carries it.
    pub quota_header: HeaderValue,
    quota: Quota,
    max_in_flight: isize,
}

impl ClientLimits {
    /// As configured.
    pub fn new(config: &ClientsConfig) -> Self {
        let quota = config.requests_per_minute;
        Self {
            quota_header: HeaderValue::try_from(format!("\"minute\";q={quota};w=60"))
                .expect("digits, letters and ASCII punctuation are a header value"),
            quota: Quota::per_minute(quota)
                .expect("the configuration takes 1 to 1,000,000,000, and so does a quota"),
            max_in_flight: isize::try_from(config.max_in_flight_per_client).unwrap_or(isize::MAX),
        }
    }

    /// Requests of one client in any minute.
    pub fn per_minute(&self) -> u32 {
        self.quota.requests()
    }

    /// Requests of one client at a time.
    pub fn in_flight(&self) -> u64 {
        self.max_in_flight.unsigned_abs() as u64
    }
}

/// The clients of a surface, counted.
pub struct Clients {
    requests: Rate,
    failed_tokens: Rate,
    in_flight: Inflight,
    /// Bytes of large answers that are fetched for a client, or that it has not read.
    unread: Arc<Inflight>,
    /// Bytes of request bodies that are under way.
    uploads: Arc<Inflight>,
}

impl Clients {
    /// Tracks as many clients as configured.
    fn new(limits: &ClientLimits, config: &ClientsConfig) -> Self {
        let capacity = u32::try_from(config.max_clients).unwrap_or(u32::MAX);
        let capacity = NonZeroU32::new(capacity).unwrap_or(NonZeroU32::MIN);
        Self {
            requests: Rate::new(limits.quota, capacity),
            failed_tokens: Rate::new(MAX_FAILED_TOKENS, capacity),
            in_flight: Inflight::new(),
            unread: Arc::new(Inflight::new()),
            uploads: Arc::new(Inflight::new()),
        }
    }

    /// Their requests.
    pub fn requests(&self) -> &Rate {
        &self.requests
    }

    /// Their wrong tokens.
    pub fn failed_tokens(&self) -> &Rate {
        &self.failed_tokens
    }

    /// Limits the clients over all instances of the fleet.
    pub(crate) fn share(&self, fleet: &Arc<Fleet>, surface: Surface) {
        self.requests.share(fleet, surface, Counted::Requests);
        self.failed_tokens.share(fleet, surface, Counted::FailedTokens);
    }

    /// A share of the client's requests in flight; `None` when it has too many.
    pub fn enter(&self, client: ClientKey, limits: &ClientLimits) -> Option<Guard> {
        let (guard, count) = self.in_flight.incr(client, 1);
        (count <= limits.max_in_flight).then_some(guard)
    }

    /// The client's share of the memory for answers: those that are fetched for it, and those that
    /// it has not read.
    pub fn answers_of(&self, client: ClientKey) -> ClientShare {
        ClientShare::of(client, &self.unread)
    }

    /// The same for its request bodies that are under way.
    pub fn uploads_of(&self, client: ClientKey) -> ClientShare {
        ClientShare::of(client, &self.uploads)
    }

    /// The peer's rate-limit status, read-only.
    pub fn standing(&self, peer: Client) -> RateLimitStatus {
        self.requests.peek(peer.key, self.requests.millis(Instant::now()))
    }

    /// The clients with the most requests in the last minute, busiest first; at most `most`.
    pub fn busiest(&self, most: usize) -> Vec<Busy> {
        self.requests.window().busiest(self.requests.millis(Instant::now()), most)
    }

    /// Clients that the limiter tracks, and how many it evicted because it was full.
    pub fn population(&self) -> (u64, u64) {
        let window = self.requests.window();
        (u64::from(window.population()), window.evicted())
    }
}
