//! Traces: sampled requests and their stages, as spans that `export` sends to a collector.
//!
//! No spans exist while a request runs. [`Tracer::begin`] decides by the head whether the request
//! is sampled (head sampling), and creates the ids that the node receives; [`Tracer::samples`]
//! decides again by status and duration (tail sampling); [`Tracer::record`] renders spans (`span`)
//! from the recorded instants. Spans are buffered in a bounded queue. A span contains nothing that
//! a client sent, except the ids of its `traceparent`.

mod export;
mod span;

pub use export::Exporter;

use super::draws::Draws;
use super::log::RequestLine;
use super::metrics::{Metrics, SpanOutcome};
use super::surface::BySurface;
use crate::config::TraceConfig;
use parking_lot::Mutex;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Spans that are buffered for the collector: about 1 MiB, from some hundred requests.
const CAPACITY: usize = 1_024;

/// Decides which requests are traced, and holds their spans until they are exported.
#[derive(Debug)]
pub struct Tracer {
    config: TraceConfig,
    /// The scheme of each surface's listener.
    schemes: BySurface<&'static str>,
    /// The source of ids and of random decisions.
    draws: Draws,
    started: Instant,
    /// The current second, and how many requests tail sampling saw in it.
    tail: Mutex<(u64, u32)>,
    /// The buffered spans, in OTLP's JSON.
    spans: Mutex<VecDeque<String>>,
    metrics: Arc<Metrics>,
}

/// The flag of a recorded trace: <https://www.w3.org/TR/trace-context/#sampled-flag>.
const SAMPLED: u8 = 1;

/// The ids of one request's spans.
#[derive(Debug)]
pub struct TraceContext {
    /// The trace.
    pub id: u128,
    parent: Option<u64>,
    /// The id of the request's span; those of its stages follow.
    span: u64,
    is_sampled: bool,
    /// The header for a call to the node; its parent is the span of the call.
    pub traceparent: String,
}

impl Tracer {
    /// A tracer with this configuration, of listeners with these schemes.
    pub fn new(
        config: TraceConfig,
        schemes: BySurface<&'static str>,
        metrics: Arc<Metrics>,
    ) -> Arc<Self> {
        Arc::new(Self {
            config,
            schemes,
            draws: Draws::default(),
            started: Instant::now(),
            tail: Mutex::default(),
            spans: Mutex::default(),
            metrics,
        })
    }

    /// Begins a request with this well-formed `traceparent`. Its flag counts only if the peer is
    /// trusted, because every client can send it; otherwise the ratio decides. `None` if the
    /// request is neither sampled nor part of a trace.
    pub fn begin(
        &self,
        traceparent: Option<&[u8]>,
        is_trusted: impl FnOnce() -> bool,
    ) -> Option<Box<TraceContext>> {
        let parent = traceparent.and_then(read);
        let ratio = u64::from(self.config.ratio.millionths);
        let flags = match parent {
            Some((.., flags)) if is_trusted() => flags & SAMPLED,
            _ if ratio > 0 && self.draws.draw() % 1_000_000 < ratio => SAMPLED,
            _ => 0,
        };
        (flags == SAMPLED || parent.is_some()).then(|| self.context(parent, flags))
    }

    fn context(&self, parent: Option<(u128, u64, u8)>, flags: u8) -> Box<TraceContext> {
        let id = parent.map_or_else(|| self.draw_id(), |(id, ..)| id);
        let parent = parent.map(|(_, span, _)| span);
        // a span id of zero is invalid
        let span = self.draws.draw() << 8 | 1;
        let traceparent = format!("00-{id:032x}-{:016x}-{flags:02x}", span + 1);
        Box::new(TraceContext {
            id,
            parent,
            span,
            is_sampled: flags == SAMPLED,
            traceparent,
        })
    }

    /// Whether a request that began at `start` and took `total` is recorded: head sampling chose
    /// it, or it failed or was slow, within the limit of such requests per second.
    pub fn samples(
        &self,
        trace: Option<&TraceContext>,
        status: u16,
        start: Instant,
        total: Duration,
    ) -> bool {
        if trace.is_some_and(|trace| trace.is_sampled) {
            return true;
        }
        if status < 500 && total < self.config.slow {
            return false;
        }
        let mut tail = self.tail.lock();
        let second = (start + total).duration_since(self.started).as_secs();
        if tail.0 != second {
            *tail = (second, 0);
        }
        tail.1 = tail.1.saturating_add(1);
        tail.1 <= self.config.per_second
    }

    /// Records a request that began at `start`, with its stages. Returns the trace's id.
    pub fn record(
        &self,
        trace: Option<Box<TraceContext>>,
        line: &RequestLine<'_>,
        start: Instant,
    ) -> u128 {
        let trace = trace.unwrap_or_else(|| self.context(None, SAMPLED));
        let scheme = self.schemes[line.surface as usize];
        let spans = span::render(&trace, line, scheme, start);
        let mut buffered = self.spans.lock();
        buffered.extend(spans);
        // the oldest are dropped: the newest show the current state
        let excess = buffered.len().saturating_sub(CAPACITY);
        buffered.drain(..excess);
        self.metrics.spans(SpanOutcome::Dropped, excess);
        trace.id
    }

    fn draw_id(&self) -> u128 {
        u128::from(self.draws.draw()) << 64 | u128::from(self.draws.draw())
    }
}

/// The trace, the span and the flags of a well-formed `traceparent`.
fn read(traceparent: &[u8]) -> Option<(u128, u64, u8)> {
    let mut fields = str::from_utf8(traceparent).ok()?.split('-').skip(1);
    let id = u128::from_str_radix(fields.next()?, 16).ok()?;
    let span = u64::from_str_radix(fields.next()?, 16).ok()?;
    Some((id, span, u8::from_str_radix(fields.next()?, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::telemetry::surface::Surface;
    use crate::telemetry::{HttpLine, RequestRecord};
    use portcullis_filters::client::Client;
    use std::net::{IpAddr, Ipv4Addr};

    fn tracer(keys: &str) -> (Arc<Tracer>, Arc<Metrics>) {
        let text = format!("[node]\nurl = \"http://127.0.0.1:5050\"\n[admin]\n[trace]\n{keys}");
        let config = Config::parse(&text, []).expect("it is valid").trace;
        let metrics = Arc::new(Metrics::default());
        (
            Tracer::new(
                config.expect("it is there"),
                ["http"; 5],
                Arc::clone(&metrics),
            ),
            metrics,
        )
    }

    fn line(record: &RequestRecord, total: Duration) -> RequestLine<'_> {
        RequestLine {
            surface: Surface::Gateway,
            request_id: "",
            client: Client::at(IpAddr::V4(Ipv4Addr::LOCALHOST)),
            record,
            http: HttpLine::default(),
            reason: None,
            status: 200,
            bytes: 0,
            total,
        }
    }

    #[test]
    fn failed_and_slow_requests_are_capped_per_second() {
        let (tracer, _) = tracer("per_second = 3\nslow = \"500ms\"");
        let fast = Duration::from_millis(499);
        for second in 0..3 {
            let start = tracer.started + Duration::from_secs(second);
            let samples = |status, total| tracer.samples(None, status, start, total);
            assert!(
                !samples(200, fast) && !samples(499, fast),
                "neither failed nor slow"
            );
            let sampled = (0..100).filter(|_| samples(500, Duration::ZERO)).count();
            assert_eq!(sampled, 3, "in second {second}");
            assert!(
                !samples(200, Duration::from_millis(500)),
                "the cap is for both"
            );
        }
        let later = tracer.started + Duration::from_secs(9);
        assert!(
            tracer.samples(None, 200, later, Duration::from_millis(500)),
            "it is slow"
        );
    }

    #[test]
    fn about_the_configured_ratio_is_sampled() {
        let (tracer, _) = tracer("ratio = 0.25");
        let sampled = (0..40_000)
            .filter(|_| tracer.begin(None, || true).is_some())
            .count();
        assert!((9_000..11_000).contains(&sampled), "{sampled} of 40,000");
    }

    #[test]
    fn only_the_newest_spans_are_buffered() {
        let (tracer, metrics) = tracer("");
        let record = RequestRecord::default();
        for millis in 0..1_500 {
            let line = line(&record, Duration::from_millis(millis));
            tracer.record(None, &line, tracer.started);
        }
        assert_eq!(tracer.spans.lock().len(), CAPACITY);
        let dropped = metrics.spans[SpanOutcome::Dropped as usize].get();
        assert_eq!(dropped, 1_500 - CAPACITY as u64);
    }
}
