//! The background rounds of a relay: each looks for everything in doubt, whatever fails. Once nothing
//! goes wrong, each is short, and leaves nothing that is gone at the top.

use super::machine::Process;
use super::shown::{Fact, Failure};
use super::world::World;
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{Intent, IntentState};
use std::collections::BTreeSet;
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
        let judged = self.judge_passed(round);
        self.oracle.report(judged);
        if round.is_judged {
            let judged = self.judge_round(round, epoch);
            self.oracle.report(judged);
        }
    }

    fn has_failed(&self, round: Round) -> bool {
        let record = &self.oracle.record;
        let failures = [Failure::Node, Failure::Store, Failure::Unconfirmed];
        let mut failures = failures.into_iter();
        failures.any(|failure| record.has_failed(round.relay, failure, round.begun))
    }

    /// Rule 8: a round looks for everything in doubt, also after an error of another one.
    fn judge_passed(&self, round: Round) -> Result<(), String> {
        let took = self.now().saturating_sub(round.begun);
        if took > LONGEST || self.acts_late(round.relay, took) {
            return Ok(());
        }
        let Some(looked) = self.looked_for(round) else {
            return Ok(());
        };
        let page = self.oracle.notes.pages.get(&round.relay);
        let page = page.into_iter().flatten();
        let intents = &self.journal.tables.intents;
        for intent in page.filter_map(|id| intents.get(id)) {
            if !looked.contains(&intent.transaction_hash) {
                return Err(format!(
                    "rule 8: a round did not look for intent {}, which is in doubt",
                    intent.id
                ));
            }
            self.judge_watched(round, intent, &looked)?;
        }
        Ok(())
    }

    /// The transactions that a round looked for; `None` if no URL had a say.
    fn looked_for(&self, round: Round) -> Option<BTreeSet<Felt>> {
        let mut looked = BTreeSet::new();
        for it in self.oracle.record.since(round.relay, round.begun) {
            match &it.fact {
                Fact::Receipt(hash, _) | Fact::NoReceipt(hash) => looked.insert(*hash),
                Fact::NoUrl => return None,
                _ => continue,
            };
        }
        Some(looked)
    }

    /// Rule 3: a round looks whether another of ours, which has the nonce of one in doubt, is still in
    /// its block. If newer ones are in theirs, nothing else does.
    fn judge_watched(
        &self,
        round: Round,
        intent: &Intent,
        looked: &BTreeSet<Felt>,
    ) -> Result<(), String> {
        let Round { relay, begun, .. } = round;
        let record = &self.oracle.record;
        let nonces = record.since(relay, begun).filter_map(|it| match it.fact {
            Fact::Nonce(of, next) if of == intent.signer => Some(next),
            _ => None,
        });
        let lowest = nonces.min();
        let is_used = lowest.is_some_and(|next| next > intent.nonce);
        let has_failed =
            self.has_failed(round) || record.has_failed(relay, Failure::Returned, begun);
        if intent.state != IntentState::Displaced || !is_used || has_failed {
            return Ok(());
        }
        let included = &self.oracle.notes.included;
        let mut of_epoch = self.journal.tables.of_epoch(&intent.epoch);
        let unwatched = of_epoch.find(|it| {
            it.slot() == intent.slot()
                && it.state.is_included()
                && included.get(&it.id).is_some_and(|at| *at < begun)
                && !looked.contains(&it.transaction_hash)
        });
        match unwatched {
            Some(witness) => Err(format!(
                "rule 3: a round did not look for intent {}, the witness against intent {}",
                witness.id, intent.id
            )),
            None => Ok(()),
        }
    }

    fn judge_round(&self, round: Round, epoch: &str) -> Result<(), String> {
        if self.has_failed(round) {
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
