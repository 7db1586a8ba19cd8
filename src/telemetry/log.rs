//! Log lines on stderr: JSON objects, or plain text for people.
//!
//! Tasks append to a buffer in memory, and one thread writes it out, so a slow terminal or pipe
//! never delays a response. The buffer is bounded: when the reader of stderr stalls, lines are
//! dropped and counted. Other events than requests are logged through the `log` macros.

use super::{Recent, Surface};
use crate::config::{LogConfig, LogFormat};
use ::log::kv::{Error, Key, Value, VisitSource};
use ::log::{LevelFilter, Metadata, Record};
use parking_lot::{Condvar, Mutex};
use portcullis_filters::client::{Client, Shown};
use portcullis_filters::verdict::Reason;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};

/// 4 MiB: about twenty thousand lines, a second of full load, may wait for the writer.
const MAX_PENDING: usize = 4 << 20;
/// How long the writer collects lines before it writes them, unless there are many.
const COLLECT: Duration = Duration::from_millis(20);
/// 32 KiB are written immediately: they are still in the processor's cache, and have not evicted
/// the data of requests.
const MANY: usize = 32 << 10;

/// The verdict on a request: `answered`, also with an error from the node; `refused` by the policy;
/// or `failed`, if it passed the policy and could not be answered.
pub fn verdict(reason: Option<Reason>) -> &'static str {
    match reason {
        None => "answered",
        Some(reason) if reason.is_failure() => "failed",
        Some(_) => "refused",
    }
}

/// The log line of a request.
#[derive(Debug)]
pub struct RequestLine<'a> {
    /// The surface that received it.
    pub surface: Surface,
    /// Its id: generated, or the client's if it uses our alphabet.
    pub request_id: &'a str,
    /// The client.
    pub client: Client,
    /// The RPC method if it is a known one, else empty.
    pub method: &'static str,
    /// Why it was not answered.
    pub reason: Option<Reason>,
    /// The HTTP status.
    pub status: u16,
    /// Bytes of the response body.
    pub bytes: usize,
    /// Time spent waiting for the node.
    pub upstream: Duration,
    /// Time from the complete head to the last byte of the response.
    pub total: Duration,
}

/// A handle to the log. Cheap to clone.
#[derive(Clone)]
pub struct Log {
    sink: Arc<Sink>,
    format: LogFormat,
    shown: Shown,
}

struct Sink {
    pending: Mutex<Pending>,
    ready: Condvar,
    dropped: AtomicU64,
    recent: Recent,
}

/// The lines that wait for the writer.
#[derive(Default)]
struct Pending {
    lines: Vec<u8>,
    /// The second of the last line, and its text, which most lines share with the previous one.
    second: u64,
    text: String,
}

impl Log {
    /// Starts the writer thread, and becomes the logger of the process.
    pub fn install(config: &LogConfig) -> Self {
        let sink = Arc::new(Sink {
            pending: Mutex::default(),
            ready: Condvar::new(),
            dropped: AtomicU64::new(0),
            recent: Recent::default(),
        });
        let writer = Arc::clone(&sink);
        let thread = std::thread::Builder::new().name("log".into());
        // without the thread there is no log, but requests are still served
        drop(thread.spawn(move || writer.write_out()));
        let log = Self { sink, format: config.format, shown: config.clients.into() };
        // only tests install a second logger
        if ::log::set_boxed_logger(Box::new(log.clone())).is_ok() {
            ::log::set_max_level(config.level);
            // a panic ends one request; its message may contain client data, its location cannot
            std::panic::set_hook(Box::new(|panic| {
                let place = panic.location().map(ToString::to_string).unwrap_or_default();
                ::log::error!(place = place; "a panic ended a request");
                ::log::logger().flush();
            }));
        }
        log
    }

    /// Lines that were dropped because the reader of stderr stalled.
    pub fn dropped(&self) -> u64 {
        self.sink.dropped.load(Ordering::Relaxed)
    }

    /// The most recent warnings and errors.
    pub fn recent(&self) -> &Recent {
        &self.sink.recent
    }

    /// Logs one request.
    pub fn request(&self, line: &RequestLine<'_>) {
        if ::log::max_level() < LevelFilter::Info {
            return;
        }
        self.sink.append(self.format, |out| match self.format {
            LogFormat::Json => line.write_json(self.shown, out),
            LogFormat::Text => line.write_text(self.shown, out),
        });
    }
}

impl RequestLine<'_> {
    /// Every text is from a closed set, a number, or in the alphabet of request ids, so nothing
    /// needs escaping. Written piece by piece, because `format!` would cost more than the rest of
    /// the line.
    fn write_json(&self, shown: Shown, out: &mut Vec<u8>) -> std::io::Result<()> {
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
        put(self.method);
        put(r#"","verdict":""#);
        put(verdict(self.reason));
        put(r#"","reason":""#);
        put(self.reason.map_or("", Reason::name));
        put(r#"","status":"#);
        push_integer(self.status.into(), out);
        out.extend_from_slice(br#","bytes":"#);
        push_integer(self.bytes as u64, out);
        out.extend_from_slice(br#","upstream_ms":"#);
        push_millis(self.upstream, out);
        out.extend_from_slice(br#","total_ms":"#);
        push_millis(self.total, out);
        out.extend_from_slice(b"}\n");
        Ok(())
    }

    fn write_text(&self, shown: Shown, out: &mut Vec<u8>) -> std::io::Result<()> {
        let Self { request_id, method, status, bytes, total, .. } = self;
        let (surface, client) = (self.surface.name(), self.client.shown(shown));
        let verdict = verdict(self.reason);
        write!(out, " info {surface} {client} {status} {verdict}")?;
        let reason = self.reason.map_or("", Reason::name);
        for word in [method, reason].into_iter().filter(|word| !word.is_empty()) {
            write!(out, " {word}")?;
        }
        writeln!(out, " {bytes} B {total:.1?} {request_id}")
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
fn push_thousandths(number: u32, out: &mut Vec<u8>) {
    let [hundreds, tens, ones] = [100, 10, 1].map(|place| b'0' + (number / place % 10) as u8);
    out.extend_from_slice(&[b'.', hundreds, tens, ones]);
}

impl ::log::Log for Log {
    /// Libraries log client data and URLs: Pingora the bytes of malformed requests, an HTTP client
    /// its targets. Such records are dropped at any level. Pingora's warnings about its start and
    /// its listeners are logged.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        const OPERATIONAL: [&str; 3] =
            ["pingora::server", "pingora::listeners", "pingora::services::listening"];
        let target = metadata.target();
        let operational = OPERATIONAL.iter().any(|module| target.starts_with(module));
        target.starts_with("portcullis") || (operational && metadata.level() <= ::log::Level::Warn)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let level = record.level().as_str().to_ascii_lowercase();
        let message = record.args().to_string();
        if record.level() <= ::log::Level::Warn {
            self.sink.recent.add(record, &message);
        }
        self.sink.append(self.format, |out| {
            let mut fields = Fields { out, format: self.format };
            match self.format {
                LogFormat::Json => {
                    write!(fields.out, r#"","level":"{level}","message":"#)?;
                    json_string(fields.out, &message)?;
                }
                LogFormat::Text => write!(fields.out, " {level} {message}")?,
            }
            // visiting a record's own fields fails only where a visitor does
            let _ = record.key_values().visit(&mut fields);
            out.extend_from_slice(match self.format {
                LogFormat::Json => b"}\n",
                LogFormat::Text => b"\n",
            });
            Ok(())
        });
    }

    fn flush(&self) {
        let mut pending = self.sink.pending.lock();
        let lines = std::mem::take(&mut pending.lines);
        // under the lock, so that lines stay in order; a broken stderr is ignored
        let _ = std::io::stderr().write_all(&lines);
    }
}

/// Writes the fields of a record after its message.
pub(super) struct Fields<'a> {
    pub(super) out: &'a mut Vec<u8>,
    pub(super) format: LogFormat,
}

impl<'kvs> VisitSource<'kvs> for Fields<'_> {
    fn visit_pair(&mut self, key: Key<'kvs>, value: Value<'kvs>) -> Result<(), Error> {
        match self.format {
            LogFormat::Json => {
                write!(self.out, r#","{key}":"#)?;
                json_string(self.out, &value.to_string())?;
            }
            LogFormat::Text => write!(self.out, " {key}={value}")?,
        }
        Ok(())
    }
}

fn json_string(out: &mut Vec<u8>, text: &str) -> std::io::Result<()> {
    Ok(serde_json::to_writer(out, text)?)
}

impl Sink {
    /// Appends a line: the time, and what `rest` writes.
    fn append(&self, format: LogFormat, rest: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) {
        let mut pending = self.pending.lock();
        if pending.lines.len() > MAX_PENDING {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let before = pending.lines.len();
        pending.begin(format);
        // writing to memory does not fail
        let _ = rest(&mut pending.lines);
        let after = pending.lines.len();
        drop(pending);
        if before == 0 || (before < MANY && after >= MANY) {
            self.ready.notify_one();
        }
    }

    fn write_out(&self) {
        // the two buffers take turns, so that neither is allocated again
        let mut lines = Vec::new();
        loop {
            let mut pending = self.pending.lock();
            self.ready.wait_while(&mut pending, |pending| pending.lines.is_empty());
            let are_few = |pending: &mut Pending| pending.lines.len() < MANY;
            self.ready.wait_while_for(&mut pending, are_few, COLLECT);
            std::mem::swap(&mut lines, &mut pending.lines);
            drop(pending);
            // a broken stderr is ignored
            let _ = std::io::stderr().write_all(&lines);
            lines.clear();
        }
    }
}

impl Pending {
    /// Begins a line with the time: RFC 3339, in milliseconds.
    fn begin(&mut self, format: LogFormat) {
        let now = SystemTime::now();
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if self.second != since.as_secs() || self.text.is_empty() {
            self.second = since.as_secs();
            self.text = humantime::format_rfc3339_seconds(now).to_string();
            self.text.pop();
        }
        if format == LogFormat::Json {
            self.lines.extend_from_slice(br#"{"time":""#);
        }
        self.lines.extend_from_slice(self.text.as_bytes());
        push_thousandths(since.subsec_millis(), &mut self.lines);
        self.lines.push(b'Z');
    }
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
        for address in ["0.0.0.0", "1.10.100.255", "127.0.0.1", "203.0.113.99", "9.19.109.200"] {
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
            assert_eq!(written(|out| push_millis(Duration::from_nanos(nanos), out)), text);
        }
    }
}
