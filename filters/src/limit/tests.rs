//! The limiter through its public interface, against a plain one that stores whole times.

use std::collections::VecDeque;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicU32, Ordering};

use proptest::prelude::*;

use super::*;
use crate::client::ClientKey;
use core::num::NonZeroU32;

type Hasher = BuildHasherDefault<DefaultHasher>;

const MEMORY_BOUND: usize = 48 << 20;

fn limiter(requests: u32, capacity: u32) -> RateLimiter<Hasher> {
    let quota = Quota::per_minute(requests).unwrap();
    RateLimiter::new(quota, NonZeroU32::new(capacity).unwrap(), Hasher::default())
}

fn client(number: u32) -> ClientKey {
    ClientKey::of(IpAddr::V4(Ipv4Addr::from_bits(number)))
}

/// A plain limiter; `clients` are in the order in which they were last seen.
struct Plain {
    quota: usize,
    capacity: usize,
    clients: VecDeque<(u32, VecDeque<u64>)>,
    evicted: u64,
}

impl Plain {
    fn check(&mut self, number: u32, now: u64) -> RateLimitStatus {
        let place = self.clients.iter().position(|(known, _)| *known == number);
        let (_, mut times) = place
            .and_then(|place| self.clients.remove(place))
            .unwrap_or_default();
        if place.is_none() && self.clients.len() == self.capacity {
            self.clients.pop_front();
            self.evicted += 1;
        }
        let (status, now) = Self::judge(self.quota, &mut times, now);
        let remaining = status.remaining - u32::from(status.admitted);
        let was_empty = times.is_empty();
        if status.admitted {
            times.push_back(now);
        }
        self.clients.push_back((number, times));
        let reset_seconds = if was_empty {
            WINDOW_SECONDS
        } else {
            status.reset_seconds
        };
        RateLimitStatus {
            remaining,
            reset_seconds,
            ..status
        }
    }

    fn peek(&self, number: u32, now: u64) -> RateLimitStatus {
        let known = self.clients.iter().find(|(known, _)| *known == number);
        let mut times = known.map(|(_, times)| times.clone()).unwrap_or_default();
        Self::judge(self.quota, &mut times, now).0
    }

    fn judge(quota: usize, times: &mut VecDeque<u64>, now: u64) -> (RateLimitStatus, u64) {
        let now = now.max(times.back().copied().unwrap_or(0));
        times.retain(|time| time + 60_000 > now);
        let remaining = quota.saturating_sub(times.len()) as u32;
        let left = times.front().map_or(60_000, |oldest| oldest + 60_000 - now);
        let reset_seconds = left.div_ceil(1000) as u32;
        (
            RateLimitStatus {
                admitted: remaining > 0,
                remaining,
                reset_seconds,
            },
            now,
        )
    }
}

#[test]
fn the_181st_request_in_a_minute_is_refused() {
    let limiter = limiter(180, 10);
    let ask = |millis| limiter.check(client(1), Millis(millis));
    for sent in 1..=180 {
        let status = RateLimitStatus {
            admitted: true,
            remaining: 180 - sent,
            reset_seconds: 60,
        };
        assert_eq!(ask(5), status, "request {sent} of 180 at the same time");
    }
    let refused = |reset_seconds| RateLimitStatus {
        admitted: false,
        remaining: 0,
        reset_seconds,
    };
    assert_eq!(ask(5), refused(60), "the 181st");
    assert_eq!(
        ask(1_004),
        refused(60),
        "59.001 s are left, which is rounded up"
    );
    assert_eq!(ask(1_005), refused(59), "59 s are left");
    assert_eq!(ask(60_004), refused(1), "one millisecond is left");
    let again = RateLimitStatus {
        admitted: true,
        remaining: 179,
        reset_seconds: 60,
    };
    assert_eq!(
        ask(60_005),
        again,
        "60 s after them all have left, and the refused never counted"
    );
}

#[test]
fn each_request_leaves_the_window_after_60_s() {
    let limiter = limiter(3, 10);
    let cases = [
        (0, true, 60),
        (20_000, true, 40),
        (59_999, true, 1),
        (59_999, false, 1),
        (60_000, true, 20),
        (60_000, false, 20),
        (79_999, false, 1),
        (80_000, true, 40),
        (139_999, true, 1),
        (140_000, true, 60),
        (140_000, true, 60),
        (140_000, false, 60),
    ];
    for (millis, admitted, reset_seconds) in cases {
        let status = limiter.check(client(1), Millis(millis));
        assert_eq!(
            (status.admitted, status.reset_seconds),
            (admitted, reset_seconds),
            "{millis}"
        );
    }
}

#[test]
fn a_peek_changes_nothing() {
    let limiter = limiter(2, 2);
    let unknown = RateLimitStatus {
        admitted: true,
        remaining: 2,
        reset_seconds: 60,
    };
    assert_eq!(limiter.peek(client(1), Millis(0)), unknown);
    assert!(limiter.population() == 0, "a peek adds no client");
    limiter.check(client(1), Millis(0));
    limiter.check(client(2), Millis(0));
    let one_left = RateLimitStatus {
        admitted: true,
        remaining: 1,
        reset_seconds: 50,
    };
    for _ in 0..9 {
        assert_eq!(limiter.peek(client(1), Millis(10_000)), one_left);
    }
    limiter.check(client(3), Millis(10_000));
    assert_eq!(
        limiter.peek(client(1), Millis(10_000)),
        unknown,
        "it was still the oldest"
    );
    limiter.check(client(2), Millis(10_000));
    let full = RateLimitStatus {
        admitted: false,
        remaining: 0,
        reset_seconds: 50,
    };
    assert_eq!(limiter.peek(client(2), Millis(10_000)), full);
    assert_eq!(
        limiter.peek(client(2), Millis(70_000)),
        unknown,
        "nothing counts any more"
    );
}

#[test]
fn the_least_recently_seen_client_is_evicted() {
    let limiter = limiter(1, 3);
    for number in [1, 2, 3, 1, 4] {
        limiter.check(client(number), Millis(0));
    }
    let known = |number| !limiter.peek(client(number), Millis(0)).admitted;
    assert_eq!(
        [1, 2, 3, 4].map(known),
        [true, false, true, true],
        "2 was not seen again"
    );
    assert_eq!((limiter.population(), limiter.evicted()), (3, 1));
}

#[test]
fn a_refused_request_is_seen_too() {
    let limiter = limiter(1, 2);
    for number in [1, 2, 1, 3] {
        limiter.check(client(number), Millis(0));
    }
    assert!(
        !limiter.peek(client(1), Millis(0)).admitted,
        "1 was refused, but not forgotten"
    );
}

#[test]
fn an_earlier_time_counts_as_the_newest() {
    let limiter = limiter(2, 1);
    limiter.check(client(1), Millis(100_000));
    let late = limiter.check(client(1), Millis(90_000));
    assert_eq!(
        late,
        RateLimitStatus {
            admitted: true,
            remaining: 0,
            reset_seconds: 60
        }
    );
    assert!(
        !limiter.check(client(1), Millis(159_999)).admitted,
        "both count from 100,000"
    );
    assert!(limiter.check(client(1), Millis(160_000)).admitted);
    assert!(
        limiter.check(client(1), Millis(u64::MAX)).admitted,
        "the end of time is a time"
    );
    assert_eq!(limiter.check(client(1), Millis(0)).remaining, 0);
}

#[test]
fn the_largest_quota_admits_a_million_requests() {
    let limiter = limiter(Quota::MAX, 1);
    for _ in 0..1_000_000 {
        assert!(limiter.check(client(1), Millis(7)).admitted);
    }
    let status = limiter.peek(client(1), Millis(60_006));
    assert_eq!(status.remaining, Quota::MAX - 1_000_000);
    let bytes = limiter.memory_bytes();
    assert!(
        (2_000_000..2_200_000).contains(&bytes),
        "{bytes}: two each, in a ring of 2^20"
    );
    limiter.check(client(1), Millis(30_000));
    assert_eq!(
        limiter.check(client(1), Millis(60_007)).remaining,
        Quota::MAX - 2
    );
}

#[test]
fn a_quota_is_one_to_a_billion() {
    for (requests, fits) in [
        (0, false),
        (1, true),
        (Quota::MAX, true),
        (Quota::MAX + 1, false),
    ] {
        assert_eq!(Quota::per_minute(requests).is_some(), fits, "{requests}");
    }
}

#[test]
fn full_windows_of_100_000_clients_fit_48_mib() {
    let limiter = limiter(180, 100_000);
    let fill = |numbers: std::ops::Range<u32>| {
        for number in numbers {
            for request in 0..180 {
                limiter.check(client(number), Millis(request * 333));
            }
        }
    };
    std::thread::scope(|threads| {
        threads.spawn(|| fill(0..50_000));
        threads.spawn(|| fill(50_000..100_000));
    });
    assert_eq!(
        (limiter.population(), limiter.evicted()),
        (100_000, 0),
        "all are stored"
    );
    let full =
        (0..100_000).all(|number| limiter.peek(client(number), Millis(59_999)).remaining == 0);
    assert!(full, "each has 180 requests in its window");
    let bytes = limiter.memory_bytes();
    assert!(
        bytes < MEMORY_BOUND,
        "{bytes} bytes are {MEMORY_BOUND} or more"
    );
    for number in 100_000..250_000 {
        limiter.check(client(number), Millis(60_000));
    }
    assert_eq!(
        (limiter.population(), limiter.evicted()),
        (100_000, 150_000)
    );
    let bytes = limiter.memory_bytes();
    assert!(
        bytes < MEMORY_BOUND,
        "{bytes} bytes after others took their places"
    );
}

#[test]
fn eviction_frees_memory() {
    let limiter = limiter(180, 1000);
    let mut largest = 0;
    for round in 0..20_000_u32 {
        limiter.check(client(round), Millis(0));
        limiter.check(client(round), Millis(1));
        largest = largest.max(if round % 500 == 0 {
            limiter.memory_bytes()
        } else {
            0
        });
    }
    assert_eq!((limiter.population(), limiter.evicted()), (1000, 19_000));
    assert!(largest < 150_000, "{largest} bytes for 1,000 clients");
}

#[test]
fn a_growing_table_is_seldom_moved() {
    let limiter = limiter(1, 3_000);
    let mut sizes = std::collections::BTreeSet::new();
    for number in 0..3_000 {
        limiter.check(client(number), Millis(0));
        sizes.insert(limiter.memory_bytes());
    }
    assert!(sizes.len() < 40, "{} sizes", sizes.len());
}

#[test]
fn threads_share_a_client_s_quota() {
    let limiter = limiter(180, 5000);
    let admitted = std::sync::atomic::AtomicU32::new(0);
    std::thread::scope(|threads| {
        for thread in 0..4_u64 {
            let (limiter, admitted) = (&limiter, &admitted);
            threads.spawn(move || {
                for request in 0..1000 {
                    let now = Millis(request * 59 + thread);
                    let status = limiter.check(client(request as u32 % 3), now);
                    admitted.fetch_add(status.admitted.into(), std::sync::atomic::Ordering::SeqCst);
                }
            });
        }
    });
    assert_eq!(
        admitted.into_inner(),
        3 * 180,
        "4,000 requests of 3 clients within 60 s"
    );
    assert_eq!(limiter.population(), 3);
}

#[test]
fn racing_threads_pass_no_bound_below_the_quota() {
    const MOST: u32 = 500;
    let quota = Quota::per_minute(10_000).unwrap();
    for round in 0..100 {
        let limiter = limiter(10_000, 16);
        let (start, admitted) = (std::sync::Barrier::new(4), AtomicU32::new(0));
        std::thread::scope(|threads| {
            for _ in 0..4 {
                threads.spawn(|| {
                    start.wait();
                    // all are at the bound at the same time
                    for _ in 0..MOST {
                        let status = limiter.check_within(client(round), quota, Millis(0), MOST);
                        admitted.fetch_add(status.admitted.into(), Ordering::SeqCst);
                    }
                });
            }
        });
        assert_eq!(admitted.into_inner(), MOST, "in round {round}");
    }
}

#[test]
fn a_bound_below_the_quota_applies_first() {
    let (limiter, quota) = (limiter(3, 16), Quota::per_minute(3).unwrap());
    let check = |most| {
        let status = limiter.check_within(client(1), quota, Millis(0), most);
        (status.admitted, status.remaining)
    };
    for (most, expected, why) in [
        (0, (false, 0), "nothing passes"),
        (2, (true, 1), "the first of two"),
        (2, (true, 0), "the second of two"),
        (2, (false, 0), "a third"),
        (9, (true, 0), "the quota has room for a third"),
        (9, (false, 0), "and for no fourth"),
    ] {
        assert_eq!(check(most), expected, "{why}");
    }
}

#[test]
fn shards_share_the_capacity() {
    let limiter = limiter(1, 5000);
    for number in 0..5000 {
        limiter.check(client(number), Millis(0));
    }
    assert_eq!(
        (limiter.population(), limiter.evicted()),
        (5000, 0),
        "no eviction before it is full"
    );
    assert_eq!(limiter.capacity(), 5000);
    let sizes: Vec<u32> = limiter
        .shards()
        .map(|shard| shard.lock().recent().len())
        .collect();
    assert!(
        sizes.len() == 16 && sizes.iter().all(|size| *size > 200),
        "{sizes:?}: each its part"
    );
    for number in 5000..6000 {
        limiter.check(client(number), Millis(0));
    }
    assert_eq!(
        (limiter.population(), limiter.evicted()),
        (5000, 1000),
        "then one for each new client"
    );
    let known = |number: &u32| !limiter.peek(client(*number), Millis(0)).admitted;
    assert!(
        (2000..6000).all(|number| known(&number)),
        "the evicted are among the oldest"
    );
    assert_eq!((0..2000).filter(known).count(), 1000, "as many as came");
}

#[test]
fn a_small_limiter_has_one_shard() {
    for (capacity, shards) in [(1, 1), (4_095, 1), (4_096, 16), (100_000, 16)] {
        assert_eq!(limiter(1, capacity).shards().count(), shards, "{capacity}");
    }
}

#[test]
fn a_small_limiter_evicts_exactly_the_oldest() {
    let limiter = limiter(1, 1000);
    for number in 0..1500 {
        limiter.check(client(number), Millis(0));
    }
    let known = |number| !limiter.peek(client(number), Millis(0)).admitted;
    assert!((0..500).all(|number| !known(number)) && (500..1500).all(known));
}

#[test]
fn a_new_quota_applies_to_stored_clients() {
    let limiter = limiter(180, 5000);
    for number in 0..50 {
        for request in 0..100 {
            limiter.check(client(number), Millis(request * 100));
        }
    }
    for (quota, remaining, reset_seconds) in
        [(500, 400, 50), (20, 0, 58), (90, 0, 51), (130, 30, 50)]
    {
        limiter.set_quota(Quota::per_minute(quota).unwrap(), Millis(10_000));
        for number in 0..50 {
            let status = limiter.peek(client(number), Millis(10_000));
            let expected = RateLimitStatus {
                admitted: remaining > 0,
                remaining,
                reset_seconds,
            };
            assert_eq!(status, expected, "with a quota of {quota}");
        }
    }
}

#[test]
fn a_client_is_judged_by_the_quota_it_brings() {
    let limiter = limiter(3, 16);
    let ample = Quota::per_minute(500).unwrap();
    let scant = Quota::per_minute(1).unwrap();
    let admitted = |number, quota| {
        (0..600)
            .filter(|_| limiter.check_by(client(number), quota, Millis(0)).admitted)
            .count()
    };
    for (number, quota, expected, why) in [
        (1, ample, 500, "more than the others"),
        (1, scant, 0, "its requests count for a smaller quota"),
        (2, scant, 1, "less than the others"),
        (2, ample, 499, "and for a larger one"),
    ] {
        assert_eq!(admitted(number, quota), expected, "{why}");
    }
    assert_eq!(limiter.admitted(client(1), Millis(59_999)), 500);
    assert_eq!(
        limiter.peek_by(client(1), ample, Millis(60_000)).remaining,
        500
    );
    let others = (0..5).filter(|_| limiter.check(client(3), Millis(0)).admitted);
    assert_eq!(others.count(), 3, "the common quota applies to the rest");
}

#[test]
fn a_quota_lowered_and_raised_forgets_no_admission() {
    let limiter = limiter(180, 10);
    let admitted = |millis| {
        (0..200)
            .filter(|_| limiter.check(client(1), Millis(millis)).admitted)
            .count()
    };
    let change = |requests, millis| {
        limiter.set_quota(Quota::per_minute(requests).unwrap(), Millis(millis));
    };
    assert_eq!(admitted(0), 180);
    change(10, 1_000);
    assert_eq!(admitted(2_000), 0);
    change(180, 3_000);
    assert_eq!(admitted(4_000), 0, "the 180 of 0 ms still count");
    change(200, 5_000);
    assert_eq!(admitted(6_000), 20, "all that the higher quota adds");
    assert_eq!(admitted(60_000), 180, "those of 6,000 ms count on");
}

#[test]
fn a_lowered_quota_releases_memory_after_a_minute() {
    let limiter = limiter(1_000, 10_000);
    for number in 0..10_000 {
        for _ in 0..1_000 {
            limiter.check(client(number), Millis(0));
        }
    }
    let full = limiter.memory_bytes();
    limiter.set_quota(Quota::per_minute(1).unwrap(), Millis(0));
    let others = |millis| {
        (0..10_000).for_each(|number| {
            limiter.check(client(number % 100), Millis(millis));
        })
    };
    others(59_999);
    assert_eq!(limiter.memory_bytes(), full, "all of it counts");
    others(60_000);
    let bytes = limiter.memory_bytes();
    assert!(
        bytes < 1_000_000,
        "{bytes} bytes for one admission of each client"
    );
}

#[test]
fn an_unchanged_quota_delays_no_release() {
    let limiter = limiter(1_000, 16);
    let check = |number, millis| limiter.check(client(number), Millis(millis));
    for number in 0..10 {
        assert!((0..1_000).all(|_| check(number, 0).admitted));
    }
    for (requests, at) in [(9, 0), (9, 30_000), (10, 40_000)] {
        limiter.set_quota(Quota::per_minute(requests).unwrap(), Millis(at));
    }
    let bytes_after_checks = |millis| {
        for _ in 0..10 {
            check(0, millis);
        }
        limiter.memory_bytes()
    };
    assert!(
        bytes_after_checks(59_999) > 20_000,
        "all of it counts, two bytes each"
    );
    let bytes = bytes_after_checks(60_000);
    assert!(
        bytes < 10_000,
        "{bytes} bytes for one admission of each client"
    );
}

#[derive(Clone, Debug)]
struct Burst {
    client: u32,
    after: u64,
    requests: usize,
}

fn bursts() -> impl Strategy<Value = Vec<Burst>> {
    let after = prop_oneof![
        3 => 0u64..3,
        3 => 0u64..1000,
        2 => 0u64..30_000,
        1 => 59_998u64..60_003,
        1 => 0u64..200_000,
    ];
    let burst = (0u32..6, after, 1usize..40);
    prop::collection::vec(
        burst.prop_map(|(client, after, requests)| Burst {
            client,
            after,
            requests,
        }),
        1..150,
    )
}

proptest! {
    #[test]
    fn the_limiter_agrees_with_a_plain_one(
        quota in prop_oneof![1u32..=20, 1u32..=500, 500u32..=100_000, Just(Quota::MAX)],
        capacity in 1u32..8,
        bursts in bursts(),
        backwards in prop::collection::vec(0u64..20, 1..9),
    ) {
        let limiter = limiter(quota, capacity);
        let clients = VecDeque::new();
        let (capacity, quota) = (capacity as usize, quota as usize);
        let mut plain = Plain { quota, capacity, clients, evicted: 0 };
        let mut now = 1000;
        let mut backwards = backwards.iter().cycle();
        for burst in bursts {
            now += burst.after;
            for _ in 0..burst.requests {
                let then = now - backwards.next().unwrap();
                let key = client(burst.client);
                prop_assert_eq!(limiter.peek(key, Millis(then)), plain.peek(burst.client, then));
                let expected = plain.check(burst.client, then);
                prop_assert_eq!(limiter.check(key, Millis(then)), expected);
            }
        }
        prop_assert_eq!(limiter.population() as usize, plain.clients.len());
        prop_assert_eq!(limiter.evicted(), plain.evicted);
    }
}

#[test]
fn a_value_goes_with_its_window() {
    let quota = Quota::per_minute(5).unwrap();
    let limiter = RateLimiter::with_values(quota, NonZeroU32::new(2).unwrap(), Hasher::default());
    let key = |number| ClientKey::of(IpAddr::V4(Ipv4Addr::from_bits(number)));
    limiter.check(key(1), Millis(0));
    assert_eq!(limiter.value_or_insert(key(1), || "one"), "one");
    assert_eq!(
        limiter.value_or_insert(key(2), || "two"),
        "two",
        "also before it is admitted"
    );
    assert_eq!(limiter.admitted(key(2), Millis(0)), 0);
    assert_eq!(
        limiter.value_or_insert(key(1), || "again"),
        "one",
        "and it is seen"
    );
    limiter.check(key(3), Millis(1));
    assert_eq!(limiter.admitted(key(3), Millis(1)), 1);
    assert_eq!(
        (limiter.value(key(1)), limiter.value(key(2))),
        (Some("one"), None)
    );
    assert_eq!((limiter.evicted(), limiter.population()), (1, 2));
    assert_eq!(limiter.values(|_| true), ["one"]);
    limiter.value_or_insert(key(4), || "four");
    assert_eq!(
        limiter.admitted(key(1), Millis(1)),
        0,
        "the window goes with the value"
    );
}
