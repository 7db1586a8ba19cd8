//! An operation in canonical form: equal operations are equal bytes.
//!
//! The form is a valid body of the same operation: felts and numbers in hexadecimal with the fewest
//! digits, times in UTC. The journal stores it; its digest identifies the operation.

use crate::felt::{Felt, U256};
use crate::rpc::json::{write_felt, write_plain};
use crate::timestamp::rfc3339;
use alloc::string::ToString;
use alloc::vec::Vec;

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
    fn write(&self, out: &mut Vec<u8>) {
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

/// Appends an object of these members, in this order.
pub(super) fn write_object(members: &[(&'static str, Value<'_>)], out: &mut Vec<u8>) {
    out.push(b'{');
    for (at, (name, value)) in members.iter().enumerate() {
        if at > 0 {
            out.push(b',');
        }
        write_plain(name, out);
        out.push(b':');
        value.write(out);
    }
    out.push(b'}');
}
