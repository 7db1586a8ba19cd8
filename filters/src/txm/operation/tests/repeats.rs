//! Repeats, which get the outcome of the first request.

use super::*;
use crate::txm::node::Receipt;
use crate::txm::operation::repeat::done_before;
use crate::txm::operation::write::Step;

/// A request that the policy refuses now.
fn no_longer_admitted(key: Option<&str>) -> Arc<Task<()>> {
    let task = Arc::into_inner(task(register(), key)).expect("nobody else has it");
    let refusal = Refusal::new(Reason::ArgumentNotAllowed, "");
    Arc::new(Task {
        refused: Some(refusal),
        ..task
    })
}

#[test]
fn a_key_is_answered_though_the_policy_refuses_now() {
    use IntentState::{Rejected, Succeeded};
    let refused = ("refused", Some(Reason::ArgumentNotAllowed));
    let open = |state| Claim::Open {
        intent: Some(Box::new(intent(1, 7, state))),
    };
    for (key, claim, state, expected, done_is, why) in [
        (None, None, None, refused, &[][..], "no key"),
        (
            Some("key"),
            Some(Claim::New),
            None,
            refused,
            &["claims", "releases"],
            "a new key",
        ),
        (
            Some("key"),
            Some(open(Succeeded)),
            Some(Succeeded),
            WRITTEN,
            &["claims", "1 is succeeded", "answers with 1"],
            "it names a write",
        ),
    ] {
        let intents: Vec<_> = state.map(|state| intent(1, 7, state)).into_iter().collect();
        let script = reconciled(&intents);
        script.state().receipts.insert(hash(1), receipt());
        script.state().linked = state.map(|_| IntentId(1));
        script.state().claims = claim.map(Ok).into_iter().collect();
        let script = Arc::new(script);
        let answer = run(operate(&script, &no_longer_admitted(key)));
        let Answer::Outcome(outcome) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!((outcome.kind().name(), outcome.reason()), expected, "{why}");
        assert_eq!(script.done(), done_is, "{why}");
    }
    // its write had no effect, so that it would have to be written anew
    let script = reconciled(&[intent(1, 7, Rejected)]);
    script.state().linked = Some(IntentId(1));
    script.state().claims = [Ok(open(Rejected))].into();
    let script = Arc::new(script);
    let answer = run(operate(&script, &no_longer_admitted(Some("key"))));
    let Answer::Outcome(outcome) = answer else {
        panic!("{answer:?}")
    };
    assert_eq!((outcome.kind().name(), outcome.reason()), refused);
    assert_eq!(count(&script.done(), "stores"), 0);
}

#[test]
fn a_repeat_without_a_key_gets_the_outcome_of_its_drip() {
    use IntentState::Succeeded;
    let cooldown = ("refused", Some(Reason::FaucetCooldown));
    for (key, last, expected, why) in [
        (None, 1, WRITTEN, "it is the drip of an equal request"),
        (Some("key"), 1, cooldown, "a new key asks for another drip"),
        (
            None,
            2,
            cooldown,
            "the recipient had another request's drip",
        ),
    ] {
        let paid = Intent {
            created_us: crate::txm::tests::START_US - 1,
            ..intent(1, 6, Succeeded)
        };
        let mut script = reconciled(core::slice::from_ref(&paid));
        let chain = Chain::new().shows(TOKEN, "balance_of", &[FAUCET], &[120, 0]);
        let transaction_hash = hash(last);
        script.chain = Chain {
            last: Some(Intent {
                transaction_hash,
                ..paid
            }),
            ..chain
        };
        script.state().receipts.insert(hash(1), receipt());
        let (answer, done) = answer_to(script, drip(), key);
        let Answer::Outcome(outcome) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(
            (outcome.kind().name(), outcome.reason()),
            expected,
            "{why}: {done:?}"
        );
        assert_eq!(outcome.transaction_hash, Some(hash(last)), "{why}");
        assert_eq!(count(&done, "stores"), 0, "{why}");
    }
}

#[test]
fn a_key_gets_the_outcome_of_an_equal_request_that_came_in_later() {
    let paid = intent(1, 6, IntentState::Succeeded);
    for (since_us, expected) in [(0, true), (1, false)] {
        let script = reconciled(core::slice::from_ref(&paid));
        script.state().receipts.insert(hash(1), receipt());
        let refused = NotSent::TooSoon {
            last: Box::new(paid.clone()),
            until_us: 1,
            now_us: 0,
        };
        let since_us = paid.created_us + since_us;
        let task = task(drip(), Some("key"));
        let step = run(done_before(&script, &task, EPOCH, refused, since_us));
        assert_eq!(matches!(step, Ok(Step::Known(_))), expected, "{since_us}");
    }
}

#[test]
fn a_repeat_without_a_key_gets_the_outcome_of_its_recovery() {
    let execute = Operation::RecoveryExecute(RecoveryExecute {
        identity: felt(IDENTITY),
    });
    let not_pending = ("refused", Some(Reason::RecoveryNotPending));
    for (proposed, expected, why) in [
        (Some(1), WRITTEN, "it executed that proposal"),
        (Some(3), not_pending, "another one was proposed since"),
        (None, WRITTEN, "an earlier version stored the proposal"),
    ] {
        let executed = Intent {
            created_us: crate::txm::tests::START_US - 1,
            ..intent(2, 6, IntentState::Succeeded)
        };
        let mut script = reconciled(&[executed]);
        let journaled = proposed.map(|id| Intent {
            operation: "recovery-propose".into(),
            subject: Some(felt(IDENTITY)),
            ..intent(id, 5, IntentState::Succeeded)
        });
        let chain = Chain::new().registry("account_of", &[IDENTITY], &[ACCOUNT]);
        script.chain = Chain {
            journaled: journaled.into_iter().collect(),
            ..chain
        };
        script.state().receipts.insert(hash(2), receipt());
        let (answer, _) = answer_to(script, execute.clone(), None);
        let Answer::Outcome(outcome) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!((outcome.kind().name(), outcome.reason()), expected, "{why}");
        if expected == WRITTEN {
            let account = felt(ACCOUNT).to_string();
            assert_eq!(outcome.details, Details::Binding { account }, "{why}");
        }
    }
}

#[test]
fn a_drip_that_the_chain_takes_back_answers_no_repeat() {
    let unknown = ("failed", Some(Reason::OutcomeUnknown));
    for (shown, expected, why) in [
        (Some(Err(None)), UNSETTLED, "it reverted after a rollback"),
        (None, unknown, "no URL shows it, nor its block"),
    ] {
        let paid = Intent {
            created_us: crate::txm::tests::START_US - 1,
            ..intent(1, 6, IntentState::Succeeded)
        };
        let mut script = reconciled(core::slice::from_ref(&paid));
        let chain = Chain::new().shows(TOKEN, "balance_of", &[FAUCET], &[120, 0]);
        script.chain = Chain {
            last: Some(paid),
            ..chain
        };
        match shown {
            Some(outcome) => {
                let reverted = Receipt {
                    outcome,
                    ..receipt()
                };
                script.state().receipts.insert(hash(1), reverted);
            }
            None => {
                script.state().blocks.remove(&10);
            }
        }
        let (answer, done) = answer_to(script, drip(), None);
        let Answer::Outcome(outcome) = answer else {
            panic!("{answer:?}")
        };
        let found = (outcome.kind().name(), outcome.reason());
        assert_eq!(found, expected, "{why}: {done:?}");
        assert_eq!(count(&done, "stores"), 0, "{why}");
    }
}

#[test]
fn the_pins_are_proven_again_after_the_wait() {
    let doubted = [intent(1, 7, IntentState::Displaced)];
    for (operation, earlier, why) in [
        (register(), &[][..], "nothing is signed"),
        (register(), &doubted, "nothing is sent again"),
        (drip(), &doubted, "nor for a former account"),
    ] {
        let script = reconciled(earlier);
        reconcile::caught_up(&script, EPOCH, Role::Faucet);
        script.state().unproven_once_locked = true;
        let (answer, done) = answer_to(script, operation, None);
        let Answer::Outcome(outcome) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(outcome.reason(), Some(Reason::PinsUnproven), "{why}");
        let leaves = count(&done, "signs") + count(&done, "sends");
        assert_eq!(leaves, 0, "{why}: {done:?}");
    }
}

#[test]
fn a_drip_of_a_former_account_gives_its_nonce_up() {
    let by_owner = Intent {
        operation: "faucet-drip".into(),
        ..intent(1, 7, IntentState::Displaced)
    };
    let filled = format!("sends {}", hash(SIGNED + 1));
    for (answer, seconds, expected, fills, why) in [
        (
            code::VALIDATION_FAILURE,
            0,
            Reason::InProgress,
            1,
            "refused",
        ),
        (
            -32_603,
            29,
            Reason::OutcomeUnknown,
            0,
            "it may still be taken",
        ),
        (
            -32_603,
            30,
            Reason::InProgress,
            1,
            "the node may never decide",
        ),
        (
            code::INVALID_NONCE,
            30,
            Reason::InProgress,
            0,
            "the node is behind",
        ),
    ] {
        let script = reconciled(core::slice::from_ref(&by_owner));
        reconcile::caught_up(&script, EPOCH, Role::Faucet);
        script.state().later_us = seconds * 1_000_000;
        script.state().added = [returned(answer)].into();
        let (answer, done) = answer_to(script, drip(), None);
        let Answer::Outcome(outcome) = answer else {
            panic!("{answer:?}")
        };
        assert_eq!(outcome.reason(), Some(expected), "{why}: {done:?}");
        assert_eq!(count(&done, &filled), fills, "{why}: {done:?}");
        assert_eq!(count(&done, "sends"), 1 + fills, "{why}: {done:?}");
    }
}
