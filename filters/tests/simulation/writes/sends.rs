//! What a relay may send, and when: what is stored, to the chain that it is meant for, with a nonce
//! that is free, and no faster than rule 8 says.

use super::chain::Tx;
use super::config::is_own;
use super::machine::Process;
use super::oracle::{CHECK, CHECKED, LAG, LOOK, RECENT, RESENT, TIMEOUT};
use super::rules::Case;
use super::shown::{Fact, Failure};
use super::world::World;
use portcullis_filters::felt::Felt;
use portcullis_filters::ledger::IntentState;
use std::collections::BTreeSet;
use std::time::Duration;

impl World {
    /// A relay sends for an account while it has locked that; and the chain was checked.
    pub(super) fn judge_send(&mut self, relay: Process, tx: &Tx) {
        let holder = self.locks.get(&tx.sender).and_then(|lock| lock.holder);
        let is_other = holder.is_none_or(|(holder, _)| holder != relay);
        // one that was paused does not know that it has lost the lock, which it checked before
        let lost = self.since(self.oracle.locks_lost);
        let is_lost = lost <= 2 * LAG || lost < Duration::MAX && self.acts_late(relay, CHECKED);
        // one that was started with other pins repeats what is open as it does for users
        let process = self.relays[relay].io.as_ref();
        let signs = process.is_some_and(|io| io.pins.signs_with(tx.sender));
        if is_other && is_own(tx.sender) && signs && !is_lost {
            let broken = format!(
                "locks: relay {relay} sends {}, and its account is locked by {holder:?}",
                tx.hash
            );
            self.oracle.report(Err(broken));
        }
        let broken = self.judge_checked(relay, tx.hash);
        self.oracle.report(broken);
        let broken = self.judge_resent(relay, tx.hash);
        self.oracle.report(broken);
        let sends = self.oracle.sends.entry((relay, tx.sender)).or_default();
        // lower ones are sent before it, which takes long
        let last = sends.range(..tx.nonce).map(|(_, at)| *at).max();
        sends.insert(tx.nonce, self.agenda.now);
        for broken in [
            self.judge_doubtful(relay, tx),
            self.judge_open(relay, tx),
            self.judge_beside(relay, tx, last),
            self.judge_pace(relay, tx),
        ] {
            self.oracle.report(broken);
        }
        let mut intents = self.journal.tables.intents.values();
        if intents.any(|it| it.transaction_hash == tx.hash && it.state == IntentState::Displaced) {
            self.met(Case::SentAgain);
        }
        self.note(|| {
            format!(
                "relay {relay} sends {} with nonce {}: {:?}",
                tx.hash, tx.nonce, tx.action
            )
        });
    }

    /// Rule 7: the chain was seen to be that of the intent at most ten seconds before.
    fn judge_checked(&self, relay: Process, hash: Felt) -> Result<(), String> {
        let since = self.now().saturating_sub(CHECK);
        let mut shown = self.oracle.record.since(relay, since);
        let intents = self.journal.tables.intents.values();
        let epochs: BTreeSet<&str> = intents
            .filter(|it| it.transaction_hash == hash)
            .map(|it| it.epoch.as_str())
            .collect();
        let is_it = |fact: &Fact| {
            matches!(fact, Fact::Anchor(epoch, begun)
                if epochs.contains(epoch.as_str()) && *begun >= since)
        };
        // one that is not stored is judged when it reaches the node
        if epochs.is_empty() || shown.any(|it| is_it(&it.fact)) {
            return Ok(());
        }
        Err(format!(
            "rule 7: {hash} is sent, and the chain was not checked"
        ))
    }

    /// Rule 8: what is open is not sent again within ten seconds.
    fn judge_resent(&mut self, relay: Process, hash: Felt) -> Result<(), String> {
        // an earlier intent of a user's transaction may be of another epoch
        let mut newest = self.journal.tables.intents.values().rev();
        let Some(intent) = newest.find(|it| it.transaction_hash == hash) else {
            return Ok(());
        };
        let (id, is_again) = (intent.id, intent.is_sent_again());
        let times = self.oracle.times.entry((relay, id)).or_default();
        *times += 1;
        // what it sends first it may have taken for open, and have sent again, before
        let is_first = *times <= 2;
        if !is_again {
            return Ok(());
        }
        let now = self.now();
        let last = self.oracle.resent.insert((relay, id), now);
        // its check of the chain may have delayed the one before
        let record = &self.oracle.record;
        let was_slow =
            |last: Duration| record.has_failed(relay, Failure::Node, last.saturating_sub(LOOK));
        if last.is_some_and(|last| now < last + RESENT && !was_slow(last)) && !is_first {
            return Err(format!("rule 8: {hash} is sent again within ten seconds"));
        }
        Ok(())
    }

    /// Rule 5: what is in doubt is sent again only after its nonce was read as free.
    fn judge_doubtful(&self, relay: Process, tx: &Tx) -> Result<(), String> {
        let now = self.now();
        let intents = self.journal.tables.intents.values();
        let newest = intents.rev().find(|it| it.transaction_hash == tx.hash);
        let is_in_doubt = newest.is_some_and(|it| it.state == IntentState::Displaced);
        if !is_in_doubt || self.acts_late(relay, RECENT) {
            return Ok(());
        }
        let since = now.saturating_sub(RECENT + TIMEOUT);
        let is_free = |fact: &Fact| matches!(fact, Fact::Nonce(of, next) if *of == tx.sender && *next <= tx.nonce);
        let mut shown = self.oracle.record.since(relay, since);
        if shown.any(|it| is_free(&it.fact)) {
            return Ok(());
        }
        Err(format!(
            "rule 5: {} is in doubt, and is sent although its nonce is used",
            tx.hash
        ))
    }

    /// What reaches the node is durable, and meant for this chain.
    pub(super) fn judge_add(&mut self, relay: Process, tx: &Tx) {
        self.record_delivery(tx.hash);
        let intents = self.journal.tables.intents.values();
        let mut of_hash = intents
            .filter(|it| it.transaction_hash == tx.hash)
            .peekable();
        let is_known = of_hash.peek().is_some();
        // a relay that was paused had checked the chain before
        let is_of_chain =
            of_hash.any(|it| it.epoch == self.epoch()) || self.acts_late(relay, 2 * LAG);
        if !is_known {
            let broken = format!("durable: {} was sent without an intent", tx.hash);
            self.oracle.report(Err(broken));
        } else if !is_of_chain && self.since(self.oracle.former_shown) > 2 * LAG {
            let broken = format!("rule 7: {} was sent to another chain", tx.hash);
            self.oracle.report(Err(broken));
        }
    }
}
