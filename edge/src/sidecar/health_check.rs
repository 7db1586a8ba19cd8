//! `health-check`: the status of the dependencies.
//!
//! All are checked concurrently, within 3 s, and the result is cached for 10 s. Only the platform
//! and the database are critical: without them the response is 503. Outputs are fixed words, never
//! an address or a driver's message. The operator also sees times and names of providers.
//! <https://datatracker.ietf.org/doc/html/draft-inadarei-api-health-check-06>

use super::Refused;
use super::query::Query;
use crate::reply::Reply;
use futures_util::future::join_all;
use portcullis_base::config::{HealthLive, Provider};
use portcullis_base::fetch::{self, FetchError, Trust};
use portcullis_base::io::clock::{self, millis};
use portcullis_base::io::shared::Shared;
use portcullis_base::io::within;
use portcullis_base::telemetry::{Condition, Conditions, Metrics};
use portcullis_filters::policy::RequestParts;
use portcullis_store::Store;
use serde_json::{Map, Value, json};
use std::pin::pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// Timeout for the check of one component.
const CHECK_TIMEOUT: Duration = Duration::from_secs(2);
/// Timeout for a round of checks.
const ROUND_TIMEOUT: Duration = Duration::from_secs(3);
/// How long one round of checks is cached.
const CACHED: Duration = Duration::from_secs(10);

/// The fault of a redirect, which is not followed.
const REDIRECT: &str = "http_3xx";
/// The fault of a component that does not answer in time.
const TIMEOUT: &str = "timeout";

const PLATFORM: &str = "platform";
const DATABASE: &str = "database";

/// The components, and the last round of checks.
pub(super) struct Health {
    components: Arc<[Component]>,
    round: Shared<(), Arc<[Finding]>>,
}

struct Component {
    kind: &'static str,
    /// The provider's name, where there are several of a kind.
    name: Option<String>,
    /// `None` for the database and for components that are not configured.
    url: Option<String>,
    /// The healthy statuses; any 2xx if there are none.
    expected: Vec<u16>,
}

/// The result of checking one component.
struct Finding {
    fault: Option<Fault>,
    latency: Duration,
    at: SystemTime,
}

/// Why a component is not healthy.
struct Fault {
    output: &'static str,
    /// More about it in words, for the operator.
    cause: Option<String>,
}

impl Fault {
    /// A fault whose output says it all.
    fn plain(output: &'static str) -> Self {
        Self {
            output,
            cause: None,
        }
    }
}

impl Health {
    pub(super) fn new(config: &HealthLive) -> Self {
        let HealthLive {
            platform,
            card_data,
            pds,
            email,
            web_push,
            expect,
            ..
        } = config;
        let expected = |kind| {
            let of = expect.iter().filter(|one| one.service == kind);
            of.map(|one| one.status).collect()
        };
        let one = |kind, url: &Option<String>| Component {
            kind,
            name: None,
            url: url.clone(),
            expected: expected(kind),
        };
        let several = |kind, providers: &[Provider]| match providers {
            [] => vec![one(kind, &None)],
            _ => providers
                .iter()
                .map(|Provider { name, url }| Component {
                    kind,
                    name: Some(name.clone()),
                    url: Some(url.clone()),
                    expected: expected(kind),
                })
                .collect(),
        };
        let pds = pds.as_ref().map(|url| format!("{url}/xrpc/_health"));
        let components = [
            vec![one(PLATFORM, platform), one(DATABASE, &None)],
            several("card_data", card_data),
            vec![
                one("pds", &pds),
                one("email", email),
                one("web_push", web_push),
            ],
            vec![one("podcast_syndication", &config.podcast_syndication)],
            several("payments", &config.payments),
        ];
        let components = components.into_iter().flatten().collect();
        Self {
            components,
            round: Shared::new(1, |_| 1),
        }
    }

    pub(super) async fn answer(
        &self,
        store: &Arc<Store>,
        metrics: &Arc<Metrics>,
        request: &RequestParts,
    ) -> Result<Reply, Refused> {
        let version = env!("CARGO_PKG_VERSION");
        if Query::parse(&request.query)
            .all("probe")
            .any(|probe| probe == "live")
        {
            return Ok(reply(
                200,
                &json!({ "status": "pass", "version": version }),
                request,
            ));
        }
        let (components, store) = (Arc::clone(&self.components), Arc::clone(store));
        let conditions = Arc::clone(metrics);
        let check_all = async move {
            let conditions = &conditions.conditions;
            let checks = components
                .iter()
                .map(|component| component.check(&store, conditions));
            (join_all(checks).await.into(), CACHED)
        };
        let findings = self.round.get((), check_all).await?;
        let found = || self.components.iter().zip(findings.iter());
        let mut checks = Map::new();
        for (component, finding) in found() {
            let entries = checks.entry(component.kind).or_insert_with(|| json!([]));
            if let Some(entries) = entries.as_array_mut() {
                entries.push(component.to_json(finding, request));
            }
            if component.is_configured() {
                // of several providers the worst counts
                let mut same = found().filter(|(one, _)| one.kind == component.kind);
                let is_healthy = same.all(|(_, finding)| finding.fault.is_none());
                metrics
                    .sidecar
                    .component(component.kind)
                    .set(is_healthy.into());
            }
        }
        let is_any = |status: &&str| found().any(|(one, finding)| one.status(finding) == *status);
        let worst = ["fail", "warn"].into_iter().find(is_any).unwrap_or("pass");
        let body = json!({ "status": worst, "version": version, "checks": checks });
        Ok(reply(
            if worst == "fail" { 503 } else { 200 },
            &body,
            request,
        ))
    }
}

impl Component {
    async fn check(&self, store: &Store, conditions: &Conditions) -> Finding {
        let started = Instant::now();
        let at = SystemTime::now();
        let fault = within(ROUND_TIMEOUT, pin!(self.fault(store, conditions))).await;
        let fault = fault.unwrap_or(Some(Fault::plain(TIMEOUT)));
        Finding {
            fault,
            latency: started.elapsed(),
            at,
        }
    }

    async fn fault(&self, store: &Store, conditions: &Conditions) -> Option<Fault> {
        if self.kind == DATABASE {
            return store_fault(store, conditions).await.map(Fault::plain);
        }
        let output = match fetch::status(self.url.as_deref()?, Trust::Operator, CHECK_TIMEOUT).await
        {
            Ok(status) if self.expected.contains(&status) => return None,
            Ok(200..=299) if self.expected.is_empty() => return None,
            Ok(200..=299) => "http_2xx",
            Ok(300..=399) => REDIRECT,
            Ok(400..=499) => "http_4xx",
            Ok(_) => "http_5xx",
            Err(FetchError::Timeout) => TIMEOUT,
            Err(FetchError::Tls(cause)) => {
                return Some(Fault {
                    output: "tls_error",
                    cause: Some(cause),
                });
            }
            Err(_) => "unreachable",
        };
        Some(Fault::plain(output))
    }

    fn is_configured(&self) -> bool {
        self.url.is_some() || self.kind == DATABASE
    }

    fn status(&self, finding: &Finding) -> &'static str {
        match finding.fault.as_ref().map(|fault| fault.output) {
            None => "pass",
            // something answers, but perhaps a login or maintenance page
            Some(REDIRECT) => "warn",
            Some(_) if matches!(self.kind, PLATFORM | DATABASE) => "fail",
            Some(_) => "warn",
        }
    }

    fn to_json(&self, finding: &Finding, request: &RequestParts) -> Value {
        let Finding { fault, latency, at } = finding;
        let configured = self.is_configured();
        let mut json = json!({
            "componentId": self.kind,
            "configured": configured,
            "status": self.status(finding),
        });
        if configured {
            json["latency"] = bucket(*latency).into();
        }
        match fault {
            Some(fault) => json["output"] = fault.output.into(),
            None if !configured => json["output"] = "not_configured".into(),
            None => {}
        }
        if request.is_operator {
            if let Some(cause) = fault.as_ref().and_then(|fault| fault.cause.as_deref()) {
                json["cause"] = cause.into();
            }
            json["time"] = clock::rfc3339_millis(*at).into();
            json["latency_ms"] = millis(*latency).into();
            if let Some(name) = &self.name {
                json["name"] = name.as_str().into();
            }
        }
        json
    }
}

/// The fault of the store, if it has one.
async fn store_fault(store: &Store, conditions: &Conditions) -> Option<&'static str> {
    const FAULT: &str = "store_error";
    match within(CHECK_TIMEOUT, pin!(store.ping())).await {
        // reads succeed but writes fail, as on a full disk
        Some(Ok(())) if conditions.has(Condition::Store) => Some(FAULT),
        Some(Ok(())) => None,
        Some(Err(error)) => {
            error.log();
            Some(FAULT)
        }
        None => Some(TIMEOUT),
    }
}

/// The draft's media type is not registered: only clients that accept it get it.
fn reply(status: u16, body: &Value, request: &RequestParts) -> Reply {
    const MEDIA_TYPE: &str = "application/health+json";
    let mut reply = Reply::serialize(status, body);
    let accept = request
        .accept
        .as_deref()
        .and_then(|accept| str::from_utf8(accept).ok());
    if accept.is_some_and(|accept| accept.to_ascii_lowercase().contains(MEDIA_TYPE)) {
        reply.media_type = Some(MEDIA_TYPE);
    }
    reply.field("vary", "accept");
    reply
}

fn bucket(latency: Duration) -> &'static str {
    match latency.as_millis() {
        0..10 => "<10ms",
        10..100 => "<100ms",
        100..1_000 => "<1s",
        _ => ">=1s",
    }
}
