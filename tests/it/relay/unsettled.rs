//! Responses to a client while a write is blocked by an earlier one that is in no block yet, or by
//! a journal that cannot be written, and what the operator sees.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use portcullis_filters::felt::Felt;
use sqlx::Connection as _;

use crate::admin::eventually;
use crate::support::node::{Act, Call};
use crate::support::relay::chain::{
    USER_KEY, error, honest, is_add, is_view, method, receipt, result, took,
};
use crate::support::relay::expect::{common, refused, submitted};
use crate::support::relay::stage::Stage;
use crate::support::relay::user::User;

const MINT: &str = r#"{"recipient":"0x9","card_id":"7"}"#;
const OTHER: &str = r#"{"recipient":"0x9","card_id":"8"}"#;
const OLDEST: &str = "portcullis_relay_oldest_open_intent_timestamp_seconds";

/// A chain that already has every transaction, but includes no transaction in a block.
fn standing(call: &Call) -> Vec<Act> {
    match method(call).as_str() {
        _ if is_add(call) => error(call, 59),
        "starknet_getTransactionReceipt" => {
            let status = r#"{"finality_status":"PRE_CONFIRMED","execution_status":"SUCCEEDED"}"#;
            result(call, status)
        }
        "starknet_call" if is_view(call, "is_verified") => result(call, "[\"0x1\"]"),
        _ => honest(call),
    }
}

#[test]
fn an_unsettled_write_blocks_its_account() {
    let keys = [
        ("relay.pins_max_age", "\"1m\""),
        ("relay.receipt_timeout", "\"1s\""),
    ];
    let stage = Stage::with_script(standing, &keys);
    let first = stage.post("/mint-card", MINT);
    common(&first, "the first");
    assert_eq!(
        first.status,
        202,
        "its receipt is still to come: {}",
        first.text()
    );
    assert_eq!(first.json()["pending"], true);
    refused(
        &stage.post("/mint-card", OTHER),
        "in_progress",
        "another one of the same account",
    );
    let again = stage.post("/mint-card", MINT);
    assert_eq!(
        again.json()["transaction_hash"],
        first.json()["transaction_hash"],
        "it is known"
    );
    assert_eq!(stage.adds().len(), 1, "the node gets the first only");
}

#[test]
fn nothing_is_sent_without_a_journal_entry() {
    let stage = Stage::with_script(standing, &[("relay.pins_max_age", "\"1m\"")]);
    assert_eq!(stage.ready().status, 200, "the pins are proven before");
    let url = format!("sqlite:{}", stage.folder.file("journal.db"));
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let mut holder = runtime.block_on(async {
        let mut store = sqlx::SqliteConnection::connect(&url).await.unwrap();
        sqlx::raw_sql("BEGIN IMMEDIATE")
            .execute(&mut store)
            .await
            .unwrap();
        store
    });
    refused(
        &stage.post("/mint-card", MINT),
        "store_unavailable",
        "somebody holds the database",
    );
    assert_eq!(stage.adds().len(), 0, "nothing was sent");
    runtime.block_on(async {
        sqlx::raw_sql("ROLLBACK")
            .execute(&mut holder)
            .await
            .unwrap();
        holder.close().await.unwrap();
    });
    let answer = stage.post("/mint-card", MINT);
    assert_eq!(answer.status, 202, "it is free again: {}", answer.text());
}

#[test]
fn open_writes_show_their_age() {
    let landed = Arc::new(AtomicBool::new(false));
    let has_landed = Arc::clone(&landed);
    let fine = Arc::new(Mutex::new(Felt::ZERO));
    let hash = Arc::clone(&fine);
    let stage = Stage::with_script(
        move |call| match method(call).as_str() {
            "starknet_addInvokeTransaction" => took(call, *hash.lock().unwrap()),
            "starknet_getTransactionReceipt" if has_landed.load(Ordering::Relaxed) => receipt(call),
            _ => honest(call),
        },
        &[],
    );
    let shown = |now: &BTreeMap<String, f64>, state: &str| {
        now.get(&format!(
            "portcullis_relay_journal_intents{{state=\"{state}\"}}"
        ))
        .copied()
    };
    eventually(&stage.edge, "nothing is open", |now| {
        let looked_after = now
            .get("portcullis_relay_reconciled_timestamp_seconds")
            .copied();
        looked_after > Some(0.0) && now.get(OLDEST) == Some(&0.0)
    });
    let before = SystemTime::UNIX_EPOCH.elapsed().unwrap().as_secs_f64();
    let transaction = stage.fine(&User::with_key(USER_KEY), 0);
    *fine.lock().unwrap() = transaction.hash;
    submitted(
        &stage.post("/rpc", transaction.body()),
        transaction.hash,
        "the node has it",
    );
    eventually(&stage.edge, "it is open, and how long", |now| {
        shown(now, "accepted") == Some(1.0) && now.get(OLDEST).is_some_and(|at| *at >= before)
    });
    landed.store(true, Ordering::Relaxed);
    eventually(&stage.edge, "it has ended, and nothing is open", |now| {
        [shown(now, "succeeded"), shown(now, "accepted")] == [Some(1.0), Some(0.0)]
            && now.get(OLDEST) == Some(&0.0)
    });
}
