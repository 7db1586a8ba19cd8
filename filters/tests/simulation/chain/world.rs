//! The simulated chain, and the URLs through which it is seen.
//!
//! The chain grows, loses blocks and includes their transactions again, or not; then their receipts
//! may keep naming the number of the block that they were in. A URL is one node, or a balancer that
//! draws one for every call or for every connection; a node is fresh, ahead of all others, behind,
//! frozen or down, and serves the version of the others or another one.

use super::once_in;
use crate::toolkit::Chance;
use portcullis_filters::chain::NodeMode;

/// A block: an identity that no other one has, on any branch, and its transactions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Block {
    pub(super) id: u32,
    transactions: Vec<Included>,
}

/// A transaction, and the wrong block number that its receipt names, if any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Included {
    hash: u32,
    claim: Option<u64>,
}

impl Block {
    fn find(&self, hash: u32) -> Option<&Included> {
        self.transactions
            .iter()
            .find(|included| included.hash == hash)
    }
}

/// How a node follows the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    Fresh,
    Behind(usize),
    Frozen,
    Down,
    /// It has the newest blocks, which no other node has yet.
    Ahead,
}

/// A node.
#[derive(Clone, Debug)]
pub(super) struct View {
    pub(super) mode: Mode,
    pub(super) blocks: Vec<Block>,
    /// The version of the API that it serves.
    pub(super) version: &'static str,
}

/// A read by a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Question {
    Receipt(u32),
    Status(u32),
    Head,
    Block(u64),
    /// A read by the watch, of a block that it has seen.
    Known(u64),
}

/// The answer of a view: the number and the identity of the block that it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reply {
    In(u64, u32),
    Missing,
}

impl View {
    pub(super) fn head(&self) -> u64 {
        self.blocks.len() as u64 - 1
    }

    pub(super) fn block(&self, number: u64) -> Option<&Block> {
        self.blocks.get(usize::try_from(number).ok()?)
    }

    pub(super) fn answer(&self, question: Question) -> Reply {
        let number = match question {
            Question::Head => Some(self.blocks.len() - 1),
            Question::Block(number) | Question::Known(number) => usize::try_from(number).ok(),
            Question::Receipt(hash) | Question::Status(hash) => self
                .blocks
                .iter()
                .position(|block| block.find(hash).is_some()),
        };
        let block = number.and_then(|number| Some((number as u64, self.blocks.get(number)?)));
        let Some((number, block)) = block else {
            return Reply::Missing;
        };
        let claim = match question {
            Question::Receipt(hash) => block.find(hash).and_then(|included| included.claim),
            _ => None,
        };
        Reply::In(claim.unwrap_or(number), block.id)
    }
}

/// The chain and its views.
#[derive(Debug)]
pub(super) struct World {
    pub(super) chain: Vec<Block>,
    /// The nodes of each URL.
    pub(super) urls: Vec<Vec<View>>,
    /// How the URLs serve.
    pub(super) mode: NodeMode,
    /// Whether balancers tie each connection to one node.
    ties: bool,
    /// When each block was last part of a view, in steps.
    pub(super) last_seen: Vec<u64>,
    /// Whether each block was ever rolled back.
    pub(super) taken_back: Vec<bool>,
    pub(super) transactions: u32,
    /// Rollbacks of the chain.
    pub(super) rollbacks: usize,
    /// Transactions that wait to be included again.
    pending: Vec<Included>,
}

impl World {
    pub(super) fn new(choices: &mut Chance) -> Self {
        let mut world = Self {
            chain: Vec::new(),
            urls: Vec::new(),
            mode: NodeMode::Failover,
            ties: false,
            last_seen: Vec::new(),
            taken_back: Vec::new(),
            transactions: 0,
            rollbacks: 0,
            pending: Vec::new(),
        };
        (0..10).for_each(|_| world.mine());
        let view = View {
            mode: Mode::Fresh,
            blocks: world.chain.clone(),
            version: "0.10",
        };
        let urls = 1 + choices.choose(3) as usize;
        world.urls = vec![vec![view.clone()]; urls];
        if once_in(choices, 2) {
            let nodes = 2 + choices.choose(2) as usize;
            let url = choices.choose(urls as u32) as usize;
            world.urls[url] = vec![view; nodes];
            world.ties = once_in(choices, 2);
        }
        if urls > 1 && once_in(choices, 2) {
            world.mode = NodeMode::Replicas;
            if once_in(choices, 4) {
                let other = &mut world.urls[urls - 1];
                other.iter_mut().for_each(|view| view.version = "0.9");
            }
        }
        world
    }

    /// Adds a block with a new transaction and all pending ones.
    pub(super) fn mine(&mut self) {
        let mut transactions = std::mem::take(&mut self.pending);
        transactions.push(Included {
            hash: self.transactions,
            claim: None,
        });
        self.transactions += 1;
        self.chain.push(Block {
            id: self.last_seen.len() as u32,
            transactions,
        });
        self.last_seen.push(0);
        self.taken_back.push(false);
    }

    /// Rolls back a few blocks. Their transactions return in the next block, or are gone.
    pub(super) fn roll_back(&mut self, choices: &mut Chance) {
        let count = (1 + choices.choose(4) as usize).min(self.chain.len() - 2);
        let returns = once_in(choices, 2);
        let keeps_numbers = once_in(choices, 2);
        let first = self.chain.len() - count;
        for (number, block) in (first as u64..).zip(self.chain.split_off(first)) {
            self.taken_back[block.id as usize] = true;
            let hashes = block.transactions.iter().map(|included| included.hash);
            let claim = keeps_numbers.then_some(number);
            let pending = hashes.map(|hash| Included { hash, claim });
            self.pending.extend(pending.filter(|_| returns));
        }
        self.rollbacks += 1;
        (0..choices.choose(5)).for_each(|_| self.mine());
    }

    /// Changes how a random node follows the chain.
    pub(super) fn disturb(&mut self, choices: &mut Chance) -> Mode {
        let url = choices.choose(self.urls.len() as u32) as usize;
        let node = choices.choose(self.urls[url].len() as u32) as usize;
        let mode = match choices.choose(7) {
            0 => Mode::Fresh,
            4 => Mode::Frozen,
            5 => Mode::Down,
            6 => Mode::Ahead,
            behind => Mode::Behind(behind as usize),
        };
        if mode == Mode::Ahead {
            let count = 1 + choices.choose(3) as usize;
            let nodes = self.urls.iter_mut().flatten();
            nodes.for_each(|view| view.mode = Mode::Behind(count));
        }
        self.urls[url][node].mode = mode;
        mode
    }

    pub(super) fn heal(&mut self) {
        self.urls
            .iter_mut()
            .flatten()
            .for_each(|view| view.mode = Mode::Fresh);
    }

    /// Lets the nodes follow the chain.
    pub(super) fn follow(&mut self, step: u64) {
        for view in self.urls.iter_mut().flatten() {
            match view.mode {
                Mode::Fresh | Mode::Ahead => view.blocks.clone_from(&self.chain),
                Mode::Behind(count) => {
                    let length = self.chain.len().saturating_sub(count).max(1);
                    view.blocks.clear();
                    view.blocks.extend_from_slice(&self.chain[..length]);
                }
                Mode::Frozen | Mode::Down => {}
            }
            for block in view.blocks.iter().filter(|_| view.mode != Mode::Down) {
                self.last_seen[block.id as usize] = step;
            }
        }
    }

    /// Whether a node has a block that was rolled back.
    pub(super) fn is_forked(&self) -> bool {
        let blocks = self.urls.iter().flatten().flat_map(|view| &view.blocks);
        blocks
            .into_iter()
            .any(|block| self.taken_back[block.id as usize])
    }

    /// Whether all nodes have the current chain.
    pub(super) fn is_fresh(&self) -> bool {
        self.urls
            .iter()
            .flatten()
            .all(|view| view.blocks == self.chain)
    }

    /// Whether the block of this identity, which some node has, lists the transaction.
    pub(super) fn has(&self, id: u32, hash: u32) -> bool {
        let views = self.urls.iter().flatten().map(|view| &view.blocks);
        let mut blocks = views.flatten().filter(|block| block.id == id);
        blocks
            .next()
            .is_some_and(|block| block.find(hash).is_some())
    }

    /// The number of the block of this identity, which the chain or some node has.
    pub(super) fn number_of(&self, id: u32) -> Option<u64> {
        let views = self.urls.iter().flatten().map(|view| &view.blocks);
        let mut chains = views.chain([&self.chain]);
        chains
            .find_map(|chain| chain.iter().position(|block| block.id == id))
            .map(|at| at as u64)
    }

    /// Draws the node of the URL that a new connection leads to.
    pub(super) fn connect(&self, url: usize, choices: &mut Chance) -> usize {
        let nodes = &self.urls[url];
        if nodes.len() > 1 {
            choices.choose(nodes.len() as u32) as usize
        } else {
            0
        }
    }

    /// The node that gets a request over a connection, which led to this one when it was opened.
    pub(super) fn lead(&self, url: usize, node: usize, choices: &mut Chance) -> usize {
        if self.ties {
            node
        } else {
            self.connect(url, choices)
        }
    }

    /// A node of the URL; `None` if it is down.
    pub(super) fn node(&self, url: usize, node: usize) -> Option<&View> {
        let view = self.urls[url].get(node)?;
        (view.mode != Mode::Down).then_some(view)
    }
}
