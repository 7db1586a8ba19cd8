//! Polls each URL of the node for journaled transactions, and remembers the results from poll to
//! poll. [`super::evidence`] decides what they prove.

use super::evidence::{Below, Doubt, Presence, Settling, ShownBlock, View};
use super::io::{Called, Io};
use super::memory::Memory;
use super::node::Receipt;
use crate::felt::Felt;
use crate::ledger::{Intent, IntentId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use futures_util::future::{join, join_all};

/// Blocks that are searched per poll for the transaction that took a nonce.
const BLOCKS: u8 = 64;

/// The evidence of the node's URLs for a transaction.
pub(super) enum Sighting {
    /// A URL shows it in an accepted block.
    Shown(Receipt),
    /// The transaction is in doubt.
    Displaced(Doubt),
    /// No URL shows it, and nothing proves that it is gone.
    Unknown,
    /// No URL answers.
    Unavailable,
}

/// Whether it is final which transaction has a used nonce.
pub(super) enum NonceUse {
    /// Another transaction has it for good, in this block.
    Settled { transaction: Felt, number: u64 },
    /// No transaction has it for good yet.
    Open,
}

/// The search, block by block, for the transaction that took a nonce.
#[derive(Clone, Copy)]
struct Walk {
    /// The first block. At signing, the head may have been ahead of the nonce that was read: if
    /// nothing is found up to the head, the search begins further back.
    first: u64,
    /// The next block to read.
    next: u64,
    /// The transaction that was found, and its block.
    found: Option<(Felt, u64)>,
}

/// The evidence so far.
#[derive(Default)]
pub(super) struct Sightings {
    below: BTreeMap<IntentId, Below>,
    walks: BTreeMap<IntentId, Walk>,
    settling: Settling,
}

/// Queries every URL for a transaction that was included, and for the block that had it.
pub(super) async fn look_for(io: &impl Io, intent: &Intent) -> Sighting {
    let (urls, hash) = (io.urls(), intent.transaction_hash);
    let receipts = join_all(urls.iter().map(|url| io.receipt_of(*url, hash))).await;
    if receipts.iter().all(Result::is_err) {
        return Sighting::Unavailable;
    }
    let mut shown = receipts.into_iter().flatten().flatten();
    if let Some(receipt) = shown.find(|receipt| receipt.accepted) {
        io.memory(|memory| memory.sightings.below.remove(&intent.id));
        return Sighting::Shown(receipt);
    }
    let Some(included) = intent.included else {
        return Sighting::Unknown;
    };
    let views = views(io, &urls, included.number, hash).await;
    let now = io.now();
    let presence = io.memory(|memory| {
        let below = memory.sightings.below.entry(intent.id).or_default();
        let presence = below.judge(&views, included.number, now);
        if matches!(presence, Presence::Displaced(_)) {
            memory.sightings.below.remove(&intent.id);
        }
        presence
    });
    match presence {
        Presence::Displaced(doubt) => Sighting::Displaced(doubt),
        Presence::Shown | Presence::Unknown => Sighting::Unknown,
    }
}

/// Finds the transaction that took the nonce of an intent: `ours`, that of another intent, which is
/// included, or one in the blocks since the intent was signed. It counts once its block is settled.
///
/// # Errors
/// Returns an error if a URL does not return a block.
pub(super) async fn nonce_use(
    io: &impl Io,
    intent: &Intent,
    ours: Option<(Felt, u64)>,
) -> Called<NonceUse> {
    let found = match ours {
        Some(ours) => {
            let first = intent.born.unwrap_or(0);
            let walk = Walk {
                first,
                next: first,
                found: Some(ours),
            };
            io.memory(|memory| memory.sightings.walks.insert(intent.id, walk));
            Some(ours)
        }
        None => walk(io, intent).await?,
    };
    let Some((transaction, number)) = found else {
        return Ok(NonceUse::Open);
    };
    let views = views(io, &io.urls(), number, transaction).await;
    let is_listed = views
        .iter()
        .any(|view| view.block.is_some_and(|block| block.lists));
    let (now, confirmations) = (io.now(), io.settings().confirmations);
    Ok(io.memory(|memory| {
        if !is_listed {
            // rolled back meanwhile
            memory.sightings.walks.remove(&intent.id);
        }
        let settled = memory
            .sightings
            .settling
            .settled(&views, number, confirmations, now);
        if settled.is_none() || !is_listed {
            return NonceUse::Open;
        }
        memory.sightings.walks.remove(&intent.id);
        NonceUse::Settled {
            transaction,
            number,
        }
    }))
}

/// Continues the search for the transaction with an intent's nonce, block by block since signing.
async fn walk(io: &impl Io, intent: &Intent) -> Called<Option<(Felt, u64)>> {
    let begun = io.memory(|memory| memory.sightings.walks.get(&intent.id).copied());
    if let Some(found) = begun.and_then(|walk| walk.found) {
        return Ok(Some(found));
    }
    let born = intent.born.unwrap_or(0);
    let mut walk = begun.unwrap_or(Walk {
        first: born,
        next: born,
        found: None,
    });
    let next = walk.next;
    let heads = io
        .urls()
        .into_iter()
        .map(|url| async move { (io.head_of(url).await, url) });
    let heads = join_all(heads).await;
    let highest = heads
        .into_iter()
        .filter_map(|(head, url)| Some((head.ok()?, url)));
    let Some((head, url)) = highest.max_by_key(|(head, _)| *head) else {
        return Ok(None);
    };
    for number in (next..=head).take(usize::from(BLOCKS)) {
        let listed = io
            .transaction_of(url, number, intent.signer, intent.nonce)
            .await?;
        if let Some(hash) = listed.filter(|hash| *hash != intent.transaction_hash) {
            walk.found = Some((hash, number));
            break;
        }
        walk.next = number.saturating_add(1);
    }
    if walk.found.is_none() && walk.next > head {
        // the transaction was in a replaced block, or in an earlier one: search again
        walk.first = walk.first.saturating_sub(u64::from(BLOCKS));
        walk.next = walk.first;
    }
    io.memory(|memory| memory.sightings.walks.insert(intent.id, walk));
    Ok(walk.found)
}

/// Forgets the searches for all intents but these, whose nonces are open.
pub(super) fn retain(io: &impl Io, open: &[IntentId]) {
    io.memory(
        |Memory {
             sightings: Sightings {
                 walks, settling, ..
             },
             ..
         }| {
            walks.retain(|id, _| open.contains(id));
            let found: Vec<_> = walks.values().filter_map(|walk| walk.found).collect();
            settling.retain(|number| found.iter().any(|(_, found)| *found == number));
        },
    );
}

/// The view of each URL that answers: its head, and its block of this number.
async fn views<I: Io>(io: &I, urls: &[I::Url], number: u64, transaction: Felt) -> Vec<View> {
    let views = urls.iter().map(|url| async move {
        let (head, block) = join(io.head_of(*url), io.block_of(*url, number)).await;
        let (head, block) = (head.ok()?, block.ok()?);
        let block = block.map(|block| ShownBlock {
            hash: block.hash.to_bytes_be(),
            lists: block.transactions.contains(&transaction),
        });
        Some(View { head, block })
    });
    join_all(views).await.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::IntentState;
    use crate::txm::tests::script::Script;
    use crate::txm::tests::{intent, run};

    #[test]
    fn a_search_is_forgotten_with_its_intent() {
        let script = Script::new();
        for id in [1, 2] {
            let sent = intent(id, 7, IntentState::Sent);
            let found = run(nonce_use(&script, &sent, None));
            assert!(matches!(found, Ok(NonceUse::Open)), "no block has it");
        }
        retain(&script, &[IntentId(2)]);
        let walks: Vec<_> = script.memory(|it| it.sightings.walks.keys().copied().collect());
        assert_eq!(walks, [IntentId(2)]);
    }
}
