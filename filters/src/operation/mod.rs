//! The ten operations that the relay signs, typed: what to do, for whom.
//!
//! In: strict JSON bodies (`parse`). Out: an [`Operation`], its canonical form and a
//! digest of that. What a deployment lets through of it is [`crate::policy`]'s.

mod canonical;
mod parse;

pub use parse::PHRASE;

use crate::felt::{Felt, ShortString, U256};

/// Which operation; each has a path of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum OperationKind {
    /// Binds an identity to an account.
    Register,
    /// Attests an assurance of an account.
    VerificationAttest,
    /// Revokes what is attested of an account.
    VerificationRevoke,
    /// Mints a card.
    MintCard,
    /// Submits an account's result of an epoch.
    SubmitUsership,
    /// Pays a fixed amount to an account that may not exist yet.
    FaucetDrip,
    /// Proposes another account for an identity.
    RecoveryPropose,
    /// Completes a recovery.
    RecoveryExecute,
    /// Cancels a recovery.
    RecoveryCancel,
    /// Activates permanent V2 verification.
    RequireV2,
}

impl OperationKind {
    /// Every operation, in the order of the variants.
    pub const ALL: [Self; 10] = [
        Self::Register,
        Self::VerificationAttest,
        Self::VerificationRevoke,
        Self::MintCard,
        Self::SubmitUsership,
        Self::FaucetDrip,
        Self::RecoveryPropose,
        Self::RecoveryExecute,
        Self::RecoveryCancel,
        Self::RequireV2,
    ];

    /// The path that takes it.
    pub const fn path(self) -> &'static str {
        match self {
            Self::Register => "/register",
            Self::VerificationAttest => "/verification-attest",
            Self::VerificationRevoke => "/verification-revoke",
            Self::MintCard => "/mint-card",
            Self::SubmitUsership => "/submit-usership",
            Self::FaucetDrip => "/faucet-drip",
            Self::RecoveryPropose => "/recovery-propose",
            Self::RecoveryExecute => "/recovery-execute",
            Self::RecoveryCancel => "/recovery-cancel",
            Self::RequireV2 => "/require-v2",
        }
    }

    /// The name in logs, metrics and the journal: the path without its slash.
    pub fn name(self) -> &'static str {
        self.path().trim_start_matches('/')
    }

    /// The operation of exactly this path.
    pub fn parse_path(path: &[u8]) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.path().as_bytes() == path)
    }
}

/// An operation with all it takes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the operation of its kind")]
pub enum Operation {
    Register(Register),
    VerificationAttest(VerificationAttest),
    VerificationRevoke(VerificationRevoke),
    MintCard(MintCard),
    SubmitUsership(SubmitUsership),
    FaucetDrip(FaucetDrip),
    RecoveryPropose(RecoveryPropose),
    RecoveryExecute(RecoveryExecute),
    RecoveryCancel(RecoveryCancel),
    RequireV2(RequireV2),
}

impl Operation {
    /// Which one it is.
    pub fn kind(&self) -> OperationKind {
        match self {
            Self::Register(_) => OperationKind::Register,
            Self::VerificationAttest(_) => OperationKind::VerificationAttest,
            Self::VerificationRevoke(_) => OperationKind::VerificationRevoke,
            Self::MintCard(_) => OperationKind::MintCard,
            Self::SubmitUsership(_) => OperationKind::SubmitUsership,
            Self::FaucetDrip(_) => OperationKind::FaucetDrip,
            Self::RecoveryPropose(_) => OperationKind::RecoveryPropose,
            Self::RecoveryExecute(_) => OperationKind::RecoveryExecute,
            Self::RecoveryCancel(_) => OperationKind::RecoveryCancel,
            Self::RequireV2(_) => OperationKind::RequireV2,
        }
    }
}

/// `POST /register`: binds an identity to an account.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Register {
    /// The opaque identity; not zero.
    pub identity: Felt,
    /// The account, deployed or not.
    pub account: Felt,
    /// The key that the account's address follows from.
    pub public_key: Felt,
}

/// `POST /verification-attest`: attests an assurance of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationAttest {
    /// The account.
    pub account: Felt,
    /// The attestation's id, which serves once; not zero.
    pub attestation_id: Felt,
    /// What was checked.
    pub assurance_type: ShortString,
    /// How well it was checked.
    pub assurance_level: u8,
    /// When it expires, in seconds since 1970.
    pub expires_at: u64,
}

/// `POST /verification-revoke`: revokes what is attested of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationRevoke {
    /// The account.
    pub account: Felt,
    /// Why.
    pub reason: ShortString,
}

/// `POST /mint-card`: mints a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MintCard {
    /// Who gets it.
    pub recipient: Felt,
    /// The card.
    pub card_id: U256,
}

/// `POST /submit-usership`: submits an account's result of an epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SubmitUsership {
    /// The account.
    pub account: Felt,
    /// The epoch.
    pub epoch: u64,
    /// The result; not zero.
    pub units: u128,
    /// What the result is based on.
    pub evidence: Felt,
}

/// `POST /faucet-drip`: pays a fixed amount to an account that may not exist yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FaucetDrip {
    /// The opaque identity; not zero.
    pub identity: Felt,
    /// The identity's account, deployed or not.
    pub recipient: Felt,
    /// The key that the recipient's address follows from.
    pub public_key: Felt,
}

/// `POST /recovery-propose`: proposes another account for an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryPropose {
    /// The opaque identity; not zero.
    pub identity: Felt,
    /// The account to be.
    pub new_account: Felt,
    /// The key that the new account's address follows from.
    pub new_public_key: Felt,
}

/// `POST /recovery-execute`: completes a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryExecute {
    /// The opaque identity; not zero.
    pub identity: Felt,
}

/// `POST /recovery-cancel`: cancels a recovery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecoveryCancel {
    /// The opaque identity; not zero.
    pub identity: Felt,
}

/// `POST /require-v2`: activates permanent V2 verification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequireV2 {
    /// It was confirmed word for word, with [`PHRASE`].
    pub confirmed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_has_exactly_one_path() {
        for kind in OperationKind::ALL {
            assert_eq!(OperationKind::parse_path(kind.path().as_bytes()), Some(kind));
            assert_eq!(format!("/{}", kind.name()), kind.path());
        }
        for path in [&b"/"[..], b"", b"register", b"/Register", b"/register/", b"/register?a=1"] {
            assert_eq!(OperationKind::parse_path(path), None, "{path:?}");
        }
    }
}
