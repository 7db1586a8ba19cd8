//! The sidecar behind the proxy.

use super::{RequestContext, Surface};
use crate::http::clients::{RequestLimiter, Running, Ticket};
use crate::reply::coding::{self, Coding};
use crate::reply::{Cors, ErrorFormat, Reply};
use crate::sidecar::{Refused, Settings, Sidecar};
use bytes::Bytes;
use pingora_limits::inflight::Guard;
use portcullis_base::config::CorsOrigins;
use portcullis_base::io::cold;
use portcullis_base::telemetry::{self, Metrics, RequestRecord};
use portcullis_filters::head::Head;
use portcullis_filters::policy::{Admission, Function, RequestParts};
use portcullis_filters::verdict::Reason;
use std::sync::Arc;
use std::time::SystemTime;

impl Surface for Sidecar {
    const NAME: telemetry::Surface = telemetry::Surface::Sidecar;
    const STYLE: ErrorFormat = ErrorFormat::Xrpc;
    type Settings = Settings;
    type Judged = ();
    type Call = RequestParts;

    fn running(&self) -> &Running<Settings> {
        &self.running
    }

    fn cors<'a>(_: &'a Settings, target: &[u8]) -> Option<Cors<'a>> {
        let is_for_pages = Function::at(target).is_none_or(Function::is_for_pages);
        is_for_pages.then_some(Cors {
            origins: &CorsOrigins::Any,
            methods: "GET, HEAD, POST",
            // no cookies are involved; `*` covers all but the first (Fetch, section 4.9), and old
            // browsers read the names
            headers: "Authorization, *, X-Client-Info, Apikey, Content-Type, Traceparent, \
                X-Request-Id",
            exposed: "RateLimit, RateLimit-Policy, Retry-After, X-Request-Id",
        })
    }

    fn knows(target: &[u8]) -> bool {
        target == b"/healthz" || Function::at(target).is_some()
    }

    fn judge(&self, _: &Settings, _: &Head<'_>) {}

    fn admit<'a>(
        &self,
        settings: &Settings,
        (): &(),
        head: &Head<'_>,
        limiter: &RequestLimiter<'a>,
    ) -> Admission<RequestParts, Guard, Ticket<'a>> {
        let clients = self.running.clients();
        let enter = |client| clients.enter(client, &settings.limits);
        settings.policy.admit(head, limiter, limiter.now(), enter)
    }

    /// Serves `robots.txt` while draining: to a crawler, an error forbids the whole site.
    fn outlasts_drain(parts: &RequestParts) -> bool {
        parts.function == Function::SeoRobots
    }

    fn record_refusal(target: &[u8], reason: Reason, metrics: &Metrics) {
        if Function::at(target) == Some(Function::AgeVerifierWebhook) {
            let now = SystemTime::now();
            metrics.sidecar.refused_webhooks.add(reason, now);
        }
    }

    async fn answer(
        &self,
        settings: &Arc<Settings>,
        parts: Self::Call,
        body: Bytes,
        context: &RequestContext<'_>,
        record: &mut RequestRecord,
    ) -> Reply {
        record.method = parts.function.name();
        context.metrics.sidecar.call(parts.function);
        match Sidecar::answer(self, settings, &parts, &body).await {
            Ok(mut reply) => {
                if settings.gzip() {
                    coding::offer(&mut reply);
                } else {
                    reply.coding = Coding::Only;
                }
                if context.accepts_gzip {
                    cold(coding::compress(&mut reply, Some(&self.documents))).await;
                }
                reply
            }
            Err(Refused {
                refusal,
                is_personal,
            }) => {
                let reply = Reply::refusal(ErrorFormat::Xrpc, &refusal, context.request_id);
                if is_personal { reply.personal() } else { reply }
            }
        }
    }
}
