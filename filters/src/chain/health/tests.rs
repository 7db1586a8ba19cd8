//! The health of one URL at chosen times; `tests/simulation/routing` has it among others.

use super::*;

const MS: Duration = Duration::from_millis(1);

fn at(ms: u32) -> Duration {
    MS * ms
}

/// A URL at which these calls fail, 100 ms apart.
fn failing(class: FailureClass, calls: u32) -> UrlHealth {
    let mut health = UrlHealth::default();
    for call in 0..calls {
        health.failed(Asked::Call, class, at(call * 100), at(call * 100 + 10));
    }
    health
}

fn class(health: &UrlHealth) -> Option<FailureClass> {
    health.fault().map(|fault| fault.class)
}

#[test]
fn three_failed_calls_leave_a_url_out() {
    for kind in FailureClass::ALL {
        assert_eq!(class(&failing(kind, 2)), None, "{kind:?}");
        let mut health = failing(kind, 3);
        let fault = health.fault().expect("it fails");
        assert_eq!((fault.class, fault.is_total), (kind, true));
        health.answered(Asked::Call, at(400), at(410));
        assert_eq!(class(&health), None, "{kind:?} is answered");
    }
}

#[test]
fn three_failed_polls_leave_a_url_out() {
    let mut health = UrlHealth::default();
    health.answered(Asked::Call, at(0), at(5));
    health.failed(Asked::Poll, FailureClass::Status, at(1_000), at(1_010));
    health.failed(Asked::Poll, FailureClass::Status, at(1_500), at(1_510));
    assert_eq!(class(&health), None);
    health.failed(Asked::Poll, FailureClass::Refused, at(2_000), at(2_010));
    assert_eq!(class(&health), Some(FailureClass::Refused));
    assert_eq!(
        health.standing(Asked::Call, Repeat::Safe, at(9_000)),
        Standing::LeftOut,
        "calls are not tried while polls fail"
    );
    health.answered(Asked::Poll, at(3_000), at(3_010));
    assert_eq!(class(&health), None);
}

#[test]
fn answered_polls_do_not_prove_calls() {
    let mut health = failing(FailureClass::Internal, 3);
    for second in 1..60 {
        health.answered(Asked::Poll, at(second * 1_000), at(second * 1_000 + 5));
        let fault = health.fault().expect("its calls still fail");
        assert!(!fault.is_total, "it answers polls");
    }
    health.answered(Asked::Poll, at(60_300), at(60_305));
    assert_eq!(class(&health), None, "nobody has called for a minute");
}

#[test]
fn polls_that_failed_alike_prove_calls() {
    let mut health = failing(FailureClass::Status, 3);
    for second in 1..4 {
        health.failed(
            Asked::Poll,
            FailureClass::Status,
            at(second * 1_000),
            at(second * 1_000 + 5),
        );
    }
    health.answered(Asked::Poll, at(4_000), at(4_010));
    assert_eq!(class(&health), None);
    let mut health = failing(FailureClass::Unreachable, 3);
    health.answered(Asked::Poll, at(1_000), at(1_010));
    assert_eq!(class(&health), None, "there is a connection again");
}

#[test]
fn one_read_a_second_is_tried() {
    let mut health = failing(FailureClass::Internal, 3);
    let now = at(1_000);
    assert_eq!(
        health.standing(Asked::Call, Repeat::Never, now),
        Standing::LeftOut
    );
    let poll = health.standing(Asked::Poll, Repeat::Safe, now);
    assert_eq!(poll, Standing::LeftOut, "it proves nothing about calls");
    assert_eq!(
        health.standing(Asked::Call, Repeat::Safe, now),
        Standing::Serves
    );
    assert_eq!(
        health.standing(Asked::Call, Repeat::Safe, at(1_999)),
        Standing::LeftOut
    );
    assert_eq!(
        health.standing(Asked::Call, Repeat::Safe, at(2_000)),
        Standing::Serves
    );
}

#[test]
fn one_client_cannot_take_a_url_away() {
    for (kind, counts) in [
        (FailureClass::Internal, false),
        (FailureClass::Limited, false),
        (FailureClass::Timeout, false),
        (FailureClass::Status, true),
        (FailureClass::Unreachable, true),
    ] {
        let mut health = UrlHealth::default();
        health.answered(Asked::Call, at(20), at(30));
        for _ in 0..9 {
            health.failed(Asked::Call, kind, at(10), at(40));
        }
        assert_eq!(health.fault().is_some(), counts, "{kind:?}");
    }
}

#[test]
fn an_answered_call_ends_stale_polls() {
    let mut health = UrlHealth::default();
    for second in 1..4 {
        health.failed(
            Asked::Poll,
            FailureClass::Timeout,
            at(second * 1_000),
            at(second * 1_000),
        );
    }
    health.answered(Asked::Call, at(4_000), at(4_001));
    assert!(health.fault().is_some(), "polls failed just now");
    health.answered(Asked::Call, at(8_500), at(8_501));
    assert_eq!(class(&health), None, "there are no polls any more");
}
