//! What the journal says once nothing has gone wrong for long.

use super::chain::Tx;
use super::world::{CONFIRMATIONS, World};
use crate::tables::DRIP;
use portcullis_filters::ledger::{Intent, IntentState};

/// After how many seconds a witness must have been found, once nothing goes wrong.
const WITNESSED: u64 = 90;

impl World {
    /// Whether a block that was settled long ago has another transaction with its nonce.
    fn has_witness(&self, intent: &Intent) -> bool {
        let view = self.chain.view();
        let deepest = view.head().number.saturating_sub(2 * CONFIRMATIONS as u64);
        let is_it = |tx: &Tx| {
            (tx.sender, tx.nonce) == (intent.signer, intent.nonce)
                && tx.hash != intent.transaction_hash
        };
        let latest = self.chain_time().saturating_sub(WITNESSED);
        let mut settled = (0..=deepest).filter_map(|number| view.block(number));
        settled.any(|block| block.timestamp < latest && block.txs.iter().any(|it| is_it(&it.tx)))
    }

    /// Once nothing has gone wrong for long.
    pub(super) fn judge_end(&mut self) {
        let judged = self.judged_end();
        self.oracle.report(judged);
    }

    fn judged_end(&self) -> Result<(), String> {
        let epoch = self.epoch();
        let of_epoch = || {
            self.journal
                .tables
                .intents
                .values()
                .filter(|it| it.epoch == epoch)
        };
        let view = self.chain.view();
        for intent in of_epoch() {
            let found = view.find(intent.transaction_hash);
            let is_gone = matches!(intent.state, IntentState::Displaced | IntentState::Lost);
            // signed anew on a chain that started over, it may be the same transaction
            let has_successor = of_epoch().any(|other| {
                other.transaction_hash == intent.transaction_hash && other.state.is_included()
            });
            if is_gone && found.is_some_and(|(_, block)| block.is_some()) && !has_successor {
                return Err(format!(
                    "rule 1: intent {} is back, and not noticed",
                    intent.id
                ));
            }
            if intent.state.is_unresolved() && !self.may_stay_open(intent.transaction_hash) {
                return Err(format!("progress: intent {} is still open", intent.id));
            }
            if intent.state == IntentState::Displaced && self.has_witness(intent) {
                return Err(format!(
                    "rule 3: intent {} is in doubt, and a settled block has its nonce",
                    intent.id
                ));
            }
        }
        let bindings = self.journal.tables.bindings.iter();
        for (_, pair) in bindings.filter(|(of, _)| *of == epoch) {
            let holds = |it: &Intent| {
                it.operation == DRIP && it.state.holds() && it.subject == Some(pair.recipient)
            };
            if !of_epoch().any(holds) {
                return Err(format!(
                    "money: nothing holds the binding of {}",
                    pair.recipient
                ));
            }
        }
        Ok(())
    }
}
