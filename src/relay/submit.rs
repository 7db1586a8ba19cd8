//! Submits journaled intents to the node and records the result; the journal as the stages write
//! it.
//!
//! `sent` is durable before the first byte leaves, in one commit with the intent. An answer that
//! cannot be trusted leaves the intent `sent`, and so does a crash before the send; `reconcile`
//! settles it later.

use super::outcome::Outcome;
use super::settings::Settings;
use crate::http::clients::Running;
use crate::io::cold;
use crate::io::shared::{Aborted, Shared};
use crate::node::chain::{CallTrace, Chain, ErrorObject, Receipt, RpcError, code};
use crate::store::{Intent, IntentId, IntentState, NewIntent, Store, StoreError};
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
            Ok(_) | Err(_) => Err(self.unknown(hash)),
        }
    }

    /// Records that the node accepted a transaction.
    pub(super) async fn accepted(&self, id: IntentId, hash: Felt) -> Result<(), Outcome> {
        let advanced = self.journal.advance(id, IntentState::Accepted, None).await;
        advanced.map(drop).map_err(|error| {
            error.log();
            self.unknown(hash)
        })
    }

    /// Leaves an intent to the reconciler.
    fn unknown(&self, hash: Felt) -> Outcome {
        self.journal.unsettled.notify_one();
        Outcome::unknown(hash)
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
        let advanced = self.journal.advance(id, IntentState::Rejected, Some(why)).await;
        advanced.map(drop).map_err(|error| self.unconfirmed(&error, hash))
    }

    /// Leaves what may be stored as sent to the reconciler.
    pub(super) fn unconfirmed(&self, error: &StoreError, hash: Felt) -> Outcome {
        error.log();
        self.journal.unsettled.notify_one();
        Outcome::unconfirmed(hash)
    }

    /// Sends a transaction once more, as it was signed. Returns whether its intent is settled.
    pub(super) async fn resend(&self, intent: &Intent) -> Result<bool, Outcome> {
        let method = method_of(&intent.operation);
        let mut call = CallTrace::default();
        match self.chain.add(method, &intent.transaction, None, &mut call).await {
            Ok(_) | Err(RpcError::Returned(ErrorObject { code: code::DUPLICATE, .. })) => {
                self.journal.advance(intent.id, IntentState::Accepted, None).await?;
                Ok(self.receipt(intent.id, intent.transaction_hash).await?.is_some())
            }
            Err(RpcError::Returned(error)) if error.is_definite() => {
                // unless the first one was included at this very moment
                if self.chain.receipt(intent.transaction_hash).await?.is_some() {
                    return Ok(false);
                }
                if intent.state == IntentState::Accepted {
                    self.journal.roll_back(intent).await?;
                } else {
                    self.rejected(
                        intent.id,
                        intent.transaction_hash,
                        &format!("code {}", error.code),
                    )
                    .await?;
                }
                Ok(true)
            }
            Err(error) => Err(error.into()),
        }
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
                self.journal.settle(id, &receipt).await?;
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

    /// The outcome of a journaled intent, which is not sent again; `None` if it had no effect.
    pub(super) async fn known(&self, intent: &Intent) -> Result<Option<Outcome>, StoreError> {
        if intent.state.is_unresolved()
            && let Ok(Some(receipt)) = self.chain.receipt(intent.transaction_hash).await
            && receipt.accepted
        {
            self.journal.settle(intent.id, &receipt).await?;
            let settled = self.journal.store.intents().get(intent.id).await?;
            return Ok(settled.as_ref().and_then(Outcome::of));
        }
        Ok(Outcome::of(intent))
    }
}

/// The journal of writes.
pub(super) struct Journal {
    pub(super) store: Arc<Store>,
    /// Wakes the reconciler: an intent was left open.
    pub(super) unsettled: Notify,
}

impl Journal {
    /// Moves an intent on; `false` if its present state does not allow that.
    pub(super) async fn advance(
        &self,
        id: IntentId,
        state: IntentState,
        detail: Option<&str>,
    ) -> Result<bool, StoreError> {
        self.store.intents().advance(id, state, detail, self.store.now_us()).await
    }

    /// Records that the chain no longer has a transaction that it had.
    pub(super) async fn roll_back(&self, intent: &Intent) -> Result<(), StoreError> {
        if self.store.intents().lose(intent, "block rolled back", self.store.now_us()).await? {
            let hash = intent.transaction_hash;
            log::warn!(
                operation = intent.operation.as_str();
                "intent {} is lost: the block of transaction {hash} was rolled back", intent.id
            );
        }
        Ok(())
    }

    /// Records a receipt.
    pub(super) async fn settle(&self, id: IntentId, receipt: &Receipt) -> Result<(), StoreError> {
        let (state, detail) = match &receipt.outcome {
            Ok(()) => (IntentState::Succeeded, None),
            Err(reason) => (IntentState::Reverted, reason.as_deref()),
        };
        let (intents, now_us) = (self.store.intents(), self.store.now_us());
        intents.settle(id, state, detail, receipt.fee, now_us).await.map(drop)
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
