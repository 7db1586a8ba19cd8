//! One request, from its whole head to the last byte of its answer.
//!
//! The adapter between the gate and a surface ([`Service`]). It answers under deadlines of its own
//! and when the node's whole answer is verified: Pingora's `ProxyHttp` would send the node's status
//! before the body is known, and would make its whole state machine anew for each request. Control
//! flow lives here; what is allowed is the policy's, what is said is `reply`'s, who answers is the
//! surface's.

mod gateway;
mod head;
mod relay;
mod sidecar;
mod surface;
pub mod surfaces;
mod voice;

pub use relay::RelayService;
pub use sidecar::SidecarService;
pub use surface::{About, Admission, Next, Pending, Service, Told};
pub use voice::GateVoice;

use crate::config::ConnectionsConfig;
use crate::http::RequestId;
use crate::http::answer::Answer;
use crate::http::body::{self, Incomplete};
use crate::http::drain::InFlight;
use crate::http::process::Process;
use crate::http::stream::{self, Unsent};
use crate::http::{App, Request};
use crate::io::deadline::within;
use crate::reply::{ErrorFormat, Persistence, Reply, ResponseContext};
use crate::telemetry::RequestLine;
use head::ReadHead;
use http::Version;
use pingora_core::{Error, ErrorType};
use pingora_limits::inflight::Guard;
use portcullis_filters::client::Client;
use portcullis_filters::limit::Standing;
use portcullis_filters::verdict::{Reason, Refusal};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// What every request of a surface needs.
pub struct Edge<S> {
    service: Arc<S>,
    connections: ConnectionsConfig,
    process: Process,
}

/// One request's facts, gathered on its way for headers, log and metrics.
struct Context {
    started: Instant,
    request_id: RequestId,
    client: Client,
    standing: Option<Standing>,
    style: ErrorFormat,
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

    /// A request begins: its facts, and what its head came to: the reply, or what is to be read.
    fn begin(
        &self,
        request: &Request,
        head: &ReadHead<S>,
    ) -> (Context, Option<Reply>, Option<Pending<S::Call>>) {
        let in_flight = self.process.stop.enter();
        let started = Instant::now();
        let ReadHead { settings, judged, .. } = head;
        let admission = self.service.admit(settings, judged, &request.head(), started);
        let given = head.given_request_id(request);
        let context = Context {
            started,
            request_id: self.process.request_ids.accept_or_mint(given),
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
        let reply = match admission.verdict {
            Ok(Next::Reply(reply)) => reply,
            Ok(Next::Read(pending)) if self.process.stop.refuses() && !pending.always => {
                let message = "shutting down: use another instance";
                context.refused(&Refusal::new(Reason::Draining, message))
            }
            Ok(Next::Read(pending)) => return (context, None, Some(pending)),
            Err(refusal) => context.refused(&refusal),
        };
        (context, Some(reply), None)
    }

    /// The reply to a request whose body is to be read, or `None` if the client is gone.
    async fn read(
        &self,
        request: &mut Request,
        head: &ReadHead<S>,
        pending: Pending<S::Call>,
        context: &mut Context,
    ) -> Option<Reply> {
        let Pending { call, slot, expects_continue, max_body, .. } = pending;
        context.slot = Some(slot);
        if expects_continue {
            // boxed, because few clients wait for it
            let told = Box::pin(request.write_continue());
            within(self.connections.body_timeout, told).await?.ok()?;
        }
        let body = match body::read(request, self.connections.body_timeout, max_body).await {
            Ok(body) => body,
            Err(Incomplete::Refused(refusal)) => return Some(context.refused(&refusal)),
            Err(Incomplete::Gone) => return None,
        };
        let mut about = About {
            request_id: context.request_id.as_str(),
            traceparent: head.traceparent(request),
            metrics: &self.process.metrics,
            method: "",
            upstream: Duration::ZERO,
        };
        let mut reply = self.service.answer(&head.settings, call, body, &mut about).await;
        (context.method, context.upstream) = (about.method, about.upstream);
        context.tell_to_wait(&mut reply);
        Some(reply)
    }

    /// Sends the reply, and leaves the connection in a state in which it can be used again, or
    /// closed without the reply being lost.
    async fn send(
        &self,
        request: &mut Request,
        head: &ReadHead<S>,
        reply: &mut Reply,
        context: &mut Context,
    ) -> pingora_core::Result<()> {
        let bytes = reply.body.length();
        context.outcome = Some(Outcome { reason: reply.reason, status: reply.status, bytes });
        let ends = head.reaches_end(request).await;
        if !ends {
            request.linger();
        }
        let chunks = head.version == Version::HTTP_11;
        let last = !ends
            || request.is_old(context.started)
            || self.process.stop.has_begun()
            || (reply.rest.is_some() && !chunks);
        let persistence = match head.version {
            _ if last || !request.keeps_alive() => Persistence::Close,
            Version::HTTP_11 => Persistence::KeepAlive,
            _ => Persistence::ExplicitKeepAlive,
        };
        // in a block of its own, so that none of it is there while the client reads
        let answer = {
            let told = S::told(&head.settings);
            let origin = head.origin(request);
            let facts = ResponseContext {
                request_id: context.request_id.as_str(),
                quota: context.standing.map(|standing| (told.quota, standing)),
                // what a shared cache keeps is the same for every page, and for none
                cross_origin: told
                    .cors
                    .filter(|_| context.is_for_pages)
                    .filter(|_| origin.is_some() || reply.cache_control.is_some())
                    .map(|cors| (cors, origin)),
                persistence,
                chunks,
                without_body: head.is_head,
            };
            Answer::new(request, reply, &facts)
        };
        let rest = reply.rest.take().filter(|_| !head.is_head);
        if last {
            request.close();
        }
        let patience = self.connections.write_timeout;
        stream::in_time(pin!(answer.send(request)), patience).await?;
        let Some(rest) = rest else { return Ok(()) };
        let Some(outcome) = &mut context.outcome else { return Ok(()) };
        let rest = stream::Body { rest, sent: &mut outcome.bytes };
        // boxed, because few answers have one
        match Box::pin(stream::stream(request, rest, patience)).await {
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
                request_id: context.request_id.as_str(),
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

impl Context {
    fn refused(&self, refusal: &Refusal) -> Reply {
        let mut reply = Reply::refusal(self.style, refusal, self.request_id.as_str());
        self.tell_to_wait(&mut reply);
        reply
    }

    /// A client over its rate is told when its oldest request leaves the window.
    fn tell_to_wait(&self, reply: &mut Reply) {
        if reply.reason == Some(Reason::RateLimited)
            && let Some(standing) = self.standing.filter(|standing| !standing.admitted)
        {
            reply.retry_after = Some(standing.reset_seconds);
        }
    }
}

impl<S: Service> App for Edge<S> {
    async fn serve(&self, request: &mut Request) -> bool {
        let head = ReadHead::of(request, &*self.service);
        let (mut context, mut reply, pending) = self.begin(request, &head);
        if let Some(pending) = pending {
            reply = self.read(request, &head, pending, &mut context).await;
        }
        let sent = match &mut reply {
            Some(reply) => self.send(request, &head, reply, &mut context).await.is_ok(),
            // nobody is there to be answered
            None => false,
        };
        self.is_over(&context);
        request.note(head);
        sent
    }
}
