//! Submits journaled intents to the node and records the result; the journal as the stages write
//! it.
//!
//! `sent` is durable before the first byte leaves, in one commit with the intent. An answer that
//! cannot be trusted leaves the intent `sent`, and so does a crash before the send; `reconcile`
//! settles it later.

use super::evidence::hash_of;
use super::outcome::Outcome;
use super::settings::Settings;
use crate::http::clients::Running;
use crate::io::cold;
use crate::io::shared::{Aborted, Shared};
use crate::node::chain::{CallTrace, Chain, ErrorObject, Receipt, RpcError, code};
use crate::store::{Change, Inclusion, Intent, IntentId, NewIntent, Store, StoreError};
use crate::telemetry::Stage;
use parking_lot::Mutex;
use portcullis_filters::felt::Felt;
use portcullis_filters::policy::method_of;
use portcullis_filters::verdict::Reason;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Intervals between polls for a receipt: a test network has it at once, a public one in seconds.
const FIRST_POLL: Duration = Duration::from_millis(10);
const LAST_POLL: Duration = Duration::from_millis(250);

/// The request that a write belongs to, as the node's client needs it.
pub(crate) struct Trace {
    traceparent: Option<Vec<u8>>,
    upstream_us: AtomicU64,
    /// [`CallTrace::node`], plus one; 0 without an answer.
    node: AtomicUsize,
    /// `None` unless the request is traced.
    stages: Mutex<Option<Vec<Stage>>>,
}

impl Trace {
    /// Adds its stages to `stages`.
    pub(crate) fn new(traceparent: Option<&[u8]>, stages: Option<Vec<Stage>>) -> Self {
        let (traceparent, stages) = (traceparent.map(<[u8]>::to_vec), Mutex::new(stages));
        Self { traceparent, upstream_us: AtomicU64::new(0), node: AtomicUsize::new(0), stages }
    }

    /// The stages so far; later ones are not recorded.
    pub(crate) fn take_stages(&self) -> Option<Vec<Stage>> {
        self.stages.lock().take()
    }

    /// Does the work of a stage, and notes how long it took.
    pub(super) fn stage<T>(
        &self,
        name: &'static str,
        work: impl Future<Output = T> + Send,
    ) -> impl Future<Output = T> + Send {
        let work = cold(work);
        async move {
            let start = Instant::now();
            let done = work.await;
            self.note(Stage { name, is_call: false, time: [start, Instant::now()] });
            done
        }
    }

    fn note(&self, stage: Stage) {
        if let Some(stages) = &mut *self.stages.lock() {
            stages.push(stage);
        }
    }

    /// The time that the node took.
    pub(crate) fn upstream(&self) -> Duration {
        Duration::from_micros(self.upstream_us.load(Ordering::Relaxed))
    }

    /// The place of the node's URL that answered.
    pub(crate) fn node(&self) -> Option<usize> {
        self.node.load(Ordering::Relaxed).checked_sub(1)
    }

    fn add(&self, call: CallTrace) {
        let took = u64::try_from(call.took.as_micros()).unwrap_or(u64::MAX);
        self.upstream_us.fetch_add(took, Ordering::Relaxed);
        self.node.store(call.node.map_or(0, |node| node + 1), Ordering::Relaxed);
    }
}

/// Sends transactions and follows them to their receipts.
pub(super) struct Submitter {
    pub(super) chain: Arc<Chain>,
    pub(super) journal: Journal,
    pub(super) running: Arc<Running<Settings>>,
}

impl Submitter {
    /// Sends the transaction of a durable intent. `Ok` if the node accepted it, which
    /// [`Self::accepted`] journals.
    pub(super) async fn submit(
        &self,
        id: IntentId,
        intent: &NewIntent<'_>,
        trace: &Trace,
    ) -> Result<(), Outcome> {
        let (start, mut call) = (Instant::now(), CallTrace::default());
        let (method, traceparent) = (method_of(intent.operation), trace.traceparent.as_deref());
        let added = self.chain.add(method, intent.transaction, traceparent, &mut call).await;
        trace.note(Stage { name: "send", is_call: true, time: [start, Instant::now()] });
        trace.add(call);
        let hash = intent.transaction_hash;
        match added {
            Ok(added) if added == hash => Ok(()),
            // accepted when it was sent before
            Err(RpcError::Returned(ErrorObject { code: code::DUPLICATE, .. })) => Ok(()),
            Err(RpcError::Returned(error)) if error.is_definite() => {
                self.rejected(id, hash, &format!("code {}", error.code)).await?;
                Err(Outcome::rejected(&error))
            }
            Err(RpcError::Node(error)) if error.is_unsent() => {
                self.rejected(id, hash, &format!("not sent: {}", error.name())).await?;
                Err(RpcError::Node(error).into())
            }
            Ok(_) | Err(_) => Err(self.unknown(id, hash)),
        }
    }

    /// Records that the node accepted a transaction.
    pub(super) async fn accepted(&self, id: IntentId, hash: Felt) -> Result<(), Outcome> {
        let advanced = self.journal.apply(id, &Change::Accepted).await;
        advanced.map(drop).map_err(|error| {
            error.log();
            self.unknown(id, hash)
        })
    }

    /// Leaves an intent to the reconciler.
    fn unknown(&self, id: IntentId, hash: Felt) -> Outcome {
        self.journal.unsettled.notify_one();
        Outcome::unknown(hash).of_intent(id)
    }

    /// Records that a transaction was not sent, or that the node refused it.
    ///
    /// # Errors
    /// It is not recorded, so the reconciler will send it.
    pub(super) async fn rejected(
        &self,
        id: IntentId,
        hash: Felt,
        why: &str,
    ) -> Result<(), Outcome> {
        let advanced = self.journal.apply(id, &Change::Rejected(why)).await;
        advanced.map(drop).map_err(|error| self.unconfirmed(&error, hash))
    }

    /// Leaves what may be stored as sent to the reconciler.
    pub(super) fn unconfirmed(&self, error: &StoreError, hash: Felt) -> Outcome {
        error.log();
        self.journal.unsettled.notify_one();
        Outcome::unconfirmed(hash)
    }

    /// Sends a transaction once more, as it was signed; `false` if the node refused it, which puts
    /// it in doubt: an earlier attempt may have arrived.
    ///
    /// # Errors
    /// The node says that its nonce is used; it is not known whether the node has it; or the store
    /// is unavailable.
    pub(super) async fn repeat(&self, intent: &Intent) -> Result<bool, Outcome> {
        let method = method_of(&intent.operation);
        let mut call = CallTrace::default();
        match self.chain.add(method, &intent.transaction, None, &mut call).await {
            Ok(_) | Err(RpcError::Returned(ErrorObject { code: code::DUPLICATE, .. })) => {
                self.journal.apply(intent.id, &Change::Accepted).await?;
                Ok(true)
            }
            Err(RpcError::Returned(error)) if error.is_definite() => {
                let why = format!("a repeat was refused: code {}", error.code);
                self.journal.apply(intent.id, &Change::Displaced(&why)).await?;
                if error.code == code::INVALID_NONCE {
                    // by it, or by another one, which another signature would not change
                    return Err(Outcome::unsettled());
                }
                Ok(false)
            }
            Err(RpcError::Node(error)) if error.is_unsent() => Err(RpcError::Node(error).into()),
            Err(_) => Err(self.unknown(intent.id, intent.transaction_hash)),
        }
    }

    /// [`Self::repeat`] of an open intent. Returns whether its end is known then.
    pub(super) async fn resend(&self, intent: &Intent) -> Result<bool, Outcome> {
        if self.repeat(intent).await? {
            return Ok(self.receipt(intent.id, intent.transaction_hash).await?.is_some());
        }
        Ok(true)
    }

    /// Waits for the receipt of an accepted transaction and records it; `None` on timeout.
    pub(super) async fn receipt(
        &self,
        id: IntentId,
        hash: Felt,
    ) -> Result<Option<Receipt>, StoreError> {
        let end = Instant::now() + self.running.settings().config.receipt_timeout;
        let mut interval = FIRST_POLL;
        loop {
            // an error is retried: the node may be back in time
            if let Ok(Some(receipt)) = self.chain.receipt(hash).await
                && receipt.accepted
            {
                self.journal.include(id, &receipt).await?;
                return Ok(Some(receipt));
            }
            if Instant::now() + interval >= end {
                self.journal.unsettled.notify_one();
                return Ok(None);
            }
            tokio::time::sleep(interval).await;
            interval = (interval * 2).min(LAST_POLL);
        }
    }

    /// The newest state of an intent that was open; its receipt may be there by now.
    pub(super) async fn refreshed(&self, intent: &Intent) -> Result<Option<Intent>, StoreError> {
        if let Ok(Some(receipt)) = self.chain.receipt(intent.transaction_hash).await
            && receipt.accepted
        {
            self.journal.include(intent.id, &receipt).await?;
        }
        self.journal.store.intents().get(intent.id).await
    }
}

/// The journal of writes.
pub(super) struct Journal {
    pub(super) store: Arc<Store>,
    /// Wakes the reconciler: an intent was left open.
    pub(super) unsettled: Notify,
}

impl Journal {
    /// Changes an intent; `false` if its present state does not allow that.
    pub(super) async fn apply(
        &self,
        id: IntentId,
        change: &Change<'_>,
    ) -> Result<bool, StoreError> {
        self.store.intents().apply(id, change, self.store.now_us()).await
    }

    /// Records that a transaction that was included, or sent before, is in doubt.
    pub(super) async fn displace(&self, intent: &Intent, why: &str) -> Result<(), StoreError> {
        if self.apply(intent.id, &Change::Displaced(why)).await? {
            let hash = intent.transaction_hash;
            log::warn!(
                operation = intent.operation.as_str();
                "intent {} is displaced: {why}: transaction {hash}", intent.id
            );
        }
        Ok(())
    }

    /// Records that another transaction has the nonce of this one for good.
    pub(super) async fn lose(&self, intent: &Intent, why: &str) -> Result<(), StoreError> {
        if self.apply(intent.id, &Change::Lost(why)).await? {
            let hash = intent.transaction_hash;
            log::warn!(
                operation = intent.operation.as_str();
                "intent {} is lost: {why}: transaction {hash}", intent.id
            );
        }
        Ok(())
    }

    /// Records an accepted receipt; `false` if the journal has it.
    pub(super) async fn include(
        &self,
        id: IntentId,
        receipt: &Receipt,
    ) -> Result<bool, StoreError> {
        let outcome = match &receipt.outcome {
            Ok(()) => Ok(()),
            Err(reason) => Err(reason.as_deref()),
        };
        let block =
            receipt.block.map(|(number, hash)| Inclusion { number, fingerprint: hash_of(hash) });
        self.apply(id, &Change::Included { outcome, fee: receipt.fee, block }).await
    }

    /// Records that a request with a valid token was refused.
    pub(super) async fn refused(&self, endpoint: &str, reason: Reason, request_id: &str) {
        let (reason, intents) = (reason.name(), self.store.intents());
        let recorded =
            intents.record_refusal(endpoint, reason, None, request_id, self.store.now_us());
        if let Err(error) = recorded.await {
            error.log();
        }
    }
}

/// The writes in flight, by the digest of an operation or the hash of a transaction.
pub(super) struct WritesInFlight(Shared<[u8; 32], Outcome>);

impl WritesInFlight {
    pub(super) fn new() -> Self {
        Self(Shared::new(0, |_| 0))
    }

    /// Carries `write` out in a task of its own, unless an identical write is in flight. Later
    /// repeats find it in the journal.
    pub(super) async fn join(
        &self,
        digest: [u8; 32],
        write: impl Future<Output = Result<Outcome, Outcome>> + Send + 'static,
    ) -> Outcome {
        let write = async { (Outcome::merge(write.await), Duration::ZERO) };
        self.0.get(digest, write).await.unwrap_or_else(|Aborted| {
            let message = "the write was interrupted: repeat the request, it is not sent twice";
            Outcome::refused(Reason::OutcomeUnknown, message)
        })
    }
}
