//! The changes of an event, the number of sessions that a user may open, and the status shown.

use super::*;
use proptest::prelude::*;

const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const CONTENT: [u8; 32] = [7; 32];
const CLOCK: AgeClock = AgeClock {
    now_us: NOON,
    validity_us: 24 * HOUR,
};

fn at(status: AgeStatus, last_occurred_us: Option<i64>) -> AgeRecord {
    AgeRecord {
        status,
        last_occurred_us,
    }
}

#[test]
fn a_stored_event_is_never_decided_again() {
    let event = signed(verified().to_string()).unwrap();
    let subject = Some(at(AgeStatus::Pending, None));
    for outcome in Verdict::ALL {
        let state = AgeStatus::Rejected;
        for (digest, expected) in [
            (event.digest(), EventOutcome::Duplicate { outcome, state }),
            (CONTENT, EventOutcome::Conflict),
        ] {
            let stored = Some(StoredEvent {
                digest,
                outcome,
                status_after: state,
            });
            for subject in [subject, None] {
                let facts = EventFacts {
                    stored,
                    subject,
                    others: Vec::new(),
                };
                let recording = record(&event, &facts, CLOCK);
                assert_eq!(recording, Recording::Refuse(expected));
                assert_eq!(recording.outcome(), expected);
            }
        }
    }
}

#[test]
fn an_event_without_a_session_is_not_stored() {
    let event = signed(verified().to_string()).unwrap();
    let recording = record(&event, &EventFacts::default(), CLOCK);
    assert_eq!(recording, Recording::Refuse(EventOutcome::UnknownSubject));
}

#[test]
fn only_an_applied_event_changes_its_subject() {
    use AgeStatus::{Pending, Rejected, Revoked, Verified};
    let event = signed(verified().to_string()).unwrap();
    for (subject, outcome, after, why) in [
        (
            at(Pending, None),
            EventOutcome::Applied(Verified),
            Verified,
            "the first",
        ),
        (
            at(Rejected, Some(NOON + 1)),
            EventOutcome::Stale,
            Rejected,
            "it is late",
        ),
        (
            at(Revoked, Some(NOON - 1)),
            EventOutcome::Invalid,
            Revoked,
            "it is over",
        ),
    ] {
        let facts = EventFacts {
            stored: None,
            subject: Some(subject),
            others: vec![report(Rejected, NOON + 2)],
        };
        let recording = record(&event, &facts, CLOCK);
        assert_eq!(recording.outcome(), outcome, "{why}");
        let Recording::Store {
            status_after, user, ..
        } = recording
        else {
            panic!("{why}: {recording:?}");
        };
        assert_eq!(status_after, after, "{why}");
        let is_applied = matches!(outcome, EventOutcome::Applied(_));
        let expected = is_applied.then(|| AgeReport::of(&event));
        assert_eq!(user, expected, "{why}: another attempt takes nothing away");
    }
}

fn report(status: AgeStatus, occurred_us: i64) -> AgeReport {
    let is_verified = status == AgeStatus::Verified;
    AgeReport {
        status,
        occurred_us,
        age_band: is_verified.then(|| "18_plus".to_owned()),
        verified_us: is_verified.then_some(occurred_us),
        expires_us: None,
    }
}

/// The status that a user with these reports is shown.
fn shown(reports: &[AgeReport], now_us: i64) -> Option<AgeStatus> {
    let clock = AgeClock { now_us, ..CLOCK };
    AgeUser::shown(reports, &[], clock).map(|user| user.status)
}

#[test]
fn a_verification_holds_until_its_own_end() {
    use AgeStatus::{Expired, Pending, Rejected, Revoked, Verified};
    let proof = || report(Verified, NOON);
    for other in [Pending, Rejected, Expired, Revoked] {
        for later in [-HOUR, 0, HOUR] {
            let reports = [proof(), report(other, NOON + later)];
            let why = format!("{other:?} of another reference, {later} later");
            assert_eq!(shown(&reports, NOON + HOUR), Some(Verified), "{why}");
            let end = NOON + 24 * HOUR;
            assert_eq!(shown(&reports, end - 1), Some(Verified), "{why}");
            let after = if later < 0 || (later == 0 && other < Verified) {
                Expired
            } else {
                other
            };
            assert_eq!(shown(&reports, end), Some(after), "{why}, past its end");
        }
    }
    let longer = AgeReport {
        expires_us: Some(NOON + 48 * HOUR),
        ..report(Verified, NOON - HOUR)
    };
    let user = AgeUser::shown(&[longer, proof()], &[], CLOCK).unwrap();
    assert_eq!(user.expires_us, Some(NOON + 48 * HOUR), "the longest");
}

/// Every order of these items.
fn orders<T: Clone>(items: &[T]) -> Vec<Vec<T>> {
    if items.is_empty() {
        return vec![vec![]];
    }
    let mut all = Vec::new();
    for at in 0..items.len() {
        let mut rest = items.to_vec();
        let first = rest.remove(at);
        for order in orders(&rest) {
            all.push([vec![first.clone()], order].concat());
        }
    }
    all
}

fn reports() -> impl Strategy<Value = Vec<AgeReport>> {
    let one = (
        prop::sample::select(&AgeStatus::ALL),
        0..3_i64,
        prop::option::of(1..4_i64),
    );
    let one = one.prop_map(|(status, at, end)| AgeReport {
        expires_us: end.map(|end| NOON + end * HOUR),
        ..report(status, NOON + at * HOUR)
    });
    prop::collection::vec(one, 1..7)
}

proptest! {
    /// The reports of up to six references count the same in every order, and what is shown is
    /// what the rules say, one after another.
    #[test]
    fn a_user_s_status_ignores_the_order(reports in reports(), hours in 0..30_i64) {
        let clock = AgeClock { now_us: NOON + hours * HOUR, ..CLOCK };
        let ends = |one: &AgeReport| one.expires_us.unwrap_or(one.occurred_us + 24 * HOUR);
        let holds = |one: &AgeReport| {
            one.status == AgeStatus::Verified && ends(one) > clock.now_us
        };
        let newest = reports.iter().map(|one| (one.occurred_us, one.status)).max();
        let expected = match newest {
            _ if reports.iter().any(holds) => Some(AgeStatus::Verified),
            Some((_, AgeStatus::Verified)) => Some(AgeStatus::Expired),
            newest => newest.map(|(_, status)| status),
        };
        let first = AgeUser::shown(&reports, &[], clock);
        prop_assert_eq!(first.as_ref().map(|user| user.status), expected);
        for order in orders(&reports) {
            prop_assert_eq!(&AgeUser::shown(&order, &[], clock), &first, "{:?}", order);
        }
    }
}

/// An event: its reference, its status, and when it occurred.
type Event = (usize, AgeStatus, i64);

/// The status of a user with three references after these events.
fn after(events: &[Event]) -> Option<AgeUser> {
    let mut references = [const { None }; 3];
    for (of, status, hours) in events {
        let occurred_us = NOON + hours * HOUR;
        let known: &mut Option<AgeReport> = &mut references[*of];
        let subject = known
            .as_ref()
            .map_or(at(AgeStatus::Pending, None), |report| {
                at(report.status, Some(report.occurred_us))
            });
        if decide(subject, *status, occurred_us) == Verdict::Applied {
            *known = Some(report(*status, occurred_us));
        }
    }
    let reports: Vec<_> = references.into_iter().flatten().collect();
    AgeUser::shown(&reports, &[], CLOCK)
}

/// Whether the events of each reference are in this order.
fn keeps(order: &[usize], events: &[Event]) -> bool {
    (0..3).all(|reference| {
        order
            .iter()
            .filter(|at| events[**at].0 == reference)
            .is_sorted()
    })
}

proptest! {
    /// Up to six events end in one state, whenever those of other references arrive. Of one
    /// reference, the contract refuses some events after others.
    #[test]
    fn references_may_report_in_any_order(
        events in prop::collection::vec(
            (0..3_usize, prop::sample::select(&AgeStatus::ALL), 0..4_i64), 1..7),
    ) {
        let expected = after(&events);
        let numbers: Vec<_> = (0..events.len()).collect();
        for order in orders(&numbers).iter().filter(|order| keeps(order, &events)) {
            let arrived: Vec<_> = order.iter().map(|at| events[*at]).collect();
            prop_assert_eq!(&after(&arrived), &expected, "{:?}", arrived);
        }
    }
}

fn session(created_us: i64, life_us: i64) -> AgeSession {
    AgeSession {
        created_us,
        expires_us: created_us + life_us,
        last_occurred_us: None,
    }
}

/// Until when a user with these sessions waits, from noon.
fn wait(sessions: &[AgeSession]) -> Option<i64> {
    match Opening::decide(sessions, NOON, NOON + HOUR) {
        Opening::Opened => None,
        Opening::TooMany { retry_at_us } => Some(retry_at_us - NOON),
    }
}

#[test]
fn five_sessions_fit_into_a_minute() {
    let answered = |at_us: i64| AgeSession {
        last_occurred_us: Some(0),
        ..session(NOON + at_us, HOUR)
    };
    for (count, at_us, expected, why) in [
        (4, 0, None, "four"),
        (5, 0, Some(MINUTE), "five"),
        (5, -SECOND, Some(MINUTE - SECOND), "a second ago"),
        (5, -MINUTE, None, "a minute ago"),
        (5, 1 - MINUTE, Some(1), "almost a minute ago"),
        (5, MINUTE, Some(MINUTE), "dated ahead"),
        (5, MINUTE + 1, None, "dated further ahead"),
    ] {
        assert_eq!(wait(&vec![answered(at_us); count]), expected, "{why}");
    }
}

#[test]
fn ten_sessions_may_wait() {
    let old = |left_us: i64| session(NOON - HOUR, HOUR + left_us);
    let answered = AgeSession {
        last_occurred_us: Some(0),
        ..old(SECOND)
    };
    let ahead = |at_us: i64, life_us: i64| session(NOON + at_us, life_us);
    for (ten, expected, why) in [
        (old(5), Some(5), "until the first ends"),
        (old(1), Some(1), "almost over"),
        (old(0), None, "over"),
        (answered, None, "answered"),
        (old(2 * HOUR), Some(HOUR), "no longer than a new one"),
        (
            ahead(2 * MINUTE, 2 * MINUTE),
            Some(4 * MINUTE),
            "dated ahead by its life",
        ),
        (
            ahead(2 * MINUTE + 1, 2 * MINUTE),
            None,
            "dated further ahead",
        ),
    ] {
        assert_eq!(wait(&[ten; 10]), expected, "{why}");
        assert_eq!(wait(&[ten; 9]), None, "{why}, nine");
    }
    let mut both = vec![old(5); 10];
    both.extend([session(NOON, HOUR); 5]);
    assert_eq!(
        wait(&both),
        Some(MINUTE),
        "the limit that ends later counts"
    );
}

#[test]
fn a_user_is_pending_while_a_session_waits() {
    let status = |sessions: &[AgeSession]| {
        AgeUser::shown(&[], sessions, CLOCK).map(|user| (user.status, user.age_band))
    };
    assert_eq!(status(&[]), None);
    assert_eq!(status(&[session(NOON - HOUR, HOUR)]), None, "it is over");
    let pending = Some((AgeStatus::Pending, None));
    assert_eq!(
        status(&[session(NOON - HOUR, HOUR), session(NOON, HOUR)]),
        pending
    );
}
