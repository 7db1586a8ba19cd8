//! One request and its response: what `request_filter` does, in order.
//!
//! Admit the head, read the bounded body, let the surface inspect and answer it, send the response,
//! and leave the connection in a state in which it can be used again or closed without the response
//! being lost. A refusal at any step is a response like any other.

use super::waiting_head::shrink;
use super::{Context, Outcome, RequestContext, Server, Surface};
use crate::http::clients::{Clients, RequestLimiter, Settings as _, Ticket};
use crate::http::request::Unsent;
use crate::http::{Incomplete, Request, Trust as _, X_REQUEST_ID};
use crate::node::NodeError;
use crate::reply::{ErrorFormat, Persistence, Reply, ResponseContext};
use bytes::Bytes;
use http::header::{EXPECT, HOST, ORIGIN, TRANSFER_ENCODING};
use http::{HeaderValue, Method, Version};
use pingora::http::RequestHeader;
use pingora_limits::inflight::Guard;
use portcullis_base::io::{LARGE, MemoryPermit, cold, within};
use portcullis_filters::client::Client;
use portcullis_filters::head::{TRACEPARENT, accepts_gzip, traceparent};
use portcullis_filters::limit::{RateCheck, RateLimitStatus};
use portcullis_filters::policy::{self, Admission, Admitted, PendingCall};
use portcullis_filters::position::{ChainPosition, MalformedPosition, X_CHAIN_POSITION};
use portcullis_filters::verdict::{Reason, Refusal};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// How long to read a refused body that is small and already sent, so that the connection can stay
/// open.
const DISCARD: Duration = Duration::from_millis(50);

pub(super) struct Exchange<'a, S: Surface> {
    server: &'a Server<S>,
    pub(super) request: Request,
    header: &'a mut RequestHeader,
    head: Arc<HeadInfo<S>>,
    context: &'a mut Context,
}

/// The memory of a body that is read and not answered, released on drop.
struct Upload {
    _permit: MemoryPermit,
    _share: Guard,
}

/// The client as admission found it, for every response.
#[derive(Clone, Copy)]
struct Caller {
    client: Client,
    rate: Option<RateLimitStatus>,
}

impl<'a, S: Surface> Exchange<'a, S> {
    pub(super) fn new(
        server: &'a Server<S>,
        request: Request,
        header: &'a mut RequestHeader,
        context: &'a mut Context,
    ) -> Self {
        let head = HeadInfo::of(header, &request, &*server.surface);
        Self {
            server,
            request,
            header,
            head,
            context,
        }
    }

    /// Answers the request; returns whether the response was sent.
    pub(super) async fn serve(&mut self) -> bool {
        if let Some(tracer) = &self.server.process.tracer {
            let peer = self.request.head(self.header).peer;
            let is_trusted = || self.server.surface.trusts(peer);
            self.context.trace = tracer.begin(self.head.traceparent(self.header), is_trusted);
        }
        let Admission {
            client,
            rate_limit,
            mut verdict,
        } = self.admit();
        let rate = match rate_limit {
            None => None,
            Some(RateCheck::Decided(status)) => Some(status),
            Some(RateCheck::Pending(ticket)) => {
                let (status, within) = cold(ticket.settle()).await;
                verdict = within.and(verdict);
                status
            }
        };
        let caller = Caller { client, rate };
        let reply = match verdict {
            Ok(Admitted::Health) => Some(Reply::health()),
            Ok(Admitted::Preflight) => Some(Reply::no_content()),
            Ok(Admitted::Call(pending)) => {
                shrink(self.header);
                self.read_and_answer(pending, &caller).await
            }
            Err(refusal) => Some(self.refused_unread(refusal)),
        };
        match reply {
            Some(mut reply) => self.send(&mut reply, &caller).await,
            None => false,
        }
    }

    /// Admits the head.
    fn admit(&mut self) -> Admission<S::Call, Guard, Ticket<'a>> {
        let Server {
            surface, process, ..
        } = self.server;
        if let Some(id) = self.head.request_id(self.header) {
            self.context.request_id = process.request_ids.accept_or_mint(Some(id));
        }
        let head = self.request.head(self.header);
        let HeadInfo {
            settings, judged, ..
        } = &*self.head;
        let clients = surface.running().clients();
        let limiter = RequestLimiter::new(clients, settings.limits(), self.context.started);
        let mut admission = surface.admit(settings, judged, &head, &limiter);
        if let Ok(Admitted::Call(pending)) = &admission.verdict
            && process.drain.refuses()
            && !S::outlasts_drain(&pending.call)
        {
            let message = "shutting down: use another instance";
            admission.verdict = Err(Refusal::new(Reason::Draining, message));
        }
        admission
    }

    /// Reads the body and has the surface answer it. `None` if the client left.
    async fn read_and_answer(
        &mut self,
        pending: PendingCall<S::Call, Guard>,
        caller: &Caller,
    ) -> Option<Reply> {
        let PendingCall {
            call,
            slot,
            expects_continue,
            max_body,
        } = pending;
        self.context.slot = slot;
        let timeout = self.server.connections.body_timeout;
        if expects_continue {
            within(timeout, cold(self.request.write_continue()))
                .await?
                .ok()?;
        }
        let (body, _upload) = match self.read_body(timeout, max_body, caller).await {
            Ok(body) => body,
            Err(Incomplete::Refused(refusal)) => return Some(self.refused(&refusal)),
            Err(Incomplete::Gone) => return None,
        };
        let Context {
            request_id,
            record,
            trace,
            ..
        } = &mut *self.context;
        let own = trace.as_ref().map(|trace| trace.traceparent.as_bytes());
        let context = RequestContext {
            request_id: request_id.as_str(),
            client: caller.client.key,
            traceparent: own.or_else(|| self.head.traceparent(self.header)),
            chain_position: self.head.chain_position(self.header),
            accepts_gzip: self.head.accepts_gzip,
            metrics: &self.server.process.metrics,
        };
        let surface = &self.server.surface;
        let answer = surface.answer(&self.head.settings, call, body, &context, record);
        let mut reply = answer.await;
        if let Err(refusal) = self.hold(&reply, caller) {
            reply = self.refused(&refusal);
        }
        Some(reply)
    }

    /// Reads the whole body. If it did not arrive with its head, its memory is first reserved in
    /// the pool and in the client's share.
    async fn read_body(
        &mut self,
        timeout: Duration,
        max: usize,
        caller: &Caller,
    ) -> Result<(Bytes, Option<Box<Upload>>), Incomplete> {
        if let Some(body) = self.request.take_whole_body() {
            policy::within_size(body.len(), max).map_err(Incomplete::Refused)?;
            return Ok((body, None));
        }
        let length = policy::declared_length(&self.header.headers)
            .unwrap_or(max)
            .min(max);
        let pool = &self.server.process.uploads;
        let refused = |reason, message| Incomplete::Refused(Refusal::new(reason, message));
        let share = self.clients().uploads_of(caller.client.key);
        let share = share.hold(length, length, pool).ok_or_else(|| {
            refused(
                Reason::TooManyInFlight,
                "too many concurrent request bodies: wait for responses",
            )
        })?;
        let mut permit = MemoryPermit::of(pool);
        permit
            .reserve(length)
            .map_err(|_| refused(Reason::Overloaded, "too many concurrent request bodies"))?;
        let body = self.request.read_whole_body(timeout, max).await?;
        Ok((
            body,
            Some(Box::new(Upload {
                _permit: permit,
                _share: share,
            })),
        ))
    }

    /// Charges a large answer to the client until it is read.
    ///
    /// # Errors
    /// Returns a refusal if the client already holds its share of the memory for answers.
    fn hold(&mut self, reply: &Reply, caller: &Caller) -> Result<(), Refusal> {
        let length = reply.body.length();
        let Some(memory) = reply.memory.as_ref().filter(|_| length >= LARGE) else {
            return Ok(());
        };
        let share = self.clients().answers_of(caller.client.key);
        let held = memory.read_by(&share, length).ok_or(NodeError::OverShare)?;
        self.context.unread = Some(held);
        Ok(())
    }

    fn clients(&self) -> &Clients {
        self.server.surface.running().clients()
    }

    /// Refuses a request whose body was not read, with its id if the body is here already.
    fn refused_unread(&mut self, mut refusal: Refusal) -> Reply {
        let is_rpc = S::style(self.header.raw_path()) == ErrorFormat::JsonRpc;
        if is_rpc
            && self.head.is_framed
            && let Some(body) = self.request.take_arrived_body()
        {
            policy::add_id(&mut refusal, &body);
        }
        self.refused(&refusal)
    }

    fn refused(&self, refusal: &Refusal) -> Reply {
        let style = S::style(self.header.raw_path());
        Reply::refusal(style, refusal, self.context.request_id.as_str())
    }

    /// Sends the response; returns whether the client got all of it.
    async fn send(&mut self, reply: &mut Reply, caller: &Caller) -> bool {
        if !self.drain_request_body().await {
            self.request.linger();
        }
        let persistence = self.persistence(reply);
        if reply.rest.is_some() && self.header.version < Version::HTTP_11 {
            // the connection ends it, so that a cache would store a body that was cut off
            reply.cache_control = None;
        }
        let (status, mut reason) = (reply.status, reply.reason);
        let timeout = self.server.connections.write_timeout;
        let sent = {
            let settings = &*self.head.settings;
            let origin = self.head.origin(self.header);
            let response = ResponseContext {
                request_id: self.context.request_id.as_str(),
                quota: caller
                    .rate
                    .map(|rate| (&settings.limits_of(caller.client).quota_header, rate)),
                // a shared cache stores one response for requests with and without an origin
                cross_origin: S::cors(settings, self.header.raw_path())
                    .filter(|_| origin.is_some() || reply.cache_control.is_some())
                    .map(|cors| (cors, origin)),
                persistence,
                chunks: self.header.version == Version::HTTP_11,
                without_body: self.head.is_head,
            };
            self.request.send(reply, &response, timeout)
        };
        let sent = pin!(sent).await;
        if sent.result == Err(Unsent::Aborted) {
            reason = Some(Reason::StoreUnavailable);
        }
        let (client, bytes) = (caller.client, sent.bytes);
        let cache = reply.cache.unwrap_or_default();
        self.context.outcome = Some(Outcome {
            client,
            reason,
            status,
            bytes,
            cache,
        });
        sent.result.is_ok()
    }

    /// Decides whether the connection persists; RFC 9112, section 9.3.
    fn persistence(&mut self, reply: &Reply) -> Persistence {
        let version = self.header.version;
        if self.request.is_old(self.context.started)
            || self.server.process.drain.has_begun()
            || (reply.rest.is_some() && version != Version::HTTP_11)
        {
            self.request.stop_keepalive();
        }
        match version {
            _ if !self.request.keeps_alive() => Persistence::Close,
            Version::HTTP_11 => Persistence::KeepAlive,
            _ => Persistence::ExplicitKeepAlive,
        }
    }

    /// Reads a small rest of the body. Returns whether the end of the request is certain and was
    /// reached, so that the next bytes on the connection are another request.
    async fn drain_request_body(&mut self) -> bool {
        // over HTTP/2 each request has a stream of its own
        if self.header.version == Version::HTTP_2 {
            return true;
        }
        if !self.head.is_framed {
            return false;
        }
        // a client that was not invited may or may not send its body
        self.request.is_body_read()
            || (!self.head.awaits_continue && cold(self.request.discard_body(DISCARD)).await)
    }
}

/// The facts of a head, read once for all requests of a connection that have the same head.
struct HeadInfo<S: Surface> {
    /// The settings in force when it was read.
    settings: Arc<S::Settings>,
    /// The surface's verdict, under these settings.
    judged: S::Judged,
    is_head: bool,
    /// Whether the framing of the body can be trusted.
    is_framed: bool,
    awaits_continue: bool,
    has_request_id: bool,
    has_traceparent: bool,
    has_chain_position: bool,
    has_origin: bool,
    accepts_gzip: bool,
}

impl<S: Surface> HeadInfo<S> {
    /// Reads a head, unless it is cached and was read under the same settings.
    fn of(header: &mut RequestHeader, request: &Request, surface: &S) -> Arc<Self> {
        let settings = surface.running().settings();
        let cached = header.extensions.get::<Arc<Self>>();
        if let Some(cached) = cached.filter(|cached| Arc::ptr_eq(&cached.settings, &settings)) {
            return Arc::clone(cached);
        }
        let judged = surface.judge(&settings, &request.head(header));
        let fields = &header.headers;
        let info = Arc::new(Self {
            settings,
            judged,
            is_head: header.method == Method::HEAD,
            // some parsers read chunks that others refuse, and HTTP/1.1 demands a Host
            is_framed: !fields.contains_key(TRANSFER_ENCODING) && fields.contains_key(HOST),
            awaits_continue: fields.contains_key(EXPECT),
            has_request_id: fields.contains_key(&X_REQUEST_ID),
            has_traceparent: fields.contains_key(&TRACEPARENT),
            has_chain_position: fields.contains_key(&X_CHAIN_POSITION),
            has_origin: fields.contains_key(ORIGIN),
            accepts_gzip: accepts_gzip(fields),
        });
        if request.is_head_cached() {
            header.extensions_mut().insert(Arc::clone(&info));
        }
        info
    }

    /// The client's own id for its request, well-formed or not.
    fn request_id<'a>(&self, header: &'a RequestHeader) -> Option<&'a HeaderValue> {
        if self.has_request_id {
            header.headers.get(&X_REQUEST_ID)
        } else {
            None
        }
    }

    /// The trace context to pass on.
    fn traceparent<'a>(&self, header: &'a RequestHeader) -> Option<&'a [u8]> {
        if self.has_traceparent {
            traceparent(&header.headers)
        } else {
            None
        }
    }

    /// The position that the client requires.
    fn chain_position(
        &self,
        header: &RequestHeader,
    ) -> Result<Option<ChainPosition>, MalformedPosition> {
        if self.has_chain_position {
            ChainPosition::of(&header.headers)
        } else {
            Ok(None)
        }
    }

    /// The origin of the web page that sent the request.
    fn origin<'a>(&self, header: &'a RequestHeader) -> Option<&'a HeaderValue> {
        if self.has_origin {
            header.headers.get(ORIGIN)
        } else {
            None
        }
    }
}
