//! The relay behind the proxy.

use super::surface::{Admission, Next, Pending, RequestContext, Surface, SurfaceHeaders};
use crate::relay::settings::Settings;
use crate::relay::{Relay, WriteContext, error_format};
use crate::reply::{ErrorFormat, Reply};
use crate::telemetry;
use bytes::Bytes;
use portcullis_filters::client::Client;
use portcullis_filters::head::Head;
use portcullis_filters::limit::RateLimitStatus;
use portcullis_filters::policy::{Admitted, Endpoint, Inspected, PendingCall, RelayCall};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::time::Instant;

/// The relay, as a surface.
pub struct RelayService(pub Arc<Relay>);

impl Surface for RelayService {
    const NAME: telemetry::Surface = telemetry::Surface::Relay;
    const STYLE: ErrorFormat = ErrorFormat::JsonRpc;
    type Settings = Settings;
    type Judged = ();
    type Call = RelayCall;

    fn settings(&self) -> Arc<Settings> {
        self.0.settings()
    }

    fn headers(settings: &Settings) -> SurfaceHeaders<'_> {
        // no web page may hold the token
        SurfaceHeaders { quota: &settings.limits.quota_header, cors: None }
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
        let style = error_format(Endpoint::at(head.target));
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
            style,
            is_for_pages: false,
            verdict,
        }
    }

    async fn answer(
        &self,
        settings: &Settings,
        call: Self::Call,
        body: Bytes,
        context: &mut RequestContext<'_>,
    ) -> Reply {
        context.method = call.endpoint.name();
        if call.endpoint == Endpoint::Ready {
            return self.0.readiness().await;
        }
        let inspected = settings.policy.inspect(call.endpoint, &body, now());
        if let Ok(Inspected::Transaction(unverified)) = &inspected {
            context.method = unverified.kind();
        }
        let RequestContext { request_id, traceparent, ref mut upstream, .. } = *context;
        let context = WriteContext { request_id, traceparent, upstream };
        match inspected {
            Ok(Inspected::Transaction(unverified)) => {
                self.0.transact(unverified, &settings.policy, context).await
            }
            Ok(Inspected::Operation(permit)) => {
                self.0.operate(&permit, call.idempotency_key.as_deref(), context).await
            }
            Err(refusal) => self.0.refuse(call.endpoint, &refusal, request_id).await,
        }
    }

    fn standing(&self, _: Client) -> Option<RateLimitStatus> {
        // shown only after the token is checked
        None
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}
