//! One request, from its whole head to the last byte of its answer.
//!
//! The adapter between Pingora's `ProxyHttp` and the gateway. It answers in `request_filter`, under
//! deadlines of its own, because a native forward would send the node's status before the body is
//! known. `upstream_peer` is an error: no request can slip past. Control flow lives here; what is
//! allowed is the policy's, what is said is `reply`'s, who is asked is `gateway`'s.

mod request_id;
mod voice;
mod write;

pub use request_id::RequestIds;
pub use voice::GateVoice;

use crate::body::{self, Incomplete};
use crate::config::{ConnectionsConfig, CorsOrigins};
use crate::gate;
use crate::gateway::Gateway;
use crate::reply::Reply;
use crate::stop::{InFlight, Stop};
use crate::telemetry::{Log, Metrics, RequestLine, Surface, Verdict};
use async_trait::async_trait;
use http::HeaderValue;
use pingora_core::protocols::http::ServerSession;
use pingora_core::upstreams::peer::HttpPeer;
use pingora_core::{Error, ErrorType};
use pingora_proxy::{FailToProxy, ProxyHttp, Session};
use portcullis_filters::client::Client;
use portcullis_filters::head::{self, Head};
use portcullis_filters::limit::Standing;
use portcullis_filters::policy::{Admission, Admitted};
use portcullis_filters::rpc::Method;
use portcullis_filters::verdict::{Reason, Refusal};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use write::Writer;

/// A refused body that is small and already sent is read, so that the connection can stay.
const DISCARD: Duration = Duration::from_millis(50);

/// What every request needs.
pub struct Edge {
    gateway: Arc<Gateway>,
    connections: ConnectionsConfig,
    writer: Writer,
    request_ids: Arc<RequestIds>,
    stop: Arc<Stop>,
    metrics: Arc<Metrics>,
    log: Log,
}

/// One request's facts, gathered on its way for headers, log and metrics.
pub struct Context {
    started: Instant,
    request_id: HeaderValue,
    client: Option<Client>,
    standing: Option<Standing>,
    cross_origin: Option<HeaderValue>,
    method: Option<Method>,
    upstream: Duration,
    outcome: Option<Outcome>,
    _in_flight: InFlight,
}

#[derive(Clone, Copy)]
struct Outcome {
    verdict: Verdict,
    reason: Option<Reason>,
    status: u16,
    bytes: usize,
}

/// A reply, and whether the client may go on to use the connection.
struct Judged {
    verdict: Verdict,
    reply: Reply,
}

impl Edge {
    /// An edge before `gateway`.
    pub fn new(
        gateway: Arc<Gateway>,
        connections: ConnectionsConfig,
        cors: CorsOrigins,
        requests_per_minute: u32,
        request_ids: Arc<RequestIds>,
        stop: Arc<Stop>,
        metrics: Arc<Metrics>,
        log: Log,
    ) -> Self {
        let writer = Writer::new(cors, requests_per_minute, connections.write_timeout);
        Self { gateway, connections, writer, request_ids, stop, metrics, log }
    }

    async fn judge(&self, session: &mut ServerSession, context: &mut Context) -> Option<Judged> {
        let policy = self.gateway.policy();
        let Admission { client, standing, verdict } = {
            let raw = session.as_http1().filter(|_| head::needs_raw(&session.req_header().headers));
            let raw = raw.map(|http1| http1.get_headers_raw_bytes()).unwrap_or_default();
            let request = session.req_header();
            let head = Head {
                method: request.method.as_str(),
                target: request.raw_path(),
                headers: &request.headers,
                raw: &raw,
                peer: gate::opened(session).and_then(gate::Connection::peer),
            };
            self.gateway.admit(&policy, &head, context.started)
        };
        context.client = Some(client);
        context.standing = Some(standing);
        let call = match verdict {
            Ok(Admitted::Health) => return Some(Judged::answered(Reply::health())),
            Ok(Admitted::Preflight) => return Some(Judged::answered(Reply::no_content())),
            Ok(Admitted::Call(call)) => call,
            Err(refusal) => return Some(self.refuse(&refusal, context)),
        };
        if self.stop.refuses() {
            return Some(self.fail(
                Reason::Draining,
                "shutting down: use another instance",
                context,
            ));
        }
        if call.expects_continue {
            session.write_continue_response().await.ok()?;
        }
        let body = match body::read(session, self.connections.body_timeout).await {
            Ok(body) => body,
            Err(Incomplete::Refused(refusal)) => return Some(self.refuse(&refusal, context)),
            Err(Incomplete::Gone) => return None,
        };
        let permit = match policy.inspect(&body) {
            Ok(permit) => permit,
            Err(refusal) => return Some(self.refuse(&refusal, context)),
        };
        context.method = Some(permit.method());
        self.metrics.call(permit.method(), body.len());
        let traceparent = head::traceparent(&session.req_header().headers);
        let answer = self.gateway.answer(&permit, traceparent, &mut context.upstream).await;
        Some(match answer {
            Ok(answer) => Judged::answered(Reply::answer(permit.id().as_str(), answer)),
            Err(fault) => Judged {
                verdict: Verdict::Failed,
                reply: Reply::fault(fault, permit.id().as_str(), context.request_id()),
            },
        })
    }

    fn refuse(&self, refusal: &Refusal, context: &Context) -> Judged {
        let retry_after = context.standing.map_or(1, |standing| standing.reset_seconds);
        let reply = Reply::refusal(refusal, retry_after, context.request_id());
        Judged { verdict: Verdict::Refused, reply }
    }

    fn fail(&self, reason: Reason, message: &'static str, context: &Context) -> Judged {
        let reply = Reply::error(reason, message, None, context.request_id());
        Judged { verdict: Verdict::Failed, reply }
    }

    /// Sends the reply, and leaves the connection in a state in which it can be used again or
    /// closed without losing it.
    async fn send(
        &self,
        session: &mut ServerSession,
        judged: Judged,
        context: &mut Context,
    ) -> pingora_core::Result<()> {
        let Judged { verdict, reply } = judged;
        let outcome =
            Outcome { verdict, reason: reply.reason, status: reply.status, bytes: reply.length() };
        let awaits_continue = session.req_header().headers.contains_key(http::header::EXPECT);
        if !session.is_body_done() && (awaits_continue || !body::discard(session, DISCARD).await) {
            session.set_keepalive(None);
            if let Some(connection) = gate::opened(session) {
                connection.linger();
            }
        }
        let is_old = |connection: &gate::Connection| connection.is_old(context.started);
        let old = gate::opened(session).is_some_and(is_old);
        if old || self.stop.has_begun() {
            session.set_keepalive(None);
        }
        context.outcome = Some(outcome);
        self.writer.write(session, reply, context).await
    }
}

impl Judged {
    fn answered(reply: Reply) -> Self {
        Self { verdict: Verdict::Answered, reply }
    }
}

impl Context {
    fn request_id(&self) -> &str {
        self.request_id.to_str().unwrap_or_default()
    }
}

#[async_trait]
impl ProxyHttp for Edge {
    // boxed: Pingora moves it through each of its states
    type CTX = Box<Context>;

    fn new_ctx(&self) -> Box<Context> {
        Box::new(Context {
            started: Instant::now(),
            request_id: HeaderValue::from_static(""),
            client: None,
            standing: None,
            cross_origin: None,
            method: None,
            upstream: Duration::ZERO,
            outcome: None,
            _in_flight: self.stop.enter(),
        })
    }

    async fn early_request_filter(
        &self,
        session: &mut Session,
        context: &mut Box<Context>,
    ) -> pingora_core::Result<()> {
        if let Some(connection) = gate::opened(session) {
            connection.head_is_read();
        }
        // Pingora waits without end for the next request unless told each time
        let keeps_alive = session.get_keepalive().is_some();
        session
            .set_keepalive(keeps_alive.then_some(self.connections.idle_timeout.as_secs().max(1)));
        // reads of the body are under one deadline of their own
        session.set_read_timeout(None);
        let headers = &session.req_header().headers;
        context.request_id = self.request_ids.accept_or_mint(headers);
        context.cross_origin = headers.get(http::header::ORIGIN).cloned();
        Ok(())
    }

    async fn request_filter(
        &self,
        session: &mut Session,
        context: &mut Box<Context>,
    ) -> pingora_core::Result<bool> {
        let session = session.as_downstream_mut();
        match self.judge(session, context).await {
            Some(judged) => self.send(session, judged, context).await?,
            // nobody is there to be answered
            None => session.set_keepalive(None),
        }
        Ok(true)
    }

    async fn upstream_peer(
        &self,
        _: &mut Session,
        _: &mut Box<Context>,
    ) -> pingora_core::Result<Box<HttpPeer>> {
        Error::e_explain(ErrorType::InternalError, "every request is answered before this")
    }

    async fn fail_to_proxy(&self, _: &mut Session, _: &Error, _: &mut Box<Context>) -> FailToProxy {
        // the client is gone or did not take its answer: there is nothing to send
        FailToProxy { error_code: 0, can_reuse_downstream: false }
    }

    fn suppress_error_log(&self, _: &Session, _: &Box<Context>, _: &Error) -> bool {
        true
    }

    async fn logging(&self, session: &mut Session, _: Option<&Error>, context: &mut Box<Context>) {
        if let Some(connection) = gate::opened(session) {
            connection.request_is_over();
        }
        let total = context.started.elapsed();
        // a client that left before its answer has none
        let Some(outcome) = context.outcome else { return };
        self.metrics.request(outcome.verdict, outcome.reason, outcome.bytes, total);
        if let Some(client) = &context.client {
            self.log.request(&RequestLine {
                surface: Surface::Gateway.name(),
                request_id: context.request_id(),
                client: client.shown(self.log.shown()),
                method: context.method.map_or("", Method::name),
                verdict: outcome.verdict,
                reason: outcome.reason,
                status: outcome.status,
                bytes: outcome.bytes,
                upstream: context.upstream,
                total,
            });
        }
    }
}
