//! A request's body, split at the number that is its id.
//!
//! Clients count their requests. Two bodies that differ in the digits of their ids only are equal
//! JSON except for that number, and get the same verdict of the policy: one parse serves both.

use super::envelope::Id;
use core::hash::{Hash, Hasher};

/// The longest id in digits; no client counts further.
const MAX_DIGITS: usize = 15;
const NAME: &[u8] = b"\"id\"";

/// A body split at a number that is probably its id. Two are equal if they differ in that number
/// only.
#[derive(Clone, Copy, Debug, Eq)]
pub struct BodyWithoutId<'a> {
    before: &'a [u8],
    id: &'a str,
    after: &'a [u8],
}

impl<'a> BodyWithoutId<'a> {
    /// Finds the number where nearly every client writes its id. Only the parsed body shows that it
    /// is the id, and not part of another member: see [`Self::is_at`].
    pub fn find(body: &'a [u8]) -> Option<Self> {
        let mut colons = memchr::memchr_iter(b':', body);
        let name = colons.find(|at| body.get(..*at).is_some_and(|to| to.ends_with(NAME)))?;
        let value = body.get(name..)?.strip_prefix(b":")?;
        let value = value.strip_prefix(b" ").unwrap_or(value);
        let before = body.strip_suffix(value)?;
        let length = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, after) = value.split_at_checked(length)?;
        // in the shortest form, with a byte behind it that ends it
        let is_plain = matches!(digits, [b'1'..=b'9', ..] | [b'0']) && length <= MAX_DIGITS;
        let ends = matches!(after.first(), Some(b',' | b'}'));
        let id = str::from_utf8(digits).ok().filter(|_| is_plain && ends)?;
        Some(Self { before, id, after })
    }

    /// A stored body: both parts in one slice, and where the second begins.
    pub fn stored(parts: &'a [u8], at: usize) -> Option<Self> {
        let (before, after) = parts.split_at_checked(at)?;
        Some(Self { before, id: "", after })
    }

    /// The bytes before and after the number.
    pub fn parts(&self) -> [&'a [u8]; 2] {
        [self.before, self.after]
    }

    /// The number: the id, if this body equals one whose number was the id.
    pub fn id(&self) -> &'a str {
        self.id
    }

    /// Whether the number is this id: the same bytes of the body, not only an equal number.
    pub fn is_at(&self, id: Id<'_>) -> bool {
        core::ptr::eq(self.id, id.as_str())
    }
}

impl PartialEq for BodyWithoutId<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.before == other.before && self.after == other.after
    }
}

impl Hash for BodyWithoutId<'_> {
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
        BodyWithoutId::find(body.as_bytes()).map(|split| split.id())
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
    fn a_lookalike_of_the_id_is_not_it() {
        for (body, is_id) in [
            (r#"{"jsonrpc":"2.0","id":7,"method":"m"}"#, true),
            (r#"{"jsonrpc":"2.0","id":7,"method":"m","params":{"id":7}}"#, true),
            (r#"{"jsonrpc":"2.0","params":{"id":7},"method":"m","id":7}"#, false),
            (r#"{"jsonrpc":"2.0","method":"\"id\":7,","id":7}"#, true),
            (r#"{"jsonrpc":"2.0","params":["\\\"id\":7,"],"method":"m","i\u0064":7}"#, false),
        ] {
            let id = Envelope::parse(body.as_bytes()).map(|envelope| envelope.id);
            let split = BodyWithoutId::find(body.as_bytes());
            let both = split.zip(id.ok());
            assert_eq!(both.is_some_and(|(split, id)| split.is_at(id)), is_id, "{body}");
        }
    }

    /// Parameters that contain a lookalike of an id.
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
        fn equal_bodies_are_the_same_request(
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
            let [first, second] = [&one, &other].map(|body| BodyWithoutId::find(body.as_bytes()));
            if let Some(first) = first.filter(|first| first.is_at(parsed.id)) {
                let second = second.expect("the number is at the same place");
                prop_assert_eq!(first, second);
                prop_assert_eq!(second.id(), again.id.as_str());
                prop_assert_eq!((parsed.method, parsed.params), (again.method, again.params));
            } else {
                prop_assert!(order > 1, "the first place is found: {}", one);
            }
        }
    }
}
