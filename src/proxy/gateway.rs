//! The gateway behind the proxy.

use super::surface::{RequestContext, Surface};
use crate::gateway::{Gateway, Lookup, Settings};
use crate::http::clients::Running;
use crate::http::rate::RequestLimiter;
use crate::node::NodeError;
use crate::reply::{Cors, ErrorFormat, Reply};
use crate::telemetry::{self, CacheUse};
use bytes::Bytes;
use pingora_limits::inflight::Guard;
use portcullis_filters::head::Head;
use portcullis_filters::policy::{Admission, JudgedHead};
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
        let headers = "Content-Type, Traceparent, X-Request-Id";
        let exposed = "RateLimit, RateLimit-Policy, Retry-After, X-Cache, X-Request-Id";
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
        let caller = (context.client, context.traceparent);
        let lookup = self.lookup(settings, &request, caller);
        let cache = lookup.cache();
        context.metrics.call(request.method(), cache, body.len());
        let answer = match lookup {
            Lookup::Cached(answer) => Ok(answer),
            // boxed, so that what is answered at once carries no room for asking the node
            Lookup::Pending(pending) => {
                let answer = Box::pin(pending.answer(&mut context.upstream)).await;
                context.node = answer.as_ref().ok().map(|answer| answer.node);
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
        reply
    }
}
