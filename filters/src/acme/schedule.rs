//! Decides when to order, renew or retry a certificate. Pure: time and chance are arguments.
//!
//! In: the stored certificate, the authority's suggestion and the outcome of attempts. Out: a
//! step, and after a failure the time of the next attempt. Times are seconds since 1970.

use super::failure::Class;
use crate::certificate::Validity;
use crate::chance::Chance;
use serde::{Deserialize, Serialize};

/// Delays after attempts without an answer, doubled from 5 s to 10 min: no authority counts them.
const UNREACHABLE: [u64; 2] = [5, 600];
/// Delays after refused attempts, doubled from 5 min to 6 h: Let's Encrypt permits 5 failed
/// validations of a name per hour, and even the last third of a 6-day certificate has time for
/// several.
const REFUSED: [u64; 2] = [300, 6 * 3_600];
/// Cap on an authority's `Retry-After`: Let's Encrypt's longest rate limit is that of a week.
pub const LONGEST: u64 = 7 * 24 * 3_600;
/// Shortest and longest rest between certificates that are due too early, otherwise a third of
/// their lifetime: with it a week has at most five, which Let's Encrypt permits for a set of names.
const EARLY: [u64; 2] = [300, 2 * 24 * 3_600];
/// Attempts that may find an order unchanged before another one is placed.
const UNCHANGED: u32 = 2;

/// The time within which the authority suggests a renewal: RFC 9773, section 4.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window {
    /// Its first second.
    pub start: u64,
    /// Its end.
    pub end: u64,
}

/// The last certificate that an authority issued for a set of domains, whether it is used or not.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct LastIssue {
    /// When it was issued, by the clock here.
    pub at: u64,
    /// Its lifetime in seconds.
    pub lifetime: u64,
    /// How many certificates in a row before it were replaced early.
    pub early: u32,
}

impl LastIssue {
    /// The record of a certificate that is issued now, after this one.
    pub(super) fn then(last: Option<Self>, lifetime: u64, now: u64) -> Self {
        let early = match last {
            Some(last) if last.is_early(now) => last.early.saturating_add(1),
            _ => 0,
        };
        Self {
            at: now,
            lifetime,
            early,
        }
    }

    /// Whether another one would be early: a renewal follows after two thirds of the lifetime.
    fn is_early(self, now: u64) -> bool {
        // a clock that was ahead must not stop orders for years
        self.at <= now.saturating_add(LONGEST) && now < self.at.saturating_add(self.lifetime / 2)
    }

    /// Earliest time of the next order. The first one may be early: an authority that revokes a
    /// certificate wants it replaced at once.
    fn next(self, now: u64) -> u64 {
        match self.early {
            0 => 0,
            _ if self.is_early(now) => {
                let [shortest, longest] = EARLY;
                self.at
                    .saturating_add((self.lifetime / 3).clamp(shortest, longest))
            }
            _ => 0,
        }
    }
}

/// The facts that decide the next step.
#[derive(Clone, Copy, Debug)]
pub(super) struct Facts {
    /// The stored certificate, if it can be used.
    pub(super) held: Option<Validity>,
    /// The suggestion of its authority.
    pub(super) window: Option<Window>,
    /// Earliest time of the next attempt, after a failure.
    pub(super) retry_at: Option<u64>,
    /// The last certificate; `None` while an order is under way, which may be finished.
    pub(super) last: Option<LastIssue>,
    /// Fixed for each certificate, so that its renewal time does not move.
    pub(super) chance: Chance,
}

/// The next step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Order a certificate, or continue an order.
    Order,
    /// The last attempt failed: the next one is at this time.
    Retry(u64),
    /// The certificate is due, but so soon after its issue that no other is ordered before this
    /// time: the authority's clock or this one is wrong, or its renewal information.
    Rest(u64),
    /// Nothing is due until this time, when the certificate is renewed.
    Keep(u64),
}

/// Decides the next step.
pub(super) fn next(facts: &Facts, now: u64) -> Step {
    let due = due(facts);
    if due > now {
        return Step::Keep(due);
    }
    let retry = credible(facts.retry_at, now).unwrap_or(0);
    let rest = facts.last.map_or(0, |last| last.next(now));
    if rest > now.max(retry) {
        return Step::Rest(rest);
    }
    if retry > now {
        return Step::Retry(retry);
    }
    Step::Order
}

/// The time of the next attempt, unless the clock that set it was ahead: that must not stop
/// attempts for years.
pub(super) fn credible(retry_at: Option<u64>, now: u64) -> Option<u64> {
    match retry_at {
        Some(at) if at <= now.saturating_add(LONGEST) => Some(at),
        _ => None,
    }
}

/// When a certificate is due; at once without one.
pub(super) fn due(facts: &Facts) -> u64 {
    facts
        .held
        .map_or(0, |held| renewal(held, facts.window, facts.chance))
}

/// When to renew a certificate: within the authority's window, otherwise after two thirds of the
/// lifetime plus at most a fiftieth, which spreads the instances. At the latest a tenth of the
/// lifetime before the end.
fn renewal(held: Validity, window: Option<Window>, chance: Chance) -> u64 {
    let lifetime = held.lifetime();
    let latest = held.not_after.saturating_sub(lifetime / 10);
    let at = match window.filter(|window| window.start < window.end) {
        Some(Window { start, end }) => start.saturating_add(chance.of(end.saturating_sub(start))),
        None => {
            let two_thirds = lifetime.saturating_sub(lifetime / 3);
            held.not_before
                .saturating_add(two_thirds)
                .saturating_add(chance.of(lifetime / 50))
        }
    };
    at.min(latest)
}

/// When to try again after `failed` failures, the last of this class. The authority's `Retry-After`
/// is obeyed up to a week.
pub(super) fn retry_at(
    now: u64,
    failed: u32,
    class: Class,
    retry_after: Option<u64>,
    chance: Chance,
) -> u64 {
    let [first, longest] = match class {
        Class::Unreachable => UNREACHABLE,
        Class::Refused => REFUSED,
    };
    let doubled = first.saturating_mul(1 << failed.saturating_sub(1).min(16));
    let delay = doubled.min(longest);
    // 75 to 125 % of it
    let delay = delay
        .saturating_sub(delay / 4)
        .saturating_add(chance.of(delay / 2));
    let asked = retry_after.map_or(0, |after| after.min(LONGEST));
    now.saturating_add(delay.max(asked))
}

/// An order after an attempt that failed.
#[derive(Clone, Copy, Debug)]
pub(super) struct Stuck {
    /// Whether finalizing, downloading or installing it failed for good.
    pub(super) is_final: bool,
    /// Consecutive attempts that found it unchanged.
    pub(super) unchanged: u32,
    /// When the authority forgets it.
    pub(super) expires: Option<u64>,
}

/// Whether the next attempt places a new order instead.
pub(super) fn is_abandoned(order: Stuck, now: u64) -> bool {
    order.is_final
        || order.unchanged >= UNCHANGED
        || order.expires.is_some_and(|expires| expires <= now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const DAY: u64 = 24 * 3_600;
    const BEGIN: u64 = 1_700_000_000;

    fn lasting(days: u64) -> Option<Validity> {
        Some(Validity {
            not_before: BEGIN,
            not_after: BEGIN + days * DAY,
        })
    }

    fn facts(held: Option<Validity>) -> Facts {
        Facts {
            held,
            window: None,
            retry_at: None,
            last: None,
            chance: Chance(0),
        }
    }

    #[test]
    fn an_order_that_cannot_succeed_is_abandoned() {
        let stuck = |is_final, unchanged, expires| Stuck {
            is_final,
            unchanged,
            expires,
        };
        for (order, expected) in [
            (stuck(false, 0, None), false),
            (stuck(false, 1, Some(BEGIN + 1)), false),
            (stuck(false, 2, Some(BEGIN + 1)), true),
            (stuck(false, 0, Some(BEGIN)), true),
            (stuck(true, 0, None), true),
        ] {
            assert_eq!(is_abandoned(order, BEGIN), expected, "{order:?}");
        }
    }

    /// Whatever is due at once, as with a clock that is ahead or a window that has passed.
    #[test]
    fn a_week_has_at_most_five_early_certificates() {
        for (days, expected) in [(90, 5), (6, 5), (398, 5)] {
            let (mut now, mut last, mut orders) = (BEGIN, None, 0);
            while now < BEGIN + 7 * DAY {
                let always_due = Facts {
                    last,
                    ..facts(None)
                };
                match next(&always_due, now) {
                    Step::Order => {
                        last = Some(LastIssue::then(last, days * DAY, now));
                        orders += 1;
                        now += 2;
                    }
                    Step::Rest(at) => now = at,
                    other => unreachable!("{other:?}"),
                }
            }
            assert!(orders <= expected, "{days} days: {orders}");
        }
    }

    #[test]
    fn a_certificate_that_lasted_permits_the_next() {
        let last = |early| {
            Some(LastIssue {
                at: BEGIN,
                lifetime: 90 * DAY,
                early,
            })
        };
        for (last, at, expected) in [
            (last(0), BEGIN + 1, Step::Order),
            (last(1), BEGIN + 1, Step::Rest(BEGIN + 2 * DAY)),
            (last(9), BEGIN + 45 * DAY, Step::Order),
            (last(9), BEGIN - 8 * DAY, Step::Order),
        ] {
            let facts = Facts {
                last,
                ..facts(None)
            };
            assert_eq!(next(&facts, at), expected, "{last:?} at {at}");
        }
        let again = LastIssue::then(last(3), DAY, BEGIN + 60 * DAY);
        assert_eq!(again.early, 0, "the row has ended");
        assert_eq!(LastIssue::then(last(3), DAY, BEGIN + DAY).early, 4);
    }

    #[test]
    fn a_renewal_is_due_after_two_thirds() {
        for (days, due) in [(90, 60), (6, 4), (398, 0)] {
            let due = if due == 0 {
                days * DAY - days * DAY / 3
            } else {
                due * DAY
            };
            let facts = facts(lasting(days));
            assert_eq!(next(&facts, BEGIN), Step::Keep(BEGIN + due), "{days} days");
            assert_eq!(
                next(&facts, BEGIN + due - 1),
                Step::Keep(BEGIN + due),
                "{days} days"
            );
            assert_eq!(next(&facts, BEGIN + due), Step::Order, "{days} days");
        }
    }

    #[test]
    fn without_a_certificate_one_is_ordered_at_once() {
        assert_eq!(next(&facts(None), 0), Step::Order);
        assert_eq!(next(&facts(None), u64::MAX), Step::Order);
    }

    #[test]
    fn the_window_of_the_authority_decides() {
        let half = Chance(1 << 31);
        for (start, end, expected, why) in [
            (10, 20, Step::Keep(BEGIN + 15 * DAY), "within the window"),
            (
                0,
                2,
                Step::Order,
                "a window that has passed: the certificate is revoked",
            ),
            (
                20,
                10,
                Step::Keep(BEGIN + 60 * DAY + 9 * DAY / 10),
                "an invalid window is ignored",
            ),
            (
                200,
                300,
                Step::Keep(BEGIN + 81 * DAY),
                "never after the end",
            ),
        ] {
            let window = Some(Window {
                start: BEGIN + start * DAY,
                end: BEGIN + end * DAY,
            });
            let facts = Facts {
                window,
                chance: half,
                ..facts(lasting(90))
            };
            assert_eq!(next(&facts, BEGIN + 5 * DAY), expected, "{why}");
        }
    }

    #[test]
    fn a_failure_postpones_the_next_attempt() {
        let failed = Facts {
            retry_at: Some(BEGIN + 300),
            ..facts(None)
        };
        assert_eq!(next(&failed, BEGIN), Step::Retry(BEGIN + 300));
        assert_eq!(next(&failed, BEGIN + 300), Step::Order);
        let years = Facts {
            retry_at: Some(BEGIN + 900 * DAY),
            ..facts(None)
        };
        assert_eq!(next(&years, BEGIN), Step::Order, "the clock was set back");
        let replaced = Facts {
            held: lasting(90),
            ..failed
        };
        let expected = Step::Keep(BEGIN + 60 * DAY);
        assert_eq!(
            next(&replaced, BEGIN),
            expected,
            "the certificate is there by now"
        );
    }

    #[test]
    fn delays_double_up_to_a_bound() {
        use Class::{Refused, Unreachable};
        let middle = Chance(1 << 31);
        for (failed, class, asked, expected) in [
            (1, Unreachable, None, 5),
            (2, Unreachable, None, 10),
            (9, Unreachable, None, 600),
            (1, Refused, None, 300),
            (3, Refused, None, 1_200),
            (u32::MAX, Refused, None, 21_600),
            (1, Refused, Some(86_400), 86_400),
            (1, Refused, Some(u64::MAX), LONGEST),
            (5, Refused, Some(1), 4_800),
        ] {
            let at = retry_at(BEGIN, failed, class, asked, middle);
            let delay = at - BEGIN;
            assert!(
                delay.abs_diff(expected) <= 1,
                "{failed} {class:?} {asked:?}: {delay}"
            );
        }
    }

    /// Let's Encrypt: 5 failed validations of a name per account and hour.
    #[test]
    fn an_hour_has_at_most_five_refused_attempts() {
        for chance in [0, 1 << 31, u32::MAX].map(Chance) {
            let (mut at, mut within) = (BEGIN, 0);
            for failed in 1.. {
                if at >= BEGIN + 3_600 {
                    break;
                }
                within += 1;
                at = retry_at(at, failed, Class::Refused, None, chance);
            }
            assert!(within <= 5, "{chance:?}: {within}");
        }
    }

    proptest! {
        #[test]
        fn a_valid_certificate_is_renewed_before_its_end(
            lifetime in 60_u64..400 * DAY,
            start in 0_u64..800 * DAY,
            length in 0_u64..400 * DAY,
            chance in any::<u32>(),
        ) {
            let held = Validity { not_before: BEGIN, not_after: BEGIN + lifetime };
            let window = Some(Window { start: BEGIN + start, end: BEGIN + start + length });
            for window in [None, window] {
                let at = renewal(held, window, Chance(chance));
                prop_assert!(at < held.not_after, "{at}");
                prop_assert!(window.is_some() || at >= BEGIN + lifetime / 2);
            }
        }

        #[test]
        fn an_attempt_is_never_further_than_a_week(
            now in 0_u64..1 << 40,
            failed in 1_u32..,
            is_refused in any::<bool>(),
            asked in proptest::option::of(any::<u64>()),
            chance in any::<u32>(),
        ) {
            let class = if is_refused { Class::Refused } else { Class::Unreachable };
            let at = retry_at(now, failed, class, asked, Chance(chance));
            prop_assert!(at > now && at <= now + LONGEST, "{at}");
            prop_assert!(asked.is_none_or(|asked| at >= now + asked.min(LONGEST)));
        }
    }
}
