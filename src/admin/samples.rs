//! The metrics whose values other parts keep: read at each scrape.

use super::Admin;
use crate::http::clients::Clients;
use crate::proxy::Surfaces;
use crate::telemetry::{Registry, Surface, as_gauge, raise};
use std::sync::Arc;

/// Registers what `admin` can see. A registry of its own, so that the parts, which hold the
/// metrics of the process, are not held by them in turn.
pub(super) fn registry(admin: &Admin) -> Registry {
    let registry = Registry::default();
    node(&registry, admin);
    cache(&registry, admin);
    clients(&registry, &admin.surfaces);
    if let Some(relay) = admin.surfaces.relay.clone() {
        registry.sample_by(
            "portcullis_relay_signer_queue",
            "Operations that wait for a signing account.",
            "account",
            move |gauges| {
                for (signer, waiting) in relay.signers() {
                    gauges.with_label_values(&[signer.role]).set(as_gauge(waiting));
                }
            },
        );
    }
    let log = admin.process.log.clone();
    registry.sample_counter(
        "portcullis_log_dropped_lines_total",
        "Log lines dropped because stderr was not read.",
        move || log.dropped(),
    );
    let identities = admin.surfaces.tls.clone();
    registry.sample_by(
        "portcullis_tls_certificate_not_after_seconds",
        "When the active certificate expires, in seconds since 1970.",
        "surface",
        move |gauges| {
            // a surface whose certificate was removed has no series
            gauges.reset();
            for surface in Surface::ALL {
                if let Some(identity) = identities.of(surface) {
                    let gauge = gauges.with_label_values(&[surface.name()]);
                    gauge.set(as_gauge(identity.not_after));
                }
            }
        },
    );
    registry
}

fn node(registry: &Registry, admin: &Admin) {
    let memory = Arc::clone(&admin.memory);
    registry.sample(
        "portcullis_answer_memory_bytes",
        "Bytes held by node responses, in flight and in the cache.",
        move || as_gauge(memory.taken()),
    );
    let memory = Arc::clone(&admin.memory);
    registry.sample(
        "portcullis_answer_memory_limit_bytes",
        "Bytes that node responses may hold.",
        move || as_gauge(memory.size()),
    );
    let node = Arc::clone(&admin.node);
    registry.sample_by(
        "portcullis_node_connections",
        "Connections to the node by state.",
        "state",
        move |gauges| {
            let pool = node.stats();
            gauges.with_label_values(&["idle"]).set(as_gauge(pool.idle));
            gauges.with_label_values(&["busy"]).set(as_gauge(pool.busy));
        },
    );
    let node = Arc::clone(&admin.node);
    registry.sample(
        "portcullis_node_open_breakers",
        "Node URLs whose circuit breaker is open.",
        move || as_gauge(node.stats().open_breakers),
    );
}

fn cache(registry: &Registry, admin: &Admin) {
    let gateway = admin.surfaces.gateway.clone();
    let cache = move || gateway.as_ref().map(|gateway| gateway.cache()).unwrap_or_default();
    let read = cache.clone();
    registry.sample(
        "portcullis_cache_enabled",
        "1 while the gateway's cache is enabled.",
        move || i64::from(read().enabled),
    );
    let read = cache.clone();
    registry.sample("portcullis_cache_entries", "Responses in the gateway's cache.", move || {
        as_gauge(read().entries)
    });
    let read = cache.clone();
    registry.sample("portcullis_cache_bytes", "Bytes in the gateway's cache.", move || {
        as_gauge(read().bytes)
    });
    let read = cache.clone();
    registry.sample(
        "portcullis_cache_settled_block",
        "The newest block that a cached response may depend on; -1 without one.",
        move || read().settled.map_or(-1, as_gauge),
    );
    registry.sample(
        "portcullis_cache_suspended",
        "1 while the cache is bypassed: it is off, or the node is unreachable.",
        move || i64::from(cache().suspended),
    );
}

/// Series for each surface that limits its clients; zero while it is off.
fn clients(registry: &Registry, surfaces: &Surfaces) {
    let Surfaces { gateway, relay, sidecar, .. } = surfaces.clone();
    let population = move || {
        [
            (Surface::Gateway, gateway.as_ref().map(|surface| surface.running.clients())),
            (Surface::Relay, relay.as_ref().map(|surface| surface.running.clients())),
            (Surface::Sidecar, sidecar.as_ref().map(|surface| surface.running.clients())),
        ]
        .map(|(surface, of)| (surface.name(), of.map(Clients::population).unwrap_or_default()))
    };
    let read = population.clone();
    registry.sample_by(
        "portcullis_limiter_clients",
        "Clients that a rate limiter tracks.",
        "surface",
        move |gauges| {
            for (surface, (tracked, _)) in read() {
                gauges.with_label_values(&[surface]).set(as_gauge(tracked));
            }
        },
    );
    registry.sample_counters(
        "portcullis_limiter_evictions_total",
        "Clients evicted because a rate limiter was full.",
        "surface",
        move |counters| {
            for (surface, (_, evicted)) in population() {
                raise(&counters.with_label_values(&[surface]), evicted);
            }
        },
    );
}
