//! The cost of each step of the gateway's policy, in the order in which a request passes them:
//! client identification, rate limit, head, envelope, method, parameters, the request written for
//! the node, the verification of the node's response, and for how long it may be cached.
//!
//! `cargo bench --bench policy`. The group of alternatives shows why requests are read by
//! `serde_json` under a strict visitor: `simd-json` needs a mutable copy, and a second pass for
//! what it does not reject.

use criterion::{BatchSize, BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use http::{HeaderMap, HeaderValue, Version, header};
use portcullis_filters::client::{Client, ClientKey, TrustedProxies};
use portcullis_filters::felt::Felt;
use portcullis_filters::head::Head;
use portcullis_filters::limit::{Millis, Quota, RateLimiter};
use portcullis_filters::networks::Networks;
use portcullis_filters::policy::GatewayPolicy;
use portcullis_filters::rpc::response::Outcome;
use portcullis_filters::rpc::{CacheClass, Envelope, Method, MethodSet, Params};
use serde_json::{Value, json};
use std::hash::RandomState;
use std::hint::black_box;
use std::net::{IpAddr, Ipv4Addr};
use std::num::NonZeroU32;

/// The program's own allocator: allocations dominate the small steps.
#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

/// A view call as starknet.js sends it.
const CALL: &str = r#"{"id":424,"jsonrpc":"2.0","method":"starknet_call","params":{"request":{"contract_address":"0x1fd38616408aa2fc74a8ed976dc06a18a0da3ee30af5999ce7345c57097903d","entry_point_selector":"0x2be2a5476c0756ff56b32d7cdea4cef84b2e4fb8aaeefc66e1e9d5ddebfc646","calldata":["0x7f793d298e1fee9d"]},"block_id":"latest"}}"#;

/// The most frequent request of most clients.
const BLOCK_NUMBER: &str =
    r#"{"jsonrpc":"2.0","id":1,"method":"starknet_blockNumber","params":[]}"#;

/// A class as compiled for the dev network.
const CLASS: &str = include_str!("../conf/dev/contracts/build/registry.sierra.json");

fn policy(proxies: &[&str]) -> GatewayPolicy {
    let proxies = proxies
        .iter()
        .map(|network| network.parse().expect("a network"));
    GatewayPolicy {
        methods: MethodSet::new(&Method::ALL),
        trusted_proxies: TrustedProxies::from(proxies.collect::<Vec<_>>()),
        blocked: Networks::default(),
        has_documents: false,
    }
}

/// The largest accepted request: a call with calldata up to the bound.
fn large_call() -> String {
    let felt = format!("\"0x{}\",", "1234567890abcdef".repeat(3));
    let count = (65_536 - CALL.len()) / felt.len();
    CALL.replace(
        "\"0x7f793d298e1fee9d\"",
        felt.repeat(count).trim_end_matches(','),
    )
}

/// A wallet's fee estimate as starknet.js sends it.
fn estimate() -> String {
    include_str!("../filters/tests/vectors/starknet_js.ndjson")
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line).ok())
        .filter(|vector| {
            vector["method"] == "starknet_estimateFee" && vector["verdict"] == "permit"
        })
        .find_map(|vector| vector["body"].as_str().map(String::from))
        .expect("starknet.js estimates")
}

/// The requests used to measure the steps after the head.
fn bodies() -> [(&'static str, String); 4] {
    [
        ("blockNumber", BLOCK_NUMBER.to_owned()),
        ("call", CALL.to_owned()),
        ("estimateFee", estimate()),
        ("call of 64 KiB", large_call()),
    ]
}

/// Identifies a client behind a trusted proxy, one behind a chain of them, and one that sends the
/// forwarding header from an untrusted address.
fn identification(c: &mut Criterion) {
    let trusted = policy(&["127.0.0.0/8", "10.0.0.0/8", "2001:db8:aa::/48"]).trusted_proxies;
    let peer = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let stranger = Some(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)));
    let mut group = c.benchmark_group("identify the client");
    for (name, peer, forwarded) in [
        ("a proxy", peer, "198.51.100.7"),
        ("a proxy, IPv6", peer, "2001:db8:1:2:3:4:5:6"),
        (
            "four proxies",
            peer,
            "198.51.100.7, 10.0.0.3, 10.0.0.2, 10.0.0.1",
        ),
        ("none that is believed", stranger, "198.51.100.7, 10.0.0.3"),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| {
                Client::identify(
                    peer,
                    [black_box(forwarded.as_bytes())].into_iter(),
                    &trusted,
                )
            });
        });
    }
    group.finish();
}

fn limiter() -> RateLimiter<RandomState> {
    let capacity = NonZeroU32::new(100_000).expect("not zero");
    RateLimiter::new(
        Quota::per_minute(180).expect("a quota"),
        capacity,
        RandomState::new(),
    )
}

fn rate(c: &mut Criterion) {
    let mut group = c.benchmark_group("check the rate");
    for clients in [1, 50_000_u32] {
        let limiter = limiter();
        let keys: Vec<_> = (0..clients)
            .map(|number| ClientKey::of(Ipv4Addr::from(number).into()))
            .collect();
        // strides through the keys, so that the 50,000 are not accessed in the order of memory
        let mut order = (0..keys.len()).map(|at| at * 7_919 % keys.len()).cycle();
        let mut now = 0;
        group.bench_function(format!("clients: {clients}"), |b| {
            b.iter(|| {
                now += 1;
                let client = order.next().map(|at| keys[at]).expect("a cycle has no end");
                limiter.check(black_box(client), Millis(now / 50))
            });
        });
    }
    group.finish();
}

/// All checks before the body is read: client, rate, framing, media type, size.
fn admission(c: &mut Criterion) {
    let policy = policy(&["127.0.0.0/8"]);
    let limiter = limiter();
    let mut headers = HeaderMap::new();
    for (name, value) in [
        (header::HOST, "rpc.example.org"),
        (
            header::USER_AGENT,
            "Mozilla/5.0 (X11; Linux x86_64; rv:143.0) Gecko/20100101",
        ),
        (header::ACCEPT, "*/*"),
        (header::ORIGIN, "https://app.example.org"),
        (header::CONTENT_TYPE, "application/json"),
        (header::CONTENT_LENGTH, "306"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    headers.insert("x-forwarded-for", HeaderValue::from_static("198.51.100.7"));
    let (method, target, version) = ("POST", &b"/rpc"[..], Version::HTTP_11);
    let peer = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let head = Head {
        method,
        target,
        version,
        headers: &headers,
        raw: b"",
        peer,
    };
    let mut now = 0;
    c.bench_function("admit a head", |b| {
        b.iter(|| {
            // slow enough to stay within the quota: otherwise a refusal would be measured
            now += 400;
            let judged = policy.judge(black_box(&head));
            let admission = policy.admit(&judged, &limiter, Millis(now), |_| Some(()));
            assert!(admission.verdict.is_ok(), "it is what a browser sends");
        });
    });
}

fn envelope(c: &mut Criterion) {
    let mut group = c.benchmark_group("read the envelope");
    for (name, body) in bodies() {
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(name, |b| {
            b.iter(|| Envelope::parse(black_box(body.as_bytes())).expect("a request"));
        });
    }
    group.finish();
}

fn alternatives(c: &mut Criterion) {
    for (name, body) in [("call", CALL.to_owned()), ("call of 64 KiB", large_call())] {
        let mut group = c.benchmark_group(format!("alternatives for the envelope of a {name}"));
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function("serde_json, Value (keeps the last duplicate)", |b| {
            b.iter(|| serde_json::from_slice::<Value>(black_box(body.as_bytes())));
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

fn method(c: &mut Criterion) {
    let set = MethodSet::new(&Method::ALL);
    let mut group = c.benchmark_group("find the method");
    for name in [
        "starknet_specVersion",
        "starknet_estimateFee",
        "starknet_addInvokeTransaction",
    ] {
        group.bench_function(name, |b| {
            b.iter(|| Method::parse(black_box(name)).filter(|method| set.contains(*method)));
        });
    }
    group.finish();
}

fn parameters(c: &mut Criterion) {
    let mut group = c.benchmark_group("read the parameters");
    for (name, body) in bodies() {
        let read = Envelope::parse(body.as_bytes()).expect("a request");
        let method = Method::parse(&read.method).expect("a method");
        group.bench_function(name, |b| {
            b.iter_batched(
                || read.params.clone(),
                |params| Params::parse(method, black_box(params)).expect("parameters"),
                BatchSize::SmallInput,
            );
        });
    }
    let felt = "0x1fd38616408aa2fc74a8ed976dc06a18a0da3ee30af5999ce7345c57097903d";
    group.bench_function("one felt", |b| b.iter(|| Felt::parse(black_box(felt))));
    group.finish();
}

fn writing(c: &mut Criterion) {
    let policy = policy(&[]);
    let mut group = c.benchmark_group("write the node's request");
    for (name, body) in bodies() {
        let permit = policy.inspect(body.as_bytes()).expect("permitted");
        let mut out = Vec::with_capacity(128 << 10);
        group.bench_function(name, |b| {
            b.iter(|| {
                out.clear();
                black_box(&permit).write_request(7, &mut out);
                out.len()
            });
        });
    }
    group.finish();
}

/// All steps after the head, from the body's bytes to those of the node's request.
fn inspection(c: &mut Criterion) {
    let policy = policy(&[]);
    let mut group = c.benchmark_group("inspect and write again");
    for (name, body) in bodies() {
        group.throughput(Throughput::Bytes(body.len() as u64));
        let mut out = Vec::with_capacity(128 << 10);
        group.bench_function(name, |b| {
            b.iter(|| {
                out.clear();
                let permit = policy
                    .inspect(black_box(body.as_bytes()))
                    .expect("permitted");
                permit.write_request(7, &mut out);
                out.len()
            });
        });
    }
    group.finish();
}

fn answer(result: &Value) -> String {
    json!({ "jsonrpc": "2.0", "id": 7, "result": result }).to_string()
}

fn storage(bytes: usize) -> String {
    answer(&vec!["0x1fd38616408aa2fc74a8ed976dc06a18a0da3ee3"; bytes / 45].into())
}

/// A block whose transaction hashes take `bytes`.
fn block(bytes: usize) -> String {
    let hash = "0x1fd38616408aa2fc74a8ed976dc06a18a0da3ee30af5999ce7345c57097903d";
    answer(&json!({
        "status": "ACCEPTED_ON_L2",
        "block_number": 424,
        "block_hash": hash,
        "timestamp": 1_760_000_000,
        "transactions": vec![hash; bytes / 68],
    }))
}

/// A class as a node returns it, its ABI in one string and its program repeated up to `bytes`.
fn class(bytes: usize) -> String {
    let compiled: Value = serde_json::from_str(CLASS).expect("a class is JSON");
    let once = compiled["sierra_program"]
        .as_array()
        .expect("a program is a list");
    let felts = once.len() * bytes.div_ceil(CLASS.len());
    let program: Vec<_> = once.iter().cycle().take(felts).collect();
    answer(&json!({
        "sierra_program": program,
        "contract_class_version": "0.1.0",
        "entry_points_by_type": compiled["entry_points_by_type"],
        "abi": compiled["abi"].to_string(),
    }))
}

fn verification(c: &mut Criterion) {
    let mut group = c.benchmark_group("verify an answer");
    for (name, answer) in [
        ("felts", storage(100)),
        ("felts", storage(4 << 10)),
        ("block", block(256 << 10)),
        ("block", block(1_700_000)),
        ("class", class(CLASS.len())),
        ("class", class(1_700_000)),
    ] {
        group.throughput(Throughput::Bytes(answer.len() as u64));
        group.bench_function(BenchmarkId::new(name, answer.len()), |b| {
            b.iter(|| Outcome::verify(black_box(answer.as_bytes()), 7).expect("an answer"));
        });
    }
    group.finish();
}

/// A receipt with this many events of four felts.
fn receipt(events: usize) -> String {
    let felt = "0x1fd38616408aa2fc74a8ed976dc06a18a0da3ee30af5999ce7345c57097903d";
    let event = json!({ "from_address": felt, "keys": [felt, felt], "data": [felt] });
    answer(&json!({
        "type": "INVOKE",
        "transaction_hash": felt,
        "actual_fee": { "amount": "0x1fd38616408aa2", "unit": "FRI" },
        "messages_sent": [],
        "events": vec![event; events],
        "execution_status": "SUCCEEDED",
        "finality_status": "ACCEPTED_ON_L2",
        "block_hash": felt,
        "block_number": 424,
    }))
}

fn caching(c: &mut Criterion) {
    let mut group = c.benchmark_group("decide how long an answer may be cached");
    for (name, class, answer) in [
        ("receipt", CacheClass::Receipt, receipt(6)),
        ("block", CacheClass::BlockOfHash, block(256 << 10)),
    ] {
        let Some(Outcome::Result(result)) = Outcome::verify(answer.as_bytes(), 7) else {
            panic!("a result");
        };
        let result = str::from_utf8(result).expect("verified");
        group.throughput(Throughput::Bytes(result.len() as u64));
        group.bench_function(BenchmarkId::new(name, result.len()), |b| {
            b.iter(|| class.policy(black_box(result)).expect("it is settled"));
        });
    }
    group.finish();
}

criterion_group!(head, identification, rate, admission);
criterion_group!(
    body,
    envelope,
    alternatives,
    method,
    parameters,
    writing,
    inspection
);
criterion_group!(answers, verification, caching);
criterion_main!(head, body, answers);
