//! The settings in force on a surface, and the limits of its clients: requests and wrong tokens in
//! any minute, and concurrent requests.
//!
//! Each surface has one [`Running`], whose settings a reload replaces. The policy counts in this
//! instance's window, and in the fleet's if there is one. It never waits: a check that needs the
//! fleet's store stays pending until `Ticket::settle` counts or refuses it, before anything else
//! happens. Without `[fleet]` every check is decided at once.

use crate::fleet::{ClientWindows, Counted, Decision, Fleet, SharedLimit};
use ahash::RandomState;
use arc_swap::ArcSwap;
use http::HeaderValue;
use pingora_limits::inflight::{Guard, Inflight};
use portcullis_base::config::{ClientsConfig, ClientsLive, NetworkLimits};
use portcullis_base::io::ClientShare;
use portcullis_base::io::clock::millis;
use portcullis_base::telemetry::Surface;
use portcullis_filters::client::{Client, ClientKey, TrustedProxies};
use portcullis_filters::head::{within_failed_tokens, within_rate};
use portcullis_filters::limit::{
    Busy, Limiter, Millis, Quota, RateCheck, RateLimitStatus, RateLimiter, WINDOW_SECONDS,
};
use portcullis_filters::verdict::{Reason, Refusal};
use std::num::NonZeroU32;
use std::sync::{Arc, OnceLock};
use tokio::time::Instant;

/// Wrong tokens that a client may send in any minute before its requests are refused unread.
const MAX_FAILED_TOKENS: Quota = Quota::per_minute(10).unwrap();

/// The settings of a surface, which limit and identify its clients.
pub trait Settings: Send + Sync + 'static {
    /// The limits of each client.
    fn limits(&self) -> &ClientLimits;

    /// The limits of this client, which its network may have instead of the common ones.
    fn limits_of(&self, _client: Client) -> &ClientLimits {
        self.limits()
    }

    /// The proxies and balancers in front of the surface.
    fn trusted_proxies(&self) -> &TrustedProxies;
}

/// The settings in force on a surface, and its clients.
pub struct Running<S> {
    settings: ArcSwap<S>,
    clients: Clients,
}

impl<S: Settings> Running<S> {
    /// Creates the state of a surface with these settings.
    pub fn new(settings: S, config: &ClientsConfig) -> Self {
        let clients = Clients::new(settings.limits(), config);
        Self {
            settings: ArcSwap::from_pointee(settings),
            clients,
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<S> {
        self.settings.load_full()
    }

    /// Applies other settings to later requests.
    pub(crate) fn change(&self, settings: S) {
        let requests = &self.clients.requests;
        requests
            .window()
            .set_quota(settings.limits().quota, requests.millis(Instant::now()));
        self.settings.store(Arc::new(settings));
    }

    /// The clients.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }
}

/// The limits of one client.
#[derive(Clone, Debug)]
pub struct ClientLimits {
    /// `RateLimit-Policy`, as every response carries it.
    pub quota_header: HeaderValue,
    quota: Quota,
    max_in_flight: isize,
}

impl ClientLimits {
    /// Creates the limits from the configuration.
    pub fn new(config: &ClientsLive) -> Self {
        Self::of(config.requests_per_minute, config.max_in_flight_per_client)
    }

    /// Creates the limits of a network's clients: its own, and the common ones for the rest.
    pub fn of_network(own: &NetworkLimits, common: &ClientsLive) -> Self {
        Self::of(
            own.requests_per_minute
                .unwrap_or(common.requests_per_minute),
            own.max_in_flight.unwrap_or(common.max_in_flight_per_client),
        )
    }

    fn of(quota: u32, max_in_flight: usize) -> Self {
        Self {
            quota_header: HeaderValue::try_from(format!("\"minute\";q={quota};w=60"))
                .expect("digits, letters and ASCII punctuation are a header value"),
            quota: Quota::per_minute(quota)
                .expect("the configuration takes 1 to 1,000,000,000, and so does a quota"),
            max_in_flight: isize::try_from(max_in_flight).unwrap_or(isize::MAX),
        }
    }

    /// Requests of one client in any minute.
    pub fn per_minute(&self) -> u32 {
        self.quota.requests()
    }

    /// Concurrent requests of one client.
    pub fn in_flight(&self) -> u64 {
        self.max_in_flight.unsigned_abs() as u64
    }
}

/// The clients of a surface, and their counters.
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
            requests: Rate::new(Counted::Requests, limits.quota, capacity),
            failed_tokens: Rate::new(Counted::FailedTokens, MAX_FAILED_TOKENS, capacity),
            in_flight: Inflight::new(),
            unread: Arc::new(Inflight::new()),
            uploads: Arc::new(Inflight::new()),
        }
    }

    /// The rate limit of requests.
    pub fn requests(&self) -> &Rate {
        &self.requests
    }

    /// The rate limit of wrong tokens.
    pub fn failed_tokens(&self) -> &Rate {
        &self.failed_tokens
    }

    /// Limits the clients over all instances of the fleet.
    pub fn share(&self, fleet: &Arc<Fleet>, surface: Surface) {
        self.requests.share(fleet, surface);
        self.failed_tokens.share(fleet, surface);
    }

    /// Counts a request of the client as in flight; `None` if it has too many.
    pub fn enter(&self, client: ClientKey, limits: &ClientLimits) -> Option<Guard> {
        let (guard, count) = self.in_flight.incr(client, 1);
        (count <= limits.max_in_flight).then_some(guard)
    }

    /// The client's share of the memory for answers: those that are fetched for it, and those that
    /// it has not read.
    pub fn answers_of(&self, client: ClientKey) -> ClientShare {
        ClientShare::of(client, &self.unread)
    }

    /// The client's share of the memory for request bodies that are being received.
    pub fn uploads_of(&self, client: ClientKey) -> ClientShare {
        ClientShare::of(client, &self.uploads)
    }

    /// The rate-limit status of a peer with these limits, read-only.
    pub fn rate_limit(&self, peer: Client, limits: &ClientLimits) -> RateLimitStatus {
        let now = self.requests.millis(Instant::now());
        self.requests.peek(peer.key, limits.quota, now)
    }

    /// The clients with the most requests in the last minute, busiest first; at most `most`.
    pub fn busiest(&self, most: usize) -> Vec<Busy> {
        self.requests
            .window()
            .busiest(self.requests.millis(Instant::now()), most)
    }

    /// The number of clients that the limiter tracks, and of those that it evicted because it was
    /// full.
    pub fn population(&self) -> (u64, u64) {
        let window = self.requests.window();
        (u64::from(window.population()), window.evicted())
    }
}

/// A limit of a surface's clients.
pub struct Rate {
    counted: Counted,
    window: Arc<ClientWindows>,
    /// The limit over all instances; unset without `[fleet]`.
    shared: OnceLock<Arc<SharedLimit>>,
    started: Instant,
}

impl Rate {
    fn new(counted: Counted, quota: Quota, capacity: NonZeroU32) -> Self {
        let window = Arc::new(RateLimiter::with_values(
            quota,
            capacity,
            RandomState::new(),
        ));
        Self {
            counted,
            window,
            shared: OnceLock::new(),
            started: Instant::now(),
        }
    }

    /// The window of this instance.
    pub fn window(&self) -> &ClientWindows {
        &self.window
    }

    /// Limits the clients over all instances of the fleet.
    fn share(&self, fleet: &Arc<Fleet>, surface: Surface) {
        let limit = fleet.limit(
            surface,
            self.counted,
            Arc::clone(&self.window),
            self.started,
        );
        // called once, before the surface serves
        let _ = self.shared.set(limit);
    }

    /// Converts an instant to the milliseconds that the window counts in.
    fn millis(&self, now: Instant) -> Millis {
        millis_since(self.started, now)
    }

    /// Checks without waiting: counts in this instance's window, or returns a ticket if only the
    /// store can decide.
    fn check(&self, client: ClientKey, quota: Quota, now: Millis) -> RateCheck<Ticket<'_>> {
        let Some(shared) = self.shared.get() else {
            return RateCheck::Decided(self.window.check_by(client, quota, now));
        };
        let decision = shared.decide_now(client, quota.requests());
        match decision.and_then(|decision| self.apply(shared, decision, client, quota, now)) {
            Some(status) => RateCheck::Decided(status),
            None => RateCheck::Pending(Ticket {
                rate: self,
                shared,
                client,
                quota,
            }),
        }
    }

    /// The client's status, read-only.
    fn peek(&self, client: ClientKey, quota: Quota, now: Millis) -> RateLimitStatus {
        let own = self.window.peek_by(client, quota, now);
        let Some(left) = self
            .shared
            .get()
            .and_then(|shared| shared.remaining(client))
        else {
            return own;
        };
        let remaining = own.remaining.min(left);
        RateLimitStatus {
            admitted: remaining > 0,
            remaining,
            ..own
        }
    }

    /// Applies the decision, and counts in this instance's window if it admits. `None` if the store
    /// is down and nothing is admitted without it.
    fn apply(
        &self,
        shared: &SharedLimit,
        decision: Decision,
        client: ClientKey,
        quota: Quota,
        now: Millis,
    ) -> Option<RateLimitStatus> {
        let admit = |remaining: u32| {
            let own = self.window.check_by(client, quota, now);
            RateLimitStatus {
                remaining: own.remaining.min(remaining),
                ..own
            }
        };
        Some(match decision {
            Decision::Admitted(remaining) => admit(remaining),
            Decision::Refused(retry) => {
                let seconds = u32::try_from(retry.as_millis().div_ceil(1000));
                let reset_seconds = seconds.unwrap_or(WINDOW_SECONDS).clamp(1, WINDOW_SECONDS);
                RateLimitStatus {
                    admitted: false,
                    remaining: 0,
                    reset_seconds,
                }
            }
            Decision::Alone(most) => {
                let own = self.window.check_within(client, quota, now, most);
                if own.admitted {
                    shared.admitted_alone(client);
                }
                own
            }
            Decision::Unavailable => return None,
        })
    }
}

/// The limits of one request.
pub struct RequestLimiter<'a> {
    clients: &'a Clients,
    quota: Quota,
    now: Instant,
}

impl<'a> RequestLimiter<'a> {
    /// The limits of a request that arrived at `now`.
    pub(crate) fn new(clients: &'a Clients, limits: &ClientLimits, now: Instant) -> Self {
        Self {
            clients,
            quota: limits.quota,
            now,
        }
    }

    /// This request under other limits.
    pub(crate) fn under(&self, limits: &ClientLimits) -> Self {
        Self::new(self.clients, limits, self.now)
    }

    /// When the request arrived.
    pub fn now(&self) -> Millis {
        self.clients.requests().millis(self.now)
    }

    /// Counts a wrong token of the client.
    pub(crate) fn check_failed_token(&self, client: ClientKey) -> RateCheck<Ticket<'a>> {
        let rate = self.clients.failed_tokens();
        rate.check(client, MAX_FAILED_TOKENS, rate.millis(self.now))
    }
}

impl<'a> Limiter for RequestLimiter<'a> {
    type Ticket = Ticket<'a>;

    fn check(&self, client: ClientKey, now: Millis) -> RateCheck<Ticket<'a>> {
        self.clients.requests().check(client, self.quota, now)
    }

    fn peek(&self, client: ClientKey, now: Millis) -> RateLimitStatus {
        self.clients.requests().peek(client, self.quota, now)
    }
}

/// The rate limit for requests of exempt clients, which are not counted.
pub struct Uncounted<'a, L>(pub &'a L);

impl<L: Limiter> Limiter for Uncounted<'_, L> {
    type Ticket = L::Ticket;

    /// Admits the request, even if other addresses with the client's key have used up the quota.
    fn check(&self, client: ClientKey, now: Millis) -> RateCheck<L::Ticket> {
        RateCheck::Decided(RateLimitStatus {
            admitted: true,
            ..self.peek(client, now)
        })
    }

    fn peek(&self, client: ClientKey, now: Millis) -> RateLimitStatus {
        self.0.peek(client, now)
    }
}

/// A pending check, which only the fleet's store can decide.
pub struct Ticket<'a> {
    rate: &'a Rate,
    shared: &'a Arc<SharedLimit>,
    client: ClientKey,
    quota: Quota,
}

impl Ticket<'_> {
    /// Waits at most 25 ms for the store, and counts an admitted request. Returns the client's
    /// status, if requests are counted, and a refusal if the client is over the limit, or if the
    /// store is down and nothing is admitted without it.
    pub(crate) async fn settle(self) -> (Option<RateLimitStatus>, Result<(), Refusal>) {
        let Self {
            rate,
            shared,
            client,
            quota,
        } = self;
        let decision = shared.decide(client, quota.requests()).await;
        let now = rate.millis(Instant::now());
        let status = rate.apply(shared, decision, client, quota, now);
        let decided = status.ok_or_else(|| {
            let message = "limits are shared, and their store does not answer: try again";
            Refusal::new(Reason::FleetUnavailable, message)
        });
        match rate.counted {
            Counted::FailedTokens => (None, decided.and_then(within_failed_tokens)),
            Counted::Requests => {
                let shown = status.unwrap_or_else(|| rate.window.peek_by(client, quota, now));
                (Some(shown), decided.and_then(within_rate))
            }
        }
    }
}

fn millis_since(started: Instant, now: Instant) -> Millis {
    Millis(millis(now.duration_since(started)))
}
