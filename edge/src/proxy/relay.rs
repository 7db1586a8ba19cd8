//! The relay behind the proxy.

use super::{RequestContext, Surface};
use crate::http::clients::{RequestLimiter, Running, Ticket};
use crate::relay::settings::Settings;
use crate::relay::{Relay, Request, Trace, error_format};
use crate::reply::{Cors, ErrorFormat, Reply};
use bytes::Bytes;
use pingora_limits::inflight::Guard;
use portcullis_base::telemetry::{self, RequestRecord};
use portcullis_filters::client::Client;
use portcullis_filters::head::Head;
use portcullis_filters::limit::RateLimitStatus;
use portcullis_filters::policy::{Admission, Endpoint, RelayCall};
use std::mem;
use std::sync::Arc;

impl Surface for Relay {
    const NAME: telemetry::Surface = telemetry::Surface::Relay;
    const STYLE: ErrorFormat = ErrorFormat::JsonRpc;
    type Settings = Settings;
    type Judged = ();
    type Call = RelayCall;

    fn running(&self) -> &Running<Settings> {
        &self.running
    }

    /// Returns `None`: no web page may hold the token.
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

    fn admit<'a>(
        &self,
        settings: &Settings,
        (): &(),
        head: &Head<'_>,
        limiter: &RequestLimiter<'a>,
    ) -> Admission<RelayCall, Guard, Ticket<'a>> {
        let clients = self.running.clients();
        let enter = |client| clients.enter(client, &settings.limits);
        let failed_token = |client| limiter.check_failed_token(client);
        settings
            .policy
            .admit(head, limiter, limiter.now(), failed_token, enter)
    }

    async fn answer(
        &self,
        settings: &Arc<Settings>,
        call: Self::Call,
        body: Bytes,
        context: &RequestContext<'_>,
        record: &mut RequestRecord,
    ) -> Reply {
        // the task, which may outlive the request, has the record meanwhile
        let trace = Arc::new(Trace::new(context.traceparent, mem::take(record)));
        let RelayCall {
            endpoint,
            idempotency_key,
        } = call;
        let request = Request {
            settings: Arc::clone(settings),
            endpoint,
            idempotency_key,
            body,
            trace: Arc::clone(&trace),
            request_id: context.request_id.to_owned(),
        };
        let (method, reply) = self.respond(request).await;
        *record = RequestRecord {
            method,
            ..trace.take_record()
        };
        reply
    }

    /// Returns `None`: the status is shown only after the token is checked.
    fn rate_limit(&self, _: Client) -> Option<RateLimitStatus> {
        None
    }
}
