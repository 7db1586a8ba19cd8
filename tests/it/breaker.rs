//! The circuit breaker of a URL by itself, at chosen times; `node_time` has it on the wire.

use portcullis_edge::node::NodeError;
use portcullis_edge::node::{BREAKER_PAUSE, Breaker, CallFailure};
use tokio::time::Instant;

const DOWN: Option<CallFailure> = Some(CallFailure::Connect);

#[test]
fn three_failures_open_it_and_one_probe_closes_it() {
    let breaker = Breaker::default();
    let start = Instant::now();
    for failure in [DOWN, DOWN, None, DOWN, DOWN, DOWN] {
        let attempt = breaker
            .enter(|| start)
            .expect("closed until three failures in a row");
        attempt.record(failure, || start);
    }
    assert!(breaker.enter(|| start).is_none(), "open");
    let later = start + BREAKER_PAUSE;
    let probe = breaker.enter(|| later).expect("one probe after the pause");
    assert!(breaker.enter(|| later).is_none(), "only one at a time");
    probe.record(DOWN, || later);
    assert!(
        breaker.enter(|| later).is_none(),
        "a failed probe keeps it open"
    );
    let later = later + BREAKER_PAUSE;
    breaker
        .enter(|| later)
        .expect("the next probe")
        .record(None, || later);
    assert!(
        breaker.enter(|| later).is_some() && breaker.enter(|| later).is_some(),
        "closed again"
    );
}

/// Three calls that fail like this open the breaker, unless it saw another answer since they began.
fn opens_only_without_other_answers(failure: CallFailure) {
    let breaker = Breaker::default();
    let start = Instant::now();
    let enter = || breaker.enter(|| start);
    let failed = [enter(), enter(), enter()];
    enter().expect("closed").record(None, || start);
    failed
        .into_iter()
        .flatten()
        .for_each(|attempt| attempt.record(Some(failure), || start));
    assert!(enter().is_some(), "the node answers others");
    for _ in 0..3 {
        enter()
            .expect("closed until the third")
            .record(Some(failure), || start);
    }
    assert!(enter().is_none(), "the node answers no call");
}

#[test]
fn slow_calls_open_it_only_without_other_answers() {
    opens_only_without_other_answers(CallFailure::After(NodeError::Timeout));
}

#[test]
fn refusals_open_it_only_without_other_answers() {
    opens_only_without_other_answers(CallFailure::Busy);
}

#[test]
fn an_abandoned_probe_makes_room_for_the_next() {
    let breaker = Breaker::default();
    let start = Instant::now();
    for _ in 0..3 {
        breaker
            .enter(|| start)
            .expect("closed")
            .record(DOWN, || start);
    }
    drop(breaker.enter(|| start + BREAKER_PAUSE).expect("a probe"));
    assert!(
        breaker.enter(|| start + BREAKER_PAUSE).is_some(),
        "the next probe"
    );
}
