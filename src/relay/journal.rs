//! The journal as the stages write it: an intent is durable before it is sent, and so is each step
//! after.

use crate::node::chain::Receipt;
use crate::store::clock::now_us;
use crate::store::{IntentId, State, Store, StoreError};
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
        state: State,
        detail: Option<&str>,
    ) -> Result<bool, StoreError> {
        self.store.advance(id, state, detail, now_us()).await
    }

    /// Records a receipt.
    pub(super) async fn settle(&self, id: IntentId, receipt: &Receipt) -> Result<(), StoreError> {
        let (state, detail) = match &receipt.outcome {
            Ok(()) => (State::Succeeded, None),
            Err(reason) => (State::Reverted, reason.as_deref()),
        };
        self.advance(id, state, detail).await.map(drop)
    }

    /// Records that a request with a valid token was refused.
    pub(super) async fn refused(&self, endpoint: &str, reason: Reason, request_id: &str) {
        let refused = self.store.refused(endpoint, reason.name(), None, request_id, now_us());
        if let Err(error) = refused.await {
            log::error!("store: {error}");
        }
    }
}
