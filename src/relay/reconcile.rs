//! After a crash, and whenever an answer was lost: what became of the transactions whose end the
//! journal does not know.
//!
//! Done before anything is written, and again in the background. The chain decides: a receipt ends
//! the matter; an intent that was never sent is lost; one that was sent, and whose nonce is still
//! free, is handed to the node once more as the same transaction, which can only happen once; one
//! whose nonce another transaction took can not happen any more. An intent of a chain that started
//! again from nothing is lost with it.

use super::Relay;
use super::outcome::Outcome;
use super::signers::Signer;
use crate::node::chain::{ErrorObject, RpcError, code};
use crate::store::clock::now_us;
use crate::store::{Intent, State};
use std::sync::Arc;
use std::time::Duration;

/// How often unfinished business is looked at when nobody asks for it.
const LOOK: Duration = Duration::from_secs(2);
/// An answer that was lost may still be on its way: nothing is sent again before this.
const SETTLED: Duration = Duration::from_secs(10);

impl Relay {
    /// Finishes what earlier processes left, once for each life of the chain.
    ///
    /// # Errors
    /// The chain or the store can not be asked: nothing may be written.
    pub(super) async fn ready_for(&self, epoch: &str) -> Result<(), Outcome> {
        let mut reconciled = self.reconciled.lock().await;
        if reconciled.as_deref() == Some(epoch) {
            return Ok(());
        }
        for intent in self.store.unresolved_of_other_epochs(epoch).await? {
            let detail = Some("the chain started again");
            self.store.advance(intent.id, State::Lost, detail, now_us()).await?;
        }
        for signer in self.signers.all() {
            let turn = signer.turn(&self.store).await?;
            let left = self.finish_own(epoch, signer, Duration::ZERO).await;
            turn.release().await;
            left?;
        }
        // another process that lives may be at work on users' transactions: those take no turns
        let settled = if self.store.is_exclusive() { Duration::ZERO } else { SETTLED };
        self.finish_users(epoch, settled).await?;
        *reconciled = Some(epoch.to_owned());
        Ok(())
    }

    /// Looks at what is unfinished of one of our accounts. Whoever asks has its turn.
    ///
    /// # Errors
    /// Something is still open: nothing may be signed with the account's next nonce.
    pub(super) async fn finish_own(
        &self,
        epoch: &str,
        signer: &Signer,
        settled: Duration,
    ) -> Result<(), Outcome> {
        for intent in self.store.unresolved(epoch, Some(signer.account.address)).await? {
            let has_ended = self.finish(&intent, settled).await?;
            if !has_ended && self.next_nonce(&intent).await? <= intent.nonce {
                return Err(Outcome::unsettled());
            }
        }
        Ok(())
    }

    /// Looks at what is unfinished of users. Gives when the oldest of all that stays open, ours
    /// too, was intended: microseconds since 1970.
    async fn finish_users(&self, epoch: &str, settled: Duration) -> Result<Option<i64>, Outcome> {
        let ours: Vec<_> = self.signers.all().map(|signer| signer.account.address).collect();
        let mut oldest = None;
        for intent in self.store.unresolved(epoch, None).await? {
            let is_open = ours.contains(&intent.signer) || !self.finish(&intent, settled).await?;
            if is_open && oldest.is_none() {
                oldest = Some(intent.created_us);
            }
        }
        Ok(oldest)
    }

    /// Finds out what became of one intent; whether its end is in the journal now.
    async fn finish(&self, intent: &Intent, settled: Duration) -> Result<bool, Outcome> {
        let age = Duration::from_micros(now_us().abs_diff(intent.updated_us));
        if intent.state == State::Intended {
            let is_due = age >= settled;
            return Ok(is_due && self.store.lose_unsent(intent.id, "never sent", now_us()).await?);
        }
        match self.chain.receipt(intent.transaction_hash).await? {
            Some(receipt) if receipt.accepted => {
                self.settle(&intent.id, &receipt).await?;
                return Ok(true);
            }
            Some(_) => return Ok(false),
            None if age < settled => return Ok(false),
            None => {}
        }
        if self.next_nonce(intent).await? > intent.nonce {
            // looked at once more: it may have been taken between the two questions
            if self.chain.receipt(intent.transaction_hash).await?.is_some() {
                return Ok(false);
            }
            let why = Some("another transaction took its nonce");
            self.store.advance(intent.id, State::Lost, why, now_us()).await?;
            return Ok(true);
        }
        self.send_again(intent).await
    }

    async fn next_nonce(&self, intent: &Intent) -> Result<u64, Outcome> {
        match self.chain.nonce(intent.signer).await {
            // an account that is still to be deployed
            Err(RpcError::Returned(ErrorObject { code: code::CONTRACT_NOT_FOUND, .. })) => Ok(0),
            other => Ok(other?),
        }
    }

    async fn send_again(&self, intent: &Intent) -> Result<bool, Outcome> {
        self.still(&intent.epoch).await?;
        let method = super::method_of(&intent.operation);
        let mut took = Duration::ZERO;
        match self.chain.add(method, &intent.transaction, None, &mut took).await {
            Ok(_) | Err(RpcError::Returned(ErrorObject { code: code::DUPLICATE, .. })) => {
                self.store.advance(intent.id, State::Accepted, None, now_us()).await?;
                let receipt = self.receipt(&intent.id, intent.transaction_hash).await?;
                Ok(receipt.is_some())
            }
            Err(RpcError::Returned(error)) if error.is_definite() => {
                // unless the first one came through at this very moment
                if self.chain.receipt(intent.transaction_hash).await?.is_some() {
                    return Ok(false);
                }
                self.reject(intent.id, &format!("code {}", error.code)).await?;
                Ok(true)
            }
            Err(trouble) => Err(trouble.into()),
        }
    }

    /// Looks after unfinished business until the process ends.
    pub(super) async fn look_after(self: Arc<Self>) {
        loop {
            let _woken = tokio::time::timeout(LOOK, self.wake.notified()).await;
            let proof = self.prover.prove(&self.chain).await;
            let Some(epoch) = proof.epoch.as_deref().filter(|_| proof.is_ready_for_v2()) else {
                continue;
            };
            if self.ready_for(epoch).await.is_err() {
                continue;
            }
            for signer in self.signers.all() {
                // nobody waits for this: a signer that is busy settles its own
                if let Ok(turn) = signer.turn(&self.store).await {
                    let _open = self.finish_own(epoch, signer, SETTLED).await;
                    turn.release().await;
                }
            }
            if let Ok(oldest) = self.finish_users(epoch, SETTLED).await {
                self.metrics.relay.looked_after(now_us(), oldest);
            }
            if let Ok(counts) = self.store.counts_by_state().await {
                for state in State::ALL {
                    let found = counts.iter().find(|(found, _)| *found == state);
                    self.metrics.relay.journal(state, found.map_or(0, |(_, intents)| *intents));
                }
            }
        }
    }
}
