//! What must hold of an overloaded node: it is used, its queue is bounded, and answers are in time.

use super::world::{MODEST, Scenario};

/// The time after the start, and after a change of the node, in which the limit is learned.
const LEARNING: u64 = 8_000_000;
/// The longest wait of a call that is refused.
const MAX_REFUSED_WAIT: u64 = 500_000;

/// The judge of a run; the first violation is kept.
pub(super) struct Judge {
    scenario: Scenario,
    /// The times of answers in microseconds, and how long they took.
    answers: Vec<(u64, u64)>,
    /// The service times of the measured answers, in microseconds.
    work: u64,
    refused: u64,
    /// The calls of modest clients: answered, and refused.
    pub(super) modest: [u64; 2],
    expired: u64,
    longest_queue: u32,
    pub(super) violation: Option<String>,
    pub(super) trace: Vec<String>,
}

impl Judge {
    pub(super) fn new(scenario: &Scenario) -> Self {
        Self {
            scenario: scenario.clone(),
            answers: Vec::new(),
            work: 0,
            refused: 0,
            modest: [0; 2],
            expired: 0,
            longest_queue: 0,
            violation: None,
            trace: vec![format!("{scenario:?}")],
        }
    }

    pub(super) fn answered(&mut self, client: u32, work: u64, took: u64, now: u64) {
        self.answers.push((now, took));
        if self.is_measured(now) {
            self.work += work;
            self.modest[0] += u64::from(client < MODEST);
        }
    }

    /// No call waits long for a refusal, and none is refused while half of the node is free.
    pub(super) fn refused(&mut self, client: u32, waited: u64, now: u64) {
        self.refused += 1;
        if self.is_measured(now) {
            self.modest[1] += u64::from(client < MODEST);
        }
        if waited > MAX_REFUSED_WAIT {
            self.fail(format!("a late refusal: after {waited} us"));
        }
        if self.scenario.load <= 50 {
            self.fail(format!("a refusal at half load: at {now} us"));
        }
    }

    pub(super) fn expired(&mut self, now: u64) {
        self.expired += 1;
        if self.scenario.hanging == 0 {
            self.fail(format!("an expired call: at {now} us"));
        }
    }

    pub(super) fn sees_node(&mut self, now: u64, calls: u32) {
        if self.is_measured(now) {
            self.longest_queue = self.longest_queue.max(calls);
        }
    }

    /// Whether the limit has been learned.
    fn is_measured(&self, now: u64) -> bool {
        let changed = self.scenario.change.map(|(second, ..)| second * 1_000_000);
        // two classes wait for each other's limits
        let learning = LEARNING * self.scenario.flows.len() as u64;
        let is_learning = |since: u64| since <= now && now < since + learning;
        !is_learning(0) && !changed.is_some_and(is_learning)
    }

    pub(super) fn ends(&mut self) {
        self.node_is_used();
        self.in_time();
        self.queue_is_bounded();
        self.modest_is_served();
    }

    /// The part of the capacity that answers used.
    pub(super) fn used(&self) -> f64 {
        let seconds = (0..self.scenario.seconds).map(|second| second * 1_000_000);
        let measured = seconds.filter(|at| self.is_measured(*at));
        let capacity: f64 = measured.map(|at| self.capacity(at)).sum();
        self.work as f64 / self.scenario.service() as f64 / capacity
    }

    /// Nearly all of the capacity is used for answers.
    fn node_is_used(&mut self) {
        let failed = f64::from(self.scenario.failing + self.scenario.hanging) / 1_000.0;
        let offered = self.scenario.load as f64 / 100.0 * (1.0 - failed);
        let used = self.used();
        let (refused, expired, modest) = (self.refused, self.expired, self.modest);
        self.trace.push(format!(
            "{:.1} % of the capacity, {refused} refused, {expired} expired, modest {modest:?}",
            used * 100.0
        ));
        if self.scenario.load > 110 && used < 0.88 * offered.min(1.0) {
            self.fail(format!("an idle node: {used:.3} of the capacity is used"));
        }
    }

    fn capacity(&self, at: u64) -> f64 {
        match self.scenario.change {
            Some((second, workers, slower)) if second * 1_000_000 <= at => {
                f64::from(workers) * 1e8 / (self.scenario.service() * slower) as f64
            }
            _ => self.scenario.capacity(),
        }
    }

    /// One answer in a hundred takes longer than a second, or than ten calls.
    fn in_time(&mut self) {
        let measured = self.answers.iter().filter(|(at, _)| self.is_measured(*at));
        let mut took: Vec<u64> = measured.map(|(_, took)| *took).collect();
        took.sort_unstable();
        let at = |percent: usize| took.get(took.len() * percent / 100).copied().unwrap_or(0);
        self.trace
            .push(format!("p50 {} us, p99 {} us", at(50), at(99)));
        let slowest = self
            .scenario
            .change
            .map_or(100, |(.., slower)| slower.max(100));
        let services = self.scenario.flows.iter().map(|flow| flow.service);
        let call = services.max().unwrap_or_default() * slowest / 100;
        let most = (10 * call).max(1_000_000) * self.scenario.noise.tail();
        if at(99) > most {
            self.fail(format!("late answers: p99 is {} us of {most}", at(99)));
        }
    }

    /// The node has few more calls than it works at.
    fn queue_is_bounded(&mut self) {
        let workers = self.scenario.change.map_or(0, |(_, workers, _)| workers);
        let workers = workers.max(self.scenario.workers);
        let most = 6 * workers * self.scenario.flows.len() as u32 + 32;
        let longest = self.longest_queue;
        self.trace.push(format!("{longest} calls at the node"));
        if longest > most && self.scenario.load > 110 {
            self.fail(format!("a long queue: {longest} calls of {most}"));
        }
    }

    fn modest_is_served(&mut self) {
        let [served, refused] = self.modest;
        let rate = |load: f64| load * 60.0 / f64::from(self.scenario.clients);
        let capacity = self.scenario.capacity();
        let others = rate(capacity * self.scenario.load as f64 / 100.0);
        // others ask for twice as much, and there is enough for all to have what it asks for
        let is_modest = self.scenario.flows.len() == 1 && others >= 20.0 && rate(capacity) >= 12.0;
        if is_modest && refused * 20 > served + refused {
            self.fail(format!(
                "a modest client: {refused} refused, {served} served"
            ));
        }
    }

    fn fail(&mut self, violation: String) {
        self.violation.get_or_insert(violation);
    }
}
