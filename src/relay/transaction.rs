//! `POST /rpc`: a transaction that a user signed, verified and handed to the node once.
//!
//! The policy has judged what can be judged without the chain. Here the sender's class and key are
//! read, which turn it into a [`TransactionPermit`]; then it is journaled and sent. The same
//! transaction again, found by its hash, gets its outcome from the journal, whatever its signature.

use super::outcome::{Details, Outcome, refuse};
use super::pins::{Prover, Required};
use super::reconcile::{Intending, Reconciler};
use super::rollbacks::Repeated;
use super::signers::{DEADLINE, Signers};
use super::submit::{Submitter, Trace, WritesInFlight};
use crate::store::{Budgets, IntentId, NewIntent};
use portcullis_filters::felt::Felt;
use portcullis_filters::policy::{TransactionPermit, Unverified};
use portcullis_filters::tx::{Account, selector};
use portcullis_filters::verdict::Reason;
use std::sync::Arc;
use tokio::time::Instant;

/// Verifies and submits users' transactions.
pub(super) struct Transactions {
    pub(super) account_class: Felt,
    pub(super) prover: Arc<Prover>,
    pub(super) signers: Arc<Signers>,
    pub(super) reconciler: Arc<Reconciler>,
    pub(super) submitter: Arc<Submitter>,
    pub(super) in_flight: WritesInFlight,
}

impl Transactions {
    /// Returns the chain's epoch, and the class and key of the sender, if it is deployed before.
    pub(super) async fn account(
        &self,
        unverified: &Unverified<'_>,
    ) -> Result<(String, Option<Account>), Outcome> {
        let sender = unverified.sender();
        if sender.or(unverified.deployed()).is_some_and(|address| self.signers.has(address)) {
            let message = "the relay signs with this account: its transactions are operations";
            return refuse(Reason::SenderNotAllowed, message);
        }
        let epoch = self.reconciler.permit(Required::All, Instant::now() + DEADLINE).await?;
        let Some(address) = sender else { return Ok((epoch, None)) };
        let chain = &self.submitter.chain;
        let Some(class_hash) = chain.class_hash_at(address).await? else {
            self.prover.check_epoch(&epoch).await?;
            return refuse(Reason::AccountNotDeployed, "the sender is not deployed");
        };
        // another class may report any key
        let public_key = if class_hash == self.account_class {
            let key = chain.call(address, selector("get_public_key"), &[]).await?;
            key.first().copied().unwrap_or(Felt::ZERO)
        } else {
            Felt::ZERO
        };
        Ok((epoch, Some(Account { class_hash, public_key })))
    }

    /// Submits a transaction once, however often it is requested.
    pub(super) async fn submit(self: Arc<Self>, transaction: Approved) -> Outcome {
        let (digest, writer) = (transaction.hash.to_bytes_be(), Arc::clone(&self));
        let write = async move { writer.write(&transaction).await };
        self.in_flight.join(digest, write).await
    }

    async fn write(&self, transaction: &Approved) -> Result<Outcome, Outcome> {
        let hash = transaction.hash;
        self.prover.check_epoch(&transaction.epoch).await?;
        let intent = transaction.intent(self.prover.head());
        let id = match self.reconciler.intend(&intent).await? {
            Intending::New(id) => {
                self.submitter.submit(id, &intent, &transaction.trace).await?;
                self.submitter.accepted(id, hash).await?;
                id
            }
            Intending::Displaced(earlier) => {
                if self.reconciler.send_again(&earlier).await? == Repeated::Refused {
                    return refuse(Reason::Rejected, "the node refused the transaction");
                }
                earlier.id
            }
            Intending::NonceTaken => {
                let message = "another transaction of the account has this nonce";
                return refuse(Reason::NonceConflict, message);
            }
        };
        self.settle_later(id, hash);
        Ok(Outcome::written(hash, Details::None))
    }

    /// Records the receipt once it is there; the client has its response before.
    fn settle_later(&self, id: IntentId, hash: Felt) {
        let submitter = Arc::clone(&self.submitter);
        tokio::spawn(async move {
            if let Err(error) = submitter.receipt(id, hash).await {
                error.log();
            }
        });
    }
}

/// A permitted transaction, detached from its request.
pub(super) struct Approved {
    operation: &'static str,
    hash: Felt,
    sender: Felt,
    nonce: u64,
    params: String,
    epoch: String,
    trace: Arc<Trace>,
}

impl Approved {
    pub(super) fn new(permit: &TransactionPermit<'_>, epoch: String, trace: &Arc<Trace>) -> Self {
        Self {
            operation: permit.kind(),
            hash: permit.hash(),
            sender: permit.sender(),
            nonce: permit.nonce(),
            params: permit.params(),
            epoch,
            trace: Arc::clone(trace),
        }
    }

    fn intent(&self, born: u64) -> NewIntent<'_> {
        NewIntent {
            operation: self.operation,
            digest: self.hash.to_bytes_be(),
            subject: None,
            identity: None,
            request: "",
            epoch: &self.epoch,
            signer: self.sender,
            nonce: self.nonce,
            transaction_hash: self.hash,
            transaction: &self.params,
            idempotency_key: None,
            born,
            replaces: None,
            max_fee: 0,
            budgets: Budgets::default(),
            cooldown: None,
        }
    }
}
