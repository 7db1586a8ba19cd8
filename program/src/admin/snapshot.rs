//! The state of the process at one time, as JSON for the page. Counts are totals since the start:
//! the page computes rates and quantiles from their differences.

use super::{Admin, Listener};
use portcullis_base::io::clock;
use portcullis_base::telemetry::{
    ActiveCondition, Condition, LATENCY, Latency, Surface, Verdict, WebhookRefusals, counts,
};
use portcullis_edge::http::clients::{Running, Settings};
use portcullis_edge::node::UrlStats;
use portcullis_edge::relay::Relay;
use portcullis_filters::chain::LeftOut;
use portcullis_filters::client::{Client, Shown};
use portcullis_filters::limit::Busy;
use portcullis_filters::verdict::Reason;
use portcullis_store::Budget;
use prometheus::core::Collector;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::SystemTime;

/// Networks shown of each surface.
const SHOWN: usize = 10;
/// The busiest clients, which are summed by network.
const BUSIEST: usize = 100;

/// Milliseconds since 1970.
pub(super) fn millis(time: SystemTime) -> u64 {
    clock::millis(
        time.duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default(),
    )
}

impl Admin {
    /// The present state. A different `started_ms` means another process, whose counts begin at
    /// zero; a different number of `errors` or `reloads` means that `/errors` or `/config` has
    /// changed.
    pub(super) fn state(&self) -> Value {
        let process = &self.process;
        let sidecar = &process.metrics.sidecar;
        json!({
            "at_ms": millis(SystemTime::now()),
            "started_ms": millis(self.started),
            "version": env!("CARGO_PKG_VERSION"),
            "revision": crate::REVISION,
            "draining": process.drain.has_begun(),
            "in_flight": process.metrics.in_flight.get(),
            "memory": { "taken": self.memory.taken(), "size": self.memory.size() },
            "host": host(),
            "verdict": self.verdict(&process.metrics.conditions.present()),
            "point": self.history.newest(),
            "errors": process.log.recent().count(),
            "log_dropped": process.log.dropped(),
            "reloads": self.in_force.reloads(),
            "bounds": LATENCY,
            "surfaces": self.listeners.iter().filter_map(|of| self.surface(of)).collect::<Value>(),
            "cache": self.cache(),
            "node": self.node(),
            "seen": self.seen(),
            "fleet": self.is_in_fleet.then(|| self.fleet()),
            "relay": self.surfaces.relay.as_ref().map(|relay| self.relay(relay)),
            "sidecar": self.surfaces.sidecar.as_ref().map(|_| json!({
                "components": totals(&sidecar.components, "component"),
                "events": totals(&sidecar.events, "outcome"),
                "refused_webhooks": refused_webhooks(&sidecar.refused_webhooks),
            })),
        })
    }

    /// The verdict, and what is wrong, each with the surfaces it concerns.
    fn verdict(&self, present: &[ActiveCondition]) -> Value {
        let all = present.iter().map(|active| {
            let surfaces = self.listeners.iter().map(|listener| listener.surface);
            let concerned = surfaces.filter(|surface| concerns(active, *surface));
            json!({
                "condition": active.condition.name(),
                "message": active.condition.message(),
                "subject": active.finding.subject,
                "cause": active.finding.cause,
                "failing": active.finding.is_failing,
                "runbook": active.condition.runbook(),
                "follows": active.follows_from(present),
                "since_ms": millis(active.since),
                "surfaces": concerned.map(Surface::name).collect::<Vec<_>>(),
            })
        });
        json!({ "state": Verdict::of(present).name(), "troubles": all.collect::<Value>() })
    }

    fn surface(&self, listener: &Listener) -> Option<Value> {
        let metrics = &self.process.metrics;
        let (requests, (calls, label), limits) = match listener.surface {
            Surface::Gateway => {
                let gateway = self.surfaces.gateway.as_ref()?;
                let limits = limits(&gateway.running);
                (&metrics.requests, (&metrics.calls, "method"), limits)
            }
            Surface::Relay => {
                let relay = self.surfaces.relay.as_ref()?;
                let limits = limits(&relay.running);
                (
                    &metrics.relay.requests,
                    (&metrics.relay.writes, "operation"),
                    limits,
                )
            }
            Surface::Sidecar => {
                let sidecar = self.surfaces.sidecar.as_ref()?;
                let limits = limits(&sidecar.running);
                (
                    &metrics.sidecar.requests,
                    (&metrics.sidecar.calls, "function"),
                    limits,
                )
            }
            Surface::Admin | Surface::Acme => return None,
        };
        let [accepted, refused] = &metrics.connections_total[listener.surface as usize];
        let (failed, rejected): (Vec<_>, Vec<_>) = requests
            .unanswered()
            .partition(|(reason, _)| reason.is_failure());
        let by_reason = |counts: Vec<(Reason, u64)>| {
            named(
                counts
                    .into_iter()
                    .map(|(reason, total)| (reason.name(), total)),
            )
        };
        Some(json!({
            "name": listener.surface.name(),
            "listen": listener.listen.to_string(),
            "connections": {
                "open": metrics.connections[listener.surface as usize].get(),
                "max": listener.max_connections,
                "accepted": accepted.get(),
                "turned_away": refused.get(),
            },
            "answered": requests.answered(),
            "refused": by_reason(rejected),
            "failed": by_reason(failed),
            "latency": latency(&requests.latency()),
            "calls": totals(calls, label),
            "limits": limits,
        }))
    }

    fn cache(&self) -> Option<Value> {
        let cache = self.surfaces.gateway.as_ref()?.cache();
        let metrics = &self.process.metrics;
        Some(json!({
            "entries": cache.entries,
            "bytes": cache.bytes,
            "capacity": cache.capacity,
            "epoch": cache.generation,
            "settled": cache.settled,
            "enabled": cache.enabled,
            "suspended": cache.suspended,
            "uses": totals(&metrics.calls, "cache"),
            "emptied": totals(&metrics.cache_epochs, "cause"),
        }))
    }

    fn node(&self) -> Value {
        let gateway = self
            .surfaces
            .gateway
            .as_ref()
            .map(|_| urls("gateway", self.node.urls()));
        let relay = self
            .surfaces
            .relay
            .as_ref()
            .map(|relay| urls("relay", relay.node().status().urls()));
        let urls = [gateway, relay].into_iter().flatten().flatten();
        let metrics = &self.process.metrics;
        json!({
            "urls": urls.collect::<Value>(),
            "calls": totals(&metrics.node_calls, "outcome"),
            "retries": metrics.node_retries.get(),
            "latency": latency(&metrics.node_latency()),
        })
    }

    fn fleet(&self) -> Value {
        let metrics = &self.process.metrics.fleet;
        json!({
            "instances": metrics.instances.get(),
            "watches": metrics.is_watcher.get() == 1,
            "messages": named(metrics.messages()),
            "fallback": named(metrics.fallback()),
        })
    }

    fn relay(&self, relay: &Relay) -> Value {
        let metrics = &self.process.metrics.relay;
        let (balances, nonces) = (
            counts(&metrics.balances, "account"),
            counts(&metrics.nonces, "account"),
        );
        let signers = relay.signers().map(|(signer, waiting)| {
            json!({
                "role": signer.role,
                "address": signer.address.to_string(),
                // in STRK, as the last check of the pins read it
                "balance": balances.get(signer.role),
                "nonce": nonces.get(signer.role).map(|nonce| *nonce as u64),
                "waiting": waiting,
            })
        });
        let proof = relay.newest_proof().map(|proof| {
            json!({
                "ready": proof.is_ready(),
                "checked_ms": clock::millis(proof.checked_at),
                "epoch": proof.epoch,
                "pins": proof.pins.iter().map(|pin| json!({
                    "name": pin.name,
                    "expected": pin.expected,
                    "actual": pin.actual,
                    "ok": pin.ok,
                })).collect::<Value>(),
            })
        });
        let settings = relay.running.settings();
        let policy = &settings.live.policy;
        let used = counts(&metrics.budget_used, "budget");
        let set = [
            settings.live.faucet_per_day.map(|_| Budget::Faucet),
            settings.live.fees_per_day.map(|_| Budget::Fees),
        ];
        let budgets = set
            .into_iter()
            .flatten()
            .map(Budget::name)
            .map(|name| json!({ "name": name, "used": used.get(name) }));
        json!({
            "proof": proof,
            "signers": signers.collect::<Value>(),
            "faucet": {
                "amount": policy.faucet_amount.fri() as f64 / 1e18,
                "cooldown": policy.faucet_cooldown.as_secs(),
            },
            "budgets": budgets.collect::<Value>(),
            "intents": totals(&metrics.journal, "state"),
            "outcomes": totals(&metrics.writes, "outcome"),
        })
    }
}

/// The URLs of a node, with the surface that owns these connections.
fn urls(surface: &'static str, urls: Vec<UrlStats>) -> impl Iterator<Item = Value> {
    urls.into_iter().map(move |url| {
        json!({
            "url": url.url,
            "surface": surface,
            "idle": url.idle,
            "busy": url.busy,
            "broken": url.failure.is_some(),
            "head": url.known.head,
            "left_out": url.known.left_out.map(LeftOut::name),
        })
    })
}

/// Whether a condition impairs a surface.
fn concerns(active: &ActiveCondition, surface: Surface) -> bool {
    match (active.condition, surface) {
        (Condition::OpenFiles, _) => true,
        (Condition::Configuration | Condition::Task, _) => false,
        (Condition::Fleet, surface) => !matches!(surface, Surface::Admin | Surface::Acme),
        (Condition::Certificate | Condition::Requests, surface) => {
            active.finding.subject == surface.name()
        }
        (Condition::NodeUrl | Condition::NodeStalled, surface) => {
            matches!(surface, Surface::Gateway | Surface::Relay)
        }
        (Condition::Cache, surface) => surface == Surface::Gateway,
        (Condition::Pins | Condition::Events, surface) => surface == Surface::Relay,
        (Condition::Replica, surface) => surface == Surface::Sidecar,
        (Condition::Store, surface) => matches!(surface, Surface::Relay | Surface::Sidecar),
    }
}

/// The refused webhooks by reason, the most recent first.
fn refused_webhooks(refused: &WebhookRefusals) -> Value {
    let all = refused.by_reason();
    let all = all.iter().map(|one| {
        json!({
            "reason": one.reason.name(),
            "total": one.total,
            "last_ms": millis(one.last),
        })
    });
    all.collect()
}

/// The name of this machine, which a tunnel hides from the browser; empty if it is unknown.
fn host() -> String {
    // a sandbox may hide the first
    let files = ["/proc/sys/kernel/hostname", "/etc/hostname"];
    let name = files
        .iter()
        .find_map(|file| std::fs::read_to_string(file).ok());
    name.unwrap_or_default().trim().to_owned()
}

/// Totals by name.
fn named<N: AsRef<str>>(totals: impl Iterator<Item = (N, u64)>) -> Value {
    totals
        .map(|(name, total)| json!({ "name": name.as_ref(), "total": total }))
        .collect()
}

/// Sums a metric by the values of a label.
fn totals(metric: &impl Collector, label: &str) -> Value {
    named(
        counts(metric, label)
            .iter()
            .map(|(name, total)| (name, *total as u64)),
    )
}

fn latency(latency: &Latency) -> Value {
    json!({ "count": latency.count, "sum": latency.sum, "below": latency.below })
}

/// The limits of a surface, and the networks of its busiest clients.
fn limits(running: &Running<impl Settings>) -> Value {
    let (settings, clients) = (running.settings(), running.clients());
    let limits = settings.limits();
    let (tracked, evicted) = clients.population();
    json!({
        "per_minute": limits.per_minute(),
        "at_a_time": limits.in_flight(),
        "clients": tracked,
        "forgotten": evicted,
        "busiest": by_network(&clients.busiest(BUSIEST), &*settings),
    })
}

/// The busiest clients of a network.
#[derive(Default)]
struct BusyNetwork {
    clients: usize,
    requests: u64,
    /// The requests of the client that is nearest to its limit, and the limit.
    nearest: (u32, u32),
}

/// The busiest networks: IPv4 /24, IPv6 /48. No client is shown in full.
fn by_network(busiest: &[Busy], settings: &impl Settings) -> Value {
    let mut networks: BTreeMap<String, BusyNetwork> = BTreeMap::new();
    for busy in busiest {
        let client = Client::at(busy.client.address());
        let name = client.shown(Shown::Truncated).to_string();
        let network = networks.entry(name).or_default();
        network.clients += 1;
        network.requests += u64::from(busy.requests);
        let (most, limit) = network.nearest;
        let own = settings.limits_of(client).per_minute();
        if u64::from(busy.requests) * u64::from(limit) >= u64::from(most) * u64::from(own) {
            network.nearest = (busy.requests, own);
        }
    }
    let mut networks: Vec<_> = networks.into_iter().collect();
    networks.sort_by_key(|(_, network)| std::cmp::Reverse(network.requests));
    let shown = networks.into_iter().take(SHOWN).map(|(name, network)| {
        let (most, limit) = network.nearest;
        json!({
            "network": name,
            "clients": network.clients,
            // in the last minute, of all clients, and of the one that is nearest to its limit
            "requests": network.requests,
            "most": most,
            "limit": limit,
        })
    });
    shown.collect()
}
