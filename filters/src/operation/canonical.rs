//! An operation in canonical form: equal operations are equal bytes.
//!
//! The form is a valid body of the same operation: felts and numbers in hexadecimal with the fewest
//! digits, times in UTC. The journal stores it; its digest identifies the operation.

use super::{
    FaucetDrip, MintCard, Operation, PHRASE, RecoveryCancel, RecoveryExecute, RecoveryPropose,
    Register, RequireV2, SubmitUsership, VerificationAttest, VerificationRevoke,
};
use crate::felt::{Felt, U256};
use crate::rpc::json::{write_felt, write_plain};
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use time::OffsetDateTime;

/// The last second of the year 9999, where RFC 3339 ends, in seconds since 1970.
pub const LAST_SECOND: u64 = 253_402_300_799;

/// The members of an operation's body, in canonical order.
pub(super) fn members(operation: &Operation) -> Vec<(&'static str, Value<'_>)> {
    use Value::{Felt, Integer, Number, Text, Time};
    match operation {
        Operation::Register(Register {
            identity,
            account,
            public_key,
        }) => vec![
            ("identity", Felt(identity)),
            ("account", Felt(account)),
            ("public_key", Felt(public_key)),
        ],
        Operation::VerificationAttest(VerificationAttest {
            account,
            attestation_id,
            assurance_type,
            assurance_level,
            expires_at,
        }) => vec![
            ("account", Felt(account)),
            ("attestation_id", Felt(attestation_id)),
            ("assurance_type", Text(assurance_type.as_str())),
            ("assurance_level", Integer(u64::from(*assurance_level))),
            ("expires_at", Time(*expires_at)),
        ],
        Operation::VerificationRevoke(VerificationRevoke { account, reason }) => {
            vec![
                ("account", Felt(account)),
                ("reason", Text(reason.as_str())),
            ]
        }
        Operation::MintCard(MintCard { recipient, card_id }) => {
            vec![
                ("recipient", Felt(recipient)),
                ("card_id", Number(*card_id)),
            ]
        }
        Operation::SubmitUsership(SubmitUsership {
            account,
            epoch,
            units,
            evidence,
        }) => vec![
            ("account", Felt(account)),
            ("epoch", Integer(*epoch)),
            ("units", Number(U256::from(*units))),
            ("evidence", Felt(evidence)),
        ],
        Operation::FaucetDrip(FaucetDrip {
            identity,
            recipient,
            public_key,
        }) => vec![
            ("identity", Felt(identity)),
            ("recipient", Felt(recipient)),
            ("public_key", Felt(public_key)),
        ],
        Operation::RecoveryPropose(RecoveryPropose {
            identity,
            new_account,
            new_public_key,
        }) => {
            vec![
                ("identity", Felt(identity)),
                ("new_account", Felt(new_account)),
                ("new_public_key", Felt(new_public_key)),
            ]
        }
        Operation::RecoveryExecute(RecoveryExecute { identity })
        | Operation::RecoveryCancel(RecoveryCancel { identity }) => {
            vec![("identity", Felt(identity))]
        }
        Operation::RequireV2(RequireV2 { confirmed: true }) => vec![("confirm", Text(PHRASE))],
        Operation::RequireV2(RequireV2 { confirmed: false }) => Vec::new(),
    }
}

/// The value of a member.
pub(super) enum Value<'a> {
    Felt(&'a Felt),
    Number(U256),
    Integer(u64),
    /// Seconds since 1970.
    Time(u64),
    Text(&'a str),
}

impl Value<'_> {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Felt(felt) => write_felt(felt, out),
            Self::Number(number) => {
                out.push(b'"');
                number.write(out);
                out.push(b'"');
            }
            Self::Integer(number) => out.extend_from_slice(number.to_string().as_bytes()),
            Self::Time(seconds) => write_plain(&rfc3339(*seconds), out),
            // the only text that JSON may have to escape
            Self::Text(text) => {
                out.extend_from_slice(serde_json::Value::from(*text).to_string().as_bytes());
            }
        }
    }
}

/// Formats seconds since 1970, up to [`LAST_SECOND`], as in RFC 3339.
pub(crate) fn rfc3339(seconds: u64) -> String {
    let seconds = i64::try_from(seconds.min(LAST_SECOND)).unwrap_or_default();
    let time = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let (year, month, day) = (time.year(), u8::from(time.month()), time.day());
    let (hour, minute, second) = time.to_hms();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}
