//! Limits that instances share: on the wire, with a real Redis at `PORTCULLIS_TEST_REDIS`, which
//! `tests/lib/redis.sh` starts, or with none.

use std::sync::atomic::{AtomicU32, Ordering};

use redis::Commands as _;

use crate::admin::{eventually, metrics};
use crate::support::check::{assert_common_with_quota, rate_limit};
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request};
use crate::support::response::Response;
use crate::support::script::good;

const SECRET: &str = "fleet-0123456789abcdef0123456789abcdef";

/// The URL of the engine, as a TOML value.
fn engine() -> String {
    let url = std::env::var("PORTCULLIS_TEST_REDIS")
        .expect("PORTCULLIS_TEST_REDIS is set: run this under tests/lib/redis.sh");
    format!("{url:?}")
}

/// Where nothing listens, as a TOML value.
const NOWHERE: &str = "\"redis://127.0.0.1:1\"";

/// A fleet of a test's own.
struct Fleet {
    setup: Setup,
    name: String,
    _folder: Folder,
}

impl Fleet {
    fn new(node: &Node, url: &str, quota: u32) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("it-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let folder = Folder::new();
        let secret = folder.secret("fleet.secret", SECRET);
        let setup = Setup::before(node.address())
            .set("gateway.requests_per_minute", &quota.to_string())
            .set("fleet.url", url)
            .set("fleet.name", &format!("{name:?}"))
            .set("fleet.secret_file", &format!("{secret:?}"));
        Self { setup, name, _folder: folder }
    }

    /// Starts an instance, and waits until it reaches the store.
    fn start(&self) -> Edge {
        let edge = self.setup.start();
        eventually(&edge, "the store is reached", |now| now["portcullis_fleet_up"] == 1.0);
        edge
    }
}

fn ask(edge: &Edge) -> Response {
    edge.ask(&Request::post(QUESTION))
}

/// How many of some requests at these instances in turn are admitted.
fn admitted(edges: &[&Edge], requests: usize) -> usize {
    let turns = edges.iter().cycle().take(requests);
    turns.filter(|edge| ask(edge).status == 200).count()
}

#[test]
fn instances_share_a_quota_exactly() {
    let node = Node::start(good);
    let fleet = Fleet::new(&node, &engine(), 40);
    let (one, other) = (fleet.start(), fleet.start());
    assert_eq!(admitted(&[&one, &other], 100), 40, "of 100 at two instances");
    assert_eq!(node.calls().len(), 40, "a refused request never reaches the node");
    let third = fleet.start();
    let refused = ask(&third);
    assert_common_with_quota(&refused, 40, "at an instance that has admitted nothing");
    assert_eq!(refused.status, 429, "the quota is used up everywhere");
    assert_eq!(refused.json()["error"]["data"]["reason"], "rate_limited", "as without a fleet");
    let retry: u32 = refused.header("Retry-After").unwrap_or_default().parse().unwrap();
    assert!((1..=60).contains(&retry), "Retry-After tells seconds: {retry}");
    assert_eq!(rate_limit(&refused, "refused").0, 0, "RateLimit is that of the fleet");
    let health = third.ask(&Request::new("GET", "/healthz"));
    assert_eq!((health.status, rate_limit(&health, "health").0), (200, 0), "on any response");
}

#[test]
fn rate_limit_counts_what_others_admitted() {
    let node = Node::start(good);
    let fleet = Fleet::new(&node, &engine(), 100);
    let one = fleet.start();
    let left: Vec<u32> = (0..20).map(|_| rate_limit(&ask(&one), "one").0).collect();
    assert_eq!(left[0], 99, "of one instance");
    assert!(left.windows(2).all(|pair| pair[1] < pair[0]), "it counts down: {left:?}");
    let (left, _) = rate_limit(&ask(&fleet.start()), "another instance");
    assert!(left < 80, "what is leased elsewhere is not left here: {left}");
}

#[test]
fn a_refused_client_sends_no_messages() {
    let node = Node::start(good);
    let fleet = Fleet::new(&node, &engine(), 5);
    let edge = fleet.start();
    assert_eq!(admitted(&[&edge], 40), 5);
    let messages = |edge: &Edge| -> f64 {
        let now = metrics(edge);
        let counts = now.iter().filter(|(name, _)| name.contains("fleet_messages_total"));
        counts.map(|(_, count)| count).sum()
    };
    let before = messages(&edge);
    assert!((1.0..=8.0).contains(&before), "a message for each lease: {before}");
    assert_eq!(admitted(&[&edge], 100), 0);
    assert!(messages(&edge) == before, "nothing is asked before something may be left");
}

#[test]
fn the_store_holds_no_address() {
    let node = Node::start(good);
    let fleet = Fleet::new(&node, &engine(), 10);
    let edge = fleet.start();
    let known = Request::post(QUESTION).with("X-Forwarded-For", "203.0.113.77");
    assert_eq!(edge.ask(&known).status, 200);
    let url = std::env::var("PORTCULLIS_TEST_REDIS").unwrap();
    let mut store = redis::Client::open(url).unwrap().get_connection().unwrap();
    let keys: Vec<String> = store.keys(format!("*{}*", fleet.name)).unwrap();
    assert_eq!(keys.len(), 2, "a client and the members: {keys:?}");
    for key in keys {
        let fields: Vec<String> = store.hgetall(&key).unwrap();
        let all = format!("{key} {}", fields.join(" "));
        assert!(!all.contains("203.0.113") && !all.contains("cb00714d"), "no address: {all}");
    }
}

#[test]
fn without_the_store_when_down_decides() {
    let node = Node::start(good);
    for (when_down, status, most) in [("share", 429, 30), ("local", 429, 40), ("refuse", 503, 0)] {
        let fleet = Fleet::new(&node, NOWHERE, 40);
        let edge = fleet.setup.clone().set("fleet.when_down", &format!("{when_down:?}")).start();
        edge.line("the condition", |line| line["message"] == "fleet store unreachable");
        assert_eq!(admitted(&[&edge], 60), most, "{when_down}: of a quota of 40");
        let refused = ask(&edge);
        assert_common_with_quota(&refused, 40, when_down);
        assert_eq!(refused.status, status, "{when_down}");
        let reason = if status == 429 { "rate_limited" } else { "fleet_unavailable" };
        assert_eq!(refused.json()["error"]["data"]["reason"], reason, "{when_down}");
        let fell_back = "portcullis_fleet_fallback_admitted_total{surface=\"gateway\"}";
        assert!(metrics(&edge)[fell_back] == most as f64, "{when_down}: it is counted");
    }
}

#[test]
fn check_reports_an_unreachable_store() {
    let node = Node::start(good);
    let fleet = Fleet::new(&node, NOWHERE, 40);
    let noted = fleet.setup.run("check");
    let text = String::from_utf8_lossy(&noted.stderr).into_owned();
    assert!(noted.status.success(), "a start does not need it: {text}");
    assert!(text.contains("fleet.url") && text.contains("refused"), "{text}");
    let failed = fleet.setup.run_with("check", &["--live"], "");
    assert!(!failed.status.success(), "--live needs it");
    let short = fleet._folder.secret("short.secret", "short");
    let short = fleet.setup.clone().set("fleet.secret_file", &format!("{short:?}")).run("check");
    let text = String::from_utf8_lossy(&short.stderr).into_owned();
    assert!(!short.status.success() && text.contains("32 bytes"), "{text}");
}
