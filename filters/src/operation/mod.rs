//! The ten operations that the relay signs, typed.
//!
//! In: strict JSON bodies (`parse`). Out: an [`Operation`], its canonical form and a digest of
//! that. [`crate::policy`] decides what a deployment permits.

mod canonical;
mod parse;

pub use canonical::LAST_SECOND;
pub(crate) use canonical::rfc3339;
pub use parse::PHRASE;

use crate::felt::{Felt, ShortString, U256};
use crate::named::named;
use crate::rpc::json::write_plain;
use crate::tx::written;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use sha2::{Digest, Sha256};

named! {
    /// The kind of an operation; each has a path of its own.
    pub enum OperationKind {
        /// Binds an identity to an account.
        Register = "register",
        /// Attests an assurance of an account.
        VerificationAttest = "verification-attest",
        /// Revokes the attestation of an account.
        VerificationRevoke = "verification-revoke",
        /// Mints a card.
        MintCard = "mint-card",
        /// Submits an account's result of an epoch.
        SubmitUsership = "submit-usership",
        /// Pays a fixed amount to an account, deployed or not.
        FaucetDrip = "faucet-drip",
        /// Proposes another account for an identity.
        RecoveryPropose = "recovery-propose",
        /// Completes a recovery.
        RecoveryExecute = "recovery-execute",
        /// Cancels a recovery.
        RecoveryCancel = "recovery-cancel",
        /// Activates permanent V2 verification.
        RequireV2 = "require-v2",
    }
}

impl OperationKind {
    /// The path: a slash and the name.
    pub fn path(self) -> String {
        format!("/{}", self.name())
    }

    /// The operation of exactly this path.
    pub fn parse_path(path: &[u8]) -> Option<Self> {
        Self::parse(str::from_utf8(path.strip_prefix(b"/")?).ok()?)
    }
}

/// An operation with its arguments.
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
    /// The kind.
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

    /// Appends the body in canonical form.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.push(b'{');
        for (at, (name, value)) in canonical::members(self).iter().enumerate() {
            if at > 0 {
                out.push(b',');
            }
            write_plain(name, out);
            out.push(b':');
            value.write(out);
        }
        out.push(b'}');
    }

    /// The body in canonical form.
    pub fn canonical(&self) -> String {
        written(|out| self.write(out))
    }

    /// The identity of the operation: SHA-256 over its name, a zero byte, and the body in canonical
    /// form.
    pub fn digest(&self) -> [u8; 32] {
        let hash = Sha256::new()
            .chain_update(self.kind().name())
            .chain_update([0]);
        hash.chain_update(self.canonical()).finalize().into()
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
    /// The attestation's id, valid once; not zero.
    pub attestation_id: Felt,
    /// The type of the verified assurance.
    pub assurance_type: ShortString,
    /// How thoroughly it was verified.
    pub assurance_level: u8,
    /// When it expires, in seconds since 1970.
    pub expires_at: u64,
}

/// `POST /verification-revoke`: revokes the attestation of an account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerificationRevoke {
    /// The account.
    pub account: Felt,
    /// The reason.
    pub reason: ShortString,
}

/// `POST /mint-card`: mints a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MintCard {
    /// The account that receives the card.
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
    /// The evidence of the result.
    pub evidence: Felt,
}

/// `POST /faucet-drip`: pays a fixed amount to an account, deployed or not.
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
    /// The proposed account.
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
    /// Whether `confirm` is [`PHRASE`], word for word.
    pub confirmed: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_operation_has_exactly_one_path() {
        for kind in OperationKind::ALL {
            assert_eq!(
                OperationKind::parse_path(kind.path().as_bytes()),
                Some(kind)
            );
        }
        for path in [
            &b"/"[..],
            b"",
            b"register",
            b"/Register",
            b"/register/",
            b"/register?a=1",
        ] {
            assert_eq!(OperationKind::parse_path(path), None, "{path:?}");
        }
    }
}
