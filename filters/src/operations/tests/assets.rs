//! Cards, usership results and drips.

use super::chain::{CARD, Chain, FAUCET, TOKEN, USERSHIP, felt};
use super::{ALREADY, call, decided, is_known_by, read, refused, writes};
use crate::felt::U256;
use crate::ledger::{Binding, Intent, IntentId, IntentState};
use crate::operations::{Decision, State};
use crate::operations::{FaucetDrip, MintCard, Operation, RecoveryPropose, SubmitUsership};
use crate::txm::outcome::{Details, Outcome};
use crate::verdict::Reason;
use futures_util::FutureExt as _;

const ACCOUNT: u64 = 8;
const IDENTITY: u64 = 7;

fn mint() -> Operation {
    Operation::MintCard(MintCard {
        recipient: felt(ACCOUNT),
        card_id: U256::from(5_u128),
    })
}

fn drip() -> Operation {
    let (identity, recipient) = (felt(IDENTITY), felt(ACCOUNT));
    Operation::FaucetDrip(FaucetDrip {
        identity,
        recipient,
        public_key: felt(1),
    })
}

/// The faucet can pay one drip of 100 with a fee of at most 20.
fn filled() -> Chain {
    Chain::new().shows(TOKEN, "balance_of", &[FAUCET], &[120, 0])
}

fn pays() -> Decision {
    Decision::Bind(
        felt(IDENTITY),
        vec![call(TOKEN, "transfer", &[ACCOUNT, 100, 0])],
    )
}

/// A drip at 970 s, whose cooldown of a minute ends at 1,030 s.
fn earlier() -> Intent {
    Intent {
        id: IntentId(1),
        transaction_hash: felt(0x77),
        state: IntentState::Succeeded,
        created_us: 970_000_000,
        ..Intent::empty()
    }
}

#[test]
fn a_card_is_minted_once_to_a_verified_account() {
    let verified = || Chain::new().registry("is_verified", &[ACCOUNT], &[1]);
    let minted = |first, owner| {
        let chain = verified().shows(CARD, "minted_to", &[5, 0], &[first]);
        chain.shows(CARD, "owner_of", &[5, 0], &[owner])
    };
    for (chain, expected) in [
        (verified(), writes(CARD, "mint", &[ACCOUNT, 5, 0])),
        (Chain::new(), Err(Reason::NotVerified)),
        (minted(ACCOUNT, ACCOUNT), ALREADY),
        (minted(ACCOUNT, 9), ALREADY),
        (minted(9, ACCOUNT), ALREADY),
        (minted(9, 9), Err(Reason::AlreadyMinted)),
    ] {
        assert_eq!(decided(&mint(), &chain), expected);
    }
}

#[test]
fn a_result_is_submitted_once_for_a_registered_account() {
    let (account, evidence) = (felt(ACCOUNT), felt(6));
    let submit = SubmitUsership {
        account,
        epoch: 12,
        units: 4,
        evidence,
    };
    let submit = Operation::SubmitUsership(submit);
    let bound = || Chain::new().registry("identity_of", &[ACCOUNT], &[IDENTITY]);
    let shown = |result: [u64; 2]| bound().shows(USERSHIP, "usership_of", &[ACCOUNT, 12], &result);
    for (chain, expected) in [
        (
            bound(),
            writes(USERSHIP, "submit_usership", &[ACCOUNT, 12, 4, 6]),
        ),
        (Chain::new(), Err(Reason::NotRegistered)),
        (shown([4, 6]), ALREADY),
        (shown([4, 5]), Err(Reason::UsershipConflict)),
        (shown([0, 5]), Err(Reason::UsershipConflict)),
    ] {
        assert_eq!(decided(&submit, &chain), expected);
    }
}

#[test]
fn a_drip_is_paid_while_the_balance_covers_it_and_its_fee() {
    let holding = |low, high| Chain::new().shows(TOKEN, "balance_of", &[FAUCET], &[low, high]);
    for (chain, expected) in [
        (holding(119, 0), Err(Reason::FaucetEmpty)),
        (holding(120, 0), Ok(pays())),
        (holding(121, 0), Ok(pays())),
        (holding(0, 1), Ok(pays())),
    ] {
        assert_eq!(decided(&drip(), &chain), expected);
    }
}

#[test]
fn the_registry_decides_before_the_store_whose_a_drip_is() {
    let registered = |account| filled().registry("account_of", &[IDENTITY], &[account]);
    let bound = || filled().registry("identity_of", &[ACCOUNT], &[99]);
    let stored = |binding, chain| decided(&drip(), &Chain { binding, ..chain });
    let paid = || writes(TOKEN, "transfer", &[ACCOUNT, 100, 0]);
    assert_eq!(
        stored(Binding::IdentityElsewhere, registered(ACCOUNT)),
        paid()
    );
    assert_eq!(
        stored(Binding::Bound, registered(9)),
        Err(Reason::IdentityTaken)
    );
    assert_eq!(stored(Binding::Bound, bound()), Err(Reason::AccountTaken));
    assert_eq!(stored(Binding::Bound, filled()), Ok(pays()));
    assert_eq!(
        stored(Binding::IdentityElsewhere, filled()),
        Err(Reason::IdentityTaken)
    );
    assert_eq!(
        stored(Binding::RecipientElsewhere, filled()),
        Err(Reason::AccountTaken)
    );
}

#[test]
fn a_drip_waits_for_the_cooldown_of_the_one_before() {
    let found = refused(
        &drip(),
        &Chain {
            last: Some(earlier()),
            ..filled()
        },
    );
    assert_eq!(found.reason(), Some(Reason::FaucetCooldown));
    assert_eq!(
        (found.transaction_hash, found.retry_after),
        (Some(felt(0x77)), Some(30))
    );
    let over = Chain {
        last: Some(earlier()),
        time_us: 1_030_000_000,
        ..filled()
    };
    assert_eq!(decided(&drip(), &over), Ok(pays()));
}

/// A recovery of the identity from account 3 to [`ACCOUNT`] is pending.
fn recovering() -> Chain {
    filled().registry("account_of", &[IDENTITY], &[3]).registry(
        "recovery_of",
        &[IDENTITY],
        &[ACCOUNT, 2_000],
    )
}

/// A proposal of this account for the identity, at this second.
fn proposal(account: u64, second: i64) -> Intent {
    let propose = Operation::RecoveryPropose(RecoveryPropose {
        identity: felt(IDENTITY),
        new_account: felt(account),
        // a point of the curve
        new_public_key: felt(1),
    });
    Intent {
        operation: "recovery-propose".into(),
        subject: Some(felt(IDENTITY)),
        request: propose.canonical(),
        created_us: second * 1_000_000,
        ..Intent::empty()
    }
}

/// A drip to this account, at this second.
fn drip_to(account: u64, second: i64) -> Intent {
    Intent {
        operation: "faucet-drip".into(),
        subject: Some(felt(account)),
        created_us: second * 1_000_000,
        ..earlier()
    }
}

#[test]
fn the_account_of_a_pending_recovery_is_paid() {
    let paid = || writes(TOKEN, "transfer", &[ACCOUNT, 100, 0]);
    for binding in [Binding::Bound, Binding::IdentityElsewhere] {
        let chain = Chain {
            binding,
            ..recovering()
        };
        assert_eq!(decided(&drip(), &chain), paid(), "it binds nothing");
    }
    let other = recovering().registry("recovery_of", &[IDENTITY], &[9, 2_000]);
    assert_eq!(decided(&drip(), &other), Err(Reason::IdentityTaken));
    let taken = recovering().registry("identity_of", &[ACCOUNT], &[99]);
    assert_eq!(decided(&drip(), &taken), Err(Reason::AccountTaken));
}

#[test]
fn an_identity_is_paid_once_whatever_is_proposed() {
    // now is 1,000 s, and the cooldown a minute
    let paid = || writes(TOKEN, "transfer", &[ACCOUNT, 100, 0]);
    let too_soon = || Err(Reason::FaucetCooldown);
    let now = || proposal(ACCOUNT, 999);
    for (journaled, expected, why) in [
        (vec![now()], paid(), "nothing was paid"),
        (
            vec![now(), drip_to(ACCOUNT, 999)],
            too_soon(),
            "this account was",
        ),
        (
            vec![now(), drip_to(3, 990)],
            paid(),
            "the former account needs no deployment",
        ),
        (
            vec![proposal(9, 960), drip_to(9, 961), now()],
            too_soon(),
            "another proposed account was",
        ),
        (
            vec![proposal(9, 950), drip_to(9, 951), proposal(10, 960), now()],
            too_soon(),
            "one before the last",
        ),
        (
            vec![proposal(9, 900), drip_to(9, 901), now()],
            paid(),
            "the cooldown is over",
        ),
    ] {
        let chain = Chain {
            journaled,
            ..recovering()
        };
        assert_eq!(decided(&drip(), &chain), expected, "{why}");
    }
}

#[test]
fn a_refused_drip_says_when_the_next_is_possible() {
    let found = refused(
        &drip(),
        &Chain {
            last: Some(earlier()),
            ..filled()
        },
    );
    let text = format!("{:?}", found.status);
    assert!(text.contains("at 1970-01-01T00:17:10Z"), "{text}");
}

#[test]
fn what_is_in_doubt_does_not_bind_the_drip_in_its_place() {
    let binding = Binding::RecipientElsewhere;
    let chain = Chain {
        last: Some(earlier()),
        binding,
        ..filled()
    };
    let state = State {
        is_in_doubt: true,
        ..State::of(&chain, "epoch")
    };
    let decision = drip().decide(&state).now_or_never().expect("nothing waits");
    assert_eq!(decision, Ok(pays()));
}

#[test]
fn the_registry_binds_a_drip_in_anothers_place() {
    let registered = filled().registry("account_of", &[IDENTITY], &[9]);
    let bound = filled().registry("identity_of", &[ACCOUNT], &[99]);
    for (chain, expected) in [
        (registered, Reason::IdentityTaken),
        (bound, Reason::AccountTaken),
    ] {
        let state = State {
            is_in_doubt: true,
            ..State::of(&chain, "epoch")
        };
        let decision = drip().decide(&state).now_or_never().expect("nothing waits");
        let refused = decision.map_err(|why| Outcome::from(why).reason());
        assert_eq!(refused, Err(Some(expected)));
    }
}

#[test]
fn a_drip_is_known_by_its_recipient_and_nothing_is_read_back_of_it() {
    assert_eq!(is_known_by(&drip()), Some(felt(ACCOUNT)));
    assert_eq!(is_known_by(&mint()), None);
    assert_eq!(read(&drip(), &Chain::new()), Some(Details::None));
}
