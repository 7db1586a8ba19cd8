//! One request, from its whole head to the last byte of its answer.
//!
//! The adapter between the gate and a surface ([`Service`]). It answers under deadlines of its own
//! and when the node's whole answer is verified: Pingora's `ProxyHttp` would send the node's status
//! before the body is known, and would make its whole state machine anew for each request. Control
//! flow lives here; what is allowed is the policy's, what is said is `reply`'s, who answers is the
//! surface's.

mod gateway;
mod relay;
mod request_id;
mod service;
mod sidecar;
pub mod stream;
mod voice;

pub use relay::RelayService;
pub use request_id::RequestIds;
pub use service::{About, Admission, Next, Pending, Service, Told};
pub use sidecar::SidecarService;
pub use voice::GateVoice;

use crate::answer::Answer;
use crate::body::{self, Incomplete};
use crate::config::ConnectionsConfig;
use crate::deadline::within;
use crate::gate::{App, Request};
use crate::process::Process;
use crate::reply::{Facts, Persistence, Reply, Style};
use crate::stop::InFlight;
use crate::telemetry::RequestLine;
use http::header::{EXPECT, HOST, ORIGIN, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Version};
use pingora_core::{Error, ErrorType};
use pingora_limits::inflight::Guard;
use portcullis_filters::client::Client;
use portcullis_filters::head;
use portcullis_filters::limit::Standing;
use portcullis_filters::verdict::{Reason, Refusal};
use std::sync::Arc;
use std::time::Duration;
use stream::Unsent;
use tokio::time::Instant;

/// A refused body that is small and already sent is read, so that the connection can stay.
const DISCARD: Duration = Duration::from_millis(50);

/// What every request of a surface needs.
pub struct Edge<S> {
    service: Arc<S>,
    connections: ConnectionsConfig,
    process: Process,
}

/// One request's facts, gathered on its way for headers, log and metrics.
struct Context {
    started: Instant,
    request_id: HeaderValue,
    client: Client,
    standing: Option<Standing>,
    style: Style,
    is_for_pages: bool,
    method: &'static str,
    upstream: Duration,
    outcome: Option<Outcome>,
    /// The client's place among its requests in flight, until the answer is out.
    slot: Option<Guard>,
    _in_flight: InFlight,
}

/// What was answered.
#[derive(Clone, Copy)]
struct Outcome {
    reason: Option<Reason>,
    status: u16,
    bytes: usize,
}

impl<S: Service> Edge<S> {
    /// An edge before `service`.
    pub fn new(service: Arc<S>, connections: ConnectionsConfig, process: Process) -> Self {
        Self { service, connections, process }
    }

    /// A request begins: its facts, and what its head came to.
    fn begin(
        &self,
        request: &Request,
        settings: &S::Settings,
    ) -> (Context, Result<Next<S::Call>, Refusal>) {
        let in_flight = self.process.stop.enter();
        let started = Instant::now();
        let admission = self.service.admit(settings, &request.head(), started);
        let context = Context {
            started,
            request_id: self.process.request_ids.accept_or_mint(&request.header().headers),
            client: admission.client,
            standing: admission.standing,
            style: admission.style,
            is_for_pages: admission.is_for_pages,
            method: "",
            upstream: Duration::ZERO,
            outcome: None,
            slot: None,
            _in_flight: in_flight,
        };
        (context, admission.verdict)
    }

    /// The reply to a request, or `None` if the client is gone.
    async fn judge(
        &self,
        request: &mut Request,
        settings: &S::Settings,
        verdict: Result<Next<S::Call>, Refusal>,
        context: &mut Context,
    ) -> Option<Reply> {
        let Pending { call, slot, expects_continue, max_body, always } = match verdict {
            Ok(Next::Reply(reply)) => return Some(reply),
            Ok(Next::Read(pending)) => pending,
            Err(refusal) => return Some(context.refused(&refusal)),
        };
        if self.process.stop.refuses() && !always {
            let refusal = Refusal::new(Reason::Draining, "shutting down: use another instance");
            return Some(context.refused(&refusal));
        }
        context.slot = Some(slot);
        if expects_continue {
            let told = request.write_continue();
            within(self.connections.body_timeout, told).await?.ok()?;
        }
        let body = match body::read(request, self.connections.body_timeout, max_body).await {
            Ok(body) => body,
            Err(Incomplete::Refused(refusal)) => return Some(context.refused(&refusal)),
            Err(Incomplete::Gone) => return None,
        };
        let mut about = About {
            request_id: context.request_id.to_str().unwrap_or_default(),
            traceparent: head::traceparent(&request.header().headers),
            metrics: &self.process.metrics,
            method: "",
            upstream: Duration::ZERO,
        };
        let reply = self.service.answer(settings, call, body, &mut about).await;
        (context.method, context.upstream) = (about.method, about.upstream);
        Some(context.told_to_wait(reply))
    }

    /// Sends the reply, and leaves the connection in a state in which it can be used again, or
    /// closed without the reply being lost.
    async fn send(
        &self,
        request: &mut Request,
        settings: &S::Settings,
        mut reply: Reply,
        context: &mut Context,
    ) -> pingora_core::Result<()> {
        let bytes = reply.length();
        context.outcome = Some(Outcome { reason: reply.reason, status: reply.status, bytes });
        let ends = ends_where_it_says(request).await;
        if !ends {
            request.linger();
        }
        let header = request.header();
        let is_head = header.method == Method::HEAD;
        let chunks = header.version == Version::HTTP_11;
        let last = !ends
            || request.is_old(context.started)
            || self.process.stop.has_begun()
            || (reply.rest.is_some() && !chunks);
        let persistence = match header.version {
            _ if last || !request.keeps_alive() => Persistence::Closes,
            Version::HTTP_11 => Persistence::Stays,
            _ => Persistence::StaysIfTold,
        };
        let told = S::told(settings);
        let origin = header.headers.get(ORIGIN);
        let facts = Facts {
            request_id: &context.request_id,
            quota: context.standing.map(|standing| (told.quota, standing)),
            // what a shared cache keeps is the same for every page, and for none
            cross_origin: told
                .cors
                .filter(|_| context.is_for_pages)
                .filter(|_| origin.is_some() || reply.cache_control.is_some())
                .map(|cors| (cors, origin)),
            persistence,
            chunks,
            without_body: is_head,
        };
        let answer = Answer::new(request, &reply, &facts);
        let rest = reply.rest.take().filter(|_| !is_head);
        if last {
            request.close();
        }
        let patience = self.connections.write_timeout;
        stream::in_time(answer.send(request), patience).await?;
        let Some(rest) = rest else { return Ok(()) };
        let Some(outcome) = &mut context.outcome else { return Ok(()) };
        let rest = stream::Body { rest, sent: &mut outcome.bytes };
        match stream::stream(request, rest, patience).await {
            Err(Unsent::Cut) => {
                outcome.reason = Some(Reason::StoreUnavailable);
                Error::e_explain(ErrorType::InternalError, "the rest can not be had")
            }
            Err(Unsent::Gone(error)) => Err(error),
            Ok(()) => Ok(()),
        }
    }

    /// Logs and counts a request. A client that left before its answer has none.
    fn is_over(&self, context: &Context) {
        if let Some(outcome) = context.outcome {
            self.process.request_is_over(&RequestLine {
                surface: S::SURFACE,
                request_id: context.request_id(),
                client: context.client,
                method: context.method,
                reason: outcome.reason,
                status: outcome.status,
                bytes: outcome.bytes,
                upstream: context.upstream,
                total: context.started.elapsed(),
            });
        }
    }
}

/// Whether the end of the request is known and reached, so that what comes next on the connection
/// is another request. Chunks are not trusted with that: Pingora reads some that others do not.
async fn ends_where_it_says(request: &mut Request) -> bool {
    let header = request.header();
    // there each has a stream for itself
    if header.version == Version::HTTP_2 {
        return true;
    }
    let headers = &header.headers;
    // nor is whoever leaves out the one field that HTTP/1.1 demands
    if headers.contains_key(TRANSFER_ENCODING) || !headers.contains_key(HOST) {
        return false;
    }
    // the client may or may not send a body that it was not told to send
    let awaits_continue = headers.contains_key(EXPECT);
    request.is_body_read() || (!awaits_continue && body::discard(request, DISCARD).await)
}

impl Context {
    fn request_id(&self) -> &str {
        self.request_id.to_str().unwrap_or_default()
    }

    fn refused(&self, refusal: &Refusal) -> Reply {
        self.told_to_wait(Reply::refusal(self.style, refusal, self.request_id()))
    }

    /// A client over its rate is told when its oldest request leaves the window.
    fn told_to_wait(&self, mut reply: Reply) -> Reply {
        if reply.reason == Some(Reason::RateLimited)
            && let Some(standing) = self.standing.filter(|standing| !standing.admitted)
        {
            reply.retry_after = Some(standing.reset_seconds);
        }
        reply
    }
}

impl<S: Service> App for Edge<S> {
    async fn serve(&self, request: &mut Request) -> bool {
        let settings = self.service.settings();
        let (mut context, verdict) = self.begin(request, &settings);
        let sent = match self.judge(request, &settings, verdict, &mut context).await {
            Some(reply) => self.send(request, &settings, reply, &mut context).await.is_ok(),
            // nobody is there to be answered
            None => false,
        };
        self.is_over(&context);
        sent
    }
}
