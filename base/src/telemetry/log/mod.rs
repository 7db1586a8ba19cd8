//! Log lines on stderr: JSON objects, or plain text for people.
//!
//! Tasks append to a buffer in memory, and one thread writes it out (`output`), so a slow terminal
//! or pipe never delays a response. The buffer is bounded, with separate room for warnings and
//! errors: when the reader of stderr stalls, lines are dropped, counted and reported. Identical
//! refusals are summarised (`repeated`). Events other than requests are logged through the `log`
//! macros. Nothing here waits for stderr, except a flush for a bounded time.

pub(super) mod fields;
mod line;
mod output;
mod panics;

pub use line::{HttpLine, RequestLine};

use self::output::{FLUSH, FlushWait, Gap, Output, Stderr};
use super::conditions;
use super::draws::Draws;
use super::recent::Recent;
use super::repeated::{Refusals, Repeated};
use super::requests::verdict;
use crate::config::{LogConfig, LogFormat, LogLive};
use crate::io::clock;
use ::log::{Level, LevelFilter, Metadata, Record};
use fields::{Fields, json_string};
use line::push_thousandths;
use panics::Panics;
use parking_lot::{Condvar, Mutex, MutexGuard};
use portcullis_filters::chance::Chance;
use portcullis_filters::client::{Client, Shown};
use portcullis_filters::verdict::Reason;
use std::io::{self, Write};
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::os::linux::fs::MetadataExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime};
use tokio::time::Instant;

/// 4 MiB: about twenty thousand lines, a second of full load, may wait for the writer.
const MAX_PENDING: usize = 4 << 20;
/// 1 MiB more for warnings and errors, which no flood of request lines displaces.
const MAX_SEVERE: usize = MAX_PENDING + (1 << 20);
/// How often the writer logs repeated refusals and, if there are any, dropped lines.
const SWEEP: Duration = Duration::from_secs(1);
/// How long the writer collects lines before it writes them, unless there are many.
const COLLECT: Duration = Duration::from_millis(20);
/// 32 KiB are written immediately: they are still in the processor's cache, and have not evicted
/// the data of requests.
const MANY: usize = 32 << 10;
/// How long a panic waits for the buffer, and for its line to be written.
const PANIC: Duration = Duration::from_millis(100);
/// The thread that writes.
const WRITER: &str = "log";

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
    /// Signalled when there are lines to write.
    ready: Condvar,
    /// Signalled when lines were written, while a flush waits.
    progress: Condvar,
    /// Lines that were dropped because the buffer was full.
    dropped: AtomicU64,
    /// Lines that could not be written.
    lost: AtomicU64,
    /// `log.sample_rate`.
    sample_rate: AtomicU32,
    draws: Draws,
    recent: Recent,
    panics: Panics,
    refusals: Refusals,
}

/// The lines that wait for the writer.
#[derive(Default)]
struct Pending {
    lines: Vec<u8>,
    /// The second of the last line, and its text, which most lines can reuse.
    second: i64,
    text: String,
    /// Bytes of all lines so far.
    appended: u64,
    /// Bytes of those that were written or lost.
    written: u64,
    /// Flushes that wait.
    flushes: usize,
}

impl Log {
    /// Starts the writer thread, and installs the log as the logger of the process.
    pub fn install(config: &LogConfig) -> Self {
        let sink = Arc::new(Sink {
            pending: Mutex::default(),
            ready: Condvar::new(),
            progress: Condvar::new(),
            dropped: AtomicU64::new(0),
            lost: AtomicU64::new(0),
            sample_rate: AtomicU32::new(config.live.sample_rate.get()),
            draws: Draws::default(),
            recent: Recent::default(),
            panics: Panics::default(),
            refusals: Refusals::default(),
        });
        let (format, shown) = (config.format, config.clients.into());
        let log = Self {
            sink,
            style: Style {
                format,
                shown,
                is_journal: is_journal(),
            },
        };
        let writer = log.clone();
        let thread = std::thread::Builder::new().name(WRITER.into());
        if let Err(error) = thread.spawn(move || writer.keep_writing()) {
            // requests are served without a log
            let _ = writeln!(
                Stderr,
                "portcullis: cannot start the thread of the log: {error}"
            );
        }
        // only tests install a second logger
        if ::log::set_boxed_logger(Box::new(log.clone())).is_ok() {
            ::log::set_max_level(config.live.level);
            let log = log.clone();
            // a panic ends one request; its message may contain client data, its location cannot
            std::panic::set_hook(Box::new(move |panic| {
                let place = panic
                    .location()
                    .map(ToString::to_string)
                    .unwrap_or_default();
                log.log_panic(&place);
            }));
        }
        log
    }

    /// Applies what a reload changes.
    pub fn change(&self, live: &LogLive) {
        ::log::set_max_level(live.level);
        let rate = live.sample_rate.get();
        self.sink.sample_rate.store(rate, Ordering::Relaxed);
    }

    /// Lines that are missing in the log: the reader of stderr stalled, or they could not be
    /// written.
    pub fn dropped(&self) -> u64 {
        self.sink.dropped.load(Ordering::Relaxed) + self.sink.lost.load(Ordering::Relaxed)
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
        // connections that fail before their head is read can be as frequent as refusals
        let can_flood = |reason: &Reason| !reason.is_failure() || line.http.method.is_empty();
        if let Some(reason) = line.reason.filter(can_flood) {
            let now = Instant::now();
            if !self
                .sink
                .refusals
                .count(line.surface, reason, line.record.method, line.client, now)
            {
                return;
            }
        }
        let Some(rate) = self.sampled(line) else {
            return;
        };
        let Style { format, shown, .. } = self.style;
        self.append(self.sink.pending.lock(), Level::Info, |out| match format {
            LogFormat::Json => line.write_json(shown, rate, out),
            LogFormat::Text => line.write_text(shown, rate, out),
        });
    }

    /// How many requests the line of this one represents, if it is written: the rate at which its
    /// kind is sampled.
    fn sampled(&self, line: &RequestLine<'_>) -> Option<NonZeroU32> {
        let rate = NonZeroU32::new(self.sink.sample_rate.load(Ordering::Relaxed))?;
        if rate == NonZeroU32::MIN || !line.may_be_left_out() {
            return Some(NonZeroU32::MIN);
        }
        let chance = Chance((self.sink.draws.draw() >> 32) as u32);
        if chance.is_one_in(rate) {
            Some(rate)
        } else {
            None
        }
    }

    /// Appends a line: the time, and what `rest` writes.
    fn append(
        &self,
        mut pending: MutexGuard<'_, Pending>,
        level: Level,
        rest: impl FnOnce(&mut Vec<u8>) -> io::Result<()>,
    ) {
        let sink = &*self.sink;
        let bound = if level <= Level::Warn {
            MAX_SEVERE
        } else {
            MAX_PENDING
        };
        if pending.lines.len() > bound {
            sink.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let before = pending.lines.len();
        pending.begin(self.style, level, SystemTime::now());
        // writing to memory does not fail
        let _ = rest(&mut pending.lines);
        let after = pending.lines.len();
        pending.appended += (after - before) as u64;
        drop(pending);
        if before == 0 || (before < MANY && after >= MANY) {
            sink.ready.notify_one();
        }
    }

    /// Logs a panic. The thread may have panicked anywhere, even while it held the buffer: then the
    /// line is dropped.
    fn log_panic(&self, place: &str) {
        let fields = [("place", place)];
        let message = "a panic ended a request";
        let line = self.render(
            &record(Level::Error, &fields)
                .args(format_args!("{message}"))
                .build(),
        );
        self.sink
            .recent
            .add(&record(Level::Error, &fields).build(), message);
        match self.sink.pending.try_lock_for(PANIC) {
            Some(pending) => self.append(pending, Level::Error, |out| out.write_all(&line)),
            None => {
                self.sink.dropped.fetch_add(1, Ordering::Relaxed);
            }
        }
        // the panic may end the process
        if std::thread::current().name() != Some(WRITER) {
            self.flush_within(PANIC);
        }
    }

    /// Renders a record's line without the time at its start.
    fn render(&self, record: &Record<'_>) -> Vec<u8> {
        let format = self.style.format;
        let level = record.level().as_str().to_ascii_lowercase();
        let mut out = Vec::new();
        // writing to memory does not fail
        let _ = match format {
            LogFormat::Json => write!(out, r#"","level":"{level}","message":"#)
                .and_then(|()| json_string(&mut out, &record.args().to_string())),
            LogFormat::Text => write!(out, " {level} {}", record.args()),
        };
        // visiting a record's own fields fails only if the visitor does
        let _ = record.key_values().visit(&mut Fields {
            out: &mut out,
            format,
        });
        out.extend_from_slice(match format {
            LogFormat::Json => b"}\n",
            LogFormat::Text => b"\n",
        });
        out
    }

    fn write_out(&self, mut output: Output<impl Write>) {
        // the two buffers are swapped, so that neither is reallocated
        let mut lines = Vec::new();
        let (mut swept, mut reported) = (Instant::now(), 0);
        loop {
            self.collect(&mut lines);
            self.write(&mut output, &lines);
            lines.clear();
            let now = Instant::now();
            if now - swept >= SWEEP {
                swept = now;
                self.summarise(now);
                self.report_dropped(&mut reported);
                self.sink.panics.review();
            }
        }
    }

    /// Waits for lines, and takes them.
    fn collect(&self, lines: &mut Vec<u8>) {
        let sink = &*self.sink;
        let mut pending = sink.pending.lock();
        let is_empty = |pending: &mut Pending| pending.lines.is_empty();
        sink.ready.wait_while_for(&mut pending, is_empty, SWEEP);
        let are_few = |pending: &mut Pending| {
            pending.flushes == 0 && (1..MANY).contains(&pending.lines.len())
        };
        sink.ready.wait_while_for(&mut pending, are_few, COLLECT);
        std::mem::swap(lines, &mut pending.lines);
    }

    /// Writes lines. A failure becomes a recent event at once, and is logged once lines can be
    /// written again.
    fn write(&self, output: &mut Output<impl Write>, lines: &[u8]) {
        let sink = &*self.sink;
        if lines.is_empty() && !output.has_gap() {
            return;
        }
        let report = |gap: &Gap| {
            let fields = [("lines", gap.lines)];
            let message = lost(gap);
            let mut line = Pending::default();
            line.begin(self.style, Level::Warn, SystemTime::now());
            line.lines.extend(
                self.render(
                    &record(Level::Warn, &fields)
                        .args(format_args!("{message}"))
                        .build(),
                ),
            );
            line.lines
        };
        let attempt = output.write(lines, report, |bytes| {
            let mut pending = sink.pending.lock();
            pending.written += bytes as u64;
            if pending.flushes > 0 {
                sink.progress.notify_all();
            }
        });
        sink.lost.fetch_add(attempt.lost, Ordering::Relaxed);
        if let Some(gap) = &attempt.ended {
            sink.recent.add(
                &record(Level::Warn, &[("lines", gap.lines)]).build(),
                &lost(gap),
            );
        }
        if let Some(cause) = attempt.began {
            let message = format!("log lines cannot be written: {cause}");
            sink.recent
                .add(&Record::builder().level(Level::Warn).build(), &message);
        }
    }

    /// Waits until all lines so far are written: at most `limit`, and only while stderr is read.
    fn flush_within(&self, limit: Duration) {
        let sink = &*self.sink;
        let Some(mut pending) = sink.pending.try_lock_for(limit) else {
            return;
        };
        let (end, now) = (pending.appended, std::time::Instant::now);
        let mut wait = FlushWait::begin(pending.written, now(), limit);
        pending.flushes += 1;
        sink.ready.notify_one();
        while pending.written < end {
            let Some(until) = wait.until(pending.written, now()) else {
                break;
            };
            sink.progress.wait_until(&mut pending, until);
        }
        pending.flushes -= 1;
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
        let dropped = self.sink.dropped.load(Ordering::Relaxed);
        if dropped > *reported {
            let lines = dropped - *reported;
            ::log::warn!(lines; "log lines were dropped: stderr is read too slowly");
            *reported = dropped;
        }
    }
}

/// A record of this module, without its message.
fn record<'a>(level: Level, fields: &'a dyn ::log::kv::Source) -> ::log::RecordBuilder<'a> {
    let mut record = Record::builder();
    record
        .level(level)
        .target(module_path!())
        .key_values(fields);
    record
}

/// The message of a gap's report.
fn lost(gap: &Gap) -> String {
    format!("log lines could not be written: {}", gap.cause)
}

/// Whether stderr is the journal's socket:
/// <https://www.freedesktop.org/software/systemd/man/systemd.exec.html#%24JOURNAL_STREAM>.
fn is_journal() -> bool {
    let (Ok(stream), Ok(stderr)) = (
        std::env::var("JOURNAL_STREAM"),
        std::fs::metadata("/proc/self/fd/2"),
    ) else {
        return false;
    };
    stream == format!("{}:{}", stderr.st_dev(), stderr.st_ino())
}

impl ::log::Log for Log {
    /// Libraries log client data and URLs: Pingora the bytes of malformed requests, an HTTP client
    /// its targets. Such records are dropped at any level. Pingora's warnings about its start and
    /// its listeners are logged.
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        const OPERATIONAL: [&str; 3] = [
            "pingora::server",
            "pingora::listeners",
            "pingora::services::listening",
        ];
        let target = metadata.target();
        let operational = OPERATIONAL.iter().any(|module| target.starts_with(module));
        target.starts_with("portcullis") || (operational && metadata.level() <= Level::Warn)
    }

    fn log(&self, record: &Record<'_>) {
        if !self.enabled(record.metadata()) {
            return;
        }
        // the end of a condition is shown next to its begin
        if record.level() <= Level::Warn || record.target() == conditions::TARGET {
            self.sink.recent.add(record, &record.args().to_string());
        }
        // outside the lock, since a value's formatting may run any code
        let line = self.render(record);
        self.append(self.sink.pending.lock(), record.level(), |out| {
            out.write_all(&line)
        });
    }

    fn flush(&self) {
        self.flush_within(FLUSH);
    }
}

impl Pending {
    /// Begins a line with its priority for the journal, and the time: RFC 3339, in milliseconds.
    fn begin(&mut self, style: Style, level: Level, now: SystemTime) {
        let (second, nanos) = clock::unix(now);
        if self.second != second || self.text.is_empty() {
            self.second = second;
            self.text = clock::rfc3339_of(second);
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
        push_thousandths(nanos / 1_000_000, &mut self.lines);
        self.lines.push(b'Z');
    }
}
