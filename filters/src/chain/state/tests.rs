//! Tests of the state of the node: what each observation changes, and how a URL is shown.

use super::*;
use crate::chain::{BlockIdentity, Evidence, NodeMode, Shows, Source};
use serde_json::json;

const NOW: Duration = Duration::from_secs(100);

fn node(urls: usize) -> NodeState {
    let served = ServedChain::new(urls, None, 0);
    NodeState::new(served, GroupState::new(urls, NodeMode::Failover, 8))
}

fn polled(head: u64) -> Option<PollResult> {
    Some(PollResult {
        head,
        version: None,
        keeps_history: false,
        block: None,
        connection: ConnectionId(head),
    })
}

fn chain(id: &str, second: u64) -> ChainIdentity {
    let block = json!({"block_number": 0, "timestamp": second});
    ChainIdentity::read(Some(&json!(id)), Some(&block))
}

fn fail(node: &mut NodeState, url: usize) {
    for second in 0..3 {
        let sent = NOW + Duration::from_secs(second);
        let asked = Asked::Poll;
        let failed = Observation::Failed(Request { url, asked, sent }, FailureClass::Status);
        assert_eq!(node.observe(failed, sent), Change::None);
    }
}

#[test]
fn a_url_says_why_it_does_not_serve() {
    let lagging = "lagging: its head is 5, that of others 20";
    let foreign = "its chain is TWO, the served one is ONE";
    for (url, fails, is_foreign, failure, left_out, cause) in [
        (0, false, false, None, None, None),
        (0, false, false, Some("an old one"), None, None),
        (0, true, false, None, Some(LeftOut::Failing), Some("status")),
        (
            0,
            true,
            false,
            Some("502"),
            Some(LeftOut::Failing),
            Some("502"),
        ),
        (1, false, false, None, Some(LeftOut::Lagging), Some(lagging)),
        (
            1,
            true,
            false,
            Some("502"),
            Some(LeftOut::Lagging),
            Some("502"),
        ),
        (0, false, true, None, None, Some(foreign)),
        (
            0,
            true,
            true,
            Some("502"),
            Some(LeftOut::Failing),
            Some("502"),
        ),
    ] {
        let mut node = node(2);
        node.observe(Observation::Round(&[polled(20), polled(5)]), NOW);
        if is_foreign {
            node.observe(Observation::Chain(1 - url, chain("0x4f4e45", 1), None), NOW);
            node.observe(Observation::Chain(url, chain("0x54574f", 1), None), NOW);
        }
        if fails {
            fail(&mut node, url);
        }
        let found = node.view(url, failure.map(str::to_owned), |_| true);
        assert_eq!(found.left_out, left_out, "{url} {failure:?}");
        assert_eq!(found.cause.as_deref(), cause, "{url} {failure:?}");
        assert_eq!(found.fault.is_some(), fails, "{url} {failure:?}");
    }
}

#[test]
fn a_single_url_is_never_left_out() {
    let mut node = node(1);
    fail(&mut node, 0);
    let found = node.view(0, None, |_| true);
    assert_eq!(
        (found.head, found.left_out, found.cause),
        (None, None, None)
    );
    assert!(found.fault.is_some(), "it fails all the same");
}

#[test]
fn only_a_url_in_use_stands_still() {
    let head = HeadTime {
        number: 4,
        timestamp: 100,
    };
    for (fails, has_shown, is_stalled) in [
        (false, true, true),
        (false, false, false),
        (true, true, false),
    ] {
        let mut node = node(1);
        if has_shown {
            node.observe(Observation::Head(0, head), NOW);
        }
        if fails {
            fail(&mut node, 0);
        }
        let view = node.view(0, None, |_| true);
        let stalled = view.stalled(1_000, Duration::from_secs(60));
        assert_eq!(stalled.is_some(), is_stalled, "{view:?}");
    }
}

#[test]
fn each_change_of_a_chain_is_noticed_once() {
    let why = "its chain is TWO, the served one is ONE".to_owned();
    let mut node = node(2);
    for (url, found, change, check) in [
        (0, chain("0x4f4e45", 1), ChainChange::None, 0),
        (1, chain("0x54574f", 1), ChainChange::Excluded(why), 1),
        (1, chain("0x54574f", 1), ChainChange::None, 1),
        (0, chain("0x4f4e45", 2), ChainChange::Restarted, 2),
        (1, chain("0x4f4e45", 2), ChainChange::Returned, 2),
    ] {
        let observed = node.observe(Observation::Chain(url, found, None), NOW);
        assert_eq!(observed, Change::Chain(url, change));
        assert_eq!(node.served.check(), check);
    }
}

#[test]
fn a_busy_url_is_not_chosen() {
    let served = ServedChain::new(3, None, 0);
    let mut node = NodeState::new(served, GroupState::new(3, NodeMode::Replicas, 8));
    let round = [20, 20, 20].map(|head| {
        Some(PollResult {
            keeps_history: true,
            ..polled(head)?
        })
    });
    node.observe(Observation::Round(&round), NOW);
    for (busy, expected) in [
        ([Some(0), Some(9), None], [0].as_slice()),
        ([None, Some(9), None], &[1]),
        ([Some(1), Some(1), Some(1)], &[0, 1, 2]),
        ([None, None, None], &[]),
    ] {
        let chosen = (0..50).filter_map(|chance| node.choose(20, chance, |url| busy[url]));
        let mut chosen: Vec<_> = chosen.collect();
        chosen.sort_unstable();
        chosen.dedup();
        assert_eq!(chosen, expected, "{busy:?}");
    }
    assert_eq!(node.choose(21, 0, |_| Some(0)), None, "no URL has it");
}

#[test]
fn a_rollback_is_reported_once() {
    let mut node = node(1);
    let shown = Evidence {
        source: Source::Any,
        shows: Shows::Head(9),
        connection: ConnectionId(1),
    };
    assert!(node.group.answered(0, shown, None, NOW));
    let mut changes = (2..6).map(|connection| {
        let result = PollResult {
            connection: ConnectionId(connection),
            ..polled(5).expect("it is polled")
        };
        node.observe(Observation::RoundBegun, NOW);
        node.observe(Observation::Round(&[Some(result)]), NOW)
    });
    assert!(
        changes
            .by_ref()
            .take(2)
            .all(|change| change == Change::None)
    );
    assert_eq!(changes.next(), Some(Change::WentBack(1)));
    assert_eq!(changes.next(), Some(Change::None));
    assert_eq!(node.group.floor(), None, "the block is gone");
}

#[test]
fn a_block_proves_the_chain_that_it_was_seen_on() {
    let block = |number: u64, second: u64| {
        let block = json!({"block_number": number, "timestamp": second});
        BlockIdentity::read(&block).expect("it has a number")
    };
    let first = chain("0x4f4e45", 1);
    let other = chain("0x54574f", 1);
    let mut node = node(2);
    let mut observe = |url, found, head| {
        node.observe(Observation::Chain(url, found, head), NOW);
        [block(7, 70), block(7, 71), block(8, 80)].map(|head| node.served.is_proved_by(0, head))
    };
    let none = [false; 3];
    for (url, found, head, proved, why) in [
        (0, first, None, none, "no block was polled"),
        (
            0,
            first,
            Some(block(7, 70)),
            [true, false, false],
            "that block",
        ),
        (
            0,
            first,
            None,
            [true, false, false],
            "a connection was checked",
        ),
        (
            1,
            first,
            Some(block(8, 80)),
            [true, false, false],
            "of another URL",
        ),
        (
            0,
            first,
            Some(block(8, 80)),
            [false, false, true],
            "a later block",
        ),
        (0, other, Some(block(8, 80)), none, "it has another chain"),
        (0, first, None, none, "it is back, but was not polled"),
    ] {
        assert_eq!(observe(url, found, head), proved, "{why}");
    }
}
