//! The accounts that sign: one queue each, the nonce from the node, the fee from an estimate.
//!
//! An account writes one transaction at a time, over all processes that share the store, so that
//! no nonce is used twice and none is left out. While operations wait here, a process keeps the
//! account for a few writes, then hands it over to the next process that waits. Keys stay in here.

use super::operations::Role;
use super::outcome::{Outcome, refuse};
use super::settings::{Account, Accounts, Keys, Pins};
use crate::config::RelayPolicyConfig;
use crate::node::chain::{Chain, RpcError};
use crate::secrets::hardening;
use crate::store::{SessionLock, Store, StoreError};
use portcullis_filters::felt::Felt;
use portcullis_filters::secret::SecretKey;
use portcullis_filters::tx::{Bounds, Call, Invoke, Transaction};
use portcullis_filters::verdict::{Reason, Refusal};
use region::LockGuard;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Mutex, MutexGuard, Semaphore};
use tokio::time::{Instant, timeout, timeout_at};

/// Until a write is journaled: all waiting, reading and signing. What is sent afterwards has the
/// node's timeout, and its receipt another one.
pub(super) const DEADLINE: Duration = Duration::from_secs(60);

/// Operations that may wait for one account: at some 20 per second the last one runs in time.
const MAX_WAITING: usize = 1_000;

/// How long to wait for another process: longer than its writes take.
const LOCK: Duration = Duration::from_secs(10);
/// The same once that was in vain: a process that is suspended holds up one write, not each. Long
/// enough for most bursts of another.
const RETRY: Duration = Duration::from_millis(500);

/// How many writes, and for how long, an account stays here while other writes wait for it: taking
/// it costs two round trips, and what other processes have written since must be read.
const BURST: u32 = 8;
const BURST_TIME: Duration = Duration::from_secs(2);

/// One account that signs.
pub(super) struct Signer {
    pub(super) account: Account,
    key: SecretKey,
    _locked: Option<LockGuard>,
    chain_id: Felt,
    chain: Arc<Chain>,
    store: Arc<Store>,
    queue: Mutex<Queue>,
    /// One permit for each operation that may still wait.
    waiting: Semaphore,
}

/// What the first in an account's queue has.
struct Queue {
    /// Excludes other processes.
    lock: SessionLock,
    /// When it was taken from other processes, and how many writes it has served since.
    burst: (Instant, u32),
    /// Whether another process had the account for as long as the last one here waited.
    was_in_vain: bool,
}

/// The exclusive right to write with an account, until it is released.
pub(super) struct SignerGuard<'a> {
    pub(super) signer: &'a Signer,
    /// Until then, the write is signed or refused.
    pub(super) deadline: Instant,
    queue: MutexGuard<'a, Queue>,
    /// Whether the next operation gets the lock as it is, held.
    is_passed_on: bool,
}

impl Drop for SignerGuard<'_> {
    fn drop(&mut self) {
        if !self.is_passed_on {
            self.queue.lock.abandon();
        }
    }
}

impl SignerGuard<'_> {
    /// Checks that it is still held: a lost database connection releases it.
    pub(super) async fn check(&mut self) -> Result<(), Outcome> {
        Ok(self.queue.lock.check().await?)
    }

    /// Lets the next operation write: of this process, or once it has had its share, of another.
    pub(super) async fn release(mut self) {
        let (since, writes) = self.queue.burst;
        let has_share = writes < BURST && since.elapsed() < BURST_TIME;
        self.is_passed_on = has_share && self.signer.waiting() > 0;
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

/// A signed transaction.
pub(super) struct Signed {
    pub(super) hash: Felt,
    pub(super) nonce: u64,
    /// The highest fee by its bounds, in fri.
    pub(super) max_fee: u128,
    /// The parameters of the method that submits it, in JSON.
    pub(super) params: String,
}

/// The accounts that sign.
pub(super) type Signers = Accounts<Signer>;

impl Signers {
    pub(super) fn new(pins: &Pins, keys: Keys, chain: &Arc<Chain>, store: &Arc<Store>) -> Self {
        let signer = |account, key| Signer {
            account,
            _locked: hardening::lock(&key),
            key,
            chain_id: pins.chain_id,
            chain: Arc::clone(chain),
            store: Arc::clone(store),
            queue: Mutex::new(Queue {
                lock: SessionLock::of_signer(account.address),
                burst: (Instant::now(), 0),
                was_in_vain: false,
            }),
            waiting: Semaphore::new(MAX_WAITING),
        };
        let Accounts { owner, verifier, faucet } = pins.accounts;
        Self {
            owner: signer(owner, keys.owner),
            verifier: signer(verifier, keys.verifier),
            faucet: faucet.zip(keys.faucet).map(|(account, key)| signer(account, key)),
        }
    }

    /// Whether one of them has this address.
    pub(super) fn has(&self, address: Felt) -> bool {
        self.iter().any(|signer| signer.account.address == address)
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
    ///
    /// # Errors
    /// `overloaded` if the queue is full or `deadline` is over; `in_progress` if another process
    /// holds the account.
    pub(super) async fn lock(&self, deadline: Instant) -> Result<SignerGuard<'_>, Outcome> {
        let Ok(waiting) = self.waiting.try_acquire() else {
            return refuse(Reason::Overloaded, "too many writes are waiting: retry soon");
        };
        let Ok(mut queue) = timeout_at(deadline, self.queue.lock()).await else {
            drop(waiting);
            // what was passed on to this operation; if others wait, they have it
            if let Ok(mut queue) = timeout(RETRY, self.queue.lock()).await {
                queue.release().await;
            }
            return Err(Outcome::overloaded());
        };
        drop(waiting);
        let was_held = queue.lock.is_held();
        let left = deadline.saturating_duration_since(Instant::now());
        let wait = left.min(if queue.was_in_vain { RETRY } else { LOCK });
        let locked = queue.lock.acquire(&self.store, wait).await;
        queue.was_in_vain = matches!(locked, Err(StoreError::SignerHeld));
        if !was_held {
            queue.burst = (Instant::now(), 0);
        }
        queue.burst.1 += 1;
        match locked {
            Ok(()) => Ok(SignerGuard { signer: self, deadline, queue, is_passed_on: false }),
            Err(StoreError::SignerHeld) => {
                refuse(Reason::InProgress, "another process writes with the account: retry soon")
            }
            Err(error) => Err(error.into()),
        }
    }

    /// Operations that wait for this account.
    pub(super) fn waiting(&self) -> usize {
        MAX_WAITING - self.waiting.available_permits()
    }

    /// The account's next nonce, from the node.
    pub(super) async fn nonce(&self) -> Result<u64, Outcome> {
        Ok(self.chain.nonce(self.account.address).await?)
    }

    /// Signs a transaction that makes `calls`, with the next nonce and bounds from an estimate. It
    /// differs from those with the nonce that are `in_doubt`, which is their number.
    pub(super) async fn sign(
        &self,
        calls: &[Call],
        nonce: u64,
        in_doubt: usize,
        policy: &RelayPolicyConfig,
    ) -> Result<Signed, Outcome> {
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
        hardening::wipe_stack();
        let estimate = self.chain.estimate(&query.to_json()).await;
        if let Err(RpcError::Returned(_)) = &estimate
            && self.nonce().await? != nonce
        {
            return Err(Outcome::nonce_conflict());
        }
        let estimate = estimate?;
        let (mut bounds, max_fee) = bounds(&estimate, policy)?;
        // the same calls for the same price would be the same transaction
        bounds.l1_data_gas.1 = bounds.l1_data_gas.1.saturating_add(in_doubt as u128);
        let transaction = invoke(bounds).sign(self.chain_id, &self.key);
        hardening::wipe_stack();
        let hash = transaction.hash(self.chain_id);
        Ok(Signed { hash, nonce, max_fee, params: transaction.to_params() })
    }
}

/// The estimate plus half, as prices and state change, within the caps; and its highest fee.
fn bounds(estimate: &Bounds, policy: &RelayPolicyConfig) -> Result<(Bounds, u128), Refusal> {
    let margin = |(amount, price): (u64, u128)| {
        (amount.saturating_add(amount / 2), price.saturating_add(price / 2))
    };
    let [l1_gas, l1_data_gas, l2_gas] =
        [estimate.l1_gas, estimate.l1_data_gas, estimate.l2_gas].map(margin);
    let bounds = Bounds { l1_gas, l1_data_gas, l2_gas };
    match bounds.max_fee() {
        Some(fee) if fee <= policy.max_fee.fri() && l2_gas.0 <= policy.max_l2_gas => {
            Ok((bounds, fee))
        }
        _ => {
            let message = "the chain's price of the write is over the configured bound";
            Err(Refusal::new(Reason::FeeBoundExceeded, message))
        }
    }
}
