//! The journal as the stages write it: an intent is durable before it is sent, and so is each step
//! after.

use crate::io::clock::now_us;
use crate::node::chain::Receipt;
use crate::store::{IntentId, IntentState, Store, StoreError};
use portcullis_filters::verdict::Reason;
use std::sync::Arc;
use tokio::sync::Notify;

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
        self.store.intents().advance(id, state, detail, now_us()).await
    }

    /// Records a receipt.
    pub(super) async fn settle(&self, id: IntentId, receipt: &Receipt) -> Result<(), StoreError> {
        let (state, detail) = match &receipt.outcome {
            Ok(()) => (IntentState::Succeeded, None),
            Err(reason) => (IntentState::Reverted, reason.as_deref()),
        };
        self.advance(id, state, detail).await.map(drop)
    }

    /// Records that a request with a valid token was refused.
    pub(super) async fn refused(&self, endpoint: &str, reason: Reason, request_id: &str) {
        let (reason, intents) = (reason.name(), self.store.intents());
        let recorded = intents.record_refusal(endpoint, reason, None, request_id, now_us());
        if let Err(error) = recorded.await {
            error.log();
        }
    }
}
