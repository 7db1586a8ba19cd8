//! Resolves open intents in the background, and reports the state of the journal. One of the
//! processes that share a store does it; when that ends, cannot write, or is suspended, another one
//! continues.

use super::driver::Driver;
use async_trait::async_trait;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use portcullis_base::io::cold;
use portcullis_base::telemetry::UNPLACED;
use portcullis_filters::txm::settings::Required;
use portcullis_filters::txm::{reconcile, round};
use portcullis_store::{Chore, ChoreLock, IntentState};
use std::panic;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Handle;
use tokio::task::JoinSet;

/// Time between two runs while no open intent is signalled.
const INTERVAL: Duration = Duration::from_secs(2);

/// The task that resolves open intents.
pub struct Reconciliation {
    pub(super) driver: Arc<Driver>,
    /// The threads that work on the store, as for requests.
    pub(super) runtime: Handle,
}

#[async_trait]
impl BackgroundService for Reconciliation {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        // dropping the set ends the task
        let mut running = JoinSet::new();
        running.spawn_on(run(Arc::clone(&self.driver)), &self.runtime);
        tokio::select! {
            _ = shutdown.changed() => {}
            Some(Err(error)) = running.join_next() => if let Ok(panic) = error.try_into_panic() {
                panic::resume_unwind(panic);
            },
        }
    }
}

/// Resolves open intents until the process ends.
async fn run(driver: Arc<Driver>) {
    let store = &driver.store;
    let mut chore = ChoreLock::of(Chore::Reconciliation);
    loop {
        let _elapsed = tokio::time::timeout(INTERVAL, driver.left_open.notified()).await;
        // an error is ignored: the statements below report it
        let _read = store.read_clock().await;
        let permitted = reconcile::permit(&*driver, Required::AllButV2).await;
        let is_ours = match &permitted {
            Ok(_) => cold(chore.try_acquire(store)).await.unwrap_or(false),
            Err(_) => {
                // a connection that fails here has lost the lock as well
                let _released = chore.release().await;
                false
            }
        };
        driver.metrics.relay.reconciles.set(i64::from(is_ours));
        let _dated = store.date_anew(store.now_us()).await;
        let Ok(epoch) = permitted else { continue };
        report_budgets(&driver, &epoch).await;
        // an error is ignored here, too: requests read the chain themselves
        if !is_ours || cold(round::pass_all(&driver, &epoch)).await.is_ok() {
            report_open(&driver, &epoch).await;
        }
        report_counts(&driver).await;
    }
}

async fn report_open(driver: &Driver, epoch: &str) {
    if let Ok(open) = driver.store.intents().unresolved(epoch, None).await {
        let oldest = open.first().map(|intent| intent.created_us);
        driver
            .metrics
            .relay
            .reconciled(driver.store.now_us(), oldest);
    }
}

async fn report_budgets(driver: &Driver, epoch: &str) {
    let (budgets, now_us) = (driver.running.settings().budgets(), driver.store.now_us());
    let used = driver
        .store
        .intents()
        .budgets_used(&budgets, epoch, now_us)
        .await;
    for (budget, used) in used.into_iter().flatten() {
        driver.metrics.relay.budget_used(budget.name(), used);
    }
}

async fn report_counts(driver: &Driver) {
    let intents = driver.store.intents();
    let (Ok(counts), Ok(unplaced)) = (
        intents.counts_by_state().await,
        intents.unplaced_by_state().await,
    ) else {
        return;
    };
    let mut never_in_a_block = 0;
    for state in IntentState::ALL {
        let unplaced = count_of(&unplaced, state);
        never_in_a_block += unplaced;
        let placed = count_of(&counts, state) - unplaced;
        driver.metrics.relay.journal(state.name(), placed);
    }
    driver.metrics.relay.journal(UNPLACED, never_in_a_block);
}

fn count_of(counts: &[(IntentState, i64)], state: IntentState) -> i64 {
    let found = counts.iter().find(|(found, _)| *found == state);
    found.map_or(0, |(_, intents)| *intents)
}
