//! Attestations, and permanent V2 verification.

use super::chain::{Chain, REGISTRY, felt};
use super::{ALREADY, decided, read, writes};
use crate::felt::ShortString;
use crate::operations::Decision;
use crate::operations::{Operation, RequireV2, VerificationAttest, VerificationRevoke};
use crate::txm::outcome::Details;
use crate::verdict::Reason;

const ACCOUNT: u64 = 8;
const ID: u64 = 11;
/// The felt of the short string `K`.
const K: u64 = 0x4b;

fn text() -> ShortString {
    ShortString::parse("K").unwrap()
}

fn attest() -> Operation {
    Operation::VerificationAttest(VerificationAttest {
        account: felt(ACCOUNT),
        attestation_id: felt(ID),
        assurance_type: text(),
        assurance_level: 2,
        expires_at: 2_000,
    })
}

fn revoke() -> Operation {
    Operation::VerificationRevoke(VerificationRevoke {
        account: felt(ACCOUNT),
        reason: text(),
    })
}

#[test]
fn an_attestation_id_serves_once() {
    let args = [ACCOUNT, ID, K, 2, 2_000];
    let bound = || Chain::new().registry("identity_of", &[ACCOUNT], &[7]);
    let attested = |content: [u64; 6]| {
        let current = [ID, ACCOUNT, K, 2, 5, 2_000, 0];
        let chain = bound().registry("attestation", &[ID], &content);
        chain.registry("attestation_of", &[ACCOUNT], &current)
    };
    for (chain, expected) in [
        (bound(), writes(REGISTRY, "attest_v2", &args)),
        (Chain::new(), Err(Reason::NotRegistered)),
        (attested([ACCOUNT, K, 2, 5, 2_000, 0]), ALREADY),
        (
            attested([ACCOUNT, K, 2, 5, 2_000, 1]),
            Err(Reason::AttestationReplayed),
        ),
        (
            attested([9, K, 2, 5, 2_000, 0]),
            Err(Reason::AttestationReplayed),
        ),
        (
            attested([ACCOUNT, K, 3, 5, 2_000, 0]),
            Err(Reason::AttestationReplayed),
        ),
        (
            attested([9, K, 2, 5, 2_000, 1]),
            Err(Reason::AttestationReplayed),
        ),
    ] {
        assert_eq!(decided(&attest(), &chain), expected);
    }
}

#[test]
fn only_the_attestation_in_force_is_done_already() {
    let content = [ACCOUNT, K, 2, 5, 2_000, 0];
    let not_in_force = || Err(Reason::AttestationNotInForce);
    for (current, block_time, expected, why) in [
        (ID, 1_999, ALREADY, "its last second"),
        (
            ID,
            2_000,
            not_in_force(),
            "it has expired by the chain's clock",
        ),
        (ID + 1, 5, not_in_force(), "another one has replaced it"),
        (
            0,
            5,
            not_in_force(),
            "a later one of the former kind has replaced it",
        ),
    ] {
        let shown = [current, ACCOUNT, K, 2, 5, 2_000, 0];
        let chain = Chain::new()
            .registry("attestation", &[ID], &content)
            .registry("attestation_of", &[ACCOUNT], &shown);
        let chain = Chain {
            block_time,
            ..chain
        };
        assert_eq!(decided(&attest(), &chain), expected, "{why}");
    }
}

#[test]
fn only_what_is_attested_is_revoked_and_once() {
    let attested = |revoked| {
        let shown = [ID, ACCOUNT, K, 2, 5, 900, revoked];
        Chain::new().registry("attestation_of", &[ACCOUNT], &shown)
    };
    assert_eq!(
        decided(&revoke(), &attested(0)),
        writes(REGISTRY, "revoke", &[ACCOUNT, K])
    );
    assert_eq!(decided(&revoke(), &attested(1)), ALREADY);
    assert_eq!(decided(&revoke(), &Chain::new()), Err(Reason::NotAttested));
}

#[test]
fn v2_is_required_for_ever_once_it_is_confirmed() {
    let require = |confirmed| Operation::RequireV2(RequireV2 { confirmed });
    let active = Chain::new().registry("verification_v2_required", &[], &[1]);
    for confirmed in [true, false] {
        let found = decided(&require(confirmed), &active);
        assert_eq!(found, Ok(Decision::Already(Details::V2_ACTIVE)));
    }
    let done = writes(REGISTRY, "require_v2", &[]);
    assert_eq!(decided(&require(true), &Chain::new()), done);
    let found = decided(&require(false), &Chain::new());
    assert_eq!(found, Err(Reason::ConfirmationRequired));
    assert_eq!(read(&require(true), &active), Some(Details::V2_ACTIVE));
    assert_eq!(read(&require(true), &Chain::new()), None);
}
