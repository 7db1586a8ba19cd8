//! The gateway behind the proxy.

use super::surface::{RequestContext, Surface};
use crate::gateway::{Caller, Gateway, Lookup, Settings};
use crate::http::clients::Running;
use crate::http::rate::RequestLimiter;
use crate::io::cold;
use crate::node::NodeError;
use crate::reply::{Cors, ErrorFormat, Reply};
use crate::telemetry::{self, CacheUse};
use bytes::Bytes;
use pingora_limits::inflight::Guard;
use portcullis_filters::head::Head;
use portcullis_filters::policy::{Admission, JudgedHead};
use portcullis_filters::position::MalformedPosition;
use portcullis_filters::verdict::{Reason, Refusal};
use std::sync::Arc;

impl Surface for Gateway {
    const NAME: telemetry::Surface = telemetry::Surface::Gateway;
    const STYLE: ErrorFormat = ErrorFormat::JsonRpc;
    type Settings = Settings;
    type Judged = JudgedHead;
    type Call = ();

    fn running(&self) -> &Running<Settings> {
        &self.running
    }

    fn cors<'a>(settings: &'a Settings, _: &[u8]) -> Option<Cors<'a>> {
        let headers = "Content-Type, Traceparent, X-Chain-Position, X-Request-Id";
        let exposed = "RateLimit, RateLimit-Policy, Retry-After, X-Cache, X-Chain-Position, \
                       X-Request-Id";
        Some(Cors { origins: &settings.cors, methods: "POST", headers, exposed })
    }

    fn knows(target: &[u8]) -> bool {
        matches!(target, b"/rpc" | b"/healthz")
    }

    fn judge(&self, settings: &Settings, head: &Head<'_>) -> JudgedHead {
        settings.policy.judge(head)
    }

    fn admit(
        &self,
        settings: &Settings,
        judged: &JudgedHead,
        _: &Head<'_>,
        limiter: &RequestLimiter<'_>,
    ) -> Admission<(), Guard> {
        let clients = self.running.clients();
        let enter = |client| clients.enter(client, &settings.limits);
        settings.policy.admit(judged, limiter, limiter.now(), enter)
    }

    async fn answer(
        &self,
        settings: &Arc<Settings>,
        (): (),
        body: Bytes,
        context: &mut RequestContext<'_>,
    ) -> Reply {
        let (request, id) = match self.inspect(settings, &body) {
            Ok(read) => read,
            Err(refusal) => {
                return Reply::refusal(ErrorFormat::JsonRpc, &refusal, context.request_id);
            }
        };
        context.method = request.method().name();
        // boxed: few requests name a position
        if context.chain_position != Ok(None)
            && let Err(reply) = cold(reach_position(self, id, context)).await
        {
            return reply;
        }
        let RequestContext { client, traceparent, .. } = *context;
        let position = context.chain_position.unwrap_or_default();
        let lookup = self.lookup(settings, &request, Caller { client, traceparent, position });
        let (cache, position) = (lookup.cache(), lookup.position());
        context.metrics.call(request.method(), cache, body.len());
        let answer = match lookup {
            Lookup::Cached(answer, _) => Ok(answer),
            // boxed, so that what is answered at once carries no room for asking the node
            Lookup::Pending(pending) => {
                let answer = Box::pin(pending.answer(&mut context.upstream)).await;
                context.node = answer.as_ref().ok().and_then(|answer| answer.node);
                answer
            }
        };
        let mut reply = match answer {
            Ok(answer) => Reply::answer(id, answer),
            // as for an answer that is ready: the cache has nothing to do with it
            Err(NodeError::OverShare) => {
                let refusal = NodeError::OverShare.into();
                return Reply::refusal(ErrorFormat::JsonRpc, &refusal, context.request_id);
            }
            Err(fault) => Reply::fault(ErrorFormat::JsonRpc, fault, Some(id), context.request_id),
        };
        reply.cache = (cache != CacheUse::Off).then(|| cache.name());
        reply.chain_position = position;
        reply
    }
}

/// Waits until the chain is at the position that a request names, or answers it.
async fn reach_position(
    gateway: &Gateway,
    id: &str,
    context: &RequestContext<'_>,
) -> Result<(), Reply> {
    let refusal = match context.chain_position {
        Ok(None) => return Ok(()),
        Ok(Some(position)) => match gateway.catch_up(position, context.client).await {
            Ok(true) => return Ok(()),
            Ok(false) => Refusal::new(
                Reason::ChainPositionBehind,
                "the chain is not at this X-Chain-Position: retry, or send none if it went back",
            ),
            Err(fault) => fault.into(),
        },
        Err(MalformedPosition) => {
            Refusal::new(Reason::InvalidRequest, "X-Chain-Position must be one EPOCH.HEIGHT")
        }
    };
    let is_behind = refusal.reason == Reason::ChainPositionBehind;
    let refusal = Refusal { id: Some(id.into()), ..refusal };
    let mut reply = Reply::refusal(ErrorFormat::JsonRpc, &refusal, context.request_id);
    reply.chain_position = gateway.position().filter(|_| is_behind);
    Err(reply)
}
