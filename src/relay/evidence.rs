//! Gathers what the URLs of the node show of journaled transactions, one by one, and remembers it
//! from poll to poll. What that proves is decided in [`portcullis_filters::txm::evidence`].

use crate::node::chain::{Chain, Receipt, RpcError, UrlOf};
use crate::store::{Intent, IntentId};
use futures_util::future::{join, join_all};
use parking_lot::Mutex;
use portcullis_filters::felt::Felt;
use portcullis_filters::txm::evidence::{
    Below, BlockHash, Doubt, Presence, Settling, ShownBlock, View,
};
use std::collections::HashMap;
use std::sync::Arc;
use tokio::time::Instant;

/// Blocks that are searched at a time for the transaction that took a nonce.
const BLOCKS: u64 = 64;

/// What the URLs of the node show of a transaction.
pub(super) enum Sighting {
    /// A URL shows it in an accepted block.
    Shown(Receipt),
    /// It is in doubt.
    Displaced(Doubt),
    /// No URL shows it, and nothing proves that it is gone.
    Unknown,
    /// No URL answers.
    Unavailable,
}

/// What became of a nonce that its account has used.
pub(super) enum NonceUse {
    /// Another transaction has it for good, in this block.
    Settled { transaction: Felt, number: u64 },
    /// Nothing that is final yet.
    Open,
}

/// The blocks in which the transaction that took a nonce is searched.
struct Walk {
    /// The next one to read.
    next: u64,
    /// What was found, and where.
    found: Option<(Felt, u64)>,
}

#[derive(Default)]
struct Memory {
    below: HashMap<IntentId, Below>,
    walks: HashMap<IntentId, Walk>,
    settling: Settling,
}

/// The URLs of the node, and what they have shown so far.
pub(super) struct Evidence {
    chain: Arc<Chain>,
    start: Instant,
    memory: Mutex<Memory>,
}

impl Evidence {
    pub(super) fn new(chain: &Arc<Chain>) -> Self {
        let (chain, start) = (Arc::clone(chain), Instant::now());
        Self { chain, start, memory: Mutex::default() }
    }

    /// Asks every URL for a transaction that was included, and for the block that had it.
    pub(super) async fn look_for(&self, intent: &Intent) -> Sighting {
        let (urls, hash) = (self.chain.urls(), intent.transaction_hash);
        let receipts = join_all(urls.iter().map(|url| url.receipt(hash))).await;
        if receipts.iter().all(Result::is_err) {
            return Sighting::Unavailable;
        }
        let mut shown = receipts.into_iter().flatten().flatten();
        if let Some(receipt) = shown.find(|receipt| receipt.accepted) {
            self.memory.lock().below.remove(&intent.id);
            return Sighting::Shown(receipt);
        }
        let Some(included) = intent.included else { return Sighting::Unknown };
        let views = views(&urls, included.number, hash).await;
        let mut memory = self.memory.lock();
        let below = memory.below.entry(intent.id).or_default();
        match below.judge(&views, included.number, self.start.elapsed()) {
            Presence::Displaced(doubt) => {
                memory.below.remove(&intent.id);
                Sighting::Displaced(doubt)
            }
            Presence::Shown | Presence::Unknown => Sighting::Unknown,
        }
    }

    /// Finds the transaction that took the nonce of an intent, which its account has used: one of
    /// `ours` that is included, or one in the blocks since the intent was signed. It counts once
    /// its block is settled.
    ///
    /// # Errors
    /// No URL answers.
    pub(super) async fn nonce_use(
        &self,
        intent: &Intent,
        ours: Option<(Felt, u64)>,
        confirmations: u64,
    ) -> Result<NonceUse, RpcError> {
        let found = match ours {
            Some(ours) => {
                let walk = Walk { next: intent.born.unwrap_or(0), found: Some(ours) };
                self.memory.lock().walks.insert(intent.id, walk);
                Some(ours)
            }
            None => self.walk(intent).await?,
        };
        let Some((transaction, number)) = found else { return Ok(NonceUse::Open) };
        let views = views(&self.chain.urls(), number, transaction).await;
        let now = self.start.elapsed();
        let mut memory = self.memory.lock();
        let is_listed = views.iter().any(|view| view.block.is_some_and(|block| block.lists));
        if !is_listed {
            // rolled back meanwhile
            memory.walks.remove(&intent.id);
        }
        let settled = memory.settling.settled(&views, number, confirmations, now);
        if settled.is_none() || !is_listed {
            return Ok(NonceUse::Open);
        }
        memory.walks.remove(&intent.id);
        Ok(NonceUse::Settled { transaction, number })
    }

    /// Goes on searching the blocks since an intent was signed for the transaction with its nonce.
    async fn walk(&self, intent: &Intent) -> Result<Option<(Felt, u64)>, RpcError> {
        let born = intent.born.unwrap_or(0);
        let next = {
            let memory = self.memory.lock();
            let walk = memory.walks.get(&intent.id);
            if let Some(found) = walk.and_then(|walk| walk.found) {
                return Ok(Some(found));
            }
            walk.map_or(born, |walk| walk.next)
        };
        let heads = self.chain.urls().into_iter().map(|url| async move { (url.head().await, url) });
        let heads = join_all(heads).await;
        let highest = heads.into_iter().filter_map(|(head, url)| Some((head.ok()?, url)));
        let Some((head, url)) = highest.max_by_key(|(head, _)| *head) else { return Ok(None) };
        let mut walk = Walk { next, found: None };
        for number in next..=head.min(next.saturating_add(BLOCKS)) {
            let listed = url.transaction_of(number, intent.signer, intent.nonce).await?;
            if let Some(hash) = listed.filter(|hash| *hash != intent.transaction_hash) {
                walk.found = Some((hash, number));
                break;
            }
            walk.next = number.saturating_add(1);
        }
        if walk.found.is_none() && walk.next > head {
            // it was in a block that was exchanged meanwhile: once more
            walk.next = born;
        }
        let found = walk.found;
        self.memory.lock().walks.insert(intent.id, walk);
        Ok(found)
    }

    /// Forgets what was searched for other intents than these, whose nonces are open.
    pub(super) fn retain(&self, open: &[IntentId]) {
        let mut memory = self.memory.lock();
        let Memory { walks, settling, .. } = &mut *memory;
        walks.retain(|id, _| open.contains(id));
        let found: Vec<_> = walks.values().filter_map(|walk| walk.found).collect();
        settling.retain(|number| found.iter().any(|(_, found)| *found == number));
    }
}

/// What each URL that answers shows: its head, and its block of this number.
async fn views(urls: &[UrlOf<'_>], number: u64, transaction: Felt) -> Vec<View> {
    let views = urls.iter().map(|url| async move {
        let (head, block) = join(url.head(), url.block(number)).await;
        let (head, block) = (head.ok()?, block.ok()?);
        let block = block.map(|block| ShownBlock {
            hash: hash_of(block.hash),
            lists: block.transactions.contains(&transaction),
        });
        Some(View { head, block })
    });
    join_all(views).await.into_iter().flatten().collect()
}

/// The hash of a block, as the journal stores it.
pub(super) fn hash_of(block: Felt) -> BlockHash {
    block.to_bytes_be()
}
