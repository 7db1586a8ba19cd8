//! Idempotency keys: whether a stored response holds, and what is stored under a key.

use super::script::Script;
use super::{EPOCH, hash, intent, receipt, run};
use crate::ledger::{Claim, Intent, IntentId, IntentState};
use crate::txm::claim::{Claiming, claim, end_claim};
use crate::txm::node::Receipt;
use crate::txm::not_sent::NotSent;
use crate::txm::operation::tests::{register, task};
use crate::txm::outcome::{Details, Outcome};
use crate::verdict::Reason;

const KEY: &str = "key";

fn claimed(script: &Script) -> Result<Claiming, NotSent> {
    run(claim(script, KEY, &task(register(), Some(KEY))))
}

/// A key with a stored response of this status, which reports an intent.
fn answered(status: u16, intent: Option<&Intent>) -> Claim {
    let body = "first".to_owned();
    Claim::Answered {
        status,
        body,
        intent: intent.cloned().map(Box::new),
    }
}

fn reverted() -> Receipt {
    Receipt {
        outcome: Err(None),
        ..receipt()
    }
}

#[test]
fn a_stored_response_holds_while_the_chain_has_it() {
    use IntentState::{Displaced, Reverted, Succeeded};
    for (status, state, shown, holds, why) in [
        (
            200,
            Some(Succeeded),
            Some(receipt()),
            true,
            "it is still there",
        ),
        (
            299,
            Some(Succeeded),
            Some(receipt()),
            true,
            "another success",
        ),
        (
            200,
            Some(Succeeded),
            Some(reverted()),
            false,
            "it reverted in another block",
        ),
        (
            200,
            Some(Succeeded),
            None,
            false,
            "another block has its place",
        ),
        (
            200,
            Some(Reverted),
            Some(reverted()),
            false,
            "the journal has another end",
        ),
        (
            200,
            Some(Displaced),
            Some(receipt()),
            false,
            "it was in doubt",
        ),
        (200, None, None, false, "it reports no intent"),
        (300, Some(Reverted), Some(reverted()), true, "no success"),
        (
            422,
            Some(Reverted),
            Some(reverted()),
            true,
            "it still reverts",
        ),
        (
            422,
            Some(Reverted),
            Some(receipt()),
            false,
            "it succeeded in another block",
        ),
        (
            422,
            Some(Succeeded),
            Some(receipt()),
            false,
            "the journal has a success",
        ),
    ] {
        let reported = state.map(|state| intent(1, 7, state));
        let script = Script::with(reported.as_slice());
        script.state().receipts = shown.map(|shown| (hash(1), shown)).into_iter().collect();
        script.state().claims = [Ok(answered(status, reported.as_ref()))].into();
        match claimed(&script) {
            Ok(Claiming::First(found, body)) => {
                assert!(
                    holds && (found, &*body) == (status, "first"),
                    "{status}: {why}"
                );
            }
            Ok(Claiming::Claimed(claimed)) => {
                let named = reported.map(|it| it.id);
                assert!(!holds && claimed.named == named, "{status}: {why}");
            }
            Ok(Claiming::Unseen(known)) => panic!("{known:?}: {why}"),
            Err(refused) => panic!("{refused:?}: {why}"),
        }
    }
}

#[test]
fn a_key_of_another_request_is_refused_unless_the_chain_restarts() {
    let script = Script::new();
    script.state().claims = [Ok(Claim::Conflict)].into();
    assert_eq!(claimed(&script).err(), Some(NotSent::KeyConflict));
    script.state().claims = [Ok(Claim::Conflict)].into();
    script.state().anchor = Ok("another".into());
    let Ok(Claiming::Claimed(again)) = claimed(&script) else {
        panic!("it is claimed")
    };
    assert_eq!(again.epoch, EPOCH);
    script.state().claims = [const { Ok(Claim::Conflict) }; 3].into();
    assert_eq!(
        claimed(&script).err(),
        Some(NotSent::Restarted),
        "it restarts again and again"
    );
}

/// Ends a claim that its request made or joined.
fn end(script: &Script, reply: Claim, outcome: &Outcome) -> (bool, Vec<String>) {
    script.state().claims = [Ok(reply)].into();
    let Ok(Claiming::Claimed(claimed)) = claimed(script) else {
        panic!("it is claimed")
    };
    script.done();
    let task = task(register(), Some(KEY));
    let ended = run(end_claim(script, KEY, &claimed, outcome, &task));
    (ended.expect("the journal answers"), script.done())
}

#[test]
fn a_final_outcome_is_stored_under_a_key_that_may_name_it() {
    let written = Outcome::written(hash(1), Details::None).of_intent(IntentId(1));
    for (answers, may_link, is_its_answer, done) in [
        (&[true][..], true, true, &["answers with 1"][..]),
        (
            &[false, true],
            true,
            true,
            &["answers with 1", "links 1", "answers with 1"],
        ),
        (
            &[false, false],
            true,
            true,
            &["answers with 1", "links 1", "answers with 1"],
        ),
        (&[false], false, false, &["answers with 1", "links 1"]),
    ] {
        let script = Script::new();
        script.state().answers = answers.iter().copied().map(Ok).collect();
        script.state().may_link = Ok(may_link);
        let found = end(&script, Claim::New, &written);
        assert_eq!(
            found,
            (
                is_its_answer,
                done.iter().map(|it| (*it).to_owned()).collect()
            )
        );
    }
}

#[test]
fn an_open_outcome_is_linked_and_not_stored() {
    let pending = Outcome::pending(hash(1)).of_intent(IntentId(1));
    for may_link in [true, false] {
        let script = Script::new();
        script.state().may_link = Ok(may_link);
        let found = end(&script, Claim::New, &pending);
        assert_eq!(found, (may_link, vec!["links 1".to_owned()]));
    }
}

#[test]
fn a_key_without_a_write_is_released_by_its_owner_alone() {
    let refused = Outcome::refused(Reason::IdentityTaken, "");
    let already = Outcome::already(Details::None);
    let open = |named: &Option<Intent>| Claim::Open {
        intent: named.clone().map(Box::new),
    };
    let script = Script::new();
    assert_eq!(
        end(&script, Claim::New, &refused),
        (true, vec!["releases".to_owned()])
    );
    assert_eq!(
        end(&script, Claim::New, &already),
        (true, vec![]),
        "the key stays"
    );
    let other = Some(intent(1, 7, IntentState::Sent));
    assert_eq!(
        end(&script, open(&None), &refused),
        (true, vec![]),
        "nobody wrote for it"
    );
    assert_eq!(
        end(&script, open(&other), &refused),
        (false, vec![]),
        "it names nothing now"
    );
    assert_eq!(
        end(&script, open(&other), &already),
        (true, vec![]),
        "that is so in any case"
    );
    script.state().intents = vec![intent(1, 7, IntentState::Sent)];
    script.state().linked = Some(IntentId(1));
    assert_eq!(
        end(&script, open(&other), &refused),
        (true, vec![]),
        "it names the same"
    );
    assert_eq!(
        end(&script, open(&None), &refused),
        (false, vec![]),
        "another has written"
    );
}
