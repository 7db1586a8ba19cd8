//! Why the contracts forbid an operation, in one state of them.

use super::chain::{SELECTORS, State};
use portcullis_filters::felt::Felt;
use portcullis_filters::operations::Operation;
use portcullis_filters::verdict::Reason;

fn is(holds: bool, reason: Reason) -> Option<Reason> {
    if holds { Some(reason) } else { None }
}

struct Views<'a>(&'a State);

impl Views<'_> {
    fn first(&self, selector: Felt, args: &[Felt]) -> Felt {
        self.0.call(selector, args)[0]
    }

    fn account_of(&self, identity: Felt) -> Felt {
        self.first(SELECTORS.account_of, &[identity])
    }

    fn is_bound(&self, account: Felt) -> bool {
        self.first(SELECTORS.identity_of, &[account]) != Felt::ZERO
    }

    /// The new account of a pending recovery, or zero.
    fn recovery_of(&self, identity: Felt) -> Felt {
        self.first(SELECTORS.recovery_of, &[identity])
    }

    /// Why an identity and an account cannot be bound; a pending recovery permits it.
    fn binding(&self, identity: Felt, account: Felt) -> Vec<Option<Reason>> {
        let elsewhere = self.account_of(identity);
        let bound = self.first(SELECTORS.identity_of, &[account]);
        let is_other = |found: Felt, own: Felt| found != Felt::ZERO && found != own;
        vec![
            is(is_other(elsewhere, account), Reason::IdentityTaken),
            is(is_other(bound, identity), Reason::AccountTaken),
        ]
    }

    fn is_missing(&self, account: Felt) -> Option<Reason> {
        is(!self.0.is_deployed(account), Reason::AccountNotDeployed)
    }
}

/// The reasons for which the contracts may forbid an operation. A recovery that is pending may be
/// not ready yet, or too old to be cancelled.
pub(super) fn conflicts(operation: &Operation, state: &State) -> Vec<Reason> {
    let views = Views(state);
    let found: Vec<Option<Reason>> = match operation {
        Operation::Register(it) => {
            let mut found = views.binding(it.identity, it.account);
            found.push(views.is_missing(it.account));
            found
        }
        Operation::FaucetDrip(it) => views.binding(it.identity, it.recipient),
        Operation::MintCard(it) => {
            let first = views.first(SELECTORS.minted_to, &it.card_id.felts());
            let is_other = first != Felt::ZERO && first != it.recipient;
            let verified = views.first(SELECTORS.is_verified, &[it.recipient]);
            vec![
                is(is_other, Reason::AlreadyMinted),
                is(verified == Felt::ZERO, Reason::NotVerified),
            ]
        }
        Operation::SubmitUsership(it) => {
            let found = state.call(SELECTORS.usership_of, &[it.account, Felt::from(it.epoch)]);
            let is_other = found != [Felt::ZERO; 2] && found != [Felt::from(it.units), it.evidence];
            vec![
                is(is_other, Reason::UsershipConflict),
                is(!views.is_bound(it.account), Reason::NotRegistered),
            ]
        }
        Operation::VerificationAttest(it) => {
            let id = it.attestation_id;
            let attestation = state.call(SELECTORS.attestation, &[id]);
            let is_known = attestation[0] != Felt::ZERO;
            let is_same = attestation[0] == it.account && attestation[5] == Felt::ZERO;
            let newest = views.first(SELECTORS.attestation_of, &[it.account]);
            vec![
                is(is_known && !is_same, Reason::AttestationReplayed),
                // it is known by another call than the newest one, which another node may answer
                is(newest != id, Reason::AttestationNotInForce),
                is(!views.is_bound(it.account), Reason::NotRegistered),
            ]
        }
        Operation::VerificationRevoke(it) => {
            let newest = views.first(SELECTORS.attestation_of, &[it.account]);
            vec![is(newest == Felt::ZERO, Reason::NotAttested)]
        }
        Operation::RecoveryPropose(it) => {
            let pending = views.recovery_of(it.identity);
            let is_other = pending != Felt::ZERO && pending != it.new_account;
            vec![
                is(is_other, Reason::RecoveryPending),
                is(
                    views.account_of(it.identity) == Felt::ZERO,
                    Reason::NotRegistered,
                ),
                is(views.is_bound(it.new_account), Reason::AccountTaken),
                views.is_missing(it.new_account),
            ]
        }
        Operation::RecoveryExecute(it) => {
            let pending = views.recovery_of(it.identity);
            let is_pending = pending != Felt::ZERO;
            vec![
                is(!is_pending, Reason::RecoveryNotPending),
                is(is_pending, Reason::RecoveryNotReady),
                is(is_pending && views.is_bound(pending), Reason::AccountTaken),
            ]
        }
        Operation::RecoveryCancel(it) => {
            let is_pending = views.recovery_of(it.identity) != Felt::ZERO;
            vec![
                is(!is_pending, Reason::RecoveryNotPending),
                is(is_pending, Reason::RecoveryNotCancellable),
            ]
        }
        Operation::RequireV2(_) => Vec::new(),
    };
    found.into_iter().flatten().collect()
}
