//! A collector of traces: an HTTP server that records what it is sent, and judges each span.
//!
//! In: exports by OTLP over HTTP. Out: the spans. Their ids, times and attributes are checked here,
//! the attributes against a closed list.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use serde_json::Value;

use crate::support::node::{Act, Call, Node};
use crate::support::script::{json, send};

/// The rule for the text of an attribute.
type Rule = fn(&str) -> bool;

/// The attributes that a span may have.
const ALLOWED: [(&str, Rule); 17] = [
    ("http.request.method", |text| {
        ["GET", "HEAD", "POST", "PUT", "OPTIONS"].contains(&text)
    }),
    ("http.route", |text| ROUTES.contains(&text)),
    ("http.response.status_code", |text| {
        text.len() == 3 && is_number(text)
    }),
    ("http.response.body.size", is_number),
    ("url.path", |text| ROUTES.contains(&text)),
    ("url.scheme", |text| ["http", "https"].contains(&text)),
    ("network.protocol.version", |text| {
        ["1.0", "1.1", "2"].contains(&text)
    }),
    ("rpc.system.name", |text| text == "jsonrpc"),
    ("rpc.response.status_code", |text| {
        text.parse::<i64>().is_ok()
    }),
    ("jsonrpc.protocol.version", |text| text == "2.0"),
    ("rpc.method", |text| {
        text.starts_with("starknet_") && is_name(text)
    }),
    ("error.type", is_name),
    ("portcullis.surface", |text| {
        ["gateway", "relay", "sidecar"].contains(&text)
    }),
    ("portcullis.operation", is_name),
    ("portcullis.cache", |text| {
        ["hit", "shared", "miss"].contains(&text)
    }),
    ("portcullis.reason", is_name),
    ("portcullis.node", is_number),
];
const ROUTES: [&str; 5] = [
    "/rpc",
    "/healthz",
    "/readyz",
    "/mint-card",
    "/functions/seo-robots",
];

fn is_number(text: &str) -> bool {
    text.parse::<u64>().is_ok()
}

fn is_name(text: &str) -> bool {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
    (1..=40).contains(&text.len()) && text.chars().all(is_plain)
}

/// A span.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Empty if it is the root.
    pub(crate) parent: String,
    pub(crate) name: String,
    /// 1 internal, 2 server, 3 client.
    pub(crate) kind: u64,
    /// Begin and end, in nanoseconds since 1970.
    time: [u128; 2],
    pub(crate) is_error: bool,
    pub(crate) attributes: BTreeMap<String, String>,
}

impl Span {
    fn read(span: &Value) -> Self {
        let text = |name: &str| span[name].as_str().unwrap_or_default().to_owned();
        let is_id = |id: &str, length| {
            let is_hex = id
                .chars()
                .all(|c| c.is_ascii_digit() || ('a'..='f').contains(&c));
            id.len() == length && is_hex && id.contains(|c| c != '0')
        };
        let [trace, id, parent] = ["traceId", "spanId", "parentSpanId"].map(text);
        assert!(is_id(&trace, 32) && is_id(&id, 16), "ids: {span}");
        assert!(
            parent.is_empty() || is_id(&parent, 16),
            "the parent's id: {span}"
        );
        let time = ["startTimeUnixNano", "endTimeUnixNano"].map(text);
        let time = time.map(|time| time.parse().expect("a time is a decimal text"));
        assert!(time[0] <= time[1], "it begins before it ends: {span}");
        let attributes = span["attributes"].as_array().expect("a list");
        let attributes = attributes.iter().map(|attribute| {
            let (key, value) = (attribute["key"].as_str().unwrap(), &attribute["value"]);
            let value = value["stringValue"].as_str().or(value["intValue"].as_str());
            let value = value.expect("a text or a number");
            let rule = ALLOWED.iter().find(|(name, _)| *name == key);
            let (_, is_valid) = rule.unwrap_or_else(|| panic!("attribute {key} = {value}"));
            assert!(is_valid(value), "attribute {key} = {value}");
            (key.to_owned(), value.to_owned())
        });
        Self {
            trace,
            id,
            parent,
            name: text("name"),
            kind: span["kind"].as_u64().expect("a number"),
            time,
            is_error: span["status"]["code"] == 2,
            attributes: attributes.collect(),
        }
    }

    pub(crate) fn attribute(&self, key: &str) -> Option<&str> {
        self.attributes.get(key).map(String::as_str)
    }

    /// Asserts that it is a part of `parent`.
    pub(crate) fn assert_part_of(&self, parent: &Self) {
        assert_eq!(
            (&self.trace, &self.parent),
            (&parent.trace, &parent.id),
            "{self:?}"
        );
        let ([start, end], [first, last]) = (self.time, parent.time);
        assert!(first <= start && end <= last, "{self:?} within {parent:?}");
    }
}

/// A running collector.
pub(crate) struct Collector(pub(crate) Node);

impl Collector {
    /// One that accepts everything.
    pub(crate) fn start() -> Self {
        Self::with(|_| send(json("{}")))
    }

    /// One that does as the script says.
    pub(crate) fn with(script: impl Fn(&Call) -> Vec<Act> + Send + Sync + 'static) -> Self {
        Self(Node::start(script))
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.0.address()
    }

    /// Its URL, as a TOML value.
    pub(crate) fn url(&self) -> String {
        format!("\"http://{}\"", self.0.address())
    }

    /// Every span that it was sent.
    pub(crate) fn spans(&self) -> Vec<Span> {
        let spans = self.0.calls().into_iter().flat_map(|call| {
            assert!(
                call.head.starts_with("POST /v1/traces HTTP/1.1\r\n"),
                "{}",
                call.head
            );
            let media_type = ("content-type".to_owned(), "application/json".to_owned());
            assert!(call.headers().contains(&media_type), "{}", call.head);
            let export = call.json();
            assert!(
                resource(&export).contains_key("service.instance.id"),
                "{export}"
            );
            let spans = export["resourceSpans"][0]["scopeSpans"][0]["spans"]
                .as_array()
                .cloned();
            spans.expect("an export has spans")
        });
        spans.map(|span| Span::read(&span)).collect()
    }

    /// The attributes of the service in its last export.
    pub(crate) fn resource(&self) -> BTreeMap<String, String> {
        resource(&self.0.calls().last().expect("an export").json())
    }

    /// Waits until it has been sent this many spans.
    pub(crate) fn wait_for(&self, count: usize) -> Vec<Span> {
        let mut exports = 0;
        loop {
            let spans = self.spans();
            if spans.len() >= count {
                return spans;
            }
            exports = self.0.calls().len().max(exports) + 1;
            self.0.wait_for_calls(exports);
        }
    }
}

fn resource(export: &Value) -> BTreeMap<String, String> {
    let attributes = &export["resourceSpans"][0]["resource"]["attributes"];
    let attributes = attributes.as_array().expect("a list").iter();
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    attributes
        .map(|one| (text(&one["key"]), text(&one["value"]["stringValue"])))
        .collect()
}
