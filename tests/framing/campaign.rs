//! Has the program, the judges and the front proxies read streams, and counts.
//!
//! `PORTCULLIS_FRAMING_STREAMS` sets how many streams are generated, `PORTCULLIS_FRAMING_SECONDS`
//! instead for how long, from a seed that is printed. `PORTCULLIS_FRAMING_SEED` sets the seed.

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime};

use crate::differ::{Difference, Outcome, compare};
use crate::draft::read_with;
use crate::escape::{escape, unescape};
use crate::fronts::Front;
use crate::grammar::{Stream, generate, marker};
use crate::http::{Reading, read};
use crate::judges::{Judge, Judges};
use crate::known::{KNOWN, Known};
use crate::minimise::minimise;
use crate::processes::Folder;
use crate::program::Program;
use crate::servers;

/// Streams of a run without settings.
const STREAMS: u64 = 3000;
const SEED: u64 = 2026;
/// One in this many accepted streams, and of the refused ones, goes through the front proxies.
const ACCEPTED_THROUGH_FRONTS: u64 = 8;
const REFUSED_THROUGH_FRONTS: u64 = 32;
/// One in this many refused streams is sent to the program, as each accepted one is.
const REFUSED_TO_PROGRAM: u64 = 8;
/// One in this many streams is sent to the program in pieces, too, and one all at once.
const SENT_IN_OTHER_WAYS: u64 = 8;
/// How long a disagreement is shortened.
const SHORTENED_FOR: Duration = Duration::from_secs(60);
/// A run ends with this many disagreements.
const SHOWN: usize = 10;
const THREADS: usize = 6;

/// The readers of a run, and its counts.
struct Campaign {
    judges: Judges,
    fronts: [Front; 3],
    program: Program,
    tally: Mutex<Tally>,
    _folder: Folder,
}

/// The counts of a run.
#[derive(Default)]
struct Tally {
    streams: u64,
    /// Streams whose first request the program accepts.
    accepted: u64,
    /// All requests that it accepts.
    requests: u64,
    /// Streams and requests that each judge accepts.
    by_judge: BTreeMap<&'static str, (u64, u64)>,
    through_fronts: u64,
    to_program: u64,
    known: BTreeMap<&'static str, u64>,
    wrong: Vec<String>,
}

impl Campaign {
    fn start() -> Self {
        let folder = Folder::new();
        let node = servers::start(&folder.file("hyper.sock"), &folder.file("origin.sock"));
        let program = Program::start(&folder, node);
        let judges = Judges::start(&folder, &program.address.to_string());
        let (fronts, tally) = (Front::all(&folder), Mutex::default());
        Self {
            judges,
            fronts,
            program,
            tally,
            _folder: folder,
        }
    }

    /// Has all of them read a stream.
    fn run(&self, name: &str, index: u64, stream: &Stream) {
        let bytes = stream.bytes();
        let _shown = ShownOnPanic(name, &bytes);
        let ours = read(&bytes, bytes.len().max(1));
        let mut wrong = Vec::new();
        let step = 1 + (index % 7) as usize;
        if read(&bytes, step) != ours {
            wrong.push(format!("by {step} bytes it reads {:?}", read(&bytes, step)));
        }
        let is_accepted = !ours.accepted.is_empty();
        let mut counted = Vec::new();
        if is_accepted {
            for judge in &self.judges.all {
                let (requests, difference) = self.judge(judge, &bytes, &ours);
                counted.push((judge.name, requests));
                wrong.extend(difference.map(|difference| {
                    let shortest = self.shortest(judge, stream, &difference);
                    format!("{}: {difference:?}\n    {}", judge.name, escape(&shortest))
                }));
            }
        }
        let is_sent = is_accepted || index.is_multiple_of(REFUSED_TO_PROGRAM);
        if is_sent {
            wrong.extend(self.program.serves(&bytes, &ours, usize::MAX).err());
            match index % SENT_IN_OTHER_WAYS {
                0 => wrong.extend(self.program.serves_pipelined(&bytes, &ours).err()),
                1 => wrong.extend(
                    self.program
                        .serves(&bytes, &ours, 1 + index as usize % 97)
                        .err(),
                ),
                _ => {}
            }
        }
        let share = if is_accepted {
            ACCEPTED_THROUGH_FRONTS
        } else {
            REFUSED_THROUGH_FRONTS
        };
        let is_forwarded = index.is_multiple_of(share);
        if is_forwarded {
            for front in &self.fronts {
                let result = front.separates(&bytes, index);
                wrong.extend(result.err().map(|error| format!("{}: {error}", front.name)));
            }
        }
        let mut tally = self.tally.lock().unwrap();
        tally.streams += 1;
        tally.accepted += u64::from(is_accepted);
        tally.requests += ours.accepted.len() as u64;
        tally.to_program += u64::from(is_sent);
        tally.through_fronts += u64::from(is_forwarded);
        for (judge, requests) in counted {
            let count = tally.by_judge.entry(judge).or_default();
            count.0 += u64::from(requests > 0);
            count.1 += requests as u64;
        }
        let stream = escape(&bytes);
        tally.wrong.extend(
            wrong
                .iter()
                .map(|wrong| format!("{name}: {wrong}\n  of {stream}")),
        );
    }

    /// How many requests a judge accepts, and its disagreement unless that is known.
    fn judge(&self, judge: &Judge, stream: &[u8], ours: &Reading) -> (usize, Option<Difference>) {
        let (requests, difference) = difference(judge, stream, ours);
        let Some(found) = &difference else {
            return (requests, None);
        };
        let is_it = |known: &&Known| known.judge == judge.name && (known.matches)(stream, found);
        let Some(known) = KNOWN.iter().find(is_it) else {
            return (requests, difference);
        };
        *self
            .tally
            .lock()
            .unwrap()
            .known
            .entry(known.reason)
            .or_default() += 1;
        (requests, None)
    }

    /// The shortest stream in which a judge disagrees in the same way.
    fn shortest(&self, judge: &Judge, stream: &Stream, found: &Difference) -> Vec<u8> {
        let kind = std::mem::discriminant(found);
        let until = Instant::now() + SHORTENED_FOR;
        let tokens = minimise(&stream.tokens, |tokens| {
            let bytes = tokens.concat();
            if Instant::now() > until {
                return false;
            }
            let ours = read(&bytes, bytes.len().max(1));
            difference(judge, &bytes, &ours)
                .1
                .is_some_and(|other| std::mem::discriminant(&other) == kind)
        });
        tokens.concat()
    }
}

/// A stream that is shown if a judge breaks the rules of this test.
struct ShownOnPanic<'a>(&'a str, &'a [u8]);

impl Drop for ShownOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{}: {}", self.0, escape(self.1));
        }
    }
}

/// How many of the requests of a stream a judge accepts, and how it disagrees.
fn difference(judge: &Judge, stream: &[u8], ours: &Reading) -> (usize, Option<Difference>) {
    let theirs = judge.read(stream, ours.accepted.len());
    let difference = match compare(ours, &theirs) {
        Outcome::Same | Outcome::Stricter(0) => None,
        Outcome::Different(difference) => Some(difference),
        Outcome::Stricter(place) => {
            let rest = &stream[ours.accepted[place - 1].end..];
            let by_itself = judge.read(rest, ours.accepted.len() - place);
            let is_accepted = by_itself.requests.first() == Some(&ours.accepted[place].request);
            is_accepted.then_some(Difference::Boundary { place })
        }
    };
    (theirs.requests.len().min(ours.accepted.len()), difference)
}

/// How long a run is.
enum Length {
    Streams(u64),
    Until(Instant),
}

impl Length {
    fn of_environment() -> Self {
        match (
            number("PORTCULLIS_FRAMING_STREAMS"),
            number("PORTCULLIS_FRAMING_SECONDS"),
        ) {
            (streams, None) => Self::Streams(streams.unwrap_or(STREAMS)),
            (_, Some(seconds)) => Self::Until(Instant::now() + Duration::from_secs(seconds)),
        }
    }

    fn is_over(&self, index: u64) -> bool {
        match self {
            Self::Streams(streams) => index >= *streams,
            Self::Until(end) => Instant::now() >= *end,
        }
    }
}

fn number(variable: &str) -> Option<u64> {
    let text = std::env::var(variable).ok()?;
    Some(
        text.parse()
            .unwrap_or_else(|_| panic!("{variable}={text} is no number")),
    )
}

fn seed(length: &Length) -> u64 {
    number("PORTCULLIS_FRAMING_SEED").unwrap_or_else(|| match length {
        Length::Streams(_) => SEED,
        Length::Until(_) => {
            let now = SystemTime::now()
                .duration_since(SystemTime::UNIX_EPOCH)
                .unwrap();
            u64::from(now.subsec_nanos()) ^ now.as_secs() << 30
        }
    })
}

#[test]
#[ignore = "needs nginx, HAProxy and Node.js: run tests/run"]
fn every_judge_reads_the_same_requests() {
    let (length, campaign) = (Length::of_environment(), Campaign::start());
    let seed = seed(&length);
    println!("seed {seed}");
    for known in KNOWN {
        campaign.still_shows(known);
    }
    for (name, stream) in collected() {
        // a number that every rule about shares applies to
        campaign.run(&name, 0, &stream);
    }
    let next = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                loop {
                    let index = next.fetch_add(1, Ordering::Relaxed);
                    if length.is_over(index) || campaign.tally.lock().unwrap().wrong.len() >= SHOWN
                    {
                        return;
                    }
                    campaign.run(
                        &format!("stream {index} of seed {seed}"),
                        index,
                        &generate(seed, index),
                    );
                }
            });
        }
    });
    let tally = campaign.tally.lock().unwrap();
    tally.print();
    assert!(
        tally.wrong.is_empty(),
        "{} disagreements",
        tally.wrong.len()
    );
    // a generator or a judge that accepts next to nothing finds nothing
    assert!(
        tally.accepted * 5 > tally.streams,
        "a fifth of the streams is accepted"
    );
    for (judge, (streams, _)) in &tally.by_judge {
        assert!(
            streams * 2 > tally.accepted,
            "{judge} accepts half of these"
        );
    }
    assert_eq!(tally.by_judge.len(), campaign.judges.all.len());
}

/// The attacks of `collected.txt`, each with the marker behind it.
fn collected() -> Vec<(String, Stream)> {
    let lines = include_str!("collected.txt").lines();
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with('#'));
    let attacks = lines.map(|line| line.split_once(" | ").expect("a name and a stream"));
    let streams = attacks.map(|(name, text)| {
        let text = text
            .replace("<POST>", r"POST /rpc HTTP/1.1\r\nHost: edge.test\r\n<JSON>")
            .replace("<JSON>", "Content-Type: application/json")
            .replace("<GET>", r"GET /healthz HTTP/1.1\r\nHost: edge.test\r\n\r\n")
            .replace("<CALL>", &read_with("call"));
        let mut tokens: Vec<_> = unescape(&text).iter().map(|byte| vec![*byte]).collect();
        tokens.push(marker("collected"));
        (name.to_owned(), Stream { tokens })
    });
    streams.collect()
}

impl Campaign {
    /// Asserts that an entry is needed: its stream still shows the disagreement.
    fn still_shows(&self, known: &Known) {
        let judge = self
            .judges
            .all
            .iter()
            .find(|judge| judge.name == known.judge);
        let judge = judge.expect("a judge of this name");
        let stream = unescape(known.shown_by);
        let (_, found) = difference(judge, &stream, &read(&stream, stream.len()));
        let shows = found
            .as_ref()
            .is_some_and(|found| (known.matches)(&stream, found));
        assert!(
            shows,
            "{}: {} is gone: {found:?}",
            known.judge, known.reason
        );
    }
}

impl Tally {
    fn print(&self) {
        let Self {
            streams,
            accepted,
            requests,
            ..
        } = self;
        let share = |part: u64| part as f64 * 100.0 / (*streams).max(1) as f64;
        println!("{streams} streams judged");
        println!(
            "{accepted} ({:.1} %) accepted by the program, with {requests} requests",
            share(*accepted)
        );
        for (judge, (streams, requests)) in &self.by_judge {
            println!("  {streams} of these accepted by {judge}, with {requests} of the requests");
        }
        println!("{} sent to the program", self.to_program);
        println!(
            "{} sent through each of 3 front proxies",
            self.through_fronts
        );
        for Known { judge, reason, .. } in KNOWN {
            let count = self.known.get(reason).unwrap_or(&0);
            println!("{count} known disagreements with {judge}: {reason}");
        }
        println!("{} other disagreements", self.wrong.len());
        for wrong in self.wrong.iter().take(SHOWN) {
            println!("{wrong}");
        }
    }
}
