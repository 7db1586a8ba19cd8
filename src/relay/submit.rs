//! A journaled intent to the node, and what came of it into the journal.
//!
//! `sent` is durable before the first byte leaves, so that an intent that is only `intended` never
//! left. An answer that can not be trusted leaves it `sent`: the chain tells later, in `reconcile`.

use super::Relay;
use super::outcome::Outcome;
use crate::node::chain::{ErrorObject, Receipt, RpcError, code};
use crate::store::clock::now_us;
use crate::store::{Intent, IntentId, State, StoreError};
use portcullis_filters::felt::Felt;
use portcullis_filters::verdict::Reason;
use std::time::Duration;
use tokio::time::Instant;

/// How often a receipt is asked for: a test network has it at once, a public one within seconds.
const FIRST_LOOK: Duration = Duration::from_millis(10);
const LAST_LOOK: Duration = Duration::from_millis(250);

/// What is submitted.
pub(super) struct Submission<'a> {
    pub(super) id: &'a IntentId,
    pub(super) method: &'a str,
    pub(super) params: &'a str,
    pub(super) hash: Felt,
}

impl Relay {
    /// Sends a transaction whose intent is durable. `Ok` when the node took it.
    pub(super) async fn submit(
        &self,
        what: &Submission<'_>,
        traceparent: Option<&[u8]>,
        upstream: &mut Duration,
    ) -> Result<(), Outcome> {
        if !self.store.advance(*what.id, State::Sent, None, now_us()).await? {
            let message = "another process took this write for lost: it was not sent, try again";
            return Err(Outcome::refused(Reason::InProgress, message));
        }
        let mut took = Duration::ZERO;
        let added = self.chain.add(what.method, what.params, traceparent, &mut took).await;
        *upstream += took;
        match added {
            Ok(hash) if hash == what.hash => self.taken(what).await,
            // the node has it from an earlier time
            Err(RpcError::Returned(ErrorObject { code: code::DUPLICATE, .. })) => {
                self.taken(what).await
            }
            Err(RpcError::Returned(error)) if error.is_definite() => {
                self.reject(*what.id, &format!("code {}", error.code)).await?;
                Err(Outcome::rejected(&error))
            }
            Err(RpcError::Node(fault)) if fault.is_unsent() => {
                // as good as refused: not a byte of it left
                self.reject(*what.id, &format!("not sent: {}", fault.name())).await?;
                Err(RpcError::Node(fault).into())
            }
            Ok(_) | Err(_) => {
                self.wake.notify_one();
                Err(Outcome::unknown(what.hash))
            }
        }
    }

    /// Journals that the node has none of it.
    pub(super) async fn reject(&self, id: IntentId, why: &str) -> Result<(), StoreError> {
        self.store.advance(id, State::Rejected, Some(why), now_us()).await.map(drop)
    }

    async fn taken(&self, what: &Submission<'_>) -> Result<(), Outcome> {
        match self.store.advance(*what.id, State::Accepted, None, now_us()).await {
            Ok(_) => Ok(()),
            Err(error) => {
                // the chain has it and the journal does not know: it will be found out
                log::error!("store: {error}");
                self.wake.notify_one();
                Err(Outcome::unknown(what.hash))
            }
        }
    }

    /// Waits for the receipt of a transaction that the node took, and journals it.
    pub(super) async fn receipt(
        &self,
        id: &IntentId,
        hash: Felt,
    ) -> Result<Option<Receipt>, StoreError> {
        let end = Instant::now() + self.settings().rules.receipt_timeout;
        let mut look = FIRST_LOOK;
        loop {
            match self.chain.receipt(hash).await {
                Ok(Some(receipt)) if receipt.accepted => {
                    self.settle(id, &receipt).await?;
                    return Ok(Some(receipt));
                }
                // not there yet, or the node is away for a moment
                Ok(_) | Err(_) => {}
            }
            if Instant::now() + look >= end {
                self.wake.notify_one();
                return Ok(None);
            }
            tokio::time::sleep(look).await;
            look = (look * 2).min(LAST_LOOK);
        }
    }

    /// Journals what a receipt says.
    pub(super) async fn settle(&self, id: &IntentId, receipt: &Receipt) -> Result<(), StoreError> {
        let (state, detail) = match &receipt.outcome {
            Ok(()) => (State::Succeeded, None),
            Err(reason) => (State::Reverted, reason.as_deref()),
        };
        self.store.advance(*id, state, detail, now_us()).await.map(drop)
    }

    /// What a known intent comes to: a repeat is answered from the journal, and never sent again.
    /// `None` when nothing came of it.
    pub(super) async fn answer_known(
        &self,
        intent: &Intent,
    ) -> Result<Option<Outcome>, StoreError> {
        if !intent.state.is_unresolved() {
            return Ok(Outcome::of(intent));
        }
        match self.chain.receipt(intent.transaction_hash).await {
            Ok(Some(receipt)) if receipt.accepted => {
                self.settle(&intent.id, &receipt).await?;
                Ok(self.store.intent(intent.id).await?.as_ref().and_then(Outcome::of))
            }
            _ => Ok(Outcome::of(intent)),
        }
    }
}
