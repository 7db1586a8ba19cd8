//! Clocks, stores, disks and crashes of 1 to 8 instances; faults for a while, then none.

use super::Bug;
use super::authority::{Authority, DAY, Mode, Pair};
use super::instance::{Instance, Stop};
use super::judge::{Judge, is_good};
use crate::toolkit::{Chance, Outcome};
use portcullis_filters::acme::{Action, Class, Ended, Event, Progress, Receipt, Report, Rest};
use portcullis_filters::chance::Chance as Drawn;
use std::collections::HashSet;
use std::rc::Rc;

/// When a run begins.
pub(super) const BEGIN: u64 = 1_700_000_000;
const HOUR: u64 = 3_600;
/// What the documents promise at most once the authority is right: the longest delay between two
/// attempts, for an order that is stuck, and for those that follow it.
const HEALED: u64 = 30 * HOUR;
/// Longest wait that anything stored may cause.
const WEEK: u64 = 7 * DAY;

const LIFETIMES: [u64; 4] = [90 * DAY, 6 * DAY, DAY, 398 * DAY];
/// Clocks that are wrong, in seconds.
pub(super) const CLOCKS: [i64; 12] = [
    0,
    120,
    -120,
    3_600,
    -3_600,
    30 * 3_600,
    -30 * 3_600,
    70 * 86_400,
    -70 * 86_400,
    3_650 * 86_400,
    -3_650 * 86_400,
    0,
];

/// The words that explain a failure by a wrong clock.
pub(super) const CLOCK_WORDS: [&str; 4] = [
    "not valid yet",
    "has expired",
    "although it is new",
    "ends before",
];

/// What is stored, on a disk or in the fleet's store.
#[derive(Clone, Default)]
pub(super) struct Disk {
    pub(super) file: Option<Rc<Pair>>,
    pub(super) progress: Option<Progress>,
    pub(super) receipt: Option<Receipt>,
    pub(super) has_account: bool,
}

pub(super) struct World {
    pub(super) now: u64,
    pub(super) bug: Bug,
    pub(super) authority: Authority,
    pub(super) instances: Vec<Instance>,
    /// The fleet's store, if there are several.
    pub(super) fleet: Option<Disk>,
    /// Who has the right to order, and until when.
    pub(super) lock: Option<(usize, u64)>,
    pub(super) judge: Judge,
    /// The orders whose certificate was downloaded.
    pub(super) downloaded: HashSet<usize>,
    /// Whether windows may make good certificates due.
    has_past_windows: bool,
    is_healing: bool,
}

impl World {
    pub(super) fn new(chance: &mut Chance, bug: Bug) -> Self {
        let instances = 1 + chance.choose(8) as usize;
        let lifetime = chance.pick(&LIFETIMES);
        let instances: Vec<_> = (0..instances)
            .map(|_| Instance::new(Disk::default(), BEGIN))
            .collect();
        Self {
            now: BEGIN,
            bug,
            authority: Authority::new(lifetime),
            fleet: if instances.len() > 1 {
                Some(Disk::default())
            } else {
                None
            },
            instances,
            lock: None,
            judge: Judge::default(),
            downloaded: HashSet::new(),
            has_past_windows: false,
            is_healing: false,
        }
    }

    /// Runs with faults, then without any until there must be a certificate, then for one renewal.
    pub(super) fn run(mut self, steps: u32, chance: &mut Chance) -> Outcome {
        for _ in 0..steps {
            self.change(chance);
            self.step(chance);
            if self.judge.violation.is_some() {
                break;
            }
        }
        if self.judge.violation.is_none() {
            self.heal(chance);
        }
        Outcome {
            violation: self.judge.violation,
            trace: self.judge.trace,
        }
    }

    /// Runs one instance for weeks with an authority and a clock that are always wrong in one way,
    /// and returns the most certificates and orders in a week.
    pub(super) fn worst(number: u32, ahead: i64, bug: Bug, chance: &mut Chance) -> (u64, u64) {
        let mut world = Self::new(chance, bug);
        world.authority.lifetime = 90 * DAY;
        for instance in &mut world.instances {
            instance.ahead = ahead;
            instance.excuses.extend(CLOCK_WORDS);
        }
        world.change_mode(Mode::of(number));
        while world.now < BEGIN + 3 * WEEK {
            world.step(chance);
        }
        world.judge.most()
    }

    /// Ends all faults, and demands a certificate at every instance.
    fn heal(&mut self, chance: &mut Chance) {
        self.judge.note(self.now, "every fault ends".to_owned());
        self.is_healing = true;
        self.authority.mode = Mode::Right;
        let mut until = self.now;
        let mut clocks = false;
        for instance in &mut self.instances {
            clocks |= instance.ahead != 0;
            instance.ahead = 0;
            instance.reaches_store = true;
            instance.can_write = true;
            instance.crashes_after = None;
            instance.wake = instance.wake.min(self.now + HOUR);
        }
        if clocks {
            self.judge.disturbed(self.now);
        }
        for stored in self
            .instances
            .iter()
            .map(|one| &one.disk)
            .chain(&self.fleet)
        {
            let retry = stored
                .progress
                .as_ref()
                .and_then(|progress| progress.retry_at);
            let early = stored.receipt.as_ref().map(|receipt| receipt.last);
            let rest = early.map(|last| last.at + (last.lifetime / 3).min(2 * DAY));
            for at in [retry, rest].into_iter().flatten() {
                // one that is further is of a clock that was ahead
                if at <= self.now + WEEK + 2 * DAY {
                    until = until.max(at);
                }
            }
        }
        until += HEALED;
        while self.now < until && self.judge.violation.is_none() {
            self.step(chance);
        }
        let now = self.now;
        for (of, instance) in self.instances.iter().enumerate() {
            let is_served = instance.disk.file.as_ref();
            if !is_served.is_some_and(|pair| is_good(pair, now)) {
                let shown = instance.shown.clone();
                let how = format!("instance {of}, shown: {shown:?}");
                self.judge.breaks("no certificate in time", how);
                return;
            }
        }
    }

    /// Now and then something changes.
    fn change(&mut self, chance: &mut Chance) {
        let what = chance.choose(90);
        let which = chance.choose(self.instances.len() as u32) as usize;
        let number = chance.choose(5_040);
        match what {
            70..=79 => self.change_mode(Mode::of(number)),
            80 | 81 => {
                self.instances[which].crashes_after = Some(number % 6);
                self.note(which, "will crash");
            }
            82 => {
                let ahead = CLOCKS[number as usize % CLOCKS.len()];
                self.instances[which].ahead = ahead;
                self.instances[which].excuses.extend(CLOCK_WORDS);
                self.instances[which].waits_since = self.now;
                self.judge.disturbed(self.now);
                self.note(which, &format!("has a clock that is {ahead} s ahead"));
            }
            83 | 84 if self.fleet.is_some() => {
                let reaches = what == 84 && number.is_multiple_of(2);
                let all = self.instances.iter_mut();
                all.for_each(|one| one.reaches_store |= reaches);
                self.instances[which].reaches_store = reaches;
                if !reaches && self.lock.is_some_and(|(of, _)| of == which) {
                    self.lock = Some((which, self.now + 30));
                }
                self.judge.disturbed(self.now);
                self.note(which, &format!("reaches the store: {reaches}"));
            }
            85 => {
                let can_write = number.is_multiple_of(2);
                let all = self.instances.iter_mut();
                all.for_each(|one| one.can_write |= can_write);
                self.instances[which].can_write = can_write;
                self.judge.disturbed(self.now);
                self.note(which, &format!("can write: {can_write}"));
            }
            86 if self.fleet.is_some() => {
                self.fleet = Some(Disk::default());
                self.lock = None;
                self.judge.disturbed(self.now);
                self.note(which, "sees the store lose everything");
            }
            87 => {
                self.instances[which].renewal.hurry();
                self.instances[which].is_reloaded = true;
                self.instances[which].wake = self.now;
                self.judge.disturbed(self.now);
                self.note(which, "is reloaded");
            }
            88 => {
                self.instances[which].disk = Disk::default();
                self.crash(which);
                self.note(which, "loses its disk");
            }
            _ => {}
        }
    }

    fn change_mode(&mut self, mode: Mode) {
        self.has_past_windows |= mode == Mode::WindowPast;
        if mode == Mode::ForgetsAccount {
            self.authority.has_account = false;
        }
        self.authority.mode = mode;
        self.authority.since = self.now;
        self.judge
            .note(self.now, format!("the authority: {mode:?}"));
    }

    fn note(&mut self, of: usize, what: &str) {
        self.judge.note(self.now, format!("instance {of} {what}"));
    }

    /// Whether the certificate of an instance is due by its clock, or may be.
    pub(super) fn is_due(&self, of: usize) -> bool {
        let instance = &self.instances[of];
        let now = instance.clock(self.now);
        let Some(pair) = &instance.disk.file else {
            return true;
        };
        let early = pair.facts.validity.not_before + pair.facts.validity.lifetime() * 6 / 10;
        self.has_past_windows || early <= now
    }

    fn crash(&mut self, of: usize) {
        let mut started = Instance::new(self.instances[of].disk.clone(), self.now);
        let dead = &self.instances[of];
        started.ahead = dead.ahead;
        started.reaches_store = dead.reaches_store;
        started.can_write = dead.can_write;
        started.wake = self.now + 2;
        self.instances[of] = started;
        if self.lock.is_some_and(|(holder, _)| holder == of) {
            self.lock = Some((usize::MAX, self.now + 30));
        }
        self.judge.disturbed(self.now);
    }

    /// The instance that goes on first takes one step.
    fn step(&mut self, chance: &mut Chance) {
        let mut of = 0;
        for other in 1..self.instances.len() {
            if self.instances[other].wake < self.instances[of].wake {
                of = other;
            }
        }
        let drawn = Drawn(chance.choose(u32::MAX));
        let pause = chance.pick(&[6 * HOUR, 30, 600, 24 * HOUR]);
        self.now = self.now.max(self.instances[of].wake);
        let clock = self.instances[of].clock(self.now);
        let event = std::mem::replace(&mut self.instances[of].event, Event::Begin);
        let action = self.instances[of].renewal.step(event, clock, drawn);
        self.note(of, &line(&action));
        if let Action::Rest(rest) = action {
            self.rest(of, &rest, pause);
            return;
        }
        // some actions take a second, in which others go on
        self.instances[of].wake = self.now + u64::from(drawn.0.is_multiple_of(3));
        match self.perform(of, action) {
            Ok(event) => self.instances[of].event = event,
            Err(Stop::Failed(failure)) => self.instances[of].event = Event::Failed(failure),
            Err(Stop::Crash) => {
                self.note(of, "crashes");
                self.crash(of);
            }
        }
    }

    fn rest(&mut self, of: usize, rest: &Rest, pause: u64) {
        if self.lock.is_some_and(|(holder, _)| holder == of) {
            self.lock = None;
        }
        if std::mem::take(&mut self.instances[of].is_reloaded) {
            self.judge.disturbed(self.now);
        }
        let instance = &mut self.instances[of];
        let (now, clock) = (self.now, instance.clock(self.now));
        let most = if self.is_healing { HOUR } else { pause };
        instance.wake = now + rest.until.saturating_sub(clock).clamp(1, most);
        instance.rests_until = rest.until;
        match &rest.report {
            Some(Report::Failing { cause, .. }) => instance.shown = Some(cause.clone()),
            Some(Report::Fine) => instance.shown = None,
            None => {}
        }
        if let (Some(Ended::Failed { class, .. }), Some(cause)) = (rest.ended, &instance.shown) {
            self.judge.failed(cause, &instance.excuses);
            let floor = if class == Class::Refused { 200 } else { 3 };
            let asked = instance.asked.unwrap_or(0).min(WEEK);
            self.judge.must_wait(of, asked.max(floor), now);
            if instance.is_dead && instance.is_stored {
                self.judge.died(instance.url());
            }
            let is_refused = class == Class::Refused && instance.last_status.is_some();
            self.judge.ended(of, is_refused);
            if let Some(status) = instance.last_status
                && instance.is_stored
                && !instance.url().is_empty()
            {
                self.judge.left(instance.url(), status);
            }
        }
        instance.last_status = None;
        let file = instance.disk.file.as_ref();
        let is_served = file.is_some_and(|pair| is_good(pair, clock));
        let has_waited = now > instance.waits_since + 60;
        let has_issued = rest.ended == Some(Ended::Issued);
        if let (Some(Report::Fine), Some(pair), true, None) =
            (&rest.report, file, is_served, rest.ended)
        {
            self.judge.kept(pair, rest.until);
        }
        if has_issued {
            let validity = file.map(|pair| pair.facts.validity);
            let is_due = validity.is_some_and(|it| it.not_after - it.lifetime() / 10 <= clock);
            // unless a clock was set since
            if is_due && now > self.judge.quiet_since + 200 {
                self.judge.breaks("a success that is due", String::new());
            }
            self.judge.ended(of, false);
        }
        if !is_served && has_waited && !has_issued && rest.report.is_some() {
            self.judge.shown(instance.shown.as_deref());
        }
    }
}

/// An action in a line.
fn line(action: &Action) -> String {
    match action {
        Action::Rest(rest) => match (&rest.report, rest.ended) {
            (Some(Report::Failing { cause, attempt, .. }), ended) => {
                format!("rests before attempt {attempt}, {ended:?}: {cause}")
            }
            (report, ended) => format!("rests: {report:?}, {ended:?}"),
        },
        Action::Store(progress) => format!(
            "stores {} failures, {:?}",
            progress.failed,
            progress.order.as_ref().map(|order| &order.url)
        ),
        action => format!("{action:?}"),
    }
}
