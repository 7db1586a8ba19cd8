//! Waits for a URL whose answers are older than what clients have seen, and determines whether the
//! URL is behind or the chain went back.
//!
//! Several URLs are polled by `poller`. A single one is polled from here, and only while its
//! answers are in doubt: three polls without the block that was shown are a rollback,
//! each over a connection of its own, since a balancer may tie a connection to one node. A
//! transaction that is missing three times from the block of its receipt was rolled back, whatever
//! the heads are.

use super::answer::RESULT;
use super::chain::{is_accepted, write_request};
use super::client::Unanswered;
use super::{Call, ConnectionChoice, NodeClient, Route};
use portcullis_base::io::MemoryPermit;
use portcullis_filters::chain::{Change, ConnectionId, Observation, PollResult};
use portcullis_filters::felt::Felt;
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, sleep, timeout_at};

/// Timeout of a poll, even if the call itself would wait for less.
const POLL: Duration = Duration::from_secs(1);
/// The longest wait; each is twice as long as the one before.
const LAST_WAIT: Duration = Duration::from_millis(500);

impl NodeClient {
    /// Waits after a `failed` attempt until another one may succeed: the URL may have caught up, or
    /// the chain is known to have gone back. Returns false if no attempt makes sense before
    /// `until`.
    pub(super) async fn catch_up(
        &self,
        route: Route,
        failed: &Unanswered,
        wait: &mut Duration,
        until: Instant,
    ) -> bool {
        if let Route::Transaction(hash) = route
            && self.is_gone(hash).await
        {
            return true;
        }
        if !failed.is_behind {
            return self.node.may_change(until).await;
        }
        if !self.node.has_several()
            && self.node.update(|state, now| state.group.begin_doubt(now))
            && self.poll_head().await
        {
            return true;
        }
        let now = Instant::now();
        if now >= until {
            return false;
        }
        sleep((*wait).min(until - now)).await;
        *wait = (*wait * 2).min(LAST_WAIT);
        true
    }

    /// Polls the head of the only URL. Returns whether the chain went back.
    async fn poll_head(&self) -> bool {
        let head = self
            .ask_raw(Route::HeadNumber, "starknet_blockNumber", "[]")
            .await;
        let result = head
            .and_then(|(head, connection)| Some(PollResult::of_head(head.as_u64()?, connection)));
        self.node.end_round(&[result])
    }

    /// Checks the block that the transaction's receipt named. Returns whether the transaction is
    /// known to be gone from it.
    async fn is_gone(&self, hash: Felt) -> bool {
        let Some(number) = self.node.read(|state| state.group.block_of(hash)) else {
            return false;
        };
        let (route, method) = (
            Route::BlockOfPrimary(number),
            "starknet_getBlockWithTxHashes",
        );
        let params = format!(r#"{{"block_id":{{"block_number":{number}}}}}"#);
        let Some((block, connection)) = self.ask_raw(route, method, &params).await else {
            return false;
        };
        if !lacks(&block, hash) {
            return false;
        }
        let missing = Observation::Missing(number, hash, connection);
        matches!(self.node.observe(missing), Change::Displaced(_))
    }

    /// The result of one attempt, even if it is older than what clients have seen, and the
    /// connection that it arrived over; `None` without one.
    async fn ask_raw(
        &self,
        route: Route,
        method: &str,
        params: &str,
    ) -> Option<(Value, ConnectionId)> {
        let write = |id: u64, out: &mut Vec<u8>| write_request(id, method, params, out);
        let deadline = Instant::now() + POLL;
        // each poll opens a connection: it is evidence of its own, also behind a balancer
        let call = Call::new(write, deadline).by(route);
        let call = call.over(ConnectionChoice::New).polling();
        let mut permit = MemoryPermit::of(&self.memory);
        let (payload, connection) = match route {
            Route::HeadNumber => {
                let target = self.targets.first()?;
                let attempt = target.attempt(&call, &mut permit);
                let answered = timeout_at(deadline, attempt).await.ok()??.ok()?;
                let connection = answered.connection();
                (answered.payload, connection)
            }
            _ => {
                let attempt = Box::pin(self.attempt(&call, &mut permit)).await;
                let (payload, origin) = attempt.ok()?;
                (payload, origin.connection)
            }
        };
        if payload.0 != RESULT {
            return None;
        }
        Some((serde_json::from_slice(&payload.1).ok()?, connection))
    }
}

/// Whether `block` is an accepted block without this transaction.
fn lacks(block: &Value, hash: Felt) -> bool {
    let is_accepted = block["status"].as_str().is_some_and(is_accepted);
    let hashes = block["transactions"].as_array();
    let is_hash = |listed: &Value| listed.as_str().and_then(Felt::parse) == Some(hash);
    is_accepted && hashes.is_some_and(|hashes| !hashes.iter().any(is_hash))
}
