//! The changes of an event, the number of sessions that a user may open, and the status shown.

use super::*;

const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;
const CONTENT: [u8; 32] = [7; 32];

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
                    user: None,
                };
                let recording = record(&event, &facts);
                assert_eq!(recording, Recording::Refuse(expected));
                assert_eq!(recording.outcome(), expected);
            }
        }
    }
}

#[test]
fn an_event_without_a_session_is_not_stored() {
    let event = signed(verified().to_string()).unwrap();
    let recording = record(&event, &EventFacts::default());
    assert_eq!(recording, Recording::Refuse(EventOutcome::UnknownSubject));
}

#[test]
fn only_an_applied_event_changes_its_subject() {
    use AgeStatus::{Pending, Rejected, Revoked, Verified};
    let event = signed(verified().to_string()).unwrap();
    for (subject, user, outcome, after, moves, why) in [
        (
            at(Pending, None),
            None,
            EventOutcome::Applied(Verified),
            Verified,
            true,
            "the first",
        ),
        (
            at(Rejected, Some(NOON - 1)),
            Some(at(Rejected, Some(NOON + 1))),
            EventOutcome::Applied(Verified),
            Verified,
            false,
            "another session has a newer one",
        ),
        (
            at(Rejected, Some(NOON + 1)),
            Some(at(Rejected, Some(NOON - 1))),
            EventOutcome::Stale,
            Rejected,
            false,
            "it is late",
        ),
        (
            at(Revoked, Some(NOON - 1)),
            None,
            EventOutcome::Invalid,
            Revoked,
            false,
            "it is over",
        ),
    ] {
        let facts = EventFacts {
            stored: None,
            subject: Some(subject),
            user,
        };
        let recording = record(&event, &facts);
        let Recording::Store {
            status_after,
            moves_user,
            ..
        } = recording
        else {
            panic!("{why}: {recording:?}");
        };
        assert_eq!(recording.outcome(), outcome, "{why}");
        assert_eq!((status_after, moves_user), (after, moves), "{why}");
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
        AgeUser::shown(None, sessions, NOON).map(|user| (user.status, user.age_band))
    };
    assert_eq!(status(&[]), None);
    assert_eq!(status(&[session(NOON - HOUR, HOUR)]), None, "it is over");
    let pending = Some((AgeStatus::Pending, None));
    assert_eq!(
        status(&[session(NOON - HOUR, HOUR), session(NOON, HOUR)]),
        pending
    );
}

#[test]
fn a_proof_past_its_end_is_expired() {
    let user = |status, expires_us| AgeUser {
        status,
        age_band: Some("18_plus".to_owned()),
        verified_us: Some(NOON - HOUR),
        expires_us,
    };
    for (stored, end, shown) in [
        (AgeStatus::Verified, Some(NOON + 1), AgeStatus::Verified),
        (AgeStatus::Verified, Some(NOON), AgeStatus::Expired),
        (AgeStatus::Verified, None, AgeStatus::Verified),
        (AgeStatus::Revoked, Some(NOON), AgeStatus::Revoked),
    ] {
        let waiting = [session(NOON, HOUR)];
        let expected = Some(user(shown, end));
        assert_eq!(
            AgeUser::shown(Some(user(stored, end)), &waiting, NOON),
            expected
        );
    }
}
