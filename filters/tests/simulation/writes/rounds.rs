//! The background rounds of a relay once nothing goes wrong: each is short, and leaves nothing that
//! is gone at the top.

use super::machine::Process;
use super::shown::Failure;
use super::world::World;
use portcullis_filters::ledger::Intent;
use std::time::Duration;

/// How long a round may take if every call is answered: it waits for no receipt.
const LONGEST: Duration = Duration::from_secs(9);

/// A round that has begun.
#[derive(Clone, Copy, Debug)]
pub(super) struct Round {
    relay: Process,
    begun: Duration,
    /// Nothing goes wrong any longer.
    is_judged: bool,
}

impl World {
    pub(super) fn begin_round(&self, relay: Process) -> Round {
        Round {
            relay,
            begun: self.now(),
            is_judged: self.is_healed,
        }
    }

    /// A round is over.
    pub(super) fn end_round(&mut self, round: Round, epoch: &str) {
        if !round.is_judged {
            return;
        }
        let judged = self.judge_round(round, epoch);
        self.oracle.report(judged);
    }

    fn judge_round(&self, round: Round, epoch: &str) -> Result<(), String> {
        let has_failed = |failure| {
            let record = &self.oracle.record;
            record.has_failed(round.relay, failure, round.begun)
        };
        let failures = [Failure::Node, Failure::Store, Failure::Unconfirmed];
        if failures.into_iter().any(has_failed) {
            return Ok(());
        }
        let took = self.now() - round.begun;
        if took > LONGEST {
            return Err(format!("rule 8: a round took {took:?}, without a failure"));
        }
        self.judge_newest(round, epoch)
    }

    /// Rule 2: after the chain has lost blocks, a round looks at the newest included intents until
    /// the chain has one.
    fn judge_newest(&self, round: Round, epoch: &str) -> Result<(), String> {
        if self.fell.is_none_or(|at| at > round.begun) {
            return Ok(());
        }
        let is_included = |it: &Intent| it.state.is_included() && it.included.is_some();
        let newest = self.journal.included_newest(epoch, 1);
        let view = self.chain.view();
        match newest.iter().find(|it| is_included(it)) {
            Some(newest) if view.find(newest.transaction_hash).is_none() => Err(format!(
                "rule 2: intent {} is gone, and a round left it as the newest included one",
                newest.id
            )),
            _ => Ok(()),
        }
    }
}
