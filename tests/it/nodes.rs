//! Several URLs of real nodes with one chain: however they lag, stand still, fork, flap and go
//! back, no client sees an older head than before.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::admin::{eventually, metrics};
use crate::support::client::PATIENCE;
use crate::support::edge::Edge;
use crate::support::relay::devnet::ARCHIVE;
use crate::support::replicas::{Replica, before, nonce_at};
use crate::support::request::{Request, rpc};
use crate::support::response::Response;

fn ask_head(edge: &Edge) -> Response {
    edge.ask(&Request::post(rpc("7", "starknet_blockNumber", "[]")))
}

fn head(edge: &Edge) -> u64 {
    let response = ask_head(edge);
    response.json()["result"]
        .as_u64()
        .unwrap_or_else(|| panic!("no head: {}", response.text()))
}

/// The number of the block `latest`.
fn latest(edge: &Edge) -> Value {
    let params = json!({"block_id": "latest"}).to_string();
    let request = Request::post(rpc("7", "starknet_getBlockWithTxHashes", &params));
    edge.ask(&request).json()["result"]["block_number"].clone()
}

/// Waits until the number of the newest block is this one; it is never lower than before.
fn until_head(edge: &Edge, wanted: u64) {
    let deadline = Instant::now() + PATIENCE;
    let mut seen = 0;
    while seen != wanted {
        let found = head(edge);
        assert!(found >= seen, "the head fell from {seen} to {found}");
        assert!(Instant::now() < deadline, "{wanted} never shows: {found}");
        seen = found;
        pause(edge);
    }
}

/// A wait of 20 ms, to avoid a busy loop.
fn pause(edge: &Edge) {
    let _silence = edge.client().silent_for(Duration::from_millis(20));
}

/// Waits until this URL is left out for this reason, or for none.
fn left_out(edge: &Edge, node: usize, reason: Option<&str>) {
    let prefix = format!(r#"portcullis_node_left_out{{node="{node}",reason=""#);
    eventually(
        edge,
        &format!("URL {node} is left out: {reason:?}"),
        |now| {
            let mut found = now
                .iter()
                .filter(|(name, value)| name.starts_with(&prefix) && **value == 1.0);
            match reason {
                Some(reason) => found.any(|(name, _)| name.contains(reason)),
                None => found.next().is_none() && now.keys().any(|name| name.starts_with(&prefix)),
            }
        },
    );
}

/// Waits until the verdict names this URL with this cause.
fn failed(edge: &Edge, node: &Replica, cause: &str) {
    edge.line(cause, |line| {
        let is_about = line["message"] == "node URL failed" && line["subject"] == node.url();
        is_about && line["cause"] == cause
    });
    let verdict = edge.admin_get("/readyz?verbose").text().to_owned();
    assert!(
        verdict.contains(&format!("({})", node.url())) && verdict.contains(cause),
        "{verdict}"
    );
}

/// Waits until the head of each URL is known to be this one.
fn heads(edge: &Edge, wanted: &[u64]) {
    eventually(edge, &format!("the heads {wanted:?}"), |now| {
        wanted.iter().enumerate().all(|(node, head)| {
            now.get(&format!(r#"portcullis_node_head{{node="{node}"}}"#)) == Some(&(*head as f64))
        })
    });
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_failover_never_lowers_the_head() {
    let [a, b] = Replica::archives();
    a.mine_to(5);
    b.mine_to(4);
    let edge = before(&[&a, &b]).start();
    heads(&edge, &[5, 4]);
    assert_eq!(
        (head(&edge), latest(&edge)),
        (5, json!(5)),
        "the first is preferred"
    );
    a.is_away(true);
    let refused = ask_head(&edge);
    assert_eq!(
        refused.status,
        502,
        "block 5 was seen, and nobody has it: {}",
        refused.text()
    );
    assert!(refused.text().contains("lagging"), "{}", refused.text());
    while !edge.admin_get("/readyz?verbose").text().contains("failing") {
        assert_eq!(
            ask_head(&edge).status,
            502,
            "until the breaker of the first opens"
        );
    }
    failed(&edge, &b, "lagging: its head is 4, and clients have seen 5");

    b.mine_to(5);
    assert_eq!(
        head(&edge),
        5,
        "a request waits until the second has block 5"
    );
    b.mine_to(6);
    until_head(&edge, 6);
    a.is_away(false);
    for _ in 0..50 {
        assert_eq!(
            (head(&edge), latest(&edge)),
            (6, json!(6)),
            "the first has 5 blocks"
        );
        pause(&edge);
    }
    a.mine_to(7);
    until_head(&edge, 7);
    assert_eq!(edge.ask(&nonce_at(&json!("latest"))).status, 200);
    assert_eq!(
        (a.reads().len(), b.reads().len()),
        (1, 0),
        "the first has all, and is preferred"
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_lagging_url_gets_no_request() {
    let [a, b] = Replica::archives();
    b.mine_to(9);
    let edge = before(&[&a, &b]).start();
    left_out(&edge, 0, Some("lagging"));
    for _ in 0..5 {
        assert_eq!(edge.ask(&nonce_at(&json!("latest"))).status, 200);
    }
    assert_eq!(
        (a.reads().len(), b.reads().len()),
        (0, 5),
        "the first is nine blocks behind"
    );
    failed(&edge, &a, "lagging: its head is 0, that of others 9");
    assert_eq!(metrics(&edge)[r#"portcullis_node_head{node="1"}"#], 9.0);

    b.is_away(true);
    let refused = edge.ask(&nonce_at(&json!("latest")));
    assert_eq!(refused.status, 502, "only a lagging one is left");
    assert!(refused.text().contains("lagging"), "{}", refused.text());
    assert_eq!(a.reads().len(), 0);
    b.is_away(false);
    a.mine_to(9);
    left_out(&edge, 0, None);
    assert_eq!(edge.ask(&nonce_at(&json!("latest"))).status, 200);
    assert_eq!(a.reads().len(), 1, "it caught up");
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn the_bound_on_the_lag_is_configured() {
    let [a, b] = Replica::archives();
    b.mine_to(2);
    let edge = before(&[&a, &b]).set("node.max_lag", "1").start();
    left_out(&edge, 0, Some("lagging"));
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_head_of_another_branch_is_ignored() {
    let [a, b] = Replica::archives();
    a.mine_to(2);
    b.mine_to(1);
    (0..12).for_each(|_| b.fork());
    let edge = before(&[&a, &b]).start();
    left_out(&edge, 1, Some("fork"));
    assert_eq!(
        head(&edge),
        2,
        "the longer branch is not the preferred URL's"
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_rollback_is_followed() {
    let [a, b] = Replica::archives();
    [&a, &b].iter().for_each(|node| node.mine_to(5));
    let edge = before(&[&a, &b]).start();
    heads(&edge, &[5, 5]);
    assert_eq!(head(&edge), 5);
    [&a, &b].iter().for_each(|node| node.abort_from(4));
    let deadline = Instant::now() + PATIENCE;
    while head(&edge) != 3 {
        assert!(
            Instant::now() < deadline,
            "block 4 and 5 are gone everywhere"
        );
        pause(&edge);
    }
    edge.line("the rollback", |line| {
        line["message"] == "the node went back to an earlier block"
    });
    b.mine_to(5);
    for _ in 0..50 {
        assert_eq!(head(&edge), 3, "the first serves on");
        pause(&edge);
    }
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn replicas_answer_from_one_block() {
    let [a, b] = Replica::archives();
    a.mine_to(6);
    b.mine_to(4);
    let edge = before(&[&a, &b]).set("node.mode", "\"replicas\"").start();
    heads(&edge, &[6, 4]);
    assert_eq!(
        (head(&edge), latest(&edge)),
        (4, json!(4)),
        "the lowest head of the group"
    );
    for _ in 0..40 {
        let response = edge.ask(&nonce_at(&json!("latest")));
        assert!(
            response.text().contains("Contract not found"),
            "{}",
            response.text()
        );
    }
    let pinned = json!({"block_number": 4});
    for (name, reads) in [("a", a.reads()), ("b", b.reads())] {
        assert!(!reads.is_empty(), "{name} serves, too");
        assert!(
            reads.iter().all(|block| *block == pinned),
            "{name}: {reads:?}"
        );
    }
    let (mine, other) = (a.reads().len(), b.reads().len());
    assert_eq!(mine + other, 40, "each read is one call");

    for _ in 0..10 {
        edge.ask(&nonce_at(&json!("pre_confirmed")));
        edge.ask(&nonce_at(&json!({"block_number": 6})));
    }
    assert_eq!(
        b.reads().len(),
        other,
        "only the first has block 6, and the one being built"
    );
    assert_eq!(a.reads()[mine], json!("pre_confirmed"), "not rewritten");
    let missing = edge.ask(&nonce_at(&json!({"block_number": 7})));
    assert!(
        missing.text().contains(r#""code":24"#),
        "{}",
        missing.text()
    );

    b.mine_to(5);
    until_head(&edge, 5);
    assert_eq!(latest(&edge), 5);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_position_beyond_the_pin_is_the_primarys() {
    let [a, b] = Replica::archives();
    a.mine_to(6);
    b.mine_to(4);
    let edge = before(&[&a, &b]).set("node.mode", "\"replicas\"");
    let edge = edge.set("gateway.cache.enabled", "true").start();
    heads(&edge, &[6, 4]);
    let deadline = Instant::now() + PATIENCE;
    let stated = loop {
        let response = ask_head(&edge);
        assert_eq!(response.json()["result"], 4);
        if let Some(position) = response.header("x-chain-position") {
            break position.to_owned();
        }
        assert!(Instant::now() < deadline, "the chain is watched");
        pause(&edge);
    };
    let (epoch, height) = stated.split_once('.').expect("an epoch and a height");
    assert_eq!(
        height, "4",
        "the answer is not from the newest block of the primary"
    );
    for (height, expected) in [(4, 4), (6, 6), (4, 4)] {
        let position = format!("{epoch}.{height}");
        let request = Request::post(rpc("7", "starknet_blockNumber", "[]"));
        let response = edge.ask(&request.with("X-Chain-Position", &position));
        assert_eq!(response.json()["result"], expected, "{}", response.text());
        assert_eq!(response.header("x-chain-position"), Some(&*position));
    }
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_frozen_replica_neither_votes_nor_serves() {
    let [a, b, c] = Replica::archives();
    [&a, &b, &c].iter().for_each(|node| node.mine_to(2));
    let edge = before(&[&a, &b, &c])
        .set("node.mode", "\"replicas\"")
        .start();
    heads(&edge, &[2, 2, 2]);
    for number in 3..6 {
        [&a, &c].iter().for_each(|node| node.mine_to(number));
        heads(&edge, &[number, 2, number]);
    }
    left_out(&edge, 1, Some("frozen"));
    until_head(&edge, 5);
    let before = b.reads().len();
    for _ in 0..30 {
        edge.ask(&nonce_at(&json!("latest")));
        assert_eq!(latest(&edge), 5);
    }
    assert_eq!(
        b.reads().len(),
        before,
        "nothing is read of the frozen past"
    );
    failed(&edge, &b, "frozen: its head stays 2 while others move on");
    b.mine_to(5);
    left_out(&edge, 1, None);
    assert_eq!(head(&edge), 5);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn replicas_of_another_branch_are_left_out() {
    let [a, b, c] = Replica::archives();
    [&a, &c].iter().for_each(|node| node.mine_to(3));
    b.mine_to(2);
    b.fork();
    let edge = before(&[&a, &b, &c])
        .set("node.mode", "\"replicas\"")
        .start();
    left_out(&edge, 1, Some("fork"));
    until_head(&edge, 3);
    let seen = b.reads().len();
    for _ in 0..20 {
        edge.ask(&nonce_at(&json!("latest")));
    }
    assert_eq!(b.reads().len(), seen, "it has another block 3");
    assert_eq!(b.count("starknet_blockNumber"), 0, "polled only");
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn nodes_without_history_are_never_pinned() {
    let (a, b) = (Replica::start(&[]), Replica::start(&[]));
    a.mine_to(5);
    b.mine_to(5);
    let edge = before(&[&a, &b]).set("node.mode", "\"replicas\"").start();
    heads(&edge, &[5, 5]);
    assert_eq!((head(&edge), latest(&edge)), (5, json!(5)));
    for _ in 0..5 {
        let response = edge.ask(&nonce_at(&json!("latest")));
        assert!(
            response.text().contains("Contract not found"),
            "{}",
            response.text()
        );
    }
    assert_eq!(
        a.reads(),
        vec![json!("latest"); 5],
        "as requested, at the primary"
    );
    assert_eq!(b.reads(), [] as [Value; 0]);

    a.mine_to(6);
    assert_eq!(head(&edge), 6, "its own head, not that of the last poll");
    a.is_away(true);
    assert!(
        ask_head(&edge).text().contains("lagging"),
        "block 6 was seen"
    );
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn one_archive_is_pinned_among_others() {
    let (a, b) = (Replica::start(&[]), Replica::start(&ARCHIVE));
    [&a, &b].iter().for_each(|node| node.mine_to(4));
    let edge = before(&[&a, &b]).set("node.mode", "\"replicas\"").start();
    heads(&edge, &[4, 4]);
    a.mine_to(5);
    heads(&edge, &[5, 4]);
    assert_eq!(head(&edge), 4);
    edge.ask(&nonce_at(&json!("latest")));
    assert_eq!(
        (a.reads().len(), b.reads()),
        (0, vec![json!({"block_number": 4})])
    );
    edge.ask(&nonce_at(&json!("pre_confirmed")));
    assert_eq!(
        a.reads(),
        [json!("pre_confirmed")],
        "it is the primary all the same"
    );
}

/// Nodes come and go, mine in turns and stand still, while a client asks without a pause.
#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn no_client_sees_the_head_fall() {
    for mode in ["failover", "replicas"] {
        let [a, b, c] = Replica::archives();
        let nodes = [&a, &b, &c];
        nodes.iter().for_each(|node| node.mine_to(3));
        let edge = before(&nodes)
            .set("node.mode", &format!("\"{mode}\""))
            .start();
        heads(&edge, &[3, 3, 3]);
        let (mut seen, mut answered) = (0, 0);
        let until = Instant::now() + Duration::from_secs(4);
        let mut turn = 0;
        while Instant::now() < until {
            turn += 1;
            let of = |offset: usize| nodes[(turn / 7 + offset) % 3];
            of(0).is_away(turn % 7 > 3);
            of(1).is_away(false);
            of(1).mine_to((3 + turn / 5) as u64);
            of(2).mine_to((3 + turn / 8) as u64);
            let response = ask_head(&edge).json();
            for found in [response["result"].as_u64(), latest(&edge).as_u64()] {
                let Some(found) = found else { continue };
                assert!(
                    found >= seen,
                    "{mode}: the head fell from {seen} to {found}"
                );
                (seen, answered) = (found, answered + 1);
            }
        }
        assert!(
            answered > 10 && seen > 3,
            "{mode}: {answered} answers, up to {seen}"
        );
    }
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn a_live_check_compares_heads() {
    let [a, b] = Replica::archives();
    a.mine_to(9);
    b.mine_to(8);
    let check = |wanted: i32, texts: &[String]| {
        let output = before(&[&a, &b]).run_with("check", &["--live"], "");
        let text = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(wanted), "{text}");
        for wanted in texts {
            assert!(text.contains(wanted), "{wanted}: {text}");
        }
    };
    check(0, &["its head is 9".to_owned(), "its head is 8".to_owned()]);
    a.mine_to(17);
    check(1, &["lagging: its head is 8, that of others 17".to_owned()]);
    b.fork();
    check(1, &["fork: one of its blocks differs".to_owned()]);
}

#[test]
#[ignore = "needs starknet-devnet: run tests/run"]
fn one_url_is_not_polled_for_its_head() {
    let a = Replica::archive();
    let edge = before(&[&a]).set("node.mode", "\"replicas\"").start();
    a.mine_to(3);
    assert_eq!(edge.ask(&nonce_at(&json!("latest"))).status, 200);
    assert_eq!(a.reads(), [json!("latest")]);
    assert_eq!(a.count("starknet_blockNumber"), 0);
    assert_eq!(metrics(&edge)[r#"portcullis_node_head{node="0"}"#], -1.0);
}
