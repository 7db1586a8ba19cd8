//! What the policy costs: the envelope beside its alternatives, the whole inspection, the
//! verification of an answer, and the limiter.
//!
//! `cargo bench --bench policy`. The first group is why `serde_json` under a strict visitor reads
//! the requests: `simd-json` needs a copy to write in and a second pass for what it does not
//! refuse.

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::limit::{Millis, Quota, SharedLimiter};
use portcullis_filters::policy::GatewayPolicy;
use portcullis_filters::rpc::response::Outcome;
use portcullis_filters::rpc::{Envelope, Method, MethodSet};
use std::hash::RandomState;
use std::hint::black_box;
use std::num::NonZeroU32;

/// A view call as starknet.js sends it.
const CALL: &str = r#"{"id":424,"jsonrpc":"2.0","method":"starknet_call","params":{"request":{"contract_address":"0x1fd38616408aa2fc74a8ed976dc06a18a0da3ee30af5999ce7345c57097903d","entry_point_selector":"0x2be2a5476c0756ff56b32d7cdea4cef84b2e4fb8aaeefc66e1e9d5ddebfc646","calldata":["0x7f793d298e1fee9d"]},"block_id":"latest"}}"#;

fn policy() -> GatewayPolicy {
    GatewayPolicy {
        methods: MethodSet::new(&Method::ALL),
        trusted_proxies: TrustedProxies::from(Vec::new()),
    }
}

/// The largest request that is accepted: a call with calldata up to the bound.
fn large_call() -> String {
    let felt = format!("\"0x{}\",", "1234567890abcdef".repeat(3));
    let count = (65_536 - CALL.len()) / felt.len();
    CALL.replace("\"0x7f793d298e1fee9d\"", felt.repeat(count).trim_end_matches(','))
}

fn envelope(c: &mut Criterion) {
    for (name, body) in [("call", CALL.to_owned()), ("64 KiB", large_call())] {
        let mut group = c.benchmark_group(format!("envelope of a {name}"));
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function("serde_json, strict visitor (ours)", |b| {
            b.iter(|| Envelope::parse(black_box(body.as_bytes())).expect("a request"));
        });
        group.bench_function("serde_json, Value (keeps the last duplicate)", |b| {
            b.iter(|| serde_json::from_slice::<serde_json::Value>(black_box(body.as_bytes())));
        });
        group.bench_function("simd-json, tape (then to be walked)", |b| {
            b.iter_batched_ref(
                || body.clone().into_bytes(),
                |bytes| simd_json::to_tape(black_box(bytes)).expect("JSON").0.len(),
                BatchSize::SmallInput,
            );
        });
        group.finish();
    }
}

fn inspection(c: &mut Criterion) {
    let policy = policy();
    let estimate = include_str!("../filters/tests/vectors/starknet_js.ndjson")
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|vector| {
            vector["method"] == "starknet_estimateFee" && vector["verdict"] == "permit"
        })
        .find_map(|vector| vector["body"].as_str().map(String::from))
        .expect("starknet.js estimates");
    let mut group = c.benchmark_group("inspect and write again");
    for (name, body) in [("call", CALL), ("estimateFee", &estimate), ("64 KiB", &large_call())] {
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(name, |b| {
            let mut out = Vec::with_capacity(128 << 10);
            b.iter(|| {
                out.clear();
                let permit = policy.inspect(black_box(body.as_bytes())).expect("permitted");
                permit.write_request(7, &mut out);
                out.len()
            });
        });
    }
    group.finish();
}

fn verification(c: &mut Criterion) {
    let mut group = c.benchmark_group("verify an answer");
    for size in [100, 4 << 10, 256 << 10, 4 << 20] {
        let felts = "\"0x1fd38616408aa2fc74a8ed976dc06a18a0da3ee3\",".repeat(size / 45 + 1);
        let felts = felts.trim_end_matches(',');
        let answer = format!(r#"{{"jsonrpc":"2.0","id":7,"result":[{felts}]}}"#);
        group.throughput(Throughput::Bytes(answer.len() as u64));
        group.bench_function(format!("{size} bytes"), |b| {
            b.iter(|| Outcome::verify(black_box(answer.as_bytes()), 7).expect("an answer"));
        });
    }
    group.finish();
}

fn limiter(c: &mut Criterion) {
    let quota = Quota::per_minute(180).expect("a quota");
    let capacity = NonZeroU32::new(100_000).expect("not zero");
    let limiter = SharedLimiter::new(quota, capacity, RandomState::new());
    let clients: Vec<_> = (0..50_000_u32)
        .map(|n| portcullis_filters::client::ClientKey::of(std::net::Ipv4Addr::from(n).into()))
        .collect();
    let mut now = 0;
    c.bench_function("limiter, one of 50,000 clients", |b| {
        b.iter(|| {
            now += 1;
            let client = clients[usize::try_from(now).unwrap_or(0) * 7_919 % clients.len()];
            limiter.check(black_box(client), Millis(now / 50))
        });
    });
}

criterion_group!(benches, envelope, inspection, verification, limiter);
criterion_main!(benches);
