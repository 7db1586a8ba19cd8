//! What is given again, and what is not.

use super::super::cache_key::permitted;
use super::super::watch::{ChainStatus, EpochCause};
use super::*;
use crate::config::Size;

fn call(number: u64) -> Arc<CacheKey> {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"starknet_getBlockWithTxHashes","params":[{{"block_number":{number}}}]}}"#
    );
    let call = permitted(&body).into_read().call();
    Arc::new(CacheKey::new(call, &ahash::RandomState::with_seed(0)))
}

fn answer(memory: &Arc<MemoryPool>, payload: Vec<u8>) -> Answer {
    Answer { member: "result", payload: payload.into(), memory: Arc::new(MemoryPermit::of(memory)) }
}

fn config(size: Size, max_entries: usize) -> CacheConfig {
    let watch_interval = Duration::from_secs(1);
    CacheConfig { enabled: true, size, max_entries, watch_interval }
}

fn stands(settled: Option<u64>, l1: Option<u64>) -> Step {
    Step { broke: None, standing: Some(ChainStatus { settled, l1 }) }
}

struct World {
    cache: Cache,
    memory: Arc<MemoryPool>,
}

impl World {
    /// A cache for a chain that is settled up to block 5.
    fn new() -> Self {
        let memory = MemoryPool::new(64 << 20);
        let cache = Cache::new(&config(Size::from_mib(4), 1_000), Arc::clone(&memory));
        cache.take_over(&stands(Some(5), Some(0)));
        Self { cache, memory }
    }

    fn keep(&self, number: u64, keep: Keep, view: &View) {
        let answer = answer(&self.memory, b"{}".to_vec());
        self.cache.keep(call(number), &answer, keep, view);
    }

    fn gives(&self, number: u64) -> bool {
        self.cache.get(&call(number), &self.cache.view()).is_some()
    }
}

#[test]
fn an_answer_is_kept_when_its_block_had_settled_before_it_was_asked_for() {
    for (number, settled, kept) in
        [(5, Some(5), true), (6, Some(5), false), (0, Some(0), true), (0, None, false)]
    {
        let world = World::new();
        world.cache.take_over(&stands(settled, Some(0)));
        let view = world.cache.view();
        world.keep(number, Keep::WithBlock(number), &view);
        assert_eq!(world.gives(number), kept, "block {number}, settled {settled:?}");
    }
    let world = World::new();
    let before = world.cache.view();
    world.cache.take_over(&stands(Some(6), Some(0)));
    world.keep(6, Keep::WithBlock(6), &before);
    assert!(!world.gives(6), "it settled only while the node was asked");
}

#[test]
fn nothing_outlives_its_epoch_whenever_it_comes_in() {
    for (step, why) in [
        (Step { broke: Some(EpochCause::Rollback), ..stands(Some(5), Some(0)) }, "a rollback"),
        (Step { broke: Some(EpochCause::Unreachable), standing: None }, "the node went away"),
    ] {
        let world = World::new();
        let before = world.cache.view();
        for keep in [Keep::WithBlock(1), Keep::UntilL1(2), Keep::Briefly] {
            world.keep(1, keep, &before);
            assert!(world.gives(1), "{keep:?} is kept");
        }
        world.cache.take_over(&step);
        assert!(!world.gives(1), "{why}");
        assert_eq!(world.cache.stats().entries, 0, "it takes no more memory: {why}");
        assert_eq!(world.memory.taken(), 0, "nor does its permit: {why}");
        world.keep(1, Keep::WithBlock(1), &before);
        world.cache.take_over(&stands(Some(5), Some(0)));
        assert!(!world.gives(1), "what was asked for before comes too late: {why}");
        let after = world.cache.view();
        world.keep(1, Keep::WithBlock(1), &after);
        assert!(world.gives(1), "what is asked for after is kept again: {why}");
    }
}

#[test]
fn nothing_is_given_or_kept_while_the_node_is_not_seen() {
    let world = World::new();
    let memory = MemoryPool::new(1 << 20);
    let fresh = Cache::new(&config(Size::from_mib(1), 10), Arc::clone(&memory));
    let view = fresh.view();
    fresh.keep(call(1), &answer(&memory, b"{}".to_vec()), Keep::Briefly, &view);
    assert_eq!(fresh.stats().entries, 0, "nobody has looked yet");
    world.cache.take_over(&Step { broke: None, standing: None });
    let view = world.cache.view();
    world.keep(1, Keep::Briefly, &view);
    assert!(!world.gives(1) && world.cache.stats().suspended);
}

#[test]
fn what_says_that_it_is_on_l2_is_kept_until_more_is_accepted_on_l1() {
    let world = World::new();
    let view = world.cache.view();
    world.keep(1, Keep::UntilL1(1), &view);
    world.keep(2, Keep::WithBlock(2), &view);
    world.cache.take_over(&stands(Some(5), Some(1)));
    assert!(!world.gives(1), "it may be on L1 by now");
    assert!(world.gives(2), "what says nothing of L2 stays");
    world.keep(3, Keep::UntilL1(3), &view);
    assert!(!world.gives(3), "it was asked for before");
    world.cache.take_over(&stands(Some(5), None));
    let view = world.cache.view();
    world.keep(4, Keep::UntilL1(4), &view);
    assert!(!world.gives(4), "nobody would see it change");
}

#[tokio::test(start_paused = true)]
async fn what_is_about_no_block_is_kept_for_ten_seconds() {
    let world = World::new();
    let view = world.cache.view();
    world.keep(1, Keep::Briefly, &view);
    tokio::time::advance(Duration::from_millis(9_999)).await;
    assert!(world.gives(1));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!world.gives(1));
}

#[test]
fn it_holds_no_more_bytes_and_no_more_entries_than_configured() {
    for (size, max_entries, payload) in
        [(4, 1_000, 64 << 10), (4, 100, 2), (64, 50, 2), (64, 16, 2)]
    {
        let memory = MemoryPool::new(256 << 20);
        let cache = Cache::new(&config(Size::from_mib(size), max_entries), Arc::clone(&memory));
        cache.take_over(&stands(Some(10_000), Some(0)));
        let view = cache.view();
        for number in 0..2_000 {
            let answer = answer(&memory, vec![b' '; payload]);
            cache.keep(call(number), &answer, Keep::WithBlock(number), &view);
        }
        let standing = cache.stats();
        let what = format!("{size} MiB, {max_entries} entries: {standing:?}");
        assert!(standing.bytes <= size << 20, "{what}");
        assert!(standing.entries <= max_entries as u64, "{what}");
        assert!(standing.entries >= 16, "it is of use: {what}");
        assert!(memory.taken() as u64 <= standing.bytes, "leases are given back: {what}");
    }
}

#[test]
fn room_for_the_largest_answer_stays_free_whatever_a_reload_switches_on() {
    let memory = MemoryPool::new(2 * MAX_ANSWER);
    let cache = Cache::new(&config(Size::from_mib(64), 1_000), Arc::clone(&memory));
    cache.take_over(&stands(Some(10_000), Some(0)));
    let view = cache.view();
    for number in 0..1_000 {
        let answer = answer(&memory, vec![b' '; 64 << 10]);
        cache.keep(call(number), &answer, Keep::WithBlock(number), &view);
    }
    assert!(cache.stats().entries > 16, "it is of use: {:?}", cache.stats());
    assert!(memory.taken() <= MAX_ANSWER, "{} bytes are taken", memory.taken());
}

#[test]
fn a_pause_gives_nothing_and_forgets_nothing() {
    let world = World::new();
    world.keep(1, Keep::WithBlock(1), &world.cache.view());
    world.cache.pause();
    assert!(!world.gives(1), "nobody sees the chain");
    world.cache.take_over(&stands(Some(5), Some(0)));
    assert!(world.gives(1), "it stood all the time");
}

#[test]
fn an_entry_is_a_copy_with_a_lease_that_lives_as_long_as_somebody_reads_it() {
    let world = World::new();
    let view = world.cache.view();
    let whole = Bytes::from(vec![b' '; 1 << 20]);
    let part = Answer { payload: whole.slice(..1_000), ..answer(&world.memory, Vec::new()) };
    world.cache.keep(call(1), &part, Keep::WithBlock(1), &view);
    drop(part);
    assert!(whole.is_unique(), "the large buffer is not held by a small part of it");
    let taken = world.memory.taken();
    assert!((1_000..2_000).contains(&taken), "{taken} bytes are taken");
    let given = world.cache.get(&call(1), &view).expect("it is kept");
    world.cache.suspend();
    assert_eq!(world.memory.taken(), taken, "somebody still reads it");
    drop(given);
    assert_eq!(world.memory.taken(), 0);
}

#[test]
fn those_who_wait_for_answers_come_before_the_cache() {
    let memory = MemoryPool::new(1_000);
    let cache = Cache::new(&config(Size::from_mib(1), 10), Arc::clone(&memory));
    cache.take_over(&stands(Some(5), Some(0)));
    let view = cache.view();
    let answer = answer(&memory, vec![b' '; 2_000]);
    cache.keep(call(1), &answer, Keep::WithBlock(1), &view);
    assert!(cache.get(&call(1), &view).is_none(), "there is no memory for a copy");
    assert_eq!(memory.taken(), 0);
}

#[test]
fn switched_off_it_is_empty_and_its_watch_is_told() {
    let world = World::new();
    let switched = world.cache.switched();
    let view = world.cache.view();
    world.keep(1, Keep::WithBlock(1), &view);
    world.cache.switch(true);
    assert!(world.gives(1) && !switched.has_changed().expect("the cache is there"));
    world.cache.switch(false);
    assert!(switched.has_changed().expect("the cache is there"));
    assert_eq!(world.cache.stats().entries, 0);
    world.cache.switch(true);
    assert!(!world.gives(1), "not before somebody has looked again");
    world.keep(1, Keep::WithBlock(1), &view);
    assert_eq!(world.cache.stats().entries, 0, "what was asked for before comes too late");
}
