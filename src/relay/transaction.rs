//! `POST /rpc`: a transaction that a user signed, judged to its end and handed to the node once.
//!
//! What can be told without the chain was told by the policy. Here the sender's class and key are
//! read, which make a [`TransactionPermit`] of it; then it is journaled and sent. The same
//! transaction again is answered from the journal, by its hash, whatever its signature.

use super::answer::RpcCall;
use super::outcome::{Details, Outcome};
use super::submit::Submission;
use super::{Relay, WriteContext, answer};
use crate::node::chain::Receipt;
use crate::reply::Reply;
use crate::store::clock::now_us;
use crate::store::{Intended, IntentId, NewIntent};
use portcullis_filters::felt::Felt;
use portcullis_filters::policy::{Endpoint, RelayPolicy};
use portcullis_filters::tx::{Account, selector};
use portcullis_filters::verdict::{Reason, TransactionPermit, Unverified};
use std::sync::Arc;
use std::time::Duration;

/// The journal's names of the two kinds.
pub(super) const INVOKE: &str = "invoke";
pub(super) const DEPLOY: &str = "deploy-account";

impl Relay {
    /// Verifies a user's transaction against the chain and submits it.
    pub async fn transact(
        self: &Arc<Self>,
        unverified: Unverified<'_>,
        policy: &RelayPolicy,
        context: WriteContext<'_>,
    ) -> Reply {
        let (id, deployed) = (unverified.id().as_str().into(), unverified.deployed());
        let kind = unverified.kind();
        let WriteContext { request_id, traceparent, upstream } = context;
        let outcome = self.try_transact(unverified, policy, traceparent, upstream).await;
        self.metrics.relay.write(kind, outcome.name());
        self.journal_failure(Endpoint::Rpc.name(), &outcome, request_id).await;
        answer::transaction(&outcome, RpcCall { id, deployed }, request_id)
    }

    async fn try_transact(
        self: &Arc<Self>,
        unverified: Unverified<'_>,
        policy: &RelayPolicy,
        traceparent: Option<&[u8]>,
        upstream: &mut Duration,
    ) -> Outcome {
        let relay = Arc::clone(self);
        let sender = unverified.sender();
        let facts = self.run(async move {
            let epoch = relay.proven(false).await?;
            relay.ready_for(&epoch).await?;
            Ok((epoch, relay.account(sender).await?))
        });
        let (epoch, account) = match facts.await {
            Ok(facts) => facts,
            Err(outcome) => return outcome,
        };
        let permit = match unverified.verify(policy, account) {
            Ok(permit) => permit,
            Err(refusal) => return refusal.into(),
        };
        let what = Approved::new(&permit, epoch, traceparent);
        let relay = Arc::clone(self);
        let (outcome, took) = self
            .run(async move {
                let mut took = Duration::ZERO;
                let digest = what.hash.to_bytes_be();
                let write = relay.submit_once(&what, &mut took);
                (relay.flights.join(digest, write).await, took)
            })
            .await;
        *upstream += took;
        outcome
    }

    /// The class and the key of an invoke's sender.
    async fn account(&self, sender: Option<Felt>) -> Result<Option<Account>, Outcome> {
        let Some(address) = sender else { return Ok(None) };
        let Some(class_hash) = self.chain.class_hash_at(address).await? else {
            let message = "the sender is not deployed";
            return Err(Outcome::refused(Reason::AccountNotDeployed, message));
        };
        // a class that is not ours may say anything of its key
        let public_key = if class_hash == self.pins.account_class {
            let key = self.chain.call(address, selector("get_public_key"), &[]).await?;
            key.first().copied().unwrap_or(Felt::ZERO)
        } else {
            Felt::ZERO
        };
        Ok(Some(Account { class_hash, public_key }))
    }

    async fn submit_once(self: &Arc<Self>, what: &Approved, upstream: &mut Duration) -> Outcome {
        match self.try_submit_once(what, upstream).await {
            Ok(outcome) | Err(outcome) => outcome,
        }
    }

    async fn try_submit_once(
        self: &Arc<Self>,
        what: &Approved,
        upstream: &mut Duration,
    ) -> Result<Outcome, Outcome> {
        self.still(&what.epoch).await?;
        let id = match self.store.intend(&what.intent(), now_us()).await? {
            Intended::New(id) => id,
            Intended::Known(intent) => {
                let message = "an identical transaction has just failed: send it again";
                let failed = || Outcome::refused(Reason::InProgress, message);
                return Ok(self.answer_known(&intent).await?.unwrap_or_else(failed));
            }
            Intended::NonceTaken => {
                let message = "another transaction of the account has this nonce";
                return Err(Outcome::refused(Reason::NonceConflict, message));
            }
        };
        let method = super::method_of(what.operation);
        let submission = Submission { id: &id, method, params: &what.params, hash: what.hash };
        self.submit(&submission, what.traceparent.as_deref(), upstream).await?;
        self.settle_later(id, what.hash);
        Ok(Outcome::written(what.hash, Details::None))
    }

    /// The client has its answer; how the transaction ends is for the journal.
    fn settle_later(self: &Arc<Self>, id: IntentId, hash: Felt) {
        let relay = Arc::clone(self);
        self.runtime.spawn(async move {
            let settled: Result<Option<Receipt>, _> = relay.receipt(&id, hash).await;
            if let Err(error) = settled {
                log::error!("store: {error}");
            }
        });
    }
}

/// A permitted transaction, free of the request it came in.
struct Approved {
    operation: &'static str,
    hash: Felt,
    sender: Felt,
    nonce: u64,
    params: String,
    epoch: String,
    traceparent: Option<Vec<u8>>,
}

impl Approved {
    fn new(permit: &TransactionPermit<'_>, epoch: String, traceparent: Option<&[u8]>) -> Self {
        Self {
            operation: if permit.is_deploy() { DEPLOY } else { INVOKE },
            hash: permit.hash(),
            sender: permit.sender(),
            nonce: permit.nonce(),
            params: permit.params(),
            epoch,
            traceparent: traceparent.map(<[u8]>::to_vec),
        }
    }

    fn intent(&self) -> NewIntent<'_> {
        NewIntent {
            operation: self.operation,
            digest: self.hash.to_bytes_be(),
            subject: None,
            request: "",
            epoch: &self.epoch,
            signer: self.sender,
            nonce: self.nonce,
            transaction_hash: self.hash,
            transaction: &self.params,
            idempotency_key: None,
        }
    }
}
