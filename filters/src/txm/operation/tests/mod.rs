//! An operation from its request to its answer: what is decided again, joined, signed and sent.

use super::*;
use crate::ledger::{Claim, Intended};
use crate::ledger::{Intent, IntentState};
use crate::operations::tests::chain::{Chain, FAUCET, TOKEN, felt};
use crate::operations::{FaucetDrip, RecoveryExecute, Register, RequireV2};
use crate::txm::io::JournalError;
use crate::txm::node::code;
use crate::txm::outcome::Details;
use crate::txm::reconcile;
use crate::txm::tests::script::Script;
use crate::txm::tests::{EPOCH, hash, intent, no_answer, receipt, returned, run};
use crate::verdict::Reason;

mod repeats;

const IDENTITY: u64 = 7;
const ACCOUNT: u64 = 8;
/// The hash of the first signed transaction: the estimated price is 1, and half of it is 0.
const SIGNED: i64 = 1_001;

pub(in crate::txm) fn register() -> Operation {
    let (identity, account) = (felt(IDENTITY), felt(ACCOUNT));
    Operation::Register(Register {
        identity,
        account,
        public_key: felt(1),
    })
}

pub(super) fn drip() -> Operation {
    let (identity, recipient) = (felt(IDENTITY), felt(ACCOUNT));
    Operation::FaucetDrip(FaucetDrip {
        identity,
        recipient,
        public_key: felt(1),
    })
}

/// A request with this key. All of them are equal.
pub(in crate::txm) fn task(operation: Operation, key: Option<&str>) -> Arc<Task<()>> {
    Arc::new(Task {
        operation,
        digest: [0; 32],
        request: String::new(),
        request_id: String::new(),
        key: key.map(ToOwned::to_owned),
        refused: None,
        trace: Arc::new(()),
        stored: AtomicI64::new(0),
    })
}

/// A chain on which the identity can be registered, and which shows each transaction at once.
fn script(intents: &[Intent]) -> Script {
    let mut script = Script::with(intents);
    script.chain = Chain::new().deployed(ACCOUNT);
    script.state().receipts = (0..10)
        .map(|price| (hash(SIGNED + price), receipt()))
        .collect();
    script
}

/// A [`script`] that has reconciled at the start, and has these intents after that.
fn reconciled(intents: &[Intent]) -> Script {
    let script = script(&[]);
    run(reconcile::permit(&script, Required::All)).expect("the pins are proven");
    reconcile::caught_up(&script, EPOCH, Role::Owner);
    script.done();
    script.state().intents = intents.to_vec();
    script
}

/// An intent of another request.
fn other(id: i64, nonce: u64, state: IntentState) -> Intent {
    Intent {
        digest: [1; 32],
        ..intent(id, nonce, state)
    }
}

fn answer_to(script: Script, operation: Operation, key: Option<&str>) -> (Answer, Vec<String>) {
    let script = Arc::new(script);
    let answer = run(operate(&script, &task(operation, key)));
    (answer, script.done())
}

/// The outcome of a registration: its label and reason, and what was done.
fn registered(script: Script, key: Option<&str>) -> ((&'static str, Option<Reason>), Vec<String>) {
    let (answer, done) = answer_to(script, register(), key);
    let Answer::Outcome(outcome) = answer else {
        panic!("{answer:?}")
    };
    ((outcome.kind().name(), outcome.reason()), done)
}

/// The number of actions whose name begins with `what`.
fn count(done: &[String], what: &str) -> usize {
    done.iter().filter(|it| it.starts_with(what)).count()
}

const WRITTEN: (&str, Option<Reason>) = ("written", None);
const PENDING: (&str, Option<Reason>) = ("pending", None);
const UNSETTLED: (&str, Option<Reason>) = ("refused", Some(Reason::InProgress));

#[test]
fn an_operation_is_stored_then_sent_then_recorded() {
    let (outcome, done) = registered(script(&[]), None);
    assert_eq!(outcome, WRITTEN);
    let stored = done
        .iter()
        .position(|it| it == "stores nonce 7")
        .expect("it is stored");
    let rest: Vec<&str> = done[stored + 1..].iter().map(String::as_str).collect();
    let sent = format!("sends {}", hash(SIGNED));
    let read = "notes that register was not read back";
    let seen = "100 is succeeded";
    // seen once more, as the state of this chain never changes
    assert_eq!(
        rest,
        [&*sent, "100 is accepted", "unlocks", seen, seen, read]
    );
}

#[test]
fn a_key_gets_a_refusal_of_its_first_claim_only() {
    let first = script(&[]);
    first.state().claims = [Ok(Claim::Conflict)].into();
    let (outcome, _) = registered(first, Some("key"));
    assert_eq!(outcome, ("refused", Some(Reason::IdempotencyConflict)));
    // another relay has written for the key meanwhile, and the key is another request's then
    let second = script(&[]);
    second.state().claims = [Ok(Claim::New), Ok(Claim::Conflict)].into();
    second.state().answers = [Ok(false)].into();
    second.state().may_link = Ok(false);
    assert_eq!(
        registered(second, Some("key")).0,
        UNSETTLED,
        "something was written"
    );
}

#[test]
fn an_outcome_that_its_key_does_not_name_is_no_answer() {
    let unnamed = |answers: &[Result<bool, JournalError>]| {
        let script = script(&[]);
        script.state().answers = answers.iter().copied().collect();
        script.state().may_link = Ok(false);
        script
    };
    let (outcome, done) = registered(unnamed(&[Ok(false); 3]), Some("key"));
    assert_eq!((outcome, count(&done, "claims")), (UNSETTLED, 3));
    let (outcome, done) = registered(unnamed(&[Ok(false), Ok(true)]), Some("key"));
    assert_eq!((outcome, count(&done, "claims")), (WRITTEN, 2));
    let (outcome, done) = registered(unnamed(&[Err(JournalError::Failed)]), Some("key"));
    assert_eq!(
        (outcome, count(&done, "claims")),
        (WRITTEN, 1),
        "a repeat finds its intent"
    );
    let late = [Ok(false), Err(JournalError::Failed)];
    assert_eq!(registered(unnamed(&late), Some("key")).0, UNSETTLED);
}

#[test]
fn a_key_that_could_not_be_linked_has_no_final_answer() {
    let written = || Outcome::written(hash(1), Details::None).of_intent(IntentId(1));
    let pending = || Outcome::pending(hash(1)).of_intent(IntentId(1));
    for (joined, named, expected, why) in [
        (
            written(),
            None,
            UNSETTLED,
            "a repeat may get another answer",
        ),
        (written(), Some(1), WRITTEN, "it names that intent already"),
        (pending(), None, PENDING, "it says that it is open"),
    ] {
        let script = script(&[]);
        script.state().flights = [joined].into();
        let intent = named.map(|id| Box::new(other(id, 5, IntentState::Sent)));
        script.state().claims = [Ok(Claim::Open { intent })].into();
        script.state().answers = [Err(JournalError::Failed)].into();
        script.state().may_link = Err(JournalError::Failed);
        assert_eq!(registered(script, Some("key")).0, expected, "{why}");
    }
}

#[test]
fn an_open_outcome_is_answered_whatever_its_key_names() {
    let script = script(&[]);
    script.state().receipts.clear();
    script.state().may_link = Ok(false);
    let (outcome, done) = registered(script, Some("key"));
    assert_eq!(
        (outcome, count(&done, "claims")),
        (PENDING, 1),
        "it says that it is open"
    );
}

#[test]
fn what_an_equal_request_got_is_an_answer_if_its_key_names_it() {
    let refused = || Outcome::refused(Reason::IdentityTaken, "");
    let written = || Outcome::written(hash(1), Details::None).of_intent(IntentId(1));
    for (joined, named, own_writes, why) in [
        (refused(), None, 1, "that was refused to another key"),
        (written(), None, 0, "this key names nothing"),
        (written(), Some(1), 0, "this key names it, too"),
        (written(), Some(2), 1, "this key names another"),
        (refused(), Some(2), 1, "this key names another"),
    ] {
        let script = script(&[]);
        script.state().flights = [joined].into();
        let intent = named.map(|id| Box::new(other(id, 5, IntentState::Sent)));
        script.state().claims = [Ok(Claim::Open { intent })].into();
        let (_, done) = registered(script, Some("key"));
        assert_eq!(count(&done, "stores"), own_writes, "{why}");
    }
    let mut taken = script(&[]);
    taken.chain = taken.chain.registry("account_of", &[IDENTITY], &[99]);
    let (outcome, done) = registered(taken, Some("key"));
    assert_eq!(outcome, ("refused", Some(Reason::IdentityTaken)));
    assert_eq!(
        count(&done, "locks owner"),
        2,
        "once at the start: its own is carried out once"
    );
}

#[test]
fn a_refusal_of_the_chain_is_explained_by_the_pins() {
    for (nonces, expected, forgets) in [
        (&[7][..], ("refused", Some(Reason::RefusedByChain)), 1),
        (&[7, 8, 9, 10, 11, 12, 13], UNSETTLED, 0),
    ] {
        let script = script(&[]);
        script.state().estimate = returned(code::CONTRACT_ERROR);
        // once per turn: another transaction used the nonce meanwhile
        script.state().nonces = nonces.iter().copied().map(Ok).collect();
        let (outcome, done) = registered(script, None);
        assert_eq!((outcome, count(&done, "forgets")), (expected, forgets));
    }
    let away = script(&[]);
    away.state().estimate = crate::txm::tests::no_answer(true);
    let (outcome, done) = registered(away, None);
    let expected = ("failed", Some(Reason::UpstreamTimeout));
    assert_eq!((outcome, count(&done, "forgets")), (expected, 0));
}

#[test]
fn active_v2_verification_is_answered_without_pins() {
    let active = || {
        let mut script = script(&[]);
        script.chain = script.chain.registry("verification_v2_required", &[], &[1]);
        script
    };
    let unproven = active();
    unproven.state().proven = Err(NotSent::Restarted);
    let require = Operation::RequireV2(RequireV2 { confirmed: true });
    let (answer, _) = answer_to(unproven, require.clone(), None);
    let expected = Outcome::already(Details::V2_ACTIVE);
    assert!(
        matches!(&answer, Answer::Outcome(it) if *it == expected),
        "{answer:?}"
    );
    assert_eq!(
        registered(active(), None).0,
        WRITTEN,
        "another operation is carried out"
    );
    let (answer, done) = answer_to(script(&[]), require, None);
    assert!(
        matches!(&answer, Answer::Outcome(it) if it.kind().name() == "written"),
        "{answer:?}"
    );
    assert_eq!(count(&done, "forgets the proof"), 1, "it has changed a pin");
    let (_, done) = registered(script(&[]), None);
    assert_eq!(count(&done, "forgets the proof"), 0);
}

#[test]
fn a_key_is_of_the_chain_on_which_it_was_claimed() {
    let script = script(&[]);
    let claimed = Some("another".to_owned());
    let outcome = run(carry_out(&script, &task(register(), None), claimed, 0));
    assert_eq!(outcome.reason(), Some(Reason::PinsUnproven));
    assert_eq!(count(&script.done(), "stores"), 0);
    let claimed = Some(EPOCH.to_owned());
    let outcome = run(carry_out(&script, &task(register(), None), claimed, 0));
    assert_eq!(outcome.kind().name(), "written");
}

#[test]
fn only_requests_of_one_epoch_are_joined() {
    for key in [None, Some("key")] {
        let script = Arc::new(script(&[]));
        let _answer = run(operate(&script, &task(register(), key)));
        let flights = core::mem::take(&mut script.state().joined);
        let epochs: Vec<_> = flights.into_iter().map(|flight| flight.epoch).collect();
        assert_eq!(epochs, [Some(EPOCH.to_owned())], "{key:?}");
    }
}

#[test]
fn a_second_flight_is_of_one_key_only() {
    let script = script(&[]);
    script.state().flights = [Outcome::refused(Reason::IdentityTaken, "")].into();
    let script = Arc::new(script);
    let _answer = run(operate(&script, &task(register(), Some("key"))));
    let flights = core::mem::take(&mut script.state().joined);
    let keys: Vec<_> = flights.into_iter().map(|flight| flight.key).collect();
    assert_eq!(keys, [None, Some("key".to_owned())]);
}

#[test]
fn an_equal_request_gets_the_intent_of_the_first() {
    use IntentState::{Displaced, Intended, Sent, Succeeded};
    for (earlier, key, expected, locks, stores, why) in [
        (
            intent(1, 7, Succeeded),
            None,
            WRITTEN,
            0,
            0,
            "written since it came in",
        ),
        (
            other(1, 7, Succeeded),
            Some("key"),
            WRITTEN,
            0,
            0,
            "its key names it",
        ),
        (
            other(1, 6, Succeeded),
            None,
            WRITTEN,
            1,
            1,
            "another request's",
        ),
        (
            intent(1, 7, Intended),
            None,
            WRITTEN,
            1,
            1,
            "it was never sent",
        ),
        (
            intent(1, 7, Displaced),
            None,
            WRITTEN,
            1,
            0,
            "in doubt: it is sent again",
        ),
        (
            intent(1, 7, Sent),
            None,
            ("failed", Some(Reason::OutcomeUnknown)),
            0,
            0,
            "it is open",
        ),
    ] {
        let script = reconciled(core::slice::from_ref(&earlier));
        script.state().linked = key.map(|_| IntentId(1));
        script.state().shown_once_sent = earlier.state == Displaced;
        if earlier.state != Sent {
            script.state().receipts.insert(hash(1), receipt());
        }
        let (outcome, done) = registered(script, key);
        let found = (outcome, count(&done, "locks"), count(&done, "stores"));
        assert_eq!(found, (expected, locks, stores), "{why}: {done:?}");
    }
}

#[test]
fn a_refused_operation_is_signed_anew_only_after_a_witness() {
    let refused = |answer: i64, next: u64, witness: Option<i64>| {
        let script = script(&[]);
        script.state().receipts.clear();
        script.state().added = [returned(answer)].into();
        script.state().nonces = [Ok(7), Ok(next)].into();
        if let Some(witness) = witness
            && let Some((_, listed)) = script.state().blocks.get_mut(&10)
        {
            listed.push((7, hash(witness)));
        }
        let (outcome, done) = registered(script, None);
        (outcome, count(&done, "stores"))
    };
    let unknown = ("failed", Some(Reason::OutcomeUnknown));
    let rejected = ("refused", Some(Reason::Rejected));
    let conflict = ("refused", Some(Reason::NonceConflict));
    for (answer, next, witness, expected, why) in [
        (
            code::VALIDATION_FAILURE,
            7,
            None,
            (rejected, 1),
            "it is free",
        ),
        (code::INVALID_NONCE, 7, None, (conflict, 1), "it is free"),
        (
            code::INVALID_NONCE,
            8,
            None,
            (unknown, 1),
            "nobody knows by whom",
        ),
        (code::VALIDATION_FAILURE, 8, None, (unknown, 1), "likewise"),
        (
            code::INVALID_NONCE,
            8,
            Some(9),
            (PENDING, 2),
            "another has it for good",
        ),
    ] {
        assert_eq!(refused(answer, next, witness), expected, "{answer}: {why}");
    }
}

#[test]
fn an_intent_that_may_use_the_nonce_is_settled_before() {
    use IntentState::{Accepted, Rejected, Sent};
    for (pending, nonces, expected, stored, why) in [
        (
            other(1, 6, Accepted),
            &[7, 9][..],
            WRITTEN,
            Some("stores nonce 7"),
            "the node counts it",
        ),
        (
            other(1, 7, Accepted),
            &[7],
            UNSETTLED,
            None,
            "the node does not show it yet",
        ),
        (
            other(1, 7, Accepted),
            &[7, 8],
            WRITTEN,
            Some("stores nonce 8"),
            "the node counts it now",
        ),
        (
            other(1, 7, Rejected),
            &[7, 9],
            WRITTEN,
            Some("stores nonce 7"),
            "it is not executed",
        ),
        (other(1, 8, Sent), &[7], UNSETTLED, None, "it is sent again"),
    ] {
        let script = reconciled(&[pending]);
        script.state().nonces = nonces.iter().copied().map(Ok).collect();
        let (outcome, done) = registered(script, None);
        let stores = done
            .iter()
            .find(|it| it.starts_with("stores"))
            .map(String::as_str);
        assert_eq!((outcome, stores), (expected, stored), "{why}: {done:?}");
    }
}

#[test]
fn each_transaction_in_doubt_raises_the_price_of_the_next() {
    use IntentState::{Displaced, Lost, Rejected};
    for (slot, price) in [
        (&[][..], 1),
        (&[Displaced], 2),
        (&[Displaced, Rejected, Displaced], 3),
        (&[Rejected, Lost], 1),
    ] {
        let intents: Vec<Intent> = slot
            .iter()
            .zip(1..)
            .map(|(state, id)| other(id, 7, *state))
            .collect();
        let (outcome, done) = registered(script(&intents), None);
        assert_eq!(
            (
                outcome,
                count(&done, &format!("signs for a price of {price}"))
            ),
            (WRITTEN, 1)
        );
    }
}

#[test]
fn what_takes_the_nonce_of_a_drip_in_doubt_is_not_bound_by_it() {
    use IntentState::{Displaced, Rejected};
    for (state, expected) in [(Displaced, None), (Rejected, Some(Reason::FaucetCooldown))] {
        let mut script = script(&[other(1, 7, state)]);
        script.chain = script
            .chain
            .shows(TOKEN, "balance_of", &[FAUCET], &[120, 0]);
        script.chain.last = Some(Intent {
            created_us: 990_000_000,
            ..other(2, 3, state)
        });
        let faucet = script.pins().accounts.faucet.expect("it has one");
        script.state().intents[0].signer = faucet;
        let (answer, _) = answer_to(script, drip(), None);
        let Answer::Outcome(outcome) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(outcome.reason(), expected, "{state:?}: {outcome:?}");
    }
}

#[test]
fn a_write_that_stays_undecided_is_signed_anew_with_its_nonce() {
    const INTERNAL: i64 = -32603;
    let unknown = ("failed", Some(Reason::OutcomeUnknown));
    let first = || intent(1, 7, IntentState::Sent);
    let in_doubt = |id| intent(id, 7, IntentState::Displaced);
    for (intents, seconds, answer, expected, stores, why) in [
        (
            &[first()][..],
            29,
            returned(INTERNAL),
            unknown,
            0,
            "the node may still show it",
        ),
        (
            &[first()],
            30,
            returned(INTERNAL),
            WRITTEN,
            1,
            "no node has shown it for long",
        ),
        (
            &[first()],
            30,
            no_answer(false),
            WRITTEN,
            1,
            "nor answers when it is sent again",
        ),
        (
            &[in_doubt(1), in_doubt(2)],
            59,
            no_answer(false),
            unknown,
            0,
            "it was signed anew not long ago",
        ),
        (
            &[in_doubt(1), in_doubt(2)],
            60,
            returned(INTERNAL),
            WRITTEN,
            1,
            "the pause is over",
        ),
    ] {
        let script = reconciled(intents);
        script.state().later_us = seconds * 1_000_000;
        script.state().added = [answer].into();
        let (outcome, done) = registered(script, None);
        let found = (outcome, count(&done, "stores nonce 7"));
        assert_eq!(found, (expected, stores), "{why}: {done:?}");
    }
}

#[test]
fn what_takes_the_place_of_a_refused_repeat_has_its_nonce() {
    let doubtful = intent(1, 7, IntentState::Displaced);
    let unknown = ("failed", Some(Reason::OutcomeUnknown));
    for (answer, nonces, expected, stores) in [
        (code::VALIDATION_FAILURE, &[7][..], WRITTEN, 1),
        (code::VALIDATION_FAILURE, &[7, 8], unknown, 0),
        (code::INVALID_NONCE, &[7], UNSETTLED, 0),
    ] {
        let script = script(core::slice::from_ref(&doubtful));
        script.state().added = [returned(answer)].into();
        script.state().nonces = nonces.iter().copied().map(Ok).collect();
        let (outcome, done) = registered(script, None);
        assert_eq!(
            (outcome, count(&done, "stores nonce 7")),
            (expected, stores)
        );
    }
}

#[test]
fn a_success_without_a_block_gives_its_nonce_up() {
    // the request itself waits for some seconds
    for (seconds, expected, why) in [
        (24, UNSETTLED, "a node may still show it"),
        (26, WRITTEN, "no node has shown it for long"),
    ] {
        let taken = Intent {
            included: None,
            ..other(1, 7, IntentState::Succeeded)
        };
        let script = reconciled(core::slice::from_ref(&taken));
        script.state().intended = [Ok(Intended::NonceTaken(Box::new(taken)))].into();
        script.state().later_us = seconds * 1_000_000;
        let (outcome, done) = registered(script, None);
        assert_eq!(outcome, expected, "{why}: {done:?}");
    }
}

#[test]
fn one_in_doubt_is_sent_again_behind_a_newer_success() {
    let doubtful = intent(1, 7, IntentState::Displaced);
    for (answers, stores, why) in [
        (&[][..], 1, "it is sent again"),
        (
            &[code::VALIDATION_FAILURE],
            2,
            "it is signed anew with its nonce",
        ),
    ] {
        let newer = Intent {
            created_us: 0,
            ..intent(2, 6, IntentState::Succeeded)
        };
        let script = script(&[doubtful.clone(), newer]);
        if answers.is_empty() {
            script.state().receipts.insert(hash(1), receipt());
            script.state().shown_once_sent = true;
        }
        let known = Intended::Known(Box::new(doubtful.clone()));
        script.state().intended = [Ok(known)].into();
        script.state().added = answers.iter().map(|code| returned(*code)).collect();
        let (outcome, done) = registered(script, None);
        let found = (outcome, count(&done, "stores nonce 7"));
        assert_eq!(found, (WRITTEN, stores), "{why}: {done:?}");
    }
}

#[test]
fn an_account_of_another_role_is_locked_for_a_repeat() {
    let drip_of = |signer| Intent {
        signer,
        ..intent(1, 7, IntentState::Displaced)
    };
    let accounts = Chain::new().pins.accounts;
    let faucet = *accounts.of(Role::Faucet);
    for (signer, locked, why) in [
        (faucet, &["faucet"][..], "it is the faucet's own"),
        (
            accounts.owner,
            &["faucet", "owner"],
            "the owner paid drips before",
        ),
        (felt(0xf0), &["faucet"], "no relay signs with it any longer"),
    ] {
        let script = reconciled(&[drip_of(signer)]);
        reconcile::caught_up(&script, EPOCH, Role::Faucet);
        let (_, done) = answer_to(script, drip(), None);
        let is_lock = |it: &&str| it.starts_with("locks ") || it.starts_with("sends ");
        let found: Vec<_> = done.iter().map(String::as_str).filter(is_lock).collect();
        let locks = locked.iter().map(|role| format!("locks {role}"));
        let expected: Vec<String> = locks.chain(["sends 0x1".to_owned()]).collect();
        assert_eq!(found, expected, "{why}: {done:?}");
    }
}

#[test]
fn what_is_journaled_is_not_sent_to_another_chain() {
    use crate::txm::tests::intent as stored;
    let unknown = ("failed", Some(Reason::OutcomeUnknown));
    let restarted = ("failed", Some(Reason::PinsUnproven));
    for (reply, expected, rejects, why) in [
        (None, restarted, 1, "it is stored"),
        (
            Some(Err(JournalError::Unconfirmed)),
            unknown,
            0,
            "it may be stored",
        ),
        (
            Some(Err(JournalError::Failed)),
            restarted,
            0,
            "it is not stored",
        ),
        (
            Some(Ok(Intended::KeyConflict)),
            restarted,
            0,
            "it is not stored",
        ),
        (
            Some(Ok(Intended::NonceTaken(Box::new(stored(
                9,
                7,
                IntentState::Sent,
            ))))),
            restarted,
            0,
            "it is not stored",
        ),
    ] {
        let script = script(&[]);
        script.state().intended = reply.into_iter().collect();
        script.state().anchor = Ok("another".into());
        let (outcome, done) = registered(script, None);
        let found = (
            outcome,
            count(&done, "100 is rejected"),
            count(&done, "sends"),
        );
        assert_eq!(found, (expected, rejects, 0), "{why}");
    }
}

#[test]
fn an_effect_that_is_not_read_back_is_undone_or_late() {
    let late = script(&[]);
    assert_eq!(
        registered(late, None).0,
        WRITTEN,
        "the chain has its transaction"
    );
    // its receipt is shown once, but no longer when the effect is read
    let gone = script(&[]);
    gone.state().shown_once = true;
    assert_eq!(registered(gone, None).0, UNSETTLED);
}

#[test]
fn what_seems_gone_is_not_written_without_pins() {
    for (proven, apply_fails, expected, why) in [
        (Ok(EPOCH.to_owned()), false, true, "its block is gone"),
        (
            Err(NotSent::PinsUnproven),
            false,
            true,
            "as far as is known",
        ),
        (
            Ok(EPOCH.to_owned()),
            true,
            false,
            "the journal has the success",
        ),
    ] {
        let script = script(&[intent(1, 7, IntentState::Succeeded)]);
        script.state().proven = proven;
        script.state().apply_fails = apply_fails;
        assert_eq!(run(is_gone(&script, IntentId(1))), expected, "{why}");
    }
}
