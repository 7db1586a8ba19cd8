//! Log lines on stderr: JSON objects, or plain text for people.
//!
//! Tasks append to a buffer in memory, and one thread writes it out, so a slow terminal or pipe
//! never delays a response. The buffer is bounded, with room of their own for warnings and errors:
//! when the reader of stderr stalls, lines are dropped, counted and reported. Identical refusals
//! are summarised (`repeated`). Other events than requests are logged through the `log` macros.

use super::conditions;
use super::repeated::{Refusals, Repeated};
use super::{Recent, Surface};
use crate::config::{LogConfig, LogFormat};
use ::log::kv::{Error, Key, Value, VisitSource};
use ::log::{Level, LevelFilter, Metadata, Record};
use parking_lot::{Condvar, Mutex};
use portcullis_filters::client::{Client, Shown};
use portcullis_filters::verdict::Reason;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::os::linux::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// 4 MiB: about twenty thousand lines, a second of full load, may wait for the writer.
const MAX_PENDING: usize = 4 << 20;
/// 1 MiB more for warnings and errors, which no flood of request lines displaces.
const MAX_SEVERE: usize = MAX_PENDING + (1 << 20);
/// How often the writer looks for repeated refusals, and at most reports dropped lines.
const SWEEP: Duration = Duration::from_secs(1);
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
    /// The HTTP method, path, cache use and trace.
    pub http: HttpLine<'a>,
    /// Why it was not answered.
    pub reason: Option<Reason>,
    /// The HTTP status.
    pub status: u16,
    /// Bytes of the response body.
    pub bytes: usize,
    /// Time spent waiting for the node.
    pub upstream: Duration,
    /// The place of the URL of the node that answered, if one did.
    pub node: Option<usize>,
    /// Time from the complete head to the last byte of the response.
    pub total: Duration,
}

/// What the head of a request and its response add to the line. Each is empty if it is unknown.
#[derive(Clone, Copy, Debug, Default)]
pub struct HttpLine<'a> {
    /// The HTTP method if it is a standard one.
    pub method: &'static str,
    /// The path if it is one of the surface's.
    pub path: &'a str,
    /// How the cache took part.
    pub cache: &'static str,
    /// The id of the recorded trace, or else of a valid `traceparent`.
    pub trace_id: &'a str,
}

/// A handle to the log. Cheap to clone.
#[derive(Clone)]
pub struct Log {
    sink: Arc<Sink>,
    style: Style,
}

/// The form of the lines.
#[derive(Clone, Copy)]
struct Style {
    format: LogFormat,
    shown: Shown,
    /// Whether the journal reads stderr: lines begin with their priority.
    is_journal: bool,
}

struct Sink {
    pending: Mutex<Pending>,
    ready: Condvar,
    dropped: AtomicU64,
    recent: Recent,
    refusals: Refusals,
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
            refusals: Refusals::default(),
        });
        let (format, shown) = (config.format, config.clients.into());
        let log = Self { sink, style: Style { format, shown, is_journal: is_journal() } };
        let writer = log.clone();
        let thread = std::thread::Builder::new().name("log".into());
        // without the thread there is no log, but requests are still served
        drop(thread.spawn(move || writer.write_out()));
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

    /// Whether requests are logged.
    pub fn has_requests(&self) -> bool {
        ::log::max_level() >= LevelFilter::Info
    }

    /// A peer's address, as the log may show it.
    pub fn shown(&self, peer: IpAddr) -> String {
        Client::at(peer).shown(self.style.shown).to_string()
    }

    /// Logs one request, unless it is summarised with others.
    pub fn request(&self, line: &RequestLine<'_>) {
        if !self.has_requests() {
            return;
        }
        // a connection that is refused before its head is read can come as often as a refusal
        let can_flood = |reason: &Reason| !reason.is_failure() || line.http.method.is_empty();
        if let Some(reason) = line.reason.filter(can_flood) {
            let kind = (line.surface, reason, line.method);
            if !self.sink.refusals.count(kind, line.client, Instant::now()) {
                return;
            }
        }
        let Style { format, shown, .. } = self.style;
        self.append(Level::Info, |out| match format {
            LogFormat::Json => line.write_json(shown, out),
            LogFormat::Text => line.write_text(shown, out),
        });
    }

    /// Appends a line: the time, and what `rest` writes.
    fn append(&self, level: Level, rest: impl FnOnce(&mut Vec<u8>) -> std::io::Result<()>) {
        let sink = &*self.sink;
        let bound = if level <= Level::Warn { MAX_SEVERE } else { MAX_PENDING };
        let mut pending = sink.pending.lock();
        if pending.lines.len() > bound {
            sink.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let before = pending.lines.len();
        pending.begin(self.style, level);
        // writing to memory does not fail
        let _ = rest(&mut pending.lines);
        let after = pending.lines.len();
        drop(pending);
        if before == 0 || (before < MANY && after >= MANY) {
            sink.ready.notify_one();
        }
    }

    fn write_out(&self) {
        let sink = &*self.sink;
        // the two buffers take turns, so that neither is allocated again
        let mut lines = Vec::new();
        let (mut swept, mut reported) = (Instant::now(), 0);
        loop {
            let mut pending = sink.pending.lock();
            let is_empty = |pending: &mut Pending| pending.lines.is_empty();
            sink.ready.wait_while_for(&mut pending, is_empty, SWEEP);
            let are_few = |pending: &mut Pending| (1..MANY).contains(&pending.lines.len());
            sink.ready.wait_while_for(&mut pending, are_few, COLLECT);
            std::mem::swap(&mut lines, &mut pending.lines);
            drop(pending);
            // a broken stderr is ignored
            let _ = std::io::stderr().write_all(&lines);
            lines.clear();
            let now = Instant::now();
            if now - swept >= SWEEP {
                swept = now;
                self.summarise(now);
                self.report_dropped(&mut reported);
            }
        }
    }

    /// Logs the sums of repeated refusals whose window is over.
    fn summarise(&self, now: Instant) {
        for Repeated { kind, client, more } in self.sink.refusals.take(now) {
            let (surface, reason) = (kind.surface.name(), kind.reason.name());
            let verdict = verdict(Some(kind.reason));
            let client = client.map(|client| client.shown(self.style.shown).to_string());
            let client = client.as_deref().unwrap_or_default();
            let method = kind.method;
            ::log::info!(
                surface, client, method, verdict, reason, refusals = more;
                "refused {more} more times: {reason}"
            );
        }
    }

    /// Logs how many lines were dropped since the last report.
    fn report_dropped(&self, reported: &mut u64) {
        let dropped = self.dropped();
        if dropped > *reported {
            let lines = dropped - *reported;
            ::log::warn!(lines; "log lines were dropped: stderr is read too slowly");
            *reported = dropped;
        }
    }
}

/// Whether stderr is the journal's socket:
/// <https://www.freedesktop.org/software/systemd/man/systemd.exec.html#%24JOURNAL_STREAM>.
fn is_journal() -> bool {
    let (Ok(stream), Ok(stderr)) =
        (std::env::var("JOURNAL_STREAM"), std::fs::metadata("/proc/self/fd/2"))
    else {
        return false;
    };
    stream == format!("{}:{}", stderr.st_dev(), stderr.st_ino())
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
        if let Some(node) = self.node {
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
        push_millis(self.upstream, out);
        out.extend_from_slice(br#","total_ms":"#);
        push_millis(self.total, out);
        out.extend_from_slice(b"}\n");
        Ok(())
    }

    fn write_text(&self, shown: Shown, out: &mut Vec<u8>) -> std::io::Result<()> {
        let Self { request_id, method, status, bytes, total, .. } = self;
        let (surface, client) = (self.surface.name(), self.client.shown(shown));
        write!(out, " info {surface} {client}")?;
        let (status, verdict) = (status.to_string(), verdict(self.reason));
        let reason = self.reason.map_or("", Reason::name);
        let HttpLine { method: http_method, path, cache, .. } = self.http;
        for word in [http_method, path, &status, verdict, method, reason, cache]
            .into_iter()
            .filter(|word| !word.is_empty())
        {
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
        target.starts_with("portcullis") || (operational && metadata.level() <= Level::Warn)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        let level = record.level().as_str().to_ascii_lowercase();
        let message = record.args().to_string();
        // the end of a condition belongs next to its begin
        if record.level() <= Level::Warn || record.target() == conditions::TARGET {
            self.sink.recent.add(record, &message);
        }
        let format = self.style.format;
        self.append(record.level(), |out| {
            let mut fields = Fields { out, format };
            match format {
                LogFormat::Json => {
                    write!(fields.out, r#"","level":"{level}","message":"#)?;
                    json_string(fields.out, &message)?;
                }
                LogFormat::Text => write!(fields.out, " {level} {message}")?,
            }
            // visiting a record's own fields fails only where a visitor does
            let _ = record.key_values().visit(&mut fields);
            out.extend_from_slice(match format {
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

impl Pending {
    /// Begins a line with its priority for the journal, and the time: RFC 3339, in milliseconds.
    fn begin(&mut self, style: Style, level: Level) {
        let now = SystemTime::now();
        let since = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if self.second != since.as_secs() || self.text.is_empty() {
            self.second = since.as_secs();
            self.text = humantime::format_rfc3339_seconds(now).to_string();
            self.text.pop();
        }
        if style.is_journal {
            // sd-daemon(3)
            self.lines.extend_from_slice(match level {
                Level::Error => b"<3>",
                Level::Warn => b"<4>",
                Level::Info => b"<6>",
                Level::Debug | Level::Trace => b"<7>",
            });
        }
        if style.format == LogFormat::Json {
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
