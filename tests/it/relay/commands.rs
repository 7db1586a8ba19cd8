//! Operator commands of the relay: `token`, `check --live`, `explain --relay` and `journal`.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Output;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use serde_json::Value;
use sqlx::Connection as _;

use crate::support::client::PATIENCE;
use crate::support::edge::program;
use crate::support::folder::Folder;
use crate::support::node::{Call, Node};
use crate::support::relay::chain::{USER_KEY, honest, is_add, method, receipt, took};
use crate::support::relay::expect::{refused, submitted};
use crate::support::relay::stage::{Stage, setup};
use crate::support::relay::user::{Signed, User};

pub(super) fn printed(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).expect("what is printed is text")
}

#[test]
fn a_new_token_is_private_and_64_digits() {
    let folder = Folder::new();
    let new = |path: &Path| program().args(["token", "new"]).arg(path).output().unwrap();
    let path = folder.path().join("new.token");
    let output = new(&path);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let token = std::fs::read_to_string(&path).unwrap();
    let digits = token.trim_end();
    assert!(
        digits.len() == 64 && digits.bytes().all(|own| own.is_ascii_hexdigit()),
        "{token:?}"
    );
    let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o7777;
    assert_eq!(mode, 0o600, "nobody else can read it");
    assert!(
        !printed(&output).contains(digits),
        "it is not printed: {output:?}"
    );

    let again = new(&path);
    assert_eq!(
        again.status.code(),
        Some(2),
        "a file that is there: {again:?}"
    );
    assert_eq!(
        std::fs::read_to_string(&path).unwrap(),
        token,
        "it is not overwritten"
    );

    let other = folder.path().join("other.token");
    new(&other);
    assert_ne!(
        std::fs::read_to_string(&other).unwrap(),
        token,
        "no two are the same"
    );
    let nowhere = new(&folder.path().join("no/such/folder"));
    assert_eq!(nowhere.status.code(), Some(70), "{nowhere:?}");
}

#[test]
fn a_new_token_opens_a_relay() {
    let stage = Stage::scripted();
    let path = stage.folder.file("relay.token");
    std::fs::remove_file(&path).unwrap();
    assert!(
        program()
            .args(["token", "new", &path])
            .output()
            .unwrap()
            .status
            .success()
    );
    let token = std::fs::read_to_string(&path).unwrap();
    stage.edge.signal("HUP");
    let request = crate::support::request::Request::new("GET", "/readyz");
    let request = request.with("Authorization", &format!("Bearer {}", token.trim_end()));
    let deadline = Instant::now() + PATIENCE;
    // wait for the reload: each earlier request is a failed attempt, which leads to a refusal
    stage.edge.line("the tokens", |line| {
        line["message"] == "content of a file changed" && line["key"] == "relay.token_files"
    });
    while stage.ask(&request).status != 200 {
        assert!(Instant::now() < deadline, "the new token does not open");
    }
    assert_eq!(
        stage.ready().status,
        401,
        "the old one does not open any more"
    );
}

#[test]
fn a_live_check_shows_every_pin() {
    let folder = Folder::new();
    let node = Node::start(honest);
    let good = setup(node.address(), &folder, &[]);
    let output = good.run_with("check", &["--live"], "");
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(0), "{text}");
    assert!(
        text.contains("card_minter") && !text.contains("FAILED"),
        "{text}"
    );

    let output = good
        .clone()
        .set("relay.pins.card_class", "\"0x666\"")
        .run_with("check", &["--live"], "");
    let text = printed(&output);
    assert_eq!(output.status.code(), Some(1), "one pin is wrong: {text}");
    let failed: Vec<_> = text
        .lines()
        .filter(|line| line.contains("FAILED"))
        .collect();
    assert_eq!(failed.len(), 1, "{text}");
    assert!(
        failed[0].starts_with("card_class") && failed[0].contains("expected 0x666"),
        "{text}"
    );
    assert!(
        text.contains("found    0x1202"),
        "what the chain has: {text}"
    );

    let down = setup(Node::nowhere(), &folder, &[]).run_with("check", &["--live"], "");
    assert_eq!(down.status.code(), Some(1), "no node: {}", printed(&down));
    assert!(printed(&down).contains("unreadable"), "{}", printed(&down));
}

#[test]
fn explain_judges_like_the_relay_offline() {
    let folder = Folder::new();
    let node = Node::start(honest);
    let setup = setup(node.address(), &folder, &[]);
    for (path, body, code, shown) in [
        (
            "/recovery-execute",
            r#"{"identity":"0x1d"}"#,
            0,
            "recovery-execute",
        ),
        (
            "/recovery-execute",
            r#"{"identity":"0x0"}"#,
            1,
            "refused  argument_not_allowed: ",
        ),
        ("/mint-card", "[]", 1, "refused  batch: "),
        ("/rpc", "{", 1, "refused  parse_error: "),
    ] {
        let output = setup.run_with("explain", &["--relay", path, "-"], body);
        let text = printed(&output);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{path} {body}: {text} {output:?}"
        );
        assert!(text.contains(shown), "{path} {body}: {shown:?} in {text}");
        let has_code = text.contains("JSON-RPC -");
        assert_eq!(
            has_code,
            path == "/rpc",
            "an operation answers no code: {text}"
        );
    }
    assert_eq!(node.connections(), 0, "nothing is queried");
}

/// A relay that wrote one transaction and refused one operation, and the transaction.
pub(super) fn with_a_journal() -> (Stage, Signed) {
    let hash = Arc::new(Mutex::new(portcullis_filters::felt::Felt::ZERO));
    let known = Arc::clone(&hash);
    let script = move |call: &Call| match method(call).as_str() {
        _ if is_add(call) => took(call, *known.lock().unwrap()),
        "starknet_getTransactionReceipt" => receipt(call),
        _ => honest(call),
    };
    let stage = Stage::with_script(script, &[]);
    let fine = stage.fine(&User::with_key(USER_KEY), 0);
    *hash.lock().unwrap() = fine.hash;
    submitted(&stage.post("/rpc", fine.body()), fine.hash, "a transaction");
    let answer = stage.post("/recovery-cancel", r#"{"identity":"0x0"}"#);
    refused(
        &answer,
        "argument_not_allowed",
        "an operation that is refused",
    );
    (stage, fine)
}

pub(super) fn journal(stage: &Stage, arguments: &[&str]) -> Output {
    stage.setup.run_with("journal", arguments, "")
}

/// All journal entries as `export` writes them, once the transaction is final.
pub(super) fn exported(stage: &Stage) -> Vec<Value> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let output = journal(stage, &["export"]);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        let text = printed(&output);
        let entries: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        if entries
            .iter()
            .any(|entry| entry.to_string().contains("succeeded"))
        {
            return entries;
        }
        assert!(
            Instant::now() < deadline,
            "the transaction never ends: {text}"
        );
    }
}

#[test]
fn the_journal_records_intents_and_outcomes() {
    let (stage, fine) = with_a_journal();
    let entries = exported(&stage);
    let kinds: Vec<_> = entries
        .iter()
        .map(|entry| entry["kind"].as_str().unwrap())
        .collect();
    for kind in ["intended", "sent", "accepted", "succeeded", "refused"] {
        let times = kinds.iter().filter(|own| **own == kind).count();
        assert_eq!(times, 1, "{kind} is in the journal once: {kinds:?}");
    }
    let refusal = entries
        .iter()
        .find(|entry| entry["kind"] == "refused")
        .unwrap()
        .to_string();
    assert!(refusal.contains("argument_not_allowed"), "why: {refusal}");
    assert!(refusal.contains("recovery-cancel"), "what: {refusal}");

    let list = printed(&journal(&stage, &["list"]));
    assert_eq!(
        list.lines().count(),
        entries.len(),
        "a line for each entry: {list}"
    );
    let last = printed(&journal(&stage, &["list", "--last", "2"]));
    assert_eq!(last.lines().count(), 2, "the newest: {last}");

    let shown = printed(&journal(&stage, &["show", "1"]));
    assert!(shown.contains(&fine.hash.to_string()), "its hash: {shown}");
    assert!(shown.contains(&fine.text), "what was submitted: {shown}");
    assert!(shown.contains("succeeded"), "the outcome: {shown}");
    let missing = journal(&stage, &["show", "99"]);
    assert_eq!(
        missing.status.code(),
        Some(1),
        "there is no such intent: {missing:?}"
    );

    let verified = journal(&stage, &["verify"]);
    let text = printed(&verified);
    assert_eq!(verified.status.code(), Some(0), "{text}");
    assert!(
        text.starts_with(&format!("{} entries", entries.len())),
        "{text}"
    );
}

/// Edits the journal directly, after dropping the triggers that prevent it.
pub(super) fn tamper(stage: &Stage, statement: &'static str) {
    let url = format!("sqlite:{}", stage.folder.file("journal.db"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut store = sqlx::SqliteConnection::connect(&url).await.unwrap();
        for own in ["journal_keeps_rows", "journal_keeps_values"] {
            let drop = sqlx::AssertSqlSafe(format!("DROP TRIGGER IF EXISTS {own}"));
            sqlx::raw_sql(drop).execute(&mut store).await.unwrap();
        }
        let changed = sqlx::raw_sql(statement).execute(&mut store).await.unwrap();
        assert_eq!(changed.rows_affected(), 1, "{statement}");
        store.close().await.unwrap();
    });
}

#[test]
fn verify_finds_a_changed_journal_entry() {
    for (statement, at) in [
        (
            "UPDATE journal SET detail = 'nothing' WHERE seq = 2",
            "entry 2",
        ),
        (
            "UPDATE journal SET at_us = at_us + 1 WHERE seq = 1",
            "entry 1",
        ),
        ("DELETE FROM journal WHERE seq = 3", "entry 3"),
        (
            "DELETE FROM journal WHERE seq = (SELECT max(seq) FROM journal)",
            "entry",
        ),
    ] {
        let (stage, _) = with_a_journal();
        exported(&stage);
        tamper(&stage, statement);
        let output = journal(&stage, &["verify"]);
        let text = printed(&output);
        assert_eq!(output.status.code(), Some(1), "{statement}: {text}");
        assert!(
            text.contains("BROKEN at") && text.contains(at),
            "{statement}: {text}"
        );
    }
}

#[test]
fn neither_journal_nor_log_holds_secrets() {
    let (stage, _) = with_a_journal();
    let entries = exported(&stage);
    let all = format!("{entries:?}\n{}", stage.edge.lines().join("\n"));
    for secret in [
        crate::support::relay::stage::TOKEN,
        crate::support::relay::chain::OWNER_KEY,
        crate::support::relay::chain::VERIFIER_KEY,
    ] {
        assert!(!all.contains(secret), "{secret} is in {all}");
    }
}

#[test]
fn a_missing_journal_is_an_error() {
    let folder = Folder::new();
    let setup = setup(Node::nowhere(), &folder, &[]);
    for arguments in [&["list"][..], &["export"], &["verify"], &["show", "1"]] {
        let output = setup.run_with("journal", arguments, "");
        assert_eq!(output.status.code(), Some(70), "{arguments:?}: {output:?}");
    }
    assert!(
        !folder.path().join("journal.db").exists(),
        "reading makes no store"
    );
}
