//! The state of the process at one time, gathered from those who have it.

use super::Admin;
use super::numbers::Numbers;
use super::state::{
    Busy, Cache, Connections, Count, Faucet, Limits, Memory, Node, Pin, Proof, Relay, Sidecar,
    Signer, Snapshot, Surface, Url,
};
use crate::http::clients::{ClientLimits, Clients};
use crate::telemetry::{self, LATENCY};
use portcullis_filters::client::{Client, Shown};
use std::time::SystemTime;

/// Clients that are shown of each surface.
const BUSIEST: usize = 10;

/// The names of a surface's metrics.
struct Names {
    requests: &'static str,
    latency: &'static str,
    /// What was asked for, and the label that tells it.
    calls: (&'static str, &'static str),
}

const fn names(surface: telemetry::Surface) -> Names {
    match surface {
        telemetry::Surface::Gateway | telemetry::Surface::Admin => Names {
            requests: "portcullis_requests_total",
            latency: "portcullis_request_duration_seconds",
            calls: ("portcullis_calls_total", "method"),
        },
        telemetry::Surface::Relay => Names {
            requests: "portcullis_relay_requests_total",
            latency: "portcullis_relay_request_duration_seconds",
            calls: ("portcullis_relay_writes_total", "operation"),
        },
        telemetry::Surface::Sidecar => Names {
            requests: "portcullis_sidecar_requests_total",
            latency: "portcullis_sidecar_request_duration_seconds",
            calls: ("portcullis_sidecar_calls_total", "function"),
        },
    }
}

/// Milliseconds since 1970.
pub(super) fn millis(time: SystemTime) -> u64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

impl Admin {
    /// Everything now.
    pub(super) fn state(&self) -> Snapshot {
        let process = &self.process;
        let numbers = Numbers::new(process.metrics.gather(&self.sample()));
        Snapshot {
            at_ms: millis(SystemTime::now()),
            started_ms: millis(self.started),
            version: env!("CARGO_PKG_VERSION"),
            draining: process.drain.has_begun(),
            in_flight: numbers.sum("portcullis_requests_in_flight", &[]),
            memory: Memory { taken: self.memory.taken() as u64, size: self.memory.size() as u64 },
            errors: process.log.recent().count(),
            log_dropped: process.log.dropped(),
            reloads: self.in_force.reloads(),
            bounds: &LATENCY,
            surfaces: self.surfaces(&numbers),
            cache: self.cache(&numbers),
            node: self.node(&numbers),
            relay: self.relay(&numbers),
            sidecar: self.surfaces.sidecar.is_some().then(|| Sidecar {
                components: numbers.by("portcullis_sidecar_component_healthy", "component"),
                events: numbers.by("portcullis_sidecar_age_events_total", "outcome"),
            }),
        }
    }

    fn surfaces(&self, numbers: &Numbers) -> Vec<Surface> {
        let surface = |listener: &super::Listener| {
            let limits = match listener.surface {
                telemetry::Surface::Gateway => {
                    let gateway = self.surfaces.gateway.as_ref()?;
                    limits(gateway.clients(), &gateway.settings().limits)
                }
                telemetry::Surface::Relay => {
                    let relay = self.surfaces.relay.as_ref()?;
                    limits(relay.clients(), &relay.settings().limits)
                }
                telemetry::Surface::Sidecar => {
                    let sidecar = self.surfaces.sidecar.as_ref()?;
                    limits(sidecar.clients(), &sidecar.settings().limits)
                }
                telemetry::Surface::Admin => return None,
            };
            Some(one_surface(listener, limits, numbers))
        };
        self.listeners.iter().filter_map(surface).collect()
    }

    fn cache(&self, numbers: &Numbers) -> Option<Cache> {
        let standing = self.surfaces.gateway.as_ref()?.cache();
        Some(Cache {
            entries: standing.entries,
            bytes: standing.bytes,
            capacity: standing.capacity,
            epoch: standing.epoch,
            settled: standing.settled,
            suspended: standing.suspended,
            uses: numbers.by("portcullis_calls_total", "cache"),
            emptied: numbers.by("portcullis_cache_epochs_total", "cause"),
        })
    }

    fn node(&self, numbers: &Numbers) -> Node {
        let gateway = self.surfaces.gateway.as_ref().map(|_| ("gateway", &*self.node));
        let relay = self.surfaces.relay.as_ref().map(|relay| ("relay", relay.node()));
        let urls = [gateway, relay].into_iter().flatten().flat_map(|(surface, node)| {
            node.urls().map(move |url| Url {
                url: url.url,
                surface,
                idle: url.idle,
                busy: url.busy,
                broken: url.is_open,
            })
        });
        Node {
            urls: urls.collect(),
            calls: numbers.by("portcullis_node_calls_total", "outcome"),
            retries: numbers.sum("portcullis_node_retries_total", &[]),
            latency: numbers.latency("portcullis_node_call_duration_seconds"),
        }
    }

    fn relay(&self, numbers: &Numbers) -> Option<Relay> {
        let relay = self.surfaces.relay.as_ref()?;
        let proof = relay.newest_proof().map(|proof| Proof {
            ready: proof.is_ready(),
            checked_ms: millis(proof.checked_at),
            epoch: proof.epoch.clone(),
            pins: proof
                .pins
                .iter()
                .map(|pin| Pin {
                    name: pin.name,
                    expected: pin.expected.clone(),
                    actual: pin.actual.clone(),
                    ok: pin.ok,
                })
                .collect(),
        });
        let signers = relay.signers().map(|(signer, waiting)| {
            let account = ("account", signer.role);
            let nonce = numbers.value("portcullis_relay_signer_nonce", account);
            Signer {
                role: signer.role,
                address: signer.address.to_string(),
                balance: numbers.value("portcullis_relay_balance_strk", account),
                nonce: nonce.map(|nonce| nonce as u64),
                waiting,
            }
        });
        let rules = relay.settings().rules;
        Some(Relay {
            proof,
            signers: signers.collect(),
            faucet: Faucet {
                amount: rules.faucet_amount as f64 / 1e18,
                cooldown: rules.faucet_cooldown.as_secs(),
            },
            intents: numbers.by("portcullis_relay_journal_intents", "state"),
            outcomes: numbers.by("portcullis_relay_writes_total", "outcome"),
        })
    }
}

fn one_surface(listener: &super::Listener, limits: Limits, numbers: &Numbers) -> Surface {
    let name = listener.surface.name();
    let Names { requests, latency, calls } = names(listener.surface);
    let is_it = ("surface", name);
    let connections =
        |outcome| numbers.sum("portcullis_connections_total", &[is_it, ("outcome", outcome)]);
    let by_reason = |verdict| -> Vec<Count> {
        let counts = numbers.by_where(requests, "reason", &[("verdict", verdict)]);
        counts.into_iter().filter(|count| count.total > 0).collect()
    };
    Surface {
        name,
        listen: listener.listen.to_string(),
        connections: Connections {
            open: numbers.sum("portcullis_connections", &[is_it]),
            max: listener.max_connections as u64,
            accepted: connections("accepted"),
            turned_away: connections("refused"),
        },
        answered: numbers.sum(requests, &[("verdict", "answered")]),
        refused: by_reason("refused"),
        failed: by_reason("failed"),
        latency: numbers.latency(latency),
        calls: numbers.by(calls.0, calls.1),
        limits,
    }
}

fn limits(clients: &Clients, limits: &ClientLimits) -> Limits {
    let (remembered, forgotten) = clients.population();
    let busiest = clients.busiest(BUSIEST).into_iter().map(|busy| Busy {
        network: Client::at(busy.client.address()).shown(Shown::Truncated).to_string(),
        requests: busy.requests,
    });
    Limits {
        per_minute: limits.per_minute(),
        at_a_time: limits.in_flight(),
        clients: remembered,
        forgotten,
        busiest: busiest.collect(),
    }
}
