//! Writes lines to stderr, counts those that cannot be written, and bounds how long a flush waits.
//!
//! In: whole lines, and time as an argument. Out: bytes on the descriptor, not through the lock of
//! `std::io::stderr`, which a stalled write would hold. A full disk or a closed pipe loses lines:
//! they are counted, and a report precedes the first line that can be written again.

use memchr::memchr_iter;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// 32 KiB: the bytes of one write, after which progress is reported. A pipe holds 64 KiB.
const STEP: usize = 32 << 10;

/// A flush ends when nothing was written for this long: nobody reads stderr.
const STALL: Duration = Duration::from_secs(1);
/// A flush ends after this in any case: a slow reader may have 5 MiB to read.
pub(super) const FLUSH: Duration = Duration::from_secs(5);

/// The standard error of the process.
pub(super) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        loop {
            match rustix::io::write(io::stderr(), bytes) {
                Err(Errno::INTR) => {}
                // a process that shares the descriptor may have made it non-blocking
                Err(Errno::AGAIN) => {
                    let stderr = io::stderr();
                    poll(&mut [PollFd::new(&stderr, PollFlags::OUT)], None)?;
                }
                written => return Ok(written?),
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Lines that could not be written.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Gap {
    /// How many. A line that was written in part is one of them.
    pub(super) lines: u64,
    /// The most recent cause.
    pub(super) cause: String,
    /// Whether the last byte that was written is within a line.
    is_cut: bool,
}

impl Gap {
    /// Counts the lines of `text` that are lost because only its first `done` bytes were written.
    fn add(&mut self, text: &[u8], done: usize) {
        let (written, rest) = text.split_at(done.min(text.len()));
        self.lines += memchr_iter(b'\n', rest).count() as u64;
        self.is_cut = written.last().map_or(self.is_cut, |last| *last != b'\n');
    }

    /// The report of the gap, on a line of its own.
    fn reported(&self, report: Vec<u8>) -> Vec<u8> {
        if self.is_cut {
            [b"\n".to_vec(), report].concat()
        } else {
            report
        }
    }
}

/// The outcome of an attempt to write some lines.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Attempt {
    /// Lines that could not be written.
    pub(super) lost: u64,
    /// The gap that ended and was reported.
    pub(super) ended: Option<Gap>,
    /// The cause of a gap that began.
    pub(super) began: Option<String>,
}

/// The output, and its present gap.
pub(super) struct Output<W> {
    to: W,
    gap: Option<Gap>,
}

impl<W: Write> Output<W> {
    pub(super) fn new(to: W) -> Self {
        Self { to, gap: None }
    }

    /// Whether the last lines could not be written.
    pub(super) fn has_gap(&self) -> bool {
        self.gap.is_some()
    }

    /// Writes lines, after the `report` of a gap. `progress` is called with each number of bytes
    /// that were written or lost.
    pub(super) fn write(
        &mut self,
        lines: &[u8],
        report: impl FnOnce(&Gap) -> Vec<u8>,
        mut progress: impl FnMut(usize),
    ) -> Attempt {
        let mut attempt = Attempt::default();
        if let Some(mut gap) = self.gap.take() {
            let report = gap.reported(report(&gap));
            if let Err((done, error)) = put(&mut self.to, &report, |_| {}) {
                // the report is not one of the lines
                let lines_before = gap.lines;
                gap.add(&report, done);
                gap.lines = lines_before;
                gap.add(lines, 0);
                gap.cause = cause(&error);
                attempt.lost = gap.lines - lines_before;
                progress(lines.len());
                self.gap = Some(gap);
                return attempt;
            }
            attempt.ended = Some(gap);
        }
        if let Err((done, error)) = put(&mut self.to, lines, &mut progress) {
            let mut gap = Gap {
                cause: cause(&error),
                ..Gap::default()
            };
            gap.add(lines, done);
            progress(lines.len() - done);
            attempt.lost = gap.lines;
            attempt.began = Some(gap.cause.clone());
            self.gap = Some(gap);
        }
        attempt
    }
}

/// Writes all bytes; an error has the number of bytes that were written before it.
fn put(
    to: &mut impl Write,
    bytes: &[u8],
    mut progress: impl FnMut(usize),
) -> Result<(), (usize, io::Error)> {
    let mut rest = bytes;
    while !rest.is_empty() {
        let (step, _) = rest.split_at(rest.len().min(STEP));
        let done = bytes.len() - rest.len();
        match to.write(step) {
            Ok(0) => return Err((done, io::ErrorKind::WriteZero.into())),
            Ok(written) => {
                rest = rest.get(written..).unwrap_or_default();
                progress(written);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err((done, error)),
        }
    }
    Ok(())
}

/// The text of an error without its number: `No space left on device` without `(os error 28)`.
fn cause(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error")
        .next()
        .unwrap_or_default()
        .to_owned()
}

/// How long a flush waits: as long as stderr is read, within bounds.
#[derive(Debug)]
pub(super) struct FlushWait {
    written: u64,
    progressed: Instant,
    stall: Duration,
    end: Instant,
}

impl FlushWait {
    /// Begins a wait at `now`, when this many bytes have been written. It lasts at most a second
    /// without progress, and `limit` in all.
    pub(super) fn begin(written: u64, now: Instant, limit: Duration) -> Self {
        Self {
            written,
            progressed: now,
            stall: STALL,
            end: now + limit,
        }
    }

    /// The time until which to wait for more than `written` bytes; `None` if the wait is over.
    pub(super) fn until(&mut self, written: u64, now: Instant) -> Option<Instant> {
        if written > self.written {
            (self.written, self.progressed) = (written, now);
        }
        let until = (self.progressed + self.stall).min(self.end);
        (until > now).then_some(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file on a disk with this much room.
    struct Disk {
        room: usize,
        file: Vec<u8>,
    }

    impl Write for Disk {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            let most = bytes.len().min(self.room);
            if most == 0 {
                return Err(io::Error::from_raw_os_error(Errno::NOSPC.raw_os_error()));
            }
            self.room -= most;
            self.file.extend_from_slice(&bytes[..most]);
            Ok(most)
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn output(room: usize) -> Output<Disk> {
        Output::new(Disk {
            room,
            file: Vec::new(),
        })
    }

    fn write(output: &mut Output<Disk>, lines: &str) -> Attempt {
        let report = |gap: &Gap| format!("{} lost: {}\n", gap.lines, gap.cause).into_bytes();
        let mut done = 0;
        let attempt = output.write(lines.as_bytes(), report, |bytes| done += bytes);
        assert_eq!(done, lines.len(), "a flush waits for no byte that is lost");
        attempt
    }

    #[test]
    fn every_line_is_written_or_counted() {
        const LINES: &str = "one\ntwo\nthree\n";
        for room in 0..=LINES.len() {
            let mut output = output(room);
            let lost = write(&mut output, LINES).lost;
            let whole = LINES.as_bytes()[..room]
                .iter()
                .filter(|byte| **byte == b'\n')
                .count();
            assert_eq!(lost, 3 - whole as u64, "{room}");
            assert_eq!(output.has_gap(), lost > 0, "{room}");
            output.to.room = 1_000;
            let attempt = write(&mut output, "four\n");
            let found = String::from_utf8(output.to.file).expect("it is text");
            let lines: Vec<_> = found.lines().collect();
            let after = match lost {
                0 => vec!["four".to_owned()],
                lost => vec![
                    format!("{lost} lost: No space left on device"),
                    "four".to_owned(),
                ],
            };
            assert!(
                lines.ends_with(&after.iter().map(String::as_str).collect::<Vec<_>>()),
                "{found}"
            );
            assert_eq!(attempt.ended.map_or(0, |gap| gap.lines), lost, "{room}");
            assert!(!found.contains("\n\n"), "{room}: {found:?}");
        }
    }

    #[test]
    fn a_report_that_does_not_fit_is_repeated() {
        let mut output = output(2);
        let attempt = write(&mut output, "one\ntwo\n");
        assert_eq!(attempt.began.as_deref(), Some("No space left on device"));
        for room in [0, 1, 5] {
            output.to.room = room;
            let attempt = write(&mut output, "more\n");
            assert_eq!(
                attempt,
                Attempt {
                    lost: 1,
                    ..Attempt::default()
                },
                "{room}"
            );
        }
        output.to.room = 1_000;
        let attempt = write(&mut output, "");
        assert_eq!(
            attempt.ended.map(|gap| gap.lines),
            Some(5),
            "without a line to write"
        );
        assert!(!output.has_gap());
        let found = String::from_utf8(output.to.file).expect("it is text");
        assert!(
            found.ends_with("\n5 lost: No space left on device\n"),
            "{found:?}"
        );
    }

    #[test]
    fn a_flush_waits_while_stderr_is_read() {
        let start = Instant::now();
        let at = |millis| start + Duration::from_millis(millis);
        for (what, steps, over) in [
            ("nobody reads", vec![], 1_000),
            ("it is read once", vec![(900, 10)], 1_900),
            (
                "it is read slowly, for ever",
                (1..20).map(|step| (step * 500, step)).collect(),
                5_000,
            ),
        ] {
            let mut wait = FlushWait::begin(0, start, FLUSH);
            let mut until = wait.until(0, start);
            for (now, written) in steps {
                if until.is_some_and(|until| until > at(now)) {
                    until = wait.until(written, at(now));
                }
            }
            assert_eq!(until, Some(at(over)), "{what}");
            assert_eq!(wait.until(wait.written, at(over)), None, "{what}");
        }
        let mut short = FlushWait::begin(0, start, Duration::from_millis(100));
        assert_eq!(short.until(5, at(50)), Some(at(100)));
        assert_eq!(short.until(6, at(100)), None);
    }
}
