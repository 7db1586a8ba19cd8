//! Lists `key=value,key2=value2` of OpenTelemetry's variables: headers, and attributes of the
//! resource.
//!
//! A value has `%` and two hexadecimal digits for each byte that stands for something else (OTLP
//! exporter and resource SDK specifications, after W3C Baggage).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// Pairs of a list: far beyond what anybody sets.
const MAX_PAIRS: usize = 64;

/// Why a list is refused: of which pair, from 1. No text of it is shown, since it may be a secret.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MalformedPair {
    /// The pair has no `=`.
    NoEquals(usize),
    /// The key is empty, or has other bytes than visible ASCII.
    Key(usize),
    /// The value is not UTF-8 after decoding, has a control character or a `%` without two digits.
    Value(usize),
    /// There are too many pairs.
    TooMany,
}

impl fmt::Display for MalformedPair {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoEquals(pair) => write!(f, "pair {pair} has no ="),
            Self::Key(pair) => write!(f, "the key of pair {pair} must be visible ASCII"),
            Self::Value(pair) => write!(
                f,
                "the value of pair {pair} has a control character, or a % without two \
                 hexadecimal digits"
            ),
            Self::TooMany => write!(f, "it has more than {MAX_PAIRS} pairs"),
        }
    }
}

/// The pairs of a list, in its order, with decoded values. Empty items are skipped.
///
/// # Errors
/// Returns the first malformed pair.
pub fn parse(list: &str) -> Result<Vec<(String, String)>, MalformedPair> {
    let mut pairs = Vec::new();
    for (pair, number) in list.split(',').zip(1..) {
        let pair = pair.trim();
        if pair.is_empty() {
            continue;
        }
        let (key, value) = pair
            .split_once('=')
            .ok_or(MalformedPair::NoEquals(number))?;
        let key = key.trim();
        if key.is_empty() || !key.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(MalformedPair::Key(number));
        }
        let value = decode(value.trim()).ok_or(MalformedPair::Value(number))?;
        if pairs.len() >= MAX_PAIRS {
            return Err(MalformedPair::TooMany);
        }
        pairs.push((String::from(key), value));
    }
    Ok(pairs)
}

/// A percent-encoded value (RFC 3986, section 2.1); `None` if it is malformed.
fn decode(text: &str) -> Option<String> {
    let mut bytes = text.bytes();
    let mut decoded = Vec::with_capacity(text.len());
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            decoded.push(byte);
            continue;
        }
        let mut digit = || char::from(bytes.next()?).to_digit(16);
        let high = digit()?;
        let low = digit()?;
        decoded.push(u8::try_from(high << 4 | low).ok()?);
    }
    let decoded = String::from_utf8(decoded).ok()?;
    if decoded.contains(char::is_control) {
        return None;
    }
    Some(decoded)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_are_decoded_in_their_order() {
        for (list, expected) in [
            ("", &[][..]),
            (" , ", &[]),
            ("a=b", &[("a", "b")]),
            (
                "service.namespace = shop ,deployment.environment.name=prod%20eu",
                &[
                    ("service.namespace", "shop"),
                    ("deployment.environment.name", "prod eu"),
                ],
            ),
            (
                "Authorization=Basic%20dXNlcjpwdw==,x=",
                &[("Authorization", "Basic dXNlcjpwdw=="), ("x", "")],
            ),
            ("name=M%C3%BCnchen", &[("name", "M\u{fc}nchen")]),
        ] {
            let parsed = parse(list).expect(list);
            let parsed: Vec<_> = parsed.iter().map(|(k, v)| (&**k, &**v)).collect();
            assert_eq!(parsed, expected, "{list}");
        }
    }

    #[test]
    fn a_malformed_pair_is_named_by_number() {
        use MalformedPair::{Key, NoEquals, TooMany, Value};
        let many = "a=b,".repeat(MAX_PAIRS + 1);
        for (list, fault) in [
            ("hunter2", NoEquals(1)),
            ("a=b,hunter2", NoEquals(2)),
            ("=hunter2", Key(1)),
            ("a b=hunter2", Key(1)),
            ("\u{fc}=hunter2", Key(1)),
            ("a=hunter2%", Value(1)),
            ("a=hunter2%2", Value(1)),
            ("a=hunter2%zz", Value(1)),
            ("a=b,c=%ff", Value(2)),
            ("a=hunter2%0d%0ax:y", Value(1)),
            (&*many, TooMany),
        ] {
            let error = parse(list).expect_err(list);
            assert_eq!(error, fault, "{list}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{error}");
        }
    }
}
