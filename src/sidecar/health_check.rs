//! `health-check`: how the dependencies are.
//!
//! All are asked at once, within 3 s, and one round of answers serves everybody for 10 s. Only the
//! platform and the database are critical: without them the answer is 503. What is told are fixed
//! words: never an address, nor what a driver said. The operator sees times and names of providers,
//! too. <https://datatracker.ietf.org/doc/html/draft-inadarei-api-health-check-06>

use super::fetch::{self, FetchError, Trust};
use super::query::Query;
use super::{Settings, Sidecar};
use crate::config::{HealthConfig, Provider};
use crate::io::deadline::within;
use crate::reply::Reply;
use crate::store::Store;
use futures_util::future::join_all;
use portcullis_filters::policy::Asked;
use serde_json::{Map, Value, json};
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use tokio::sync::Mutex;
use tokio::time::Instant;

/// For one component.
const PATIENCE: Duration = Duration::from_secs(2);
/// For all of them.
const IN_ALL: Duration = Duration::from_secs(3);
/// How long one round of answers serves.
const KEPT: Duration = Duration::from_secs(10);

const PLATFORM: &str = "platform";
const DATABASE: &str = "database";

/// Who is asked, and the last round of answers.
pub(super) struct Health {
    targets: Vec<Target>,
    last: Mutex<Option<(Instant, Arc<Vec<Finding>>)>>,
}

struct Target {
    component: &'static str,
    /// The provider's, where there are several of a kind.
    name: Option<String>,
    /// None: it is not configured, or it is the database.
    url: Option<String>,
}

/// How one component is.
struct Finding {
    component: &'static str,
    name: Option<String>,
    configured: bool,
    fault: Option<&'static str>,
    took: Duration,
    at: SystemTime,
}

impl Health {
    pub(super) fn new(config: &HealthConfig) -> Self {
        let HealthConfig { platform, card_data, pds, email, web_push, .. } = config;
        let one = |component, url: Option<String>| Target { component, name: None, url };
        let several = |component, providers: &[Provider]| match providers {
            [] => vec![one(component, None)],
            _ => providers
                .iter()
                .map(|Provider { name, url }| Target {
                    component,
                    name: Some(name.clone()),
                    url: Some(url.clone()),
                })
                .collect(),
        };
        let mut targets = vec![one(PLATFORM, platform.clone()), one(DATABASE, None)];
        targets.extend(several("card_data", card_data));
        targets.push(one("pds", pds.as_ref().map(|url| format!("{url}/xrpc/_health"))));
        targets.push(one("email", email.clone()));
        targets.push(one("web_push", web_push.clone()));
        targets.push(one("podcast_syndication", config.podcast_syndication.clone()));
        targets.extend(several("payments", &config.payments));
        Self { targets, last: Mutex::new(None) }
    }

    /// The last round, or a new one when that is too old; whoever comes meanwhile waits for it.
    async fn findings(&self, store: &Store) -> Arc<Vec<Finding>> {
        let mut last = self.last.lock().await;
        if let Some((at, findings)) = &*last
            && at.elapsed() < KEPT
        {
            return Arc::clone(findings);
        }
        let findings = join_all(self.targets.iter().map(|target| target.look(store))).await;
        let findings = Arc::new(findings);
        *last = Some((Instant::now(), Arc::clone(&findings)));
        findings
    }
}

impl Target {
    async fn look(&self, store: &Store) -> Finding {
        let started = Instant::now();
        let at = SystemTime::now();
        let fault = within(IN_ALL, self.fault(store)).await.unwrap_or(Some("timeout"));
        Finding {
            component: self.component,
            name: self.name.clone(),
            configured: self.url.is_some() || self.component == DATABASE,
            fault,
            took: started.elapsed(),
            at,
        }
    }

    async fn fault(&self, store: &Store) -> Option<&'static str> {
        if self.component == DATABASE {
            return match within(PATIENCE, store.ping()).await {
                Some(Ok(())) => None,
                Some(Err(error)) => {
                    log::error!("store: {error}");
                    Some("store_error")
                }
                None => Some("timeout"),
            };
        }
        match fetch::status(self.url.as_deref()?, Trust::Operator, PATIENCE).await {
            Ok(200..=399) => None,
            Ok(400..=499) => Some("http_4xx"),
            Ok(_) => Some("http_5xx"),
            Err(FetchError::Timeout) => Some("timeout"),
            Err(_) => Some("unreachable"),
        }
    }
}

impl Finding {
    fn is_critical(&self) -> bool {
        matches!(self.component, PLATFORM | DATABASE)
    }

    fn status(&self) -> &'static str {
        match self.fault {
            None => "pass",
            Some(_) if self.is_critical() => "fail",
            Some(_) => "warn",
        }
    }

    fn shown(&self, to_operator: bool) -> Value {
        let mut shown = json!({
            "componentId": self.component,
            "configured": self.configured,
            "status": self.status(),
        });
        if self.configured {
            shown["latency"] = bucket(self.took).into();
        }
        if let Some(output) = self.fault.or((!self.configured).then_some("not_configured")) {
            shown["output"] = output.into();
        }
        if to_operator {
            shown["time"] = humantime::format_rfc3339_millis(self.at).to_string().into();
            shown["latency_ms"] = u64::try_from(self.took.as_millis()).unwrap_or(u64::MAX).into();
            if let Some(name) = &self.name {
                shown["name"] = name.as_str().into();
            }
        }
        shown
    }
}

impl Sidecar {
    pub(super) async fn health_check(&self, settings: &Settings, asked: &Asked) -> Reply {
        let query = Query::parse(&asked.query);
        if query.all("probe").any(|probe| probe == "live") {
            let body = json!({ "status": "pass", "version": env!("CARGO_PKG_VERSION") });
            return media_type(Reply::json(200, body.to_string()), asked);
        }
        let findings = settings.health.findings(&self.store).await;
        let mut checks = Map::new();
        for finding in findings.iter() {
            let entries = checks.entry(finding.component).or_insert_with(|| json!([]));
            if let Some(entries) = entries.as_array_mut() {
                entries.push(finding.shown(asked.is_operator));
            }
            if finding.configured {
                // of several providers the worst counts
                let mut same = findings.iter().filter(|one| one.component == finding.component);
                let is_healthy = same.all(|one| one.fault.is_none());
                self.metrics.sidecar.component(finding.component, is_healthy);
            }
        }
        let worst = ["fail", "warn"]
            .into_iter()
            .find(|status| findings.iter().any(|finding| finding.status() == *status));
        let worst = worst.unwrap_or("pass");
        let body = json!({
            "status": worst,
            "version": env!("CARGO_PKG_VERSION"),
            "checks": checks,
        });
        let status = if worst == "fail" { 503 } else { 200 };
        media_type(Reply::json(status, body.to_string()), asked)
    }
}

/// The draft's media type is not registered: only who asks for it gets it.
fn media_type(mut reply: Reply, asked: &Asked) -> Reply {
    const NAME: &str = "application/health+json";
    let accepted = asked.accept.as_deref().and_then(|accept| str::from_utf8(accept).ok());
    if accepted.is_some_and(|accept| accept.to_ascii_lowercase().contains(NAME)) {
        reply.media_type = Some(NAME);
    }
    reply.field("vary", "accept");
    reply
}

fn bucket(took: Duration) -> &'static str {
    match took.as_millis() {
        0..10 => "<10ms",
        10..100 => "<100ms",
        100..1_000 => "<1s",
        _ => ">=1s",
    }
}
