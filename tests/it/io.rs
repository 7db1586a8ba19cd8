//! Single-flight, deadlines and bounded memory, on virtual time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures_util::FutureExt as _;
use portcullis_base::io::shared::{Aborted, Shared};
use portcullis_base::io::{Exhausted, LazyTimer, MemoryPermit, MemoryPool, lifetime};
use tokio::time::{Instant, advance, sleep};

const TTL: Duration = Duration::from_secs(10);

/// A table whose computations take a second and return their number.
struct World {
    shared: Shared<&'static str, u32>,
    started: Arc<AtomicU32>,
}

impl World {
    fn new() -> Self {
        Self {
            shared: Shared::new(4, |_| 1),
            started: Arc::default(),
        }
    }

    async fn get(&self, key: &'static str, ttl: Duration) -> Result<u32, Aborted> {
        let started = Arc::clone(&self.started);
        let compute = async move {
            let number = started.fetch_add(1, Ordering::Relaxed) + 1;
            sleep(Duration::from_secs(1)).await;
            (number, ttl)
        };
        self.shared.get(key, compute).await
    }
}

#[tokio::test(start_paused = true)]
async fn equal_keys_share_a_computation() {
    let world = World::new();
    let get = |key, ttl| world.get(key, ttl);
    let found = tokio::join!(get("a", TTL), get("a", TTL), get("b", Duration::ZERO));
    assert_eq!(found, (Ok(1), Ok(1), Ok(2)));
    assert_eq!(get("a", TTL).await, Ok(1), "cached");
    assert_eq!(
        get("b", TTL).await,
        Ok(3),
        "a lifetime of zero serves those who wait"
    );
    advance(Duration::from_secs(8)).await;
    assert_eq!(
        get("a", TTL).await,
        Ok(4),
        "ten seconds after it was started"
    );
    world.shared.invalidate(&"a");
    assert_eq!(get("a", TTL).await, Ok(5));
}

#[tokio::test(start_paused = true)]
async fn a_caller_that_leaves_cancels_nothing() {
    let world = World::new();
    assert!(world.get("a", TTL).now_or_never().is_none());
    assert!(world.shared.is_running(&"a"), "recorded and running");
    assert_eq!(
        world.get("a", TTL).await,
        Ok(1),
        "a follower outlives its leader"
    );
    assert!(!world.shared.is_running(&"a"));
}

#[tokio::test(start_paused = true)]
async fn a_panic_is_an_error_for_all() {
    let world = World::new();
    let fail = || {
        world.shared.get("a", async {
            sleep(Duration::from_secs(1)).await;
            panic!("the computation fails")
        })
    };
    assert_eq!(
        tokio::join!(fail(), fail()),
        (Err(Aborted::Interrupted), Err(Aborted::Interrupted))
    );
    assert_eq!(world.get("a", TTL).await, Ok(1), "the next one tries again");
}

#[tokio::test(start_paused = true)]
async fn an_invalidated_result_is_not_cached() {
    let world = World::new();
    let mut first = Box::pin(world.get("a", TTL));
    assert!((&mut first).now_or_never().is_none());
    world.shared.invalidate(&"a");
    assert_eq!(tokio::join!(first, world.get("a", TTL)), (Ok(1), Ok(2)));
    assert_eq!(world.get("a", TTL).await, Ok(2));
}

#[tokio::test(start_paused = true)]
async fn a_full_table_is_emptied() {
    let world = World::new();
    for key in ["a", "b", "c", "d", "e"] {
        assert!(world.get(key, TTL).await.is_ok());
    }
    assert_eq!(world.get("e", TTL).await, Ok(5), "the newest is cached");
    for (key, number) in [("a", 6), ("b", 7), ("c", 8)] {
        assert_eq!(world.get(key, TTL).await, Ok(number), "{key} was evicted");
    }
    assert_eq!(
        world.get("e", TTL).await,
        Ok(5),
        "an emptied table has room for four again"
    );
}

#[tokio::test(start_paused = true)]
async fn a_value_that_does_not_fit_evicts_nothing() {
    let shared = Shared::new(4, |weight: &usize| *weight);
    let get = |key, weight| shared.get(key, async move { (weight, TTL) });
    assert_eq!(get("a", 4).await, Ok(4));
    assert_eq!(get("heavy", 5).await, Ok(5), "it serves its callers");
    assert!(!shared.is_known(&"heavy"), "and is not cached");
    assert!(shared.is_known(&"a"), "what fits stays");
}

#[tokio::test(start_paused = true)]
async fn a_task_ends_at_its_limit() {
    let limit = Duration::from_secs(60);
    assert_eq!(lifetime(limit, async { 7 }).await, Some(7));
    for pause in [Duration::from_secs(7), Duration::from_secs(3600)] {
        let begin = Instant::now();
        let life = async move {
            loop {
                sleep(pause).await;
            }
        };
        let over: Option<()> = tokio::spawn(lifetime(limit, life)).await.expect("no panic");
        assert_eq!((over, begin.elapsed().as_secs()), (None, 60));
    }
}

#[tokio::test(start_paused = true)]
async fn a_lazy_timer_fires_at_each_deadline() {
    let mut timer = LazyTimer::default();
    for seconds in [5, 60, 1, 8, 8] {
        let begin = Instant::now();
        let until = begin + Duration::from_secs(seconds);
        let late = timer.within(until, sleep(Duration::from_secs(3600))).await;
        assert_eq!((late, begin.elapsed().as_secs()), (None, seconds));
        let in_time = timer
            .within(until + Duration::from_secs(2), async { 7 })
            .await;
        assert_eq!(in_time, Some(7));
    }
}

#[test]
fn a_share_is_reserved_once_and_released() {
    let memory = MemoryPool::new(100);
    let mut one = MemoryPermit::of(&memory);
    let mut two = MemoryPermit::of(&memory);
    assert_eq!(one.reserve(60), Ok(()));
    assert_eq!(one.reserve(40), Ok(()), "it covers that already");
    assert_eq!(two.reserve(41), Err(Exhausted::Pool));
    assert_eq!(two.reserve(40), Ok(()));
    assert_eq!(memory.taken(), 100);
    drop(one);
    assert_eq!(memory.taken(), 40);
    drop(two);
    assert_eq!(memory.taken(), 0);
}
