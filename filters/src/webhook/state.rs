//! The states of an age verification and their transitions.
//!
//! Events may arrive late, twice or in any order. Their order is that of occurrence: an older one
//! never undoes a newer one, and of two at the same instant the one that grants less applies.

use crate::named::named;

named! {
    /// The status of an age verification. Of two at the same instant, the greater one applies.
    #[derive(PartialOrd, Ord)]
    pub enum AgeStatus {
        /// The verification is in progress.
        Pending = "pending",
        /// The age is proven.
        Verified = "verified",
        /// The age is not proven; another attempt may prove it.
        Rejected = "rejected",
        /// A proof expired, or an attempt was abandoned; another attempt may prove it.
        Expired = "expired",
        /// Final: only a new session starts over.
        Revoked = "revoked",
    }
}

impl AgeStatus {
    /// Whether a later event may replace this status by `next`.
    fn may_become(self, next: Self) -> bool {
        match (self, next) {
            (Self::Revoked, _) => next == Self::Revoked,
            (Self::Verified, Self::Pending) | (Self::Rejected, Self::Expired) => false,
            _ => true,
        }
    }
}

/// The age status of a subject, with the time of its last event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeRecord {
    /// The status.
    pub status: AgeStatus,
    /// When the last applied event occurred; `None` before the first.
    pub last_occurred_us: Option<i64>,
}

impl AgeRecord {
    /// Whether an event is newer: it occurred later, or at the same instant and grants less.
    fn yields_to(self, event: AgeStatus, occurred_us: i64) -> bool {
        self.last_occurred_us
            .is_none_or(|last| (last, self.status) < (occurred_us, event))
    }
}

named! {
    /// The effect of an event on its subject.
    pub enum Verdict {
        /// The event's status is now the subject's.
        Applied = "applied",
        /// Another event occurred later, or at the same instant and grants less.
        Stale = "stale",
        /// The event's status cannot follow the current one.
        Invalid = "invalid",
    }
}

/// Judges an event by its subject's record. Only an applied event changes anything.
pub fn decide(subject: AgeRecord, event: AgeStatus, occurred_us: i64) -> Verdict {
    // at the same instant any status may follow, so that every order of arrival ends the same
    let at_once = subject.last_occurred_us == Some(occurred_us);
    if !subject.yields_to(event, occurred_us) {
        Verdict::Stale
    } else if at_once || subject.status.may_become(event) {
        Verdict::Applied
    } else {
        Verdict::Invalid
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The contract's table, one line for each earlier status.
    const TABLE: &str = "
        from\\to  pending  verified  rejected  expired  revoked
        pending   yes      yes       yes       yes      yes
        verified  no       yes       yes       yes      yes
        rejected  yes      yes       yes       no       yes
        expired   yes      yes       yes       yes      yes
        revoked   no       no        no        no       yes";
    /// At the same instant, the one further left applies.
    const RANKS: [&str; 5] = ["revoked", "expired", "rejected", "verified", "pending"];

    fn in_table(from: &str, to: &str) -> bool {
        let mut lines = TABLE.trim().lines();
        let column = lines
            .next()
            .unwrap()
            .split_whitespace()
            .position(|word| word == to);
        let line = lines
            .find(|line| line.trim_start().starts_with(from))
            .unwrap();
        line.split_whitespace().nth(column.unwrap()).unwrap() == "yes"
    }

    /// The contract's outcome of an event, and the state after it.
    fn model<'a>(
        state: (&'a str, Option<i64>),
        event: &'a str,
        occurred: i64,
    ) -> (&'static str, (&'a str, Option<i64>)) {
        let (status, last) = state;
        let rank = |status| RANKS.iter().position(|name| *name == status).unwrap();
        let applied = ("applied", (event, Some(occurred)));
        if let Some(last) = last {
            if occurred < last {
                return ("stale", state);
            }
            if occurred == last {
                return if rank(event) < rank(status) {
                    applied
                } else {
                    ("stale", state)
                };
            }
        }
        if in_table(status, event) {
            applied
        } else {
            ("invalid", state)
        }
    }

    fn name(verdict: Verdict) -> &'static str {
        match verdict {
            Verdict::Applied => "applied",
            Verdict::Stale => "stale",
            Verdict::Invalid => "invalid",
        }
    }

    fn record(status: AgeStatus, last_occurred_us: Option<i64>) -> AgeRecord {
        AgeRecord {
            status,
            last_occurred_us,
        }
    }

    #[test]
    fn a_status_has_one_name() {
        for status in AgeStatus::ALL {
            assert_eq!(AgeStatus::parse(status.name()), Some(status));
        }
        for name in ["", "Pending", "pending ", "unverified", "approved"] {
            assert_eq!(AgeStatus::parse(name), None, "{name:?}");
        }
    }

    #[test]
    fn a_later_event_does_what_the_table_says() {
        for from in AgeStatus::ALL {
            for to in AgeStatus::ALL {
                let allowed = in_table(from.name(), to.name());
                let expected = if allowed {
                    Verdict::Applied
                } else {
                    Verdict::Invalid
                };
                for last in [None, Some(99)] {
                    let found = decide(record(from, last), to, 100);
                    assert_eq!(found, expected, "{from:?} to {to:?} after {last:?}");
                }
            }
        }
    }

    #[test]
    fn an_earlier_event_is_stale_whatever_it_says() {
        for from in AgeStatus::ALL {
            for to in AgeStatus::ALL {
                let found = decide(record(from, Some(100)), to, 99);
                assert_eq!(found, Verdict::Stale, "{from:?} to {to:?}");
            }
        }
    }

    #[test]
    fn at_one_instant_the_lesser_grant_applies() {
        for (at, greater) in RANKS.into_iter().enumerate() {
            for (other_at, other) in RANKS.into_iter().enumerate() {
                let [event, known] = [greater, other].map(|name| AgeStatus::parse(name).unwrap());
                let subject = record(known, Some(100));
                let applies = at < other_at;
                let expected = if applies {
                    Verdict::Applied
                } else {
                    Verdict::Stale
                };
                assert_eq!(
                    decide(subject, event, 100),
                    expected,
                    "{greater} upon {other}"
                );
            }
        }
    }

    /// Every order of these items.
    fn orders<T: Copy>(items: &[T]) -> Vec<Vec<T>> {
        if items.is_empty() {
            return vec![vec![]];
        }
        let mut all = Vec::new();
        for at in 0..items.len() {
            let mut rest = items.to_vec();
            let first = rest.remove(at);
            all.extend(
                orders(&rest)
                    .into_iter()
                    .map(|order| [vec![first], order].concat()),
            );
        }
        all
    }

    fn events() -> impl Strategy<Value = Vec<(AgeStatus, i64)>> {
        prop::collection::vec((prop::sample::select(&AgeStatus::ALL), 0..4_i64), 1..7)
    }

    proptest! {
        #[test]
        fn every_order_ends_as_the_contract_says(events in events()) {
            let newest = events.iter().map(|(status, at)| (*at, *status)).max();
            let newest = newest.map(|(_, status)| status);
            for order in orders(&events) {
                let mut subject = record(AgeStatus::Pending, None);
                let mut expected = ("pending", None);
                for &(event, occurred) in &order {
                    let verdict = decide(subject, event, occurred);
                    let (outcome, next) = model(expected, event.name(), occurred);
                    prop_assert_eq!(name(verdict), outcome, "{:?} in {:?}", event, order);
                    expected = next;
                    if verdict == Verdict::Applied {
                        let before = (subject.last_occurred_us, subject.status);
                        prop_assert!(before < (Some(occurred), event), "nothing newer is undone");
                        subject = record(event, Some(occurred));
                    }
                    let state = (subject.status.name(), subject.last_occurred_us);
                    prop_assert_eq!(state, expected, "{:?}", order);
                }
                if newest == Some(AgeStatus::Revoked) {
                    prop_assert_eq!(subject.status, AgeStatus::Revoked, "{:?}", order);
                }
            }
        }
    }
}
