//! The members of an operation's body: a JSON object of exactly those.
//!
//! A malformed body is an `invalid_request` that names the member. A well-formed value that no
//! operation accepts is refused with a reason of its own.

use crate::felt::{Felt, ShortString, U256};
use crate::rpc::json::{FELT, Json, MemberError};
use crate::stark::is_public_key;
use crate::verdict::{Reason, Refusal};
use alloc::format;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

fn invalid(message: impl Into<alloc::borrow::Cow<'static, str>>) -> Refusal {
    Refusal::new(Reason::InvalidRequest, message)
}

/// The members of an object that has at most these.
pub(super) fn optional_members<'a, const N: usize>(
    json: Json<'a>,
    names: [&'static str; N],
) -> Result<[Option<Member<'a>>; N], Refusal> {
    if let Some(unknown) = json.other_than(&names) {
        let expected = names.join(", ");
        return Err(invalid(format!(
            "unknown member {unknown}; expected {expected}"
        )));
    }
    let values = json.members(&names).map_err(|error| match error {
        MemberError::Duplicate(name) => invalid(format!("{name} appears twice")),
        MemberError::Unknown | MemberError::NotAnObject => invalid(format!(
            "the body must be an object of {}",
            names.join(", ")
        )),
    })?;
    let mut names = names.into_iter();
    Ok(values.map(|value| {
        let name = names.next().unwrap_or_default();
        Some(Member {
            name,
            value: value?,
        })
    }))
}

/// The members of an object that has exactly these.
pub(super) fn required_members<'a, const N: usize>(
    json: Json<'a>,
    names: [&'static str; N],
) -> Result<[Member<'a>; N], Refusal> {
    let mut members = names.map(|name| Member {
        name,
        value: Json::Null,
    });
    for (member, found) in members.iter_mut().zip(optional_members(json, names)?) {
        match found {
            Some(found) => *member = found,
            None => return Err(invalid(format!("{} is required", member.name))),
        }
    }
    Ok(members)
}

/// A member of a body, before its type is known.
pub(super) struct Member<'a> {
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
    pub(super) fn read<T>(
        &self,
        expected: &str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, Refusal> {
        self.value
            .as_str()
            .and_then(parse)
            .ok_or_else(|| self.must_be(expected))
    }

    pub(super) fn felt(&self) -> Result<Felt, Refusal> {
        self.read(FELT, Felt::parse)
    }

    pub(super) fn not_zero(&self) -> Result<Felt, Refusal> {
        let felt = self.felt()?;
        if felt == Felt::ZERO {
            Err(self.may_not_be("zero"))
        } else {
            Ok(felt)
        }
    }

    pub(super) fn address(&self) -> Result<Felt, Refusal> {
        let felt = self.felt()?;
        if felt.is_address() {
            Ok(felt)
        } else {
            Err(self.may_not_be("zero, or 2^251 - 256 or more"))
        }
    }

    pub(super) fn public_key(&self) -> Result<Felt, Refusal> {
        let key = self.felt()?;
        if is_public_key(key) {
            return Ok(key);
        }
        let message = format!("{} must be a point of the STARK curve, not zero", self.name);
        Err(Refusal::new(Reason::PublicKeyInvalid, message))
    }

    pub(super) fn short_string(&self) -> Result<ShortString, Refusal> {
        self.read(
            "a string of 1 to 31 printable ASCII characters",
            ShortString::parse,
        )
    }

    pub(super) fn integer(&self) -> Result<u64, Refusal> {
        match self.value {
            Json::Integer(number) => Ok(number),
            _ => Err(self.must_be("an integer from 0 to 2^64 - 1")),
        }
    }

    pub(super) fn u256(&self) -> Result<U256, Refusal> {
        self.read(
            "a number below 2^256 in a string, decimal or with 0x",
            U256::parse,
        )
    }

    pub(super) fn positive(&self) -> Result<u128, Refusal> {
        let expected = "a number below 2^128 in a string, decimal or with 0x";
        match self.read(expected, |text| U256::parse(text)?.to_u128())? {
            0 => Err(self.may_not_be("zero")),
            number => Ok(number),
        }
    }

    /// Seconds since 1970; a fraction is cut off.
    pub(super) fn time(&self) -> Result<u64, Refusal> {
        let time = self.read("an RFC 3339 time such as 2030-01-31T12:00:00Z", |text| {
            OffsetDateTime::parse(text, &Rfc3339).ok()
        })?;
        u64::try_from(time.unix_timestamp()).map_err(|_| self.may_not_be("before 1970"))
    }
}

#[cfg(test)]
mod tests {
    use crate::operations::{Operation, OperationKind};
    use alloc::format;
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
