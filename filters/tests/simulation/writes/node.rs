//! How the node treats a transaction that is submitted: whether it takes it, and what it answers.
//! The two are independent: a refusal of a second delivery says nothing about the first.

use super::SETTLING;
use super::chain::{Refused, Taking, Tx, felt};
use super::config::is_own;
use super::io::{no_answer, returned, unreachable};
use super::machine::{HasAgenda as _, Process};
use super::urls::Mode;
use super::world::{Fault, World};
use crate::toolkit::Chance;
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::IntentState;
use portcullis_filters::txm::io::Called;
use portcullis_filters::txm::node::{CallError, code};
use portcullis_filters::verdict::{Reason, Refusal};
use std::time::Duration;

/// The codes of definite refusals, without that of a duplicate: a node that says so has it.
const REFUSALS: [i64; 24] = [
    55, 50, 51, 52, 53, 54, 56, 57, 58, 60, 61, 62, 64, 65, 66, 67, 68, 69, -1, -32604, -32602,
    -32601, -32600, -32700,
];

/// An answer that does not depend on what the node did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Said {
    Code(i64),
    /// A status from 500 on.
    Status,
    /// A body that is too large.
    TooLarge,
    /// A result of another form.
    Malformed,
    /// The hash of another transaction.
    OtherHash,
}

/// Answers that decide nothing.
const UNDECIDED: [Said; 5] = [
    Said::Code(63),
    Said::Code(-32603),
    Said::Status,
    Said::Code(-32000),
    Said::Code(-32005),
];

/// Answers to the second delivery of a transaction.
const SECOND: [Said; 8] = [
    Said::Code(52),
    Said::Code(55),
    Said::Code(59),
    Said::Code(53),
    Said::Code(54),
    Said::Code(-32603),
    Said::Code(63),
    Said::Status,
];

impl Said {
    fn called(self) -> Called<Felt> {
        match self {
            Self::Code(code) => returned(code),
            Self::Status => unanswered("status"),
            Self::TooLarge => unanswered("oversized"),
            Self::Malformed => Err(CallError::MalformedAnswer),
            Self::OtherHash => Ok(felt(0x123)),
        }
    }
}

/// One of this many transactions reverts; and of those that are taken without a true answer, which are
/// few.
pub(super) const SELDOM: u32 = 30;
const OFTEN: u32 = 3;

/// The longest pause between two background resends of a transaction, and a round.
const RESENT: Duration = Duration::from_secs(310);

pub(super) fn unanswered<T>(cause: &'static str) -> Called<T> {
    let refusal = Refusal::new(
        Reason::UpstreamUnreachable,
        "the node's answer is no answer",
    );
    Err(CallError::NoAnswer {
        cause,
        is_unsent: false,
        refusal,
    })
}

/// How the node treats a transaction whenever it is submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fate {
    Plain,
    /// It is always answered with this, and taken or not.
    Undecided {
        said: Said,
        is_taken: bool,
    },
    /// It stays in the mempool for this long, or for ever, and is included or evicted then.
    Held {
        time: Option<Duration>,
        is_evicted: bool,
    },
}

/// How the nodes of this chain speak.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Dialect {
    /// A transaction that a block has is refused for its nonce, not as a duplicate.
    used_for_included: bool,
    /// Nonces above the next one are taken.
    keeps_ahead: bool,
    /// A transaction replaces another one with its nonce in the mempool.
    replaces: bool,
    /// For how many blocks the price of gas stays the same.
    pub(super) price_blocks: u64,
    /// Each transaction gets a block of its own at once.
    is_instant: bool,
}

impl Dialect {
    /// Leaves what these faults permit.
    pub(super) fn restrict(&mut self, enabled: &[Fault]) {
        self.used_for_included &= enabled.contains(&Fault::UsedForIncluded);
        self.keeps_ahead &= enabled.contains(&Fault::NonceAhead);
        self.replaces &= enabled.contains(&Fault::Replaced);
    }

    pub(super) fn drawn(chance: &mut Chance, enabled: &[Fault]) -> Self {
        let mut is = |fault| chance.choose(2) == 1 && enabled.contains(&fault);
        Self {
            used_for_included: is(Fault::UsedForIncluded),
            keeps_ahead: is(Fault::NonceAhead),
            replaces: is(Fault::Replaced),
            price_blocks: chance.pick(&[1, u64::MAX]),
            is_instant: chance.choose(4) == 3,
        }
    }
}

impl World {
    /// Delivers a transaction to the node, sometimes twice: then either answer comes back.
    pub(super) fn deliver(&mut self, relay: Process, tx: Tx) -> Called<Felt> {
        let first = self.deliver_once(relay, tx);
        if !self.fires(Fault::Twice, 30) {
            return first;
        }
        // a balancer passes on what one node said about what another one has
        let has_it = first.is_ok() && self.oracle.taken.contains(&tx.hash);
        let second = if !has_it || self.chance.choose(3) == 0 {
            self.deliver_once(relay, tx)
        } else {
            self.chance.pick(&SECOND).called()
        };
        self.note(|| format!("{} is delivered twice: {first:?}, {second:?}", tx.hash));
        if self.chance.choose(3) == 2 {
            first
        } else {
            second
        }
    }

    fn deliver_once(&mut self, relay: Process, tx: Tx) -> Called<Felt> {
        let Some(url) = self.serving(relay) else {
            return unreachable();
        };
        // a node of another chain does not forward to this one
        let of_chain = self.chain.genesis;
        let Some(view) = self.view(url) else {
            return unreachable();
        };
        if view.genesis != of_chain {
            return self.deliver_elsewhere(tx);
        }
        self.judge_add(relay, &tx);
        let overtaken = if self.is_in_doubt(&tx) {
            4
        } else if self.is_repeat(&tx) {
            8
        } else {
            60
        };
        if is_own(tx.sender) && self.fires(Fault::Overtaken, overtaken) {
            self.use_nonce(tx.sender);
            // the node may refuse a new one for another reason, or not even say that the nonce is used
            if !self.is_repeat(&tx) && self.fires(Fault::AddRefused, 2) {
                return returned(self.chance.pick(&REFUSALS));
            }
            if self.fires(Fault::Undecided, 2) {
                return self.chance.pick(&UNDECIDED).called();
            }
        }
        let fate = self.fate(&tx);
        if let Fate::Undecided { said, is_taken } = fate {
            if is_taken {
                let _taken = self.take(tx, fate, OFTEN);
            }
            self.note(|| format!("{} is answered {said:?}, as always", tx.hash));
            return said.called();
        }
        if self.fires(Fault::AddRefused, 50) {
            let code = self.chance.pick(&REFUSALS);
            self.note(|| format!("{} is refused: {code}", tx.hash));
            return returned(code);
        }
        let next = view.state().nonce(tx.sender);
        let is_ahead = self.dialect.keeps_ahead && tx.nonce > next;
        if view.pending.is_none() && next != tx.nonce && !is_ahead {
            return returned(code::INVALID_NONCE);
        }
        let said = if matches!(self.urls[url].mode, Mode::Mute) {
            Some(no_answer())
        } else {
            self.misreported(&tx)
        };
        let reverts = if said.is_some() { OFTEN } else { SELDOM };
        let taken = self.take(tx, fate, reverts);
        said.unwrap_or(taken)
    }

    /// A node of another chain answers: it may take the transaction, too.
    fn deliver_elsewhere(&mut self, tx: Tx) -> Called<Felt> {
        let ways = [
            None,
            Some(code::INVALID_NONCE),
            Some(code::VALIDATION_FAILURE),
        ];
        let ways = if self.permits(Fault::TwoChains) {
            &ways[..]
        } else {
            return unreachable();
        };
        let refused = self.chance.pick(ways);
        self.note(|| format!("{} reaches another chain: {refused:?}", tx.hash));
        match refused {
            Some(code) => returned(code),
            None => {
                self.oracle.taken.insert(tx.hash);
                Ok(tx.hash)
            }
        }
    }

    /// Whether the relays have a transaction in doubt.
    fn is_in_doubt(&self, tx: &Tx) -> bool {
        let newest = self.newest_of(tx.hash);
        newest.is_some_and(|it| it.state == IntentState::Displaced)
    }

    /// Whether a transaction has reached the node before.
    fn is_repeat(&self, tx: &Tx) -> bool {
        let delivered = self.oracle.record.delivered.get(&tx.hash);
        delivered.is_some_and(|times| times.len() > 1)
    }

    /// An answer that has nothing to do with what the node did.
    fn misreported(&mut self, tx: &Tx) -> Option<Called<Felt>> {
        let is_repeat = self.is_repeat(tx);
        let said = if self.fires(Fault::OtherHash, if is_repeat { 12 } else { 150 }) {
            Said::OtherHash
        } else if self.fires(Fault::BadAnswer, 150) {
            self.chance.pick(&[Said::Malformed, Said::TooLarge])
        } else if self.fires(Fault::Undecided, if is_repeat { 20 } else { 100 }) {
            self.chance.pick(&UNDECIDED)
        } else {
            return None;
        };
        self.note(|| format!("{} is answered {said:?}", tx.hash));
        Some(said.called())
    }

    /// The node takes a transaction, of which one in `reverts` reverts, or refuses it.
    fn take(&mut self, tx: Tx, fate: Fate, reverts: u32) -> Called<Felt> {
        let is_ahead = tx.nonce > self.chain.nonce(tx.sender);
        let taking = Taking {
            is_unlucky: self.reverts(tx.hash, reverts),
            is_held: matches!(fate, Fate::Held { .. }),
            keeps_ahead: self.dialect.keeps_ahead,
            replaces: self.dialect.replaces,
        };
        let is_other = self.chain.has_other(&tx);
        match self.chain.add(tx, taking) {
            Ok(()) => {
                self.oracle.taken.insert(tx.hash);
                if self.dialect.is_instant {
                    let soon = self.millis(0, 5);
                    self.agenda().after(soon, Self::close_block);
                }
                if is_ahead {
                    self.count(Fault::NonceAhead);
                }
                if is_other {
                    self.count(Fault::Replaced);
                    self.note(|| format!("{} replaces another one in the mempool", tx.hash));
                }
                self.hold(tx, fate);
                Ok(tx.hash)
            }
            Err(Refused::Duplicate) => returned(code::DUPLICATE),
            Err(Refused::Included) if self.dialect.used_for_included => {
                self.count(Fault::UsedForIncluded);
                returned(code::INVALID_NONCE)
            }
            Err(Refused::Included) => returned(code::DUPLICATE),
            Err(Refused::Nonce) => returned(code::INVALID_NONCE),
            Err(Refused::NotDeployed) => returned(code::VALIDATION_FAILURE),
        }
    }

    /// Lets a held transaction go later.
    fn hold(&mut self, tx: Tx, fate: Fate) {
        let Fate::Held { time, is_evicted } = fate else {
            return;
        };
        self.note(|| format!("{} stays in the mempool for {time:?}", tx.hash));
        let Some(time) = time else { return };
        self.agenda().after(time, move |world: &mut Self| {
            if !world.chain.holds(&tx) {
                return;
            }
            if is_evicted {
                world.count(Fault::Evicted);
            }
            world.chain.let_go(&tx, is_evicted);
            world.note(|| format!("{} leaves the mempool, evicted: {is_evicted}", tx.hash));
        });
    }

    /// A transaction about which the node decides nothing, whenever it is submitted.
    pub(super) fn undecided(&mut self) -> Fate {
        Fate::Undecided {
            said: self.chance.pick(&UNDECIDED[..3]),
            is_taken: self.chance.choose(4) == 3,
        }
    }

    /// How the node treats a transaction; drawn once.
    fn fate(&mut self, tx: &Tx) -> Fate {
        let is_own = is_own(tx.sender);
        if let Some(fate) = self.fates.get(&tx.hash).copied() {
            let is_over = is_own && self.is_healed && matches!(fate, Fate::Held { .. });
            return if is_over { Fate::Plain } else { fate };
        }
        let fate = if let Some(time) = self.held_next.remove(&tx.sender) {
            Fate::Held {
                time: Some(time),
                is_evicted: false,
            }
        } else if self.fires(Fault::UndecidedForEver, 60) {
            self.undecided()
        } else if self.fires(Fault::Held, 40) {
            // an account of ours could never write again if it were for ever
            let is_for_ever = self.chance.choose(3) == 2 && !is_own;
            let time = self.millis(1_000, 120_000);
            Fate::Held {
                time: (!is_for_ever).then_some(time),
                is_evicted: self.permits(Fault::Evicted) && self.chance.choose(2) == 1,
            }
        } else {
            Fate::Plain
        };
        self.fates.insert(tx.hash, fate);
        fate
    }

    /// Nothing of our accounts stays in the mempool any longer.
    pub(super) fn let_go_of_own(&mut self) {
        let held: Vec<Tx> = self.signed.values().copied().collect();
        for tx in held.iter().filter(|tx| is_own(tx.sender)) {
            if self.chain.holds(tx) {
                let is_evicted = self.chance.choose(2) == 1;
                self.chain.let_go(tx, is_evicted);
            }
        }
    }

    /// Whether nothing may have decided about a transaction yet: the node never does, has it in its
    /// mempool until a lower nonce is used, or has lost it since it was sent last.
    pub(super) fn may_stay_open(&self, hash: Felt) -> bool {
        let Some(tx) = self.signed.get(&hash) else {
            return false;
        };
        let has_gap_below = self.chain.nonce(tx.sender) < tx.nonce;
        let sent = self.oracle.record.delivered.get(&hash);
        let is_to_be_sent = sent.and_then(|times| times.last()).is_some_and(|last| {
            let due = *last + RESENT;
            *last + SETTLING < self.now() && self.now() < due
        });
        if is_to_be_sent && self.chain.view().find(hash).is_none() {
            return true;
        }
        match self.fates.get(&hash) {
            Some(Fate::Undecided { .. }) => true,
            Some(Fate::Held { .. }) => !is_own(tx.sender) || has_gap_below,
            _ => self.chain.is_pooled(tx),
        }
    }
}
