//! Limits that instances share: on the wire, with a real Redis at `PORTCULLIS_TEST_REDIS`, which
//! `tests/lib/redis.sh` starts, or with none.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use redis::Commands as _;

use crate::admin::{eventually, metrics};
use crate::positions::{ask_from, reaches, stated};
use crate::support::chain::{Chain, ChainNode, question};
use crate::support::check::{assert_common_with_quota, rate_limit};
use crate::support::edge::{AMPLE, Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::relay::stage::Stage;
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
    folder: Folder,
}

impl Fleet {
    fn new(node: &Node, url: &str, quota: u32) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!(
            "it-{}-{}",
            std::process::id(),
            NEXT.fetch_add(1, Ordering::Relaxed)
        );
        let folder = Folder::new();
        let secret = folder.secret("fleet.secret", SECRET);
        let setup = Setup::before(node.address())
            .set("gateway.requests_per_minute", &quota.to_string())
            .set("fleet.url", url)
            .set("fleet.name", &format!("{name:?}"))
            .set("fleet.secret_file", &format!("{secret:?}"));
        Self {
            setup,
            name,
            folder,
        }
    }

    /// Starts an instance, and waits until it reaches the store.
    fn start(&self) -> Edge {
        let edge = self.setup.start();
        eventually(&edge, "the store is reached", |now| {
            now["portcullis_fleet_up"] == 1.0
        });
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

/// Whether the store has answered each message of these instances in time.
fn in_time(edges: &[&Edge]) -> bool {
    let late = ["timeout", "failed", "busy"];
    edges.iter().all(|edge| {
        let now = metrics(edge);
        let count = |of| now[&format!("portcullis_fleet_messages_total{{outcome=\"{of}\"}}")];
        late.into_iter().map(count).sum::<f64>() == 0.0
    })
}

/// Repeats a scenario until it says that the store was in time. Only then is a limit exact, and on
/// a busy machine a message may need longer than its 20 ms.
fn while_the_store_answers<T>(scenario: impl Fn() -> (T, bool)) -> T {
    let mut runs = (0..10).map(|_| scenario());
    let exact = runs.find_map(|(found, is_exact)| is_exact.then_some(found));
    exact.expect("the store answers in time in one of ten runs")
}

#[test]
#[ignore = "needs Redis: run tests/run"]
fn instances_share_the_quota_of_a_network() {
    let node = Node::start(good);
    let networks = "[{ networks = \"203.0.113.0/24\", requests_per_minute = 40 }]";
    let found = while_the_store_answers(|| {
        let mut fleet = Fleet::new(&node, &engine(), 10);
        fleet.setup = fleet.setup.set("gateway.clients", networks);
        let (one, other) = (fleet.start(), fleet.start());
        let admitted = ["203.0.113.1", "203.0.113.2", "192.0.2.1"].map(|client| {
            let request = Request::post(QUESTION).with("X-Forwarded-For", client);
            let turns = [&one, &other].into_iter().cycle().take(80);
            turns
                .filter(|edge| edge.ask(&request).status == 200)
                .count()
        });
        (admitted, in_time(&[&one, &other]))
    });
    assert_eq!(found, [40, 40, 10], "of 80 each, at two instances");
}

#[test]
#[ignore = "needs Redis: run tests/run"]
fn instances_share_a_quota_exactly() {
    let node = Node::start(good);
    let (admitted, calls, third, refused) = while_the_store_answers(|| {
        let fleet = Fleet::new(&node, &engine(), 40);
        let (one, other, before) = (fleet.start(), fleet.start(), node.calls().len());
        let admitted = admitted(&[&one, &other], 100);
        let calls = node.calls().len() - before;
        let third = fleet.start();
        let refused = ask(&third);
        let is_exact = in_time(&[&one, &other, &third]);
        ((admitted, calls, third, refused), is_exact)
    });
    assert_eq!(admitted, 40, "of 100 at two instances");
    assert_eq!(calls, 40, "a refused request never reaches the node");
    assert_common_with_quota(&refused, 40, "at an instance that has admitted nothing");
    assert_eq!(refused.status, 429, "the quota is used up everywhere");
    assert_eq!(
        refused.json()["error"]["data"]["reason"],
        "rate_limited",
        "as without a fleet"
    );
    let retry: u32 = refused
        .header("Retry-After")
        .unwrap_or_default()
        .parse()
        .unwrap();
    assert!(
        (1..=60).contains(&retry),
        "Retry-After tells seconds: {retry}"
    );
    assert_eq!(
        rate_limit(&refused, "refused").0,
        0,
        "RateLimit is that of the fleet"
    );
    let health = third.ask(&Request::new("GET", "/healthz"));
    assert_eq!(
        (health.status, rate_limit(&health, "health").0),
        (200, 0),
        "on any response"
    );
}

/// How often an instance admits each of these clients, which it sees in an order of its own.
fn admitted_of_clients(edge: &Edge, clients: u32, turns: u32, step: u32) -> Vec<u32> {
    let mut connection = edge.client();
    let mut admitted = vec![0; clients as usize];
    for turn in 0..turns {
        for number in 0..clients {
            let client = (number * step + turn * 331) % clients;
            let address = format!("203.0.{}.{}", 112 + client / 250, client % 250);
            let request = Request::post(QUESTION).with("X-Forwarded-For", &address);
            let passes = connection.ask(&request).status == 200;
            admitted[client as usize] += u32::from(passes);
        }
    }
    admitted
}

#[test]
#[ignore = "needs Redis: run tests/run"]
fn no_client_exceeds_its_quota_below_max_clients() {
    const QUOTA: u32 = 20;
    const CLIENTS: u32 = 900;
    const TURNS: u32 = 15;
    let node = Node::start(good);
    let mut runs = (0..10).map(|_| {
        let mut fleet = Fleet::new(&node, &engine(), QUOTA);
        fleet.setup = fleet.setup.set("gateway.max_clients", "1000");
        let (one, other, started) = (fleet.start(), fleet.start(), Instant::now());
        let (here, there) = std::thread::scope(|scope| {
            let there = scope.spawn(|| admitted_of_clients(&other, CLIENTS, TURNS, 11));
            (
                admitted_of_clients(&one, CLIENTS, TURNS, 7),
                there.join().unwrap(),
            )
        });
        let is_one_window = started.elapsed() < Duration::from_secs(60);
        let all = here.iter().zip(&there).map(|(here, there)| here + there);
        let over: u32 = all.map(|count| count.saturating_sub(QUOTA)).sum();
        let sum = |name| -> f64 {
            let all = [&one, &other].map(metrics).into_iter().flatten();
            all.filter(|(series, _)| series.contains(name))
                .map(|(_, count)| count)
                .sum()
        };
        let (alone, evictions) = (
            sum("fallback_admitted_total"),
            sum("limiter_evictions_total"),
        );
        (is_one_window, over, alone, evictions)
    });
    let run = runs.find(|(is_one_window, ..)| *is_one_window);
    let (_, over, alone, evictions) = run.expect("one of ten runs takes less than a window");
    // a message may be late on a busy machine
    assert!(
        f64::from(over) <= alone,
        "{over} over the quota, {alone} without the store"
    );
    assert_eq!(evictions, 0.0, "of {CLIENTS} clients at two instances");
}

#[test]
#[ignore = "needs Redis: run tests/run"]
fn rate_limit_counts_what_others_admitted() {
    let node = Node::start(good);
    let fleet = Fleet::new(&node, &engine(), 100);
    let one = fleet.start();
    let left: Vec<u32> = (0..20).map(|_| rate_limit(&ask(&one), "one").0).collect();
    assert_eq!(left[0], 99, "of one instance");
    assert!(
        left.windows(2).all(|pair| pair[1] < pair[0]),
        "it counts down: {left:?}"
    );
    let (left, _) = rate_limit(&ask(&fleet.start()), "another instance");
    assert!(
        left < 80,
        "what is leased elsewhere is not left here: {left}"
    );
}

#[test]
#[ignore = "needs Redis: run tests/run"]
fn a_refused_client_sends_no_messages() {
    let node = Node::start(good);
    let (count, edge) = while_the_store_answers(|| {
        let edge = Fleet::new(&node, &engine(), 5).start();
        let (count, is_exact) = (admitted(&[&edge], 40), in_time(&[&edge]));
        ((count, edge), is_exact)
    });
    assert_eq!(count, 5);
    let messages = |edge: &Edge| -> f64 {
        let now = metrics(edge);
        let counts = now
            .iter()
            .filter(|(name, _)| name.contains("fleet_messages_total"));
        counts.map(|(_, count)| count).sum()
    };
    let before = messages(&edge);
    assert!(
        (1.0..=8.0).contains(&before),
        "a message for each lease: {before}"
    );
    assert_eq!(admitted(&[&edge], 100), 0);
    assert!(
        messages(&edge) == before,
        "no message is sent before something may be left"
    );
}

#[test]
#[ignore = "needs Redis: run tests/run"]
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
        assert!(
            !all.contains("203.0.113") && !all.contains("cb00714d"),
            "no address: {all}"
        );
    }
}

#[test]
fn without_the_store_when_down_decides() {
    let node = Node::start(good);
    for (when_down, status, most) in [("share", 429, 30), ("local", 429, 40), ("refuse", 503, 0)] {
        let fleet = Fleet::new(&node, NOWHERE, 40);
        let edge = fleet
            .setup
            .clone()
            .set("fleet.when_down", &format!("{when_down:?}"))
            .start();
        edge.line("the condition", |line| {
            line["message"] == "fleet store unreachable"
        });
        assert_eq!(
            admitted(&[&edge], 60),
            most,
            "{when_down}: of a quota of 40"
        );
        let refused = ask(&edge);
        assert_common_with_quota(&refused, 40, when_down);
        assert_eq!(refused.status, status, "{when_down}");
        let reason = if status == 429 {
            "rate_limited"
        } else {
            "fleet_unavailable"
        };
        assert_eq!(
            refused.json()["error"]["data"]["reason"],
            reason,
            "{when_down}"
        );
        let fell_back = "portcullis_fleet_fallback_admitted_total{surface=\"gateway\"}";
        assert!(
            metrics(&edge)[fell_back] == most as f64,
            "{when_down}: it is counted"
        );
    }
}

/// Instances in front of a chain of three blocks, each with a cache.
fn watchers(url: &str, number: usize) -> (ChainNode, Fleet, Vec<Edge>) {
    let mut chain = Chain::default();
    (1..=3).for_each(|block| chain.mine(10 * block, &[]));
    chain.l1 = Some(2);
    let node = ChainNode::start(chain);
    let mut fleet = Fleet::new(&node.node, url, AMPLE);
    fleet.setup = fleet
        .setup
        .set("fleet.when_down", "\"local\"")
        .set("gateway.cache.enabled", "true")
        .set("gateway.cache.watch_interval", "\"200ms\"");
    let edges = (0..number).map(|_| fleet.setup.start()).collect();
    (node, fleet, edges)
}

/// The instance that watches the chain for all.
fn leader(edges: &[Edge]) -> usize {
    let leads = |edge: &Edge| metrics(edge)["portcullis_fleet_is_watcher"] == 1.0;
    eventually(&edges[0], "an election", |_| edges.iter().any(leads));
    edges
        .iter()
        .position(leads)
        .expect("it leads until it is stopped")
}

fn block_1(edge: &Edge) -> Option<String> {
    let response = edge.ask(&question("getBlockWithTxHashes", r#"[{"block_number":1}]"#));
    response.header("X-Cache").map(str::to_owned)
}

/// Has each instance cache an answer.
fn fill(edges: &[Edge]) {
    for edge in edges {
        eventually(edge, "a cached answer", |_| {
            block_1(edge).as_deref() == Some("hit")
        });
    }
}

fn emptied(edge: &Edge) -> f64 {
    let now = metrics(edge);
    let causes = now
        .iter()
        .filter(|(name, _)| name.contains("cache_epochs_total"));
    causes.map(|(_, count)| count).sum()
}

#[test]
#[ignore = "needs Redis: run tests/run"]
fn followers_see_what_the_leader_sees() {
    let (node, _fleet, edges) = watchers(&engine(), 3);
    fill(&edges);
    let leads = |edge: &&Edge| metrics(edge)["portcullis_fleet_is_watcher"] == 1.0;
    assert_eq!(edges.iter().filter(leads).count(), 1, "one of three polls");
    let positions: Vec<_> = edges
        .iter()
        .map(|edge| reaches(edge, "a state", |(_, height)| height == 2))
        .collect();
    assert!(
        positions.iter().all(|own| *own == positions[0]),
        "one epoch: {positions:?}"
    );
    let (epoch, _) = positions[0];
    let leader = leader(&edges);
    for (follower, edge) in edges.iter().enumerate().filter(|(own, _)| *own != leader) {
        node.change(|chain| chain.mine(100, &[]));
        let height = node.chain.lock().unwrap().blocks.len() as u64 - 1;
        let seen = reaches(&edges[leader], "the block", |now| now == (epoch, height));
        let response = ask_from(
            edge,
            ("getNonce", r#"["latest","0x1"]"#),
            &format!("{epoch}.{height}"),
        );
        assert_eq!(response.status, 200, "{follower}");
        assert!(
            stated(&response) >= Some(seen),
            "no earlier than at the leader"
        );
    }
    fill(&edges);
    node.change(|chain| {
        chain.blocks.truncate(1);
        chain.l1 = None;
    });
    // a poll that overlaps the change may see blocks of both branches: the next one sees the rest
    let is_over = |(now, height)| now > epoch && height == 0;
    let later: Vec<_> = edges
        .iter()
        .map(|edge| reaches(edge, "the rollback", is_over))
        .collect();
    assert!(
        later.iter().all(|own| *own == later[0]),
        "the same epoch everywhere: {later:?}"
    );
    for edge in &edges {
        assert!(
            (1.0..=2.0).contains(&emptied(edge)),
            "once for each poll that saw a change"
        );
        assert_ne!(
            block_1(edge).as_deref(),
            Some("hit"),
            "and returns nothing from before"
        );
    }
}

#[test]
#[ignore = "needs Redis: run tests/run"]
fn an_election_empties_no_cache() {
    let (node, _fleet, mut edges) = watchers(&engine(), 3);
    fill(&edges);
    let before = reaches(&edges[0], "a state", |(_, height)| height == 2);
    for (signal, why) in [("KILL", "it dies"), ("TERM", "it resigns")] {
        let gone = edges.remove(leader(&edges));
        let requested = node.requests().len();
        gone.signal(signal);
        leader(&edges);
        for edge in &edges {
            eventually(edge, "a fresh state", |now| {
                now["portcullis_cache_suspended"] == 0.0
            });
            assert_eq!(
                block_1(edge).as_deref(),
                Some("hit"),
                "{why}: what was cached holds"
            );
            assert_eq!(emptied(edge), 0.0, "{why}");
            assert_eq!(
                reaches(edge, "it", |_| true),
                before,
                "{why}: the epoch goes on"
            );
        }
        let polls = |method: &String| method.contains("getBlock");
        let requested = node.requests().split_off(requested);
        assert_eq!(
            requested.iter().filter(|method| polls(method)).count(),
            0,
            "{why}: {requested:?}"
        );
    }
}

#[test]
fn without_the_store_an_instance_watches_for_itself() {
    let (node, _fleet, edges) = watchers(NOWHERE, 1);
    fill(&edges);
    let (epoch, _) = reaches(&edges[0], "a poll", |(_, height)| height == 2);
    assert_eq!(
        metrics(&edges[0])["portcullis_fleet_is_watcher"],
        0.0,
        "for nobody else"
    );
    node.change(|chain| {
        chain.blocks.truncate(1);
        chain.l1 = None;
    });
    reaches(&edges[0], "the rollback", |(now, height)| {
        now > epoch && height == 0
    });
    assert_ne!(
        block_1(&edges[0]).as_deref(),
        Some("hit"),
        "nothing from before"
    );
}

#[test]
#[ignore = "needs Redis: run tests/run"]
fn instances_share_the_count_of_wrong_tokens() {
    let node = Node::start(good);
    let guess = || Request::new("GET", "/readyz").with("Authorization", "Bearer guess");
    let (statuses, relays, refused) = while_the_store_answers(|| {
        let fleet = Fleet::new(&node, &engine(), 40);
        let secret = fleet.folder.file("fleet.secret");
        let keys = [
            ("fleet.url", engine()),
            ("fleet.name", format!("{:?}", fleet.name)),
            ("fleet.secret_file", format!("{secret:?}")),
        ];
        let keys = keys.each_ref().map(|(key, value)| (*key, value.as_str()));
        let relays = [Stage::scripted_with(&keys), Stage::scripted_with(&keys)];
        for relay in &relays {
            let is_up = |now: &BTreeMap<String, f64>| now["portcullis_fleet_up"] == 1.0;
            eventually(&relay.edge, "the store is reached", is_up);
        }
        let turns = relays.iter().cycle().take(14);
        let statuses: Vec<_> = turns.map(|relay| relay.ask(&guess()).status).collect();
        let refused = relays[0].ask(&guess());
        let is_exact = in_time(&relays.each_ref().map(|relay| &relay.edge));
        ((statuses, relays, refused), is_exact)
    });
    assert_eq!(statuses[..10], [401; 10], "ten in a minute, at both");
    assert_eq!(statuses[10..], [429; 4], "none more at either");
    let seconds = refused
        .header("Retry-After")
        .and_then(|text| text.parse::<u32>().ok());
    assert!(
        seconds.is_some_and(|wait| (2..=60).contains(&wait)),
        "a minute: {seconds:?}"
    );
    assert!(
        relays.iter().all(|relay| relay.ready().status == 200),
        "a good token passes"
    );
}

#[test]
fn check_reports_an_unreachable_store() {
    let node = Node::start(good);
    let fleet = Fleet::new(&node, NOWHERE, 40);
    let noted = fleet.setup.run("check");
    let text = String::from_utf8_lossy(&noted.stdout).into_owned();
    assert!(noted.status.success(), "a start does not need it: {text}");
    assert!(
        text.contains("fleet.url") && text.contains("refused"),
        "{text}"
    );
    let failed = fleet.setup.run_with("check", &["--live"], "");
    assert!(!failed.status.success(), "--live needs it");
    let short = fleet.folder.secret("short.secret", "short");
    let short = fleet
        .setup
        .clone()
        .set("fleet.secret_file", &format!("{short:?}"))
        .run("check");
    let text = String::from_utf8_lossy(&short.stdout).into_owned();
    assert!(
        !short.status.success() && text.contains("32 bytes"),
        "{text}"
    );
}
