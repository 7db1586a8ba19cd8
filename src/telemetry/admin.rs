//! The operator's listener: metrics and probes.
//!
//! `GET /metrics` is Prometheus' text format, `/livez` says that the process runs, `/readyz` that
//! it takes requests: 503 from the moment a stop was asked for. `/docs` shows the documents of all
//! surfaces. It is on loopback or a Unix socket.

use super::Sample;
use crate::clients::Clients;
use crate::deadline::within;
use crate::docs;
use crate::gate::{App, Request};
use crate::node::{Memory, Node};
use crate::process::Process;
use crate::reply::{self, Facts, Persistence, Reply};
use crate::surfaces::Surfaces;
use bytes::Bytes;
use http::Method;
use std::sync::Arc;
use std::time::Duration;

/// To take an answer.
const TAKE: Duration = Duration::from_secs(10);

/// What the admin listener shows.
pub struct Admin {
    /// What it shows, and how far a stop is.
    pub process: Process,
    /// Whose state it shows.
    pub surfaces: Surfaces,
    /// The node.
    pub node: Arc<Node>,
    /// The memory for answers.
    pub memory: Arc<Memory>,
}

impl Admin {
    fn sample(&self) -> Sample {
        for (role, waiting) in self.surfaces.relay.iter().flat_map(|relay| relay.queues()) {
            self.process.metrics.relay.queue(role, waiting);
        }
        let Surfaces { gateway, relay, sidecar } = &self.surfaces;
        let clients = [
            gateway.as_ref().map(|gateway| gateway.clients()),
            relay.as_ref().map(|relay| relay.clients()),
            sidecar.as_ref().map(|sidecar| sidecar.clients()),
        ];
        let cache = gateway.as_ref().map(|gateway| gateway.cache());
        let node = self.node.standing();
        Sample {
            limiters: clients.map(|of| of.map(Clients::population).unwrap_or_default()),
            answer_memory: self.memory.taken() as u64,
            answer_memory_limit: self.memory.size() as u64,
            cache: cache.unwrap_or_default(),
            node_idle: node.idle as u64,
            node_busy: node.busy as u64,
            node_open_breakers: node.open_breakers as u64,
            log_dropped: self.process.log.dropped(),
        }
    }

    fn answer(&self, method: &Method, target: &[u8]) -> Reply {
        let document = docs::reply(target);
        let known = matches!(target, b"/metrics" | b"/livez" | b"/readyz") || document.is_some();
        if !known {
            return Reply::text(404, "not found: try /metrics, /livez, /readyz or /docs\n");
        }
        if !matches!(*method, Method::GET | Method::HEAD) {
            return Reply { allow: Some("GET, HEAD"), ..Reply::text(405, "GET or HEAD\n") };
        }
        if let Some(document) = document {
            return document;
        }
        match target {
            b"/metrics" => {
                let text = self.process.metrics.text(&self.sample());
                let body = [text.into(), Bytes::new(), Bytes::new()];
                let media_type = Some("text/plain; version=0.0.4; charset=utf-8");
                Reply { status: 200, media_type, body, ..Reply::default() }
            }
            b"/readyz" if self.process.stop.has_begun() => Reply::text(503, "draining\n"),
            _ => Reply::text(200, "ok\n"),
        }
    }
}

impl App for Admin {
    async fn serve(&self, request: &mut Request) -> bool {
        // one request a connection: scrapes and probes are few
        request.close();
        let header = request.header();
        let pieces = reply::render(
            &self.answer(&header.method, header.raw_path()),
            &Facts {
                request_id: &self.process.request_ids.accept_or_mint(&header.headers),
                quota: None,
                cross_origin: None,
                persistence: Persistence::Closes,
                chunks: false,
                without_body: header.method == Method::HEAD,
            },
        );
        within(TAKE, request.send(pieces)).await.is_some_and(|sent| sent.is_ok())
    }
}
