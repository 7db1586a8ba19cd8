//! The rules: no read fails while a URL would answer, nothing works again that does not, and a
//! URL that fails is left.

use super::world::{Act, Mode, World};
use crate::toolkit::Outcome;
use portcullis_filters::chain::{Asked, Fault, Repeat, SLOW};
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
/// How long a URL may fail before it is left, and be right before it serves: polls and a trial.
const SETTLED: Duration = Duration::from_secs(4);

/// How long nobody may have called a URL whose polls alone prove that it works.
const QUIET: Duration = Duration::from_secs(58);

/// One call, as it happened.
pub(super) struct Sent {
    repeat: Repeat,
    at: Duration,
    pub(super) urls: Vec<usize>,
    pub(super) answered: Option<(usize, Act)>,
    pub(super) took: Duration,
}

impl Sent {
    pub(super) fn new(repeat: Repeat, at: Duration) -> Self {
        Self {
            repeat,
            at,
            urls: Vec::new(),
            answered: None,
            took: Duration::ZERO,
        }
    }
}

/// The record of a URL.
#[derive(Clone, Default)]
struct Url {
    fault: Option<Fault>,
    /// When its fault began.
    failed: Duration,
    /// When it gave a valid answer last, to a call and to anything.
    call: Option<Duration>,
    any: Option<Duration>,
    /// The calls that it got in the second that began last.
    second: Duration,
    asked: u32,
}

pub(super) struct Judge {
    urls: Vec<Url>,
    pub(super) earned: u32,
    pub(super) paid: u32,
    pub(super) violation: Option<String>,
    trace: Vec<String>,
}

impl Judge {
    pub(super) fn new(urls: usize) -> Self {
        Self {
            urls: vec![Url::default(); urls],
            earned: 0,
            paid: 0,
            violation: None,
            trace: Vec::new(),
        }
    }

    fn breaks(&mut self, rule: &str, how: String) {
        self.violation.get_or_insert(format!("{rule}: {how}"));
    }

    /// A URL gave a valid answer.
    pub(super) fn valid(&mut self, url: usize, asked: Asked, at: Duration) {
        self.urls[url].any = Some(at);
        if asked == Asked::Call {
            self.urls[url].call = Some(at);
        }
    }

    /// A call is sent to a URL.
    pub(super) fn asked(&mut self, url: usize, world: &World) {
        let mode = world.modes[url];
        if mode == Mode::Foreign {
            self.breaks("a foreign URL is asked", format!("{url}"));
        }
        let lasts = |url: usize, time| world.now >= world.since[url] + time;
        let is_settled = lasts(url, SETTLED);
        let is_other = |other: usize| world.modes[other].is_right() && lasts(other, SETTLED * 2);
        let has_other = (0..world.modes.len()).any(is_other);
        let fails_polls = mode.fails() && !matches!(mode, Mode::ErrorOfCalls(_));
        if fails_polls && has_other && lasts(url, SETTLED * 2) {
            self.breaks(
                "a URL that fails polls is asked",
                format!("{url}, {mode:?}"),
            );
        }
        let known = &mut self.urls[url];
        if world.now >= known.second + SECOND {
            (known.second, known.asked) = (world.now, 0);
        }
        known.asked += 1;
        let asked = known.asked;
        if mode.fails() && is_settled && has_other && asked > 4 {
            self.breaks(
                "a failing URL is not left",
                format!("{url}, {mode:?}: {asked} calls in a second"),
            );
        }
    }

    /// A call has ended.
    pub(super) fn call(&mut self, call: &Sent, world: &World) {
        let Sent {
            repeat,
            at,
            urls,
            answered,
            took,
        } = call;
        self.trace.push(format!(
            "{at:?} {repeat:?} at {urls:?} of {:?}: {answered:?} after {took:?}",
            world.modes
        ));
        if self.paid * 20 > self.earned {
            self.breaks(
                "hedges cost too much",
                format!("{} of {}", self.paid, self.earned),
            );
        }
        if let Some((url, act)) = answered
            && !matches!(act, Act::Answer(_))
        {
            self.breaks("no answer is passed on", format!("{act:?} of {url}"));
        }
        if *repeat == Repeat::Never {
            let got = urls
                .iter()
                .filter(|url| !matches!(world.modes[**url], Mode::Down | Mode::Frozen));
            if got.count() > 1 {
                self.breaks("a write is sent twice", format!("{urls:?}"));
            }
            return;
        }
        let is_right = world.modes.iter().any(|mode| mode.is_right());
        if is_right && answered.is_none() {
            self.breaks("a read fails", format!("{:?}", world.modes));
        }
        let hanging = world
            .modes
            .iter()
            .filter(|mode| **mode == Mode::Hangs)
            .count();
        let most = SLOW * hanging as u32 + SECOND;
        if is_right && *took > most {
            self.breaks("a read waits", format!("{took:?} with {hanging} that hang"));
        }
    }

    /// The health of a URL after a step.
    pub(super) fn health(&mut self, url: usize, fault: Option<Fault>, world: &World) {
        let (mode, now) = (world.modes[url], world.now);
        let since = world.since[url];
        let known = self.urls[url].clone();
        if known.fault.is_none() && fault.is_some() {
            self.urls[url].failed = now;
        }
        if known.fault.is_some() && fault.is_none() {
            let is_proven = known.any.is_some_and(|any| any >= known.failed.min(now));
            // after a minute without calls, polls are trusted
            let was_asked = now < known.second + QUIET;
            let fails_calls = matches!(mode, Mode::ErrorOfCalls(_)) && since < known.failed;
            let fails_calls = fails_calls && was_asked;
            if !is_proven || fails_calls {
                self.breaks("it does not work again", format!("{url}, {mode:?}"));
            }
        }
        if fault.is_some() && mode.is_right() && now >= since + SETTLED * 2 && url == 0 {
            self.breaks("a right URL is left out", format!("{url}, {fault:?}"));
        }
        self.urls[url].fault = fault;
    }

    pub(super) fn outcome(self) -> Outcome {
        Outcome {
            violation: self.violation,
            trace: self.trace,
        }
    }
}
