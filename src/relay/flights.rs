//! Identical requests at once: one is carried out, the others get its answer.

use super::outcome::Outcome;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::OnceCell;

/// What identifies a request: the digest of its meaning, or its transaction's hash.
pub(super) type Digest = [u8; 32];

/// Requests under way.
#[derive(Default)]
pub(super) struct Flights(Mutex<HashMap<Digest, Arc<OnceCell<Outcome>>>>);

impl Flights {
    /// Carries `write` out, unless an identical request is under way: then its outcome is that
    /// one's.
    pub(super) async fn join(
        &self,
        digest: Digest,
        write: impl Future<Output = Outcome>,
    ) -> Outcome {
        let cell = Arc::clone(self.lock().entry(digest).or_default());
        let outcome = cell.get_or_init(|| write).await.clone();
        let mut flights = self.lock();
        // whoever comes from now on asks the journal
        if flights.get(&digest).is_some_and(|current| Arc::ptr_eq(current, &cell)) {
            flights.remove(&digest);
        }
        outcome
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<Digest, Arc<OnceCell<Outcome>>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
