//! What a client is told while something is in the way: an earlier write that is in no block yet,
//! a journal that can not be written.

use sqlx::Connection as _;

use super::chain::{error, honest, is_add, is_view, method, result};
use super::expect::{common, refused};
use super::stage::Stage;
use crate::node::{Act, Call};

const MINT: &str = r#"{"recipient":"0x9","card_id":"7"}"#;
const OTHER: &str = r#"{"recipient":"0x9","card_id":"8"}"#;

/// A chain that has taken everything before, and puts nothing into a block.
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
fn an_account_writes_nothing_more_while_its_last_write_is_not_settled() {
    let keys = [("relay.pins_max_age", "\"1m\""), ("relay.receipt_timeout", "\"1s\"")];
    let stage = Stage::with_script(standing, &keys);
    let first = stage.post("/mint-card", MINT);
    common(&first, "the first");
    assert_eq!(first.status, 202, "its receipt is still to come: {}", first.text());
    assert_eq!(first.json()["pending"], true);
    refused(&stage.post("/mint-card", OTHER), "in_progress", "another one of the same account");
    let again = stage.post("/mint-card", MINT);
    assert_eq!(again.json()["transaction_hash"], first.json()["transaction_hash"], "it is known");
    assert_eq!(stage.adds().len(), 1, "the node gets the first only");
}

#[test]
fn nothing_is_sent_that_the_journal_can_not_keep() {
    let stage = Stage::with_script(standing, &[("relay.pins_max_age", "\"1m\"")]);
    assert_eq!(stage.ready().status, 200, "the pins are proven before");
    let url = format!("sqlite:{}", stage.folder.file("journal.db"));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let mut holder = runtime.block_on(async {
        let mut store = sqlx::SqliteConnection::connect(&url).await.unwrap();
        sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut store).await.unwrap();
        store
    });
    refused(&stage.post("/mint-card", MINT), "store_unavailable", "somebody holds the database");
    assert_eq!(stage.adds().len(), 0, "nothing was sent");
    runtime.block_on(async {
        sqlx::raw_sql("ROLLBACK").execute(&mut holder).await.unwrap();
        holder.close().await.unwrap();
    });
    let answer = stage.post("/mint-card", MINT);
    assert_eq!(answer.status, 202, "it is free again: {}", answer.text());
}
