//! One request and its response: what `request_filter` does, in order.
//!
//! Admit the head, read the bounded body, let the surface inspect and answer it, send the response,
//! and leave the connection in a state in which it can be used again or closed without the response
//! being lost. A refusal at any step is a response like any other.

use super::Proxy;
use super::context::{Context, Outcome};
use super::head_info::HeadInfo;
use super::surface::{Admission, Next, Pending, RequestContext, Surface};
use crate::http::Request;
use crate::http::body::{self, Incomplete};
use crate::http::respond::{self, Unsent};
use crate::io::cold;
use crate::io::deadline::within;
use crate::reply::{ErrorFormat, Persistence, Reply, ResponseContext};
use http::Version;
use pingora::http::RequestHeader;
use portcullis_filters::client::Client;
use portcullis_filters::limit::RateLimitStatus;
use portcullis_filters::verdict::{Reason, Refusal};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

/// A refused body that is small and already sent is read for this long, so that the connection can
/// stay.
const DISCARD: Duration = Duration::from_millis(50);

pub(super) struct Exchange<'a, S: Surface> {
    proxy: &'a Proxy<S>,
    pub(super) request: Request,
    header: &'a RequestHeader,
    head: Arc<HeadInfo<S>>,
    context: &'a mut Context,
}

/// What admission found out about the request's client, for every response to it.
#[derive(Clone, Copy)]
struct Caller {
    client: Client,
    rate: Option<RateLimitStatus>,
    style: ErrorFormat,
    is_for_pages: bool,
}

impl<'a, S: Surface> Exchange<'a, S> {
    pub(super) fn new(
        proxy: &'a Proxy<S>,
        request: Request,
        header: &'a mut RequestHeader,
        context: &'a mut Context,
    ) -> Self {
        let head = HeadInfo::of(header, &request, &*proxy.surface);
        Self { proxy, request, header, head, context }
    }

    /// Answers the request; returns whether the response was sent.
    pub(super) async fn serve(&mut self) -> bool {
        let (caller, verdict) = self.admit();
        let reply = match verdict {
            Ok(Next::Reply(reply)) => Some(reply),
            Ok(Next::Read(pending)) => self.read_and_answer(pending, &caller).await,
            Err(refusal) => Some(self.refused(&refusal, &caller)),
        };
        match reply {
            Some(mut reply) => self.send(&mut reply, &caller).await,
            None => false,
        }
    }

    /// Admits the head: an immediate reply, a body to read, or a refusal.
    fn admit(&mut self) -> (Caller, Result<Next<S::Call>, Refusal>) {
        let Proxy { surface, process, .. } = self.proxy;
        if let Some(id) = self.head.request_id(self.header) {
            self.context.request_id = process.request_ids.accept_or_mint(Some(id));
        }
        let head = self.request.head(self.header);
        let HeadInfo { settings, judged, .. } = &*self.head;
        let admission = surface.admit(settings, judged, &head, self.context.started);
        let Admission { client, standing: rate, style, is_for_pages, mut verdict } = admission;
        if let Ok(Next::Read(pending)) = &verdict
            && process.drain.refuses()
            && !pending.always
        {
            let message = "shutting down: use another instance";
            verdict = Err(Refusal::new(Reason::Draining, message));
        }
        (Caller { client, rate, style, is_for_pages }, verdict)
    }

    /// Reads the body and has the surface answer it. `None` if the client left.
    async fn read_and_answer(
        &mut self,
        pending: Pending<S::Call>,
        caller: &Caller,
    ) -> Option<Reply> {
        let Pending { call, slot, expects_continue, max_body, .. } = pending;
        self.context.slot = Some(slot);
        let timeout = self.proxy.connections.body_timeout;
        if expects_continue {
            within(timeout, cold(self.request.write_continue())).await?.ok()?;
        }
        let body = match body::read(&mut self.request, timeout, max_body).await {
            Ok(body) => body,
            Err(Incomplete::Refused(refusal)) => return Some(self.refused(&refusal, caller)),
            Err(Incomplete::Gone) => return None,
        };
        let request_id = self.context.request_id;
        let mut context = RequestContext {
            request_id: request_id.as_str(),
            traceparent: self.head.traceparent(self.header),
            metrics: &self.proxy.process.metrics,
            method: "",
            upstream: Duration::ZERO,
        };
        let answer = self.proxy.surface.answer(&self.head.settings, call, body, &mut context);
        let mut reply = answer.await;
        (self.context.method, self.context.upstream) = (context.method, context.upstream);
        caller.set_retry_after(&mut reply);
        Some(reply)
    }

    fn refused(&self, refusal: &Refusal, caller: &Caller) -> Reply {
        let request_id = self.context.request_id.as_str();
        let mut reply = Reply::refusal(caller.style, refusal, request_id);
        caller.set_retry_after(&mut reply);
        reply
    }

    /// Sends the response; returns whether the client got all of it.
    async fn send(&mut self, reply: &mut Reply, caller: &Caller) -> bool {
        if !self.drain_request_body().await {
            self.request.linger();
        }
        let persistence = self.persistence(reply);
        let (status, mut reason) = (reply.status, reply.reason);
        let timeout = self.proxy.connections.write_timeout;
        let sent = {
            let headers = S::headers(&self.head.settings);
            let origin = self.head.origin(self.header);
            let response = ResponseContext {
                request_id: self.context.request_id.as_str(),
                quota: caller.rate.map(|rate| (headers.quota, rate)),
                // what a shared cache stores is the same for every page, and for none
                cross_origin: headers
                    .cors
                    .filter(|_| caller.is_for_pages)
                    .filter(|_| origin.is_some() || reply.cache_control.is_some())
                    .map(|cors| (cors, origin)),
                persistence,
                chunks: self.header.version == Version::HTTP_11,
                without_body: self.head.is_head,
            };
            respond::send(&mut self.request, reply, &response, timeout)
        };
        let sent = pin!(sent).await;
        if sent.result == Err(Unsent::Aborted) {
            reason = Some(Reason::StoreUnavailable);
        }
        let (client, bytes) = (caller.client, sent.bytes);
        self.context.outcome = Some(Outcome { client, reason, status, bytes });
        sent.result.is_ok()
    }

    /// What becomes of the connection; RFC 9112, section 9.3.
    fn persistence(&mut self, reply: &Reply) -> Persistence {
        let version = self.header.version;
        if self.request.is_old(self.context.started)
            || self.proxy.process.drain.has_begun()
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

    /// Reads a small rest of the body; returns whether the end of the request is certain and
    /// reached, so that what comes next on the connection is another request.
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
            || (!self.head.awaits_continue && cold(body::discard(&mut self.request, DISCARD)).await)
    }
}

impl Caller {
    /// Over the rate limit, `Retry-After` is when the oldest request leaves the window.
    fn set_retry_after(&self, reply: &mut Reply) {
        if reply.reason == Some(Reason::RateLimited)
            && let Some(rate) = self.rate.filter(|rate| !rate.admitted)
        {
            reply.retry_after = Some(rate.reset_seconds);
        }
    }
}
