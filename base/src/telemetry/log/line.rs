//! The log line of a request, in both formats.
//!
//! Every text in it is from a closed set, a number, or in the alphabet of request ids, so nothing
//! needs escaping.

use crate::telemetry::requests::verdict;
use crate::telemetry::{RequestRecord, Surface};
use portcullis_filters::client::{Client, Shown};
use portcullis_filters::verdict::Reason;
use std::io::{self, Write as _};
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;
use std::time::Duration;

/// The log line of a request.
#[derive(Debug)]
pub struct RequestLine<'a> {
    /// The surface that received it.
    pub surface: Surface,
    /// Its id: generated, or the client's if it uses our alphabet.
    pub request_id: &'a str,
    /// The client.
    pub client: Client,
    /// The observations of its surface.
    pub record: &'a RequestRecord,
    /// The HTTP method, path, cache use and trace.
    pub http: HttpLine<'a>,
    /// Why the request was not answered; `None` if it was.
    pub reason: Option<Reason>,
    /// The HTTP status.
    pub status: u16,
    /// Bytes of the response body.
    pub bytes: usize,
    /// Time from the complete head to the last byte of the response.
    pub total: Duration,
}

/// The part of the line that comes from the head and the response. A field is empty if it is
/// unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpLine<'a> {
    /// The HTTP method if it is a standard one.
    pub method: &'static str,
    /// The path if it is one of the surface's.
    pub path: &'a str,
    /// The version of HTTP.
    pub version: &'static str,
    /// How the cache was used.
    pub cache: &'static str,
    /// The id of the recorded trace, or else of a valid `traceparent`.
    pub trace_id: &'a str,
}

impl RequestLine<'_> {
    /// Whether the line is left out where successes are sampled. Those of the relay are few, and
    /// each is looked for.
    pub(super) fn may_be_left_out(&self) -> bool {
        let is_success = self.reason.is_none() && self.status < 400;
        is_success && matches!(self.surface, Surface::Gateway | Surface::Sidecar)
    }

    /// Writes the line piece by piece, because `format!` would cost more than the rest of the line.
    pub(super) fn write_json(
        &self,
        shown: Shown,
        rate: NonZeroU32,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let mut put = |text: &str| out.extend_from_slice(text.as_bytes());
        put(r#"","level":"info","surface":""#);
        put(self.surface.name());
        put(r#"","request_id":""#);
        put(self.request_id);
        put(r#"","client":""#);
        match (shown, self.client.address) {
            (Shown::Full, IpAddr::V4(address)) => push_ipv4(address, out),
            _ => write!(out, "{}", self.client.shown(shown))?,
        }
        let mut put = |text: &str| out.extend_from_slice(text.as_bytes());
        put(r#"","method":""#);
        put(self.record.method);
        for (name, text) in [
            (r#"","http_method":""#, self.http.method),
            (r#"","path":""#, self.http.path),
            (r#"","cache":""#, self.http.cache),
            (r#"","trace_id":""#, self.http.trace_id),
        ] {
            put(name);
            put(text);
        }
        put(r#"","node":""#);
        if let Some(node) = self.record.node {
            push_integer(node as u64, out);
        }
        let mut put = |text: &str| out.extend_from_slice(text.as_bytes());
        put(r#"","verdict":""#);
        put(verdict(self.reason));
        put(r#"","reason":""#);
        put(self.reason.map_or("", Reason::name));
        put(r#"","status":"#);
        push_integer(self.status.into(), out);
        out.extend_from_slice(br#","bytes":"#);
        push_integer(self.bytes as u64, out);
        out.extend_from_slice(br#","upstream_ms":"#);
        push_millis(self.record.upstream, out);
        out.extend_from_slice(br#","total_ms":"#);
        push_millis(self.total, out);
        if rate > NonZeroU32::MIN {
            out.extend_from_slice(br#","sample_rate":"#);
            push_integer(rate.get().into(), out);
        }
        out.extend_from_slice(b"}\n");
        Ok(())
    }

    pub(super) fn write_text(
        &self,
        shown: Shown,
        rate: NonZeroU32,
        out: &mut Vec<u8>,
    ) -> io::Result<()> {
        let Self {
            request_id,
            record,
            status,
            bytes,
            total,
            ..
        } = self;
        let (surface, client) = (self.surface.name(), self.client.shown(shown));
        write!(out, " info {surface} {client}")?;
        let (status, verdict) = (status.to_string(), verdict(self.reason));
        let reason = self.reason.map_or("", Reason::name);
        let HttpLine {
            method: http_method,
            path,
            cache,
            ..
        } = self.http;
        for word in [
            http_method,
            path,
            &status,
            verdict,
            record.method,
            reason,
            cache,
        ]
        .into_iter()
        .filter(|word| !word.is_empty())
        {
            write!(out, " {word}")?;
        }
        write!(out, " {bytes} B {total:.1?} {request_id}")?;
        if rate > NonZeroU32::MIN {
            write!(out, " 1/{rate}")?;
        }
        writeln!(out)
    }
}

fn push_ipv4(address: Ipv4Addr, out: &mut Vec<u8>) {
    for (at, octet) in address.octets().into_iter().enumerate() {
        if at > 0 {
            out.push(b'.');
        }
        push_integer(octet.into(), out);
    }
}

/// Appends a time in milliseconds, to the microsecond.
fn push_millis(time: Duration, out: &mut Vec<u8>) {
    let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
    push_integer(micros / 1000, out);
    push_thousandths((micros % 1000) as u32, out);
}

fn push_integer(number: u64, out: &mut Vec<u8>) {
    out.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
}

/// Appends a number below 1000 as a point and three digits.
pub(super) fn push_thousandths(number: u32, out: &mut Vec<u8>) {
    let [hundreds, tens, ones] = [100, 10, 1].map(|place| b'0' + (number / place % 10) as u8);
    out.extend_from_slice(&[b'.', hundreds, tens, ones]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(push: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::new();
        push(&mut out);
        String::from_utf8(out).expect("it is ASCII")
    }

    #[test]
    fn addresses_and_numbers_are_written_as_the_standard_library_would() {
        for address in [
            "0.0.0.0",
            "1.10.100.255",
            "127.0.0.1",
            "203.0.113.99",
            "9.19.109.200",
        ] {
            let parsed = address.parse().expect("an address");
            assert_eq!(written(|out| push_ipv4(parsed, out)), address);
        }
        for number in [0, 9, 10, 200, u64::MAX] {
            assert_eq!(written(|out| push_integer(number, out)), number.to_string());
        }
    }

    #[test]
    fn a_time_is_written_in_milliseconds_to_the_microsecond() {
        for (nanos, text) in [
            (0, "0.000"),
            (999, "0.000"),
            (1_000, "0.001"),
            (45_999, "0.045"),
            (999_999, "0.999"),
            (1_000_000, "1.000"),
            (61_007_089_000, "61007.089"),
        ] {
            assert_eq!(
                written(|out| push_millis(Duration::from_nanos(nanos), out)),
                text
            );
        }
    }
}
