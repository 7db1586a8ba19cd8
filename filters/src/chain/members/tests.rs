//! Rounds of polls of URLs that lag, stand still, fork, flap and go back.

use super::LeftOut::{self, Fork, Frozen, Lagging, Silent, SpecVersion};
use super::NodeMode::{self, Failover, Replicas};
use super::{
    BlockIdentity, ConnectionId, DOUBT, Duration, Evidence, Felt, GroupState, PollResult, Shows,
    Source,
};
use std::sync::atomic::{AtomicU64, Ordering};

/// A URL in a round: its head, and the branch of the chain that its newer blocks are on.
#[derive(Clone, Copy)]
struct Url(u64, u8);

const AWAY: Option<Url> = None;

/// An answer of the primary about its newest block, whose number it does not name.
const AT_HEAD: Evidence = Evidence {
    source: Source::PrimaryAtHead,
    shows: Shows::Nothing,
    connection: ConnectionId(0),
};

/// An answer of the primary that names its newest block.
const fn head(number: u64) -> Evidence {
    Evidence {
        source: Source::PrimaryAtHead,
        shows: Shows::Head(number),
        connection: ConnectionId(0),
    }
}

/// A URL on the chain that most URLs have.
const fn at(head: u64) -> Option<Url> {
    Some(Url(head, 0))
}

/// A URL on another branch, from block 5 on.
const fn fork(head: u64) -> Option<Url> {
    Some(Url(head, 1))
}

/// A connection that no evidence came over before.
fn fresh() -> ConnectionId {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    ConnectionId(NEXT.fetch_add(1, Ordering::Relaxed))
}

fn result(url: Url) -> PollResult {
    PollResult {
        head: url.0,
        version: Some("0.10".to_owned()),
        keeps_history: true,
        block: None,
        connection: fresh(),
    }
}

fn group(urls: usize, mode: NodeMode) -> GroupState {
    GroupState::new(urls, mode, 8)
}

/// Plays a round; returns why each URL is left out.
fn play(state: &mut GroupState, urls: &[Option<Url>]) -> Vec<Option<LeftOut>> {
    state.begin_round();
    let mut results: Vec<_> = urls.iter().map(|url| url.map(result)).collect();
    if let Some(number) = state.common_height(&results) {
        for (result, url) in results.iter_mut().zip(urls) {
            if let (Some(result), Some(Url(head, branch))) = (result, url) {
                let fingerprint = [if number < 5 { 0 } else { *branch }; 32];
                result.block = (number <= *head).then_some(BlockIdentity {
                    number,
                    fingerprint,
                });
            }
        }
    }
    state.end_round(&results);
    state.members.iter().map(|url| url.left_out).collect()
}

fn leaders(state: &GroupState) -> Vec<usize> {
    (0..state.members.len())
        .filter(|url| state.may_lead(*url))
        .collect()
}

#[test]
fn a_url_far_behind_is_left_out() {
    for (urls, expected, why) in [
        (
            vec![at(20), at(12)],
            vec![None, None],
            "eight blocks are tolerated",
        ),
        (
            vec![at(20), at(11)],
            vec![None, Some(Lagging)],
            "nine are not",
        ),
        (
            vec![at(11), at(20)],
            vec![Some(Lagging), None],
            "also of the preferred one",
        ),
        (
            vec![at(11), fork(20)],
            vec![None, Some(Fork)],
            "its head is not of this chain",
        ),
        (
            vec![fork(11), at(20), at(20)],
            vec![Some(Fork), None, None],
            "two against one",
        ),
        (
            vec![at(11), AWAY],
            vec![None, None],
            "nothing to compare it with",
        ),
    ] {
        let mut state = group(urls.len(), Failover);
        assert_eq!(play(&mut state, &urls), expected, "{why}");
        assert_eq!(
            play(&mut state, &urls),
            expected,
            "in the next round: {why}"
        );
    }
}

#[test]
fn only_lagging_urls_do_not_serve() {
    let mut state = group(2, Failover);
    play(&mut state, &[at(20), at(5)]);
    for _ in 0..9 {
        assert_eq!(play(&mut state, &[AWAY, at(5)]), [None, Some(Lagging)]);
    }
    assert!(state.is_held_back() && !state.is_catching_up());
    assert_eq!(
        play(&mut state, &[AWAY, at(12)]),
        [None, None],
        "it caught up with most of it"
    );
}

#[test]
fn what_clients_saw_is_never_taken_back() {
    let mut state = group(2, Failover);
    play(&mut state, &[at(10), at(9)]);
    assert_eq!(leaders(&state), [0, 1], "nothing was seen yet");
    assert!(
        state.answered(0, AT_HEAD, state.floor(), Duration::ZERO),
        "a read at the head of the first"
    );
    assert_eq!(leaders(&state), [0], "the second has an older head");
    assert!(
        state.answered(0, head(12), state.floor(), Duration::ZERO),
        "the first moved on since the poll"
    );
    play(&mut state, &[AWAY, at(11)]);
    assert!(
        state.is_catching_up() && !state.may_lead(1),
        "one block is missing"
    );
    play(&mut state, &[AWAY, at(12)]);
    assert!(state.may_lead(1), "it has all that was seen");
    assert!(state.answered(1, head(14), state.floor(), Duration::ZERO));
    play(&mut state, &[at(13), at(14)]);
    assert_eq!(leaders(&state), [1], "the first returned, and is behind");
    play(&mut state, &[at(15), at(15)]);
    assert_eq!(leaders(&state), [0, 1]);
}

#[test]
fn an_answer_that_goes_back_is_not_passed_on() {
    let mut state = group(2, Failover);
    play(&mut state, &[at(10), at(10)]);
    let before = state.floor();
    assert!(state.answered(0, head(11), before, Duration::ZERO));
    assert!(
        state.answered(0, head(10), before, Duration::ZERO),
        "its call began before 11 was seen"
    );
    assert_eq!(
        leaders(&state),
        [0],
        "an answer that was late says nothing of its head"
    );
    assert!(
        !state.answered(0, head(9), state.floor(), Duration::ZERO),
        "it flaps"
    );
    assert_eq!(leaders(&state), [] as [usize; 0]);
    play(&mut state, &[at(11), at(10)]);
    assert_eq!(leaders(&state), [0]);
}

#[test]
fn an_answer_during_a_poll_is_not_forgotten() {
    let mut state = group(2, Failover);
    play(&mut state, &[at(10), at(10)]);
    state.begin_round();
    assert!(
        state.answered(0, head(12), state.floor(), Duration::ZERO),
        "newer than what the poll returns"
    );
    state.end_round(&[Some(result(Url(11, 0))), Some(result(Url(11, 0)))]);
    assert_eq!(leaders(&state), [0]);
}

#[test]
fn a_lost_block_is_a_rollback() {
    for (urls, went_back, why) in [
        ([at(8), at(8)], true, "both lost it"),
        ([at(8), AWAY], true, "the only one that answers lost it"),
        ([at(8), at(10)], false, "the other one has it"),
        ([AWAY, at(8)], false, "the one that had it is away"),
        (
            [at(8), fork(30)],
            true,
            "the other one has it not of this chain",
        ),
    ] {
        let mut state = group(2, Failover);
        play(&mut state, &[at(10), at(9)]);
        state.answered(0, AT_HEAD, state.floor(), Duration::ZERO);
        for _ in 0..2 {
            play(&mut state, &urls);
            assert_eq!(
                state.rollbacks, 0,
                "two rounds may find a node that is behind: {why}"
            );
        }
        // in the first, a fork is not known yet
        play(&mut state, &urls);
        play(&mut state, &urls);
        assert_eq!(state.rollbacks == 1, went_back, "{why}");
        let serves = leaders(&state).iter().any(|url| urls[*url].is_some());
        assert_eq!(
            serves,
            went_back || urls[1].is_some_and(|url| url.0 == 10),
            "{why}"
        );
    }
}

#[test]
fn a_frozen_url_leaves_and_does_not_vote() {
    let mut state = group(3, Replicas);
    for block in 10..13 {
        assert_eq!(
            play(&mut state, &[at(10), at(block), at(block)]),
            [None; 3],
            "{block}"
        );
        assert_eq!(state.pinned(), Some(10), "the lowest head of the group");
    }
    assert_eq!(
        play(&mut state, &[at(10), at(13), at(13)]),
        [Some(Frozen), None, None]
    );
    assert_eq!(state.pinned(), Some(13));
    for _ in 0..3 {
        assert_eq!(
            play(&mut state, &[at(10), at(13), at(13)]),
            [Some(Frozen), None, None]
        );
    }
    assert_eq!(
        play(&mut state, &[at(12), at(13), at(13)]),
        [None; 3],
        "it moves"
    );
    assert_eq!(state.pinned(), Some(13), "what was pinned does not go back");
    assert!(!state.has_state(0, 13) && state.has_state(1, 13));
}

/// Two URLs that are stuck on an old chain do not outvote one that advances.
#[test]
fn a_quiet_chain_freezes_nobody() {
    let mut state = group(3, Replicas);
    for behind in 100..105 {
        let left_out = play(&mut state, &[at(500), at(500), at(behind)]);
        assert_eq!(
            left_out,
            [None, None, Some(Lagging)],
            "the third catches up"
        );
    }
    let mut state = group(3, Replicas);
    play(&mut state, &[at(5), at(5), at(5)]);
    for head in 6..40 {
        play(&mut state, &[at(5), at(5), at(head)]);
    }
    assert_eq!(
        play(&mut state, &[at(5), at(5), at(40)]),
        [Some(Lagging), Some(Lagging), None]
    );
    assert_eq!(state.pinned(), Some(40));
}

#[test]
fn replicas_have_to_agree() {
    let mut state = group(3, Replicas);
    assert_eq!(
        play(&mut state, &[at(9), fork(9), at(9)]),
        [None, Some(Fork), None]
    );
    assert_eq!(play(&mut state, &[at(9), at(9), at(9)]), [None; 3]);
    for _ in 0..2 {
        assert_eq!(
            play(&mut state, &[at(9), at(9), AWAY]),
            [None; 3],
            "a poll may fail"
        );
    }
    assert_eq!(
        play(&mut state, &[at(10), at(10), AWAY]),
        [None, None, Some(Silent)]
    );
    assert_eq!(
        state.pinned(),
        Some(10),
        "and it holds back nobody any longer"
    );
    for _ in 0..4 {
        assert_eq!(
            play(&mut state, &[AWAY; 3]),
            [None; 3],
            "slow nodes are better than none"
        );
    }
    assert_eq!(
        (state.pinned(), leaders(&state)),
        (None, vec![0, 1]),
        "no number is invented"
    );
    let mut other = result(Url(10, 0));
    other.version = Some("0.9".to_owned());
    state.end_round(&[Some(result(Url(10, 0))), Some(other), None]);
    assert_eq!(state.members[1].left_out, Some(SpecVersion));
}

#[test]
fn nothing_is_pinned_without_history() {
    let mut state = group(2, Replicas);
    let bare = |head| {
        Some(PollResult {
            keeps_history: false,
            ..result(Url(head, 0))
        })
    };
    state.end_round(&[bare(10), bare(11)]);
    assert_eq!(state.pinned(), None);
    assert!(
        state.answered(1, head(12), state.floor(), Duration::ZERO),
        "unpinned, the primary's head was seen"
    );
    state.end_round(&[Some(result(Url(11, 0))), Some(result(Url(12, 0)))]);
    assert_eq!(state.pinned(), Some(12), "not below what was seen");
    assert!(!state.has_state(0, 12));
    state.end_round(&[bare(11), bare(12)]);
    assert_eq!((state.pinned(), leaders(&state)), (None, vec![1]));
}

#[test]
fn the_newest_block_of_replicas_is_the_pinned_one() {
    let mut state = group(2, Failover);
    assert_eq!(state.newest(6), Some(6), "one URL serves at a time");
    state = group(2, Replicas);
    assert_eq!(state.newest(6), None, "no replica was polled");
    play(&mut state, &[at(6), at(4)]);
    assert_eq!(state.newest(6), Some(4), "one of them has only this");
    let watched = |source| Evidence { source, ..head(6) };
    let answered = |state: &mut GroupState, source| {
        state.answered(0, watched(source), state.floor(), Duration::ZERO)
    };
    assert!(answered(&mut state, Source::Replica));
    assert_eq!(state.floor(), Some(4), "no client has seen it");
    for url in &mut state.members {
        url.keeps_history = false;
    }
    assert_eq!(state.newest(6), Some(6), "none can answer about it");
    assert!(answered(&mut state, Source::Primary));
    assert_eq!(state.floor(), Some(6), "its position is stated to clients");
}

#[test]
fn an_answer_from_before_the_pin_raises_it() {
    let mut state = group(2, Replicas);
    let before = state.floor();
    play(&mut state, &[at(6), at(4)]);
    assert_eq!(state.pinned(), Some(4));
    assert!(
        state.answered(0, head(6), before, Duration::ZERO),
        "it was queried before the first poll"
    );
    assert_eq!(state.pinned(), Some(6));
}

fn hash(number: u64) -> Felt {
    Felt::from_limbs([number, 0, 0, 0]).expect("it is small")
}

fn of_any(shows: Shows) -> Evidence {
    Evidence {
        source: Source::Any,
        shows,
        connection: fresh(),
    }
}

fn accepted(number: u64, block: u64) -> Evidence {
    of_any(Shows::Accepted(hash(number), Some(block)))
}

fn missing(number: u64) -> Evidence {
    of_any(Shows::NotAccepted(hash(number)))
}

#[test]
fn a_receipt_raises_the_floor() {
    let mut state = group(2, Failover);
    play(&mut state, &[at(337), at(337)]);
    state.answered(0, accepted(1, 338), state.floor(), Duration::ZERO);
    assert_eq!(
        (state.floor(), leaders(&state)),
        (Some(338), vec![0]),
        "the second lacks it"
    );
    play(&mut state, &[AWAY, at(337)]);
    assert_eq!(
        leaders(&state),
        [0],
        "it is away, and the only one that has it"
    );
    play(&mut state, &[AWAY, at(338)]);
    assert_eq!(leaders(&state), [0, 1]);
    state.answered(1, of_any(Shows::Block(339)), state.floor(), Duration::ZERO);
    assert_eq!(leaders(&state), [1], "so does a block");
    state.note_shown(341);
    assert_eq!(
        leaders(&state),
        [] as [usize; 0],
        "and what was shown before the start"
    );
}

#[test]
fn what_was_shown_is_not_found_missing() {
    let mut state = group(1, Replicas);
    let now = Duration::ZERO;
    assert!(
        state.answered(0, missing(1), state.floor(), now),
        "nobody has seen it"
    );
    state.answered(0, accepted(1, 20), state.floor(), now);
    let none = |number| of_any(Shows::NoBlock(number));
    for (answer, passes, why) in [
        (missing(1), false, "its receipt was shown"),
        (missing(2), true, "another"),
        (none(20), false, "the block of the receipt"),
        (none(12), false, "an older one"),
        (none(11), true, "one that may be pruned"),
        (none(21), true, "one that nobody has seen"),
        (head(19), false, "an older head"),
        (head(20), true, "the same head"),
    ] {
        assert_eq!(
            state.answered(0, answer, state.floor(), now),
            passes,
            "{why}"
        );
    }
    assert_eq!(state.block_of(hash(1)), Some(20));
    let looks = [0, 1, 2].map(|look| state.missed_in(20, hash(1), fresh(), now + look * DOUBT));
    assert_eq!(looks, [false, false, true]);
    assert!(
        state.answered(0, missing(1), state.floor(), now),
        "its block has others"
    );
}

#[test]
fn three_doubts_lower_the_floor_of_one_url() {
    let mut state = group(1, Failover);
    let mut now = Duration::ZERO;
    let second = Duration::from_secs(1);
    state.answered(0, accepted(1, 20), state.floor(), now);
    state.answered(0, accepted(2, 19), state.floor(), now);
    for (later, head, rollbacks) in [
        (second, Some(19), 0),
        (second, Some(19), 0),
        (second, Some(20), 0),
        (second, Some(19), 0),
        (second, None, 0),
        (second, Some(19), 0),
        (20 * second, Some(19), 0),
        (second, Some(19), 0),
        (second, Some(19), 1),
    ] {
        now += later;
        assert!(state.begin_doubt(now) && !state.begin_doubt(now + second / 2));
        let polled = [head.map(|head| result(Url(head, 0)))];
        assert_eq!(state.end_round(&polled), rollbacks == 1);
        assert_eq!(state.rollbacks, rollbacks);
    }
    assert_eq!(state.floor(), None);
    assert!(
        state.answered(0, missing(1), state.floor(), now),
        "its block is gone"
    );
    assert!(
        !state.answered(0, missing(2), state.floor(), now),
        "its block may be there"
    );
}

#[test]
fn three_polls_of_one_connection_are_one_witness() {
    let second = Duration::from_secs(1);
    for (connections, went_back, why) in [
        ([1, 2, 3], true, "three connections"),
        (
            [1, 1, 1],
            false,
            "a balancer ties one to a node that is behind",
        ),
        ([1, 2, 1], false, "two connections"),
    ] {
        let mut state = group(1, Failover);
        state.answered(0, head(20), state.floor(), Duration::ZERO);
        let polls = (1..).zip(connections).map(|(at, connection)| {
            assert!(state.begin_doubt(second * at));
            state.end_round(&[Some(PollResult {
                connection: ConnectionId(connection),
                ..result(Url(19, 0))
            })])
        });
        assert_eq!(polls.last(), Some(went_back), "{why}");
    }
}

#[test]
fn a_receipt_that_names_no_real_block_raises_the_floor_once() {
    let mut state = group(1, Failover);
    let mut now = Duration::ZERO;
    for (claimed, floor) in [(22, 22), (22, 19), (23, 23), (23, 19)] {
        state.answered(0, head(19), state.floor(), now);
        state.answered(0, accepted(1, claimed), state.floor(), now);
        assert_eq!(state.floor(), Some(floor), "{claimed}");
        for _ in 0..3 {
            now += Duration::from_secs(1);
            state.begin_doubt(now);
            state.end_round(&[Some(result(Url(19, 0)))]);
        }
    }
    state.answered(0, head(25), state.floor(), now);
    assert_eq!(state.floor(), Some(25), "real blocks do");
}

#[test]
fn a_floor_from_before_the_start_is_lowered() {
    let mut state = group(2, Failover);
    state.note_shown(20);
    for rollbacks in [0, 0, 1] {
        play(&mut state, &[at(3), at(2)]);
        assert_eq!(state.rollbacks, rollbacks, "no URL has been seen with it");
    }
    assert_eq!(leaders(&state), [0, 1]);
}

/// Heads that rise by turns and sometimes fall behind, in many orders: no client sees a lower one.
#[test]
fn no_order_of_rounds_lowers_the_head() {
    for (seed, mode) in (0..2_000).flat_map(|seed| [(seed, Failover), (seed, Replicas)]) {
        let mut chance: u64 = seed + 1;
        let mut next = move |below: u64| {
            chance = chance
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (chance >> 33) % below
        };
        let mut state = group(3, mode);
        let (mut top, mut seen) = (20, 0);
        for _ in 0..40 {
            top += next(3);
            let urls: Vec<_> = (0..3)
                .map(|_| (next(5) > 0).then(|| Url(top - next(12), 0)))
                .collect();
            play(&mut state, &urls);
            let shown = match state.pinned() {
                Some(head) => Some(head),
                None => (0..3).find(|url| state.may_lead(*url)).and_then(|url| {
                    let head = state.members[url].head;
                    let answer = head.map_or(AT_HEAD, self::head);
                    let passes = state.answered(url, answer, state.floor(), Duration::ZERO);
                    head.filter(|_| passes)
                }),
            };
            if state.rollbacks > 0 {
                break;
            }
            assert!(
                shown.is_none_or(|head| head >= seen),
                "{mode:?} {seed}: {shown:?} < {seen}"
            );
            seen = shown.unwrap_or(seen);
        }
    }
}
