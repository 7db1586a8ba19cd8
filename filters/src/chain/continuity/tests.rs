//! Chains that grow, lose blocks and mine them again, polled in virtual time.

use super::*;

/// A chain of blocks on L2, each with its contents; a fingerprint does not cover its ancestors,
/// as on a real development node.
#[derive(Clone)]
struct Chain {
    blocks: Vec<u8>,
    l1: Option<usize>,
}

impl Chain {
    fn of(contents: &[u8]) -> Self {
        Self {
            blocks: contents.to_vec(),
            l1: None,
        }
    }

    fn fetch_block(&self, number: u64) -> Option<BlockIdentity> {
        let at = usize::try_from(number).expect("chains here are short");
        self.blocks.get(at).map(|holds| BlockIdentity {
            number,
            fingerprint: [*holds; 32],
        })
    }

    fn poll(&self, watch: &Watch) -> Result<Poll, PurgeCause> {
        let head = self
            .fetch_block(self.blocks.len() as u64 - 1)
            .expect("it has a block");
        Ok(Poll {
            head,
            genesis: self.fetch_block(0).expect("it has a block"),
            settled: watch.settled().and_then(|number| self.fetch_block(number)),
            candidate: watch
                .state
                .candidate
                .and_then(|known| self.fetch_block(known.number)),
            l1: L1::Head(self.l1.and_then(|at| self.fetch_block(at as u64))),
        })
    }
}

/// A watch in virtual time.
struct World {
    watch: Watch,
    /// Milliseconds since the start.
    now: u64,
}

impl World {
    fn new() -> Self {
        Self {
            watch: Watch::default(),
            now: 0,
        }
    }

    /// Polls `chain` after `later` milliseconds.
    fn see(&mut self, later: u64, chain: &Chain) -> Step {
        let poll = chain.poll(&self.watch);
        self.step(later, poll)
    }

    fn fail(&mut self, later: u64, cause: PurgeCause) -> Step {
        self.step(later, Err(cause))
    }

    fn step(&mut self, later: u64, poll: Result<Poll, PurgeCause>) -> Step {
        self.now += later;
        self.watch
            .step(poll, Duration::from_millis(self.now), self.now)
    }

    /// A watch that has settled on the head of `chain`.
    fn settled_on(chain: &Chain) -> Self {
        let mut world = Self::new();
        world.see(0, chain);
        let step = world.see(2_000, chain);
        assert_eq!(settled(step), Some(chain.blocks.len() as u64 - 1));
        world
    }
}

/// The settled block of a step in which nothing broke.
fn settled(step: Step) -> Option<u64> {
    assert_eq!(step.broke, None, "the chain stands");
    step.chain.expect("the poll did not fail").settled
}

#[test]
fn an_unchanged_head_settles_after_two_seconds() {
    let chain = Chain::of(&[0, 1, 2]);
    let mut world = World::new();
    for (later, expected) in [
        (0, None),
        (1_000, None),
        (999, None),
        (1, Some(2)),
        (1_000, Some(2)),
    ] {
        assert_eq!(
            settled(world.see(later, &chain)),
            expected,
            "{} ms",
            world.now
        );
    }
}

#[test]
fn the_settled_block_follows_a_growing_chain() {
    let mut chain = Chain::of(&[0]);
    let mut world = World::new();
    let mut seen = Vec::new();
    for block in 1..=8 {
        seen.push(settled(world.see(1_000, &chain)));
        chain.blocks.push(block);
    }
    // the head of the poll at which a block settles is the next one to settle
    let expected = [
        None,
        None,
        Some(0),
        Some(0),
        Some(2),
        Some(2),
        Some(4),
        Some(4),
    ];
    assert_eq!(seen, expected);
}

#[test]
fn a_contradiction_starts_an_epoch() {
    let known = Chain::of(&[0, 1, 2, 3]);
    for (chain, cause, why) in [
        (
            Chain::of(&[0, 1, 2]),
            PurgeCause::Rollback,
            "the settled block was aborted",
        ),
        (
            Chain::of(&[0]),
            PurgeCause::Rollback,
            "all but the first were",
        ),
        (
            Chain::of(&[0, 1, 2, 9]),
            PurgeCause::Rollback,
            "it was mined again, with another content",
        ),
        (
            Chain::of(&[0, 1, 2, 9, 4, 5]),
            PurgeCause::Rollback,
            "and the chain is longer than before",
        ),
        (
            Chain::of(&[7, 1, 2, 3]),
            PurgeCause::Genesis,
            "the node began anew, up to the same block",
        ),
        (Chain::of(&[7]), PurgeCause::Genesis, "the node began anew"),
    ] {
        let mut world = World::settled_on(&known);
        let step = world.see(1_000, &chain);
        assert_eq!(step.broke, Some(cause), "{why}");
        let status = step.chain.expect("the node is seen");
        assert_eq!(
            status.settled, None,
            "nothing has settled in a new epoch: {why}"
        );
        let head = chain.blocks.len() as u64 - 1;
        assert_eq!(
            settled(world.see(1_999, &chain)),
            None,
            "not before its time: {why}"
        );
        assert_eq!(
            settled(world.see(1, &chain)),
            Some(head),
            "then as before: {why}"
        );
    }
}

#[test]
fn a_replaced_candidate_never_settles() {
    let mut world = World::settled_on(&Chain::of(&[0, 1]));
    assert_eq!(
        settled(world.see(1_000, &Chain::of(&[0, 1, 2]))),
        Some(1),
        "2 is a candidate"
    );
    let step = world.see(1_000, &Chain::of(&[0, 1, 9]));
    assert_eq!(step.broke, Some(PurgeCause::Rollback), "it is another");
    assert_eq!(
        settled(world.see(1_000, &Chain::of(&[0, 1, 9]))),
        None,
        "seen for a second"
    );
    assert_eq!(
        settled(world.see(1_000, &Chain::of(&[0, 1, 9]))),
        Some(2),
        "seen for two"
    );
}

/// Two blocks of the same second with the same transactions are identical, so neither may
/// have settled while the other could still take its place.
#[test]
fn no_block_settles_within_its_second() {
    let chain = Chain::of(&[0, 1]);
    let mut world = World::new();
    // mined at 0.1 s of a second, seen at 0.2 s, mined again with another parent until 1 s
    assert_eq!(settled(world.see(200, &chain)), None);
    assert_eq!(
        settled(world.see(800, &chain)),
        None,
        "it looks the same, and nothing stands on it"
    );
    assert_eq!(
        settled(world.see(1_200, &chain)),
        Some(1),
        "its second has been over for long"
    );
}

#[test]
fn a_head_below_the_candidate_is_a_rollback() {
    let mut world = World::settled_on(&Chain::of(&[0, 1]));
    assert_eq!(
        settled(world.see(1_000, &Chain::of(&[0, 1, 2, 3]))),
        Some(1)
    );
    let step = world.see(1_000, &Chain::of(&[0, 1, 2]));
    assert_eq!(
        step.broke,
        Some(PurgeCause::Rollback),
        "3 was seen, and is gone"
    );
}

#[test]
fn an_outage_ends_one_epoch() {
    let chain = Chain::of(&[0, 1]);
    for cause in [PurgeCause::Unreachable, PurgeCause::Strange] {
        let mut world = World::settled_on(&chain);
        let gone = world.fail(1_000, cause);
        assert_eq!((gone.broke, gone.chain), (Some(cause), None));
        for _ in 0..3 {
            assert_eq!(
                world.fail(1_000, cause),
                Step {
                    broke: None,
                    ..gone
                }
            );
        }
        assert_eq!(
            settled(world.see(1_000, &chain)),
            None,
            "what was known is forgotten"
        );
        assert_eq!(
            settled(world.see(2_000, &chain)),
            Some(1),
            "and learnt again"
        );
        let again = world.fail(1_000, cause);
        assert_eq!(
            (again.broke, again.chain),
            (Some(cause), None),
            "the next time counts again"
        );
    }
    let first = World::new().fail(0, PurgeCause::Unreachable);
    assert_eq!(
        first.broke,
        Some(PurgeCause::Unreachable),
        "a node that was never reachable is reported, too"
    );
}

#[test]
fn acceptance_on_l1_changes_its_generation_only() {
    let mut chain = Chain::of(&[0, 1, 2]);
    let mut world = World::settled_on(&chain);
    let mut l1 = |chain: &Chain| {
        let step = world.see(1_000, chain);
        assert_eq!(
            (step.broke, settled(step)),
            (None, Some(2)),
            "the chain stands"
        );
        step.chain.and_then(|chain| chain.l1)
    };
    let before = l1(&chain);
    assert!(before.is_some(), "that none is accepted there is known");
    assert_eq!(l1(&chain), before, "nothing changed");
    chain.l1 = Some(1);
    let after = l1(&chain);
    assert_ne!(after, before, "two blocks are on L1");
    assert_eq!(l1(&chain), after, "nothing changed");
    chain.l1 = Some(2);
    assert_ne!(l1(&chain), after, "one more is");
}

#[test]
fn a_rollback_on_l1_ends_the_epoch() {
    for (before, after, broke) in [
        (Some(1), Some(2), None),
        (Some(2), Some(1), Some(PurgeCause::Rollback)),
        (Some(1), None, Some(PurgeCause::Rollback)),
        (None, Some(1), None),
    ] {
        let mut chain = Chain::of(&[0, 1, 2]);
        chain.l1 = before;
        let mut world = World::settled_on(&chain);
        chain.l1 = after;
        assert_eq!(
            world.see(1_000, &chain).broke,
            broke,
            "{before:?} to {after:?}"
        );
    }
}

#[test]
fn without_an_answer_l1_has_no_generation() {
    let chain = Chain::of(&[0, 1]);
    let mut world = World::settled_on(&chain);
    let mut poll = chain.poll(&world.watch).expect("the chain can be seen");
    poll.l1 = L1::Unknown;
    let step = world.step(1_000, Ok(poll));
    assert_eq!(settled(step), Some(1), "all else is known");
    assert_eq!(step.chain.and_then(|chain| chain.l1), None);
}

#[test]
fn an_l1_head_that_is_not_known_any_more_ends_the_epoch() {
    let mut chain = Chain::of(&[0, 1, 2]);
    chain.l1 = Some(1);
    let mut world = World::settled_on(&chain);
    let known = world.see(1_000, &chain).chain.and_then(|chain| chain.l1);
    let mut poll = chain.poll(&world.watch).expect("the chain can be seen");
    poll.l1 = L1::Unknown;
    let step = world.step(1_000, Ok(poll));
    assert_eq!(
        step.broke,
        Some(PurgeCause::Rollback),
        "block 1 may not be on L1 any more"
    );
    let again = world.see(1_000, &chain).chain.and_then(|chain| chain.l1);
    assert!(
        again.is_some() && again != known,
        "what was cached before holds no more"
    );
}

/// The epoch and the height of the chain's position after a step.
fn position(step: Step) -> (u64, u64) {
    let position = step
        .chain
        .and_then(|chain| chain.position)
        .expect("it is known");
    (position.epoch, position.height)
}

#[test]
fn a_position_goes_back_in_another_epoch_only() {
    for (chain, why) in [
        (Chain::of(&[0, 1, 2, 3, 9]), "the head was mined again"),
        (Chain::of(&[0, 1, 2, 3]), "the head was aborted"),
    ] {
        let mut world = World::settled_on(&Chain::of(&[0, 1, 2]));
        world.see(500, &Chain::of(&[0, 1, 2, 3]));
        let before = world.see(500, &Chain::of(&[0, 1, 2, 3, 4]));
        let step = world.see(500, &chain);
        assert_eq!(
            settled(step),
            Some(2),
            "no settled block is affected: {why}"
        );
        assert_eq!(
            step.generation, before.generation,
            "so no answer is, either: {why}"
        );
        assert_eq!(position(step).1, chain.blocks.len() as u64 - 1, "{why}");
        assert!(position(step).0 > position(before).0, "{why}");
        let same = world.see(500, &chain);
        assert_eq!(position(same), position(step), "once: {why}");
    }
}

#[test]
fn epochs_are_numbered_by_the_time_and_never_twice() {
    let chain = Chain::of(&[0, 1]);
    let mut world = World::new();
    world.now = 5_000;
    assert_eq!(position(world.see(0, &chain)), (5_000, 1));
    assert_eq!(
        world.see(0, &Chain::of(&[7])).generation,
        5_001,
        "in the same millisecond"
    );
    world.now = 1_000;
    let step = world.see(0, &Chain::of(&[8]));
    assert_eq!(
        (step.generation, position(step)),
        (5_002, (5_002, 0)),
        "the clock stepped back"
    );
    let mut restarted = World::new();
    restarted.now = 9_000;
    assert_eq!(
        position(restarted.see(0, &chain)).0,
        9_000,
        "later than before a restart"
    );
}

#[test]
fn an_heir_verifies_and_goes_on() {
    let chain = Chain::of(&[0, 1, 2]);
    let mut leader = World::settled_on(&chain);
    let before = leader.see(1_000, &chain);
    let text = leader.watch.state().to_text();
    let heir = || {
        let mut heir = World::new();
        heir.now = 60_000;
        let state = ChainState::parse(&text).expect("it is of this version");
        assert_eq!(
            heir.watch.inherit(state, Duration::ZERO),
            before,
            "a follower's view is the leader's"
        );
        heir
    };
    assert_eq!(
        heir().see(0, &chain),
        before,
        "what continues is not emptied"
    );
    for (other, cause) in [
        (Chain::of(&[0, 1, 9]), PurgeCause::Rollback),
        (Chain::of(&[7]), PurgeCause::Genesis),
    ] {
        let step = heir().see(0, &other);
        assert_eq!(step.broke, Some(cause));
        assert!(step.generation > before.generation && position(step) > position(before));
    }
    assert_eq!(
        ChainState::parse("{\"epoch\":1}"),
        None,
        "of another version"
    );
}

#[test]
fn what_an_instance_has_said_is_not_taken_back() {
    let chain = Chain::of(&[0, 1, 2]);
    let leader = World::settled_on(&chain);
    let state = leader.watch.state().clone();
    let mut alone = World::new();
    alone.now = 60_000;
    let (said, _) = position(alone.see(0, &chain));
    let step = alone.watch.inherit(state.clone(), Duration::ZERO);
    assert_eq!(
        step.chain.and_then(|chain| chain.position),
        None,
        "the leader's is an earlier one"
    );
    let mut heir = World::new();
    heir.watch.inherit(state, Duration::ZERO);
    heir.watch.has_seen(said);
    let step = heir.see(0, &chain);
    assert_eq!(position(step).0, said, "the leader goes on from there");
    assert_eq!(
        step.generation,
        leader.watch.state().generation,
        "and no cache is emptied"
    );
}
