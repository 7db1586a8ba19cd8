//! Polls each URL of the node for journaled transactions, and remembers the results from poll to
//! poll. [`super::evidence`] decides what they prove.

use super::evidence::{Below, Doubt, Polled, Presence, Settling, ShownBlock, View};
use super::io::{Called, Io, Note};
use super::node::{Receipt, Sender};
use crate::felt::Felt;
use crate::ledger::{Inclusion, Intent, IntentId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::cmp::Reverse;
use futures_util::future::{join, join_all};

/// Blocks that are searched per poll for the transaction that took a nonce.
const BLOCKS: u8 = 64;
/// Transactions of a block that are looked up concurrently.
const LOOKUPS: usize = 16;

/// The evidence of the node's URLs for a transaction.
pub(super) enum Sighting {
    /// A URL shows it in an accepted block.
    Shown(Receipt),
    /// The transaction is in doubt.
    Displaced(Doubt),
    /// A URL shows it in the block that is being built, and no URL in an accepted one.
    Pending,
    /// No URL shows it, and nothing proves that it is gone.
    Unknown,
    /// No URL answers.
    Unavailable,
}

/// Whether it is final which transaction has a used nonce.
pub(super) enum NonceUse {
    /// Another transaction used the nonce, in this settled block.
    Settled { transaction: Felt, number: u64 },
    /// No settled block has a transaction with the nonce.
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
    /// The transactions of that block that were looked up one by one.
    looked_up: usize,
    /// The last block that no URL let read.
    unreadable: Option<u64>,
    /// The transaction that was found, and its block.
    found: Option<(Felt, u64)>,
}

impl Walk {
    fn from(first: u64) -> Self {
        Self {
            first,
            next: first,
            looked_up: 0,
            unreadable: None,
            found: None,
        }
    }

    fn next_block(&mut self) {
        self.next = self.next.saturating_add(1);
        self.looked_up = 0;
    }
}

/// The evidence of one block for a nonce.
enum Searched {
    /// A transaction with this hash used it.
    Used(Felt),
    /// No transaction of the block did.
    Unused,
    /// No URL lets the block be read.
    Unreadable,
}

/// The evidence so far.
#[derive(Default)]
pub(super) struct Sightings {
    /// The polls below the block that had each intent when they were made.
    below: BTreeMap<IntentId, (Inclusion, Below)>,
    walks: BTreeMap<IntentId, Walk>,
    settling: Settling,
}

/// Queries every URL for a transaction that was included, and for the block that had it.
pub(super) async fn sighting_of(io: &impl Io, intent: &Intent) -> Sighting {
    let (urls, hash) = (io.urls(), intent.transaction_hash);
    let receipts = join_all(urls.iter().map(|url| io.receipt_of(*url, hash))).await;
    if receipts.iter().all(Result::is_err) {
        return Sighting::Unavailable;
    }
    let mut unproven = Sighting::Unknown;
    for receipt in receipts.into_iter().flatten().flatten() {
        if receipt.accepted {
            io.memory(|memory| memory.sightings.below.remove(&intent.id));
            return Sighting::Shown(receipt);
        }
        unproven = Sighting::Pending;
    }
    let Some(included) = intent.included else {
        return unproven;
    };
    let (views, polled) = poll(io, &urls, included.number, hash).await;
    let presence = io.memory(|memory| {
        let below = memory.sightings.below.entry(intent.id);
        let (block, below) = below.or_insert((included, Below::default()));
        if *block != included {
            // another process has seen it in another block meanwhile
            (*block, *below) = (included, Below::default());
        }
        let presence = below.judge(&views, included.number, polled);
        if matches!(presence, Presence::Displaced(_)) {
            memory.sightings.below.remove(&intent.id);
        }
        presence
    });
    match presence {
        Presence::Displaced(doubt) => Sighting::Displaced(doubt),
        Presence::Shown | Presence::Unknown => unproven,
    }
}

/// Finds the transaction that took the nonce of an intent: `ours`, that of another intent, which is
/// included, or one in the blocks since the intent was signed. It counts once its block is settled.
pub(super) async fn nonce_use(
    io: &impl Io,
    intent: &Intent,
    ours: Option<(Felt, u64)>,
) -> NonceUse {
    let found = match ours {
        Some(ours) => {
            let walk = Walk {
                found: Some(ours),
                ..Walk::from(intent.born.unwrap_or(0))
            };
            remember(io, intent, walk);
            Some(ours)
        }
        None => walk(io, intent).await,
    };
    let Some((transaction, number)) = found else {
        return NonceUse::Open;
    };
    let (views, polled) = poll(io, &io.urls(), number, transaction).await;
    let is_listed = views
        .iter()
        .any(|view| view.block.is_some_and(|block| block.lists));
    let confirmations = io.settings().confirmations;
    io.memory(|memory| {
        if !is_listed {
            // rolled back meanwhile
            memory.sightings.walks.remove(&intent.id);
        }
        let settled = memory
            .sightings
            .settling
            .settled(&views, number, confirmations, polled);
        if settled.is_none() || !is_listed {
            return NonceUse::Open;
        }
        memory.sightings.walks.remove(&intent.id);
        NonceUse::Settled {
            transaction,
            number,
        }
    })
}

fn remember(io: &impl Io, intent: &Intent, walk: Walk) {
    io.memory(|memory| memory.sightings.walks.insert(intent.id, walk));
}

/// Continues the search for the transaction with an intent's nonce, block by block since signing.
/// Its progress outlives a round that ends within it. A block that no URL returns is skipped, and
/// read again when the search begins again.
async fn walk(io: &impl Io, intent: &Intent) -> Option<(Felt, u64)> {
    let begun = io.memory(|memory| memory.sightings.walks.get(&intent.id).copied());
    let born = intent.born.unwrap_or(0);
    let mut walk = begun.unwrap_or(Walk::from(born));
    if walk.found.is_some() {
        return walk.found;
    }
    debug_assert!(walk.first <= walk.next, "the search goes up");
    let urls = urls_by_head(io).await;
    let (head, _) = *urls.first()?;
    for _ in 0..BLOCKS {
        if walk.next > head {
            // the transaction was in a replaced block, or in an earlier one: search again, each
            // time about twice as far back
            let back = born.saturating_sub(walk.first);
            let further = back.saturating_add(u64::from(BLOCKS));
            walk.first = walk.first.saturating_sub(further);
            walk.next = walk.first;
            break;
        }
        match search(io, &urls, &mut walk, intent).await {
            // its receipt says how it ended
            Searched::Used(hash) if hash == intent.transaction_hash => {}
            Searched::Used(hash) => {
                walk.found = Some((hash, walk.next));
                break;
            }
            Searched::Unused => {}
            Searched::Unreadable if walk.unreadable == Some(walk.next) => {}
            Searched::Unreadable => {
                io.note(Note::Unreadable(intent, walk.next));
                walk.unreadable = Some(walk.next);
            }
        }
        walk.next_block();
        remember(io, intent, walk);
    }
    remember(io, intent, walk);
    walk.found
}

/// The URLs that answer, with their heads, highest first.
async fn urls_by_head<I: Io>(io: &I) -> Vec<(u64, I::Url)> {
    let heads = io
        .urls()
        .into_iter()
        .map(|url| async move { Some((io.head_of(url).await.ok()?, url)) });
    let mut urls: Vec<_> = join_all(heads).await.into_iter().flatten().collect();
    urls.sort_by_key(|(head, _)| Reverse(*head));
    urls
}

/// Searches the next block of a walk, at the first URL that lets it be read.
async fn search<I: Io>(
    io: &I,
    urls: &[(u64, I::Url)],
    walk: &mut Walk,
    intent: &Intent,
) -> Searched {
    let number = walk.next;
    for (_, url) in urls.iter().filter(|(head, _)| *head >= number) {
        match io
            .transaction_of(*url, number, intent.signer, intent.nonce)
            .await
        {
            Ok(Some(hash)) => return Searched::Used(hash),
            Ok(None) => return Searched::Unused,
            Err(_) => {}
        }
    }
    // the block with its receipts may be larger than any answer may be
    for (_, url) in urls.iter().filter(|(head, _)| *head >= number) {
        if let Ok(searched) = search_by_hashes(io, *url, walk, intent).await {
            return searched;
        }
    }
    Searched::Unreadable
}

/// Searches a block by the hashes that it lists: each transaction is looked up by itself.
async fn search_by_hashes<I: Io>(
    io: &I,
    url: I::Url,
    walk: &mut Walk,
    intent: &Intent,
) -> Called<Searched> {
    let Some(block) = io.block_of(url, walk.next).await? else {
        return Ok(Searched::Unused);
    };
    if block.transactions.contains(&intent.transaction_hash) {
        return Ok(Searched::Used(intent.transaction_hash));
    }
    let remaining = block.transactions.get(walk.looked_up..).unwrap_or(&[]);
    for hashes in remaining.chunks(LOOKUPS) {
        let senders = join_all(hashes.iter().map(|hash| io.sender_of(url, *hash))).await;
        for (hash, sender) in hashes.iter().zip(senders) {
            let is_it = |it: Sender| it.account == intent.signer && it.nonce == intent.nonce;
            if sender?.is_some_and(is_it) {
                return Ok(Searched::Used(*hash));
            }
        }
        walk.looked_up = walk.looked_up.saturating_add(hashes.len());
        remember(io, intent, *walk);
    }
    Ok(Searched::Unused)
}

/// Forgets the searches for all intents but those whose nonce is open.
pub(super) fn retain(io: &impl Io, is_open: impl Fn(IntentId) -> bool) {
    io.memory(|memory| {
        let Sightings {
            walks, settling, ..
        } = &mut memory.sightings;
        walks.retain(|id, _| is_open(*id));
        let found: Vec<_> = walks.values().filter_map(|walk| walk.found).collect();
        settling.retain(|number| found.iter().any(|(_, found)| *found == number));
    });
}

/// The view of each URL that answers: its head, and its block of this number.
async fn poll<I: Io>(
    io: &I,
    urls: &[I::Url],
    number: u64,
    transaction: Felt,
) -> (Vec<View>, Polled) {
    let begun = io.now();
    let views = urls.iter().map(|url| async move {
        let (head, block) = join(io.head_of(*url), io.block_of(*url, number)).await;
        let (head, block) = (head.ok()?, block.ok()?);
        let block = block.map(|block| ShownBlock {
            hash: block.hash.to_bytes_be(),
            lists: block.transactions.contains(&transaction),
        });
        Some(View { head, block })
    });
    let views = join_all(views).await.into_iter().flatten().collect();
    let ended = io.now();
    (views, Polled { begun, ended })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::IntentState;
    use crate::txm::tests::script::Script;
    use crate::txm::tests::{intent, run};
    use core::time::Duration;

    #[test]
    fn a_search_is_forgotten_with_its_intent() {
        let script = Script::new();
        for id in [1, 2] {
            let sent = intent(id, 7, IntentState::Sent);
            let found = run(nonce_use(&script, &sent, None));
            assert!(matches!(found, NonceUse::Open), "no block has it");
        }
        retain(&script, |id| id == IntentId(2));
        let walks: Vec<_> = script.memory(|it| it.sightings.walks.keys().copied().collect());
        assert_eq!(walks, [IntentId(2)]);
    }

    #[test]
    fn polls_below_a_former_block_count_for_nothing() {
        let script = Script::new();
        let found = [40, 40, 30, 30, 30].map(|number| {
            let included = Intent {
                included: Some(Inclusion {
                    number,
                    fingerprint: [0; 32],
                }),
                ..intent(1, 7, IntentState::Succeeded)
            };
            let found = run(sighting_of(&script, &included));
            script.state().now += Duration::from_secs(2);
            matches!(found, Sighting::Displaced(Doubt::HeadBelow))
        });
        assert_eq!(found, [false, false, false, false, true]);
    }

    #[test]
    fn a_search_begins_about_twice_as_far_back_each_time() {
        let script = Script::new();
        script.state().blocks = (0..=610)
            .map(|number: u64| (number, (Felt::from(number), Vec::new())))
            .collect();
        let sent = Intent {
            born: Some(600),
            ..intent(1, 7, IntentState::Sent)
        };
        let mut begins: Vec<u64> = Vec::new();
        for _ in 0..40 {
            let _open = run(nonce_use(&script, &sent, None));
            begins.push(script.memory(|it| it.sightings.walks[&sent.id].first));
        }
        begins.dedup();
        assert_eq!(begins, [536, 408, 152, 0]);
    }

    #[test]
    fn a_block_that_stays_unreadable_is_noted_once() {
        let script = Script::new();
        script.state().unreadable = [6].into();
        script.state().unlisted = [6].into();
        for _ in 0..2 {
            let sent = intent(1, 7, IntentState::Sent);
            let _open = run(nonce_use(&script, &sent, None));
        }
        let done = script.done();
        let noted = done.iter().filter(|it| it.contains("unreadable")).count();
        assert_eq!(noted, 1, "{done:?}");
    }

    #[test]
    fn a_hash_is_of_the_account_and_the_nonce() {
        for (signer, nonce, is_found) in [
            (None, 7, true),
            (None, 6, false),
            (Some(Felt::from(0xdd_u64)), 7, false),
        ] {
            let script = Script::new();
            script.state().unreadable = [10].into();
            if let Some((_, listed)) = script.state().blocks.get_mut(&10) {
                listed.push((nonce, Felt::from(8_u64)));
            }
            let mut sent = intent(1, 7, IntentState::Sent);
            sent.signer = signer.unwrap_or(sent.signer);
            let _open = run(nonce_use(&script, &sent, None));
            let found = script.memory(|it| it.sightings.walks[&sent.id].found);
            assert_eq!(found.is_some(), is_found, "{signer:?} {nonce}");
        }
    }
}
