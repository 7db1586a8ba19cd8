//! The ten operations that the relay signs: one file and one row each.
//!
//! A file has everything that is true of its operation, as a `Definition`: the members of its
//! body, its canonical form, the account that signs it, its policy, the state that it reads, its
//! decision and its calls. The rows of `operations!` name the files; parser, policy, transaction
//! manager, metrics and commands use [`OperationKind`] and [`Operation`], which follow from the
//! rows. A decision depends on the chain's state alone, so that it can be made again after the
//! write: then it must be "already".
//!
//! Next: `mint_card`, a short one; `body` (parsing), `canonical`, `policy`, `state`.

mod body;
mod canonical;
mod policy;
mod state;
#[cfg(test)]
pub(crate) mod tests;

mod faucet_drip;
mod mint_card;
mod recovery_cancel;
mod recovery_execute;
mod recovery_propose;
mod register;
mod require_v2;
mod submit_usership;
mod verification_attest;
mod verification_revoke;

pub(crate) use faucet_drip::check_binding;
pub(crate) use policy::OperationPolicy;
pub use require_v2::PHRASE;
pub(crate) use state::{Decision, State};

use crate::felt::Felt;
use crate::named::named;
use crate::rpc::json::Json;
use crate::tx::written;
use crate::txm::io::Io;
use crate::txm::not_sent::NotSent;
use crate::txm::outcome::Details;
use crate::txm::settings::{Required, Role};
use crate::verdict::Refusal;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use canonical::Value;
use sha2::{Digest, Sha256};

/// Everything that is true of one operation.
trait Definition: Sized + Sync {
    /// The role that signs it.
    const ROLE: Role;
    /// The pins that it requires.
    const REQUIRED: Required = Required::All;
    /// Whether it is a drip, which has a budget and starts a cooldown.
    const IS_DRIP: bool = false;

    /// Parses its body.
    ///
    /// # Errors
    /// Returns `invalid_request`, or the reason for a value that no operation accepts.
    fn parse(body: Json<'_>) -> Result<Self, Refusal>;

    /// The members of its body, in canonical order.
    fn members(&self) -> Vec<(&'static str, Value<'_>)>;

    /// Judges it by the configuration, at `now` in seconds since 1970.
    fn admits(&self, _policy: &OperationPolicy<'_>, _now: u64) -> Result<(), Refusal> {
        Ok(())
    }

    /// The account or identity that the journal has as its subject, by which earlier ones are
    /// found.
    fn subject(&self) -> Option<Felt> {
        None
    }

    /// The identity whose pending recovery it ends.
    fn recovered(&self) -> Option<Felt> {
        None
    }

    /// Decides what it does in the present state.
    fn decide(
        &self,
        state: &State<'_, impl Io>,
    ) -> impl Future<Output = Result<Decision, NotSent>> + Send;

    /// Reads its effect after its transaction has succeeded: further members of the response, or
    /// `None` if the chain does not show it.
    fn read_back(
        &self,
        state: &State<'_, impl Io>,
    ) -> impl Future<Output = Result<Option<Details>, NotSent>> + Send {
        async {
            Ok(match self.decide(state).await? {
                Decision::Already(details) => Some(details),
                Decision::Write(_) | Decision::Bind(..) => None,
            })
        }
    }
}

/// Declares the operations: for each the module and the type that define it, and its name.
macro_rules! operations {
    ($($module:ident::$Kind:ident = $name:literal,)*) => {
        $(pub use $module::$Kind;)*

        named! {
            /// The kind of an operation; each has a path of its own.
            #[expect(missing_docs, reason = "its operation's type says it")]
            pub enum OperationKind { $($Kind = $name,)* }
        }

        /// An operation with its arguments.
        #[derive(Clone, Debug, PartialEq, Eq)]
        #[expect(missing_docs, reason = "each is the operation of its kind")]
        pub enum Operation { $($Kind($Kind),)* }

        impl OperationKind {
            /// The role that signs the operation.
            #[must_use]
            pub const fn role(self) -> Role {
                match self { $(Self::$Kind => $Kind::ROLE,)* }
            }

            /// The pins that the operation requires.
            #[must_use]
            pub(crate) const fn required(self) -> Required {
                match self { $(Self::$Kind => $Kind::REQUIRED,)* }
            }

            /// Whether the operation is a drip, which has a budget and starts a cooldown.
            pub(crate) const fn is_drip(self) -> bool {
                match self { $(Self::$Kind => $Kind::IS_DRIP,)* }
            }

            fn parse_members(self, body: Json<'_>) -> Result<Operation, Refusal> {
                match self { $(Self::$Kind => $Kind::parse(body).map(Operation::$Kind),)* }
            }
        }

        impl Operation {
            /// The kind.
            pub fn kind(&self) -> OperationKind {
                match self { $(Self::$Kind(_) => OperationKind::$Kind,)* }
            }

            fn members(&self) -> Vec<(&'static str, Value<'_>)> {
                match self { $(Self::$Kind(it) => it.members(),)* }
            }

            /// Judges the operation by the configuration, at `now` in seconds since 1970.
            pub(crate) fn admits(
                &self,
                policy: &OperationPolicy<'_>,
                now: u64,
            ) -> Result<(), Refusal> {
                match self { $(Self::$Kind(it) => it.admits(policy, now),)* }
            }

            /// The account or identity that the journal has as the operation's subject.
            pub(crate) fn subject(&self) -> Option<Felt> {
                match self { $(Self::$Kind(it) => it.subject(),)* }
            }

            /// The identity whose pending recovery the operation ends.
            pub(crate) fn recovered(&self) -> Option<Felt> {
                match self { $(Self::$Kind(it) => it.recovered(),)* }
            }

            /// Decides what the operation does in the present state.
            pub(crate) async fn decide(
                &self,
                state: &State<'_, impl Io>,
            ) -> Result<Decision, NotSent> {
                match self { $(Self::$Kind(it) => it.decide(state).await,)* }
            }

            /// Reads the effect of a transaction that succeeded: further members of the response,
            /// or `None` if the chain does not show it.
            pub(crate) async fn read_back(
                &self,
                state: &State<'_, impl Io>,
            ) -> Result<Option<Details>, NotSent> {
                match self { $(Self::$Kind(it) => it.read_back(state).await,)* }
            }
        }
    };
}

operations! {
    register::Register = "register",
    verification_attest::VerificationAttest = "verification-attest",
    verification_revoke::VerificationRevoke = "verification-revoke",
    mint_card::MintCard = "mint-card",
    submit_usership::SubmitUsership = "submit-usership",
    faucet_drip::FaucetDrip = "faucet-drip",
    recovery_propose::RecoveryPropose = "recovery-propose",
    recovery_execute::RecoveryExecute = "recovery-execute",
    recovery_cancel::RecoveryCancel = "recovery-cancel",
    require_v2::RequireV2 = "require-v2",
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

impl Operation {
    /// Parses the body of an operation.
    ///
    /// # Errors
    /// Returns `parse_error`, `batch` or `invalid_request`; for a value that no operation accepts,
    /// `argument_not_allowed`, `assurance_not_allowed` or `public_key_invalid`.
    pub(crate) fn parse(kind: OperationKind, body: &[u8]) -> Result<Self, Refusal> {
        match Json::parse(body) {
            Some(json @ Json::Object(_)) => kind.parse_members(json),
            other => Err(Refusal::not_an_object(other)),
        }
    }

    /// Appends the body in canonical form.
    pub fn write(&self, out: &mut Vec<u8>) {
        canonical::write_object(&self.members(), out);
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
