//! What the node's URLs showed to each relay, and which of its calls failed. The judge compares with
//! it what a relay concludes: only what a URL shows is evidence.

use super::machine::Process;
use super::world::World;
use portcullis_filters::felt::Felt;
use portcullis_filters::txm::io::{Called, JournalError, Stored};
use portcullis_filters::txm::node::{CallError, ListedBlock, Receipt, code};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// How many facts are remembered.
const MEMORY: usize = 20_000;

/// What a relay can blame for a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Failure {
    /// A call of the node had no answer.
    Node,
    /// The node answered a call with an error.
    Returned,
    /// A statement of the store failed.
    Store,
    /// A commit was not confirmed.
    Unconfirmed,
    /// The pins were not proven.
    Proof,
    /// The lock of an account was not granted.
    Lock,
    /// It had too many writes in flight.
    Full,
    /// There were no random bytes.
    Random,
    /// The nonce that it had read was not the next one when the fee was estimated.
    NonceMoved,
    /// A nonce that a transaction of the journal has was read as free.
    Behind,
}

/// A fact that a URL showed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fact {
    Head(u64),
    Block(u64, Option<ListedBlock>),
    Receipt(Felt, Option<Receipt>),
    /// It did not answer when it was asked for its head, or for a block.
    Silent,
    /// No URL has a say.
    NoUrl,
    /// It did not answer when it was asked for this receipt.
    NoReceipt(Felt),
    /// The chain's epoch, in a call that began then.
    Anchor(String, Duration),
    /// The next nonce of an account.
    Nonce(Felt, u64),
}

#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) at: Duration,
    pub(super) relay: Process,
    pub(super) url: usize,
    pub(super) fact: Fact,
    /// When the call began: the calls of one look begin together.
    pub(super) begun: Duration,
}

/// All of that.
#[derive(Default)]
pub(super) struct Record {
    shown: VecDeque<Shown>,
    failed: BTreeMap<(Process, Failure), Duration>,
    /// When the node last refused a transaction.
    refused: BTreeMap<Felt, Duration>,
    /// When a node last said to each relay that it has a transaction.
    confirmed: BTreeMap<(Process, Felt), Duration>,
    /// When each transaction reached the node.
    pub(super) delivered: BTreeMap<Felt, Vec<Duration>>,
}

impl Record {
    /// The facts since then, newest first.
    pub(super) fn since(&self, relay: Process, since: Duration) -> impl Iterator<Item = &Shown> {
        let recent = self.shown.iter().rev().take_while(move |it| it.at >= since);
        recent.filter(move |it| it.relay == relay)
    }

    /// The facts that any relay saw since then, newest first.
    pub(super) fn all_since(&self, since: Duration) -> impl Iterator<Item = &Shown> {
        self.shown.iter().rev().take_while(move |it| it.at >= since)
    }

    pub(super) fn has_failed(&self, relay: Process, failure: Failure, since: Duration) -> bool {
        let last = self.failed.get(&(relay, failure));
        last.is_some_and(|at| *at >= since)
    }

    /// Whether a node said to a relay since then that it has a transaction, or showed its receipt.
    pub(super) fn is_taken(&self, relay: Process, hash: Felt, since: Duration) -> bool {
        let confirmed = self.confirmed.get(&(relay, hash));
        let is_receipt = |fact: &Fact| matches!(fact, Fact::Receipt(of, Some(_)) if *of == hash);
        confirmed.is_some_and(|at| *at >= since)
            || self.since(relay, since).any(|it| is_receipt(&it.fact))
    }

    pub(super) fn was_refused(&self, hash: Felt, since: Duration) -> bool {
        self.refused.get(&hash).is_some_and(|at| *at >= since)
    }
}

impl World {
    /// Records what a URL showed to a relay.
    pub(super) fn show(&mut self, relay: Process, url: usize, fact: Fact, begun: Duration) {
        let at = self.now();
        let shown = &mut self.oracle.record.shown;
        if shown.len() == MEMORY {
            shown.pop_front();
        }
        shown.push_back(Shown {
            at,
            relay,
            url,
            fact,
            begun,
        });
    }

    pub(super) fn fail(&mut self, relay: Process, failure: Failure) {
        let now = self.now();
        self.oracle.record.failed.insert((relay, failure), now);
    }

    /// Records how a call of the node ended.
    pub(super) fn record_call<T>(&mut self, relay: Process, called: &Called<T>) {
        match called {
            Ok(_) => {}
            Err(CallError::Returned(error)) if error.is_of_chain() => {
                self.fail(relay, Failure::Returned);
            }
            Err(_) => self.fail(relay, Failure::Node),
        }
    }

    /// Records how a statement of the store ended.
    pub(super) fn record_query<T>(&mut self, relay: Process, stored: &Stored<T>) {
        match stored {
            Ok(_) => {}
            Err(JournalError::Unconfirmed) => self.fail(relay, Failure::Unconfirmed),
            Err(_) => self.fail(relay, Failure::Store),
        }
    }

    /// Records which nonce of an account was read.
    pub(super) fn record_nonce(
        &mut self,
        relay: Process,
        url: usize,
        account: Felt,
        nonce: &Called<u64>,
        begun: Duration,
    ) {
        let nonce = match nonce {
            Ok(nonce) => *nonce,
            // what is not deployed has used no nonce
            Err(CallError::Returned(error)) if error.code == code::CONTRACT_NOT_FOUND => 0,
            Err(_) => return,
        };
        let epoch = self.epoch();
        self.show(relay, url, Fact::Nonce(account, nonce), begun);
        let is_behind = self
            .journal
            .tables
            .of_epoch(&epoch)
            .any(|it| it.signer == account && it.nonce >= nonce && it.state.occupies());
        if is_behind {
            self.fail(relay, Failure::Behind);
        }
    }

    /// Records that a transaction reached the node.
    pub(super) fn record_delivery(&mut self, hash: Felt) {
        let now = self.now();
        let delivered = self.oracle.record.delivered.entry(hash).or_default();
        delivered.push(now);
    }

    /// Records the answer to a submission.
    pub(super) fn record_answer(&mut self, relay: Process, hash: Felt, added: &Called<Felt>) {
        let now = self.now();
        let is_taken = match added {
            Ok(taken) if *taken == hash => {
                self.note_undecided(relay, hash);
                true
            }
            Ok(_) => false,
            Err(CallError::Returned(error)) => {
                let answer = error.code;
                self.note(|| format!("{hash} is refused with {answer}"));
                if error.is_definite() {
                    self.oracle.record.refused.insert(hash, now);
                    self.oracle.notes.refused.insert((relay, hash), now);
                }
                if answer == code::DUPLICATE || !error.is_definite() {
                    self.note_undecided(relay, hash);
                }
                answer == code::DUPLICATE
            }
            Err(_) => false,
        };
        if is_taken {
            self.oracle.record.confirmed.insert((relay, hash), now);
        }
    }
}

/// What the answer to a request for a receipt shows.
pub(super) fn fact_of_receipt(hash: Felt, receipt: &Called<Option<Receipt>>) -> Fact {
    match receipt {
        Ok(receipt) => Fact::Receipt(hash, receipt.clone()),
        Err(_) => Fact::NoReceipt(hash),
    }
}

/// The URL of calls that any URL may serve.
pub(super) const SERVING: usize = usize::MAX;
