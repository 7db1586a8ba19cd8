//! The cost of single-flight and the cache per read, without the network: parsing a repeated body
//! and a new one, a hit, the miss that leads a flight, the request that joins it, the same with
//! both disabled, and gzip.
//!
//! `cargo bench --bench cache`. The gateway runs in full, from the body on. Its node is the small
//! one of the `edge` bench, because nothing is cached before the watch has seen a stable chain.
//! Whole requests are measured in that bench.

#[path = "edge/answers.rs"]
mod answers;
#[path = "edge/connection.rs"]
mod connection;
#[path = "edge/node.rs"]
mod node;

use criterion::{Criterion, criterion_group, criterion_main};
use pingora::services::background::BackgroundService;
use portcullis_base::config::Config;
use portcullis_base::io::MemoryPool;
use portcullis_base::io::gzip::GzipForm;
use portcullis_base::telemetry::{CacheUse, Metrics};
use portcullis_edge::gateway::{Caller, Gateway, Lookup, ReadRequest, Settings};
use portcullis_edge::node::{Credentials, Node, NodeClient};
use portcullis_filters::client::ClientKey;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::runtime::Runtime;

/// A receipt, which is cacheable.
const RECEIPT: &str = r#"{"jsonrpc":"2.0","id":1,"method":"starknet_getTransactionReceipt","params":{"transaction_hash":"0x71"}}"#;
/// A class of 256 KiB, which is cacheable.
const CLASS: &str = r#"{"jsonrpc":"2.0","id":1,"method":"starknet_getClass","params":{"block_id":"latest","class_hash":"0xc1a55"}}"#;
/// A nonce, which is not cacheable.
const NONCE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"starknet_getNonce","params":{"block_id":"latest","contract_address":"0x64b4"}}"#;

/// Timeout for the watch to find the chain stable.
const PATIENCE: Duration = Duration::from_secs(30);
/// The interval between polls.
const LOOK: Duration = Duration::from_millis(50);

/// A gateway whose watch is running.
struct World {
    gateway: Arc<Gateway>,
    settings: Arc<Settings>,
    client: ClientKey,
    runtime: Runtime,
}

impl World {
    /// Starts a gateway with single-flight and the cache, or without them.
    fn new(keeps: bool) -> Self {
        let address = node::Node::start().address;
        let text = format!(
            "[node]\nurl = \"http://{address}/rpc\"\n[gateway]\nsingle_flight = {keeps}\n\
             [gateway.cache]\nenabled = {keeps}\n"
        );
        let config = Config::parse(&text, []).expect("it has what is required");
        let gateway_config = config.gateway.expect("it has a gateway");
        let metrics = Arc::new(Metrics::default());
        let memory = MemoryPool::new(256 << 20);
        let credentials = Credentials::load(&config.node.live, &config.node.url);
        let node = Node::new(&config.node, credentials, Arc::clone(&metrics));
        let client = NodeClient::new(&config.node, &node, Arc::clone(&memory));
        let gateway = Arc::new(Gateway::new(&gateway_config, Arc::new(client), memory));
        let watcher = gateway.watcher(&gateway_config, &config.node, metrics, None);
        let runtime = tokio::runtime::Runtime::new().expect("a runtime can be made");
        runtime.spawn(async move {
            // `stop` lives as long as the watcher, which only the end of the process stops
            let (stop, shutdown) = tokio::sync::watch::channel(false);
            watcher.start(shutdown).await;
            drop(stop);
        });
        let settings = gateway.running.settings();
        let client = ClientKey::of(Ipv4Addr::LOCALHOST.into());
        Self {
            gateway,
            settings,
            client,
            runtime,
        }
    }

    fn request(&self, body: &str) -> Arc<ReadRequest> {
        let read = self
            .gateway
            .inspect(&self.settings, black_box(body).as_bytes());
        read.expect("it is permitted").0
    }

    fn lookup<'a>(&'a self, request: &'a ReadRequest) -> Lookup<'a> {
        let caller = Caller {
            client: self.client,
            traceparent: None,
            position: None,
        };
        self.gateway
            .lookup(&self.settings, black_box(request), caller)
    }

    /// Polls until the response comes from the cache.
    fn until_cached(&self, request: &ReadRequest) {
        let end = Instant::now() + PATIENCE;
        while let Lookup::Pending(pending) = self.lookup(request) {
            assert!(Instant::now() < end, "what may be cached is cached in time");
            let mut took = Duration::ZERO;
            let answer = self.runtime.block_on(pending.answer(&mut took));
            answer.expect("the node answers");
            std::thread::sleep(LOOK);
        }
    }
}

fn reads(c: &mut Criterion) {
    let world = World::new(true);
    c.bench_function("the read of a body that came before", |b| {
        b.iter(|| world.request(RECEIPT));
    });
    // an id that is not a number, so that the body is not recognized
    let new = RECEIPT.replace(r#""id":1"#, r#""id":"1""#);
    c.bench_function("the read of a new body", |b| {
        b.iter(|| world.request(&new));
    });
    for (name, body) in [("hit", RECEIPT), ("hit of 256 KiB", CLASS)] {
        let request = world.request(body);
        world.until_cached(&request);
        c.bench_function(name, |b| {
            b.iter(|| {
                let found = world.lookup(&request);
                assert_eq!(found.cache(), CacheUse::Hit, "the chain still stands");
                drop(found);
            });
        });
    }
    let request = world.request(NONCE);
    c.bench_function("miss, as it leads a flight and leaves it", |b| {
        b.iter(|| drop(world.lookup(&request)));
    });
    let leader = world.lookup(&request);
    c.bench_function("joining a flight", |b| {
        b.iter(|| {
            let found = world.lookup(&request);
            assert_eq!(found.cache(), CacheUse::Shared, "the leader is still there");
            drop(found);
        });
    });
    drop(leader);
    let plain = World::new(false);
    c.bench_function("miss, both switched off", |b| {
        b.iter(|| drop(plain.lookup(&request)));
    });
}

/// The cost of gzip for a cached class: once, and for each hit.
fn gzip(c: &mut Criterion) {
    let world = World::new(true);
    let request = world.request(CLASS);
    world.until_cached(&request);
    let Lookup::Cached(answer, _) = world.lookup(&request) else {
        panic!("it is cached")
    };
    let payload = &answer.payload;
    c.bench_function("the gzip form of 256 KiB, made", |b| {
        b.iter(|| {
            let form = GzipForm::of(payload.len());
            assert!(
                world.runtime.block_on(form.make(payload, None)),
                "it is smaller"
            );
        });
    });
    world.runtime.block_on(answer.gzip.make(payload, None));
    let form = answer.gzip.get().expect("it is smaller");
    c.bench_function("the gzip form of 256 KiB, framed for a hit", |b| {
        b.iter(|| form.frame(black_box(br#"{"jsonrpc":"2.0","id":1,"result":"#), b"}"));
    });
}

criterion_group!(benches, reads, gzip);
criterion_main!(benches);
