//! Tests of single decisions; the simulation judges the flow.

use super::*;
use crate::chance::Chance;
use crate::felt::Felt;
use crate::ledger::{IntentId, IntentState};
use crate::post::Answer;
use alloc::borrow::ToOwned as _;
use alloc::string::String;
use proptest::prelude::*;

const SECOND: i64 = 1_000_000;
const HOUR: i64 = 3_600 * SECOND;
const NOW: i64 = 1_800_000_000 * SECOND;
const HALF: Chance = Chance(1 << 31);

fn event(previous: Option<IntentState>, state: IntentState) -> Event {
    Event {
        hash: "0123456789abcdef".repeat(4),
        at_us: NOW + 999_999,
        write: IntentId(7),
        state,
        previous,
        block: None,
        detail: None,
        operation: "faucet-drip".to_owned(),
        subject: Some(Felt::from(5_u64)),
        signer: Felt::from(256_u64),
        nonce: 3,
        transaction_hash: Felt::from(10_u64),
    }
}

#[test]
fn what_becomes_of_a_write_is_an_event() {
    use IntentState::{Accepted, Displaced, Intended, Lost, Rejected, Reverted, Sent, Succeeded};
    for (previous, state, kind) in [
        (None, Intended, None),
        (Some(Intended), Sent, None),
        (Some(Sent), Accepted, None),
        (Some(Accepted), Succeeded, Some("write.succeeded")),
        (Some(Accepted), Reverted, Some("write.reverted")),
        (Some(Sent), Rejected, Some("write.rejected")),
        (Some(Succeeded), Displaced, Some("write.displaced")),
        (Some(Displaced), Accepted, Some("write.found")),
        (Some(Displaced), Succeeded, Some("write.succeeded")),
        (Some(Displaced), Lost, Some("write.lost")),
        (Some(Lost), Displaced, Some("write.displaced")),
        (Some(Lost), Succeeded, Some("write.succeeded")),
        // another block lists it
        (Some(Succeeded), Succeeded, Some("write.succeeded")),
    ] {
        let found = EventKind::of(previous, state).map(EventKind::name);
        assert_eq!(found, kind, "{previous:?} to {state:?}");
    }
}

#[test]
fn a_body_has_the_names_of_other_answers() {
    let found = Event {
        block: Some(12),
        ..event(Some(IntentState::Displaced), IntentState::Succeeded)
    };
    let expected = concat!(
        r#"{"type":"write.succeeded","timestamp":"2027-01-15T08:00:00Z","data":{"id":7,"#,
        r#""operation":"faucet-drip","state":"succeeded","previous_state":"displaced","#,
        r#""transaction_hash":"0xa","signer":"0x100","nonce":3,"subject":"0x5","block":12,"#,
        r#""detail":null}}"#
    );
    assert_eq!(found.body().as_deref(), Some(expected));
    assert_eq!(found.id(), "evt_0123456789abcdef0123456789abcdef");
    let none = event(Some(IntentState::Sent), IntentState::Accepted);
    assert_eq!(none.body(), None);
}

#[test]
fn only_two_hundreds_are_deliveries() {
    for (answer, longest) in [
        (Answer::Status(200), None),
        (Answer::Status(204), None),
        (Answer::Status(302), Some(7)),
        (Answer::Status(400), Some(7)),
        (Answer::Status(410), Some(4_500)),
        (Answer::Status(503), Some(7)),
        (Answer::Status(199), Some(7)),
        (Answer::None, Some(7)),
    ] {
        let settled = Attempts::default().settle(answer, NOW, Chance(u32::MAX));
        let wait = match settled {
            Settled::Later { due_us, .. } => Some((due_us - NOW) / SECOND),
            _ => None,
        };
        assert_eq!(settled == Settled::Delivered, longest.is_none());
        assert!(wait.unwrap_or(0) <= longest.unwrap_or(0), "{answer:?}");
        assert!(wait.unwrap_or(9) > longest.unwrap_or(0) / 2, "{answer:?}");
    }
}

/// Sends an event until it is given up; the attempts, and how long that took.
fn until_given_up(answer: Answer, chance: Chance) -> (u32, i64) {
    let (mut attempts, mut now) = (Attempts::default(), NOW);
    loop {
        match attempts.settle(answer, now, chance) {
            Settled::Later {
                attempts: next,
                due_us,
            } => {
                assert!(!DueTimes::at(now).has(due_us), "it waits");
                assert!(DueTimes::at(due_us).has(due_us));
                (attempts, now) = (next, due_us);
            }
            Settled::GivenUp => return (attempts.failed + 1, now - NOW),
            Settled::Delivered => panic!("{answer:?} is no delivery"),
        }
    }
}

#[test]
fn a_receiver_that_fails_is_tried_for_days() {
    for answer in [Answer::None, Answer::Status(500), Answer::Status(410)] {
        for chance in [Chance(0), HALF, Chance(u32::MAX)] {
            let (attempts, took) = until_given_up(answer, chance);
            let hours = took / HOUR;
            assert!((72..=73).contains(&hours), "{answer:?}: {hours} hours");
            assert!((57..=400).contains(&attempts), "{answer:?}: {attempts}");
        }
    }
}

#[test]
fn a_suspension_gives_no_event_up() {
    let attempts = Attempts {
        failed: 3,
        first_us: Some(NOW - 24 * 30 * HOUR),
    };
    let settled = attempts.settle(Answer::None, NOW, HALF);
    assert_eq!(settled.outcome(), EventOutcome::Failed);
}

#[test]
fn a_wrong_clock_delays_no_event() {
    // dated by a clock that was ahead by a year
    let ahead = NOW + 24 * 365 * HOUR;
    assert!(DueTimes::at(NOW).has(ahead), "it is due");
    let attempts = Attempts {
        failed: 1,
        first_us: Some(ahead),
    };
    let Settled::Later { attempts, due_us } = attempts.settle(Answer::None, NOW, HALF) else {
        panic!("it is sent again");
    };
    assert_eq!(attempts.first_us, Some(NOW), "it was never tried before");
    assert!(due_us < NOW + HOUR);
}

#[test]
fn a_receiver_that_is_back_hastens_all() {
    assert_eq!(Attempts::default().hastens(NOW), None, "it was never away");
    let failed = Attempts {
        failed: 9,
        first_us: Some(NOW - HOUR),
    };
    assert_eq!(failed.hastens(NOW), Some(NOW + 5 * SECOND));
}

#[test]
fn late_events_are_a_condition() {
    let mut failures = Failures::default();
    let backlog = |age_us: i64| Backlog {
        waiting: 1,
        oldest_us: Some(NOW - age_us),
    };
    let none = Backlog::default();
    assert_eq!(failures.trouble(&none, NOW), None);
    assert_eq!(failures.trouble(&backlog(59 * SECOND), NOW), None);
    let late = failures.trouble(&backlog(61 * SECOND), NOW);
    assert_eq!(late, Some(Trouble::Late));
    failures.note(EventOutcome::Failed, NOW);
    assert_eq!(failures.trouble(&none, NOW), None);
    failures.note(EventOutcome::GivenUp, NOW);
    failures.note(EventOutcome::Delivered, NOW);
    let given_up = Some(Trouble::GivenUp);
    assert_eq!(failures.trouble(&none, NOW + 23 * HOUR), given_up);
    assert_eq!(failures.trouble(&none, NOW + 25 * HOUR), None);
}

proptest! {
    /// Whatever the clocks show, an event that is not delivered is due within two hours.
    #[test]
    fn an_event_is_due_within_two_hours(
        failed: u32,
        first_us in proptest::option::of(any::<i64>()),
        status in 0_u16..=599,
        now_us in 0..i64::MAX / 2,
        later_us in 0..i64::MAX / 2,
        chance: u32,
    ) {
        let attempts = Attempts { failed, first_us };
        let settled = attempts.settle(Answer::Status(status), now_us, Chance(chance));
        if let Settled::Later { due_us, attempts } = settled {
            prop_assert!(due_us > now_us);
            prop_assert!(attempts.failed > 0 && attempts.first_us <= Some(now_us));
            let is_due = (0..=2).any(|hours| DueTimes::at(later_us + hours * HOUR).has(due_us));
            prop_assert!(is_due, "due at {due_us}, and it is {later_us}");
        }
    }

    /// A body is JSON, with the same text each time.
    #[test]
    fn a_body_is_json(detail: String, operation: String) {
        let event = Event {
            detail: Some(detail.clone()),
            operation,
            ..event(None, IntentState::Lost)
        };
        let body = event.body().expect("it is an event");
        let parsed: serde_json::Value = serde_json::from_str(&body).expect("JSON");
        prop_assert_eq!(parsed["data"]["detail"].as_str(), Some(&*detail));
        prop_assert_eq!(event.body(), Some(body));
    }
}
