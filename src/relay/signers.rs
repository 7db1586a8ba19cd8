//! The accounts that sign: one queue each, the nonce from the node, the fee from an estimate.
//!
//! An account writes one transaction at a time, over all processes that share the store, so that
//! no nonce is used twice and none is left out. Keys stay in here.

use super::operations::Role;
use super::outcome::{Outcome, refuse};
use super::settings::{Account, Accounts, Keys, Pins};
use crate::config::RelayPolicyConfig;
use crate::node::chain::Chain;
use crate::secrets::hardening;
use crate::store::{SignerLock, Store};
use portcullis_filters::felt::Felt;
use portcullis_filters::secret::SecretKey;
use portcullis_filters::tx::{Bounds, Call, Invoke, Transaction};
use portcullis_filters::verdict::{Reason, Refusal};
use region::LockGuard;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard, Semaphore};

/// Operations that may wait for one account: at some 20 per second the last one runs in time.
const MAX_WAITING: usize = 1_000;

/// Lock timeout: longer than any single write of another process.
const LOCK: Duration = Duration::from_secs(20);

/// One account that signs.
pub(super) struct Signer {
    pub(super) account: Account,
    /// Boxed, so that its locked page does not move.
    key: Box<SecretKey>,
    _locked: Option<LockGuard>,
    chain_id: Felt,
    chain: Arc<Chain>,
    store: Arc<Store>,
    queue: Mutex<()>,
    /// One permit for each operation that may still wait.
    waiting: Semaphore,
}

/// The exclusive right to write with an account, until it is released.
pub(super) struct SignerGuard<'a> {
    lock: SignerLock,
    _queue: MutexGuard<'a, ()>,
}

impl SignerGuard<'_> {
    /// Checks that it is still held: a lost database connection releases it.
    pub(super) async fn check(&mut self) -> Result<(), Outcome> {
        Ok(self.lock.check().await?)
    }

    /// Lets the next operation write.
    pub(super) async fn release(self) {
        if let Err(error) = self.lock.release().await {
            // closing the connection released it
            log::warn!("store: {error}");
        }
    }
}

/// A signed transaction.
pub(super) struct Signed {
    pub(super) hash: Felt,
    pub(super) nonce: u64,
    /// The parameters of the method that submits it, in JSON.
    pub(super) params: String,
}

/// The accounts that sign.
pub(super) type Signers = Accounts<Signer>;

impl Signers {
    pub(super) fn new(pins: &Pins, keys: Keys, chain: &Arc<Chain>, store: &Arc<Store>) -> Self {
        let signer = |account, key| {
            let key = Box::new(key);
            Signer {
                account,
                _locked: hardening::lock(&key),
                key,
                chain_id: pins.chain_id,
                chain: Arc::clone(chain),
                store: Arc::clone(store),
                queue: Mutex::new(()),
                waiting: Semaphore::new(MAX_WAITING),
            }
        };
        let Accounts { owner, verifier, faucet } = pins.accounts;
        Self {
            owner: signer(owner, keys.owner),
            verifier: signer(verifier, keys.verifier),
            faucet: faucet.zip(keys.faucet).map(|(account, key)| signer(account, key)),
        }
    }

    pub(super) fn of(&self, role: Role) -> &Signer {
        match role {
            Role::Owner => &self.owner,
            Role::Verifier => &self.verifier,
            Role::Faucet => self.faucet.as_ref().unwrap_or(&self.owner),
        }
    }
}

impl Signer {
    /// Waits in the account's queue, then for other processes.
    pub(super) async fn lock(&self) -> Result<SignerGuard<'_>, Outcome> {
        let Ok(waiting) = self.waiting.try_acquire() else {
            return refuse(Reason::Overloaded, "too many writes are waiting: retry soon");
        };
        let queue = self.queue.lock().await;
        drop(waiting);
        let lock = SignerLock::acquire(&self.store, self.account.address, LOCK).await?;
        Ok(SignerGuard { lock, _queue: queue })
    }

    /// Operations that wait for this account.
    pub(super) fn waiting(&self) -> usize {
        MAX_WAITING - self.waiting.available_permits()
    }

    /// Signs a transaction that makes `calls`: the node's next nonce, bounds from an estimate.
    pub(super) async fn sign(
        &self,
        calls: &[Call],
        policy: &RelayPolicyConfig,
    ) -> Result<Signed, Outcome> {
        let nonce = self.chain.nonce(self.account.address).await?;
        let invoke = |bounds| {
            Transaction::from(Invoke {
                sender: self.account.address,
                calls: calls.to_vec(),
                nonce: Felt::from(nonce),
                bounds,
            })
        };
        // of the query version, whose signature cannot be used to submit it
        let query = invoke(Bounds::ZERO).query().sign(self.chain_id, &self.key);
        let estimate = self.chain.estimate(&query.to_json()).await?;
        let transaction = invoke(bounds(&estimate, policy)?).sign(self.chain_id, &self.key);
        let hash = transaction.hash(self.chain_id);
        Ok(Signed { hash, nonce, params: transaction.to_params() })
    }
}

/// The estimate plus half, as prices and state change; within the caps.
fn bounds(estimate: &Bounds, policy: &RelayPolicyConfig) -> Result<Bounds, Refusal> {
    let margin = |(amount, price): (u64, u128)| {
        (amount.saturating_add(amount / 2), price.saturating_add(price / 2))
    };
    let [l1_gas, l1_data_gas, l2_gas] =
        [estimate.l1_gas, estimate.l1_data_gas, estimate.l2_gas].map(margin);
    let bounds = Bounds { l1_gas, l1_data_gas, l2_gas };
    let max_fee = policy.max_fee.fri();
    if l2_gas.0 > policy.max_l2_gas || bounds.max_fee().is_none_or(|fee| fee > max_fee) {
        let message = "the chain's price of the write is over the configured bound";
        return Err(Refusal::new(Reason::FeeBoundExceeded, message));
    }
    Ok(bounds)
}
