//! Each problem is reported once, where an operator looks: log, probe, metrics.

use serde_json::Value;

use crate::admin::metrics;
use crate::operator::Page;
use crate::support::client::{Client, PATIENCE};
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::relay::chain::{block, error, honest, method};
use crate::support::relay::stage::{self, authorised};
use crate::support::request::{QUESTION, Request};
use crate::support::script::{good, send, sized};
use crate::support::secure::{NAME, Pair, secured};
use sqlx::Connection as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};
use time::OffsetDateTime;

/// Reads until the log has a line of this condition with this message.
fn event(edge: &Edge, condition: &str, message: &str) -> Value {
    let is_it = |line: &Value| line["condition"] == condition && line["message"] == message;
    let deadline = Instant::now() + PATIENCE;
    while Instant::now() < deadline {
        edge.ask(&Request::post(QUESTION));
        let found = edge
            .lines()
            .iter()
            .find_map(|line| serde_json::from_str(line).ok().filter(is_it));
        if let Some(line) = found {
            return line;
        }
    }
    panic!("no event {condition}: {message}");
}

fn verbose(edge: &Edge) -> (u16, String) {
    let response = edge.admin_get("/readyz?verbose");
    (response.status, response.text().to_owned())
}

#[test]
fn a_node_that_stands_still_is_a_condition() {
    let born = 1_700_000_000;
    let node = Node::start(move |call| block(call, born));
    let edge = Edge::with(&node, &[("node.max_block_age", "\"5m\"")]);
    let line = event(&edge, "node_stalled", "node URL has no new block");
    assert_eq!(line["level"], "warn", "requests are answered");
    assert_eq!(line["subject"], format!("http://{}/rpc", node.address()));
    let cause = line["cause"].as_str().unwrap_or_default();
    assert!(cause.starts_with("its newest block, 0, is "), "{cause}");
    let (_, text) = verbose(&edge);
    assert!(text.starts_with("verdict: degraded\n"), "{text}");
    let time = metrics(&edge)[r#"portcullis_node_head_timestamp_seconds{node="0"}"#];
    assert_eq!(time, born as f64);
}

#[test]
fn a_node_outage_is_an_event() {
    let node = Node::start(good);
    let address = node.address();
    let edge = Edge::with(&node, &[("gateway.cache.enabled", "false")]);
    assert_eq!(verbose(&edge), (200, "verdict: ok\nready: ok\n".into()));
    let cache = &Page::listening(&edge).next().expect("a snapshot")["cache"];
    assert_eq!(cache["enabled"], false, "off is not bypassed");
    drop(node);
    let down = event(&edge, "node_url", "node URL failed");
    assert_eq!(down["level"], "error", "it is the only one");
    assert_eq!(down["subject"], format!("http://{address}/rpc"));
    assert_eq!(down["cause"], "connection refused");
    let (status, text) = verbose(&edge);
    assert_eq!(status, 200, "the process takes requests");
    assert!(
        text.starts_with("verdict: failing\n") && text.contains(&address.to_string()),
        "{text}"
    );
    let shown = metrics(&edge);
    assert_eq!(shown[r#"portcullis_condition{condition="node_url"}"#], 1.0);
    assert_eq!(
        shown[r#"portcullis_condition_failing{condition="node_url"}"#],
        1.0
    );
    let began = r#"portcullis_condition_changes_total{change="began",condition="node_url"}"#;
    assert_eq!(
        shown[began], 1.0,
        "it is one event, however many requests fail"
    );
    assert_eq!(shown[r#"portcullis_condition{condition="store"}"#], 0.0);

    let _back = Node::start_at(address, good);
    let up = event(&edge, "node_url", "node URL works again");
    assert_eq!(up["level"], "info");
    assert!(
        up["lasted"].as_str().is_some_and(|time| time.contains('s')),
        "{up}"
    );
    assert_eq!(verbose(&edge), (200, "verdict: ok\nready: ok\n".into()));
}

#[test]
fn requests_that_fail_are_an_event() {
    let is_repaired = Arc::new(AtomicBool::new(false));
    let repaired = Arc::clone(&is_repaired);
    let node = Node::start(move |call| match call.number % 3 {
        0 if !repaired.load(Ordering::Relaxed) => send(sized("502 Bad Gateway", &[], "a page")),
        _ => good(call),
    });
    let unlimited = ("gateway.requests_per_minute", "1000000000");
    let edge = Edge::with(&node, &[("gateway.cache.enabled", "false"), unlimited]);
    let begun = event(&edge, "requests", "requests fail");
    assert_eq!(begun["level"], "warn", "two of three are answered");
    assert_eq!(begun["subject"], "gateway");
    let cause = begun["cause"].as_str().unwrap_or_default();
    assert!(
        cause.ends_with("of them upstream_status (502 Bad Gateway)"),
        "{cause}"
    );
    let (_, text) = verbose(&edge);
    assert!(
        text.starts_with("verdict: degraded\nready: ok\nrequests fail (gateway) since "),
        "{text}"
    );
    is_repaired.store(true, Ordering::Relaxed);
    event(&edge, "requests", "requests are answered again");
    assert_eq!(verbose(&edge), (200, "verdict: ok\nready: ok\n".into()));
}

#[test]
fn readiness_includes_the_node_on_demand() {
    let setup = Setup::before(Node::nowhere()).set("admin.ready_needs_node", "true");
    let edge = setup.start();
    event(&edge, "node_url", "node URL failed");
    let response = edge.admin_get("/readyz");
    assert_eq!(response.status, 503);
    assert_eq!(response.text(), "no URL of the node answers\n");
    assert_eq!(edge.admin_get("/livez").status, 200, "the process lives");
}

#[test]
fn details_of_readiness_need_the_token() {
    let folder = Folder::new();
    let file = format!("\"{}\"", folder.secret("operator.token", &"t".repeat(40)));
    let edge = Setup::before(Node::nowhere())
        .set("admin.token_file", &file)
        .start();
    assert_eq!(edge.admin_get("/readyz?verbose").status, 401);
    assert_eq!(edge.admin_get("/readyz").status, 200);
    assert_eq!(edge.admin_get("/readyz?other").status, 404);
}

/// Waits for an event that no request causes.
fn quiet_event(edge: &Edge, condition: &str, message: &str) -> Value {
    edge.line(message, |line| {
        line["condition"] == condition && line["message"] == message
    })
}

#[test]
fn a_failed_reload_is_an_event() {
    let node = Node::start(good);
    let setup = Setup::before(node.address());
    let edge = setup.start();
    edge.rewrite(&setup.clone().set("node.max_idle", "\"many\""));
    edge.signal("HUP");
    let message = "the configuration in the file is not applied";
    let begun = quiet_event(&edge, "configuration", message);
    assert_eq!(begun["level"], "warn", "requests are served as before");
    let (status, text) = verbose(&edge);
    assert_eq!(status, 200);
    assert!(text.starts_with("verdict: degraded\nready: ok\n"), "{text}");
    assert!(text.contains(&format!("{message} since ")), "{text}");
    edge.rewrite(&setup);
    edge.signal("HUP");
    quiet_event(&edge, "configuration", "the configuration is applied");
    assert_eq!(verbose(&edge), (200, "verdict: ok\nready: ok\n".into()));
}

#[test]
fn a_certificate_that_ends_soon_is_an_event() {
    let (node, folder) = (Node::start(good), Folder::new());
    let now = SystemTime::UNIX_EPOCH.elapsed().expect("a clock").as_secs();
    let in_days = |days: u64| {
        let end = i64::try_from(now + days * 86_400 + 43_200).expect("a time");
        let end = OffsetDateTime::from_unix_timestamp(end).expect("a time");
        Pair::with(NAME, |params| params.not_after = end)
    };
    in_days(3).write(&folder);
    let edge = secured(Setup::before(node.address()), "gateway", &folder).start();
    let soon = quiet_event(&edge, "certificate", "certificate needs renewal");
    assert_eq!(
        (&soon["level"], &soon["subject"]),
        (&"warn".into(), &"gateway".into())
    );
    assert_eq!(soon["cause"], "it expires in 3 days");
    let (status, text) = verbose(&edge);
    assert_eq!(status, 200);
    assert!(
        text.contains("verdict: degraded") && text.contains("3 days"),
        "{text}"
    );
    in_days(30).write(&folder);
    edge.signal("HUP");
    let renewed = quiet_event(&edge, "certificate", "certificate valid");
    assert_eq!(renewed["level"], "info");
    assert_eq!(verbose(&edge).1, "verdict: ok\nready: ok\n");
}

#[test]
fn a_store_that_goes_away_is_an_event() {
    let (node, folder) = (Node::start(good), Folder::new());
    let url = format!("sqlite:{}", folder.file("content.db"));
    let edge = Setup::before(node.address())
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("sidecar.base_url", "\"https://cards.example\"")
        .set("store.url", &format!("\"{url}\""))
        .start();
    let change = |statement: &'static str| {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let mut store = sqlx::SqliteConnection::connect(&url).await.unwrap();
            sqlx::raw_sql(statement).execute(&mut store).await.unwrap();
            store.close().await.unwrap();
        });
    };
    change("ALTER TABLE _sqlx_migrations RENAME TO gone");
    let away = quiet_event(&edge, "store", "store unreachable");
    assert_eq!(away["level"], "error", "what needs it fails");
    assert!(
        away["cause"]
            .as_str()
            .is_some_and(|cause| !cause.is_empty()),
        "{away}"
    );
    assert!(verbose(&edge).1.contains("verdict: failing"));
    change("ALTER TABLE gone RENAME TO _sqlx_migrations");
    let back = quiet_event(&edge, "store", "store reachable again");
    assert_eq!(back["level"], "info");
    assert!(
        back["lasted"]
            .as_str()
            .is_some_and(|time| time.contains('s')),
        "{back}"
    );
    assert_eq!(verbose(&edge).1, "verdict: ok\nready: ok\n");
}

#[test]
fn pins_that_a_restarted_chain_lost_are_an_event() {
    let (folder, is_empty) = (Folder::new(), Arc::new(AtomicBool::new(false)));
    let restarted = Arc::clone(&is_empty);
    let node =
        Node::start(
            move |call| match (restarted.load(Ordering::Relaxed), method(call).as_str()) {
                (true, "starknet_getBlockWithTxHashes") => block(call, 1_800_000_000),
                (true, "starknet_getClassHashAt" | "starknet_call") => error(call, 20),
                _ => honest(call),
            },
        );
    let keys = [("relay.pins_max_age", "\"100ms\"")];
    let edge = stage::setup(node.address(), &folder, &keys).start();
    let ready = || {
        let request = authorised(Request::new("GET", "/readyz"));
        Client::connect(edge.relay()).ask(&request).status
    };
    let until_ready_is = |status: u16| {
        let deadline = Instant::now() + PATIENCE;
        while ready() != status {
            assert!(Instant::now() < deadline, "never {status}");
        }
    };
    until_ready_is(200);
    is_empty.store(true, Ordering::Relaxed);
    until_ready_is(503);
    let lost = quiet_event(&edge, "pins", "pins lost: the relay writes nothing");
    assert_eq!(lost["level"], "error");
    assert!(
        lost["cause"]
            .as_str()
            .is_some_and(|cause| cause.contains("not proven")),
        "{lost}"
    );
    is_empty.store(false, Ordering::Relaxed);
    until_ready_is(200);
    let proven = quiet_event(&edge, "pins", "pins proven: the relay writes");
    assert_eq!(proven["level"], "info");
}
