//! Sends spans to the collector: one request per second at most, none while there are no spans.
//!
//! If the collector is unreachable or busy, the export is retried a few times; then the spans are
//! lost, and counted. No request waits for an export.

use super::{Tracer, span};
use crate::fetch::{self, Post};
use crate::secrets::headers;
use crate::telemetry::metrics::SpanOutcome;
use async_trait::async_trait;
use bytes::Bytes;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use serde_json::Value;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::sleep;
use uuid::Builder;

/// How often spans are sent.
const INTERVAL: Duration = Duration::from_secs(1);
/// The timeout of an export.
const TIMEOUT: Duration = Duration::from_secs(3);
/// The backoff before each retry, in seconds; meanwhile new spans are buffered.
const RETRIES: [u64; 3] = [1, 2, 4];
/// The timeout of the last export, which delays the end of the process.
const LAST: Duration = Duration::from_secs(1);

/// Exports the spans of a tracer. Cheap to clone.
#[derive(Clone)]
pub struct Exporter {
    tracer: Arc<Tracer>,
    url: String,
    resource: Arc<Value>,
    has_failed: Arc<AtomicBool>,
}

#[async_trait]
impl BackgroundService for Exporter {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        let run = async {
            loop {
                sleep(INTERVAL).await;
                self.export(&RETRIES, TIMEOUT).await;
            }
        };
        tokio::select! {
            _ = shutdown.changed() => {}
            () = run => {}
        }
    }
}

impl Exporter {
    /// Exports the spans of `tracer` to its configured collector.
    pub fn new(tracer: Arc<Tracer>) -> Self {
        let endpoint = tracer.config.endpoint.to_string();
        let url = format!("{}/v1/traces", endpoint.trim_end_matches('/'));
        let instance = Builder::from_random_bytes(tracer.draw_id().to_be_bytes()).into_uuid();
        let resource = span::resource(&tracer.config, instance);
        Self {
            tracer,
            url,
            resource: Arc::new(resource),
            has_failed: Arc::default(),
        }
    }

    /// Exports the remaining spans, before the process ends.
    pub async fn finish(&self) {
        self.export(&[], LAST).await;
    }

    /// Exports the buffered spans; retries after each backoff while the failure is transient.
    async fn export(&self, retries: &[u64], timeout: Duration) {
        let spans = Vec::from(std::mem::take(&mut *self.tracer.spans.lock()));
        if spans.is_empty() {
            return;
        }
        let body = Bytes::from(span::export(&self.resource, &spans));
        let endpoint = &self.tracer.config.endpoint;
        let mut backoffs = retries.iter();
        let outcome = loop {
            let Err((outcome, cause)) = self.send(body.clone(), timeout).await else {
                break SpanOutcome::Exported;
            };
            if !self.has_failed.swap(true, Ordering::Relaxed) {
                let collector = endpoint.shown();
                log::warn!(collector, cause; "the collector does not accept spans");
            }
            match backoffs.next().filter(|_| outcome == SpanOutcome::Lost) {
                Some(seconds) => sleep(Duration::from_secs(*seconds)).await,
                None => break outcome,
            }
        };
        let is_over = outcome == SpanOutcome::Exported;
        if is_over && self.has_failed.swap(false, Ordering::Relaxed) {
            log::info!(collector = endpoint.shown(); "the collector accepts spans again");
        }
        self.tracer.metrics.spans(outcome, spans.len());
    }

    /// Sends spans once. On failure, returns what it means for them, and the cause.
    /// <https://opentelemetry.io/docs/specs/otlp/#failures-1>
    async fn send(&self, body: Bytes, timeout: Duration) -> Result<(), (SpanOutcome, String)> {
        let file = self.tracer.config.header_file.as_deref();
        let headers =
            headers::for_collector(file).map_err(|error| (SpanOutcome::Lost, error.to_string()))?;
        let headers = headers
            .pairs()
            .map(|(name, value)| (name.to_owned().into(), value.to_owned()));
        let post = Post {
            media_type: "application/json",
            headers: headers.collect(),
            body,
        };
        match fetch::post(&self.url, post, timeout).await {
            Ok(200..=299) => Ok(()),
            Ok(status @ (429 | 502..=504)) => Err((SpanOutcome::Lost, format!("status {status}"))),
            Ok(status) => Err((SpanOutcome::Refused, format!("status {status}"))),
            Err(error) => Err((SpanOutcome::Lost, error.to_string())),
        }
    }
}
