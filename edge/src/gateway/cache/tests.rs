//! Which answers are cached, for how long, and within which bounds.

use super::*;
use portcullis_base::config::Size;
use portcullis_filters::chain::PurgeCause;
use portcullis_filters::chain::continuity::ChainStatus;
use tokio::time::Instant;

fn call(number: u64) -> Arc<CacheKey> {
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"starknet_getBlockWithTxHashes","params":[{{"block_number":{number}}}]}}"#
    );
    let call = permitted(&body).into_read().call();
    Arc::new(CacheKey::new(call, &ahash::RandomState::with_seed(0)))
}

fn answer(memory: &Arc<MemoryPool>, payload: Vec<u8>) -> Answer {
    let memory = Arc::new(MemoryPermit::of(memory));
    let payload = Bytes::from(payload);
    let gzip = GzipForm::of(payload.len());
    Answer {
        member: "result",
        payload,
        memory,
        gzip,
        node: Some(0),
    }
}

const ENABLED: CacheLive = CacheLive { enabled: true };

fn config(size: Size, max_entries: usize) -> CacheConfig {
    let watch_interval = Duration::from_secs(1);
    CacheConfig {
        size,
        max_entries,
        watch_interval,
    }
}

fn observed(settled: Option<u64>, l1: Option<u64>) -> Step {
    Step {
        broke: None,
        generation: 1,
        chain: Some(ChainStatus {
            position: None,
            settled,
            l1,
        }),
    }
}

fn unobserved() -> Step {
    Step {
        chain: None,
        ..observed(None, None)
    }
}

/// Moves a step to the next epoch.
fn next(broke: Option<PurgeCause>, step: Step) -> Step {
    Step {
        broke,
        generation: 2,
        ..step
    }
}

struct World {
    cache: Cache,
    memory: Arc<MemoryPool>,
}

impl World {
    /// A cache for a chain that is settled up to block 5.
    fn new() -> Self {
        let memory = MemoryPool::new(64 << 20);
        let cache = Cache::new(
            &config(Size::from_mib(4), 1_000),
            &ENABLED,
            Arc::clone(&memory),
        );
        cache.apply(&observed(Some(5), Some(0)), None);
        Self { cache, memory }
    }

    fn insert(&self, number: u64, policy: CachePolicy, view: &View) {
        let answer = answer(&self.memory, b"{}".to_vec());
        self.cache.insert(call(number), &answer, policy, view);
    }

    fn hits(&self, number: u64) -> bool {
        self.cache.get(&call(number), &self.cache.view()).is_some()
    }
}

#[test]
fn only_answers_of_settled_blocks_are_cached() {
    for (number, settled, cached) in [
        (5, Some(5), true),
        (6, Some(5), false),
        (0, Some(0), true),
        (0, None, false),
    ] {
        let world = World::new();
        world.cache.apply(&observed(settled, Some(0)), None);
        let view = world.cache.view();
        world.insert(number, CachePolicy::WithBlock(number), &view);
        assert_eq!(
            world.hits(number),
            cached,
            "block {number}, settled {settled:?}"
        );
    }
    let world = World::new();
    let before = world.cache.view();
    world.cache.apply(&observed(Some(6), Some(0)), None);
    world.insert(6, CachePolicy::WithBlock(6), &before);
    assert!(!world.hits(6), "it settled during the call");
}

#[test]
fn no_entry_outlives_its_epoch() {
    for (step, why) in [
        (
            next(Some(PurgeCause::Rollback), observed(Some(5), Some(0))),
            "a rollback",
        ),
        (
            next(Some(PurgeCause::Unreachable), unobserved()),
            "the node went away",
        ),
        (
            next(None, observed(Some(5), Some(0))),
            "another instance saw a rollback",
        ),
    ] {
        let world = World::new();
        let before = world.cache.view();
        for policy in [
            CachePolicy::WithBlock(1),
            CachePolicy::UntilL1(2),
            CachePolicy::Briefly,
        ] {
            world.insert(1, policy, &before);
            assert!(world.hits(1), "{policy:?} is cached");
        }
        world.cache.apply(&step, None);
        assert!(!world.hits(1), "{why}");
        assert_eq!(
            world.cache.stats().entries,
            0,
            "it takes no more memory: {why}"
        );
        assert_eq!(world.memory.taken(), 0, "nor does its permit: {why}");
        world.insert(1, CachePolicy::WithBlock(1), &before);
        world
            .cache
            .apply(&next(None, observed(Some(5), Some(0))), None);
        assert!(
            !world.hits(1),
            "the answer to an earlier request arrives too late: {why}"
        );
        let after = world.cache.view();
        world.insert(1, CachePolicy::WithBlock(1), &after);
        assert!(world.hits(1), "a later request is cached again: {why}");
    }
}

#[test]
fn an_unobserved_chain_bypasses_the_cache() {
    let world = World::new();
    let memory = MemoryPool::new(1 << 20);
    let fresh = Cache::new(
        &config(Size::from_mib(1), 10),
        &ENABLED,
        Arc::clone(&memory),
    );
    let view = fresh.view();
    fresh.insert(
        call(1),
        &answer(&memory, b"{}".to_vec()),
        CachePolicy::Briefly,
        &view,
    );
    assert_eq!(fresh.stats().entries, 0, "there was no poll yet");
    world.cache.apply(&unobserved(), None);
    let view = world.cache.view();
    world.insert(1, CachePolicy::Briefly, &view);
    assert!(!world.hits(1) && world.cache.stats().suspended);
}

#[test]
fn answers_on_l2_expire_when_l1_advances() {
    let world = World::new();
    let view = world.cache.view();
    world.insert(1, CachePolicy::UntilL1(1), &view);
    world.insert(2, CachePolicy::WithBlock(2), &view);
    world.cache.apply(&observed(Some(5), Some(1)), None);
    assert!(!world.hits(1), "it may be on L1 by now");
    assert!(world.hits(2), "what says nothing of L2 stays");
    world.insert(3, CachePolicy::UntilL1(3), &view);
    assert!(!world.hits(3), "it was requested earlier");
    world.cache.apply(&observed(Some(5), None), None);
    let view = world.cache.view();
    world.insert(4, CachePolicy::UntilL1(4), &view);
    assert!(!world.hits(4), "nobody would notice a change");
}

#[tokio::test(start_paused = true)]
async fn answers_about_no_block_expire_after_ten_seconds() {
    let world = World::new();
    let view = world.cache.view();
    world.insert(1, CachePolicy::Briefly, &view);
    tokio::time::advance(Duration::from_millis(9_999)).await;
    assert!(world.hits(1));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(!world.hits(1));
}

#[test]
fn bytes_and_entries_stay_within_their_bounds() {
    for (size, max_entries, payload) in
        [(4, 1_000, 64 << 10), (4, 100, 2), (64, 50, 2), (64, 16, 2)]
    {
        let memory = MemoryPool::new(256 << 20);
        let cache = Cache::new(
            &config(Size::from_mib(size), max_entries),
            &ENABLED,
            Arc::clone(&memory),
        );
        cache.apply(&observed(Some(10_000), Some(0)), None);
        let view = cache.view();
        for number in 0..2_000 {
            let answer = answer(&memory, vec![b' '; payload]);
            cache.insert(call(number), &answer, CachePolicy::WithBlock(number), &view);
        }
        let stats = cache.stats();
        let what = format!("{size} MiB, {max_entries} entries: {stats:?}");
        assert!(stats.bytes <= size << 20, "{what}");
        assert!(stats.entries <= max_entries as u64, "{what}");
        assert!(stats.entries >= 16, "it is of use: {what}");
        assert!(
            memory.taken() as u64 <= stats.bytes,
            "permits are released: {what}"
        );
    }
}

#[test]
fn the_largest_answer_always_fits_besides() {
    let memory = MemoryPool::new(2 * MAX_ANSWER);
    let cache = Cache::new(
        &config(Size::from_mib(64), 1_000),
        &ENABLED,
        Arc::clone(&memory),
    );
    cache.apply(&observed(Some(10_000), Some(0)), None);
    let view = cache.view();
    for number in 0..1_000 {
        let answer = answer(&memory, vec![b' '; 64 << 10]);
        cache.insert(call(number), &answer, CachePolicy::WithBlock(number), &view);
    }
    assert!(
        cache.stats().entries > 16,
        "it is of use: {:?}",
        cache.stats()
    );
    assert!(
        memory.taken() <= MAX_ANSWER,
        "{} bytes are taken",
        memory.taken()
    );
}

#[test]
fn a_pause_bypasses_and_purges_nothing() {
    let world = World::new();
    world.insert(1, CachePolicy::WithBlock(1), &world.cache.view());
    world.cache.pause();
    assert!(!world.hits(1), "the chain is not observed");
    world.cache.apply(&observed(Some(5), Some(0)), None);
    assert!(world.hits(1), "nothing changed meanwhile");
}

#[test]
fn an_entry_is_a_copy_with_its_own_permit() {
    let world = World::new();
    let view = world.cache.view();
    let whole = Bytes::from(vec![b' '; 1 << 20]);
    let part = Answer {
        payload: whole.slice(..1_000),
        ..answer(&world.memory, Vec::new())
    };
    world
        .cache
        .insert(call(1), &part, CachePolicy::WithBlock(1), &view);
    drop(part);
    assert!(
        whole.is_unique(),
        "the large buffer is not held by a small part of it"
    );
    let taken = world.memory.taken();
    assert!((1_000..2_000).contains(&taken), "{taken} bytes are taken");
    let entry = world.cache.get(&call(1), &view).expect("it is cached");
    world.cache.suspend();
    assert_eq!(world.memory.taken(), taken, "somebody still reads it");
    drop(entry);
    assert_eq!(world.memory.taken(), 0);
}

#[tokio::test]
async fn a_gzip_form_is_weighed_and_goes_with_its_entry() {
    let world = World::new();
    let view = world.cache.view();
    let answer = answer(&world.memory, vec![b'7'; 256 << 10]);
    world
        .cache
        .insert(call(1), &answer, CachePolicy::WithBlock(1), &view);
    let (bytes, taken) = (world.cache.stats().bytes, world.memory.taken());
    let entry = world.cache.get(&call(1), &view).expect("it is cached");
    assert!(
        entry.gzip.make(&entry.payload, Some(&world.memory)).await,
        "this call made it"
    );
    for _ in 0..2 {
        world.cache.reweigh(&call(1), &entry.gzip);
        let more = entry.gzip.length() as u64;
        assert_eq!(
            world.cache.stats().bytes,
            bytes + more,
            "it is weighed once"
        );
        assert_eq!(world.memory.taken() as u64, taken as u64 + more);
    }
    let again = world
        .cache
        .get(&call(1), &view)
        .expect("it is still cached");
    assert!(again.gzip.get().is_some(), "with its form");
    drop((answer, again));
    world.cache.suspend();
    world.cache.reweigh(&call(1), &entry.gzip);
    assert_eq!(
        world.cache.stats().entries,
        0,
        "a purged entry is not restored"
    );
    drop(entry);
    assert_eq!(world.memory.taken(), 0);
}

#[test]
fn answers_in_flight_take_precedence_over_the_cache() {
    let memory = MemoryPool::new(1_000);
    let cache = Cache::new(
        &config(Size::from_mib(1), 10),
        &ENABLED,
        Arc::clone(&memory),
    );
    cache.apply(&observed(Some(5), Some(0)), None);
    let view = cache.view();
    let answer = answer(&memory, vec![b' '; 2_000]);
    cache.insert(call(1), &answer, CachePolicy::WithBlock(1), &view);
    assert!(
        cache.get(&call(1), &view).is_none(),
        "there is no memory for a copy"
    );
    assert_eq!(memory.taken(), 0);
}

#[test]
fn switching_it_off_purges_and_notifies() {
    let world = World::new();
    let switched = world.cache.switched();
    let view = world.cache.view();
    world.insert(1, CachePolicy::WithBlock(1), &view);
    world.cache.enable();
    assert!(world.hits(1) && !switched.has_changed().expect("the cache is there"));
    world.cache.disable();
    assert!(switched.has_changed().expect("the cache is there"));
    assert_eq!(world.cache.stats().entries, 0);
    world.cache.enable();
    assert!(!world.hits(1), "not before the next poll");
    world.insert(1, CachePolicy::WithBlock(1), &view);
    assert_eq!(
        world.cache.stats().entries,
        0,
        "the answer to an earlier request arrives too late"
    );
}

#[tokio::test(start_paused = true)]
async fn a_view_ends_with_its_time_and_entries_stay() {
    let world = World::new();
    world.insert(1, CachePolicy::WithBlock(1), &world.cache.view());
    let step = observed(Some(5), Some(0));
    world
        .cache
        .apply(&step, Some(monotonic::now() + Duration::from_secs(2)));
    tokio::time::advance(Duration::from_millis(1_999)).await;
    assert!(world.hits(1));
    tokio::time::advance(Duration::from_millis(1)).await;
    assert!(
        !world.hits(1) && world.cache.stats().suspended,
        "what was published is old"
    );
    world
        .cache
        .apply(&step, Some(monotonic::now() + Duration::from_secs(2)));
    assert!(world.hits(1), "nothing changed meanwhile");
}

#[tokio::test(start_paused = true)]
async fn a_follower_waits_for_a_position_up_to_a_limit() {
    let at = |epoch, height| ChainPosition { epoch, height };
    let world = World::new();
    let limit = Duration::from_millis(100);
    let begun = Instant::now();
    world.cache.reach(at(1, 7), limit).await;
    assert_eq!(
        begun.elapsed(),
        Duration::ZERO,
        "who polls the chain knows no more"
    );
    world.cache.follows.store(true, Ordering::Relaxed);
    let outdated = world.cache.outdated.notified();
    world.cache.reach(at(1, 7), limit).await;
    assert_eq!(begun.elapsed(), limit, "in vain");
    outdated.await;
    let far = ChainStatus {
        position: Some(at(1, 7)),
        settled: None,
        l1: None,
    };
    let step = Step {
        chain: Some(far),
        ..observed(None, None)
    };
    tokio::join!(world.cache.reach(at(1, 7), limit), async {
        world.cache.apply(&step, None)
    });
    assert_eq!(begun.elapsed(), limit, "it is notified at once");
    for (position, is_reached) in [
        (at(1, 6), true),
        (at(1, 7), true),
        (at(0, 9), true),
        (at(1, 8), false),
        (at(2, 0), false),
    ] {
        assert_eq!(
            world.cache.view().reaches(position),
            is_reached,
            "{position:?}"
        );
    }
    world.cache.pause();
    assert!(
        !world.cache.view().reaches(at(0, 0)),
        "without a poll nothing is known"
    );
}
