//! A request's body, taken apart at the number that is its id.
//!
//! Clients count their requests. Where two bodies are the same bytes but for the digits of their
//! ids, they are the same JSON but for that number, and what the policy made of one it would make
//! of the other: so it need not be asked twice.

use super::envelope::Id;
use core::hash::{Hash, Hasher};

/// Digits of an id: no client counts further.
const MAX_DIGITS: usize = 15;
const NAME: &[u8] = b"\"id\"";

/// A body with a number where its id seems to stand. Two are equal when they differ in nothing but
/// that number.
#[derive(Clone, Copy, Debug, Eq)]
pub struct Numbered<'a> {
    before: &'a [u8],
    id: &'a str,
    after: &'a [u8],
}

impl<'a> Numbered<'a> {
    /// Finds the number where nearly every client writes it. That it is the id, and not part of
    /// something else, is only known when the body was parsed: see [`Self::is_at`].
    pub fn find(body: &'a [u8]) -> Option<Self> {
        let mut colons = memchr::memchr_iter(b':', body);
        let name = colons.find(|at| body.get(..*at).is_some_and(|to| to.ends_with(NAME)))?;
        let value = body.get(name..)?.strip_prefix(b":")?;
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let before = body.strip_suffix(value)?;
        let length = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, after) = value.split_at_checked(length)?;
        // one way to write each number, and the next byte ends it
        let is_plain = matches!(digits, [b'1'..=b'9', ..] | [b'0']) && length <= MAX_DIGITS;
        let ends = matches!(after.first(), Some(b',' | b'}'));
        let id = str::from_utf8(digits).ok().filter(|_| is_plain && ends)?;
        Some(Self { before, id, after })
    }

    /// One that was kept: its two parts in one piece, and where the second begins.
    pub fn kept(parts: &'a [u8], at: usize) -> Option<Self> {
        let (before, after) = parts.split_at_checked(at)?;
        Some(Self { before, id: "", after })
    }

    /// What is before the number, and what is behind it.
    pub fn parts(&self) -> [&'a [u8]; 2] {
        [self.before, self.after]
    }

    /// The number, for a body that is equal to one whose number was the id.
    pub fn id(&self) -> &'a str {
        self.id
    }

    /// Whether the number is this id: not one that is equal, but these bytes of the body.
    pub fn is_at(&self, id: Id<'_>) -> bool {
        core::ptr::eq(self.id, id.as_str())
    }
}

impl PartialEq for Numbered<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.before == other.before && self.after == other.after
    }
}

impl Hash for Numbered<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write(self.before);
        state.write(self.after);
        state.write_usize(self.before.len());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rpc::Envelope;
    use proptest::prelude::*;

    fn found(body: &str) -> Option<&str> {
        Numbered::find(body.as_bytes()).map(|numbered| numbered.id())
    }

    #[test]
    fn a_number_is_found_where_clients_write_it() {
        for (body, id) in [
            (r#"{"jsonrpc":"2.0","id":7,"method":"m"}"#, Some("7")),
            (r#"{"id": 0, "jsonrpc": "2.0"}"#, Some("0")),
            (r#"{"jsonrpc":"2.0","id":123456789012345}"#, Some("123456789012345")),
            (r#"{"id":1234567890123456}"#, None),
            (r#"{"id":007}"#, None),
            (r#"{"id":-7}"#, None),
            (r#"{"id":7.0}"#, None),
            (r#"{"id":7e3}"#, None),
            (r#"{"id":7 }"#, None),
            (r#"{"id":"7"}"#, None),
            (r#"{"id":null}"#, None),
            (r#"{"id":}"#, None),
            (r#"{"id":7"#, None),
            (r#"{"i\u0064":7}"#, None),
            ("", None),
        ] {
            assert_eq!(found(body), id, "{body}");
        }
    }

    #[test]
    fn a_number_that_only_looks_like_the_id_is_told_from_it() {
        for (body, is_id) in [
            (r#"{"jsonrpc":"2.0","id":7,"method":"m"}"#, true),
            (r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"id":7}}"#, true),
            (r#"{"jsonrpc":"2.0","params":{"id":7},"method":"m","id":7}"#, false),
            (r#"{"jsonrpc":"2.0","method":"\"id\":7,","id":7}"#, true),
            (r#"{"jsonrpc":"2.0","params":["\\\"id\":7,"],"method":"m","i\u0064":7}"#, false),
        ] {
            let id = Envelope::parse(body.as_bytes()).map(|envelope| envelope.id);
            let numbered = Numbered::find(body.as_bytes());
            let both = numbered.zip(id.ok());
            assert_eq!(both.is_some_and(|(numbered, id)| numbered.is_at(id)), is_id, "{body}");
        }
    }

    /// Parameters that hold what looks like an id, in as many ways as there are.
    const PARAMS: [&str; 7] = [
        "[]",
        r#"["latest","0x1"]"#,
        r#"{"id":5,"x":1}"#,
        r#"[{"id":5},{"id":6}]"#,
        r#"["\"id\":5,"]"#,
        r#"["\\\"id\":5,", {"x\"id":5}]"#,
        r#"{"\u0022id\u0022":5,"i\u0064":5}"#,
    ];

    proptest! {
        #[test]
        fn bodies_that_are_equal_but_for_the_number_are_the_same_request(
            one in 0u64..1_000_000_000_000_000, other in 0u64..1_000_000_000_000_000,
            params in prop::sample::select(&PARAMS[..]), order in 0usize..4,
        ) {
            let rest = r#""jsonrpc":"2.0","method":"starknet_call""#;
            let body = |id: u64| match order {
                0 => format!(r#"{{{rest},"id":{id},"params":{params}}}"#),
                1 => format!(r#"{{"id": {id}, "params": {params}, {rest}}}"#),
                2 => format!(r#"{{{rest},"params":{params},"id":{id}}}"#),
                _ => format!(r#"{{{rest},"i\u0064":{id},"params":{params}}}"#),
            };
            let (one, other) = (body(one), body(other));
            let parsed = Envelope::parse(one.as_bytes()).expect("it is a request");
            let again = Envelope::parse(other.as_bytes()).expect("so is this");
            let [first, second] = [&one, &other].map(|body| Numbered::find(body.as_bytes()));
            if let Some(first) = first.filter(|first| first.is_at(parsed.id)) {
                let second = second.expect("a number is where one was");
                prop_assert_eq!(first, second);
                prop_assert_eq!(second.id(), again.id.as_str());
                prop_assert_eq!((parsed.method, parsed.params), (again.method, again.params));
            } else {
                prop_assert!(order > 1, "where it is looked for first it is found: {}", one);
            }
        }
    }
}
