//! What a surface decides about its requests: it judges a head, and answers a body.

use crate::http::clients::{self, Running};
use crate::http::rate::RequestLimiter;
use crate::reply::{Cors, ErrorFormat, Reply};
use crate::telemetry::{self, Metrics, Stage};
use bytes::Bytes;
use pingora_limits::inflight::Guard;
use portcullis_filters::client::{Client, ClientKey};
use portcullis_filters::head::Head;
use portcullis_filters::limit::RateLimitStatus;
use portcullis_filters::policy::Admission;
use portcullis_filters::position::{ChainPosition, MalformedPosition};
use std::sync::Arc;
use std::time::Duration;

/// A surface behind the proxy: its policy, its settings, its answers.
pub trait Surface: Send + Sync + 'static {
    /// Its name in logs and metrics.
    const NAME: telemetry::Surface;
    /// The envelope of errors to requests that have no head.
    const STYLE: ErrorFormat;
    /// What is in force for one request, from its head to its answer.
    type Settings: clients::Settings;
    /// What a head says by itself, whenever it arrives.
    type Judged: Send + Sync + 'static;
    /// What the policy made of a head that passed.
    type Call: Send;

    /// What is in force, and the clients.
    fn running(&self) -> &Running<Self::Settings>;

    /// Which web pages may read the responses at this request target, if any may.
    fn cors<'a>(settings: &'a Self::Settings, target: &[u8]) -> Option<Cors<'a>>;

    /// Whether a request target is one of the surface's: others are not logged.
    fn knows(target: &[u8]) -> bool;

    /// The envelope of a refusal at this request target.
    fn style(_target: &[u8]) -> ErrorFormat {
        Self::STYLE
    }

    /// Judges what holds of a head for as long as these settings do.
    fn judge(&self, settings: &Self::Settings, head: &Head<'_>) -> Self::Judged;

    /// Admits a request with this judged head.
    fn admit(
        &self,
        settings: &Self::Settings,
        judged: &Self::Judged,
        head: &Head<'_>,
        limiter: &RequestLimiter<'_>,
    ) -> Admission<Self::Call, Guard>;

    /// Whether a call is answered while the process drains, too.
    fn outlasts_drain(_call: &Self::Call) -> bool {
        false
    }

    /// Inspects the body of an admitted call, and answers it.
    fn answer(
        &self,
        settings: &Arc<Self::Settings>,
        call: Self::Call,
        body: Bytes,
        context: &mut RequestContext<'_>,
    ) -> impl Future<Output = Reply> + Send;

    /// The peer's rate-limit status, read-only; `None` if the surface shows none before admission.
    fn standing(&self, peer: Client) -> Option<RateLimitStatus> {
        Some(self.running().clients().standing(peer))
    }
}

/// Request-scoped data: read by the surface, which fills in the log fields.
pub struct RequestContext<'a> {
    /// The request's id.
    pub request_id: &'a str,
    /// Who sent it.
    pub client: ClientKey,
    /// The trace context to pass on.
    pub traceparent: Option<&'a [u8]>,
    /// Filled in, unless `None`: the stages of the request, for its trace.
    pub stages: Option<Vec<Stage>>,
    /// The position of the chain that it must be answered from, or a later one, if it names one.
    pub chain_position: Result<Option<ChainPosition>, MalformedPosition>,
    /// Whether the client accepts gzip.
    pub accepts_gzip: bool,
    /// The metrics.
    pub metrics: &'a Metrics,
    /// Filled in: the method or operation, one of a closed list.
    pub method: &'static str,
    /// Filled in: the time spent on the node.
    pub upstream: Duration,
    /// Filled in: the place of the node's URL that answered, if one did.
    pub node: Option<usize>,
}
