//! Spans in OTLP's JSON: <https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding>.
//!
//! Names of attributes are those of OpenTelemetry's semantic conventions, or begin with
//! `portcullis.`. Their texts are literals, or paths of a surface: no address, parameter, token or
//! key, and no text from a client or the node.

use super::TraceContext;
use crate::config::TraceConfig;
use crate::telemetry::Stage;
use crate::telemetry::log::RequestLine;
use crate::telemetry::surface::Surface;
use portcullis_filters::verdict::Reason;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::SystemTime;
use tokio::time::Instant;
use uuid::Uuid;

/// OTLP's `SpanKind`.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;

/// The span of a request that began at `start`, and those of its stages. `scheme` is that of the
/// listener's connections.
pub(super) fn render(
    trace: &TraceContext,
    line: &RequestLine<'_>,
    scheme: &str,
    start: Instant,
) -> Vec<String> {
    // both clocks are read once for all spans, so that stages are within their request
    let now = Instant::now();
    let since_1970 = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let nanos = |at| {
        since_1970
            .saturating_sub(now.saturating_duration_since(at))
            .as_nanos()
    };
    let hex = |id: Option<u64>| id.map_or_else(String::new, |id| format!("{id:016x}"));
    let span = |ids: [Option<u64>; 2], name: &str, kind, time: [Instant; 2], attributes| {
        let [id, parent] = ids.map(hex);
        let [start, end] = time.map(|at| nanos(at).to_string());
        let status = if kind != INTERNAL && line.status >= 500 {
            2
        } else {
            0
        };
        json!({
            "traceId": format!("{:032x}", trace.id),
            "spanId": id,
            "parentSpanId": parent,
            "name": name,
            "kind": kind,
            "startTimeUnixNano": start,
            "endTimeUnixNano": end,
            "attributes": Value::Array(attributes),
            "status": { "code": status },
        })
        .to_string()
    };
    let name = format!("{} {}", line.http.method, line.http.path);
    let ids = [Some(trace.span), trace.parent];
    let mut spans = vec![span(
        ids,
        name.trim(),
        SERVER,
        [start, start + line.total],
        of(line, scheme),
    )];
    // the node received the first id, so the call has it
    let (mut sent, mut ids) = (Some(trace.span + 1), trace.span + 2..);
    for Stage {
        name,
        is_call,
        time,
    } in line.record.stages.iter().flatten().copied()
    {
        let id = sent.take_if(|_| is_call).or_else(|| ids.next());
        let (kind, attributes) = if is_call {
            (CLIENT, of_call(line))
        } else {
            (INTERNAL, vec![])
        };
        spans.push(span([id, Some(trace.span)], name, kind, time, attributes));
    }
    spans
}

/// The attributes of a request.
fn of(line: &RequestLine<'_>, scheme: &str) -> Vec<Value> {
    let reason = line.reason.map_or("", Reason::name);
    let operation = if line.surface == Surface::Gateway {
        ""
    } else {
        line.record.method
    };
    let texts = [
        ("http.request.method", line.http.method),
        ("http.route", line.http.path),
        ("url.path", line.http.path),
        ("url.scheme", scheme),
        ("network.protocol.version", line.http.version),
        ("error.type", if line.status >= 500 { reason } else { "" }),
        ("portcullis.surface", line.surface.name()),
        ("portcullis.operation", operation),
        ("portcullis.cache", line.http.cache),
        ("portcullis.reason", reason),
    ];
    let texts = texts.into_iter().filter(|(_, text)| !text.is_empty());
    let texts = texts.map(|(key, text)| attribute(key, text));
    let status = number("http.response.status_code", line.status.into());
    texts
        .chain(rpc(line))
        .chain([status, number("http.response.body.size", line.bytes as u64)])
        .collect()
}

/// The attributes of a call to the node.
fn of_call(line: &RequestLine<'_>) -> Vec<Value> {
    let node = line
        .record
        .node
        .map(|node| number("portcullis.node", node as u64));
    rpc(line).into_iter().chain(node).collect()
}

/// The call of JSON-RPC that a gateway request is, and that it sends to the node.
/// <https://opentelemetry.io/docs/specs/semconv/rpc/json-rpc/>
fn rpc(line: &RequestLine<'_>) -> Vec<Value> {
    if line.surface != Surface::Gateway || line.record.method.is_empty() {
        return Vec::new();
    }
    let refused = line.reason.map(|reason| i64::from(reason.code()));
    let code = line.record.error_code.or(refused);
    let code = code.map(|code| attribute("rpc.response.status_code", &code.to_string()));
    let call = [
        ("rpc.system.name", "jsonrpc"),
        ("rpc.method", line.record.method),
        ("jsonrpc.protocol.version", "2.0"),
    ];
    let call = call.map(|(key, text)| attribute(key, text));
    call.into_iter().chain(code).collect()
}

fn attribute(key: &str, text: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": text } })
}

/// A number as an attribute: JSON has 64-bit integers as decimal strings.
fn number(key: &str, number: u64) -> Value {
    json!({ "key": key, "value": { "intValue": number.to_string() } })
}

/// The attributes of this process. Those of the operator are added, or replace the program's.
pub(super) fn resource(config: &TraceConfig, instance: Uuid) -> Value {
    let name = &*config.service_name;
    let instance = instance.to_string();
    let mut all = BTreeMap::from([
        ("service.version", env!("CARGO_PKG_VERSION")),
        ("service.instance.id", &*instance),
    ]);
    let own = config.resource_attributes.iter();
    all.extend(own.map(|(key, value)| (&**key, &**value)));
    all.insert("service.name", name);
    let attributes = all.into_iter().map(|(key, text)| attribute(key, text));
    json!({ "attributes": attributes.collect::<Vec<_>>() })
}

/// The body of an export of these spans.
pub(super) fn export(resource: &Value, spans: &[String]) -> String {
    let spans = spans.join(",");
    let scope = json!({ "name": "portcullis", "version": env!("CARGO_PKG_VERSION") });
    let scope_spans = format!(r#"{{"scope":{scope},"spans":[{spans}]}}"#);
    format!(r#"{{"resourceSpans":[{{"resource":{resource},"scopeSpans":[{scope_spans}]}}]}}"#)
}
