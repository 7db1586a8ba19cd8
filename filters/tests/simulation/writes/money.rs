//! Money: cooldowns, bindings and budgets, on the chain that survives and whenever a drip is stored.

use super::chain::{Action, Chain, SELECTORS, State};
use super::config::Limits;
use super::journal::Journal;
use super::oracle::Oracle;
use super::world::World;
use crate::tables::{DRIP, pair_of};
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::{DAY_US, Intent, IntentState, MINUTE_US, Pair, gfri, minutes};
use portcullis_filters::operations::FaucetDrip;
use portcullis_filters::window::Window;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl Oracle {
    /// Money, on the chain that survives.
    pub(super) fn after_block(
        &mut self,
        chain: &Chain,
        journal: &Journal,
        limits: Limits,
    ) -> Result<(), String> {
        let epoch = format!("g{}", chain.genesis);
        let mut paid: BTreeMap<Felt, Vec<i64>> = BTreeMap::new();
        let mut pairs: BTreeMap<Felt, Felt> = BTreeMap::new();
        let drips = || {
            journal
                .tables
                .intents
                .values()
                .filter(|it| it.operation == DRIP)
        };
        let known: BTreeSet<Felt> = drips().map(|it| it.transaction_hash).collect();
        let of_epoch = drips().filter(|it| it.epoch == epoch);
        let of_epoch: BTreeMap<Felt, &Intent> =
            of_epoch.map(|it| (it.transaction_hash, it)).collect();
        for tx in chain
            .successes()
            .filter(|tx| matches!(tx.action, Action::Drip { .. }))
        {
            if !known.contains(&tx.hash) {
                return Err(format!("durable: drip {} has no intent", tx.hash));
            }
            // one that was under way when the chain started over counts in no epoch: nothing of the
            // former one is in force (`judge_add` bounds how long that may take)
            let Some(intent) = of_epoch.get(&tx.hash) else {
                continue;
            };
            let Some(recipient) = intent.subject else {
                continue;
            };
            // while it was reverted, it forbade no other one
            if chain.seen.get(&tx.hash).is_some_and(|seen| seen.reverted) {
                continue;
            }
            // after its new date, the next one may be nearer to its old one
            if !journal.dated.contains(&intent.id) {
                paid.entry(recipient).or_default().push(intent.created_us);
            }
            if let Some(identity) = intent.identity
                && *pairs.entry(identity).or_insert(recipient) != recipient
            {
                let drips: Vec<_> = of_epoch
                    .values()
                    .filter(|it| it.identity == Some(identity))
                    .map(|it| (it.id.0, it.signer, it.nonce, it.state, it.subject))
                    .collect();
                return Err(format!(
                    "money: identity {identity} was paid to two recipients: {drips:?}"
                ));
            }
        }
        // a transaction may be stored again, and refused, after its first intent was lost, or was of
        // another epoch
        let mut rejected = BTreeMap::new();
        for intent in journal.tables.intents.values() {
            let is_rejected = rejected.entry(intent.transaction_hash).or_insert(true);
            *is_rejected &= intent.state == IntentState::Rejected;
        }
        if let Some(tx) = chain
            .successes()
            .find(|tx| rejected.get(&tx.hash) == Some(&true))
        {
            return Err(format!("rule 4: {} is rejected, and was sent", tx.hash));
        }
        let cooldown = i64::try_from(limits.cooldown.as_micros()).expect("it is short");
        for (recipient, mut times) in paid {
            times.sort_unstable();
            if times.windows(2).any(|pair| pair[1] - pair[0] < cooldown) {
                return Err(format!("money: {recipient} was paid twice: {times:?}"));
            }
        }
        Ok(())
    }
}

/// Whether the registry permits a drip: it binds neither its identity nor its recipient elsewhere, or
/// the identity is being recovered to the recipient.
pub(super) fn registry_permits(drip: &FaucetDrip, state: &State) -> bool {
    let first = |selector, arg| state.call(selector, &[arg])[0];
    let registered = first(SELECTORS.account_of, drip.identity);
    let bound = first(SELECTORS.identity_of, drip.recipient);
    let is_elsewhere = registered != Felt::ZERO && registered != drip.recipient;
    let is_recovery = first(SELECTORS.recovery_of, drip.identity) == drip.recipient;
    let is_other = bound != Felt::ZERO && bound != drip.identity;
    registered == drip.recipient || (!is_elsewhere || is_recovery) && !is_other
}

/// How long a write may take after its relay has read that a drip is permitted.
const PERMITTED: Duration = Duration::from_secs(60);

impl World {
    /// The fees of a day are within the loosest budget that was in force.
    pub(super) fn judge_fees(&self, new: &Intent) -> Result<(), String> {
        let Some(limit) = self.limits.fees else {
            return Ok(());
        };
        let [first, last] = minutes(Window::new(new.created_us, DAY_US));
        let is_counted = |it: &&Intent| {
            let minute = it.created_us.div_euclid(MINUTE_US);
            it.epoch == new.epoch
                && it.state.holds()
                && (first..=last).contains(&minute)
                && (it.slot() != new.slot() || it.id == new.id)
        };
        let counted = self.journal.tables.intents.values().filter(is_counted);
        let spent: i64 = counted.map(|it| it.fee_gfri).sum();
        if new.fee_gfri > 0 && spent > gfri(limit) {
            return Err(format!("money: {spent} gfri of fees within a day"));
        }
        Ok(())
    }

    /// A drip in doubt binds its identity and its recipient, except within its slot.
    pub(super) fn judge_pair(&self, new: &Intent) -> Result<(), String> {
        let Some(pair) = pair_of(new).filter(|_| new.operation == DRIP) else {
            return Ok(());
        };
        let excludes = |other: Pair| {
            other != pair && (other.identity == pair.identity || other.recipient == pair.recipient)
        };
        let mut of_epoch = self.journal.tables.of_epoch(&new.epoch);
        let binds = |it: &&Intent| {
            it.operation == DRIP
                && it.state == IntentState::Displaced
                && it.slot() != new.slot()
                && pair_of(it).is_some_and(excludes)
        };
        match of_epoch.find(binds) {
            Some(other) => Err(format!(
                "money: drip {} binds what drip {}, in doubt, may bind again",
                new.id, other.id
            )),
            None => Ok(()),
        }
    }

    /// No drip is stored that the registry has forbidden for long.
    pub(super) fn judge_registry(&self, new: &Intent) -> Result<(), String> {
        if new.operation != DRIP {
            return Ok(());
        }
        let since = self.now().saturating_sub(PERMITTED);
        let last = self.oracle.notes.permitted.get(&new.digest).copied();
        // a relay that was paused has read it before
        let relay = self.oracle.notes.stored_by.get(&new.id);
        let is_late = relay.is_some_and(|relay| self.acts_late(*relay, PERMITTED));
        if last.unwrap_or_default() >= since || is_late {
            return Ok(());
        }
        Err(format!(
            "money: drip {} is stored, and the registry binds its identity or its recipient elsewhere",
            new.id
        ))
    }
}
