//! The sidecar behind the proxy.

use super::surface::{Admission, Next, Pending, RequestContext, Surface, SurfaceHeaders};
use crate::config::CorsOrigins;
use crate::reply::{Cors, ErrorFormat, Reply};
use crate::sidecar::{Refused, Settings, Sidecar};
use crate::telemetry;
use bytes::Bytes;
use portcullis_filters::client::Client;
use portcullis_filters::head::Head;
use portcullis_filters::limit::RateLimitStatus;
use portcullis_filters::policy::{Admitted, Function, PendingCall, RequestParts};
use std::sync::Arc;
use tokio::time::Instant;

/// The sidecar, as a surface.
pub struct SidecarService(pub Arc<Sidecar>);

impl Surface for SidecarService {
    const NAME: telemetry::Surface = telemetry::Surface::Sidecar;
    const STYLE: ErrorFormat = ErrorFormat::Xrpc;
    type Settings = Settings;
    type Judged = ();
    type Call = RequestParts;

    fn settings(&self) -> Arc<Settings> {
        self.0.settings()
    }

    fn headers(settings: &Settings) -> SurfaceHeaders<'_> {
        let cors = Cors {
            origins: &CorsOrigins::Any,
            methods: "GET, HEAD, POST",
            headers: "Authorization, X-Client-Info, Apikey, Content-Type, X-Request-Id",
            exposed: "RateLimit, RateLimit-Policy, Retry-After, X-Request-Id",
        };
        SurfaceHeaders { quota: &settings.limits.quota_header, cors: Some(cors) }
    }

    fn judge(&self, _: &Settings, _: &Head<'_>) {}

    fn admit(
        &self,
        settings: &Settings,
        (): &(),
        head: &Head<'_>,
        now: Instant,
    ) -> Admission<Self::Call> {
        let admission = self.0.admit(settings, head, now);
        let verdict = admission.verdict.map(|admitted| match admitted {
            Admitted::Health => Next::Reply(Reply::health()),
            Admitted::Preflight => Next::Reply(Reply::no_content()),
            Admitted::Call(PendingCall { call, slot, expects_continue, max_body }) => {
                // a crawler takes an error for the whole site being forbidden
                let always = call.function == Function::SeoRobots;
                Next::Read(Pending { call, slot, expects_continue, max_body, always })
            }
        });
        Admission {
            client: admission.client,
            standing: admission.rate_limit,
            style: ErrorFormat::Xrpc,
            is_for_pages: Function::at(head.target).is_none_or(Function::is_for_pages),
            verdict,
        }
    }

    async fn answer(
        &self,
        settings: &Settings,
        parts: Self::Call,
        body: Bytes,
        context: &mut RequestContext<'_>,
    ) -> Reply {
        context.method = parts.function.name();
        context.metrics.sidecar.call(parts.function);
        match self.0.answer(settings, &parts, &body).await {
            Ok(reply) => reply,
            Err(Refused { refusal, retry_after, is_personal }) => {
                let mut reply = Reply::refusal(ErrorFormat::Xrpc, &refusal, context.request_id);
                reply.retry_after = retry_after.or(reply.retry_after);
                if is_personal { reply.personal() } else { reply }
            }
        }
    }

    fn standing(&self, peer: Client) -> Option<RateLimitStatus> {
        Some(self.0.clients().standing(peer))
    }
}
