//! The accounts that sign: one queue each, the nonce from the node, the fee from an estimate.
//!
//! An account writes one transaction at a time, over all processes that share the store, so that
//! no nonce is used twice and none is left out. Keys stay in here.

use super::operations::Role;
use super::outcome::Outcome;
use super::settings::{Account, Keys, Pins, Rules};
use crate::node::chain::{Chain, Estimate};
use crate::secrets::hardening;
use crate::store::{SignerLock, Store};
use portcullis_filters::felt::Felt;
use portcullis_filters::secret::SecretKey;
use portcullis_filters::tx::{Bounds, Call, Invoke, Transaction};
use portcullis_filters::verdict::{Reason, Refusal};
use region::LockGuard;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard};

/// Operations that may wait for one account: at some 20 a second the last has its turn in time.
const MAX_WAITING: usize = 1_000;

/// Another process has an account for one write, which ends within the node's deadline.
const LOCK: Duration = Duration::from_secs(20);

/// One account that signs.
pub(super) struct Signer {
    pub(super) account: Account,
    /// Where it stays: its page is locked.
    key: Box<SecretKey>,
    _locked: Option<LockGuard>,
    queue: Mutex<()>,
    waiting: AtomicUsize,
}

/// The account's turn: nobody else writes with it until this is released.
pub(super) struct Turn<'a> {
    lock: SignerLock,
    _queue: MutexGuard<'a, ()>,
}

impl Turn<'_> {
    /// Whether it still is the account's turn: a database that was cut off may have given it on.
    pub(super) async fn check(&mut self) -> Result<(), Outcome> {
        Ok(self.lock.check().await?)
    }

    /// Lets the next one write.
    pub(super) async fn release(self) {
        if let Err(error) = self.lock.release().await {
            // it went with its connection
            log::warn!("store: {error}");
        }
    }
}

/// A transaction, signed.
pub(super) struct Signed {
    pub(super) hash: Felt,
    pub(super) nonce: u64,
    /// The parameters of `starknet_addInvokeTransaction`, in JSON.
    pub(super) params: String,
}

/// The accounts that sign.
pub(super) struct Signers {
    owner: Arc<Signer>,
    verifier: Arc<Signer>,
    faucet: Arc<Signer>,
}

impl Signers {
    pub(super) fn new(pins: &Pins, keys: Keys) -> Self {
        let signer = |account, key| {
            let key = Box::new(key);
            let _locked = hardening::lock(&key);
            let (queue, waiting) = (Mutex::new(()), AtomicUsize::new(0));
            Arc::new(Signer { account, key, _locked, queue, waiting })
        };
        let owner = signer(pins.owner, keys.owner);
        let faucet = pins.faucet.zip(keys.faucet);
        Self {
            faucet: faucet
                .map_or_else(|| Arc::clone(&owner), |(account, key)| signer(account, key)),
            verifier: signer(pins.verifier, keys.verifier),
            owner,
        }
    }

    pub(super) fn of(&self, role: Role) -> &Signer {
        match role {
            Role::Owner => &self.owner,
            Role::Verifier => &self.verifier,
            Role::Faucet => &self.faucet,
        }
    }

    /// Each account once.
    pub(super) fn all(&self) -> impl Iterator<Item = &Signer> {
        let faucet = (!Arc::ptr_eq(&self.faucet, &self.owner)).then_some(&*self.faucet);
        [&*self.owner, &*self.verifier].into_iter().chain(faucet)
    }
}

impl Signer {
    /// Waits for the account's turn.
    pub(super) async fn turn(&self, store: &Store) -> Result<Turn<'_>, Outcome> {
        let waiting = Waiting(&self.waiting);
        if self.waiting.fetch_add(1, Ordering::Relaxed) >= MAX_WAITING {
            let message = "too many writes are waiting: try again soon";
            return Err(Outcome::refused(Reason::Overloaded, message));
        }
        let queue = self.queue.lock().await;
        drop(waiting);
        let lock = store.lock_signer(self.account.address, LOCK).await?;
        Ok(Turn { lock, _queue: queue })
    }

    /// Operations that wait for this account.
    pub(super) fn waiting(&self) -> usize {
        self.waiting.load(Ordering::Relaxed)
    }

    /// Makes the transaction that does `calls`: the node's next nonce, bounds from an estimate.
    pub(super) async fn sign(
        &self,
        calls: &[Call],
        chain: &Chain,
        chain_id: Felt,
        rules: &Rules,
    ) -> Result<Signed, Outcome> {
        let nonce = chain.nonce(self.account.address).await?;
        let invoke = |bounds| {
            Transaction::from(Invoke {
                sender: self.account.address,
                calls: calls.to_vec(),
                nonce: Felt::from(nonce),
                bounds,
            })
        };
        // of the query version: its signature can not be used to submit it
        let query = invoke(Bounds::ZERO).query().sign(chain_id, &self.key);
        let estimate = chain.estimate(&query.to_json()).await?;
        let transaction = invoke(bounds(&estimate, rules)?).sign(chain_id, &self.key);
        let hash = transaction.hash(chain_id);
        Ok(Signed { hash, nonce, params: transaction.to_params() })
    }
}

/// What is waiting, until it is dropped.
struct Waiting<'a>(&'a AtomicUsize);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The estimate and half of it again, as prices and states move; under the caps.
fn bounds(estimate: &Estimate, rules: &Rules) -> Result<Bounds, Refusal> {
    let margin = |(amount, price): (u64, u128)| {
        (amount.saturating_add(amount / 2), price.saturating_add(price / 2))
    };
    let [l1_gas, l1_data_gas, l2_gas] =
        [estimate.l1_gas, estimate.l1_data_gas, estimate.l2_gas].map(margin);
    let bounds = Bounds { l1_gas, l1_data_gas, l2_gas };
    if l2_gas.0 > rules.max_l2_gas || bounds.max_fee().is_none_or(|fee| fee > rules.max_fee) {
        let message = "the chain's price of the write is over the configured bound";
        return Err(Refusal::new(Reason::FeeBoundExceeded, message));
    }
    Ok(bounds)
}
