//! The cache serves only immutable data, and nothing from an abandoned branch of the chain.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::admin::{eventually, metrics, series};
use crate::support::chain::{Chain, ChainNode, Health, Style, question};
use crate::support::check::{assert_common, assert_error};
use crate::support::edge::Edge;
use crate::support::response::Response;

const CLASS: &str = "0xc1a55";
const LATEST_CLASS: &str = r#"["latest","0xc1a55"]"#;
const BLOCK_1: &str = r#"[{"block_number":1}]"#;
const BLOCK_1_BY_HASH: &str = r#"[{"block_hash":"0x101"}]"#;
const RECEIPT: (&str, &str) = ("getTransactionReceipt", r#"["0xa1"]"#);

/// Four blocks: a class in the first, a transaction in the second, which is accepted on L1, and
/// another in the third, which is not.
fn chain() -> Chain {
    let mut chain = Chain::default();
    chain.declare(0, CLASS);
    chain.mine(10, &["0xa1"]);
    chain.mine(20, &["0xa2"]);
    chain.mine(30, &[]);
    chain.l1 = Some(1);
    chain
}

/// A gateway in front of this node, once the block of this number has settled.
fn settled(node: &ChainNode, number: u64) -> Edge {
    let edge = node.setup().start();
    has_settled(&edge, number);
    edge
}

fn has_settled(edge: &Edge, number: u64) {
    eventually(edge, &format!("block {number} settles"), |now| {
        now.get("portcullis_cache_settled_block") == Some(&(number as f64))
    });
}

fn epochs(now: &BTreeMap<String, f64>, cause: &str) -> f64 {
    series(now, "portcullis_cache_epochs_total", &[cause])
}

/// Changes the chain, and waits until the watch detects it. A poll that overlaps the change may see
/// parts of both branches: then the next poll detects the rest.
fn breaks(edge: &Edge, cause: &str, change: impl FnOnce()) {
    let before = epochs(&metrics(edge), cause);
    change();
    eventually(edge, &format!("an epoch ends by {cause}"), |now| {
        epochs(now, cause) > before
    });
}

/// Sends a query; returns `X-Cache` and the response.
fn ask(edge: &Edge, (method, params): (&str, &str)) -> (String, Response) {
    let response = edge.ask(&question(method, params));
    assert_common(&response, method);
    (
        response.header("X-Cache").unwrap_or("none").to_owned(),
        response,
    )
}

fn cache(edge: &Edge, question: (&str, &str)) -> String {
    ask(edge, question).0
}

#[test]
fn settled_final_answers_are_cache_hits() {
    let node = ChainNode::start(chain());
    let edge = settled(&node, 3);
    for (method, params) in [
        ("getClass", LATEST_CLASS),
        ("getClass", r#"[{"block_number":2},"0xc1a55"]"#),
        ("getBlockWithTxHashes", BLOCK_1),
        ("getBlockWithTxHashes", BLOCK_1_BY_HASH),
        ("getBlockWithTxHashes", r#"[{"block_hash":"0x102"}]"#),
        RECEIPT,
        ("getTransactionReceipt", r#"["0xa2"]"#),
        ("chainId", "[]"),
        ("specVersion", "[]"),
    ] {
        let requested = node.requests().len();
        let (first, from_the_node) = ask(&edge, (method, params));
        assert_eq!(first, "miss", "{method} {params}: the first of its kind");
        let request_id = from_the_node.header("X-Request-Id");
        for _ in 0..2 {
            let (again, cached) = ask(&edge, (method, params));
            assert_eq!(again, "hit", "{method} {params}");
            assert_eq!(cached.text(), from_the_node.text(), "the same bytes");
            assert_ne!(
                cached.header("X-Request-Id"),
                request_id,
                "its own request id"
            );
        }
        assert_eq!(
            node.requests().len(),
            requested + 1,
            "{method} {params}: the node was queried once"
        );
        let id = cached_under_another_id(&edge, method, params);
        assert_eq!(id["id"], "another", "whose id it is: {id}");
    }
}

/// The cached response to the same query under another id and by name.
fn cached_under_another_id(edge: &Edge, method: &str, params: &str) -> Value {
    let text = format!(
        r#"{{"id":"another","method":"starknet_{method}","params":{params},"jsonrpc":"2.0"}}"#
    );
    let response = edge.ask(&crate::support::request::Request::post(text));
    assert_eq!(
        response.header("X-Cache"),
        Some("hit"),
        "another id is the same query"
    );
    response.json()
}

#[test]
fn what_may_change_is_requested_every_time() {
    let node = ChainNode::start(chain());
    let edge = settled(&node, 3);
    for question in [
        ("getBlockWithTxHashes", r#"["latest"]"#),
        ("getBlockWithTxHashes", r#"["pre_confirmed"]"#),
        ("getBlockWithTxHashes", r#"["l1_accepted"]"#),
        // not yet on L1
        ("getBlockWithTxHashes", r#"[{"block_number":2}]"#),
        ("getClass", r#"["l1_accepted","0xc1a55"]"#),
        ("getClass", r#"[{"block_hash":"0x101"},"0xc1a55"]"#),
        ("getClassAt", r#"["latest","0x1"]"#),
        ("getClassHashAt", r#"[{"block_number":1},"0x1"]"#),
        ("getNonce", r#"[{"block_number":1},"0x1"]"#),
        ("getTransactionByHash", r#"["0xa1"]"#),
        ("getTransactionStatus", r#"["0xa1"]"#),
        ("blockNumber", "[]"),
        // missing objects may be created later
        ("getTransactionReceipt", r#"["0xdead"]"#),
        ("getBlockWithTxHashes", r#"[{"block_number":9}]"#),
        ("getClass", r#"[{"block_number":1},"0xdead"]"#),
    ] {
        let requested = node.requests().len();
        for _ in 0..2 {
            assert_eq!(cache(&edge, question), "miss", "{question:?}");
        }
        assert_eq!(
            node.requests().len(),
            requested + 2,
            "{question:?}: the node is queried each time"
        );
    }
}

#[test]
fn another_form_of_the_same_block_ends_no_epoch() {
    let node = ChainNode::start(chain());
    let edge = settled(&node, 3);
    cache(&edge, RECEIPT);
    node.change(|chain| chain.style = Style::Rich);
    let seen = node.looks();
    eventually(&edge, "two polls since", |_| node.looks() > seen + 20);
    assert_eq!(cache(&edge, RECEIPT), "hit", "the chain is the same");
    assert_eq!(
        epochs(&metrics(&edge), "genesis") + epochs(&metrics(&edge), "rollback"),
        0.0
    );
}

#[test]
fn a_pruned_node_is_watched_by_a_later_anchor() {
    let node = ChainNode::start(Chain {
        is_pruned: true,
        ..chain()
    });
    let edge = node.setup().set("node.anchor", "1").start();
    has_settled(&edge, 3);
    cache(&edge, RECEIPT);
    assert_eq!(cache(&edge, RECEIPT), "hit", "block 0 is not needed");
    breaks(&edge, "genesis", || {
        node.change(|chain| chain.blocks[1].time = 11)
    });
    assert_eq!(cache(&edge, RECEIPT), "miss", "another chain");
}

#[test]
fn a_class_at_a_tag_serves_both_tags() {
    let node = ChainNode::start(chain());
    let edge = settled(&node, 3);
    for (params, expected) in [
        (LATEST_CLASS, "miss"),
        (LATEST_CLASS, "hit"),
        (
            r#"{"class_hash":"0x0C1A55","block_id":"pre_confirmed"}"#,
            "hit",
        ),
    ] {
        assert_eq!(cache(&edge, ("getClass", params)), expected, "{params}");
    }
    assert_eq!(node.requests(), [r#"getClass {"block_number":3}"#]);
}

#[test]
fn an_unsettled_class_is_served_but_not_cached() {
    let node = ChainNode::start(chain());
    let edge = settled(&node, 3);
    node.change(|chain| chain.declare(40, "0xfe"));
    for _ in 0..2 {
        let (cache, answer) = ask(&edge, ("getClass", r#"["latest","0xfe"]"#));
        assert_eq!(answer.json()["result"]["abi"], "0xfe", "it is there");
        if cache == "hit" {
            // its block has settled meanwhile: this machine is slow
            return;
        }
    }
    let requested = node.requests();
    assert_eq!(
        requested[0], r#"getClass {"block_number":3}"#,
        "first at the settled block"
    );
    assert_eq!(
        requested[1], r#"getClass "latest""#,
        "then as the client did"
    );
    has_settled(&edge, 4);
    let question = ("getClass", r#"["latest","0xfe"]"#);
    assert_eq!(
        (cache(&edge, question), cache(&edge, question)),
        ("miss".into(), "hit".into())
    );
}

#[test]
fn nothing_is_cached_before_a_block_settles() {
    let node = ChainNode::start(chain());
    let edge = node
        .setup()
        .set("gateway.cache.watch_interval", "\"1m\"")
        .start();
    eventually(&edge, "the first look", |now| {
        now.get("portcullis_cache_suspended") == Some(&0.0)
    });
    // the second poll is a minute away
    for question in [
        RECEIPT,
        ("getBlockWithTxHashes", BLOCK_1),
        ("getClass", LATEST_CLASS),
    ] {
        for _ in 0..2 {
            assert_eq!(cache(&edge, question), "miss", "{question:?}");
        }
    }
    assert_eq!(cache(&edge, ("chainId", "[]")), "miss", "the first");
    assert_eq!(
        cache(&edge, ("chainId", "[]")),
        "hit",
        "it is about no block"
    );
}

#[test]
fn nothing_of_an_abandoned_branch_is_served() {
    let node = ChainNode::start(chain());
    let edge = settled(&node, 3);
    let plain = node.setup().set("gateway.cache.enabled", "false").start();
    let questions = [
        RECEIPT,
        ("getBlockWithTxHashes", BLOCK_1),
        ("getBlockWithTxHashes", BLOCK_1_BY_HASH),
        ("getClass", LATEST_CLASS),
    ];
    type Change = (&'static str, fn(&mut Chain));
    let changes: [Change; 4] = [
        ("rollback", |chain| {
            // reverted, and the same transactions mined again: only the times differ
            chain.blocks.truncate(1);
            chain.mine(50, &["0xa1"]);
            chain.mine(51, &["0xa2"]);
            chain.mine(52, &[]);
        }),
        ("rollback", |chain| {
            chain.blocks.truncate(3);
        }),
        ("rollback", |chain| {
            // the branch is replaced by a longer one before the next poll
            chain.blocks.truncate(1);
            (chain.l1, chain.blocks[0].classes) = (None, Vec::new());
            for time in 60..66 {
                chain.mine(time, &[]);
            }
        }),
        ("genesis", |chain| {
            *chain = Chain::default();
            chain.declare(99, CLASS);
            chain.mine(100, &["0xa1"]);
            chain.l1 = Some(1);
        }),
    ];
    for (number, (cause, change)) in changes.into_iter().enumerate() {
        for question in questions {
            cache(&edge, question);
        }
        breaks(&edge, cause, || node.change(change));
        for question in questions {
            let (cache, answer) = ask(&edge, question);
            assert_eq!(cache, "miss", "{question:?} after change {number}, {cause}");
            let (_, truth) = ask(&plain, question);
            assert_eq!(
                answer.text(),
                truth.text(),
                "{question:?} after change {number}, {cause}"
            );
        }
        let head = node.chain.lock().unwrap().blocks.len() as u64 - 1;
        has_settled(&edge, head);
    }
}

#[test]
fn an_unreachable_node_suspends_the_cache() {
    let node = ChainNode::start(chain());
    let edge = settled(&node, 3);
    assert_eq!(cache(&edge, RECEIPT), "miss");
    assert_eq!(cache(&edge, RECEIPT), "hit");
    node.change(|chain| chain.health = Health::Away);
    eventually(&edge, "it is suspended", |now| {
        now.get("portcullis_cache_suspended") == Some(&1.0)
            && now.get("portcullis_cache_entries") == Some(&0.0)
    });
    let (cached, answer) = ask(&edge, RECEIPT);
    assert_error(
        &answer,
        "upstream_unreachable",
        "1",
        "no answer that cannot be verified",
    );
    assert_eq!(cached, "miss");
    edge.line("that it is emptied", |line| line["cause"] == "unreachable");
    let event = edge.line("that it is bypassed", |line| {
        line["message"] == "cache bypassed"
    });
    assert_eq!(
        (&event["level"], &event["condition"]),
        (&"warn".into(), &"cache".into())
    );
    let logged = || {
        edge.lines()
            .iter()
            .filter(|line| line.contains("cache purged"))
            .count()
    };
    assert_eq!(logged(), 1, "logged once, not at every poll");
    node.change(|chain| chain.health = Health::Well);
    has_settled(&edge, 3);
    assert_eq!(cache(&edge, RECEIPT), "miss");
    assert_eq!(cache(&edge, RECEIPT), "hit");
    assert_eq!(logged(), 1);

    breaks(&edge, "strange", || {
        node.change(|chain| chain.health = Health::Mad)
    });
    assert_eq!(
        cache(&edge, RECEIPT),
        "miss",
        "a node that talks nonsense is not seen, either"
    );
}

#[test]
fn l1_acceptance_refreshes_l2_answers() {
    let node = ChainNode::start(chain());
    let edge = settled(&node, 3);
    let on_l2 = ("getTransactionReceipt", r#"["0xa2"]"#);
    for question in [on_l2, RECEIPT] {
        assert_eq!(cache(&edge, question), "miss");
        assert_eq!(cache(&edge, question), "hit");
    }
    node.change(|chain| chain.l1 = Some(2));
    let looks = node.looks();
    // each poll is at most four calls: a poll that began after the change has ended after eight
    node.node.wait_for_calls(node.node.calls().len() + 8);
    assert!(node.looks() >= looks + 8);
    let (cached, answer) = ask(&edge, on_l2);
    assert_eq!(answer.json()["result"]["finality_status"], "ACCEPTED_ON_L1");
    assert_eq!(cached, "miss");
    assert_eq!(cache(&edge, on_l2), "hit", "now it is final");
    assert_eq!(cache(&edge, RECEIPT), "hit", "this one was");
}

#[test]
fn no_more_than_the_configured_entries_are_cached() {
    let mut long = Chain::default();
    for time in 0..60 {
        long.mine(time, &[]);
    }
    long.l1 = Some(59);
    let node = ChainNode::start(long);
    let edge = node.setup().set("gateway.cache.max_entries", "20").start();
    has_settled(&edge, 59);
    let block = |number: usize| format!(r#"[{{"block_number":{number}}}]"#);
    for number in 0..60 {
        assert_eq!(
            cache(&edge, ("getBlockWithTxHashes", &block(number))),
            "miss"
        );
    }
    eventually(&edge, "some are cached", |now| {
        let entries = now
            .get("portcullis_cache_entries")
            .copied()
            .unwrap_or_default();
        assert!(entries <= 20.0, "{entries} entries");
        entries >= 10.0
    });
}

#[test]
fn switched_off_nothing_is_cached_and_nobody_watches() {
    let node = ChainNode::start(chain());
    let setup = node.setup();
    let edge = setup.clone().start();
    has_settled(&edge, 3);
    assert_eq!(cache(&edge, RECEIPT), "miss");
    assert_eq!(cache(&edge, RECEIPT), "hit");
    let reload = |enabled: &str| {
        edge.rewrite(&setup.clone().set("gateway.cache.enabled", enabled));
        edge.signal("HUP");
        edge.line("the change", |line| {
            line["key"] == "gateway.cache.enabled" && line["to"] == enabled
        });
    };
    reload("false");
    assert_eq!(cache(&edge, RECEIPT), "miss", "it is given no more");
    eventually(&edge, "it is empty", |now| {
        now.get("portcullis_cache_entries") == Some(&0.0)
            && now.get("portcullis_cache_suspended") == Some(&1.0)
            && now.get("portcullis_cache_settled_block") == Some(&-1.0)
    });
    // a chain that changes while the watch is disabled
    node.change(|chain| chain.blocks[1].time = 11);
    reload("true");
    has_settled(&edge, 3);
    let (cached, answer) = ask(&edge, RECEIPT);
    assert_eq!(
        (cached.as_str(), &answer.json()["result"]["time"]),
        ("miss", &11.into())
    );
    assert_eq!(cache(&edge, RECEIPT), "hit", "it is used again");
}

#[test]
fn without_a_cache_the_node_is_not_polled() {
    let node = ChainNode::start(chain());
    let edge = node.setup().set("gateway.cache.enabled", "false").start();
    for _ in 0..20 {
        assert_eq!(cache(&edge, RECEIPT), "miss");
    }
    assert_eq!((node.requests().len(), node.looks()), (20, 0));
    let alone = node.setup().set("gateway.single_flight", "false");
    // the watch has its own connections
    let alone = alone.set("node.max_connections", "1").start();
    has_settled(&alone, 3);
    assert_eq!(cache(&alone, RECEIPT), "miss", "a cache needs no flights");
    assert_eq!(cache(&alone, RECEIPT), "hit");
}
