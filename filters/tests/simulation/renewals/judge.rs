//! The rules: orders are damped, no good certificate is replaced by a worse one, a failure is
//! reported with its cause, and once everything is right there is a certificate in time.

use super::authority::{DAY, DOMAINS, Pair};
use portcullis_filters::acme::OrderStatus;
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};

const WEEK: u64 = 7 * DAY;
/// The shortest delay after a refusal, 5 minutes less a quarter, and what clocks tick in between.
const REFUSED: u64 = 200;
/// Seconds from the decision about a delay to the rest.
const SLACK: u64 = 2;
/// Certificates in a week that Let's Encrypt permits for a set of names.
const PER_WEEK: u64 = 5;

/// The most certificates and orders in a week of any run.
static WORST: [AtomicU64; 3] = [const { AtomicU64::new(0) }; 3];

pub(super) fn worst() -> String {
    let [issued, placed, actions] = WORST.each_ref().map(|one| one.load(Ordering::Relaxed));
    format!("at most {issued} certificates and {placed} orders in a week, {actions} actions")
}

/// Whether all instances have one clock.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Clocks {
    Alike,
    Different,
}

/// A new order.
struct Placed {
    at: u64,
    instance: usize,
    /// Whether its attempt ended, and with a refusal.
    is_over: bool,
    is_refused: bool,
}

#[derive(Default)]
pub(super) struct Judge {
    placed: Vec<Placed>,
    issued: Vec<u64>,
    /// Since then, nothing has happened that excuses a second order.
    pub(super) quiet_since: u64,
    /// Disturbances, each of which may cost a certificate more.
    pub(super) disturbances: Vec<u64>,
    /// Failed attempts in a row that left each order with the same status.
    unchanged: HashMap<String, (OrderStatus, u32)>,
    /// Orders whose certificate cannot be downloaded.
    dead: HashSet<String>,
    /// When each instance may attempt again, if nothing else happens.
    earliest: HashMap<usize, u64>,
    /// The cause of every failure so far.
    pub(super) causes: Vec<String>,
    pub(super) violation: Option<String>,
    pub(super) trace: Vec<String>,
}

/// Whether a certificate is good by itself at a time, in words of its own.
pub(super) fn is_good(pair: &Pair, now: u64) -> bool {
    let of = &pair.facts;
    pair.is_matching
        && DOMAINS
            .iter()
            .all(|domain| of.names.iter().any(|name| name == domain))
        && (of.validity.not_before..of.validity.not_after).contains(&now)
        && of.chain_bytes <= 16_384
}

fn most_in_a_week(times: &[u64]) -> u64 {
    let weeks = times.iter().map(|from| {
        let within = times
            .iter()
            .filter(|at| (*from..*from + WEEK).contains(*at));
        within.count() as u64
    });
    weeks.max().unwrap_or(0)
}

impl Judge {
    pub(super) fn breaks(&mut self, rule: &str, how: String) {
        self.violation.get_or_insert(format!("{rule}: {how}"));
    }

    pub(super) fn note(&mut self, now: u64, what: String) {
        if self.trace.len() < 60_000 {
            let days = now.saturating_sub(super::world::BEGIN) as f64 / DAY as f64;
            self.trace.push(format!("{days:9.4} d  {what}"));
        }
        WORST[2].fetch_add(1, Ordering::Relaxed);
    }

    /// Something has happened that may cost another order.
    pub(super) fn disturbed(&mut self, now: u64) {
        // as long as an attempt takes
        self.quiet_since = now + 150;
        self.unchanged.clear();
        self.earliest.clear();
        self.disturbances.push(now);
    }

    /// An order is placed. Delays are stored by the clock, so instances with other clocks know
    /// little of each other's.
    pub(super) fn placed(&mut self, instance: usize, clocks: Clocks, now: u64) {
        if let Some(last) = self.placed.last()
            && last.at > self.quiet_since
            && clocks == Clocks::Alike
        {
            let after = now - last.at;
            if last.is_refused && after < REFUSED {
                self.breaks(
                    "an order within the damping",
                    format!("{after} s after a refusal"),
                );
            } else if !last.is_over {
                let other = last.instance;
                self.breaks("two orders at once", format!("{other}, then {instance}"));
            }
        }
        self.placed.push(Placed {
            at: now,
            instance,
            is_over: false,
            is_refused: false,
        });
        let week = self.placed.iter().filter(|one| one.at + WEEK > now).count() as u64;
        WORST[1].fetch_max(week, Ordering::Relaxed);
    }

    /// The most certificates and orders in a week.
    pub(super) fn most(&self) -> (u64, u64) {
        let placed: Vec<_> = self.placed.iter().map(|one| one.at).collect();
        (most_in_a_week(&self.issued), most_in_a_week(&placed))
    }

    /// The last attempt of an instance ended.
    pub(super) fn ended(&mut self, instance: usize, is_refused: bool) {
        if let Some(last) = self.placed.last_mut()
            && last.instance == instance
        {
            last.is_over = true;
            last.is_refused |= is_refused;
        }
    }

    /// The authority has issued a certificate.
    pub(super) fn issued(&mut self, lifetime: u64, now: u64) {
        self.issued.push(now);
        let week = self.issued.iter().filter(|at| **at + WEEK > now).count() as u64;
        let excused = self
            .disturbances
            .iter()
            .filter(|at| **at + WEEK + lifetime > now);
        let excused = excused.count() as u64;
        if lifetime >= 6 * DAY {
            WORST[0].fetch_max(week, Ordering::Relaxed);
        }
        let most = PER_WEEK + WEEK / (lifetime / 3) + 2 * excused;
        let most = if lifetime >= 30 * DAY {
            PER_WEEK + 2 * excused
        } else {
            most
        };
        if week > most {
            self.breaks(
                "too many certificates in a week",
                format!("{week} of {most}"),
            );
        }
    }

    /// A certificate replaces another one; `now` is the time of the instance.
    pub(super) fn replaced(&mut self, held: Option<&Pair>, by: &Pair, is_due: bool, now: u64) {
        if !is_good(by, now) {
            self.breaks(
                "a bad certificate is used",
                format!("{:?}", by.facts.validity),
            );
        }
        if let Some(held) = held
            && is_good(held, now)
            && !is_due
            && by.facts.validity.not_after <= held.facts.validity.not_after
        {
            self.breaks(
                "a good certificate is replaced by a worse one",
                format!("at {now}"),
            );
        }
    }

    /// An attempt that failed has stored what it leaves of an order.
    pub(super) fn left(&mut self, url: &str, status: OrderStatus) {
        let known = self.unchanged.entry(url.to_owned()).or_insert((status, 0));
        *known = match *known {
            (before, times) if before == status => (status, times + 1),
            _ => (status, 1),
        };
    }

    /// An instance fails, and must wait for this long.
    pub(super) fn must_wait(&mut self, instance: usize, seconds: u64, now: u64) {
        // a clock that was set during the attempt
        if now > self.quiet_since + 200 {
            self.earliest.insert(instance, now.saturating_add(seconds));
        }
    }

    /// An instance begins an attempt.
    pub(super) fn attempted(&mut self, instance: usize, now: u64) {
        if let Some(earliest) = self.earliest.remove(&instance)
            && now + SLACK < earliest
        {
            let early = earliest - now;
            self.breaks("an attempt within the delay", format!("{early} s early"));
        }
    }

    /// The certificate of this order cannot be downloaded, and that is stored.
    pub(super) fn died(&mut self, url: &str) {
        self.dead.insert(url.to_owned());
    }

    /// An instance rests with a certificate until then.
    pub(super) fn kept(&mut self, pair: &Pair, until: u64) {
        if until > pair.facts.validity.not_after {
            self.breaks("a certificate is kept beyond its end", format!("{until}"));
        }
    }

    /// An order is continued.
    pub(super) fn resumed(&mut self, url: &str) {
        if self.dead.contains(url) {
            self.breaks("an order is resumed that failed for good", url.to_owned());
        }
        if let Some((status, times)) = self.unchanged.get(url)
            && *times >= 2
        {
            let how = format!("{status:?} {times} times");
            self.breaks("an order is resumed for ever", how);
        }
    }

    /// An attempt failed with this cause, which one of these faults explains.
    pub(super) fn failed(&mut self, cause: &str, excuses: &[&str]) {
        if !excuses.iter().any(|words| cause.contains(words)) {
            self.breaks("an untrue cause", format!("{cause:?}, but {excuses:?}"));
        }
        self.causes.push(cause.to_owned());
    }

    /// What is shown of a domain that is due and unserved.
    pub(super) fn shown(&mut self, cause: Option<&str>) {
        match cause {
            None | Some("") => {
                self.breaks("an unserved domain is not reported", "nothing".to_owned());
            }
            Some(cause) => {
                let is_known = self.causes.iter().any(|known| known == cause)
                    || cause.contains("although it is new");
                if !is_known {
                    self.breaks("an untrue cause is shown", cause.to_owned());
                }
            }
        }
    }
}
