//! The metrics whose values other parts hold, read at each scrape.

use super::Admin;
use portcullis_base::io::MemoryPool;
use portcullis_base::telemetry::{Registry, Surface, as_gauge, raise};
use portcullis_edge::gateway::CacheStats;
use portcullis_edge::http::clients::Clients;
use portcullis_edge::http::tls::Identity;
use portcullis_edge::proxy::Surfaces;
use portcullis_filters::chain::LeftOut;
use portcullis_filters::concurrency::AdmissionStats;
use prometheus::{IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Opts};
use std::sync::Arc;

/// Name, help text, and how to read the value from its owner.
type Gauge<Owner, Value> = (&'static str, &'static str, fn(&Owner) -> Value);

/// Registers the metrics of parts that `admin` can see. Their registry is separate: the parts own
/// the metrics of the process, which must not own the parts in turn.
pub(super) fn registry(admin: &Admin) -> Registry {
    let registry = Registry::default();
    node(&registry, admin);
    cache(&registry, admin);
    clients(&registry, &admin.surfaces);
    if let Some(relay) = admin.surfaces.relay.clone() {
        let name = "portcullis_relay_signer_queue";
        let queues = Opts::new(name, "Operations that wait for a signing account.");
        registry.sample(IntGaugeVec::new(queues, &["account"]), move |gauges| {
            for (signer, waiting) in relay.signers() {
                gauges
                    .with_label_values(&[signer.role])
                    .set(as_gauge(waiting));
            }
        });
    }
    let log = admin.process.log.clone();
    let name = "portcullis_log_dropped_lines_total";
    let dropped = IntCounter::new(
        name,
        "Log lines dropped because stderr was not read or could not be written.",
    );
    registry.sample(dropped, move |counter| raise(counter, log.dropped()));
    certificates(&registry, &admin.surfaces);
    registry
}

/// When certificates become valid, and when they expire.
fn certificates(registry: &Registry, surfaces: &Surfaces) {
    let times: [Gauge<Identity, u64>; 2] = [
        (
            "portcullis_tls_certificate_not_before_seconds",
            "When the active certificate begins to be valid, in seconds since 1970.",
            |identity| identity.not_before,
        ),
        (
            "portcullis_tls_certificate_not_after_seconds",
            "When the active certificate expires, in seconds since 1970.",
            |identity| identity.not_after,
        ),
    ];
    for (name, help, read) in times {
        let identities = surfaces.tls.clone();
        registry.sample(
            IntGaugeVec::new(Opts::new(name, help), &["surface"]),
            move |gauges| {
                // a surface whose certificate was removed has no series
                gauges.reset();
                for surface in Surface::ALL {
                    if let Some(identity) = identities.of(surface) {
                        gauges
                            .with_label_values(&[surface.name()])
                            .set(as_gauge(read(&identity)));
                    }
                }
            },
        );
    }
}

fn node(registry: &Registry, admin: &Admin) {
    let gauges: [Gauge<MemoryPool, usize>; 2] = [
        (
            "portcullis_answer_memory_bytes",
            "Bytes held by node responses, in flight and in the cache.",
            MemoryPool::taken,
        ),
        (
            "portcullis_answer_memory_limit_bytes",
            "Bytes that node responses may hold.",
            MemoryPool::size,
        ),
    ];
    for (name, help, read) in gauges {
        let memory = Arc::clone(&admin.memory);
        registry.sample(IntGauge::new(name, help), move |gauge| {
            gauge.set(as_gauge(read(&memory)))
        });
    }
    let node = admin.node.clone();
    let connections = Opts::new(
        "portcullis_node_connections",
        "Connections to the node by state.",
    );
    registry.sample(IntGaugeVec::new(connections, &["state"]), move |gauges| {
        let urls = node.urls();
        let idle: usize = urls.iter().map(|url| url.idle).sum();
        let busy: usize = urls.iter().map(|url| url.busy).sum();
        gauges.with_label_values(&["idle"]).set(as_gauge(idle));
        gauges.with_label_values(&["busy"]).set(as_gauge(busy));
    });
    let node = admin.node.clone();
    let name = "portcullis_node_open_breakers";
    let open = IntGauge::new(name, "Node URLs whose circuit breaker is open.");
    registry.sample(open, move |gauge| {
        gauge.set(as_gauge(
            node.urls()
                .iter()
                .filter(|url| url.failure.is_some())
                .count(),
        ))
    });
    by_url(registry, admin);
}

/// Series for each URL of the node, by its position in the configuration.
fn by_url(registry: &Registry, admin: &Admin) {
    let node = admin.node.clone();
    let info = Opts::new(
        "portcullis_node_info",
        "1, with the URL at this place of node.url.",
    );
    registry.sample(IntGaugeVec::new(info, &["node", "url"]), move |gauges| {
        for (index, url) in node.urls().iter().enumerate() {
            gauges
                .with_label_values(&[&*index.to_string(), &url.url])
                .set(1);
        }
    });
    let (node, relay) = (admin.node.clone(), admin.surfaces.relay.clone());
    let name = "portcullis_node_breaker_open";
    let open = Opts::new(
        name,
        "1 while the URL only gets probes, of the gateway or of the relay.",
    );
    registry.sample(IntGaugeVec::new(open, &["node"]), move |gauges| {
        let of_relay = relay.iter().flat_map(|relay| relay.node().status().urls());
        gauges.reset();
        for (index, url) in node
            .urls()
            .into_iter()
            .enumerate()
            .chain(of_relay.enumerate())
        {
            let gauge = gauges.with_label_values(&[&*index.to_string()]);
            gauge.set(gauge.get().max(i64::from(url.failure.is_some())));
        }
    });
    reads(registry, admin);
    group(registry, admin);
}

/// Series for each URL and each class of clients' reads.
fn reads(registry: &Registry, admin: &Admin) {
    let gauges: [Gauge<AdmissionStats, i64>; 3] = [
        (
            "portcullis_node_reads_limit",
            "Concurrent reads that the URL answers well, as learned from its latencies, by class.",
            |stats| stats.limit.into(),
        ),
        (
            "portcullis_node_reads_in_flight",
            "Reads in flight at the URL, by class.",
            |stats| stats.in_flight.into(),
        ),
        (
            "portcullis_node_reads_waiting",
            "Reads that wait until the URL may get them, by class.",
            |stats| as_gauge(stats.waiting),
        ),
    ];
    for (name, help, read) in gauges {
        let node = admin.node.clone();
        let labels = ["node", "class"];
        registry.sample(
            IntGaugeVec::new(Opts::new(name, help), &labels),
            move |gauges| {
                for (index, url) in node.urls().iter().enumerate() {
                    for (class, stats) in &url.reads {
                        let labels = [&*index.to_string(), class.name()];
                        gauges.with_label_values(&labels).set(read(stats));
                    }
                }
            },
        );
    }
}

/// Series for each URL about its blocks, most of which only matter if there are several.
fn group(registry: &Registry, admin: &Admin) {
    let node = admin.node.clone();
    let help = "The newest block of the URL; -1 while it is unknown, or if there is only one URL.";
    let head = Opts::new("portcullis_node_head", help);
    registry.sample(IntGaugeVec::new(head, &["node"]), move |gauges| {
        for (index, url) in node.urls().iter().enumerate() {
            let gauge = gauges.with_label_values(&[&*index.to_string()]);
            gauge.set(url.known.head.map_or(-1, as_gauge));
        }
    });
    let node = admin.node.clone();
    let name = "portcullis_node_head_timestamp_seconds";
    let help = "When the newest block seen at the URL was made, in seconds since 1970; 0 while it \
                is unknown.";
    let time = Opts::new(name, help);
    registry.sample(IntGaugeVec::new(time, &["node"]), move |gauges| {
        for (index, url) in node.urls().iter().enumerate() {
            let gauge = gauges.with_label_values(&[&*index.to_string()]);
            gauge.set(
                url.known
                    .head_time
                    .map_or(0, |head| as_gauge(head.timestamp)),
            );
        }
    });
    let node = admin.node.clone();
    let name = "portcullis_node_left_out";
    let left_out = Opts::new(
        name,
        "1 while the URL answers, but is not used for this reason.",
    );
    registry.sample(
        IntGaugeVec::new(left_out, &["node", "reason"]),
        move |gauges| {
            for (index, url) in node.urls().iter().enumerate() {
                for reason in LeftOut::ALL {
                    let gauge = gauges.with_label_values(&[&*index.to_string(), reason.name()]);
                    gauge.set(i64::from(url.known.left_out == Some(reason)));
                }
            }
        },
    );
}

fn cache(registry: &Registry, admin: &Admin) {
    let gauges: [Gauge<CacheStats, i64>; 5] = [
        (
            "portcullis_cache_enabled",
            "1 while the gateway's cache is enabled.",
            |cache| i64::from(cache.enabled),
        ),
        (
            "portcullis_cache_entries",
            "Responses in the gateway's cache.",
            |cache| as_gauge(cache.entries),
        ),
        (
            "portcullis_cache_bytes",
            "Bytes in the gateway's cache.",
            |cache| as_gauge(cache.bytes),
        ),
        (
            "portcullis_cache_settled_block",
            "The newest block that a cached response may depend on; -1 without one.",
            |cache| cache.settled.map_or(-1, as_gauge),
        ),
        (
            "portcullis_cache_suspended",
            "1 while the cache is bypassed: it is off, or the node is unreachable.",
            |cache| i64::from(cache.suspended),
        ),
    ];
    for (name, help, read) in gauges {
        let gateway = admin.surfaces.gateway.clone();
        registry.sample(IntGauge::new(name, help), move |gauge| {
            gauge.set(read(
                &gateway
                    .as_ref()
                    .map(|gateway| gateway.cache())
                    .unwrap_or_default(),
            ));
        });
    }
}

/// Series for each surface that limits its clients; zero while it is off.
fn clients(registry: &Registry, surfaces: &Surfaces) {
    let surfaces = surfaces.clone();
    let population = move || {
        let clients = surfaces.clients();
        clients.map(|(surface, of)| {
            (
                surface.name(),
                of.map(Clients::population).unwrap_or_default(),
            )
        })
    };
    let read = population.clone();
    let tracked = Opts::new(
        "portcullis_limiter_clients",
        "Clients that a rate limiter tracks.",
    );
    registry.sample(IntGaugeVec::new(tracked, &["surface"]), move |gauges| {
        for (surface, (tracked, _)) in read() {
            gauges.with_label_values(&[surface]).set(as_gauge(tracked));
        }
    });
    let name = "portcullis_limiter_evictions_total";
    let evictions = Opts::new(name, "Clients evicted because a rate limiter was full.");
    registry.sample(
        IntCounterVec::new(evictions, &["surface"]),
        move |counters| {
            for (surface, (_, evicted)) in population() {
                raise(&counters.with_label_values(&[surface]), evicted);
            }
        },
    );
}
