//! The gateway behind the proxy.

use super::surface::{Admission, Next, Pending, RequestContext, Surface, SurfaceHeaders};
use crate::gateway::{Gateway, Lookup, Settings};
use crate::reply::{Cors, ErrorFormat, Reply};
use crate::telemetry::{self, CacheUse};
use bytes::Bytes;
use portcullis_filters::client::Client;
use portcullis_filters::head::Head;
use portcullis_filters::limit::RateLimitStatus;
use portcullis_filters::policy::{Admitted, JudgedHead, PendingCall};
use std::sync::Arc;
use tokio::time::Instant;

impl Surface for Gateway {
    const NAME: telemetry::Surface = telemetry::Surface::Gateway;
    const STYLE: ErrorFormat = ErrorFormat::JsonRpc;
    type Settings = Settings;
    type Judged = JudgedHead;
    type Call = ();

    fn settings(&self) -> Arc<Settings> {
        Gateway::settings(self)
    }

    fn headers(settings: &Settings) -> SurfaceHeaders<'_> {
        let headers = "Content-Type, X-Request-Id";
        let exposed = "RateLimit, RateLimit-Policy, Retry-After, X-Cache, X-Request-Id";
        let cors = Cors { origins: &settings.cors, methods: "POST", headers, exposed };
        SurfaceHeaders { quota: &settings.limits.quota_header, cors: Some(cors) }
    }

    fn judge(&self, settings: &Settings, head: &Head<'_>) -> JudgedHead {
        settings.policy.judge(head)
    }

    fn admit(
        &self,
        settings: &Settings,
        judged: &JudgedHead,
        _: &Head<'_>,
        now: Instant,
    ) -> Admission<()> {
        let admission = Gateway::admit(self, settings, judged, now);
        let verdict = admission.verdict.map(|admitted| match admitted {
            Admitted::Health => Next::Reply(Reply::health()),
            Admitted::Preflight => Next::Reply(Reply::no_content()),
            Admitted::Call(PendingCall { call, slot, expects_continue, max_body }) => {
                Next::Read(Pending { call, slot, expects_continue, max_body, always: false })
            }
        });
        Admission {
            client: admission.client,
            standing: admission.rate_limit,
            style: ErrorFormat::JsonRpc,
            is_for_pages: true,
            verdict,
        }
    }

    async fn answer(
        &self,
        settings: &Settings,
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
        let lookup = self.lookup(settings, &request, context.traceparent);
        let cache = lookup.cache();
        context.metrics.call(request.method(), cache, body.len());
        let answer = match lookup {
            Lookup::Cached(answer) => Ok(answer),
            // boxed, so that what is answered at once carries no room for asking the node
            Lookup::Pending(pending) => Box::pin(pending.answer(&mut context.upstream)).await,
        };
        let mut reply = match answer {
            Ok(answer) => Reply::answer(id, answer),
            Err(fault) => Reply::fault(ErrorFormat::JsonRpc, fault, Some(id), context.request_id),
        };
        reply.cache = (cache != CacheUse::Off).then(|| cache.name());
        reply
    }

    fn standing(&self, peer: Client) -> Option<RateLimitStatus> {
        Some(self.clients().standing(peer))
    }
}
