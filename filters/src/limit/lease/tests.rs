//! Leases: when they are renewed, what they report, and what they permit without the store.

use super::*;

const QUOTA: u32 = 180;
const TERMS: Terms = Terms::of_a_minute(Duration::from_secs(30));

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Exchanges a message with a store that grants and leaves this much.
fn exchange(lease: &mut Lease, now: Duration, granted: u32, left: u32) {
    let message = lease.message(now, &TERMS, || 0);
    let retry = seconds(60);
    lease.answer(
        &message,
        Granted {
            granted,
            left,
            retry,
        },
        now,
        TERMS.life,
    );
}

/// Sends a message to a store that has lost the record.
fn is_forgotten(lease: &mut Lease, now: Duration) {
    lease.message(now, &TERMS, || 0);
    lease.forgotten(now);
}

/// Sends a message that gets no answer.
fn is_unanswered(lease: &mut Lease, now: Duration) {
    lease.message(now, &TERMS, || 0);
    lease.release();
}

/// Requests that are admitted without the store at `now`, of many.
fn admitted_alone(lease: &mut Lease, now: Duration, instances: u32) -> u32 {
    let admits = |_: &u32| {
        lease.take_held(now, &TERMS) || lease.take_spare(now, &TERMS, instances) == Alone::Admitted
    };
    (0..2 * QUOTA).filter(admits).count() as u32
}

#[test]
fn a_store_that_empties_and_falls_silent_refuses_nobody_early() {
    type Fault = fn(&mut Lease, Duration);
    let cases: [(&str, &[Fault]); 5] = [
        ("it falls silent", &[is_unanswered]),
        (
            "it empties, then falls silent",
            &[is_forgotten, is_unanswered],
        ),
        (
            "it empties twice",
            &[is_forgotten, is_forgotten, is_unanswered],
        ),
        (
            "it empties, is silent, and empties again",
            &[is_forgotten, is_unanswered, is_forgotten, is_unanswered],
        ),
        ("it empties, and its connection ends", &[is_forgotten]),
    ];
    for (what, faults) in cases {
        for instances in [1, 3] {
            let (mut lease, start) = (Lease::default(), seconds(1_000));
            exchange(&mut lease, start, 16, QUOTA - 16);
            (0..12).for_each(|_| assert!(lease.take_held(start, &TERMS), "{what}"));
            let mut now = start;
            for fault in faults {
                now += seconds(1);
                fault(&mut lease, now);
            }
            let part = (QUOTA - 16) / instances;
            assert_eq!(lease.remaining(), 4 + QUOTA - 16, "{what}");
            let admitted = admitted_alone(&mut lease, now, instances);
            assert_eq!(
                admitted,
                4 + part,
                "{what}, {instances}: what it held, and its part"
            );
            let refused = Alone::Refused(start + TERMS.window - now);
            assert_eq!(lease.take_spare(now, &TERMS, instances), refused, "{what}");
            let later = start + TERMS.window;
            assert_eq!(
                lease.take_spare(later, &TERMS, instances),
                Alone::Part,
                "{what}"
            );
        }
    }
}

#[test]
fn a_lease_of_the_whole_quota_outlives_the_record() {
    let (mut lease, start) = (Lease::default(), seconds(1_000));
    exchange(&mut lease, start, 10, 0);
    let now = start + seconds(1);
    is_forgotten(&mut lease, now);
    is_unanswered(&mut lease, now);
    assert_eq!(
        admitted_alone(&mut lease, now, 3),
        10,
        "nobody else may use it"
    );
}

#[test]
fn a_lease_that_is_over_is_not_revived() {
    let (mut lease, start) = (Lease::default(), seconds(1_000));
    exchange(&mut lease, start, 16, 0);
    let now = start + TERMS.life;
    lease.forgotten(now);
    assert_eq!(
        admitted_alone(&mut lease, now, 1),
        0,
        "the store counted it as used"
    );
}

#[test]
fn an_answer_of_the_emptied_store_replaces_what_was_left() {
    let (mut lease, start) = (Lease::default(), seconds(1_000));
    exchange(&mut lease, start, 16, QUOTA - 16);
    let now = start + seconds(1);
    is_forgotten(&mut lease, now);
    assert!(
        !lease.take_held(now, &TERMS),
        "what was granted waits for the next answer"
    );
    exchange(&mut lease, now, 8, 20);
    assert_eq!(lease.remaining(), 28);
    is_unanswered(&mut lease, now);
    assert_eq!(admitted_alone(&mut lease, now, 1), 28);
}

#[test]
fn instances_of_an_emptied_store_stay_within_the_quota() {
    let start = seconds(1_000);
    let mut leases: [Lease; 3] = Default::default();
    let mut left = QUOTA;
    for lease in &mut leases {
        left -= 16;
        exchange(lease, start, 16, left);
    }
    // the last answer to each reports all remaining requests
    leases
        .iter_mut()
        .for_each(|lease| exchange(lease, start, 16, left));
    let now = start + seconds(5);
    let admitted: u32 = leases
        .iter_mut()
        .map(|lease| {
            let held = (0..7).filter(|_| lease.take_held(now, &TERMS)).count() as u32;
            is_forgotten(lease, now);
            is_unanswered(lease, now);
            held + admitted_alone(lease, now, 3)
        })
        .sum();
    assert_eq!(admitted, QUOTA);
}

#[test]
fn a_lease_grows_with_the_quota() {
    for (want, quota, expected) in [(16, 180, 16), (16, 1_200, 100), (1, 1_200, 1)] {
        let terms = Terms { want, ..TERMS };
        assert_eq!(terms.with_quota(quota).want, expected, "{want} of {quota}");
    }
}

/// The decisions of a lease at this time.
fn steps(lease: &mut Lease, now: Duration, requests: usize) -> Vec<Step> {
    (0..requests).map(|_| lease.take(now, &TERMS)).collect()
}

const ADMITTED: Step = Step::Admitted { renews: false };

#[test]
fn a_lease_is_renewed_once_when_a_quarter_is_left() {
    let (mut lease, start) = (Lease::default(), seconds(1_000));
    exchange(&mut lease, start, 16, 100);
    assert_eq!(steps(&mut lease, start, 11), [ADMITTED; 11]);
    assert_eq!(
        steps(&mut lease, start, 1),
        [Step::Admitted { renews: true }]
    );
    assert_eq!(
        steps(&mut lease, start, 4),
        [ADMITTED; 4],
        "the message is under way"
    );
    assert_eq!(steps(&mut lease, start, 1), [Step::Waits { sends: false }]);
    lease.release();
    assert_eq!(steps(&mut lease, start, 1), [Step::Waits { sends: true }]);
    assert_eq!(steps(&mut lease, start, 1), [Step::Waits { sends: false }]);
}

#[test]
fn a_lease_is_not_renewed_in_vain() {
    let (mut lease, start) = (Lease::default(), seconds(1_000));
    exchange(&mut lease, start, 16, 0);
    assert_eq!(
        steps(&mut lease, start, 16),
        [ADMITTED; 16],
        "nothing else is left"
    );
    let mut single = Lease::default();
    exchange(&mut single, start, 1, 100);
    let step = single.take(start, &Terms { want: 1, ..TERMS });
    assert_eq!(step, ADMITTED, "each request asks for itself");
}

#[test]
fn a_refusal_lasts_until_more_may_be_left() {
    let (mut lease, start) = (Lease::default(), seconds(1_000));
    exchange(&mut lease, start, 0, 0);
    let short = Duration::from_millis(1);
    let until = start + seconds(60);
    assert_eq!(steps(&mut lease, until - short, 1), [Step::Refused(short)]);
    assert_eq!(steps(&mut lease, until, 1), [Step::Waits { sends: true }]);
}

#[test]
fn what_remains_is_known_while_the_answer_is_fresh() {
    let (mut lease, start) = (Lease::default(), seconds(1_000));
    let short = Duration::from_millis(1);
    assert_eq!(
        lease.known_remaining(start, &TERMS),
        None,
        "nothing was answered"
    );
    exchange(&mut lease, start, 16, 100);
    let over = start + TERMS.window;
    assert_eq!(lease.known_remaining(over - short, &TERMS), Some(116));
    assert_eq!(lease.known_remaining(over, &TERMS), None);
    let message = lease.message(start, &TERMS, || 0);
    let nothing = Granted {
        granted: 0,
        left: 0,
        retry: seconds(10),
    };
    lease.answer(&message, nothing, start, TERMS.life);
    let retry = start + seconds(10);
    assert_eq!(lease.known_remaining(retry - short, &TERMS), Some(0));
    assert_eq!(
        lease.known_remaining(retry, &TERMS),
        None,
        "more may be left"
    );
}

/// The uses that a message reports at this time.
fn reported(lease: &mut Lease, now: Duration) -> String {
    lease.message(now, &TERMS, || 0).uses
}

#[test]
fn requests_of_a_tenth_of_a_second_are_one_use() {
    let start = seconds(1_000);
    let at = |millis| start + Duration::from_millis(millis);
    let mut lease = Lease::default();
    [0, 99, 100, 250]
        .map(at)
        .into_iter()
        .for_each(|now| lease.record(now, &TERMS));
    assert_eq!(reported(&mut lease, at(250)), "1:151:2;1:150:1;1:0:1;");
    lease.record(at(260), &TERMS);
    assert_eq!(
        reported(&mut lease, at(260)),
        "1:161:2;1:160:1;1:10:1;2:0:1;",
        "a later message's"
    );
}

#[test]
fn a_use_is_forgotten_a_cell_after_the_window() {
    let start = seconds(1_000);
    let over = start + TERMS.window + TERMS.cell;
    for (now, uses) in [(over - MERGED, "1:60900:1;1:0:1;"), (over, "1:0:1;")] {
        let mut lease = Lease::default();
        lease.record(start, &TERMS);
        lease.record(now, &TERMS);
        assert_eq!(reported(&mut lease, now), uses);
    }
}

#[test]
fn a_use_is_reported_until_its_message_is_answered() {
    let (mut lease, start) = (Lease::default(), seconds(1_000));
    assert!(!lease.has_unreported());
    lease.record(start, &TERMS);
    let first = lease.message(start, &TERMS, || 0);
    lease.record(start, &TERMS);
    let second = lease.message(start, &TERMS, || 0);
    lease.record(start, &TERMS);
    assert_eq!((&*first.uses, &*second.uses), ("1:0:1;", "1:0:1;2:0:1;"));
    let granted = Granted {
        granted: 0,
        left: 1,
        retry: seconds(1),
    };
    lease.answer(&first, granted, start, TERMS.life);
    assert_eq!(reported(&mut lease, start), "2:0:1;3:0:1;");
    lease.answer(&second, granted, start, TERMS.life);
    assert!(lease.has_unreported(), "the third");
    assert_eq!(reported(&mut lease, start), "3:0:1;");
}

#[test]
fn an_acknowledgement_is_named_while_the_store_has_the_record() {
    let (mut lease, start) = (Lease::default(), seconds(1_000));
    exchange(&mut lease, start, 1, 1);
    let gone = start + TERMS.window - TERMS.cell;
    let acknowledged = |lease: &mut Lease, now| lease.message(now, &TERMS, || 0).acknowledged;
    assert_eq!(acknowledged(&mut lease, gone - Duration::from_millis(1)), 1);
    assert_eq!(acknowledged(&mut lease, gone), 0);
}

#[test]
fn a_forgotten_client_is_reported_as_far_as_it_was_admitted() {
    let (mut lease, start) = (Lease::default(), seconds(1_000));
    lease.forgotten(start);
    assert_eq!(reported(&mut lease, start), "", "nothing was");
    lease.record(start, &TERMS);
    for (recent, uses) in [(7, "2:0:7;"), (0, "3:0:7;")] {
        lease.forgotten(start);
        assert_eq!(lease.message(start, &TERMS, || recent).uses, uses);
    }
}
