//! The messages between instances and store, in virtual time.

use std::rc::Rc;
use std::time::Duration;

use portcullis_filters::limit::lease::{Granted, Message};

use super::Bug;
use super::script::Call;
use super::world::{HEARTBEAT, Holder, TERMS, Waiting, World};

/// How long a message waits for the store.
const PATIENCE: u64 = 20;
/// Failed messages in a row after which the store is down.
const FAILURES: u32 = 3;

/// A message under way.
pub(super) struct Flight {
    pub(super) instance: usize,
    pub(super) holder: Rc<Holder>,
    pub(super) message: Message,
    pub(super) purpose: Purpose,
    pub(super) is_second: bool,
    /// When the store gets it; `None` if it is lost, or was got.
    pub(super) arrives: Option<u64>,
    /// When the instance has the answer, or gives up.
    pub(super) returns: u64,
    pub(super) answer: Option<[i64; 4]>,
    /// Whether the instance gets the answer.
    pub(super) is_answered: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Lease,
    Report,
}

/// The part of an exchange that is lost.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    None,
    Message,
    Reply,
}

impl World<'_> {
    pub(super) fn send(
        &mut self,
        index: usize,
        holder: &Rc<Holder>,
        purpose: Purpose,
        is_second: bool,
    ) {
        let recent = self.instances[index]
            .windows
            .admitted(Self::key(holder.client), self.millis());
        let message = holder
            .lease
            .borrow_mut()
            .message(self.time(), &self.terms, || recent);
        if purpose == Purpose::Lease {
            self.judge.asks(holder.client, &holder.name, self.now);
        }
        self.judge.messages += 1;
        let (there, back, loss) = self.next_way;
        self.next_way.2 = Loss::None;
        let is_cut_off = self.instances[index].is_cut_off;
        let arrives = self.now + there;
        let is_in_time = loss == Loss::None && there + back <= PATIENCE && !is_cut_off;
        let returns = self.now + if is_in_time { there + back } else { PATIENCE };
        let arrives = (loss != Loss::Message && !is_cut_off).then_some(arrives);
        let holder = Rc::clone(holder);
        self.flights.push(Flight {
            instance: index,
            holder,
            message,
            purpose,
            is_second,
            arrives,
            returns,
            answer: None,
            is_answered: is_in_time,
        });
    }

    fn next_event(&self) -> Option<u64> {
        let arrivals = self.flights.iter().filter_map(|flight| flight.arrives);
        let returns = self.flights.iter().map(|flight| self.resumed(flight));
        let deadlines = self.waiting.iter().map(|waiting| waiting.deadline);
        let heartbeats = self
            .instances
            .iter()
            .map(|instance| instance.next_heartbeat);
        arrivals
            .chain(returns)
            .chain(deadlines)
            .chain(heartbeats)
            .min()
    }

    /// When the instance takes note of the answer.
    fn resumed(&self, flight: &Flight) -> u64 {
        flight
            .returns
            .max(self.instances[flight.instance].paused_until)
    }

    pub(super) fn advance(&mut self, to: u64) {
        while let Some(next) = self.next_event().filter(|next| *next <= to) {
            self.now = self.now.max(next);
            self.arrive();
            self.deliver();
            self.give_up();
            self.beat();
        }
        self.now = to;
    }

    fn arrive(&mut self) {
        let now = self.now;
        for number in 0..self.flights.len() {
            if self.flights[number]
                .arrives
                .is_none_or(|arrives| arrives > now)
            {
                continue;
            }
            self.flights[number].arrives = None;
            let answer = self.answer(number);
            let flight = &self.flights[number];
            let (client, name) = (flight.holder.client, flight.holder.name.clone());
            if let Ok(granted) = u64::try_from(answer[0]) {
                let clock = now.saturating_add_signed(self.ahead);
                self.judge.granted(client, &name, granted, clock);
                if granted == 0 && flight.purpose == Purpose::Lease {
                    self.judge.refused(client, now, clock);
                }
            }
            self.flights[number].answer = Some(answer);
        }
        self.flights
            .retain(|flight| flight.returns != u64::MAX || flight.arrives.is_some());
    }

    /// The store's answer; the planted bugs of the script are here.
    fn answer(&mut self, number: usize) -> [i64; 4] {
        let Flight {
            holder,
            message,
            purpose,
            ..
        } = &self.flights[number];
        let want = if *purpose == Purpose::Lease {
            self.terms.want
        } else {
            message.hold
        };
        let mut call = Call {
            holder: holder.name.clone(),
            number: message.number,
            acknowledged: message.acknowledged,
            quota: u64::from(self.quota),
            window: TERMS.window,
            cell: TERMS.cell,
            life: TERMS.life,
            want: u64::from(want),
            hold: u64::from(message.hold),
            uses: message.uses.clone(),
        };
        let repeated = |used: &str| !used.starts_with(&format!("{}:", call.number));
        match self.bug {
            Bug::UseSentOnce => {
                let once: Vec<_> = call
                    .uses
                    .split(';')
                    .filter(|used| !repeated(used))
                    .collect();
                call.uses = once.join(";");
            }
            Bug::RepeatCountsTwice => {
                let again = call.uses.split_terminator(';').map(|used| {
                    let (_, rest) = used.split_once(':').expect("its number is first");
                    format!("{}:{rest};", call.number)
                });
                call.uses = again.collect();
            }
            _ => {}
        }
        let clock = self.now.saturating_add_signed(self.ahead);
        let record = self.records.entry(holder.client).or_default();
        let answer = record.step(clock, &call);
        let is_forgotten = match self.bug {
            Bug::GrantNotRemembered => true,
            Bug::HoldLostOnReport => *purpose == Purpose::Report,
            _ => false,
        };
        if let Some(held) = record.leases.get_mut(&call.holder).filter(|_| is_forgotten) {
            held.granted = 0;
        }
        answer
    }

    fn deliver(&mut self) {
        let now = self.now;
        while let Some(place) = self
            .flights
            .iter()
            .position(|flight| self.resumed(flight) <= now)
        {
            let mut flight = self.flights.swap_remove(place);
            let is_in_time = flight.arrives.is_none();
            let answer = flight.answer.filter(|_| is_in_time && flight.is_answered);
            self.receive(&flight, answer);
            if flight.arrives.is_some() {
                // it still reaches the store
                flight.returns = u64::MAX;
                self.flights.push(flight);
            }
        }
    }

    /// The instance's reaction to an answer, or to none.
    fn receive(&mut self, flight: &Flight, answer: Option<[i64; 4]>) {
        let (index, holder) = (flight.instance, Rc::clone(&flight.holder));
        match answer {
            Some([-1, ..]) => {
                self.failures_end(index);
                self.judge.may_refuse_more(holder.client, self.now);
                holder.lease.borrow_mut().forgotten(self.time());
                if !flight.is_second {
                    return self.send(index, &holder, flight.purpose, true);
                }
                holder.failures.set(holder.failures.get() + 1);
            }
            Some([granted, left, retry, _]) => {
                self.failures_end(index);
                let number = |number| u32::try_from(number).unwrap_or(0);
                let waits = if left == 0 { retry as u64 } else { 0 };
                self.judge
                    .told_to_wait(holder.client, &holder.name, self.now + waits);
                let refuses = self.bug != Bug::RefusalForgotten;
                let retry = Duration::from_millis(if refuses { retry as u64 } else { 0 });
                let granted = Granted {
                    granted: number(granted),
                    left: number(left),
                    retry,
                };
                let mut lease = holder.lease.borrow_mut();
                lease.answer(&flight.message, granted, self.time(), self.terms.life);
            }
            None => {
                holder.failures.set(holder.failures.get() + 1);
                let instance = &mut self.instances[index];
                instance.failures += 1;
                instance.is_down |= instance.failures >= FAILURES;
            }
        }
        holder.lease.borrow_mut().release();
        self.wake(&holder);
    }

    fn failures_end(&mut self, index: usize) {
        self.instances[index].failures = 0;
    }

    /// The requests that wait for this client's message go on.
    fn wake(&mut self, holder: &Rc<Holder>) {
        for waiting in std::mem::take(&mut self.waiting) {
            if !Rc::ptr_eq(&waiting.holder, holder) {
                self.waiting.push(waiting);
            } else if holder.failures.get() != waiting.failures {
                self.decide_alone(waiting.instance, holder);
            } else if !self.decide_now(waiting.instance, holder) {
                self.waiting.push(waiting);
            }
        }
    }

    fn give_up(&mut self) {
        let now = self.now;
        let (over, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting: &Waiting| waiting.deadline <= now);
        self.waiting = waiting;
        for waiting in over {
            self.decide_alone(waiting.instance, &waiting.holder);
        }
    }

    /// A heartbeat: an instance that reaches the store again reports first.
    fn beat(&mut self) {
        for index in 0..self.instances.len() {
            let instance = &mut self.instances[index];
            if instance.next_heartbeat > self.now {
                continue;
            }
            instance.next_heartbeat = self.now.max(instance.paused_until) + HEARTBEAT;
            if instance.is_cut_off {
                instance.is_down = true;
            } else if instance.is_down && instance.paused_until <= self.now {
                self.report(index);
                self.instances[index].is_down = false;
                self.instances[index].failures = 0;
            }
        }
    }

    fn report(&mut self, index: usize) {
        self.next_way = (1, 1, Loss::None);
        let instance = &self.instances[index];
        let mut unreported = instance
            .windows
            .values(|holder| holder.lease.borrow().has_unreported());
        unreported.extend(instance.apart.iter().cloned());
        for holder in unreported {
            let claimed = holder.lease.borrow_mut().claim();
            if claimed {
                self.send(index, &holder, Purpose::Report, false);
            }
        }
    }
}
