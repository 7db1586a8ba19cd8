//! `POST /verification-attest`.

use super::body::required_members;
use super::canonical::Value;
use super::policy::OperationPolicy;
use super::state::{Decision, State};
use super::{Definition, Role};
use crate::felt::{Felt, ShortString};
use crate::rpc::json::Json;
use crate::txm::io::Io;
use crate::txm::not_sent::{NotSent, refuse};
use crate::txm::outcome::Details;
use crate::verdict::{Reason, Refusal};
use alloc::vec;
use alloc::vec::Vec;
use futures_util::future::try_join;

/// `POST /verification-attest`: attests an assurance of an account. An id is valid once, and an
/// attestation is answered as done only while it is the one in force.
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

impl Definition for VerificationAttest {
    const ROLE: Role = Role::Verifier;

    fn parse(body: Json<'_>) -> Result<Self, Refusal> {
        let [account, id, kind, level, expires_at] = required_members(
            body,
            [
                "account",
                "attestation_id",
                "assurance_type",
                "assurance_level",
                "expires_at",
            ],
        )?;
        let level = level.integer()?;
        Ok(Self {
            account: account.address()?,
            attestation_id: id.not_zero()?,
            assurance_type: kind.short_string()?,
            assurance_level: u8::try_from(level).map_err(|_| {
                Refusal::new(
                    Reason::AssuranceNotAllowed,
                    "assurance_level must be at most 255",
                )
            })?,
            expires_at: expires_at.time()?,
        })
    }

    fn members(&self) -> Vec<(&'static str, Value<'_>)> {
        let level = u64::from(self.assurance_level);
        vec![
            ("account", Value::Felt(&self.account)),
            ("attestation_id", Value::Felt(&self.attestation_id)),
            ("assurance_type", Value::Text(self.assurance_type.as_str())),
            ("assurance_level", Value::Integer(level)),
            ("expires_at", Value::Time(self.expires_at)),
        ]
    }

    fn admits(&self, policy: &OperationPolicy<'_>, now: u64) -> Result<(), Refusal> {
        let kind = self.assurance_type.as_str();
        let is_listed = policy.assurance_types.iter().any(|known| known == kind)
            && policy.assurance_levels.contains(&self.assurance_level);
        if !is_listed {
            let message = "this assurance_type and assurance_level are not on the configured list";
            return Err(Refusal::new(Reason::AssuranceNotAllowed, message));
        }
        if self.expires_at <= now {
            let message = "expires_at must be in the future";
            return Err(Refusal::new(Reason::ArgumentNotAllowed, message));
        }
        Ok(())
    }

    async fn decide(&self, state: &State<'_, impl Io>) -> Result<Decision, NotSent> {
        let id = self.attestation_id;
        let content = [
            self.account,
            self.assurance_type.felt(),
            Felt::from(u64::from(self.assurance_level)),
            Felt::from(self.expires_at),
        ];
        // account, type, level, issued at, expires at, revoked
        let [account, kind, level, _, expires_at, revoked] =
            state.registry("attestation", &[id]).await?;
        if account != Felt::ZERO {
            let same = content == [account, kind, level, expires_at] && revoked == Felt::ZERO;
            if same {
                return self.in_force(state).await;
            }
            let message = "the attestation id was used with other content, or was revoked";
            return refuse(Reason::AttestationReplayed, message);
        }
        if state.identity_of(self.account).await? == Felt::ZERO {
            return refuse(Reason::NotRegistered, "the account is bound to no identity");
        }
        let [account, kind, level, expires_at] = content;
        let args = vec![account, id, kind, level, expires_at];
        Ok(Decision::call(
            state.io.pins().contracts.registry,
            "attest_v2",
            args,
        ))
    }
}

impl VerificationAttest {
    /// Answers that an attestation which the registry has is done, if it is the account's current
    /// one and has not expired by the chain's clock.
    async fn in_force(&self, state: &State<'_, impl Io>) -> Result<Decision, NotSent> {
        // the id, and six members of the attestation
        let account = [self.account];
        let current = state.registry::<7>("attestation_of", &account);
        let ([id, ..], now) = try_join(current, state.chain_time()).await?;
        if id != self.attestation_id {
            let message = "another attestation of the account has replaced this one: attest with a \
                           new id";
            return refuse(Reason::AttestationNotInForce, message);
        }
        if self.expires_at <= now {
            let message = "the attestation has expired by the chain's clock: attest with a new id";
            return refuse(Reason::AttestationNotInForce, message);
        }
        Ok(Decision::Already(Details::None))
    }
}
