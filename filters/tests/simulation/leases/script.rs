//! One step of the fleet's store, as its script `lease.lua` takes it.
//!
//! A test of the program runs both on the same histories: they give the same answers.

use std::collections::BTreeMap;

/// A client's record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Record {
    /// Requests admitted in each cell of the store's clock.
    pub(crate) cells: BTreeMap<u64, u64>,
    pub(crate) leases: BTreeMap<String, Held>,
    /// The newest time seen.
    pub(crate) newest: Option<u64>,
}

/// A holder's lease.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Held {
    pub(crate) number: u64,
    pub(crate) granted: u64,
    pub(crate) expires: u64,
}

/// The arguments of the script. Times are in milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) holder: String,
    pub(crate) number: u64,
    pub(crate) acknowledged: u64,
    pub(crate) quota: u64,
    pub(crate) window: u64,
    pub(crate) cell: u64,
    pub(crate) life: u64,
    pub(crate) want: u64,
    pub(crate) hold: u64,
    /// `number:age:count;…`
    pub(crate) uses: String,
}

impl Record {
    /// Answers a call at `clock`: granted, left, retry and live.
    pub(crate) fn step(&mut self, clock: u64, call: &Call) -> [i64; 4] {
        let newest = self.newest.filter(|newest| *newest <= clock + call.window);
        let now = newest.map_or(clock, |newest| newest.max(clock));
        let seen = self.leases.get(&call.holder).map_or(0, |held| held.number);
        if call.number <= seen {
            return [-2, 0, 0, 0];
        }
        if seen < call.acknowledged {
            return [-1, 0, 0, 0];
        }
        let held = (call.life * 101).div_ceil(100);
        self.drop_over(now, held, call);
        self.report(now, seen, call);
        let mut ends: Vec<u64> = self
            .cells
            .keys()
            .map(|at| (at + 1) * call.cell + call.window)
            .collect();
        let others = self
            .leases
            .iter()
            .filter(|(holder, _)| **holder != call.holder);
        let (mut leased, mut live) = (0, 0);
        for (_, other) in others {
            let expires = other.expires.min(now + held);
            leased += other.granted;
            live += u64::from(expires > now);
            if other.granted > 0 {
                ends.push(expires + call.window);
            }
        }
        let admitted: u64 = self.cells.values().sum();
        let left = call.quota as i64 - (admitted + leased) as i64;
        let mut granted = call.hold as i64;
        if left > granted && call.want > call.hold {
            let part = (left / (2 * (live as i64 + 1))).max(1);
            granted = granted.max(part.min(call.want as i64));
        }
        let expires = if granted > 0 { now + held } else { now };
        let lease = Held {
            number: call.number,
            granted: granted as u64,
            expires,
        };
        self.leases.insert(call.holder.clone(), lease);
        self.newest = Some(now);
        let soonest = ends
            .into_iter()
            .min()
            .unwrap_or(u64::MAX)
            .min(now + call.window);
        let retry = (soonest as i64 - now as i64).max(1);
        [granted, (left - granted).max(0), retry, live as i64]
    }

    /// Drops what counts no more, and moves what lies ahead of the clock to now.
    fn drop_over(&mut self, now: u64, held: u64, call: &Call) {
        let current = now / call.cell;
        for (at, count) in std::mem::take(&mut self.cells) {
            if (at + 1) * call.cell + call.window > now {
                *self.cells.entry(at.min(current)).or_default() += count;
            }
        }
        self.leases.retain(|holder, held_by| {
            *holder == call.holder || held_by.expires.min(now + held) + call.window > now
        });
    }

    /// Counts what was admitted and not reported before.
    fn report(&mut self, now: u64, seen: u64, call: &Call) {
        for used in call.uses.split_terminator(';') {
            let mut numbers = used.split(':').map(str::parse::<u64>);
            let mut next = || numbers.next().and_then(Result::ok).expect("three numbers");
            let (sent, age, count) = (next(), next(), next());
            let at = now.saturating_sub(age) / call.cell;
            if sent > seen && (at + 1) * call.cell + call.window > now {
                *self.cells.entry(at).or_default() += count;
            }
        }
    }
}
