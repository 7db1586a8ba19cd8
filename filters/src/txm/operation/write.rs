//! One write of an operation: decides by the chain's state, makes an intent durable as sent, and
//! sends the transaction.
//!
//! Every function here says by its type how far it got: a [`NotSent`] means that nothing was sent
//! now, and a [`Step`] has what was.

use super::Task;
use super::repeat::done_before;
use crate::felt::Felt;
use crate::ledger::{Budgets, Intent, IntentId, IntentState, NewIntent};
use crate::operations::{Decision, State};
use crate::txm::doubt::{role_of, send_again, use_nonce};
use crate::txm::io::{Io, Note, SignedText, within};
use crate::txm::node::{ErrorObject, code};
use crate::txm::not_sent::NotSent;
use crate::txm::outcome::{Details, Known, Unknown};
use crate::txm::rollbacks::PATIENCE;
use crate::txm::settings::{Required, Role, Settings};
use crate::txm::sign::{Signing, sign};
use crate::txm::store_intent::{Storing, store_intent};
use crate::txm::submit::{Submitted, accepted, submit};
use crate::txm::{DEADLINE, reconcile, request, resend};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use core::sync::atomic::Ordering;
use core::time::Duration;
use futures_util::future::join;

/// The most attempts of one operation: its nonce may be used elsewhere, and an intent in the
/// journal may turn out to be in doubt.
const ATTEMPTS: usize = 3;

/// How far a write got.
pub(super) enum Step {
    /// The chain is in the requested state.
    Already(Details),
    /// An equal write got this far.
    Known(Known),
    /// The journal has an equal write, of another process or of an earlier request.
    Earlier(Box<Intent>),
    /// The node has the transaction.
    Sent(IntentId, Felt),
    /// The node refused the transaction, and its nonce is free. Only the same nonce may be used for
    /// the request again.
    Refused(IntentId, ErrorObject),
    /// The transaction was stored and, for this reason, not sent: the journal has rejected it.
    Rejected(IntentId, NotSent),
    /// The transaction was sent, and for this reason it is unknown whether the chain has it.
    Unknown(IntentId, Felt, Unknown),
    /// The store did not confirm the transaction: it may be stored, and be sent later.
    Unconfirmed(Felt),
    /// This attempt has no effect for good, or stored nothing: another one may write.
    Again,
    /// An equal intent is in doubt: another attempt sends that again.
    InDoubt(Box<Intent>),
}

impl Step {
    fn of(submitted: Submitted, id: IntentId, hash: Felt) -> Result<Self, NotSent> {
        match submitted {
            Submitted::Taken => Ok(Self::Sent(id, hash)),
            Submitted::Refused(error) => Ok(Self::Refused(id, error)),
            Submitted::Rejected(why) => Ok(Self::Rejected(id, why)),
            Submitted::Undecided => Ok(Self::Unknown(id, hash, Unknown::Undecided)),
            Submitted::Unanswered => Ok(Self::Unknown(id, hash, Unknown::NoAnswer)),
            Submitted::Unknown(why) => Ok(Self::Unknown(id, hash, why)),
            Submitted::Lost => Ok(Self::Again),
            Submitted::NotSent(why) => Err(why),
        }
    }
}

/// A signed operation, ready to be stored and sent.
struct Prepared {
    signed: SignedText,
    nonce: u64,
    /// The highest fee by its bounds, in fri.
    max_fee: u128,
    /// The identity to which the store has to bind the subject.
    identity: Option<Felt>,
    /// The intent of the same request whose nonce it takes.
    replaces: Option<IntentId>,
}

/// The result of [`Writing::prepare`].
enum Preparation {
    Ready(Prepared),
    /// The chain is in the requested state.
    Already(Details),
    /// The account was used elsewhere.
    NonceMoved,
}

/// Writes an operation, in the epoch in which its flight has `begun`. Its request arrived at
/// `since_us`.
///
/// # Errors
/// Returns why nothing was sent for the request now. An earlier intent of it may have been sent.
pub(super) async fn write<I: Io>(
    io: &I,
    task: &Task<I::Trace>,
    begun: Option<String>,
    since_us: i64,
) -> Result<Step, NotSent> {
    let required = task.required();
    let deadline = io.now().saturating_add(DEADLINE);
    if required == Required::AllButV2 && State::of(io, "").is_v2_active().await? {
        // true with unproven pins, too
        return Ok(Step::Already(Details::V2_ACTIVE));
    }
    let epoch = io
        .stage(&task.trace, "pins", reconcile::permit(io, required))
        .await?;
    if begun.is_some_and(|begun| begun != epoch) {
        return Err(NotSent::Restarted);
    }
    reconcile::catch_up(io, &epoch, task.role(), deadline).await?;
    let writing = Writing {
        io,
        task,
        epoch: &epoch,
        since_us,
        deadline,
    };
    // an unsent or doubtful intent is settled below, while the account is locked
    if let Some(earlier) = writing.earlier().await?
        && !matches!(
            earlier.state,
            IntentState::Intended | IntentState::Displaced
        )
        // its own repeat may use the nonce of one that no URL shows for long
        && !reconcile::give_up(io, &earlier).await?
        && let Some(known) = reconcile::known(io, &earlier).await?
    {
        return Ok(Step::Known(known));
    }
    match writing.while_locked().await {
        Ok(Step::Earlier(earlier)) => {
            let known = reconcile::known(io, &earlier).await?;
            Ok(known.map_or(Step::Again, Step::Known))
        }
        Err(refused) => done_before(io, task, &epoch, refused, since_us).await,
        step => step,
    }
}

/// The state that all attempts of an operation share.
struct Writing<'a, I: Io> {
    io: &'a I,
    task: &'a Task<I::Trace>,
    /// The chain's epoch.
    epoch: &'a str,
    /// When the request arrived, in microseconds since 1970.
    since_us: i64,
    /// When it is signed or refused at the latest.
    deadline: Duration,
}

impl<I: Io> Writing<'_, I> {
    /// Writes while the account is locked.
    async fn while_locked(&self) -> Result<Step, NotSent> {
        let Self {
            io, task, deadline, ..
        } = *self;
        let locked = io.lock(task.role(), deadline);
        let mut guard = io.stage(&task.trace, "queue", locked).await?;
        let step = self.attempts(&mut guard).await;
        let Ok(Step::Sent(id, hash)) = step else {
            io.unlock(guard).await;
            return step;
        };
        // the next operation starts meanwhile: it takes the node's nonce, which counts this one
        let (accepted, ()) = join(accepted(io, id), io.unlock(guard)).await;
        Ok(match accepted {
            Ok(()) => Step::Sent(id, hash),
            Err(_unrecorded) => Step::Unknown(id, hash, Unknown::NoAnswer),
        })
    }

    /// Makes attempts until the operation is written, or must not be. Reads again what other relays
    /// have written meanwhile.
    async fn attempts(&self, guard: &mut I::Guard) -> Result<Step, NotSent> {
        let mut nonce = None;
        let mut earlier = self.earlier().await?;
        for _ in 0..ATTEMPTS {
            match Box::pin(self.attempt(guard, earlier, &mut nonce)).await {
                Ok(Step::Again) => earlier = self.earlier().await?,
                Ok(Step::InDoubt(intent)) => {
                    // nothing was stored with the nonce
                    nonce = None;
                    earlier = Some(*intent);
                }
                step => return step,
            }
        }
        Ok(Step::Again)
    }

    /// The intent that this request is about, if there is one.
    async fn earlier(&self) -> Result<Option<Intent>, NotSent> {
        let Self {
            io,
            task,
            epoch,
            since_us,
            ..
        } = *self;
        let key = task.key.as_deref().map(|key| task.key_of(key, epoch));
        let found = io.requested(epoch, &task.digest, key.as_ref()).await?;
        Ok(request::earlier(found, since_us))
    }

    /// Writes while the account is locked, but not with `nonce`, that of the attempt before. If the
    /// request is about an `earlier` intent that is in doubt, that is sent again.
    async fn attempt(
        &self,
        guard: &mut I::Guard,
        earlier: Option<Intent>,
        nonce: &mut Option<u64>,
    ) -> Result<Step, NotSent> {
        let Self { io, task, .. } = *self;
        let mut replaces = None;
        if let Some(earlier) = earlier {
            match earlier.state {
                IntentState::Intended => {}
                IntentState::Displaced => {
                    if let Some(submitted) = self.repeat(guard, &earlier).await? {
                        return Step::of(submitted, earlier.id, earlier.transaction_hash);
                    }
                    replaces = Some(earlier);
                }
                _ => return Ok(Step::Earlier(Box::new(earlier))),
            }
        }
        let prepared = within(io, self.deadline, self.prepare(replaces.as_ref()));
        let prepared = io.stage(&task.trace, "sign", prepared).await;
        let prepared = match prepared.unwrap_or(Err(NotSent::Overdue))? {
            Preparation::Ready(prepared) => prepared,
            Preparation::Already(details) => return Ok(Step::Already(details)),
            Preparation::NonceMoved => return Ok(Step::Again),
        };
        let next = prepared.nonce;
        if nonce.replace(next) == Some(next) {
            return Err(NotSent::NonceMoved);
        }
        io.check_lock(guard).await?;
        self.send(&prepared).await
    }

    /// Sends an earlier intent of the request again, which is in doubt. Returns how far that got;
    /// `None` if the request may be signed anew with the same nonce.
    async fn repeat(
        &self,
        guard: &mut I::Guard,
        earlier: &Intent,
    ) -> Result<Option<Submitted>, NotSent> {
        let io = self.io;
        io.check_lock(guard).await?;
        if let Some(role) = role_of(io, earlier)
            && earlier.signer != self.account()
        {
            return self.repeat_of(role, earlier).await.map(Some);
        }
        io.require(self.task.required()).await?;
        let submitted = send_again(io, earlier).await;
        if self.may_sign_anew(&submitted, earlier).await? {
            return Ok(None);
        }
        Ok(Some(submitted))
    }

    /// Sends an earlier intent again that another account of ours has signed, under a former
    /// configuration. That one is locked as well, since nonces of it may be filled: its own, too,
    /// because the request is signed by this account from now on.
    async fn repeat_of(&self, role: Role, earlier: &Intent) -> Result<Submitted, NotSent> {
        let io = self.io;
        let mut other = io.lock(role, self.deadline).await?;
        io.require(self.task.required()).await?;
        let mut submitted = send_again(io, earlier).await;
        if self.may_sign_anew(&submitted, earlier).await? {
            io.check_lock(&mut other).await?;
            submitted = Submitted::NotSent(use_nonce(io, earlier, role).await);
        }
        io.unlock(other).await;
        Ok(submitted)
    }

    /// Whether a request may be signed anew after this answer to its earlier transaction, with the
    /// same nonce. If the node decides nothing, that is due ever less often, since the node may say
    /// so of each transaction: in between, a repeat has the outcome of this one.
    async fn may_sign_anew(
        &self,
        submitted: &Submitted,
        earlier: &Intent,
    ) -> Result<bool, NotSent> {
        match submitted {
            // a node that is behind, or ahead, would refuse another signature as well
            Submitted::Refused(error) if error.code == code::INVALID_NONCE => {
                return Err(NotSent::InProgress);
            }
            Submitted::Refused(_) => return Ok(true),
            Submitted::Undecided | Submitted::Unanswered => {}
            _ => return Ok(false),
        }
        let slot = self
            .io
            .of_slot(&earlier.epoch, earlier.signer, earlier.nonce)
            .await?;
        let in_doubt = slot.iter().filter(|it| it.state == IntentState::Displaced);
        let age = self.io.clock_us().abs_diff(earlier.created_us);
        Ok(Duration::from_micros(age) >= resend::until_anew(in_doubt.count()))
    }

    /// Decides and signs. Nothing is stored or sent yet, so that it can be cancelled.
    async fn prepare(&self, replaces: Option<&Intent>) -> Result<Preparation, NotSent> {
        let Self {
            io, task, epoch, ..
        } = *self;
        task.admit()?;
        // again: the wait for the account may have outlasted the proof
        io.require(task.required()).await?;
        let nonce = match self.free_nonce().await? {
            Some(nonce) => {
                reconcile::caught_up(io, epoch, task.role());
                nonce
            }
            None => {
                reconcile::free_account(io, epoch, task.role()).await?;
                io.nonce(self.account()).await?
            }
        };
        if replaces.is_some_and(|replaced| replaced.slot() != (epoch, self.account(), nonce)) {
            return Err(NotSent::InProgress);
        }
        // the state is read after the nonce: it shows all transactions that the nonce counts
        let slot = io.of_slot(epoch, self.account(), nonce).await?;
        let is_in_doubt = slot.iter().any(|other| other.state.holds());
        let state = State {
            is_in_doubt,
            ..State::of(io, epoch)
        };
        let mut identity = None;
        let calls = match Box::pin(task.operation.decide(&state)).await? {
            Decision::Already(details) => return Ok(Preparation::Already(details)),
            Decision::Write(calls) => calls,
            Decision::Bind(bound, calls) => {
                identity = Some(bound);
                calls
            }
        };
        let displaced: Vec<_> = slot
            .iter()
            .filter(|other| other.state == IntentState::Displaced)
            .collect();
        match sign(io, task.role(), calls, nonce, displaced.len()).await? {
            Signing::Signed { signed, max_fee } => Ok(Preparation::Ready(Prepared {
                signed,
                nonce,
                max_fee,
                identity,
                replaces: replaces.map(|replaced| replaced.id),
            })),
            Signing::NonceMoved => Ok(Preparation::NonceMoved),
        }
    }

    /// The account's next nonce, if no pending intent can use it: the node counts the nonces of
    /// all, even of those that the journal does not have as accepted yet. Their receipts are read
    /// by the processes that wrote them, or in the background.
    async fn free_nonce(&self) -> Result<Option<u64>, NotSent> {
        let pending = self.io.unresolved(self.epoch, Some(self.account()));
        let (pending, next) = join(pending, self.io.nonce(self.account())).await;
        let next = next?;
        if pending?.iter().any(|intent| intent.nonce >= next) {
            return Ok(None);
        }
        Ok(Some(next))
    }

    /// Journals and submits.
    async fn send(&self, prepared: &Prepared) -> Result<Step, NotSent> {
        let Self { io, task, .. } = *self;
        let born = io.proven_head(self.epoch);
        let born = born.ok_or(NotSent::Restarted)?;
        let new = self.intent(prepared, born, &io.settings());
        let id = match store_intent(io, &new).await? {
            Storing::New(id) => id,
            Storing::Known(known) => return Ok(Step::Known(known)),
            Storing::Rejected(id, why) => return Ok(Step::Rejected(id, why)),
            Storing::SentElsewhere(id) => {
                return Ok(Step::Unknown(id, new.transaction_hash, Unknown::NoAnswer));
            }
            Storing::Unconfirmed => return Ok(Step::Unconfirmed(new.transaction_hash)),
            Storing::Displaced(earlier) => return Ok(Step::InDoubt(earlier)),
            Storing::NonceTaken => return Err(NotSent::InProgress),
        };
        task.stored.store(id.0, Ordering::Relaxed);
        io.note(Note::Nonce(task.role(), new.nonce));
        let submitted = submit(io, id, &new, Some(&task.trace), PATIENCE).await;
        Step::of(submitted, id, new.transaction_hash)
    }

    /// The address of the account that signs.
    fn account(&self) -> Felt {
        *self.io.pins().accounts.of(self.task.role())
    }

    fn intent<'a>(
        &'a self,
        prepared: &'a Prepared,
        born: u64,
        settings: &Settings,
    ) -> NewIntent<'a> {
        let Prepared {
            signed,
            nonce,
            max_fee,
            identity,
            replaces,
        } = prepared;
        let Task {
            operation,
            digest,
            request,
            key,
            ..
        } = self.task;
        let is_drip = operation.kind().is_drip();
        let budgets = settings.budgets;
        NewIntent {
            operation: self.task.name(),
            digest: *digest,
            subject: operation.subject(),
            identity: *identity,
            request,
            epoch: self.epoch,
            signer: self.account(),
            nonce: *nonce,
            transaction_hash: signed.hash,
            transaction: &signed.text,
            idempotency_key: key.as_deref(),
            born,
            replaces: *replaces,
            max_fee: *max_fee,
            budgets: Budgets {
                drips: budgets.drips.filter(|_| is_drip),
                ..budgets
            },
            cooldown: is_drip.then_some(settings.faucet_cooldown),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{drip, register, task};
    use super::*;
    use crate::operations::tests::chain::felt;
    use crate::txm::tests::EPOCH;
    use crate::txm::tests::script::Script;

    #[test]
    fn only_a_drip_counts_for_the_budget_of_drips() {
        let script = Script::new();
        let settings = Settings {
            budgets: Budgets {
                drips: Some(3),
                fees: Some(9),
            },
            faucet_cooldown: Duration::from_secs(60),
            ..script.settings()
        };
        let signed = SignedText {
            hash: felt(1),
            text: String::new(),
        };
        let prepared = Prepared {
            signed,
            nonce: 7,
            max_fee: 5,
            identity: None,
            replaces: None,
        };
        for (operation, drips) in [(drip(), Some(3)), (register(), None)] {
            let task = task(operation, None);
            let writing = Writing {
                io: &script,
                task: &task,
                epoch: EPOCH,
                since_us: 0,
                deadline: Duration::ZERO,
            };
            let new = writing.intent(&prepared, 20, &settings);
            assert_eq!((new.budgets.drips, new.budgets.fees), (drips, Some(9)));
            assert_eq!(new.cooldown, drips.map(|_| settings.faucet_cooldown));
            assert_eq!(new.operation, task.operation.kind().name());
        }
    }
}
