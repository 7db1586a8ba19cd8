//! An operation's body: a JSON object of exactly its members.
//!
//! What is no such object is an `invalid_request` that names the member. What is one, and says
//! something that nobody may, is refused with a reason of its own.

use super::{
    FaucetDrip, MintCard, Operation, OperationKind, RecoveryCancel, RecoveryExecute,
    RecoveryPropose, Register, RequireV2, SubmitUsership, VerificationAttest, VerificationRevoke,
};
use crate::felt::{Felt, ShortString, U256};
use crate::rpc::json::{Json, MemberFault};
use crate::rpc::values::FELT;
use crate::stark::is_public_key;
use crate::verdict::{Reason, Refusal};
use alloc::format;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// What activates permanent V2 verification, in `confirm`.
pub const PHRASE: &str = "ACTIVATE PERMANENT V2 VERIFICATION";

impl Operation {
    /// Reads the body of an operation.
    ///
    /// # Errors
    /// `parse_error`, `batch` or `invalid_request`; `argument_not_allowed`, `assurance_not_allowed`
    /// or `public_key_invalid` for a value that no operation takes.
    pub(crate) fn parse(kind: OperationKind, body: &[u8]) -> Result<Self, Refusal> {
        let json = match Json::parse(body) {
            Some(json @ Json::Object(_)) => json,
            Some(Json::Array(_)) => {
                let message = "batches are not supported: send a single operation per request";
                return Err(Refusal::new(Reason::Batch, message));
            }
            Some(_) => return Err(invalid("an operation is a JSON object")),
            None => return Err(Refusal::not_json()),
        };
        Ok(match kind {
            OperationKind::Register => {
                let [identity, account, public_key] =
                    members(json, ["identity", "account", "public_key"])?;
                Self::Register(Register {
                    identity: identity.not_zero()?,
                    account: account.address()?,
                    public_key: public_key.public_key()?,
                })
            }
            OperationKind::VerificationAttest => attest(json)?,
            OperationKind::VerificationRevoke => {
                let [account, reason] = members(json, ["account", "reason"])?;
                let (account, reason) = (account.address()?, reason.short_string()?);
                Self::VerificationRevoke(VerificationRevoke { account, reason })
            }
            OperationKind::MintCard => {
                let [recipient, card_id] = members(json, ["recipient", "card_id"])?;
                let (recipient, card_id) = (recipient.address()?, card_id.u256()?);
                Self::MintCard(MintCard { recipient, card_id })
            }
            OperationKind::SubmitUsership => submit(json)?,
            OperationKind::FaucetDrip => {
                let [identity, recipient, public_key] =
                    members(json, ["identity", "recipient", "public_key"])?;
                Self::FaucetDrip(FaucetDrip {
                    identity: identity.not_zero()?,
                    recipient: recipient.address()?,
                    public_key: public_key.public_key()?,
                })
            }
            OperationKind::RecoveryPropose => {
                let [identity, new_account, new_public_key] =
                    members(json, ["identity", "new_account", "new_public_key"])?;
                Self::RecoveryPropose(RecoveryPropose {
                    identity: identity.not_zero()?,
                    new_account: new_account.address()?,
                    new_public_key: new_public_key.public_key()?,
                })
            }
            OperationKind::RecoveryExecute => {
                let [identity] = members(json, ["identity"])?;
                Self::RecoveryExecute(RecoveryExecute { identity: identity.not_zero()? })
            }
            OperationKind::RecoveryCancel => {
                let [identity] = members(json, ["identity"])?;
                Self::RecoveryCancel(RecoveryCancel { identity: identity.not_zero()? })
            }
            OperationKind::RequireV2 => require_v2(json)?,
        })
    }
}

fn attest(json: Json<'_>) -> Result<Operation, Refusal> {
    let [account, id, kind, level, expires_at] = members(
        json,
        ["account", "attestation_id", "assurance_type", "assurance_level", "expires_at"],
    )?;
    let level = level.integer()?;
    Ok(Operation::VerificationAttest(VerificationAttest {
        account: account.address()?,
        attestation_id: id.not_zero()?,
        assurance_type: kind.short_string()?,
        assurance_level: u8::try_from(level).map_err(|_| {
            Refusal::new(Reason::AssuranceNotAllowed, "an assurance_level is at most 255")
        })?,
        expires_at: expires_at.time()?,
    }))
}

fn submit(json: Json<'_>) -> Result<Operation, Refusal> {
    let [account, epoch, units, evidence] =
        members(json, ["account", "epoch", "units", "evidence"])?;
    Ok(Operation::SubmitUsership(SubmitUsership {
        account: account.address()?,
        epoch: epoch.integer()?,
        units: units.positive()?,
        evidence: evidence.felt()?,
    }))
}

/// Whether it is confirmed matters only where there is something to activate.
fn require_v2(json: Json<'_>) -> Result<Operation, Refusal> {
    let [confirm] = take(json, ["confirm"])?;
    let confirmed = match confirm.map(|value| Member { name: "confirm", value }) {
        None => false,
        Some(confirm) => confirm.text("a string")? == PHRASE,
    };
    Ok(Operation::RequireV2(RequireV2 { confirmed }))
}

fn invalid(message: impl Into<alloc::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::new(Reason::InvalidRequest, message)
}

/// Takes an object of at most these members apart.
fn take<'a, const N: usize>(
    json: Json<'a>,
    names: [&'static str; N],
) -> Result<[Option<Json<'a>>; N], Refusal> {
    json.members(&names).map_err(|fault| match fault {
        MemberFault::Duplicate(name) => invalid(format!("{name} is given twice")),
        MemberFault::Unknown | MemberFault::NotAnObject => {
            invalid(format!("an operation of this path has no members but {}", names.join(", ")))
        }
    })
}

/// Takes an object of exactly these members apart.
fn members<'a, const N: usize>(
    json: Json<'a>,
    names: [&'static str; N],
) -> Result<[Member<'a>; N], Refusal> {
    let values = take(json, names)?;
    if let Some((_, name)) = values.iter().zip(names).find(|(value, _)| value.is_none()) {
        return Err(invalid(format!("{name} must be given")));
    }
    let mut names = names.into_iter();
    Ok(values.map(|value| Member {
        name: names.next().unwrap_or_default(),
        value: value.unwrap_or(Json::Null),
    }))
}

/// A member of a body, to be read as what it should be.
struct Member<'a> {
    name: &'static str,
    value: Json<'a>,
}

impl Member<'_> {
    fn must_be(&self, expected: &str) -> Refusal {
        invalid(format!("{} must be {expected}", self.name))
    }

    /// The shape is right, and nobody may say this.
    fn may_not_be(&self, what: &str) -> Refusal {
        Refusal::new(Reason::ArgumentNotAllowed, format!("{} must not be {what}", self.name))
    }

    fn text(&self, expected: &str) -> Result<&str, Refusal> {
        self.value.as_str().ok_or_else(|| self.must_be(expected))
    }

    fn felt(&self) -> Result<Felt, Refusal> {
        Felt::parse(self.text(FELT)?).ok_or_else(|| self.must_be(FELT))
    }

    fn not_zero(&self) -> Result<Felt, Refusal> {
        let felt = self.felt()?;
        if felt == Felt::ZERO { Err(self.may_not_be("zero")) } else { Ok(felt) }
    }

    fn address(&self) -> Result<Felt, Refusal> {
        let felt = self.felt()?;
        if felt.is_address() {
            Ok(felt)
        } else {
            Err(self.may_not_be("zero, or 2^251 - 256 or more"))
        }
    }

    fn public_key(&self) -> Result<Felt, Refusal> {
        let key = self.felt()?;
        if is_public_key(key) {
            return Ok(key);
        }
        let message = format!("{} is zero, or no point of the STARK curve has it", self.name);
        Err(Refusal::new(Reason::PublicKeyInvalid, message))
    }

    fn short_string(&self) -> Result<ShortString, Refusal> {
        const EXPECTED: &str = "a string of 1 to 31 printable ASCII characters";
        ShortString::parse(self.text(EXPECTED)?).ok_or_else(|| self.must_be(EXPECTED))
    }

    fn integer(&self) -> Result<u64, Refusal> {
        match self.value {
            Json::Integer(number) => Ok(number),
            _ => Err(self.must_be("an integer from 0 to 2^64 - 1")),
        }
    }

    fn u256(&self) -> Result<U256, Refusal> {
        const EXPECTED: &str = "a number below 2^256 in a string, decimal or with 0x";
        U256::parse(self.text(EXPECTED)?).ok_or_else(|| self.must_be(EXPECTED))
    }

    fn positive(&self) -> Result<u128, Refusal> {
        const EXPECTED: &str = "a number below 2^128 in a string, decimal or with 0x";
        let number = U256::parse(self.text(EXPECTED)?).and_then(|number| number.to_u128());
        let number = number.ok_or_else(|| self.must_be(EXPECTED))?;
        if number == 0 { Err(self.may_not_be("zero")) } else { Ok(number) }
    }

    /// Seconds since 1970; a fraction of one is left off.
    fn time(&self) -> Result<u64, Refusal> {
        const EXPECTED: &str = "a time of RFC 3339 such as 2030-01-31T12:00:00Z";
        let time = OffsetDateTime::parse(self.text(EXPECTED)?, &Rfc3339);
        let time = time.map_err(|_| self.must_be(EXPECTED))?;
        u64::try_from(time.unix_timestamp()).map_err(|_| self.may_not_be("before 1970"))
    }
}
