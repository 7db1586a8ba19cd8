//! Searches of the write journal on the operator's page.

use std::sync::{Arc, Mutex};

use portcullis_filters::felt::Felt;
use serde_json::Value;

use crate::operator::{ask, local};
use crate::support::node::Call;
use crate::support::relay::chain::{USER_KEY, honest, is_add, took};
use crate::support::relay::expect::submitted;
use crate::support::relay::stage::Stage;
use crate::support::relay::user::User;

/// The response of `/journal`.
fn find(stage: &Stage, query: &str) -> Value {
    let answer = ask(&stage.edge, &local(&format!("/journal?{query}")));
    assert_eq!(answer.status, 200, "{query}: {}", answer.text());
    assert_eq!(answer.header("Cache-Control"), Some("no-store"), "{query}");
    answer.json()
}

/// The numbers of the entries found.
fn numbers(stage: &Stage, query: &str) -> Vec<i64> {
    let found = find(stage, query);
    let writes = found["writes"].as_array().expect("a list");
    writes
        .iter()
        .map(|write| write["id"].as_i64().expect("a number"))
        .collect()
}

#[test]
fn journal_searches_filter_and_page() {
    let sent = Arc::new(Mutex::new(Felt::ZERO));
    let hash = Arc::clone(&sent);
    let script = move |call: &Call| match is_add(call) {
        true => took(call, *hash.lock().unwrap()),
        false => honest(call),
    };
    let stage = Stage::with_script(script, &[]);
    let user = User::with_key(USER_KEY);
    let mut hashes = Vec::new();
    for nonce in 0..28 {
        let signed = stage.fine(&user, nonce);
        *sent.lock().unwrap() = signed.hash;
        submitted(&stage.post("/rpc", signed.body()), signed.hash, "it passes");
        hashes.push(signed.hash);
    }
    let first = find(&stage, "");
    let page = first["writes"].as_array().expect("a list");
    assert_eq!(page.len(), 25, "a page");
    let newest = &page[0];
    assert_eq!(
        newest["transaction_hash"],
        hashes[27].to_string(),
        "newest first"
    );
    assert_eq!(
        (&newest["operation"], &newest["nonce"]),
        (&"invoke".into(), &27.into())
    );
    assert_eq!(newest["signer"], user.address.to_string());
    let rest = find(&stage, &format!("before={}", first["before"]));
    assert_eq!(
        rest["writes"].as_array().map(Vec::len),
        Some(3),
        "the second page"
    );
    assert_eq!(rest["before"], Value::Null, "there is no third");
    let oldest = rest["writes"][2]["id"].as_i64().expect("a number");
    let digits = hashes[0].to_string().split_off(2);
    for hash in [
        format!("0x{digits}"),
        format!("0x0{}", digits.to_uppercase()),
    ] {
        assert_eq!(numbers(&stage, &format!("hash={hash}")), [oldest], "{hash}");
    }
    assert_eq!(
        numbers(&stage, "hash=&state="),
        numbers(&stage, ""),
        "an empty value does not filter"
    );
    assert_eq!(numbers(&stage, &format!("intent={oldest}")), [oldest]);
    assert_eq!(numbers(&stage, "operation=invoke").len(), 25);
    assert_eq!(
        numbers(
            &stage,
            &format!("operation=invoke&before={}", first["before"])
        )
        .len(),
        3
    );
    for nothing in [
        "hash=0xdead",
        "subject=0xdead",
        "operation=mint-card",
        "state=reverted",
        "state=lost",
        "intent=999999",
        "before=1",
    ] {
        assert_eq!(numbers(&stage, nothing), [0; 0], "{nothing}");
    }
    let states: usize = ["intended", "sent", "accepted", "succeeded"]
        .map(|state| numbers(&stage, &format!("state={state}&hash={}", hashes[3])).len())
        .iter()
        .sum();
    assert_eq!(states, 1, "one intent is in one state");
    let entries = ask(
        &stage.edge,
        &local(&format!("/journal/entries?intent={oldest}")),
    )
    .json();
    let kinds: Vec<_> = entries
        .as_array()
        .into_iter()
        .flatten()
        .filter_map(|it| it["kind"].as_str())
        .collect();
    assert_eq!(kinds.get(..2), Some(&["intended", "sent"][..]), "{entries}");
    for text in [find(&stage, "").to_string(), entries.to_string()] {
        assert!(!text.contains("signature"), "a signature is shown: {text}");
    }
}

#[test]
fn refusals_are_found_apart_from_what_was_written() {
    let stage = Stage::scripted();
    let refused = stage.post("/mint-card", r#"{"recipient":"0x202","card_id":"7"}"#);
    assert_eq!(refused.status, 403, "{}", refused.text());
    assert_eq!(numbers(&stage, ""), [0; 0], "nothing was written");
    let found = find(&stage, "state=refused");
    let refusal = &found["writes"][0];
    assert_eq!(
        (&refusal["operation"], &refusal["state"]),
        (&"mint-card".into(), &"refused".into())
    );
    let detail = refusal["detail"].as_str().unwrap_or_default();
    assert!(detail.contains("argument_not_allowed"), "{detail}");
    let number = refusal["id"].as_i64().expect("a number");
    let query = |rest: String| numbers(&stage, &format!("state=refused&operation={rest}"));
    assert_eq!(query(format!("mint-card&before={}", number + 1)), [number]);
    assert_eq!(query(format!("mint-card&before={number}")), [0; 0]);
    assert_eq!(query("register".to_owned()), [0; 0]);
}

#[test]
fn an_invalid_query_is_explained() {
    let stage = Stage::scripted();
    for (query, part) in [
        (
            "q=1",
            "the parameters are intent, hash, subject, state, operation, before",
        ),
        ("hash=12", "hash is 0x"),
        ("hash=0xg", "hash is 0x"),
        ("subject=%3Cb%3E", "subject is 0x"),
        ("state=gone", "state is one of intended, sent"),
        ("intent=0", "intent is a number"),
        ("intent=x", "intent is a number"),
        ("intent=99999999999999999999", "intent is a number"),
        ("intent=1&intent=1", "intent appears twice"),
        ("intent=1&state=sent", "intent cannot be combined"),
        ("state=refused&hash=0x1", "a refusal has no hash"),
        ("hash=0x1&hash=0x1", "hash appears twice"),
        ("operation=Mint", "operation is a name"),
        ("operation=%27%20OR%201", "operation is a name"),
        ("before=0", "before is a number"),
        ("before=-1", "before is a number"),
    ] {
        let answer = ask(&stage.edge, &local(&format!("/journal?{query}")));
        assert_eq!(answer.status, 400, "{query}");
        let message = answer.json()["message"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(message.starts_with(part), "{query}: {message}");
    }
    assert_eq!(ask(&stage.edge, &local("/journal/entries")).status, 400);
    assert_eq!(
        ask(&stage.edge, &local("/journal/entries?id=1")).status,
        400
    );
    assert_eq!(ask(&stage.edge, &local("/journal/")).status, 404);
    assert_eq!(ask(&stage.edge, &local("/journalx?intent=1")).status, 404);
}
