//! `[trace]`: which requests are recorded as traces, and the collector that they are sent to.

use std::path::PathBuf;
use std::time::Duration;

use portcullis_filters::key_values;
use toml::de::DeValue;

use super::address::NodeUrl;
use super::section::section;
use super::values::{Converted, Value, duration, integer, mismatch, optional_path, text, url};
use super::{HOUR, SHORTEST};

const ENDPOINT_FORM: &str = "a URL such as \"http://127.0.0.1:4318\"";
const NAME_FORM: &str = "1 to 255 characters without control characters";
const ATTRIBUTES_FORM: &str = "a list such as \"deployment.environment.name=prod\"";
const WHY_CAP: &str = "a second's records must fit into the 1,024 that may wait";
const WHY_SLOW: &str = "nothing that takes less is slow, and nothing takes longer";

section! {
    /// Traces of requests, sent to a collector by OTLP over HTTP. Leave the section out for none.
    "trace" TraceConfig {
        /// The collector, http:// or https://; spans are sent to /v1/traces below this URL.
        /// OTEL_EXPORTER_OTLP_ENDPOINT sets it, too.
        /// Why: a collector on this machine, at the port of OTLP over HTTP.
        endpoint: NodeUrl = Default("http://127.0.0.1:4318"), url(ENDPOINT_FORM);
        /// The name of the service in traces. OTEL_SERVICE_NAME sets it, too.
        /// Why: set another one where several deployments share a collector.
        service_name: String = Default("portcullis"), text(NAME_FORM, service_name);
        /// Further attributes of the service, a list key=value,key2=value2 with %20 for a space.
        /// OTEL_RESOURCE_ATTRIBUTES sets it, too.
        /// Why: only the operator knows the deployment, such as deployment.environment.name=prod.
        resource_attributes: Vec<(String, String)> = Default(""), text(ATTRIBUTES_FORM, attributes);
        /// The file of headers for the collector, each a line `Name: value`; "" for those of the
        /// variable OTEL_EXPORTER_OTLP_HEADERS.
        /// Why: hosted collectors know their clients by a key, and keys live in files.
        header_file: Option<PathBuf> = Default(""), text("a path", optional_path), reconnect;
        /// The part of requests to sample at random, 0.0 to 1.0. A trusted proxy decides for its
        /// own requests, if they have a traceparent. OTEL_TRACES_SAMPLER_ARG sets it, too.
        /// Why: each trace costs the collector; failed and slow requests are recorded anyway.
        ratio: Ratio = Default(0.0), ratio;
        /// Requests to record per second because they failed (5xx) or were slow; 0 to 100.
        /// Why: a few explain an outage, and recording all of them would add to the load.
        per_second: u32 = Default(10), integer(0..=100, WHY_CAP);
        /// A request that takes this long is slow; 100ms to 1h.
        /// Why: a node answers in milliseconds, and its answer may take 8s.
        slow: Duration = Default("1s"), duration(SHORTEST..=HOUR, WHY_SLOW);
    }
}

impl TraceConfig {
    /// Takes the name from the attributes, if they have one (OpenTelemetry, resource SDK: the
    /// variable of the name precedes theirs).
    pub(super) fn take_name_of_attributes(&mut self) {
        let mut own = self.resource_attributes.iter();
        if let Some((_, name)) = own.find(|(key, _)| key == "service.name") {
            self.service_name.clone_from(name);
        }
    }
}

/// A fraction from 0 to 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio {
    /// The fraction in millionths.
    pub millionths: u32,
}

fn ratio(value: &Value<'_>) -> Converted<Ratio> {
    let number = match value.get_ref() {
        DeValue::Float(number) => number.as_str().parse::<f64>().ok(),
        DeValue::Integer(number) => number.as_str().parse().ok(),
        _ => None,
    };
    match number.filter(|number| (0.0..=1.0).contains(number)) {
        Some(number) => Ok(Ratio {
            millionths: (number * 1e6).round() as u32,
        }),
        None => mismatch("a number from 0.0 to 1.0", value),
    }
}

fn attributes(text: &str) -> Result<Vec<(String, String)>, String> {
    key_values::parse(text).map_err(|fault| fault.to_string())
}

fn service_name(text: &str) -> Result<String, String> {
    let is_name = (1..=255).contains(&text.len()) && !text.contains(char::is_control);
    if is_name {
        Ok(text.to_owned())
    } else {
        Err(String::new())
    }
}
