//! The heart: every request of a surface is a run of Pingora's [`ProxyHttp`] phases.
//!
//! `new_ctx` starts the [`Context`]; `request_filter` admits the head, reads the bounded body, has
//! the surface inspect and answer it, and sends the response; `logging` writes one log line and
//! counts. `upstream_peer` always fails, so nothing reaches the node without a permit: native
//! forwarding would send the node's status before its body is verified, has no deadline for the
//! whole exchange, and aborts a write when its client leaves. The policy decides what is allowed,
//! `reply` what a response says. Next: `exchange`, then `gateway`, `relay`, `sidecar`.

mod errors;
mod exchange;
mod gateway;
mod reference;
mod relay;
mod sidecar;
mod waiting_head;

pub use errors::SurfaceErrors;

use crate::gateway::Gateway;
use crate::http::certificates::Certificates;
use crate::http::clients::{self, Clients, RequestLimiter, Running, Settings as _, Ticket};
use crate::http::context::{InFlight, ServerContext};
use crate::http::{ErrorResponder, Handoff, RequestId, Trust};
use crate::relay::Relay;
use crate::reply::{Cors, ErrorFormat, Reply};
use crate::sidecar::Sidecar;
use async_trait::async_trait;
use bytes::Bytes;
use exchange::Exchange;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method, Version};
use pingora::http::RequestHeader;
use pingora::modules::http::HttpModules;
use pingora::server::configuration::ServerConf;
use pingora::upstreams::peer::HttpPeer;
use pingora::{Error, ErrorType, Result};
use pingora_limits::inflight::Guard;
use pingora_proxy::{FailToProxy, HttpProxy, ProxyHttp, Session, http_proxy};
use portcullis_base::config::ConnectionsConfig;
use portcullis_base::io::Held;
use portcullis_base::telemetry::{
    self, HttpLine, Metrics, RequestLine, RequestRecord, TraceContext, Tracer,
};
use portcullis_filters::client::{Client, ClientKey};
use portcullis_filters::head::{Head, traceparent};
use portcullis_filters::limit::RateLimitStatus;
use portcullis_filters::policy::Admission;
use portcullis_filters::position::{ChainPosition, MalformedPosition};
use portcullis_filters::verdict::Reason;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::time::Instant;

/// A surface behind the proxy: its policy, its settings, its answers.
pub trait Surface: Send + Sync + 'static {
    /// Its name in logs and metrics.
    const NAME: telemetry::Surface;
    /// The envelope of errors to requests whose head was not read.
    const STYLE: ErrorFormat;
    /// The settings in force for one request, from its head to its answer.
    type Settings: clients::Settings;
    /// The verdict on a head alone, whenever it arrives.
    type Judged: Send + Sync + 'static;
    /// The policy's result for a head that passed.
    type Call: Send;

    /// The settings in force, and the clients.
    fn running(&self) -> &Running<Self::Settings>;

    /// Which web pages may read the responses at this request target, if any may.
    fn cors<'a>(settings: &'a Self::Settings, target: &[u8]) -> Option<Cors<'a>>;

    /// Whether the surface has this request target; others are not logged.
    fn knows(target: &[u8]) -> bool;

    /// The envelope of a refusal at this request target.
    fn style(_target: &[u8]) -> ErrorFormat {
        Self::STYLE
    }

    /// Judges a head alone; the verdict is valid as long as these settings are.
    fn judge(&self, settings: &Self::Settings, head: &Head<'_>) -> Self::Judged;

    /// Admits a request with this judged head.
    fn admit<'a>(
        &self,
        settings: &Self::Settings,
        judged: &Self::Judged,
        head: &Head<'_>,
        limiter: &RequestLimiter<'a>,
    ) -> Admission<Self::Call, Guard, Ticket<'a>>;

    /// Whether a call is answered even while the process drains.
    fn outlasts_drain(_call: &Self::Call) -> bool {
        false
    }

    /// Records a refusal, beyond the counts of all surfaces.
    fn record_refusal(_target: &[u8], _reason: Reason, _metrics: &Metrics) {}

    /// Inspects the body of an admitted call, and answers it. Writes to the request's record.
    fn answer(
        &self,
        settings: &Arc<Self::Settings>,
        call: Self::Call,
        body: Bytes,
        context: &RequestContext<'_>,
        record: &mut RequestRecord,
    ) -> impl Future<Output = Reply> + Send;

    /// The peer's rate-limit status, read-only; `None` if the surface shows none before admission.
    fn rate_limit(&self, peer: Client) -> Option<RateLimitStatus> {
        let settings = self.running().settings();
        let limits = settings.limits_of(peer);
        Some(self.running().clients().rate_limit(peer, limits))
    }
}

/// Request-scoped data for the surface.
pub struct RequestContext<'a> {
    /// The request's id.
    pub request_id: &'a str,
    /// The client that sent it.
    pub client: ClientKey,
    /// The trace context to pass on.
    pub traceparent: Option<&'a [u8]>,
    /// The chain position that the request names, if any: its answer must be from there or later.
    pub chain_position: Result<Option<ChainPosition>, MalformedPosition>,
    /// Whether the client accepts gzip.
    pub accepts_gzip: bool,
    /// The metrics.
    pub metrics: &'a Metrics,
}

/// A surface, as Pingora runs it: one type for all surfaces, so Pingora's proxy is compiled once.
pub struct Proxy {
    server: Box<dyn Serve>,
    write_timeout: Duration,
    process: ServerContext,
    errors: Arc<dyn ErrorResponder>,
}

/// The phases that depend on the surface.
trait Serve: Send + Sync {
    /// Answers the request of a session, and returns that nothing is to be forwarded. Fails if the
    /// session is not from the gate.
    fn serve<'a>(
        &'a self,
        session: &'a mut Session,
        context: &'a mut Context,
    ) -> BoxFuture<'a, Result<bool>>;

    /// Logs and counts the request with this head.
    fn log(&self, header: &RequestHeader, context: &mut Context);
}

impl<S: Surface> Trust for S {
    fn trusts(&self, peer: Option<IpAddr>) -> bool {
        self.running().trusts(peer)
    }

    fn client(&self, peer: Option<IpAddr>, fields: &HeaderMap) -> ClientKey {
        self.running().client(peer, fields)
    }
}

/// The server of one surface.
struct Server<S> {
    surface: Arc<S>,
    connections: ConnectionsConfig,
    process: ServerContext,
}

impl Proxy {
    /// Creates the app for the gate of `surface`.
    pub fn app(
        surface: Arc<impl Surface>,
        connections: ConnectionsConfig,
        process: ServerContext,
        errors: Arc<dyn ErrorResponder>,
    ) -> Arc<HttpProxy<Self>> {
        let write_timeout = connections.write_timeout;
        let server = Server {
            surface,
            connections,
            process: process.clone(),
        };
        let proxy = Self {
            server: Box::new(server),
            write_timeout,
            process,
            errors,
        };
        Arc::new(http_proxy(&Arc::new(ServerConf::default()), proxy))
    }
}

impl<S: Surface> Serve for Server<S> {
    fn serve<'a>(
        &'a self,
        session: &'a mut Session,
        context: &'a mut Context,
    ) -> BoxFuture<'a, Result<bool>> {
        Box::pin(async move {
            let handoff = handoff_of(session.req_header())?;
            let request = handoff.take()?;
            let mut exchange = Exchange::new(self, request, session.req_header_mut(), context);
            if exchange.serve().await {
                handoff.put(exchange.request);
            }
            // also when the client left: nobody reads an error
            Ok(true)
        })
    }

    fn log(&self, header: &RequestHeader, context: &mut Context) {
        context.log::<S>(header, &self.process);
    }
}

#[async_trait]
impl ProxyHttp for Proxy {
    /// Boxed, because Pingora moves it by value from phase to phase.
    type CTX = Box<Context>;

    fn new_ctx(&self) -> Self::CTX {
        Box::new(Context::new(&self.process))
    }

    /// Adds no modules: `reply` compresses, once for all requests with the same payload.
    fn init_downstream_modules(&self, _: &mut HttpModules) {}

    // as `async_trait` would write it; a box of a future without fields needs no allocation
    fn early_request_filter<'s, 'e, 'c, 'f>(
        &'s self,
        _: &'e mut Session,
        _: &'c mut Self::CTX,
    ) -> BoxFuture<'f, Result<()>>
    where
        's: 'f,
        'e: 'f,
        'c: 'f,
    {
        Box::pin(poll_fn(|_| Poll::Ready(Ok(()))))
    }

    // as `async_trait` would write it, without a second box
    fn request_filter<'s, 'e, 'c, 'f>(
        &'s self,
        session: &'e mut Session,
        ctx: &'c mut Self::CTX,
    ) -> BoxFuture<'f, Result<bool>>
    where
        's: 'f,
        'e: 'f,
        'c: 'f,
    {
        self.server.serve(session, ctx)
    }

    async fn upstream_peer(&self, _: &mut Session, _: &mut Self::CTX) -> Result<Box<HttpPeer>> {
        Error::e_explain(
            ErrorType::InternalError,
            "nothing is forwarded without a permit",
        )
    }

    async fn fail_to_proxy(
        &self,
        session: &mut Session,
        error: &Error,
        _: &mut Self::CTX,
    ) -> FailToProxy {
        let reason = match error.etype() {
            ErrorType::InvalidHTTPHeader => Reason::InvalidRequest,
            _ => Reason::UpstreamUnreachable,
        };
        let header = session.req_header();
        if let Ok(request) = handoff_of(header).and_then(|handoff| handoff.take()) {
            let peer = request.head(header).peer;
            let response = self.errors.respond(reason, peer, request.version());
            request.send_and_close(response, self.write_timeout).await;
        }
        FailToProxy {
            error_code: reason.status(),
            can_reuse_downstream: false,
        }
    }

    // without an allocation, too
    fn logging<'s, 'e, 'r, 'c, 'f>(
        &'s self,
        session: &'e mut Session,
        _: Option<&'r Error>,
        ctx: &'c mut Self::CTX,
    ) -> BoxFuture<'f, ()>
    where
        's: 'f,
        'e: 'f,
        'r: 'f,
        'c: 'f,
    {
        self.server.log(session.req_header(), ctx);
        Box::pin(poll_fn(|_| Poll::Ready(())))
    }
}

fn handoff_of(header: &RequestHeader) -> Result<Handoff> {
    Handoff::of(header)
        .ok_or_else(|| Error::explain(ErrorType::InternalError, "the gate makes every session"))
}

/// The context of one request.
pub struct Context {
    started: Instant,
    request_id: RequestId,
    record: RequestRecord,
    /// `None` unless the request is sampled or part of a trace.
    trace: Option<Box<TraceContext>>,
    /// The client's share of its requests in flight, until the response is out.
    slot: Option<Guard>,
    /// The memory of a large answer that the client has not read, charged to the client.
    unread: Option<Held>,
    /// `None` until a response is sent: a client that left before has no log line.
    outcome: Option<Outcome>,
    _in_flight: InFlight,
}

/// The sent response.
#[derive(Clone, Copy)]
struct Outcome {
    client: Client,
    reason: Option<Reason>,
    status: u16,
    bytes: usize,
    cache: &'static str,
}

impl Outcome {
    /// The log line's fields about the head and the cache, without any text of the client's own.
    fn http<'a, S: Surface>(&self, header: &'a RequestHeader) -> HttpLine<'a> {
        let target = header.raw_path();
        let path = target
            .split(|byte| *byte == b'?')
            .next()
            .filter(|_| S::knows(target));
        // version, trace id, parent id and flags: the id is the second field
        let trace_id = traceparent(&header.headers).and_then(|context| context.get(3..35));
        let text = |bytes: Option<&'a [u8]>| bytes.and_then(|bytes| str::from_utf8(bytes).ok());
        HttpLine {
            method: standard_method(&header.method),
            path: text(path).unwrap_or_default(),
            version: version(header.version),
            cache: self.cache,
            trace_id: text(trace_id).unwrap_or_default(),
        }
    }
}

/// The name of a method of RFC 9110, section 9.3, or of `PATCH`; empty for any other.
fn standard_method(method: &Method) -> &'static str {
    const NAMES: [&str; 9] = [
        "GET", "HEAD", "POST", "PUT", "DELETE", "CONNECT", "OPTIONS", "TRACE", "PATCH",
    ];
    NAMES
        .into_iter()
        .find(|name| method == name)
        .unwrap_or_default()
}

/// The version of HTTP, as OpenTelemetry writes it.
fn version(version: Version) -> &'static str {
    match version {
        Version::HTTP_10 => "1.0",
        Version::HTTP_11 => "1.1",
        Version::HTTP_2 => "2",
        _ => "",
    }
}

impl Context {
    fn new(process: &ServerContext) -> Self {
        let stages = process.tracer.as_ref().map(|_| Vec::new());
        Self {
            started: Instant::now(),
            request_id: process.request_ids.mint(),
            record: RequestRecord {
                stages,
                ..RequestRecord::default()
            },
            trace: None,
            slot: None,
            unread: None,
            outcome: None,
            _in_flight: process.drain.enter(),
        }
    }

    /// Logs and counts the request with this head.
    fn log<S: Surface>(&mut self, header: &RequestHeader, process: &ServerContext) {
        let Some(outcome) = self.outcome else { return };
        if let Some(reason) = outcome.reason {
            S::record_refusal(header.raw_path(), reason, &process.metrics);
        }
        let total = self.started.elapsed();
        let samples =
            |t: &&Tracer| t.samples(self.trace.as_deref(), outcome.status, self.started, total);
        let tracer = process.tracer.as_deref().filter(samples);
        let is_shown = process.log.has_requests() || tracer.is_some();
        let mut line = RequestLine {
            surface: S::NAME,
            request_id: self.request_id.as_str(),
            client: outcome.client,
            record: &self.record,
            http: if is_shown {
                outcome.http::<S>(header)
            } else {
                HttpLine::default()
            },
            reason: outcome.reason,
            status: outcome.status,
            bytes: outcome.bytes,
            total,
        };
        let own_id;
        if let Some(tracer) = tracer {
            let id = tracer.record(self.trace.take(), &line, self.started);
            own_id = format!("{id:032x}");
            line.http.trace_id = &own_id;
        }
        process.log_request(&line);
    }
}

/// Each surface, unless it is switched off.
#[derive(Clone, Default)]
pub struct Surfaces {
    /// The public read path.
    pub gateway: Option<Arc<Gateway>>,
    /// The protected write path.
    pub relay: Option<Arc<Relay>>,
    /// The service endpoints.
    pub sidecar: Option<Arc<Sidecar>>,
    /// The certificates of their listeners.
    pub tls: Certificates,
}

impl Surfaces {
    /// The clients of each surface; `None` while it is off.
    pub fn clients(&self) -> [(telemetry::Surface, Option<&Clients>); 3] {
        fn of<S: Surface>(surface: Option<&S>) -> (telemetry::Surface, Option<&Clients>) {
            (S::NAME, surface.map(|surface| surface.running().clients()))
        }
        let Self {
            gateway,
            relay,
            sidecar,
            ..
        } = self;
        [
            of(gateway.as_deref()),
            of(relay.as_deref()),
            of(sidecar.as_deref()),
        ]
    }
}
