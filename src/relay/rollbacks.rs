//! Follows transactions after their receipts: into doubt when a block that had one is gone, back
//! when a URL shows it again, and to their end when another transaction has their nonce for good.
//!
//! `evidence` gathers what the URLs show; the ledger decides what follows for other intents of the
//! same nonce. Here is when to look, and what a waiting request learns.

use super::evidence::{NonceUse, Sighting};
use super::outcome::Outcome;
use super::pins::Required;
use super::reconcile::Reconciler;
use crate::store::{Intent, IntentId, IntentState};
use std::sync::atomic::Ordering;
use std::time::Duration;
use tokio::time::Instant;

/// How long a request waits for proof that a transaction is still there, or in doubt.
const PATIENCE: Duration = Duration::from_secs(5);
/// Between two polls of a waiting request.
const POLL: Duration = Duration::from_millis(500);
/// Intents that the background task asks for in one round.
const ROUND: usize = 64;
/// Of these, included ones: it goes on while all of them are gone.
const NEWEST: u32 = 16;

/// Whether the chain still has a transaction that was included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Confirmed {
    /// A URL shows it; the journal has what its receipt says.
    Shown,
    /// No URL answers: the journal's last word stands.
    Unavailable,
    /// It is in doubt, and the journal says so.
    Displaced,
    /// No URL shows it, and nothing proves that it is gone.
    Unknown,
}

/// The result of sending a displaced transaction again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Repeated {
    /// The node accepted it.
    Accepted,
    /// It is in no doubt any longer: a URL shows it.
    Shown,
    /// The node refused it. Its request may be signed anew, with the same nonce.
    Refused,
}

impl Reconciler {
    /// Asks whether the chain still has an included transaction, and waits some seconds for proof
    /// either way.
    ///
    /// # Errors
    /// It seems to be gone, but the chain is not the proven one, or the store is unavailable.
    pub(super) async fn confirm(&self, intent: &Intent) -> Result<Confirmed, Outcome> {
        let end = Instant::now() + PATIENCE;
        loop {
            let found = self.look_for(intent).await?;
            if found != Confirmed::Unknown || Instant::now() + POLL >= end {
                return Ok(found);
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// One look at what the URLs show of an intent, which the journal records if it is news.
    async fn look_for(&self, intent: &Intent) -> Result<Confirmed, Outcome> {
        let journal = &self.submitter.journal;
        match self.evidence.look_for(intent).await {
            Sighting::Unavailable => Ok(Confirmed::Unavailable),
            Sighting::Unknown => Ok(Confirmed::Unknown),
            Sighting::Shown(receipt) => {
                let was_gone = matches!(intent.state, IntentState::Displaced | IntentState::Lost);
                if journal.include(intent.id, &receipt).await? && was_gone {
                    let hash = intent.transaction_hash;
                    log::warn!(
                        operation = intent.operation.as_str();
                        "intent {} is back: the chain has transaction {hash} again", intent.id
                    );
                }
                Ok(Confirmed::Shown)
            }
            Sighting::Displaced(doubt) => {
                if intent.state == IntentState::Displaced {
                    return Ok(Confirmed::Displaced);
                }
                let epoch = self.prover.require(Required::AllButV2).await?;
                self.prover.check_epoch(&epoch).await?;
                if epoch != intent.epoch {
                    return Err(Outcome::restarted());
                }
                journal.displace(intent, doubt.text()).await?;
                Ok(Confirmed::Displaced)
            }
        }
    }

    /// Looks after what the chain had: the newest included intents, those in doubt, what was lost
    /// to a transaction that is itself in doubt, and what waits for longer than `grace` though its
    /// nonce is used.
    pub(super) async fn follow(&self, epoch: &str, grace: Duration) -> Result<(), Outcome> {
        let intents = self.submitter.journal.store.intents();
        // a chain loses its newest blocks: below one that it has, all are there
        for _ in 0..ROUND {
            let newest = intents.included_newest(epoch, NEWEST).await?;
            let mut are_gone = !newest.is_empty();
            for intent in &newest {
                let is_gone = self.look_for(intent).await? == Confirmed::Displaced;
                are_gone &= is_gone;
                if !is_gone && intent.included.is_some() {
                    break;
                }
            }
            if !are_gone {
                break;
            }
        }
        let displaced = intents.displaced(epoch, None).await?;
        let open = intents.unresolved(epoch, None).await?;
        let watched: Vec<IntentId> = displaced.iter().chain(&open).map(|open| open.id).collect();
        self.evidence.retain(&watched);
        for intent in self.next_round(&displaced) {
            self.settle_displaced(intent).await?;
        }
        for intent in open.iter().filter(|open| self.age(open) >= grace) {
            if self.next_nonce(intent).await? > intent.nonce {
                self.lose_if_settled(intent).await?;
            }
        }
        Ok(())
    }

    /// The next [`ROUND`] of them.
    fn next_round<'a>(&self, all: &'a [Intent]) -> impl Iterator<Item = &'a Intent> + use<'a> {
        let begin = self.followed.fetch_add(ROUND, Ordering::Relaxed);
        let begin = begin.checked_rem(all.len()).unwrap_or(0);
        all.iter().cycle().skip(begin).take(ROUND.min(all.len()))
    }

    async fn settle_displaced(&self, intent: &Intent) -> Result<(), Outcome> {
        let intents = self.submitter.journal.store.intents();
        for other in intents.of_slot(&intent.epoch, intent.signer, intent.nonce).await? {
            let is_gone = matches!(other.state, IntentState::Displaced | IntentState::Lost);
            if is_gone && self.look_for(&other).await? == Confirmed::Shown {
                return Ok(());
            }
        }
        if self.next_nonce(intent).await? > intent.nonce {
            self.lose_if_settled(intent).await?;
        }
        Ok(())
    }

    /// Records an intent as lost if another transaction has its nonce, which its account has used,
    /// in a settled block.
    async fn lose_if_settled(&self, intent: &Intent) -> Result<(), Outcome> {
        let journal = &self.submitter.journal;
        let slot = journal.store.intents();
        let slot = slot.of_slot(&intent.epoch, intent.signer, intent.nonce).await?;
        let others = slot.iter().filter(|other| other.id != intent.id && other.state.is_included());
        let ours = others
            .filter_map(|other| Some((other.transaction_hash, other.included?.number)))
            .next();
        let confirmations = self.submitter.running.settings().config.confirmations;
        match self.evidence.nonce_use(intent, ours, confirmations).await? {
            NonceUse::Open => {}
            NonceUse::Settled { transaction, number } => {
                let why = format!("block {number} has {transaction} with its nonce");
                journal.lose(intent, &why).await?;
            }
        }
        Ok(())
    }

    /// Sends the transaction of a displaced intent once more, as it was signed, after those of its
    /// account below it that are in doubt as well. The caller holds the account, if it is ours.
    ///
    /// # Errors
    /// Another transaction has its nonce, which is not settled yet; it is not known whether the
    /// node has it; the chain or the store is unavailable.
    pub(super) async fn send_again(&self, intent: &Intent) -> Result<Repeated, Outcome> {
        self.prover.check_epoch(&intent.epoch).await?;
        if self.look_for(intent).await? == Confirmed::Shown {
            return Ok(Repeated::Shown);
        }
        let next = self.next_nonce(intent).await?;
        if next > intent.nonce || self.is_nonce_taken(intent).await? {
            return Err(Outcome::unsettled());
        }
        let intents = self.submitter.journal.store.intents();
        let displaced = intents.displaced(&intent.epoch, Some(intent.signer)).await?;
        for nonce in next..intent.nonce {
            let newest = displaced.iter().filter(|below| below.nonce == nonce).max_by_key(|i| i.id);
            if let Some(below) = newest
                && !self.is_nonce_taken(below).await?
            {
                self.submitter.repeat(below).await?;
            }
        }
        if self.submitter.repeat(intent).await? {
            return Ok(Repeated::Accepted);
        }
        if next < intent.nonce {
            // a nonce below it is free: with another one it could be executed twice
            return Err(Outcome::unsettled());
        }
        Ok(Repeated::Refused)
    }

    /// Whether another intent has the nonce of one that is in doubt.
    async fn is_nonce_taken(&self, intent: &Intent) -> Result<bool, Outcome> {
        let intents = self.submitter.journal.store.intents();
        let slot = intents.of_slot(&intent.epoch, intent.signer, intent.nonce).await?;
        Ok(slot.iter().any(|other| other.state.occupies()))
    }
}
