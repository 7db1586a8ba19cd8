//! The relay behind the proxy.

use super::surface::{RequestContext, Surface};
use crate::http::clients::Running;
use crate::relay::settings::Settings;
use crate::relay::{Relay, Trace, error_format};
use crate::reply::{Cors, ErrorFormat, Reply};
use crate::telemetry;
use bytes::Bytes;
use pingora_limits::inflight::Guard;
use portcullis_filters::client::Client;
use portcullis_filters::head::Head;
use portcullis_filters::limit::RateLimitStatus;
use portcullis_filters::policy::{Admission, Endpoint, Inspected, RelayCall};
use std::sync::Arc;
use std::time::SystemTime;
use tokio::time::Instant;

impl Surface for Relay {
    const NAME: telemetry::Surface = telemetry::Surface::Relay;
    const STYLE: ErrorFormat = ErrorFormat::JsonRpc;
    type Settings = Settings;
    type Judged = ();
    type Call = RelayCall;

    fn running(&self) -> &Running<Settings> {
        &self.running
    }

    /// None: no web page may hold the token.
    fn cors<'a>(_: &'a Settings, _: &[u8]) -> Option<Cors<'a>> {
        None
    }

    fn knows(target: &[u8]) -> bool {
        target == b"/healthz" || Endpoint::at(target).is_some()
    }

    fn style(target: &[u8]) -> ErrorFormat {
        error_format(Endpoint::at(target))
    }

    fn judge(&self, _: &Settings, _: &Head<'_>) {}

    fn admit(
        &self,
        settings: &Settings,
        (): &(),
        head: &Head<'_>,
        now: Instant,
    ) -> Admission<RelayCall, Guard> {
        let clients = self.running.clients();
        let enter = |client| clients.enter(client, &settings.limits);
        let failed_auth = |client| self.count_failed_auth(client);
        let (limiter, now) = (clients.limiter(), clients.millis(now));
        settings.policy.admit(head, limiter, now, failed_auth, enter)
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
            return self.readiness().await;
        }
        let inspected = settings.policy.inspect(call.endpoint, &body, now());
        if let Ok(Inspected::Transaction(unverified)) = &inspected {
            context.method = unverified.kind();
        }
        let (trace, request_id) = (Arc::new(Trace::new(context.traceparent)), context.request_id);
        let reply = match inspected {
            Ok(Inspected::Transaction(unverified)) => {
                self.transact(unverified, &settings.policy, &trace, request_id).await
            }
            Ok(Inspected::Operation(permit)) => {
                let key = call.idempotency_key.as_deref();
                self.operate(&permit, key, &trace, request_id).await
            }
            Err(refusal) => self.refuse(call.endpoint, &refusal, request_id).await,
        };
        context.upstream = trace.upstream();
        reply
    }

    /// None: it is shown only after the token is checked.
    fn standing(&self, _: Client) -> Option<RateLimitStatus> {
        None
    }
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}
