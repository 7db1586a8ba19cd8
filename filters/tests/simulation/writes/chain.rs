//! A chain of blocks with the product's contracts, and the URLs that show it, each in its way.

pub(super) use super::contracts::{Action, SELECTORS, State};
use portcullis_filters::felt::Felt;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

pub(super) fn felt(number: u64) -> Felt {
    Felt::from(number)
}

/// A signed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Tx {
    pub(super) hash: Felt,
    pub(super) sender: Felt,
    pub(super) nonce: u64,
    pub(super) action: Action,
}

/// The fee of a transaction, in fri.
const FEE: u128 = 3_000_000_000_000_000;

/// A transaction in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct Executed {
    pub(super) tx: Tx,
    pub(super) succeeded: bool,
}

impl Executed {
    /// Its fee, in fri.
    pub(super) fn fee(&self) -> u128 {
        FEE
    }
}

/// An accepted block.
#[derive(Clone, Debug)]
pub(super) struct Block {
    pub(super) number: u64,
    /// Seconds since 1970.
    pub(super) timestamp: u64,
    pub(super) hash: Felt,
    pub(super) txs: Vec<Executed>,
    /// After it.
    pub(super) state: State,
}

/// The chain as one URL shows it at one moment.
#[derive(Clone)]
pub(super) struct View {
    pub(super) genesis: u64,
    pub(super) blocks: Arc<Vec<Arc<Block>>>,
    /// Blocks of these that it shows.
    pub(super) shown: usize,
    /// The block that is being built; `None` at a URL that is behind.
    pub(super) pending: Option<(Vec<Executed>, State)>,
}

impl View {
    pub(super) fn head(&self) -> &Block {
        &self.blocks[self.shown - 1]
    }

    pub(super) fn block(&self, number: u64) -> Option<&Block> {
        self.blocks[..self.shown]
            .get(usize::try_from(number).ok()?)
            .map(|block| &**block)
    }

    /// The state of the block that is being built.
    pub(super) fn state(&self) -> &State {
        self.pending
            .as_ref()
            .map_or(&self.head().state, |(_, state)| state)
    }

    /// Where a transaction is: its block, or `None` of the one that is being built.
    pub(super) fn find(&self, hash: Felt) -> Option<(Executed, Option<&Block>)> {
        for block in self.blocks[..self.shown].iter().rev() {
            if let Some(found) = block.txs.iter().find(|it| it.tx.hash == hash) {
                return Some((*found, Some(block)));
            }
        }
        let pending = self.pending.as_ref().map_or(&[][..], |(txs, _)| txs);
        pending
            .iter()
            .find(|it| it.tx.hash == hash)
            .map(|found| (*found, None))
    }
}

/// A transaction in the mempool.
#[derive(Clone, Copy, Debug)]
struct Pooled {
    tx: Tx,
    is_unlucky: bool,
    /// It is not included, although it could be.
    is_held: bool,
}

/// The chain itself.
pub(super) struct Chain {
    /// Changes when the chain starts over.
    pub(super) genesis: u64,
    blocks: Arc<Vec<Arc<Block>>>,
    pending: Vec<Executed>,
    state: State,
    /// The mempool, by sender and nonce.
    pool: BTreeMap<(Felt, u64), Pooled>,
    /// The state before the first block.
    initial: State,
    /// The time of the newest block, in seconds since 1970.
    time: u64,
    forks: u64,
    /// No rollback reaches below.
    settled: usize,
    confirmations: usize,
    /// Each transaction that was ever in a block, and since when it is in none.
    pub(super) seen: BTreeMap<Felt, Seen>,
    /// The transactions that were ever in a block with each nonce of an account.
    used: BTreeMap<(Felt, u64), BTreeSet<Felt>>,
}

/// The history of a transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// It succeeded, in some block.
    pub(super) succeeded: bool,
    /// It reverted, in some block.
    pub(super) reverted: bool,
    /// Since when it is in no block.
    pub(super) gone: Option<Duration>,
}

/// Why the node does not take a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The mempool or the block that is being built has it.
    Duplicate,
    /// An accepted block has it.
    Included,
    /// Its nonce is not the next one, or the mempool has another transaction with it.
    Nonce,
    /// Its sender is no contract.
    NotDeployed,
}

/// How a node takes a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Taking {
    /// It reverts.
    pub(super) is_unlucky: bool,
    /// It stays in the mempool.
    pub(super) is_held: bool,
    /// Nonces above the next one are taken, too.
    pub(super) keeps_ahead: bool,
    /// It replaces another one with its nonce in the mempool.
    pub(super) replaces: bool,
}

impl Chain {
    /// A chain of one block. No rollback reaches `confirmations` blocks deep.
    pub(super) fn new(genesis: u64, initial: State, confirmations: usize, time: u64) -> Self {
        let mut chain = Self {
            genesis,
            blocks: Arc::default(),
            pending: Vec::new(),
            state: initial.clone(),
            initial,
            time,
            pool: BTreeMap::new(),
            forks: 0,
            settled: 1,
            confirmations,
            seen: BTreeMap::new(),
            used: BTreeMap::new(),
        };
        chain.close_block(time);
        chain
    }

    pub(super) fn view(&self) -> View {
        View {
            genesis: self.genesis,
            blocks: Arc::clone(&self.blocks),
            shown: self.blocks.len(),
            pending: Some((self.pending.clone(), self.state.clone())),
        }
    }

    pub(super) fn nonce(&self, account: Felt) -> u64 {
        self.state.nonce(account)
    }

    /// V2 verification is permanent from now on.
    pub(super) fn activate_v2(&mut self) {
        self.state.v2 = true;
        self.initial.v2 = true;
    }

    /// Executes a transaction, or leaves it in the mempool.
    pub(super) fn add(&mut self, tx: Tx, taking: Taking) -> Result<(), Refused> {
        match self.view().find(tx.hash) {
            Some((_, Some(_))) => return Err(Refused::Included),
            Some((_, None)) => return Err(Refused::Duplicate),
            None => {}
        }
        let slot = (tx.sender, tx.nonce);
        let other = self.pool.get(&slot).map(|other| other.tx.hash);
        if other == Some(tx.hash) {
            return Err(Refused::Duplicate);
        }
        let deploys = matches!(tx.action, Action::Deploy { .. });
        if !deploys && !self.state.is_deployed(tx.sender) {
            return Err(Refused::NotDeployed);
        }
        let next = self.nonce(tx.sender);
        let is_next = tx.nonce == next || taking.keeps_ahead && tx.nonce > next;
        if !is_next || other.is_some() && !taking.replaces {
            return Err(Refused::Nonce);
        }
        let pooled = Pooled {
            tx,
            is_unlucky: taking.is_unlucky,
            is_held: taking.is_held,
        };
        self.pool.insert(slot, pooled);
        self.include_pooled(tx.sender);
        Ok(())
    }

    /// Executes what the mempool has of an account, in the order of nonces.
    fn include_pooled(&mut self, sender: Felt) {
        loop {
            let slot = (sender, self.nonce(sender));
            let Some(Pooled { tx, is_unlucky, .. }) =
                self.pool.get(&slot).filter(|it| !it.is_held).copied()
            else {
                return;
            };
            self.pool.remove(&slot);
            let succeeded = self.state.execute(&tx, is_unlucky, self.time);
            self.pending.push(Executed { tx, succeeded });
        }
    }

    /// Whether the mempool has another transaction with the nonce of this one.
    pub(super) fn has_other(&self, tx: &Tx) -> bool {
        self.pool
            .get(&(tx.sender, tx.nonce))
            .is_some_and(|it| it.tx.hash != tx.hash)
    }

    fn pooled(&self, tx: &Tx) -> Option<&Pooled> {
        let pooled = self.pool.get(&(tx.sender, tx.nonce));
        pooled.filter(|it| it.tx.hash == tx.hash)
    }

    /// Whether the mempool has a transaction.
    pub(super) fn is_pooled(&self, tx: &Tx) -> bool {
        self.pooled(tx).is_some()
    }

    /// Whether the mempool has a transaction and does not include it although it could.
    pub(super) fn holds(&self, tx: &Tx) -> bool {
        self.pooled(tx).is_some_and(|it| it.is_held)
    }

    /// Lets a held transaction go: it is included if its nonce is the next one, or evicted.
    pub(super) fn let_go(&mut self, tx: &Tx, is_evicted: bool) {
        if !self.holds(tx) {
            return;
        }
        let slot = (tx.sender, tx.nonce);
        match self.pool.get_mut(&slot).filter(|_| !is_evicted) {
            Some(pooled) => pooled.is_held = false,
            None => drop(self.pool.remove(&slot)),
        }
        self.include_pooled(tx.sender);
    }

    /// Closes the block that is being built, at a time in seconds since 1970.
    pub(super) fn close_block(&mut self, time: u64) {
        let number = self.blocks.len() as u64;
        let parent = self.blocks.last().map_or(0, |block| block.timestamp);
        self.forks += 1;
        let hash = felt(self.forks << 32 | number);
        let txs = std::mem::take(&mut self.pending);
        let state = &self.state;
        self.pool
            .retain(|(sender, nonce), _| *nonce >= state.nonce(*sender));
        for it in &txs {
            let before = self.seen.get(&it.tx.hash);
            let seen = Seen {
                succeeded: it.succeeded || before.is_some_and(|before| before.succeeded),
                reverted: !it.succeeded || before.is_some_and(|before| before.reverted),
                gone: None,
            };
            self.seen.insert(it.tx.hash, seen);
            let slot = (it.tx.sender, it.tx.nonce);
            self.used.entry(slot).or_default().insert(it.tx.hash);
        }
        self.time = parent.max(time);
        let block = Block {
            number,
            timestamp: self.time,
            hash,
            txs,
            state: self.state.clone(),
        };
        Arc::make_mut(&mut self.blocks).push(Arc::new(block));
        self.settled = self
            .settled
            .max(self.blocks.len().saturating_sub(self.confirmations));
    }

    /// Whether a block ever had another transaction with the nonce of this one.
    pub(super) fn was_used_by_other(&self, sender: Felt, nonce: u64, hash: Felt) -> bool {
        let used = self.used.get(&(sender, nonce));
        used.is_some_and(|hashes| hashes.iter().any(|it| *it != hash))
    }

    /// From now on, a rollback may reach any block, and the mempool is empty.
    pub(super) fn unsettle(&mut self) {
        self.settled = 1;
        self.pool.clear();
    }

    /// Takes back the newest blocks, and what is being built. Returns the transactions.
    pub(super) fn roll_back(&mut self, depth: usize, now: Duration) -> Vec<Tx> {
        let left = self.blocks.len().saturating_sub(depth).max(self.settled);
        let mut gone: Vec<Tx> = Vec::new();
        for block in self.blocks[left..].iter() {
            for it in &block.txs {
                if let Some(seen) = self.seen.get_mut(&it.tx.hash) {
                    seen.gone = Some(now);
                }
                gone.push(it.tx);
            }
        }
        gone.extend(self.pending.drain(..).map(|it| it.tx));
        Arc::make_mut(&mut self.blocks).truncate(left);
        self.state = self.blocks[left - 1].state.clone();
        gone
    }

    /// Starts over, with another first block or with the same.
    pub(super) fn restart(&mut self, genesis: u64, now: Duration, time: u64) {
        for seen in self.seen.values_mut() {
            seen.gone.get_or_insert(now);
        }
        self.genesis = genesis;
        self.blocks = Arc::default();
        self.pending.clear();
        self.pool.clear();
        self.state = self.initial.clone();
        self.settled = 1;
        self.close_block(time);
    }

    /// The blocks that no rollback takes back.
    pub(super) fn settled(&self) -> impl Iterator<Item = &Block> {
        self.blocks[..self.settled].iter().map(|block| &**block)
    }

    /// All successes of the surviving chain.
    pub(super) fn successes(&self) -> impl Iterator<Item = &Tx> {
        let executed = self
            .blocks
            .iter()
            .flat_map(|block| &block.txs)
            .chain(&self.pending);
        executed.filter(|it| it.succeeded).map(|it| &it.tx)
    }
}
