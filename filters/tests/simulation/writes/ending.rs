//! What happens to the chain at the end of a run, when nothing else goes wrong: a stranger takes the
//! nonces of what is in doubt, the chain loses all its blocks, and what was lost comes back. There, few
//! steps put to the test what a run seldom does: the search for who used a nonce, and rules 2, 6
//! and 9.

use super::chain::{Taking, Tx};
use super::config::is_own;
use super::machine::{Machine, Shared};
use super::reads::TooLarge;
use super::requests::PINS;
use super::world::{Fault, World};
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{Intent, IntentId, IntentState};
use std::collections::BTreeMap;
use std::time::Duration;

/// Blocks without a transaction before a stranger's: more than are searched at once.
const EMPTY: usize = 80;
/// How many of them cannot be read.
const UNREADABLE: u32 = 2;
/// How long the relays have to notice what the chain did.
const NOTICE: Duration = Duration::from_secs(40);
/// How long a transaction of ours stays in the mempool once nothing else goes wrong.
const HELD: Duration = Duration::from_secs(25);

/// Lets the chain lose its blocks. The relays notice, each time.
pub(super) fn lose_blocks(world: &Shared<World>, machine: &mut Machine<World>) {
    for happens in [World::succeed_anew, World::fall, World::come_back] {
        let expected = happens(&mut world.lock());
        let end = world.now() + NOTICE;
        machine.run(|world, _| {
            let is_over = world.now() >= end || world.oracle.violation.is_some();
            is_over || world.unnoticed(&expected).is_none()
        });
        let mut world = world.lock();
        let judged = world.unnoticed(&expected).map_or(Ok(()), Err);
        world.oracle.report(judged);
        if world.oracle.violation.is_some() {
            return;
        }
    }
}

/// An intent that is to be noticed, and as what.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    rule: &'static str,
    id: IntentId,
    is_included: bool,
}

impl World {
    /// A stranger takes the next nonce of each of our accounts, if something of ours may have it:
    /// many blocks later, some of which cannot be read.
    pub(super) fn take_nonces(&mut self) {
        if !self.permits(Fault::NonceTaken) || self.chance.choose(2) == 0 {
            return;
        }
        let mut senders = own_accounts();
        senders.retain(|sender| self.is_next_in_doubt(*sender));
        if senders.is_empty() {
            return;
        }
        self.count(Fault::NonceTaken);
        let first = self.chain.view().shown as u64 + 1;
        self.close_blocks(EMPTY);
        if self.permits(Fault::NeverRead) {
            self.hide_blocks(first);
        }
        for sender in senders {
            self.use_nonce(sender);
        }
        self.close_blocks(1);
        if self.permits(Fault::TooLarge) && self.chance.choose(2) == 1 {
            let head = self.chain.view().head().hash;
            self.too_large.insert(head, TooLarge::Everywhere);
        }
    }

    fn is_next_in_doubt(&self, sender: Felt) -> bool {
        let (epoch, next) = (self.epoch(), self.chain.nonce(sender));
        let mut of_epoch = self.journal.tables.of_epoch(&epoch);
        of_epoch.any(|it| {
            let is_next = (it.signer, it.nonce) == (sender, next);
            is_next && it.state == IntentState::Displaced
        })
    }

    /// From a block on, some blocks can be read at no URL: none that a transaction was ever in.
    fn hide_blocks(&mut self, first: u64) {
        let epoch = self.epoch();
        let of_epoch = self.journal.tables.of_epoch(&epoch);
        let numbers = of_epoch.filter_map(|it| it.included).map(|it| it.number);
        let first = numbers.max().map_or(first, |number| first.max(number + 1));
        let view = self.chain.view();
        for _ in 0..UNREADABLE {
            let number = first + u64::from(self.chance.choose(EMPTY as u32 / 2));
            if let Some(block) = view.block(number).filter(|it| it.txs.is_empty()) {
                self.too_large.insert(block.hash, TooLarge::Always);
                self.count(Fault::NeverRead);
                self.note(|| format!("block {number} can never be read"));
            }
        }
    }

    pub(super) fn close_blocks(&mut self, number: usize) {
        let time = self.chain_time();
        for _ in 0..number {
            self.chain.close_block(time);
        }
        self.note_heads();
    }

    /// The next transaction of each of our accounts stays in the mempool for a while.
    pub(super) fn hold_next(&mut self) {
        if self.enabled.contains(&Fault::Held) && self.chance.choose(2) == 1 {
            let accounts = own_accounts().into_iter();
            self.held_next = accounts.map(|account| (account, HELD)).collect();
        }
    }

    /// The chain loses its newest blocks, and what reverted in them succeeds now.
    fn succeed_anew(&mut self) -> Vec<Expected> {
        self.has_fallen = true;
        let Some((intent, tx)) = self.newest_reverted() else {
            return Vec::new();
        };
        let shown = self.chain.view().shown;
        let number = self
            .chain
            .view()
            .find(tx.hash)
            .and_then(|(_, block)| Some(block?.number));
        let depth = shown
            - number
                .and_then(|it| usize::try_from(it).ok())
                .unwrap_or(shown);
        self.note(|| format!("{} blocks are gone, and {} succeeds", depth, tx.hash));
        self.chain.unsettle();
        let now = self.now();
        let gone = self.chain.roll_back(depth, now);
        let is_before = |it: &Tx| it.sender == tx.sender && it.nonce < tx.nonce;
        if !gone.iter().any(is_before) {
            let _added = self.chain.add(tx, Taking::default());
        }
        self.close_blocks(depth + 1);
        self.fell = Some(now);
        let view = self.chain.view();
        match view.find(tx.hash) {
            Some((executed, _)) if executed.succeeded => vec![Expected {
                rule: "rule 9",
                id: intent,
                is_included: true,
            }],
            _ => Vec::new(),
        }
    }

    /// The newest intent of ours that reverted, and would not have had to.
    fn newest_reverted(&self) -> Option<(IntentId, Tx)> {
        let epoch = self.epoch();
        let view = self.chain.view();
        let mut reverted = self.journal.select(&epoch, |it| {
            let found = view.find(it.transaction_hash);
            let is_there = found.is_some_and(|(executed, block)| {
                block.is_some_and(|block| it.included.is_some_and(|at| at.number == block.number))
                    && !executed.succeeded
            });
            it.state == IntentState::Reverted && is_own(it.signer) && is_there
        });
        reverted.sort_by_key(|it| it.included.map(|it| it.number));
        let newest = reverted.last()?;
        Some((newest.id, *self.signed.get(&newest.transaction_hash)?))
    }

    /// The chain loses all its blocks.
    fn fall(&mut self) -> Vec<Expected> {
        let now = self.now();
        let shown = self.chain.view().shown;
        self.chain.unsettle();
        let _gone = self.chain.roll_back(shown, now);
        self.close_blocks(shown + 1);
        self.fell = Some(now);
        self.note(|| "the chain loses all its blocks".to_owned());
        let epoch = self.epoch();
        let is_gone = |it: &Intent| it.state.is_included() && it.included.is_some();
        let gone = self.journal.select(&epoch, is_gone);
        let expected = gone.iter().map(|it| Expected {
            rule: "rule 2",
            id: it.id,
            is_included: false,
        });
        expected.collect()
    }

    /// What was lost comes back, and of the other nonces what is in doubt.
    fn come_back(&mut self) -> Vec<Expected> {
        let epoch = self.epoch();
        let mut slots: BTreeMap<(Felt, u64), Vec<Intent>> = BTreeMap::new();
        for it in self.journal.tables.of_epoch(&epoch) {
            slots
                .entry((it.signer, it.nonce))
                .or_default()
                .push(it.clone());
        }
        let mut expected = Vec::new();
        for ((sender, nonce), intents) in slots {
            let next = self.chain.nonce(sender);
            if is_own(sender) {
                // no intent has these
                (next..nonce).for_each(|_| self.use_nonce(sender));
            }
            let Some(back) = returning(&intents) else {
                continue;
            };
            let Some(tx) = self.signed.get(&back.transaction_hash).copied() else {
                continue;
            };
            if self.chain.add(tx, Taking::default()).is_ok() {
                self.note(|| format!("{} of intent {} comes back", tx.hash, back.id));
                expected.push(Expected {
                    rule: "rule 1",
                    id: back.id,
                    is_included: true,
                });
            }
        }
        self.close_blocks(2);
        expected
    }

    /// The first of these that the journal does not have as expected.
    fn unnoticed(&self, expected: &[Expected]) -> Option<String> {
        let is_noticed = |it: &&Expected| {
            let Some(intent) = self.journal.tables.intents.get(&it.id) else {
                return true;
            };
            if !it.is_included {
                return !intent.state.is_included() || self.is_on_chain(intent);
            }
            // it may have been stored again
            let mut equal = self.journal.tables.of_epoch(&intent.epoch);
            let hash = intent.transaction_hash;
            !self.is_on_chain(intent)
                || equal.any(|it| it.transaction_hash == hash && self.has_outcome(it))
        };
        let missed = expected.iter().find(|it| !is_noticed(it))?;
        let intent = self.journal.tables.intents.get(&missed.id)?;
        Some(format!(
            "{}: the chain changed, and intent {} is still {}",
            missed.rule,
            intent.id,
            intent.state.name()
        ))
    }

    fn is_on_chain(&self, intent: &Intent) -> bool {
        let view = self.chain.view();
        let found = view.find(intent.transaction_hash);
        found.is_some_and(|(_, block)| block.is_some())
    }

    /// Whether the journal has the outcome that the chain has.
    fn has_outcome(&self, intent: &Intent) -> bool {
        let view = self.chain.view();
        let state = match view.find(intent.transaction_hash) {
            Some((executed, _)) if executed.succeeded => IntentState::Succeeded,
            _ => IntentState::Reverted,
        };
        intent.state == state
    }
}

/// The accounts that a relay signs with.
fn own_accounts() -> Vec<Felt> {
    let accounts = PINS.accounts;
    let faucet = accounts.faucet.unwrap_or(accounts.owner);
    vec![accounts.owner, accounts.verifier, faucet]
}

/// The intent of a slot that comes back: one that is lost and is watched beside one in doubt, or
/// else one in doubt.
fn returning(slot: &[Intent]) -> Option<&Intent> {
    let of = |state: IntentState| slot.iter().rev().find(move |it| it.state == state);
    let in_doubt = of(IntentState::Displaced)?;
    Some(of(IntentState::Lost).unwrap_or(in_doubt))
}
