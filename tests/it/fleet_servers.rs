//! The servers of a fleet's store: clusters, failovers, and those that cannot be used.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener};

use crate::admin::{eventually, metrics};
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::load::lost_during;
use crate::support::node::Node;
use crate::support::redis::Redis;
use crate::support::request::{QUESTION, Request};
use crate::support::script::good;

const SECRET: &str = "fleet-0123456789abcdef0123456789abcdef";

fn setup(node: &Node, folder: &Folder, url: &str, quota: u32) -> Setup {
    let secret = folder.secret("fleet.secret", SECRET);
    Setup::before(node.address())
        .set("gateway.requests_per_minute", &quota.to_string())
        .set("fleet.url", &format!("{url:?}"))
        .set("fleet.secret_file", &format!("{secret:?}"))
}

fn start(setup: &Setup) -> Edge {
    let edge = setup.start();
    is_up(&edge, "the store is reached");
    edge
}

fn is_up(edge: &Edge, what: &str) {
    eventually(edge, what, |now| now["portcullis_fleet_up"] == 1.0);
}

fn is_down(edge: &Edge, what: &str) {
    eventually(edge, what, |now| now["portcullis_fleet_up"] == 0.0);
}

fn ask_as(edge: &Edge, client: usize) -> u16 {
    let client = format!("203.0.113.{client}");
    let request = Request::post(QUESTION).with("X-Forwarded-For", &client);
    edge.ask(&request).status
}

/// How often each of these clients is admitted, at the instances in turn.
fn admitted(edges: &[&Edge], clients: usize, requests: usize) -> Vec<usize> {
    let of_client = |client| {
        let turns = edges.iter().cycle().take(requests);
        turns.filter(|edge| ask_as(edge, client) == 200).count()
    };
    (0..clients).map(of_client).collect()
}

/// The messages that failed at an instance.
fn failed(edge: &Edge) -> f64 {
    let now = metrics(edge);
    ["failed", "timeout", "busy"]
        .map(|of| now[&format!("portcullis_fleet_messages_total{{outcome=\"{of}\"}}")])
        .iter()
        .sum()
}

/// The messages that failed at an instance, and the clients that it admitted without the store.
fn alone(edge: &Edge) -> f64 {
    let admitted = "portcullis_fleet_fallback_admitted_total{surface=\"gateway\"}";
    failed(edge) + metrics(edge)[admitted]
}

fn verdict(edge: &Edge) -> String {
    edge.admin_get("/readyz?verbose").text().to_owned()
}

#[test]
#[ignore = "needs Redis: run tests/run"]
fn a_cluster_shares_each_quota_exactly() {
    let (node, folder) = (Node::start(good), Folder::new());
    let servers = Redis::cluster(0, &[]);
    let setup = setup(
        &node,
        &folder,
        &format!("redis://{}", servers[1].address()),
        20,
    );
    let checked = setup.run_with("check", &["--live"], "");
    let text = String::from_utf8_lossy(&checked.stdout).into_owned();
    assert!(text.contains("all 3 servers of a cluster answer"), "{text}");
    for run in 0..10 {
        let fleet = setup.clone().set("fleet.name", &format!("\"run-{run}\""));
        let (one, other) = (start(&fleet), start(&fleet));
        let found = admitted(&[&one, &other], 12, 30);
        // a message may be late on a busy machine, and the instance decides alone then
        let late = (alone(&one) + alone(&other)) as usize;
        assert!(
            found.iter().all(|admitted| *admitted <= 20 + late),
            "{found:?}, {late} late"
        );
        let keys = |server: &Redis| server.ask(&["KEYS", "pc:{*"]).contains("pc:");
        assert!(servers.iter().all(keys), "each has clients");
        if late == 0 {
            assert_eq!(found, [20; 12]);
            let instances = "portcullis_fleet_instances";
            eventually(&one, "it counts both", |now| now[instances] == 2.0);
            return;
        }
    }
    println!("messages were late in each run");
}

#[test]
#[ignore = "needs Redis: run tests/run"]
fn a_server_that_dies_takes_its_keys_only() {
    let (node, folder) = (Node::start(good), Folder::new());
    let mut servers = Redis::cluster(0, &["--cluster-require-full-coverage", "no"]);
    let url = format!("redis://{},{}", servers[0].address(), servers[1].address());
    let edge = start(&setup(&node, &folder, &url, 1_000_000));
    let status = || ask_as(&edge, 7);
    let (lost, all) = lost_during(status, || {
        servers[0].kill();
        is_down(&edge, "it is seen");
    });
    assert_eq!(lost, 0, "of {all}");
    let address = servers[0].address();
    eventually(&edge, "it is named", |_| {
        verdict(&edge).contains(&format!("{address}: "))
    });
    // clients of the others are counted there
    let messages =
        |edge: &Edge| metrics(edge)["portcullis_fleet_messages_total{outcome=\"granted\"}"];
    let before = messages(&edge);
    admitted(&[&edge], 100, 1);
    let granted = messages(&edge) - before;
    assert!((20.0..=100.0).contains(&granted), "{granted}");
    let failures = failed(&edge);
    admitted(&[&edge], 100, 20);
    assert!(failed(&edge) - failures < 20.0, "nothing is sent to it");
    servers[0].restart();
    is_up(&edge, "it is back");
}

#[test]
#[ignore = "needs Redis: run tests/run"]
fn a_promoted_replica_of_a_cluster_is_used() {
    let (node, folder) = (Node::start(good), Folder::new());
    let mut servers = Redis::cluster(1, &[]);
    let edge = start(&setup(
        &node,
        &folder,
        &format!("redis://{}", servers[0].address()),
        1_000_000,
    ));
    for how in ["it vanishes", "it dies"] {
        // one that has a replica
        let has_replica = |server: &Redis| {
            let role = server.ask(&["ROLE"]);
            role.contains("master") && role.contains("127.0.0.1")
        };
        let primary = servers.iter().position(has_replica);
        let mut primary = servers.remove(primary.expect("there are replicas"));
        let (lost, all) = lost_during(
            || ask_as(&edge, 7),
            || {
                match how {
                    "it dies" => primary.kill(),
                    _ => primary.freeze(),
                }
                is_down(&edge, how);
                is_up(&edge, "its replica took over");
            },
        );
        assert_eq!(lost, 0, "{how}: of {all}");
        let clients = admitted(&[&edge], 50, 1);
        assert_eq!(clients, [1; 50], "{how}");
    }
}

#[test]
#[ignore = "needs Redis: run tests/run"]
fn of_several_servers_the_primary_is_used() {
    let (node, folder) = (Node::start(good), Folder::new());
    let (mut one, other) = (Redis::start(&[]), Redis::start(&[]));
    let port = one.port.to_string();
    other.ask(&["REPLICAOF", "127.0.0.1", &port]);
    let url = format!("redis://{},{}", other.address(), one.address());
    let edge = start(&setup(&node, &folder, &url, 1_000_000));
    let (lost, all) = lost_during(
        || ask_as(&edge, 7),
        || {
            one.kill();
            is_down(&edge, "it is dead");
            eventually(&edge, "both causes are named", |_| {
                let found = verdict(&edge);
                found.contains("a replica: name its primary") && found.contains("refused")
            });
            other.ask(&["REPLICAOF", "NO", "ONE"]);
            is_up(&edge, "the other one is the primary");
            // the old primary returns as a replica
            one.restart();
            one.ask(&["REPLICAOF", "127.0.0.1", &other.port.to_string()]);
        },
    );
    assert_eq!(lost, 0, "of {all}");
    // a demotion is no outage of a connection
    let (lost, all) = lost_during(
        || ask_as(&edge, 7),
        || {
            one.ask(&["REPLICAOF", "NO", "ONE"]);
            other.ask(&["REPLICAOF", "127.0.0.1", &port]);
            eventually(&edge, "the first one has the members", |_| {
                one.ask(&["KEYS", "pc:*:instances:*"]).contains("instances")
                    && metrics(&edge)["portcullis_fleet_up"] == 1.0
            });
        },
    );
    assert_eq!(lost, 0, "of {all}");
}

#[test]
#[ignore = "needs Redis: run tests/run"]
fn servers_that_hold_no_keys_are_refused() {
    let (node, folder) = (Node::start(good), Folder::new());
    let primary = Redis::start(&[]);
    let replica = Redis::start(&["--replicaof", &format!("127.0.0.1 {}", primary.port)]);
    let file = folder.file("sentinel.conf");
    std::fs::write(&file, "").expect("the folder is new");
    let sentinel = Redis::start_by(&file, &["--sentinel"]);
    for (server, words) in [
        (&replica, "a replica: name its primary"),
        (&sentinel, "a Sentinel: name the servers that it watches"),
    ] {
        let url = format!("redis://{}", server.address());
        let setup = setup(&node, &folder, &url, 20);
        let checked = setup.run_with("check", &["--live"], "");
        let text = String::from_utf8_lossy(&checked.stdout).into_owned();
        assert!(!checked.status.success() && text.contains(words), "{text}");
        let edge = setup.start();
        eventually(&edge, words, |_| verdict(&edge).contains(words));
        assert_eq!(ask_as(&edge, 7), 200, "it serves without");
    }
}

/// A store that greets, then answers each command by this, without end.
fn hostile(answer: &'static [u8]) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port is free");
    let port = listener.local_addr().expect("it is bound").port();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let Ok(mut stream) = stream else { return };
            std::thread::spawn(move || {
                let _head = stream.read(&mut [0; 4096]);
                let _greeted = stream.write_all(answer);
                while stream.write_all(&[b'a'; 1 << 16]).is_ok() {}
            });
        }
    });
    port
}

#[test]
fn a_reply_without_end_takes_no_memory() {
    let (node, folder) = (Node::start(good), Folder::new());
    for (answer, words) in [
        (
            &b"*2147483647\r\n"[..],
            "a reply of more than 65536 elements",
        ),
        (&b"$2147483647\r\n"[..], "a reply of more than 1 MiB"),
        (&b"+"[..], "a reply of more than 1 MiB"),
    ] {
        let url = format!("redis://127.0.0.1:{}", hostile(answer));
        let edge = setup(&node, &folder, &url, 20).start();
        eventually(&edge, words, |_| verdict(&edge).contains(words));
        let memory = metrics(&edge)["process_resident_memory_bytes"];
        assert!(memory < 200e6, "{words}: {memory}");
        assert_eq!(ask_as(&edge, 7), 200);
    }
}
