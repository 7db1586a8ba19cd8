//! The operator's listener: metrics and probes.
//!
//! `GET /metrics` is Prometheus' text format, `/livez` says that the process runs, `/readyz` that
//! it takes requests: 503 from the moment a stop was asked for. It is on loopback or a Unix socket.

use super::metrics::Sample;
use crate::gate;
use crate::node::{Memory, Node};
use crate::process::Process;
use crate::surfaces::Surfaces;
use async_trait::async_trait;
use http::header::{ALLOW, CACHE_CONTROL, CONTENT_LENGTH, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS};
use http::{Response, StatusCode};
use pingora_core::apps::{HttpServerApp, ReusedHttpStream};
use pingora_core::protocols::http::ServerSession;
use pingora_core::server::ShutdownWatch;
use std::sync::Arc;

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
        let (limiter_clients, limiter_evictions) = self
            .surfaces
            .gateway
            .as_ref()
            .map(|gateway| gateway.clients().population())
            .unwrap_or_default();
        let cache = self.surfaces.gateway.as_ref().map(|gateway| gateway.cache());
        let node = self.node.standing();
        Sample {
            limiter_clients,
            limiter_evictions,
            answer_memory: self.memory.taken() as u64,
            cache: cache.unwrap_or_default(),
            node_idle: node.idle as u64,
            node_busy: node.busy as u64,
            node_open_breakers: node.open_breakers as u64,
            log_dropped: self.process.log.dropped(),
        }
    }

    fn answer(&self, method: &str, target: &[u8]) -> Response<Vec<u8>> {
        let known = matches!(target, b"/metrics" | b"/livez" | b"/readyz");
        if !known {
            return text(StatusCode::NOT_FOUND, "not found: try /metrics, /livez or /readyz\n");
        }
        if !matches!(method, "GET" | "HEAD") {
            let mut response = text(StatusCode::METHOD_NOT_ALLOWED, "GET or HEAD\n");
            response.headers_mut().insert(ALLOW, http::HeaderValue::from_static("GET, HEAD"));
            return response;
        }
        match target {
            b"/metrics" => {
                let content_type = "text/plain; version=0.0.4; charset=utf-8";
                respond(StatusCode::OK, content_type, self.process.metrics.text(&self.sample()))
            }
            b"/readyz" if self.process.stop.has_begun() => {
                text(StatusCode::SERVICE_UNAVAILABLE, "draining\n")
            }
            _ => text(StatusCode::OK, "ok\n"),
        }
    }
}

fn text(status: StatusCode, text: &str) -> Response<Vec<u8>> {
    respond(status, "text/plain; charset=utf-8", text.into())
}

fn respond(status: StatusCode, content_type: &'static str, body: Vec<u8>) -> Response<Vec<u8>> {
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let length = response.body().len();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, http::HeaderValue::from_static(content_type));
    headers.insert(CONTENT_LENGTH, length.into());
    headers.insert(CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, http::HeaderValue::from_static("nosniff"));
    response
}

#[async_trait]
impl HttpServerApp for Admin {
    async fn process_new_http(
        self: &Arc<Self>,
        mut session: ServerSession,
        _: &ShutdownWatch,
    ) -> Option<ReusedHttpStream> {
        if gate::parse_head(&mut session).await {
            // one request a connection: scrapes and probes are few
            session.set_keepalive(None);
            let header = session.req_header();
            let (head, body) = self.answer(header.method.as_str(), header.raw_path()).into_parts();
            session.write_response_header(Box::new(head.into())).await.ok()?;
            session.write_response_body(body.into(), true).await.ok()?;
            session.finish().await.ok()?;
        }
        None
    }
}
