//! The relay behind the edge: outcomes to statuses and bodies.

use super::surface::{About, Admission, Next, Pending, Service, Told};
use crate::relay::pins::Proof;
use crate::relay::settings::Settings;
use crate::relay::{Answer, Outcome, Relay};
use crate::reply::{Reply, Style};
use crate::telemetry::Surface;
use bytes::Bytes;
use portcullis_filters::client::Client;
use portcullis_filters::head::Head;
use portcullis_filters::limit::Standing;
use portcullis_filters::policy::{Endpoint, Inspected, MAX_BODY, RelayAdmitted, RelayCall};
use portcullis_filters::verdict::{OperationPermit, Reason, Refusal, Unverified};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::time::Instant;

/// A request whose head passed: where it goes, and the key that its answer is kept under.
pub struct Call {
    endpoint: Endpoint,
    idempotency_key: Option<String>,
}

/// The relay, as the edge holds it.
pub struct RelayService(pub Arc<Relay>);

impl Service for RelayService {
    const SURFACE: Surface = Surface::Relay;
    const STYLE: Style = Style::JsonRpc;
    type Settings = Settings;
    type Judged = ();
    type Call = Call;

    fn settings(&self) -> Arc<Settings> {
        self.0.settings()
    }

    fn told(settings: &Settings) -> Told<'_> {
        // no web page may hold the token
        Told { quota: &settings.limits.quota_header, cors: None }
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
        let style = style(admission.endpoint);
        let verdict = admission.verdict.map(|admitted| match admitted {
            RelayAdmitted::Health => Next::Reply(Reply::health()),
            RelayAdmitted::Call(admitted) => {
                let RelayCall { endpoint, slot, expects_continue, idempotency_key } = admitted;
                let call = Call { endpoint, idempotency_key };
                let max_body = MAX_BODY;
                Next::Read(Pending { call, slot, expects_continue, max_body, always: false })
            }
        });
        Admission {
            client: admission.client,
            standing: admission.standing,
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
        about: &mut About<'_>,
    ) -> Reply {
        about.method = call.endpoint.name();
        if call.endpoint == Endpoint::Ready {
            return ready(&*self.0.prove().await);
        }
        let inspected = settings.policy.inspect(call.endpoint, &body, now());
        match inspected {
            Ok(Inspected::Transaction(unverified)) => {
                self.transaction(settings, unverified, about).await
            }
            Ok(Inspected::Operation(permit)) => self.operation(&permit, &call, about).await,
            Err(refusal) => self.refused(call.endpoint, &refusal, about).await,
        }
    }

    fn standing(&self, _: Client) -> Option<Standing> {
        // nobody is told before the token was seen
        None
    }
}

impl RelayService {
    async fn transaction(
        &self,
        settings: &Settings,
        unverified: Unverified<'_>,
        about: &mut About<'_>,
    ) -> Reply {
        about.method = unverified.kind();
        let id = unverified.id().as_str().to_owned();
        let deployed = unverified.deployed();
        let policy = &settings.policy;
        let upstream = &mut about.upstream;
        let outcome = self.0.transact(unverified, policy, about.traceparent, upstream).await;
        about.metrics.relay.write(about.method, outcome.name());
        self.journal(Endpoint::Rpc, &outcome, about).await;
        if outcome.refusal.is_some() {
            return failure(Style::JsonRpc, &outcome, Some(&id), about.request_id);
        }
        let hash = hash(&outcome);
        let contract = deployed.map(|address| format!(r#","contract_address":"{address}""#));
        let contract = contract.unwrap_or_default();
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"transaction_hash":"{hash}"{contract}}}}}"#
        );
        Reply::json(200, body)
    }

    async fn operation(
        &self,
        permit: &OperationPermit,
        call: &Call,
        about: &mut About<'_>,
    ) -> Reply {
        let request_id = about.request_id.to_owned();
        let render = move |outcome: &Outcome| {
            let reply = operation_reply(outcome, &request_id);
            (reply.status, String::from_utf8_lossy(&reply.body[0]).into_owned())
        };
        let (key, trace) = (call.idempotency_key.as_deref(), about.traceparent);
        let answer = self.0.operate(permit, key, trace, render, &mut about.upstream).await;
        match answer {
            Answer::First(status, body) => {
                about.metrics.relay.write(about.method, "idempotent");
                Reply::json(status, body)
            }
            Answer::Outcome(outcome) => {
                about.metrics.relay.write(about.method, outcome.name());
                self.journal(call.endpoint, &outcome, about).await;
                operation_reply(&outcome, about.request_id)
            }
        }
    }

    /// A refusal by the policy.
    async fn refused(&self, endpoint: Endpoint, refusal: &Refusal, about: &About<'_>) -> Reply {
        self.0.journal_refusal(endpoint.name(), refusal.reason, about.request_id).await;
        Reply::refusal(style(Some(endpoint)), refusal, about.request_id)
    }

    /// A refusal by the state of things: what was submitted has its place in the journal already.
    async fn journal(&self, endpoint: Endpoint, outcome: &Outcome, about: &About<'_>) {
        if let (Some((reason, _)), None) = (&outcome.refusal, outcome.transaction_hash)
            // the journal has just shown that it takes nothing
            && *reason != Reason::StoreUnavailable
        {
            self.0.journal_refusal(endpoint.name(), *reason, about.request_id).await;
        }
    }
}

/// How errors of an endpoint are worded.
fn style(endpoint: Option<Endpoint>) -> Style {
    if endpoint == Some(Endpoint::Rpc) { Style::JsonRpc } else { Style::Plain }
}

fn operation_reply(outcome: &Outcome, request_id: &str) -> Reply {
    if outcome.refusal.is_some() {
        return failure(Style::Plain, outcome, None, request_id);
    }
    let Outcome { idempotent, more, .. } = outcome;
    let hash = hash(outcome);
    let (status, pending) = if outcome.pending { (202, r#","pending":true"#) } else { (200, "") };
    let body = format!(
        r#"{{"ok":true,"transaction_hash":"{hash}","idempotent":{idempotent}{pending}{more}}}"#
    );
    Reply::json(status, body)
}

fn failure(style: Style, outcome: &Outcome, id: Option<&str>, request_id: &str) -> Reply {
    let Some((reason, message)) = &outcome.refusal else { return Reply::no_content() };
    let mut more = outcome.more.clone();
    if let Some(hash) = outcome.transaction_hash {
        // writing to a string does not fail
        let _ = write!(more, r#","transaction_hash":"{hash}""#);
    }
    let mut reply = Reply::error(style, *reason, message, id, &more, request_id);
    reply.retry_after = outcome.retry_after.or(reply.retry_after);
    reply
}

/// The transaction's hash; empty exactly when nothing was submitted.
fn hash(outcome: &Outcome) -> String {
    outcome.transaction_hash.map(|hash| hash.to_string()).unwrap_or_default()
}

/// `GET /readyz`: every pin, expected and actual.
fn ready(proof: &Proof) -> Reply {
    let pins: Vec<_> = proof
        .pins
        .iter()
        .map(|pin| {
            let [expected, actual] =
                [&pin.expected, &pin.actual].map(|text| serde_json::Value::from(text.as_str()));
            let (name, ok) = (pin.name, pin.ok);
            format!(r#"{{"pin":"{name}","ok":{ok},"expected":{expected},"actual":{actual}}}"#)
        })
        .collect();
    let is_ready = proof.is_ready();
    let checked_at = humantime::format_rfc3339_millis(proof.checked_at);
    let pins = pins.join(",");
    let body = format!(r#"{{"ready":{is_ready},"checked_at":"{checked_at}","pins":[{pins}]}}"#);
    Reply::json(if is_ready { 200 } else { 503 }, body)
}

/// Seconds since 1970.
fn now() -> u64 {
    SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default().as_secs()
}
