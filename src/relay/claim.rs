//! Idempotency keys of operations: claimed before the work, linked to the intent that their request
//! wrote or joined, answered while the chain has it.

use super::answer;
use super::operation::{Answer, Operations, Task};
use super::outcome::{Outcome, Status};
use super::rollbacks::Confirmed;
use crate::store::{Claim, ClaimToken, Intent, IntentState, StoreError};
use ring::rand::{SecureRandom as _, SystemRandom};

/// Attempts to claim a key, if the chain changes meanwhile.
const CLAIMS: usize = 3;

/// A claimed idempotency key.
pub(super) struct Claimed {
    pub(super) epoch: String,
    /// What it can be released with; `None` if another request claimed it.
    token: Option<ClaimToken>,
}

impl Operations {
    /// Claims a key in the chain's epoch.
    ///
    /// # Errors
    /// The stored response, while the chain has its transaction; or a refusal.
    pub(super) async fn claim(&self, key: &str, task: &Task) -> Result<Claimed, Answer> {
        let (store, name) = (&self.submitter.journal.store, task.name());
        let token = random_token()?;
        for _ in 0..CLAIMS {
            let epoch = self.prover.epoch().await?;
            let keys = store.keys(&epoch);
            let claim = keys.claim(key, name, &task.digest, &token, store.now_us()).await;
            let answer = match claim.map_err(Outcome::from)? {
                Claim::New => return Ok(Claimed { epoch, token: Some(token) }),
                // a request joins an open claim, so that claims need no timeout
                Claim::Open { .. } => return Ok(Claimed { epoch, token: None }),
                Claim::Answered { status, body, intent } => {
                    if !self.is_still_true(status, intent.as_deref()).await? {
                        return Ok(Claimed { epoch, token: None });
                    }
                    Answer::First(status, body)
                }
                Claim::Conflict => Outcome::key_conflict().into(),
            };
            if !self.prover.has_restarted(&epoch).await {
                return Err(answer);
            }
        }
        Err(Outcome::restarted().into())
    }

    /// Whether a stored response of this status still holds: the chain has the transaction that it
    /// reports, with the end that it reports, as far as the node says.
    ///
    /// # Errors
    /// No URL of the node shows the transaction, nor that it is gone.
    async fn is_still_true(&self, status: u16, intent: Option<&Intent>) -> Result<bool, Outcome> {
        let end = if status < 300 { IntentState::Succeeded } else { IntentState::Reverted };
        let Some(intent) = intent.filter(|intent| intent.state == end) else { return Ok(false) };
        match self.reconciler.confirm(intent).await? {
            Confirmed::Unavailable => Ok(true),
            Confirmed::Displaced => Ok(false),
            Confirmed::Unknown => Err(Outcome::unseen(intent)),
            Confirmed::Shown => {
                let now = self.submitter.journal.store.intents().get(intent.id).await?;
                Ok(now.is_some_and(|now| now.state == end))
            }
        }
    }

    /// Links a key to the intent that its request wrote or joined, and stores a final response.
    /// Releases the key if nothing was written.
    pub(super) async fn end_claim(
        &self,
        key: &str,
        claimed: &Claimed,
        outcome: &Outcome,
        task: &Task,
    ) -> Result<bool, StoreError> {
        let keys = self.submitter.journal.store.keys(&claimed.epoch);
        let (name, digest) = (task.name(), &task.digest);
        match (outcome.intent, &claimed.token) {
            (Some(intent), _) if outcome.is_final() => {
                let reply = answer::operation(outcome, &task.request_id);
                let [body, ..] = reply.body.pieces();
                let body = String::from_utf8_lossy(body);
                let answer = || keys.answer(key, name, digest, intent, reply.status, &body);
                if answer().await? || !keys.link(key, name, digest, intent).await? {
                    return Ok(true);
                }
                answer().await
            }
            (Some(intent), _) => keys.link(key, name, digest, intent).await,
            // the key stays with the request, which is decided again each time
            (None, _) if outcome.status == Status::Already => Ok(true),
            (None, Some(token)) => keys.release(key, token).await,
            (None, None) => Ok(true),
        }
    }
}

/// Identifies a request that claims a key.
fn random_token() -> Result<ClaimToken, Outcome> {
    let mut bytes = [0; 16];
    let filled = SystemRandom::new().fill(&mut bytes);
    // without random numbers from the system nothing is claimed
    filled.map_err(|_| Outcome::overloaded())?;
    Ok(ClaimToken(bytes))
}
