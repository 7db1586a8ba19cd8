//! Registration and recovery.

use super::chain::{Chain, REGISTRY, felt};
use super::{ALREADY, decided, read, refused, writes};
use crate::operations::Decision;
use crate::operations::{Operation, RecoveryCancel, RecoveryExecute, RecoveryPropose, Register};
use crate::timestamp::rfc3339;
use crate::txm::outcome::Details;
use crate::verdict::Reason;

const IDENTITY: u64 = 7;
const ACCOUNT: u64 = 8;

fn register() -> Operation {
    let (identity, account) = (felt(IDENTITY), felt(ACCOUNT));
    Operation::Register(Register {
        identity,
        account,
        public_key: felt(1),
    })
}

fn propose() -> Operation {
    let (identity, new_account) = (felt(IDENTITY), felt(ACCOUNT));
    Operation::RecoveryPropose(RecoveryPropose {
        identity,
        new_account,
        new_public_key: felt(1),
    })
}

fn execute() -> Operation {
    Operation::RecoveryExecute(RecoveryExecute {
        identity: felt(IDENTITY),
    })
}

fn cancel() -> Operation {
    Operation::RecoveryCancel(RecoveryCancel {
        identity: felt(IDENTITY),
    })
}

/// A recovery to [`ACCOUNT`] is pending, which is deployed.
fn recovering(ready_at: u64) -> Chain {
    Chain::new()
        .deployed(ACCOUNT)
        .registry("recovery_of", &[IDENTITY], &[ACCOUNT, ready_at])
}

#[test]
fn an_identity_is_registered_once() {
    let free = || Chain::new().deployed(ACCOUNT);
    let bound = |account| free().registry("account_of", &[IDENTITY], &[account]);
    let elsewhere = free().registry("identity_of", &[ACCOUNT], &[99]);
    for (chain, expected) in [
        (
            free(),
            writes(REGISTRY, "register_identity", &[IDENTITY, ACCOUNT]),
        ),
        (bound(ACCOUNT), ALREADY),
        (bound(9), Err(Reason::IdentityTaken)),
        (elsewhere, Err(Reason::AccountTaken)),
        (Chain::new(), Err(Reason::AccountNotDeployed)),
        (Chain::new().foreign(ACCOUNT), Err(Reason::ClassNotApproved)),
    ] {
        assert_eq!(decided(&register(), &chain), expected);
    }
}

#[test]
fn a_recovery_is_proposed_for_a_bound_identity_to_a_free_account() {
    let bound = || {
        Chain::new()
            .deployed(ACCOUNT)
            .registry("account_of", &[IDENTITY], &[3])
    };
    let elsewhere = bound().registry("identity_of", &[ACCOUNT], &[99]);
    let foreign = bound().foreign(ACCOUNT);
    let undeployed = Chain::new().registry("account_of", &[IDENTITY], &[3]);
    let proposes = || writes(REGISTRY, "recovery_propose", &[IDENTITY, ACCOUNT]);
    for (chain, expected) in [
        (bound(), proposes()),
        (undeployed, proposes()),
        (Chain::new().deployed(ACCOUNT), Err(Reason::NotRegistered)),
        (elsewhere, Err(Reason::AccountTaken)),
        (foreign, Err(Reason::ClassNotApproved)),
    ] {
        assert_eq!(decided(&propose(), &chain), expected);
    }
}

#[test]
fn a_pending_recovery_says_when_it_is_ready() {
    let details = Details::Recovery {
        ready_at: rfc3339(500),
    };
    let same = decided(&propose(), &recovering(500));
    assert_eq!(same, Ok(Decision::Already(details.clone())));
    let other = Chain::new().registry("recovery_of", &[IDENTITY], &[99, 500]);
    let found = refused(&propose(), &other);
    assert_eq!(
        (found.reason(), &found.details),
        (Some(Reason::RecoveryPending), &details)
    );
}

#[test]
fn a_recovery_is_executed_from_the_second_on_in_which_it_is_ready() {
    let done = || writes(REGISTRY, "recovery_execute", &[IDENTITY]);
    // by the newest block's clock or by ours, whichever is ahead
    for (block_time, seconds, expected) in [
        (499, 0, Err(Reason::RecoveryNotReady)),
        (500, 0, done()),
        (501, 0, done()),
        (0, 499, Err(Reason::RecoveryNotReady)),
        (0, 500, done()),
    ] {
        let time_us = seconds * 1_000_000 + 999_999;
        let chain = Chain {
            block_time,
            time_us,
            ..recovering(500)
        };
        assert_eq!(
            decided(&execute(), &chain),
            expected,
            "{block_time} {seconds}"
        );
    }
}

#[test]
fn a_recovery_is_not_executed_in_vain() {
    assert_eq!(
        decided(&execute(), &Chain::new()),
        Err(Reason::RecoveryNotPending)
    );
    let elsewhere = recovering(500).registry("identity_of", &[ACCOUNT], &[99]);
    assert_eq!(decided(&execute(), &elsewhere), Err(Reason::AccountTaken));
    let undeployed = Chain::new().registry("recovery_of", &[IDENTITY], &[ACCOUNT, 500]);
    assert_eq!(
        decided(&execute(), &undeployed),
        Err(Reason::AccountNotDeployed)
    );
    let foreign = recovering(500).foreign(ACCOUNT);
    assert_eq!(decided(&execute(), &foreign), Err(Reason::ClassNotApproved));
    let early = refused(&execute(), &recovering(2_000));
    assert_eq!(
        early.details,
        Details::Recovery {
            ready_at: rfc3339(2_000)
        }
    );
}

#[test]
fn a_recovery_is_cancelled_within_the_window_after_its_proposal() {
    let done = || writes(REGISTRY, "recovery_cancel", &[IDENTITY]);
    // proposed at 400, and the window is 50 s
    for (block_time, expected) in [
        (400, done()),
        (450, done()),
        (451, Err(Reason::RecoveryNotCancellable)),
    ] {
        let chain = recovering(500).registry("recovery_delay", &[], &[100]);
        let chain = Chain {
            block_time,
            time_us: 0,
            ..chain
        };
        assert_eq!(decided(&cancel(), &chain), expected, "{block_time}");
    }
    assert_eq!(
        decided(&cancel(), &Chain::new()),
        Err(Reason::RecoveryNotPending)
    );
}

#[test]
fn the_end_of_a_recovery_is_read_back_once_it_is_gone() {
    let bound = |chain: Chain| chain.registry("account_of", &[IDENTITY], &[ACCOUNT]);
    let account = felt(ACCOUNT).to_string();
    let gone = read(&execute(), &bound(Chain::new()));
    assert_eq!(gone, Some(Details::Binding { account }));
    assert_eq!(read(&execute(), &bound(recovering(500))), None);
    assert_eq!(read(&cancel(), &Chain::new()), Some(Details::None));
    assert_eq!(read(&cancel(), &recovering(500)), None);
}
