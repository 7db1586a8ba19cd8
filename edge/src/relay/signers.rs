//! The accounts that sign: their keys, and the locks that serialize their writes.
//!
//! Writes of one account are serialized: within this process by a queue, and across processes by a
//! session lock of the store.

use super::settings::{Account, Accounts, Keys, Pins};
use portcullis_base::secrets::hardening;
use portcullis_filters::felt::Felt;
use portcullis_filters::secret::SecretKey;
use portcullis_filters::tx::{Invoke, Transaction};
use portcullis_filters::txm::io::{JournalError, LockError, Purpose, SignedText};
use portcullis_filters::txm::lock_share::{LockShare, RETRY};
use portcullis_store::{SessionLock, Store, StoreError};
use region::LockGuard;
use std::sync::Arc;
use tokio::sync::{Mutex, OwnedMutexGuard, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

/// Operations that may wait for one account: at some 20 per second the last one runs in time.
const MAX_WAITING: usize = 1_000;

/// One account that signs.
pub(super) struct Signer {
    pub(super) account: Account,
    key: SecretKey,
    _locked: Option<LockGuard>,
    chain_id: Felt,
    store: Arc<Store>,
    queue: Arc<Mutex<Queue>>,
    /// One permit for each operation that may still wait.
    waiting: Arc<Semaphore>,
}

/// The state that the first operation in an account's queue holds.
struct Queue {
    /// Excludes other processes.
    lock: SessionLock,
    share: LockShare,
    /// The instant from which the share measures time.
    start: Instant,
}

/// The exclusive right to write with an account, until it is released.
pub(super) struct SignerGuard {
    queue: OwnedMutexGuard<Queue>,
    waiting: Arc<Semaphore>,
    /// Whether the lock stays held for the next operation.
    is_passed_on: bool,
}

impl Drop for SignerGuard {
    fn drop(&mut self) {
        if !self.is_passed_on {
            self.queue.lock.abandon();
        }
    }
}

impl SignerGuard {
    /// Checks that the lock is still held: a lost database connection releases it.
    pub(super) async fn check(&mut self) -> Result<(), StoreError> {
        self.queue.lock.check().await
    }

    /// Passes the account to the next operation: of this process, or of another once this one has
    /// had its share.
    pub(super) async fn release(mut self) {
        let now = self.queue.start.elapsed();
        self.is_passed_on = self.queue.share.goes_on(waiting(&self.waiting), now);
        if !self.is_passed_on {
            self.queue.release().await;
        }
    }
}

impl Queue {
    async fn release(&mut self) {
        if let Err(error) = self.lock.release().await {
            // closing the connection released it
            log::warn!("store: {error}");
        }
    }
}

/// The accounts that sign.
pub(super) type Signers = Accounts<Signer>;

/// The accounts of the pins, with their keys.
pub(super) fn new(pins: &Pins, keys: Keys, store: &Arc<Store>) -> Signers {
    let signer = |account: Account, key| Signer {
        account,
        _locked: hardening::lock(&key),
        key,
        chain_id: pins.chain_id,
        store: Arc::clone(store),
        queue: Arc::new(Mutex::new(Queue {
            lock: SessionLock::of_signer(account.address),
            share: LockShare::default(),
            start: Instant::now(),
        })),
        waiting: Arc::new(Semaphore::new(MAX_WAITING)),
    };
    let Accounts {
        owner,
        verifier,
        faucet,
    } = pins.accounts;
    Signers {
        owner: signer(owner, keys.owner),
        verifier: signer(verifier, keys.verifier),
        faucet: faucet
            .zip(keys.faucet)
            .map(|(account, key)| signer(account, key)),
    }
}

impl Signer {
    /// Waits in the account's queue, then for other processes.
    ///
    /// # Errors
    /// The queue is full or `deadline` is over; another process holds the account; the store is
    /// unavailable.
    pub(super) async fn lock(&self, deadline: Instant) -> Result<SignerGuard, LockError> {
        let Ok(waiting) = self.waiting.try_acquire() else {
            return Err(LockError::QueueFull);
        };
        let queue = || Arc::clone(&self.queue).lock_owned();
        let Ok(mut queue) = timeout_at(deadline, queue()).await else {
            drop(waiting);
            // releases a lock that was passed on to this operation, unless another one took it
            if let Ok(mut queue) = timeout(RETRY, queue()).await {
                queue.release().await;
            }
            return Err(LockError::Deadline);
        };
        drop(waiting);
        let was_held = queue.lock.is_held();
        let left = deadline.saturating_duration_since(Instant::now());
        let wait = queue.share.wait(left);
        match queue.lock.acquire(&self.store, wait).await {
            Ok(()) => {
                if !was_held {
                    let now = queue.start.elapsed();
                    queue.share.begin(now);
                }
                queue.share.begin_write();
                let waiting = Arc::clone(&self.waiting);
                Ok(SignerGuard {
                    queue,
                    waiting,
                    is_passed_on: false,
                })
            }
            Err(StoreError::SignerHeld) => {
                queue.share.waited_in_vain();
                Err(LockError::HeldElsewhere)
            }
            Err(error) => {
                self.store.failed(&error);
                Err(LockError::Store(JournalError::Failed))
            }
        }
    }

    /// The number of operations that wait for this account.
    pub(super) fn waiting(&self) -> usize {
        waiting(&self.waiting)
    }

    /// Signs a transaction.
    pub(super) fn sign(&self, invoke: Invoke, purpose: Purpose) -> SignedText {
        let transaction = Transaction::from(invoke);
        let transaction = match purpose {
            Purpose::Estimate => transaction.query(),
            Purpose::Write => transaction,
        };
        let hash = transaction.hash(self.chain_id);
        let transaction = transaction.sign_hash(hash, &self.key);
        hardening::wipe_stack();
        let text = match purpose {
            Purpose::Estimate => transaction.to_json(),
            Purpose::Write => transaction.to_params(),
        };
        SignedText { hash, text }
    }
}

fn waiting(permits: &Semaphore) -> usize {
    MAX_WAITING - permits.available_permits()
}
