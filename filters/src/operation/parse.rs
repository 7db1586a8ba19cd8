//! An operation's body: a JSON object of exactly its members.
//!
//! A malformed body is an `invalid_request` that names the member. A well-formed value that no
//! operation accepts is refused with a reason of its own.

use super::{
    FaucetDrip, MintCard, Operation, OperationKind, RecoveryCancel, RecoveryExecute,
    RecoveryPropose, Register, RequireV2, SubmitUsership, VerificationAttest, VerificationRevoke,
};
use crate::felt::{Felt, ShortString, U256};
use crate::rpc::json::{FELT, Json, MemberError};
use crate::stark::is_public_key;
use crate::verdict::{Reason, Refusal};
use alloc::format;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// The value of `confirm` that activates permanent V2 verification.
pub const PHRASE: &str = "ACTIVATE PERMANENT V2 VERIFICATION";

impl Operation {
    /// Parses the body of an operation.
    ///
    /// # Errors
    /// Returns `parse_error`, `batch` or `invalid_request`; for a value that no operation accepts,
    /// `argument_not_allowed`, `assurance_not_allowed` or `public_key_invalid`.
    pub(crate) fn parse(kind: OperationKind, body: &[u8]) -> Result<Self, Refusal> {
        let json = match Json::parse(body) {
            Some(json @ Json::Object(_)) => json,
            other => return Err(Refusal::not_an_object(other)),
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
                Self::RecoveryExecute(RecoveryExecute {
                    identity: identity.not_zero()?,
                })
            }
            OperationKind::RecoveryCancel => {
                let [identity] = members(json, ["identity"])?;
                Self::RecoveryCancel(RecoveryCancel {
                    identity: identity.not_zero()?,
                })
            }
            OperationKind::RequireV2 => require_v2(json)?,
        })
    }
}

fn attest(json: Json<'_>) -> Result<Operation, Refusal> {
    let [account, id, kind, level, expires_at] = members(
        json,
        [
            "account",
            "attestation_id",
            "assurance_type",
            "assurance_level",
            "expires_at",
        ],
    )?;
    let level = level.integer()?;
    Ok(Operation::VerificationAttest(VerificationAttest {
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

/// Parses `confirm` without judging it: confirmation does not matter once V2 is active.
fn require_v2(json: Json<'_>) -> Result<Operation, Refusal> {
    let [confirm] = take(json, ["confirm"])?;
    let confirmed = match confirm.map(|value| Member {
        name: "confirm",
        value,
    }) {
        None => false,
        Some(confirm) => confirm.read("a string", |text| Some(text == PHRASE))?,
    };
    Ok(Operation::RequireV2(RequireV2 { confirmed }))
}

fn invalid(message: impl Into<alloc::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::new(Reason::InvalidRequest, message)
}

/// The values of an object with at most these members.
fn take<'a, const N: usize>(
    json: Json<'a>,
    names: [&'static str; N],
) -> Result<[Option<Json<'a>>; N], Refusal> {
    if let Some(unknown) = json.other_than(&names) {
        let expected = names.join(", ");
        return Err(invalid(format!(
            "unknown member {unknown}; expected {expected}"
        )));
    }
    json.members(&names).map_err(|error| match error {
        MemberError::Duplicate(name) => invalid(format!("{name} appears twice")),
        MemberError::Unknown | MemberError::NotAnObject => invalid(format!(
            "the body must be an object of {}",
            names.join(", ")
        )),
    })
}

/// The values of an object with exactly these members.
fn members<'a, const N: usize>(
    json: Json<'a>,
    names: [&'static str; N],
) -> Result<[Member<'a>; N], Refusal> {
    let values = take(json, names)?;
    if let Some((_, name)) = values.iter().zip(names).find(|(value, _)| value.is_none()) {
        return Err(invalid(format!("{name} is required")));
    }
    let mut names = names.into_iter();
    Ok(values.map(|value| Member {
        name: names.next().unwrap_or_default(),
        value: value.unwrap_or(Json::Null),
    }))
}

/// A member of a body, before its type is known.
struct Member<'a> {
    name: &'static str,
    value: Json<'a>,
}

impl Member<'_> {
    fn must_be(&self, expected: &str) -> Refusal {
        invalid(format!("{} must be {expected}", self.name))
    }

    /// Refuses a well-formed value that no operation accepts.
    fn may_not_be(&self, what: &str) -> Refusal {
        Refusal::new(
            Reason::ArgumentNotAllowed,
            format!("{} must not be {what}", self.name),
        )
    }

    /// Parses the value, which must be a string.
    fn read<T>(&self, expected: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, Refusal> {
        self.value
            .as_str()
            .and_then(parse)
            .ok_or_else(|| self.must_be(expected))
    }

    fn felt(&self) -> Result<Felt, Refusal> {
        self.read(FELT, Felt::parse)
    }

    fn not_zero(&self) -> Result<Felt, Refusal> {
        let felt = self.felt()?;
        if felt == Felt::ZERO {
            Err(self.may_not_be("zero"))
        } else {
            Ok(felt)
        }
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
        let message = format!("{} must be a point of the STARK curve, not zero", self.name);
        Err(Refusal::new(Reason::PublicKeyInvalid, message))
    }

    fn short_string(&self) -> Result<ShortString, Refusal> {
        self.read(
            "a string of 1 to 31 printable ASCII characters",
            ShortString::parse,
        )
    }

    fn integer(&self) -> Result<u64, Refusal> {
        match self.value {
            Json::Integer(number) => Ok(number),
            _ => Err(self.must_be("an integer from 0 to 2^64 - 1")),
        }
    }

    fn u256(&self) -> Result<U256, Refusal> {
        self.read(
            "a number below 2^256 in a string, decimal or with 0x",
            U256::parse,
        )
    }

    fn positive(&self) -> Result<u128, Refusal> {
        let expected = "a number below 2^128 in a string, decimal or with 0x";
        match self.read(expected, |text| U256::parse(text)?.to_u128())? {
            0 => Err(self.may_not_be("zero")),
            number => Ok(number),
        }
    }

    /// Seconds since 1970; a fraction is cut off.
    fn time(&self) -> Result<u64, Refusal> {
        let time = self.read("an RFC 3339 time such as 2030-01-31T12:00:00Z", |text| {
            OffsetDateTime::parse(text, &Rfc3339).ok()
        })?;
        u64::try_from(time.unix_timestamp()).map_err(|_| self.may_not_be("before 1970"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::String;

    /// The message of the refusal of a body of `/mint-card`.
    fn message(body: &str) -> String {
        let refusal = Operation::parse(OperationKind::MintCard, body.as_bytes());
        String::from(refusal.expect_err("it is refused").message)
    }

    #[test]
    fn a_refusal_names_the_member() {
        for (body, expected) in [
            (
                r#"{"recipient":"0x9","card_id":"7","x\"y":1}"#,
                r#"unknown member `x\"y`; expected recipient, card_id"#,
            ),
            (
                r#"{"recipient":"0x9","cardId":"7"}"#,
                "unknown member `cardId`; expected",
            ),
            (
                r#"{"recipient":"0x9","recipient":"0x9"}"#,
                "recipient appears twice",
            ),
            (r#"{"recipient":"0x9"}"#, "card_id is required"),
            (
                r#"{"recipient":9,"card_id":"7"}"#,
                "recipient must be 0x and",
            ),
            (
                r#"{"recipient":"0x9","card_id":7}"#,
                "card_id must be a number below",
            ),
        ] {
            let message = message(body);
            assert!(message.starts_with(expected), "{body}: {message}");
        }
    }

    #[test]
    fn an_unknown_name_is_shown_escaped_and_cut() {
        let long = "é".repeat(1_000);
        let message = message(&format!(r#"{{"{long}":1}}"#));
        let shown = r"\u{e9}".repeat(64);
        assert_eq!(
            message,
            format!("unknown member `{shown}`; expected recipient, card_id")
        );
    }
}
