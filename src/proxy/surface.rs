//! What a surface decides context its requests: it judges a head, and answers a body.

use crate::reply::{Cors, ErrorFormat, Reply};
use crate::telemetry::{self, Metrics};
use bytes::Bytes;
use http::HeaderValue;
use pingora_limits::inflight::Guard;
use portcullis_filters::client::Client;
use portcullis_filters::head::Head;
use portcullis_filters::limit::RateLimitStatus;
use portcullis_filters::verdict::Refusal;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A surface behind the proxy: its policy, its settings, its answers.
pub trait Surface: Send + Sync + 'static {
    /// Its name in logs and metrics.
    const NAME: telemetry::Surface;
    /// The envelope of errors to requests that have no head.
    const STYLE: ErrorFormat;
    /// What is in force for one request, from its head to its answer.
    type Settings: Send + Sync + 'static;
    /// What a head says by itself, whenever it arrives.
    type Judged: Send + Sync + 'static;
    /// What the policy made of a head that passed.
    type Call: Send;

    /// The settings in force.
    fn settings(&self) -> Arc<Self::Settings>;

    /// What every response carries of these settings.
    fn headers(settings: &Self::Settings) -> SurfaceHeaders<'_>;

    /// Judges what holds of a head for as long as these settings do.
    fn judge(&self, settings: &Self::Settings, head: &Head<'_>) -> Self::Judged;

    /// Admits a request with this judged head, which arrived at `now`.
    fn admit(
        &self,
        settings: &Self::Settings,
        judged: &Self::Judged,
        head: &Head<'_>,
        now: Instant,
    ) -> Admission<Self::Call>;

    /// Inspects the body of an admitted call, and answers it.
    fn answer(
        &self,
        settings: &Self::Settings,
        call: Self::Call,
        body: Bytes,
        context: &mut RequestContext<'_>,
    ) -> impl Future<Output = Reply> + Send;

    /// The peer's rate-limit status, read-only; `None` if the surface shows none before admission.
    fn standing(&self, peer: Client) -> Option<RateLimitStatus>;
}

/// What every response of a surface carries.
#[derive(Clone, Copy, Debug)]
pub struct SurfaceHeaders<'a> {
    /// `RateLimit-Policy`.
    pub quota: &'a HeaderValue,
    /// Which web pages may read responses, if any may.
    pub cors: Option<Cors<'a>>,
}

/// The outcome of judging a head.
#[derive(Debug)]
pub struct Admission<C> {
    /// The client.
    pub client: Client,
    /// The client's rate-limit status, where it may know.
    pub standing: Option<RateLimitStatus>,
    /// The envelope of a refusal.
    pub style: ErrorFormat,
    /// Whether web pages may read the response, if they may read any.
    pub is_for_pages: bool,
    /// What to do.
    pub verdict: Result<Next<C>, Refusal>,
}

/// What to do with a request whose head passed.
#[derive(Debug)]
pub enum Next<C> {
    /// Answer it: there is no body to inspect.
    Reply(Reply),
    /// Read its body, then call [`Surface::answer`].
    Read(Pending<C>),
}

/// A call whose body is to be read.
#[derive(Debug)]
pub struct Pending<C> {
    /// What the policy made of the head.
    pub call: C,
    /// The client's share of its requests in flight, held until the response is out.
    pub slot: Guard,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Bytes that the body may have.
    pub max_body: usize,
    /// Whether it is answered while the process drains, too.
    pub always: bool,
}

/// Request-scoped data: read by the surface, which fills in the log fields.
pub struct RequestContext<'a> {
    /// The request's id.
    pub request_id: &'a str,
    /// The trace context to pass on.
    pub traceparent: Option<&'a [u8]>,
    /// The metrics.
    pub metrics: &'a Metrics,
    /// Filled in: the method or operation, one of a closed list.
    pub method: &'static str,
    /// Filled in: the time spent on the node.
    pub upstream: Duration,
}
