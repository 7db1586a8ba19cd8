//! The rate limiter against one that stores every time: the first bytes choose quota and capacity,
//! then each three bytes are a request, a peek, a new quota or a pause.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_filters::client::ClientKey;
use portcullis_filters::limit::{Busy, Millis, Quota, RateLimitStatus, RateLimiter};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;

type Limiter = RateLimiter<BuildHasherDefault<DefaultHasher>>;

const WINDOW: u64 = 60_000;

fuzz_target!(|data: &[u8]| {
    let [quota, capacity, steps @ ..] = data else {
        return;
    };
    let quota = 1 + u32::from(*quota) % 32;
    let capacity = 1 + u32::from(*capacity) % 8;
    let limiter = Limiter::new(
        Quota::per_minute(quota).expect("at least one"),
        NonZeroU32::MIN.saturating_add(capacity - 1),
        BuildHasherDefault::default(),
    );
    let mut plain = Plain {
        quota,
        capacity: capacity as usize,
        clients: Vec::new(),
        evicted: 0,
    };
    let mut now = 1_000;
    for step in steps.as_chunks::<3>().0 {
        let [kind, client, amount] = *step;
        let (client, amount) = (u32::from(client) % 10, u64::from(amount));
        match kind % 8 {
            0 => now += amount,
            1 => now += amount * 500,
            2 => now += WINDOW - 128 + amount,
            3 => {
                plain.quota = 1 + u32::from(step[2]) % 40;
                let quota = Quota::per_minute(plain.quota).expect("at least one");
                limiter.set_quota(quota, Millis(now));
            }
            4 => assert_eq!(
                limiter.peek(key(client), Millis(now)),
                plain.peek(client, now)
            ),
            5 => assert_busiest(&limiter, &plain, now),
            _ => {
                for _ in 0..=amount % 16 {
                    let found = limiter.check(key(client), Millis(now));
                    assert_eq!(found, plain.check(client, now), "client {client} at {now}");
                }
            }
        }
    }
    assert_eq!(limiter.population() as usize, plain.clients.len());
    assert_eq!(limiter.evicted(), plain.evicted);
});

fn key(client: u32) -> ClientKey {
    ClientKey::of(IpAddr::V4(Ipv4Addr::from_bits(client)))
}

/// The times of all admissions; the client that was seen last is the last.
struct Plain {
    quota: u32,
    capacity: usize,
    clients: Vec<(u32, Vec<u64>)>,
    evicted: u64,
}

impl Plain {
    fn check(&mut self, client: u32, now: u64) -> RateLimitStatus {
        let at = self.clients.iter().position(|(known, _)| *known == client);
        let (_, mut times) = at
            .map(|at| self.clients.remove(at))
            .unwrap_or((client, Vec::new()));
        if at.is_none() && self.clients.len() == self.capacity {
            self.clients.remove(0);
            self.evicted += 1;
        }
        let admitted = self.status(&times, now).admitted;
        if admitted {
            times.push(now);
        }
        // of a new client, the time before its first request
        let is_first = at.is_none();
        let status = self.status(if is_first { &[] } else { &times }, now);
        let remaining = status.remaining - u32::from(is_first);
        self.clients.push((client, times));
        RateLimitStatus {
            admitted,
            remaining,
            ..status
        }
    }

    fn peek(&self, client: u32, now: u64) -> RateLimitStatus {
        let known = self.clients.iter().find(|(known, _)| *known == client);
        self.status(
            known.map(|(_, times)| times.as_slice()).unwrap_or_default(),
            now,
        )
    }

    fn status(&self, times: &[u64], now: u64) -> RateLimitStatus {
        let counted: Vec<u64> = times
            .iter()
            .copied()
            .filter(|time| now - time < WINDOW)
            .collect();
        let remaining = self.quota.saturating_sub(counted.len() as u32);
        // those beyond a quota that was lowered do not delay the next admission
        let latest = counted.len().saturating_sub(self.quota as usize);
        let left = counted
            .get(latest)
            .map_or(WINDOW, |oldest| oldest + WINDOW - now);
        let reset_seconds = left.div_ceil(1_000) as u32;
        RateLimitStatus {
            admitted: remaining > 0,
            remaining,
            reset_seconds,
        }
    }
}

fn assert_busiest(limiter: &Limiter, plain: &Plain, now: u64) {
    let mut expected: Vec<u32> = plain
        .clients
        .iter()
        .map(|(_, times)| times.iter().filter(|time| now - *time < WINDOW).count() as u32)
        .filter(|requests| *requests > 0)
        .collect();
    expected.sort_unstable_by(|one, other| other.cmp(one));
    let found: Vec<Busy> = limiter.busiest(Millis(now), 16);
    assert_eq!(
        found.iter().map(|busy| busy.requests).collect::<Vec<_>>(),
        expected
    );
}
