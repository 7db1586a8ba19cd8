//! The id of a request that is refused before its body is read.
//!
//! In: the refusal, and a body that arrived whole with its head. Out: the refusal with the id of
//! the request, so that clients which match responses by id find it. Nothing waits for a body.

use crate::rpc::Envelope;
use crate::verdict::{Reason, Refusal};

/// The longest body that is parsed for its id: most reads are shorter, and a refusal stays cheap.
const MAX_UNREAD: usize = 4 << 10;

/// Adds the id of the request with this body, if it has one. Not for a client without a token, and
/// not if the end of the body is in doubt.
pub fn add_id(refusal: &mut Refusal, body: &[u8]) {
    let is_trusted = !matches!(
        refusal.reason,
        Reason::Unauthorized | Reason::ConflictingFraming
    );
    if refusal.id.is_none() && is_trusted && body.len() <= MAX_UNREAD {
        refusal.id = match Envelope::parse(body) {
            Ok(envelope) => Some(envelope.id.as_str().into()),
            Err(malformed) => malformed.id,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned as _;
    use alloc::string::String;

    fn id(reason: Reason, body: &str) -> Option<String> {
        let mut refusal = Refusal::new(reason, "");
        add_id(&mut refusal, body.as_bytes());
        refusal.id.map(String::from)
    }

    #[test]
    fn a_refusal_gets_the_id_of_its_request() {
        let limited = Reason::RateLimited;
        let long = alloc::format!(r#"{{"id":7{}}}"#, " ".repeat(MAX_UNREAD));
        for (reason, body, expected, why) in [
            (
                limited,
                r#"{"jsonrpc":"2.0","id":7,"method":"m"}"#,
                Some("7"),
                "a number",
            ),
            (
                limited,
                r#"{"jsonrpc":"2.0","id":"a","method":"m"}"#,
                Some("\"a\""),
                "a string",
            ),
            (
                limited,
                r#"{"params":{"id":1},"id":2.0}"#,
                Some("2.0"),
                "byte for byte",
            ),
            (limited, r#"{"id":1,"id":2}"#, None, "two ids"),
            (limited, r#"{"id":null}"#, None, "none"),
            (limited, "", None, "no body"),
            (limited, "[{\"id\":1}]", None, "a batch"),
            (limited, "{\"id\":1", None, "cut off"),
            (limited, &long, None, "too long"),
            (Reason::Unauthorized, r#"{"id":1}"#, None, "of anybody"),
            (
                Reason::ConflictingFraming,
                r#"{"id":1}"#,
                None,
                "perhaps another body",
            ),
            (
                Reason::NotFound,
                r#"{"id":1}"#,
                Some("1"),
                "at a wrong path",
            ),
        ] {
            assert_eq!(
                id(reason, body),
                expected.map(str::to_owned),
                "{why}: {body}"
            );
        }
    }
}
