//! The rules that leases must keep, judged by what clients and the operator see.

use std::collections::BTreeMap;

use super::world::{CLIENTS, Terms};

/// Requests are counted in cells, merged, and reported late by as much as a message takes.
const SLACK: u64 = 700;

/// An admitted request.
#[derive(Clone, Copy)]
struct Admission {
    at: u64,
    instance: usize,
    way: Way,
}

/// How a request is admitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    Lease,
    /// Without the store.
    Alone,
}

/// The judge of a run; the first violation is kept.
pub(crate) struct Judge {
    quota: u64,
    terms: Terms,
    admissions: [Vec<Admission>; CLIENTS as usize],
    /// The last grant of the store: the number of requests, and its end by the store's clock.
    grants: BTreeMap<(u32, String), (u64, u64)>,
    /// Until then, a holder has been refused.
    quiet_until: BTreeMap<(u32, String), u64>,
    /// Clients that an instance evicted, and when.
    evicted: Vec<(u32, usize, u64)>,
    /// Until then, a fault may admit more, or refuse more, as documented.
    loose_until: [u64; CLIENTS as usize],
    strict_until: [u64; CLIENTS as usize],
    pub(crate) requests: u64,
    pub(crate) messages: u64,
    /// Faults, restarts and evictions: each may cost some messages more.
    pub(crate) disturbances: u64,
    pub(crate) violation: Option<String>,
}

impl Judge {
    pub(crate) fn new(quota: u64, terms: Terms) -> Self {
        Self {
            quota,
            terms,
            admissions: Default::default(),
            grants: BTreeMap::new(),
            quiet_until: BTreeMap::new(),
            evicted: Vec::new(),
            loose_until: [0; CLIENTS as usize],
            strict_until: [0; CLIENTS as usize],
            requests: 0,
            messages: 0,
            disturbances: 0,
            violation: None,
        }
    }

    /// The store has lost a client's record, or its clock went ahead.
    pub(crate) fn may_admit_more(&mut self, client: u32, now: u64) {
        self.loose_until[client as usize] = now + self.over();
        self.may_refuse_more(client, now);
    }

    /// The store's clock went back, or a whole window is reported as of now.
    pub(crate) fn may_refuse_more(&mut self, client: u32, now: u64) {
        self.strict_until[client as usize] = now + self.over();
    }

    /// How long a fault matters: a lease of before it ends, and counts for a window more.
    fn over(&self) -> u64 {
        self.terms.window + self.terms.life + 10 * self.terms.cell
    }

    /// An instance has evicted a client: without the store it knows nothing of it any more.
    pub(crate) fn evicted(&mut self, client: u32, instance: usize, now: u64) {
        self.evicted.push((client, instance, now));
    }

    /// No more than the quota is admitted by leases in any window, at all instances together, and
    /// no more than that without the store by one instance that remembers the client.
    pub(crate) fn admitted(&mut self, client: u32, instance: usize, way: Way, at: u64) {
        let own = &mut self.admissions[client as usize];
        own.push(Admission { at, instance, way });
        let window = self.terms.window;
        let in_window = own
            .iter()
            .rev()
            .take_while(|admission| admission.at + window > at);
        let alike = in_window.filter(|admission| {
            admission.way == way && (way == Way::Lease || admission.instance == instance)
        });
        let count = alike.count() as u64;
        let lives = self
            .evicted
            .iter()
            .rev()
            .take_while(|(.., when)| when + window > at);
        let lives =
            lives.filter(|(of, by, _)| way == Way::Alone && (*of, *by) == (client, instance));
        let most = self.quota * (1 + lives.count() as u64);
        if count > most && self.loose_until[client as usize] <= at {
            self.fail(format!(
                "client {client}: {count} of {most} in a window, {way:?}"
            ));
        }
    }

    /// The store has granted this much, at its time `clock`.
    pub(crate) fn granted(&mut self, client: u32, holder: &str, granted: u64, clock: u64) {
        let held = (self.terms.life * 101).div_ceil(100);
        self.grants
            .insert((client, holder.to_owned()), (granted, clock + held));
    }

    /// The store has refused a lease at `now`, which its clock calls `clock`: nothing is refused
    /// below the quota without the leases that others have.
    pub(crate) fn refused(&mut self, client: u32, now: u64, clock: u64) {
        if self.strict_until[client as usize] > now {
            return;
        }
        let since = now.saturating_sub(self.terms.window + self.terms.cell + SLACK);
        let recent = self.admissions[client as usize]
            .iter()
            .filter(|one| one.at >= since);
        let recent = recent.count() as u64;
        let live = self
            .grants
            .iter()
            .filter(|((of, _), (_, expires))| *of == client && expires + self.terms.window > clock);
        let leased: u64 = live.map(|(_, (granted, _))| granted).sum();
        if recent + leased < self.quota {
            let quota = self.quota;
            self.fail(format!(
                "client {client}: refused with {recent} admitted and {leased} leased of {quota}"
            ));
        }
    }

    /// A holder got an answer that leaves nothing until then.
    pub(crate) fn told_to_wait(&mut self, client: u32, holder: &str, until: u64) {
        self.quiet_until.insert((client, holder.to_owned()), until);
    }

    /// A holder asks for a lease: not before it may retry.
    pub(crate) fn asks(&mut self, client: u32, holder: &str, now: u64) {
        if self
            .quiet_until
            .get(&(client, holder.to_owned()))
            .is_some_and(|until| *until > now)
        {
            self.fail(format!(
                "client {client}: {holder} asks again before it may retry"
            ));
        }
    }

    /// At the end: a fifth of a message for each request, and some for each disturbance.
    pub(crate) fn ends(&mut self, evictions: (u64, u64), instances: u64) {
        let (counted, happened) = evictions;
        if counted != happened {
            self.fail(format!("{counted} evictions are counted of {happened}"));
        }
        let leases = instances * u64::from(CLIENTS) + happened + self.disturbances;
        let most = self.requests / 5 + leases;
        if self.messages > most {
            self.fail(format!(
                "{} messages, at most {most} expected",
                self.messages
            ));
        }
    }

    fn fail(&mut self, violation: String) {
        self.violation.get_or_insert(violation);
    }
}
