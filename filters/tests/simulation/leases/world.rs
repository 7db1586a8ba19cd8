//! Instances that lease from one store, and all that can happen to them.
//!
//! The leases and the windows are those of the program; a store's step is [`Record::step`]. What is
//! done here is what `edge/src/fleet/limit.rs` does with tasks and a connection.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::net::Ipv4Addr;
use std::num::NonZeroU32;
use std::rc::Rc;
use std::time::Duration;

use portcullis_filters::client::ClientKey;
use portcullis_filters::limit::lease::{self, Alone, Lease, Step};
use portcullis_filters::limit::{Millis, Quota, RateLimiter};

use super::Bug;
use super::judge::{Judge, Way};
use super::messages::{Flight, Loss, Purpose};
use super::script::Record;
use crate::toolkit::{Chance, Outcome};

pub(crate) const CLIENTS: u32 = 5;
/// Clients that an instance remembers.
const ROOM: u32 = 4;
/// How long a request waits for the store.
const WAIT: u64 = 25;
pub(super) const HEARTBEAT: u64 = 1_000;
/// Kinds of faults: kill, pause, cut off, lost record, clock ahead, clock back, lost message.
const KINDS: u32 = 7;
const FLOOR: u32 = 3;

/// Times of the leases, in milliseconds.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) window: u64,
    pub(crate) cell: u64,
    pub(crate) life: u64,
}

pub(crate) const TERMS: Terms = Terms {
    window: 60_000,
    cell: 1_000,
    life: 30_000,
};

type Hasher = BuildHasherDefault<DefaultHasher>;

/// A client at an instance.
pub(super) struct Holder {
    pub(super) client: u32,
    pub(super) name: String,
    pub(super) lease: RefCell<Lease>,
    pub(super) failures: Cell<u32>,
}

pub(super) struct Instance {
    pub(super) name: String,
    pub(super) windows: RateLimiter<Hasher, Rc<Holder>>,
    pub(super) members: u64,
    pub(super) is_cut_off: bool,
    pub(super) is_down: bool,
    pub(super) failures: u32,
    pub(super) paused_until: u64,
    pub(super) next_heartbeat: u64,
    /// Its clients, least recently seen first, and those that it evicted.
    pub(super) seen: Vec<u32>,
    pub(super) evicted: u64,
    /// Leases apart from the windows, for [`Bug::EvictedApart`].
    pub(super) apart: Vec<Rc<Holder>>,
}

/// A request that waits for the store.
pub(super) struct Waiting {
    pub(super) instance: usize,
    pub(super) holder: Rc<Holder>,
    pub(super) failures: u32,
    pub(super) deadline: u64,
}

pub(crate) struct World<'a> {
    pub(super) chance: &'a mut Chance,
    pub(super) bug: Bug,
    pub(super) quota: u32,
    /// The kinds of faults that happen in this run, a bit for each: with all of them, one hides
    /// what another does.
    kinds: u32,
    pub(super) terms: lease::Terms,
    pub(super) now: u64,
    /// How far the store's clock is ahead of the time.
    pub(super) ahead: i64,
    pub(super) records: BTreeMap<u32, Record>,
    pub(super) instances: Vec<Instance>,
    pub(super) starts: u64,
    pub(super) flights: Vec<Flight>,
    pub(super) waiting: Vec<Waiting>,
    /// The ways of the next message: its time there and back, and whether it is lost on one.
    pub(super) next_way: (u64, u64, Loss),
    pub(super) evictions_of_the_dead: (u64, u64),
    pub(super) judge: Judge,
    pub(super) trace: Vec<String>,
}

impl<'a> World<'a> {
    /// A world that [`World::run`] has not changed yet.
    pub(crate) fn new(chance: &'a mut Chance, bug: Bug) -> Self {
        let quota = chance.pick(&[180, 60, 20]);
        let instances = 2 + chance.choose(7);
        let kinds = chance.choose(1 << KINDS);
        let life = Duration::from_millis(TERMS.life);
        let mut world = Self {
            chance,
            bug,
            quota,
            kinds,
            terms: lease::Terms::of_a_minute(life).with_quota(quota),
            now: 1_000_000,
            ahead: 0,
            records: BTreeMap::new(),
            instances: Vec::new(),
            starts: 0,
            flights: Vec::new(),
            waiting: Vec::new(),
            next_way: (1, 1, Loss::None),
            evictions_of_the_dead: (0, 0),
            judge: Judge::new(u64::from(quota), TERMS),
            trace: Vec::new(),
        };
        world.instances = (0..instances).map(|_| world.instance()).collect();
        world
    }

    /// Takes this many steps, or fewer if one breaks a rule.
    pub(crate) fn run(mut self, steps: u32) -> Outcome {
        for _ in 0..steps {
            self.step();
            if self.judge.violation.is_some() {
                break;
            }
        }
        let instances = self.instances.len() as u64;
        let (mut counted, mut happened) = self.evictions_of_the_dead;
        for instance in &self.instances {
            counted += instance.windows.evicted();
            happened += instance.evicted;
        }
        self.judge.ends((counted, happened), instances);
        Outcome {
            violation: self.judge.violation,
            trace: self.trace,
        }
    }

    /// Each step draws seven choices.
    fn step(&mut self) {
        let passes = self.chance.pick(&[100, 1, 30, 1_000, 4_000]);
        let fault = self.chance.choose(64);
        let client = self.chance.choose(CLIENTS);
        let hop = self.chance.pick(&[0, 0, 0, 1, 2, 5]);
        let burst = self.chance.pick(&[1, 1, 3, 10, 40]);
        let there = self.chance.pick(&[1, 1, 1, 5, 15, 300]);
        let back = self.chance.pick(&[1, 1, 1, 5, 15]);
        self.advance(self.now + passes);
        let instance = (client as usize + hop) % self.instances.len();
        self.next_way = (there, back, Loss::None);
        self.fault(fault, client, instance);
        for _ in 0..burst {
            self.request(client, instance);
        }
    }

    fn fault(&mut self, fault: u32, client: u32, index: usize) {
        let now = self.now;
        let Some(kind) = fault.checked_sub(49) else {
            return;
        };
        if self.kinds & (1 << (kind % KINDS)) == 0 {
            return;
        }
        let what = match kind {
            0 | 7 => {
                self.kill(index);
                "is killed and starts"
            }
            1 => {
                self.instances[index].paused_until = now + 40_000;
                "is paused for 40 s"
            }
            8 => {
                self.instances[index].paused_until = now + 700;
                "is paused for 0.7 s"
            }
            2 | 9 => {
                let instance = &mut self.instances[index];
                instance.is_cut_off = !instance.is_cut_off;
                if instance.is_cut_off {
                    "is cut off"
                } else {
                    "reaches the store again"
                }
            }
            3 | 10 => {
                self.records.remove(&client);
                self.judge.may_admit_more(client, now);
                "sees the record lost"
            }
            4 => {
                self.ahead += 5_000;
                (0..CLIENTS).for_each(|client| self.judge.may_admit_more(client, now));
                "sees the store's clock 5 s ahead"
            }
            5 => {
                self.ahead -= 5_000;
                (0..CLIENTS).for_each(|client| self.judge.may_refuse_more(client, now));
                "sees the store's clock 5 s back"
            }
            6 => {
                self.next_way.2 = Loss::Reply;
                "loses a reply"
            }
            13 => {
                self.next_way.2 = Loss::Message;
                "loses a message"
            }
            _ => return,
        };
        self.judge.disturbances += 4;
        self.note(index, client, what);
    }

    fn note(&mut self, instance: usize, client: u32, what: &str) {
        let seconds = (self.now - 1_000_000) as f64 / 1e3;
        self.trace.push(format!(
            "{seconds:9.3} s  instance {instance}, client {client}: {what}"
        ));
    }

    fn instance(&mut self) -> Instance {
        self.starts += 1;
        let quota = Quota::per_minute(self.quota).expect("it is in range");
        let capacity = NonZeroU32::new(ROOM).expect("it is not zero");
        Instance {
            name: format!("i{}", self.starts),
            windows: RateLimiter::with_values(quota, capacity, Hasher::default()),
            members: 0,
            is_cut_off: false,
            is_down: false,
            failures: 0,
            paused_until: 0,
            next_heartbeat: self.now + HEARTBEAT,
            seen: Vec::new(),
            evicted: 0,
            apart: Vec::new(),
        }
    }

    fn kill(&mut self, index: usize) {
        let started = self.instance();
        let dead = std::mem::replace(&mut self.instances[index], started);
        (0..CLIENTS).for_each(|client| self.judge.evicted(client, index, self.now));
        self.evictions_of_the_dead.0 += dead.windows.evicted();
        self.evictions_of_the_dead.1 += dead.evicted;
        // what it has sent may still arrive
        for flight in self
            .flights
            .iter_mut()
            .filter(|flight| flight.instance == index)
        {
            flight.returns = u64::MAX;
        }
        self.waiting.retain(|waiting| waiting.instance != index);
    }

    pub(super) fn key(client: u32) -> ClientKey {
        ClientKey::of(Ipv4Addr::from_bits(client + 1).into())
    }

    pub(super) fn millis(&self) -> Millis {
        Millis(self.now)
    }

    pub(super) fn time(&self) -> Duration {
        Duration::from_millis(self.now)
    }

    /// The client is the instance's most recently seen.
    fn touch(&mut self, index: usize, client: u32) {
        let instance = &mut self.instances[index];
        let known = instance.seen.iter().position(|seen| *seen == client);
        known.map(|place| instance.seen.remove(place));
        instance.seen.push(client);
        if instance.seen.len() > ROOM as usize {
            let evicted = instance.seen.remove(0);
            instance.evicted += 1;
            self.judge.evicted(evicted, index, self.now);
        }
    }

    fn holder(&mut self, index: usize, client: u32) -> Rc<Holder> {
        self.touch(index, client);
        let bug = self.bug;
        let instance = &mut self.instances[index];
        let number = match bug {
            Bug::NumberRestarts | Bug::EvictedApart => 0,
            _ => instance.members,
        };
        let make = || {
            let name = format!("{}:{number}", instance.name);
            let (lease, failures) = (RefCell::default(), Cell::new(0));
            Rc::new(Holder {
                client,
                name,
                lease,
                failures,
            })
        };
        if bug == Bug::EvictedApart {
            if let Some(known) = instance.apart.iter().find(|known| known.client == client) {
                return Rc::clone(known);
            }
            let made = make();
            instance.apart.push(Rc::clone(&made));
            if instance.apart.len() > ROOM as usize - 1 {
                instance.apart.remove(0);
            }
            return made;
        }
        let holder = instance.windows.value_or_insert(Self::key(client), make);
        instance.members += 1;
        holder
    }

    fn request(&mut self, client: u32, index: usize) {
        if self.instances[index].paused_until > self.now {
            return;
        }
        self.judge.requests += 1;
        let holder = self.holder(index, client);
        if !self.decide_now(index, &holder) {
            let (failures, deadline) = (holder.failures.get(), self.now + WAIT);
            self.waiting.push(Waiting {
                instance: index,
                holder,
                failures,
                deadline,
            });
        }
    }

    /// Whether the request is decided.
    pub(super) fn decide_now(&mut self, index: usize, holder: &Rc<Holder>) -> bool {
        if self.instances[index].is_down {
            self.decide_alone(index, holder);
            return true;
        }
        let step = holder.lease.borrow_mut().take(self.time(), &self.terms);
        let sends = match step {
            Step::Admitted { renews } => {
                self.admit(index, holder, Way::Lease);
                renews
            }
            Step::Refused(_) => false,
            Step::Waits { sends } => sends,
        };
        if sends {
            self.send(index, holder, Purpose::Lease, false);
        }
        !matches!(step, Step::Waits { .. })
    }

    pub(super) fn decide_alone(&mut self, index: usize, holder: &Rc<Holder>) {
        let instances = self.instances.len() as u32;
        let mut lease = holder.lease.borrow_mut();
        if lease.take_held(self.time(), &self.terms) {
            drop(lease);
            return self.admit(index, holder, Way::Lease);
        }
        let alone = lease.take_spare(self.time(), &self.terms, instances);
        drop(lease);
        match alone {
            Alone::Admitted => self.admit(index, holder, Way::Alone),
            Alone::Refused(_) => {}
            Alone::Part => {
                let most = (self.quota / instances).max(FLOOR);
                let key = Self::key(holder.client);
                let quota = Quota::per_minute(self.quota).expect("it is in range");
                let own =
                    self.instances[index]
                        .windows
                        .check_within(key, quota, self.millis(), most);
                if own.admitted {
                    self.touch(index, holder.client);
                    let known = self.holder(index, holder.client);
                    known.lease.borrow_mut().record(self.time(), &self.terms);
                    self.judge
                        .admitted(holder.client, index, Way::Alone, self.now);
                }
            }
        }
    }

    fn admit(&mut self, index: usize, holder: &Rc<Holder>, way: Way) {
        self.touch(index, holder.client);
        let key = Self::key(holder.client);
        if self.instances[index]
            .windows
            .check(key, self.millis())
            .admitted
        {
            self.judge.admitted(holder.client, index, way, self.now);
        }
    }
}
