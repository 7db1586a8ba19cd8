//! What the edge asks of a surface: to judge a head, and to answer a body.

use crate::reply::{Cors, ErrorFormat, Reply};
use crate::telemetry::{Metrics, Surface};
use bytes::Bytes;
use http::HeaderValue;
use pingora_limits::inflight::Guard;
use portcullis_filters::client::Client;
use portcullis_filters::head::Head;
use portcullis_filters::limit::Standing;
use portcullis_filters::verdict::Refusal;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// A surface behind the edge.
pub trait Service: Send + Sync + 'static {
    /// Which one it is.
    const SURFACE: Surface;
    /// How it words what no head of a request is there for.
    const STYLE: ErrorFormat;
    /// What is in force for one request, from its head to its answer.
    type Settings: Send + Sync;
    /// What a head says by itself, whenever it comes.
    type Judged: Send + Sync;
    /// What the policy made of a head that passed.
    type Call: Send;

    /// The settings in force now.
    fn settings(&self) -> Arc<Self::Settings>;

    /// What every answer tells of these settings.
    fn told(settings: &Self::Settings) -> Told<'_>;

    /// Judges what holds of a head for as long as these settings do.
    fn judge(&self, settings: &Self::Settings, head: &Head<'_>) -> Self::Judged;

    /// Admits a request with this head, judged before, that came at `now`.
    fn admit(
        &self,
        settings: &Self::Settings,
        judged: &Self::Judged,
        head: &Head<'_>,
        now: Instant,
    ) -> Admission<Self::Call>;

    /// Judges the body of an admitted call, and answers it.
    fn answer(
        &self,
        settings: &Self::Settings,
        call: Self::Call,
        body: Bytes,
        about: &mut About<'_>,
    ) -> impl Future<Output = Reply> + Send;

    /// How a peer stands with its limit, without counting anything; for whoever has one.
    fn standing(&self, peer: Client) -> Option<Standing>;
}

/// What every answer of a surface tells.
#[derive(Clone, Copy, Debug)]
pub struct Told<'a> {
    /// `RateLimit-Policy`.
    pub quota: &'a HeaderValue,
    /// Which web pages may read answers, if any may.
    pub cors: Option<Cors<'a>>,
}

/// What came of a head.
#[derive(Debug)]
pub struct Admission<C> {
    /// Who sent it.
    pub client: Client,
    /// How the client stands with its rate limit, where it may know.
    pub standing: Option<Standing>,
    /// How a refusal is worded.
    pub style: ErrorFormat,
    /// Whether web pages may read the answer, if they may read any.
    pub is_for_pages: bool,
    /// What to do.
    pub verdict: Result<Next<C>, Refusal>,
}

/// What to do with a request whose head passed.
#[derive(Debug)]
pub enum Next<C> {
    /// Answer it: there is no body to judge.
    Reply(Reply),
    /// Read its body, then ask [`Service::answer`].
    Read(Pending<C>),
}

/// A call whose body is to be read.
#[derive(Debug)]
pub struct Pending<C> {
    /// What the policy made of the head.
    pub call: C,
    /// The client's place among its requests in flight, held until the answer is out.
    pub slot: Guard,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Bytes that the body may have.
    pub max_body: usize,
    /// Whether it is answered while the process is shutting down, too.
    pub always: bool,
}

/// A request that is being answered: what its surface may know of it, and what it tells back for
/// the log.
pub struct About<'a> {
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
