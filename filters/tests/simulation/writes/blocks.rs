//! What happens to the chain: blocks, rollbacks, strangers, and another first block.

use super::chain::{Action, Taking, Tx, felt};
use super::config::is_own;
use super::machine::HasAgenda as _;
use super::node::SELDOM;
use super::urls::{Mode, Url};
use super::world::{CONFIRMATIONS, Fault, World};
use portcullis_filters::felt::Felt;
use std::time::Duration;

/// How long pins do not hold with a transaction that is gone at once.
const UNPROVEN: Duration = Duration::from_secs(12);

/// The blocks of a rollback from which on a stranger may use a nonce in a block below the head with
/// which a transaction was signed.
const OVERTAKEN: usize = 3;

impl World {
    /// Closes a block, and lets happen to the chain what happens about once a block.
    pub(super) fn close_block(&mut self) {
        let time = self.chain_time();
        self.chain.close_block(time);
        self.other.close_block(time);
        self.note_heads();
        if self.fires(Fault::Rollback, self.regime.rollback_one_in()) {
            let depth = 1 + self.chance.choose(self.regime.deepest()) as usize;
            self.roll_back(depth);
        }
        if self.fires(Fault::Genesis, 150) {
            self.start_over(self.chain.genesis + 1);
        }
        if self.regime.is_deep && self.fires(Fault::SameGenesis, 100) {
            self.start_over(self.chain.genesis);
        }
        if self.fires(Fault::Stranger, 60) {
            let accounts = super::requests::PINS.accounts;
            let faucet = accounts.faucet.unwrap_or(accounts.owner);
            let senders = [accounts.owner, accounts.verifier, faucet];
            let sender = self.chance.pick(&senders);
            self.use_nonce(sender);
        }
        for url in 0..self.urls.len() {
            self.change_mode(url);
        }
        let is_mixed = |url: &Url| matches!(url.mode, Mode::TwoChains);
        if self.urls.iter().any(is_mixed) {
            self.other_shown = Some(self.now());
        }
        if self
            .urls
            .iter()
            .any(|url| url.shows_former(self.chain.genesis))
        {
            self.oracle.former_shown = Some(self.now());
        }
        if self.judges_money() {
            let (chain, journal) = (&self.chain, &self.journal);
            let broken = self.oracle.after_block(chain, journal, self.limits);
            self.oracle.report(broken);
        }
    }

    /// A stranger has the key of an account, and uses its next nonce.
    pub(super) fn use_nonce(&mut self, sender: Felt) {
        let nonce = self.chain.nonce(sender);
        let tx = Tx {
            hash: felt(1 << 60 | self.ticket()),
            sender,
            nonce,
            action: Action::Other,
        };
        let replaces = Taking {
            replaces: true,
            ..Taking::default()
        };
        let _added = self.chain.add(tx, replaces);
        self.note(|| format!("a stranger uses nonce {nonce} of {sender}"));
    }

    pub(super) fn start_over(&mut self, genesis: u64) {
        let (now, time) = (self.now(), self.chain_time());
        self.chain.restart(genesis, now, time);
        self.oracle.former_shown = Some(now);
        self.oracle.notes.unsettled = Some(now);
        self.note(|| format!("the chain starts over as g{genesis}"));
        self.ask_again();
    }

    pub(super) fn roll_back(&mut self, depth: usize) {
        let now = self.now();
        if depth > CONFIRMATIONS {
            self.count(Fault::DeepRollback);
        }
        if self.regime.is_often {
            self.count(Fault::OftenRollback);
        }
        let gone = self.chain.roll_back(depth, now);
        self.oracle.notes.unsettled = Some(now);
        self.note(|| format!("a rollback of {depth} blocks"));
        if depth >= OVERTAKEN {
            self.overtake(&gone);
        }
        let returns = self.fires(Fault::Returns, 2);
        for tx in gone {
            if returns && self.chance.choose(5) != 0 {
                let late = self.millis(1, 8_000);
                self.agenda().after(late, move |world: &mut Self| {
                    let taking = Taking {
                        is_unlucky: world.reverts(tx.hash, SELDOM),
                        ..Taking::default()
                    };
                    if world.chain.add(tx, taking).is_ok() {
                        world.note(|| format!("{} returns", tx.hash));
                    }
                });
            }
        }
    }

    /// A stranger may use a nonce of ours that the chain has just lost.
    fn overtake(&mut self, gone: &[Tx]) {
        let mut own: Vec<Felt> = gone.iter().map(|tx| tx.sender).collect();
        own.retain(|sender| is_own(*sender));
        if !own.is_empty() && self.fires(Fault::Stranger, 2) {
            let sender = self.chance.pick(&own);
            self.use_nonce(sender);
        }
    }

    /// The newest block has a transaction whose receipt is read for the first time: it may be gone
    /// before its effect is read.
    pub(super) fn may_be_gone_at_once(&mut self, hash: Felt) {
        if self.receipts_read.insert(hash) && self.fires(Fault::GoneAtOnce, 16) {
            let soon = self.millis(1, 30);
            let fails_pins = self.chance.choose(2) == 1;
            self.agenda().after(soon, move |world: &mut Self| {
                world.roll_back(1);
                if fails_pins {
                    world.fail_pins(UNPROVEN);
                }
            });
        }
    }
}
