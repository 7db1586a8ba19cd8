//! A node of known capacity with an unbounded queue, its clients, and the driver of the admission.

use super::Bug;
use super::judge::Judge;
use portcullis_filters::client::ClientKey;
use portcullis_filters::concurrency::{
    Admission, CostClass, Ended, Entry, MAX_WAIT, Place, Started,
};
use std::cell::RefCell;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::net::Ipv4Addr;
use std::rc::Rc;
use std::time::Duration;

/// When a call is given up.
const DEADLINE: u64 = 8_000_000;
/// The bound of the configuration on concurrent calls.
const MAX_CONNECTIONS: u32 = 1_024;
/// The class of each flow.
const CLASSES: [CostClass; 2] = [CostClass::Execution, CostClass::Class];
/// The first clients make ten calls a minute each.
pub(super) const MODEST: u32 = 10;
const MODEST_INTERVAL: u64 = 6_000_000;

/// How service times vary around their mean.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noise {
    None,
    /// From half of the mean to three halves.
    Uniform,
    Exponential,
    /// Nine calls take a fifth of the mean, the tenth takes the rest.
    Bimodal,
}

impl Noise {
    /// How much longer than the mean the slowest call in a hundred takes.
    pub(super) const fn tail(self) -> u64 {
        match self {
            Self::None | Self::Uniform => 1,
            Self::Exponential => 2,
            Self::Bimodal => 3,
        }
    }
}

/// Calls of one class.
#[derive(Clone, Copy, Debug)]
pub(super) struct Flow {
    /// The mean service time, in microseconds.
    pub(super) service: u64,
    /// How many of a hundred calls are of this class.
    pub(super) percent: u32,
}

/// A node, and what is asked of it.
#[derive(Clone, Debug)]
pub(super) struct Scenario {
    pub(super) workers: u32,
    pub(super) flows: Vec<Flow>,
    pub(super) noise: Noise,
    /// The rate of calls, in hundredths of the capacity.
    pub(super) load: u64,
    pub(super) clients: u32,
    pub(super) seconds: u64,
    /// When the node changes, to how many workers, and to how many hundredths of its service times.
    pub(super) change: Option<(u64, u32, u64)>,
    /// How many of a thousand calls fail at once.
    pub(super) failing: u32,
    /// How many of a thousand calls hang.
    pub(super) hanging: u32,
}

impl Scenario {
    /// The node that answers a hundred calls a second.
    pub(super) fn plain(load: u64) -> Self {
        Self {
            workers: 8,
            flows: vec![Flow {
                service: 80_000,
                percent: 100,
            }],
            noise: Noise::None,
            load,
            clients: 600,
            seconds: 25,
            change: None,
            failing: 0,
            hanging: 0,
        }
    }

    /// The mean service time over all flows, in microseconds.
    pub(super) fn service(&self) -> u64 {
        let sum = |flow: &Flow| flow.service * u64::from(flow.percent);
        self.flows.iter().map(sum).sum::<u64>() / 100
    }

    /// Calls per second.
    pub(super) fn capacity(&self) -> f64 {
        f64::from(self.workers) * 1e6 / self.service() as f64
    }
}

/// Draws numbers; another source than that of the scenario, whose choices are shrunk.
struct Dice(u64);

impl Dice {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: u32) -> u32 {
        (self.next() >> 32) as u32 % bound
    }

    /// From above 0 to 1.
    fn unit(&mut self) -> f64 {
        ((self.next() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    fn exponential(&mut self, mean: f64) -> f64 {
        -self.unit().ln() * mean
    }
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives(u32),
    /// The node finishes a call.
    Finishes(u32),
    /// A waiting call waited long enough.
    GivesUp(u32),
    /// The deadline of a started call.
    Expires(u32),
    Changes,
}

#[derive(Clone, Copy)]
struct Call {
    client: u32,
    flow: usize,
    arrived: u64,
    state: State,
}

#[derive(Clone, Copy)]
enum State {
    Waits(Place),
    Runs(Started),
    Over,
}

/// The numbers of waiting calls that were dropped.
type Dropped = Rc<RefCell<Vec<u32>>>;

/// The handle of a waiting call.
struct Waiter(u32, Dropped);

impl Drop for Waiter {
    fn drop(&mut self) {
        self.1.borrow_mut().push(self.0);
    }
}

pub(super) struct World<'a> {
    scenario: &'a Scenario,
    bug: Bug,
    dice: Dice,
    now: u64,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    sequence: u64,
    admission: Admission<Waiter>,
    dropped: Dropped,
    calls: BTreeMap<u32, Call>,
    next_call: u32,
    workers: u32,
    slower: u64,
    working: u32,
    queue: VecDeque<u32>,
    pub(super) judge: Judge,
}

impl<'a> World<'a> {
    pub(super) fn new(scenario: &'a Scenario, seed: u64, bug: Bug) -> Self {
        let mut world = Self {
            scenario,
            bug,
            dice: Dice(seed | 1 << 40),
            now: 0,
            events: BinaryHeap::new(),
            sequence: 0,
            admission: Admission::new(MAX_CONNECTIONS),
            dropped: Dropped::default(),
            calls: BTreeMap::new(),
            next_call: 0,
            workers: scenario.workers,
            slower: 100,
            working: 0,
            queue: VecDeque::new(),
            judge: Judge::new(scenario),
        };
        for _ in 0..8 {
            world.dice.next();
        }
        world.after(0, Event::Arrives(MODEST));
        for client in 0..MODEST {
            let offset = u64::from(client) * MODEST_INTERVAL / u64::from(MODEST);
            world.after(offset, Event::Arrives(client));
        }
        if let Some((second, ..)) = scenario.change {
            world.after(second * 1_000_000, Event::Changes);
        }
        world
    }

    pub(super) fn run(&mut self) {
        let end = self.scenario.seconds * 1_000_000;
        while let Some(Reverse((at, _, event))) = self.events.pop() {
            if at > end {
                break;
            }
            self.now = at;
            self.handle(event);
            let queued = self.queue.len() as u32 + self.working;
            self.judge.sees_node(at, queued);
        }
        self.judge.ends();
    }

    fn after(&mut self, micros: u64, event: Event) {
        self.sequence += 1;
        let entry = (self.now + micros, self.sequence, event);
        self.events.push(Reverse(entry));
    }

    fn time(&self) -> Duration {
        Duration::from_micros(self.now)
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Arrives(client) if client < MODEST => {
                self.after(MODEST_INTERVAL, event);
                self.arrive(client);
            }
            Event::Arrives(_) => {
                let rate = self.scenario.capacity() * self.scenario.load as f64 / 100.0;
                let gap = self.dice.exponential(1e6 / rate);
                self.after(gap as u64, event);
                let client = MODEST + self.dice.below(self.scenario.clients);
                self.arrive(client);
            }
            Event::Finishes(number) => {
                self.working -= 1;
                self.work();
                self.finish(number, Ended::Timed);
            }
            Event::GivesUp(number) => self.give_up(number),
            Event::Expires(number) => self.finish(number, Ended::Timed),
            Event::Changes => {
                if let Some((_, workers, slower)) = self.scenario.change {
                    (self.workers, self.slower) = (workers, slower);
                    self.work();
                }
            }
        }
    }

    fn arrive(&mut self, client: u32) {
        let mut dice = self.dice.below(100);
        let mut flow = 0;
        while dice >= self.scenario.flows[flow].percent {
            dice -= self.scenario.flows[flow].percent;
            flow += 1;
        }
        let number = self.next_call;
        self.next_call += 1;
        let arrived = self.now;
        let state = State::Over;
        let call = Call {
            client,
            flow,
            arrived,
            state,
        };
        self.calls.insert(number, call);
        let key = if self.bug == Bug::NoShares { 0 } else { client };
        let key = ClientKey::of(Ipv4Addr::from_bits(key).into());
        let now = self.time();
        match self.admission.enter(CLASSES[flow], key, now, || {
            Waiter(number, Rc::clone(&self.dropped))
        }) {
            Entry::Starts(started) => self.send(number, started),
            Entry::Waits(place) => {
                self.set(number, State::Waits(place));
                let wait = match self.bug {
                    Bug::WaitsLong => MAX_WAIT * 8,
                    _ => MAX_WAIT,
                };
                self.after(wait.as_micros() as u64, Event::GivesUp(number));
            }
            Entry::Refused => self.judge.refused(client, 0, arrived),
        }
        self.start_next();
        self.refuse_dropped();
    }

    fn set(&mut self, number: u32, state: State) {
        if let Some(call) = self.calls.get_mut(&number) {
            call.state = state;
        }
    }

    /// Starts the waiting calls that may.
    fn start_next(&mut self) {
        let now = self.time();
        while let Some((waiter, started)) = self.admission.next(now) {
            self.send(waiter.0, started);
        }
    }

    /// A call that was dropped while it waited is refused at once.
    fn refuse_dropped(&mut self) {
        let dropped = std::mem::take(&mut *self.dropped.borrow_mut());
        for number in dropped {
            if let Some(call) = self.calls.get(&number).copied()
                && matches!(call.state, State::Waits(_))
            {
                self.set(number, State::Over);
                let waited = self.now - call.arrived;
                self.judge.refused(call.client, waited, self.now);
            }
        }
    }

    fn send(&mut self, number: u32, started: Started) {
        self.set(number, State::Runs(started));
        self.after(DEADLINE, Event::Expires(number));
        let dice = self.dice.below(1_000);
        if dice < self.scenario.failing {
            return self.finish(number, Ended::Failed);
        }
        if dice < self.scenario.failing + self.scenario.hanging {
            return;
        }
        self.queue.push_back(number);
        self.work();
    }

    /// Free workers take calls from the queue, even those that nobody waits for any more.
    fn work(&mut self) {
        while self.working < self.workers
            && let Some(number) = self.queue.pop_front()
        {
            self.working += 1;
            let flow = self.calls.get(&number).map_or(0, |call| call.flow);
            let took = self.service(flow);
            self.after(took, Event::Finishes(number));
        }
    }

    fn service(&mut self, flow: usize) -> u64 {
        let mean = (self.scenario.flows[flow].service * self.slower / 100) as f64;
        let took = match self.scenario.noise {
            Noise::None => mean,
            Noise::Uniform => mean * (0.5 + self.dice.unit()),
            Noise::Exponential => self.dice.exponential(mean),
            Noise::Bimodal if self.dice.below(10) == 0 => mean * 8.2,
            Noise::Bimodal => mean * 0.2,
        };
        took as u64
    }

    fn finish(&mut self, number: u32, ended: Ended) {
        let Some(call) = self.calls.get(&number).copied() else {
            return;
        };
        let State::Runs(started) = call.state else {
            return;
        };
        self.set(number, State::Over);
        let now = self.time();
        let noted = match self.bug {
            Bug::IgnoresLatency => Ended::Failed,
            _ => ended,
        };
        self.admission.end(started, noted, now);
        let took = self.now - call.arrived;
        match ended {
            Ended::Timed if took < DEADLINE => {
                let work = self.scenario.flows[call.flow].service;
                self.judge.answered(call.client, work, took, self.now);
            }
            Ended::Timed => self.judge.expired(self.now),
            _ => {}
        }
        self.start_next();
    }

    fn give_up(&mut self, number: u32) {
        let Some(call) = self.calls.get(&number).copied() else {
            return;
        };
        let State::Waits(place) = call.state else {
            return;
        };
        self.set(number, State::Over);
        let now = self.time();
        self.admission.leave(CLASSES[call.flow], place, now);
        let waited = self.now - call.arrived;
        self.judge.refused(call.client, waited, self.now);
    }
}
