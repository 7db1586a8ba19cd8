//! `POST /rpc`: a transaction that a user signed, verified and submitted to the node once.
//!
//! The policy has judged what can be judged without the chain. Here the sender's class and key are
//! read to obtain a [`TransactionPermit`]; then the transaction is journaled and sent. A repeated
//! transaction, found by its hash, gets its outcome from the journal, regardless of its signature,
//! and even if the configuration would not admit it any more.

use super::doubt::send_again;
use super::fate::of_undeployed;
use super::io::{Flight, Io, within};
use super::node::{ErrorObject, code};
use super::not_sent::{NotSent, refuse};
use super::outcome::{Details, Known, Outcome, Unknown};
use super::rollbacks::PATIENCE;
use super::settings::Required;
use super::store_intent::{Storing, store_intent};
use super::submit::{self, Submitted};
use super::{pins, reconcile};
use crate::felt::Felt;
use crate::ledger::{Budgets, Intent, IntentId, IntentState, NewIntent};
use crate::policy::{DEPLOY_ACCOUNT_METHOD, TransactionPermit, Unverified, method_of};
use crate::tx::{Account, selector};
use crate::verdict::{Reason, Refusal};
use alloc::format;
use alloc::string::String;
use alloc::sync::Arc;
use core::time::Duration;
use futures_util::future::join;

/// The remedy that the sender of a transaction reads with a refusal by the node.
const REMEDY: &str = "once the cause is gone, send it again, or another one with its nonce";

/// How long a refusal of the policy waits for the chain's epoch.
const EPOCH_WAIT: Duration = Duration::from_secs(1);

/// Why the policy does not admit a transaction now; `None` if it does, or if the journal has the
/// transaction. Where that cannot be found out, the policy stands: it is judged before the chain.
pub async fn refusal<'a>(io: &impl Io, unverified: &'a Unverified<'_>) -> Option<&'a Refusal> {
    let refusal = unverified.admission().err()?;
    let deadline = io.now().saturating_add(EPOCH_WAIT);
    let Some(Ok(epoch)) = within(io, deadline, io.epoch()).await else {
        return Some(refusal);
    };
    let digest = unverified.hash().to_bytes_be();
    match io.requested(&epoch, &digest, None).await {
        Ok(stored) if stored.newest.is_some() => None,
        Ok(_) | Err(_) => Some(refusal),
    }
}

/// Returns the chain's epoch, and the class and key of the sender, unless the transaction deploys
/// it.
///
/// # Errors
/// Returns an error if the relay signs with the account, if it is not deployed, or if nothing may
/// be written now.
pub async fn account(
    io: &impl Io,
    unverified: &Unverified<'_>,
) -> Result<(String, Option<Account>), NotSent> {
    let sender = unverified.sender();
    if sender
        .or(unverified.deployed())
        .is_some_and(|address| io.pins().signs_with(address))
    {
        let message = "the relay signs with this account: its transactions are operations";
        return refuse(Reason::SenderNotAllowed, message);
    }
    let epoch = reconcile::permit(io, Required::All).await?;
    let Some(address) = sender else {
        return Ok((epoch, None));
    };
    let Some(class_hash) = io.class_hash_at(address).await? else {
        pins::check_epoch(io, &epoch).await?;
        return refuse(Reason::AccountNotDeployed, "the sender is not deployed");
    };
    // another class may report any key
    let public_key = if class_hash == io.pins().account_class {
        let key = io.call(address, selector("get_public_key"), &[]).await?;
        key.first().copied().unwrap_or(Felt::ZERO)
    } else {
        Felt::ZERO
    };
    Ok((
        epoch,
        Some(Account {
            class_hash,
            public_key,
        }),
    ))
}

/// Submits a transaction once, however often it is requested.
pub async fn submit<I: Io>(io: &Arc<I>, transaction: Approved<I::Trace>) -> Outcome {
    let flight = Flight {
        epoch: Some(transaction.epoch.clone()),
        digest: transaction.hash.to_bytes_be(),
        key: None,
    };
    let writer = Arc::clone(io);
    let write = async move {
        let hash = transaction.hash;
        match write(&*writer, &transaction).await {
            Ok(Step::Known(known)) => known.into(),
            Ok(Step::Sent(id)) => {
                record_receipt_later(&writer, id, hash);
                Outcome::written(hash, Details::None)
            }
            Ok(Step::Refused(error)) if error.code != code::INVALID_NONCE => {
                Outcome::rejected(&error, REMEDY)
            }
            Ok(Step::Rejected(id, why)) => Outcome::from(why).of_intent(id),
            Ok(Step::Unknown(id, why)) => Outcome::unknown(hash, why).of_intent(id),
            Ok(Step::Unconfirmed) => Outcome::unconfirmed(hash),
            Ok(Step::Refused(_) | Step::NonceUsed) => transaction.conflict(&*writer).await,
            Err(why) => why.into(),
        }
    };
    io.join(flight, write).await
}

/// How far a transaction got.
enum Step {
    /// An earlier request with this transaction got this far.
    Known(Known),
    /// The node has it.
    Sent(IntentId),
    /// The node refused it, and its nonce is free.
    Refused(ErrorObject),
    /// It was stored and, for this reason, not sent: the journal has rejected it.
    Rejected(IntentId, NotSent),
    /// It was sent, and for this reason it is unknown whether the chain has it.
    Unknown(IntentId, Unknown),
    /// The store did not confirm it: it may be stored, and be sent later.
    Unconfirmed,
    /// Another transaction of the account has its nonce.
    NonceUsed,
}

impl Step {
    fn of(submitted: Submitted, id: IntentId) -> Result<Self, NotSent> {
        match submitted {
            Submitted::Taken => Ok(Self::Sent(id)),
            Submitted::Refused(error) => Ok(Self::Refused(error)),
            Submitted::Lost => Ok(Self::NonceUsed),
            Submitted::Rejected(why) => Ok(Self::Rejected(id, why)),
            Submitted::Undecided => Ok(Self::Unknown(id, Unknown::Undecided)),
            Submitted::Unanswered => Ok(Self::Unknown(id, Unknown::NoAnswer)),
            Submitted::Unknown(why) => Ok(Self::Unknown(id, why)),
            Submitted::NotSent(why) => Err(why),
        }
    }
}

/// Journals a transaction and sends it, unless it was sent before or its nonce is used.
async fn write<I: Io>(io: &I, transaction: &Approved<I::Trace>) -> Result<Step, NotSent> {
    if let Some(refusal) = &transaction.refused {
        return answer_known(io, transaction, refusal).await;
    }
    if is_too_late(io, transaction).await? {
        return Ok(Step::NonceUsed);
    }
    let born = io.proven_head(&transaction.epoch);
    let new = transaction.intent(born.ok_or(NotSent::Restarted)?);
    let (id, submitted) = match store_intent(io, &new).await? {
        Storing::New(id) => {
            let submitted = submit::submit(io, id, &new, Some(&transaction.trace), PATIENCE).await;
            if submitted == Submitted::Taken && submit::accepted(io, id).await.is_err() {
                return Ok(Step::Unknown(id, Unknown::NoAnswer));
            }
            (id, submitted)
        }
        Storing::Displaced(earlier) => (earlier.id, send_again(io, &earlier).await),
        Storing::Known(known) => return Ok(Step::Known(known)),
        Storing::Rejected(id, why) => return Ok(Step::Rejected(id, why)),
        Storing::SentElsewhere(id) => return Ok(Step::Unknown(id, Unknown::NoAnswer)),
        Storing::Unconfirmed => return Ok(Step::Unconfirmed),
        Storing::NonceTaken => return Ok(Step::NonceUsed),
    };
    Step::of(submitted, id)
}

/// Answers a transaction that the policy does not admit now by what the journal has of it. One in
/// doubt is sent again, as it was when the policy admitted it.
async fn answer_known<I: Io>(
    io: &I,
    transaction: &Approved<I::Trace>,
    refusal: &Refusal,
) -> Result<Step, NotSent> {
    let digest = transaction.hash.to_bytes_be();
    let stored = io.requested(&transaction.epoch, &digest, None).await?;
    let Some(earlier) = stored.newest else {
        return Err(refusal.clone().into());
    };
    if earlier.state == IntentState::Displaced {
        return Step::of(send_again(io, &earlier).await, earlier.id);
    }
    match reconcile::known(io, &earlier).await? {
        Some(known) => Ok(Step::Known(known)),
        // it came into doubt meanwhile
        None => Err(NotSent::InProgress),
    }
}

/// Whether another transaction has used the nonce of one that the journal does not have, as far as
/// the node shows it. It is not sent then: only a witness could show later who used the nonce.
async fn is_too_late<I: Io>(io: &I, transaction: &Approved<I::Trace>) -> Result<bool, NotSent> {
    let digest = transaction.hash.to_bytes_be();
    let (next, stored) = join(
        io.nonce(transaction.sender),
        io.requested(&transaction.epoch, &digest, None),
    )
    .await;
    if of_undeployed(next)? <= transaction.nonce || stored?.newest.is_some() {
        return Ok(false);
    }
    // somebody else may have sent it
    Ok(io.receipt(transaction.hash).await?.is_none())
}

/// The refusal of a transaction with `nonce`: which of its causes it is, and what to do. `next` is
/// the account's next nonce, counting what is pending, and `other` the account's transaction that
/// has the nonce, if they are known.
fn nonce_conflict(nonce: u64, next: Option<u64>, other: Option<&Intent>) -> Outcome {
    if let Some(pending) = other
        && pending.state.is_unresolved()
    {
        let message = "another transaction of the account with this nonce is pending: wait for it, \
                       then read the nonce at the block tag pre_confirmed and sign again";
        return Outcome {
            transaction_hash: Some(pending.transaction_hash),
            retry_after: Some(1),
            ..Outcome::refused(Reason::NonceConflict, message)
        };
    }
    match next {
        Some(next) if other.is_none() && next < nonce => {
            let message = format!(
                "nonce {nonce} is ahead of the account's next one, {next}: send the earlier \
                 transaction first, then this one again"
            );
            Outcome::refused(Reason::NonceConflict, message)
        }
        Some(next) if other.is_none() && next == nonce => Outcome {
            retry_after: Some(1),
            ..Outcome::refused(
                Reason::NonceConflict,
                "the node refused the nonce, which is free now: send the same transaction again",
            )
        },
        _ => Outcome {
            transaction_hash: other.map(|other| other.transaction_hash),
            ..Outcome::refused(
                Reason::NonceConflict,
                "the nonce is used: read it at the block tag pre_confirmed and sign again",
            )
        },
    }
}

/// Records the receipt in the background, after the client has its response.
fn record_receipt_later<I: Io>(io: &Arc<I>, id: IntentId, hash: Felt) {
    let waiting = Arc::clone(io);
    io.spawn(async move {
        // an error was logged, and the reconciliation records it later
        let _recorded = submit::receipt(&*waiting, id, hash).await;
    });
}

/// A signed transaction, detached from its request.
#[derive(Debug)]
pub struct Approved<T> {
    operation: &'static str,
    hash: Felt,
    sender: Felt,
    nonce: u64,
    params: String,
    epoch: String,
    /// The refusal by the policy, unless the journal answers the request.
    refused: Option<Refusal>,
    trace: Arc<T>,
}

impl<T> Approved<T> {
    /// A signed transaction, and the epoch for which it was judged.
    #[must_use]
    pub fn new(permit: &TransactionPermit<'_>, epoch: String, trace: &Arc<T>) -> Self {
        Self {
            operation: permit.kind(),
            hash: permit.hash(),
            sender: permit.sender(),
            nonce: permit.nonce(),
            params: permit.params(),
            epoch,
            refused: permit.admission().err().cloned(),
            trace: Arc::clone(trace),
        }
    }

    /// The refusal of a transaction that does not have its account's next nonce. Only its text
    /// depends on what is read here: what cannot be read is not known.
    async fn conflict(&self, io: &impl Io) -> Outcome {
        let is_deployment = method_of(self.operation) == DEPLOY_ACCOUNT_METHOD;
        if is_deployment && matches!(io.class_hash_at(self.sender).await, Ok(Some(_))) {
            let message = "the account is deployed already: send its next transaction";
            return Outcome::refused(Reason::AccountAlreadyDeployed, message);
        }
        let slot = io.of_slot(&self.epoch, self.sender, self.nonce);
        let (slot, next) = join(slot, io.nonce(self.sender)).await;
        let slot = slot.unwrap_or_default();
        let other = slot
            .iter()
            .find(|other| other.state.occupies() && other.transaction_hash != self.hash);
        nonce_conflict(self.nonce, of_undeployed(next).ok(), other)
    }

    fn intent(&self, born: u64) -> NewIntent<'_> {
        NewIntent {
            operation: self.operation,
            digest: self.hash.to_bytes_be(),
            subject: None,
            identity: None,
            request: "",
            epoch: &self.epoch,
            signer: self.sender,
            nonce: self.nonce,
            transaction_hash: self.hash,
            transaction: &self.params,
            idempotency_key: None,
            born,
            replaces: None,
            max_fee: 0,
            budgets: Budgets::default(),
            cooldown: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Intended;
    use crate::operations::tests::chain::{Chain, felt};
    use crate::txm::tests::script::Script;
    use crate::txm::tests::{EPOCH, hash, intent, receipt, returned, run};

    /// A node that shows the transaction with hash 1 once it was sent.
    fn showing(script: Script) -> Script {
        script.state().receipts.insert(hash(1), receipt());
        script.state().shown_once_sent = true;
        script
    }

    /// Submits the transaction with hash 1.
    fn submitted(script: Script) -> (Outcome, Arc<Script>) {
        submitted_unless(script, None)
    }

    /// Submits the transaction with hash 1, which the policy may refuse.
    fn submitted_unless(script: Script, refused: Option<Refusal>) -> (Outcome, Arc<Script>) {
        let Intent {
            operation: _,
            transaction,
            signer,
            nonce,
            ..
        } = intent(1, 7, IntentState::Sent);
        let transaction = Approved {
            operation: "invoke",
            hash: hash(1),
            sender: signer,
            nonce,
            params: transaction,
            epoch: EPOCH.into(),
            refused,
            trace: Arc::new(()),
        };
        let script = Arc::new(script);
        (run(submit(&script, transaction)), script)
    }

    #[test]
    fn a_sender_is_read_unless_it_deploys_itself() {
        use crate::tx::{Bounds, DeployAccount, Invoke};
        const USER: u64 = 0xdd;
        let user = felt(USER);
        let of = |sender| {
            let calls = vec![];
            Unverified::passed(
                Invoke {
                    sender,
                    calls,
                    nonce: felt(0),
                    bounds: Bounds::ZERO,
                }
                .into(),
            )
        };
        let found = |chain, unverified: &Unverified<'_>| {
            let mut script = Script::new();
            script.chain = chain;
            let found = run(account(&script, unverified));
            let found = found.map_err(|why| Outcome::from(why).reason());
            found.map(|(epoch, account)| (epoch, account.map(|it| (it.class_hash, it.public_key))))
        };
        let is = |class_hash, key: u64| Ok((EPOCH.to_owned(), Some((class_hash, felt(key)))));
        let with_key = |chain: Chain| chain.shows(USER, "get_public_key", &[], &[5]);
        let class = Chain::new().pins.account_class;
        let approved = with_key(Chain::new().deployed(USER));
        assert_eq!(found(approved, &of(user)), is(class, 5));
        let foreign = with_key(Chain::new().foreign(USER));
        assert_eq!(
            found(foreign, &of(user)),
            is(felt(1), 0),
            "it may report any key"
        );
        let refused = |reason| Err(Some(reason));
        let missing = found(Chain::new(), &of(user));
        assert_eq!(missing, refused(Reason::AccountNotDeployed));
        let ours = found(Chain::new(), &of(Chain::new().pins.accounts.owner));
        assert_eq!(ours, refused(Reason::SenderNotAllowed));
        let deploys = DeployAccount {
            class_hash: class,
            public_key: felt(5),
            bounds: Bounds::ZERO,
        };
        let deploys = Unverified::passed(deploys.into());
        assert_eq!(found(Chain::new(), &deploys), Ok((EPOCH.to_owned(), None)));
    }

    #[test]
    fn the_receipt_of_a_transaction_is_recorded_after_its_response() {
        let (outcome, script) = submitted(showing(Script::new()));
        assert_eq!(outcome, Outcome::written(hash(1), Details::None));
        let epoch = script.state().joined[0].epoch.clone();
        assert_eq!(epoch.as_deref(), Some(EPOCH), "nothing else joins it");
        assert_eq!(script.state_of(100), IntentState::Succeeded);
    }

    #[test]
    fn a_known_transaction_is_answered_whatever_the_policy_says() {
        use IntentState::{Displaced, Lost, Rejected, Sent, Succeeded};
        for (state, reason, is_sent) in [
            (None, Some(Reason::FeeBoundExceeded), false),
            (Some(Rejected), Some(Reason::FeeBoundExceeded), false),
            (Some(Lost), Some(Reason::FeeBoundExceeded), false),
            (Some(Succeeded), None, false),
            (Some(Sent), Some(Reason::OutcomeUnknown), false),
            (Some(Displaced), None, true),
        ] {
            let stored = state.map(|state| Intent {
                digest: hash(1).to_bytes_be(),
                ..intent(1, 7, state)
            });
            let mut script = Script::with(stored.as_slice());
            script.state().is_exclusive = true;
            if state == Some(Succeeded) {
                script.state().receipts.insert(hash(1), receipt());
            } else if state == Some(Displaced) {
                script = showing(script);
            }
            let refused = Refusal::new(Reason::FeeBoundExceeded, "");
            let (outcome, script) = submitted_unless(script, Some(refused));
            let sends = format!("sends {}", hash(1));
            let found = (outcome.reason(), script.done().contains(&sends));
            assert_eq!(found, (reason, is_sent), "{state:?}");
        }
    }

    #[test]
    fn a_transaction_whose_nonce_is_used_is_not_sent() {
        let script = Script::new();
        script.state().nonces = [Ok(8)].into();
        let (outcome, script) = submitted(script);
        assert_eq!(outcome.reason(), Some(Reason::NonceConflict));
        assert_eq!(script.done(), [""; 0], "nothing is stored");
    }

    #[test]
    fn a_nonce_conflict_says_its_cause_and_remedy() {
        use IntentState::{Accepted, Sent, Succeeded};
        let occupant = |state| intent(9, 7, state);
        for (next, other, says, named, retry_after) in [
            (
                Some(5),
                None,
                "is ahead of the account's next one, 5",
                None,
                None,
            ),
            (
                Some(7),
                None,
                "send the same transaction again",
                None,
                Some(1),
            ),
            (Some(8), None, "the nonce is used", None, None),
            (None, None, "the nonce is used", None, None),
            (
                Some(8),
                Some(occupant(Accepted)),
                "is pending",
                Some(hash(9)),
                Some(1),
            ),
            (
                Some(7),
                Some(occupant(Sent)),
                "is pending",
                Some(hash(9)),
                Some(1),
            ),
            (
                Some(7),
                Some(occupant(Succeeded)),
                "the nonce is used",
                Some(hash(9)),
                None,
            ),
        ] {
            let found = nonce_conflict(7, next, other.as_ref());
            let text = format!("{:?}", found.status);
            assert!(text.contains(says), "{text}");
            assert_eq!(found.reason(), Some(Reason::NonceConflict));
            assert_eq!(
                (found.transaction_hash, found.retry_after),
                (named, retry_after)
            );
        }
    }

    #[test]
    fn a_nonce_conflict_names_the_pending_transaction() {
        for (state, named) in [
            (IntentState::Accepted, (Some(hash(9)), Some(1))),
            (IntentState::Rejected, (None, None)),
        ] {
            let script = Script::with(&[intent(9, 7, state)]);
            script.state().nonces = [Ok(8)].into();
            let (outcome, _) = submitted(script);
            assert_eq!(outcome.reason(), Some(Reason::NonceConflict));
            let found = (outcome.transaction_hash, outcome.retry_after);
            assert_eq!(found, named, "{state:?}");
        }
    }

    #[test]
    fn a_refused_nonce_is_explained_as_a_conflict() {
        for (answer, reason, says) in [
            (
                code::INVALID_NONCE,
                Reason::NonceConflict,
                "send the same transaction again",
            ),
            (code::VALIDATION_FAILURE, Reason::Rejected, REMEDY),
        ] {
            let script = Script::new();
            script.state().added = [returned(answer)].into();
            let (outcome, _) = submitted(script);
            assert_eq!(outcome.reason(), Some(reason), "{answer}");
            let text = format!("{:?}", outcome.status);
            assert!(text.contains(says), "{text}");
        }
    }

    #[test]
    fn what_the_node_took_is_recorded_before_its_receipt() {
        let (outcome, script) = submitted(Script::new());
        assert_eq!(outcome, Outcome::written(hash(1), Details::None));
        assert_eq!(script.state_of(100), IntentState::Accepted);
    }

    #[test]
    fn the_policy_refuses_nothing_that_is_journaled() {
        use crate::tx::{Bounds, DeployAccount};
        let deploys = DeployAccount {
            class_hash: Felt::ZERO,
            public_key: felt(5),
            bounds: Bounds::ZERO,
        };
        let refused = Refusal::new(Reason::FeeBoundExceeded, "");
        let unverified = Unverified::passed(deploys.into()).refused(refused);
        for (state, is_refused) in [
            (None, true),
            (Some(IntentState::Rejected), true),
            (Some(IntentState::Sent), false),
        ] {
            let stored = state.map(|state| Intent {
                digest: unverified.hash().to_bytes_be(),
                ..intent(1, 7, state)
            });
            let script = Script::with(stored.as_slice());
            let found = run(refusal(&script, &unverified));
            assert_eq!(found.is_some(), is_refused, "{state:?}");
        }
    }

    #[test]
    fn a_deployment_of_an_account_that_exists_says_so() {
        for (is_deployed, expected) in [
            (true, Reason::AccountAlreadyDeployed),
            (false, Reason::NonceConflict),
        ] {
            let mut script = Script::new();
            if is_deployed {
                script.chain = script.chain.deployed(0xdd);
            }
            let transaction = Approved {
                operation: "deploy-account",
                hash: hash(1),
                sender: felt(0xdd),
                nonce: 0,
                params: String::new(),
                epoch: EPOCH.into(),
                refused: None,
                trace: Arc::new(()),
            };
            let refused = run(transaction.conflict(&script));
            assert_eq!(refused.reason(), Some(expected));
        }
    }

    #[test]
    fn a_transaction_in_doubt_is_sent_again_or_refused() {
        let displaced = intent(1, 7, IntentState::Displaced);
        for (answer, reason, state) in [
            (Ok(hash(1)), None, IntentState::Succeeded),
            (
                returned(code::VALIDATION_FAILURE),
                Some(Reason::Rejected),
                IntentState::Displaced,
            ),
        ] {
            let mut script = Script::with(core::slice::from_ref(&displaced));
            if answer.is_ok() {
                script = showing(script);
            }
            script.state().intended = [Ok(Intended::Known(Box::new(displaced.clone())))].into();
            script.state().added = [answer].into();
            let (outcome, script) = submitted(script);
            assert_eq!((outcome.reason(), script.state_of(1)), (reason, state));
        }
    }
}
