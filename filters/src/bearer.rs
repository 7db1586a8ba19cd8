//! The relay's bearer tokens.
//!
//! Stored and compared as SHA-256 digests, so that no comparison depends on how much of a token
//! matches, and a dump of the policy shows no token. RFC 6750, section 2.1.

use crate::head::Head;
use crate::secret::Secret;
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use http::header;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};

/// The contract's minimum length of a token, in bytes.
const MIN_LENGTH: usize = 32;
/// The current token, and the next one during a rotation.
const MAX_TOKENS: usize = 2;

/// The accepted tokens: the current one, and the next during a rotation.
#[derive(Clone)]
pub struct Tokens(Vec<[u8; 32]>);

impl Tokens {
    /// One or two different tokens, each at least 32 visible ASCII characters and not in quotation
    /// marks; white space around a token is not part of it. `None` for anything else.
    pub fn new(tokens: &[Secret]) -> Option<Self> {
        if tokens.is_empty() || tokens.len() > MAX_TOKENS {
            return None;
        }
        let mut digests: Vec<[u8; 32]> = Vec::with_capacity(MAX_TOKENS);
        for token in tokens.iter().map(Secret::trimmed) {
            let is_visible = token.iter().all(u8::is_ascii_graphic);
            let is_quoted = matches!(token, [b'"', .., b'"'] | [b'\'', .., b'\'']);
            let digest = digest(token);
            if token.len() < MIN_LENGTH || !is_visible || is_quoted || digests.contains(&digest) {
                return None;
            }
            digests.push(digest);
        }
        Some(Self(digests))
    }

    /// No token: every request is refused. For a policy that only explains its checks.
    pub fn none() -> Self {
        Self(Vec::new())
    }

    /// Whether a request carries one of the tokens: exactly one `Authorization`, `Bearer` in any
    /// case, one space, the token.
    pub fn authorize(&self, head: &Head<'_>) -> bool {
        let Some(Some(value)) = head.single(header::AUTHORIZATION) else {
            return false;
        };
        let Some((scheme, token)) = value.as_bytes().split_at_checked(b"Bearer ".len()) else {
            return false;
        };
        scheme.eq_ignore_ascii_case(b"Bearer ") && self.contains(token)
    }

    /// Whether this is one of the tokens. Compares with every one, in constant time.
    pub fn contains(&self, token: &[u8]) -> bool {
        let digest = digest(token);
        let none = Choice::from(0);
        self.0
            .iter()
            .fold(none, |any, known| any | known.as_slice().ct_eq(&digest))
            .into()
    }
}

/// Hashes a token. The state of the hash holds up to 64 bytes of the token, so it is on the heap
/// and never moved: that memory is wiped when it is freed, while the stack would keep a copy.
fn digest(token: &[u8]) -> [u8; 32] {
    let mut state = Box::new(Sha256::new());
    state.update(token);
    state.finalize_reset().into()
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderMap, HeaderValue, Version};

    const CURRENT: &str = "current-0123456789abcdef01234567";
    const NEXT: &str = "next-0123456789abcdef0123456789a";

    fn tokens(texts: &[&str]) -> Option<Tokens> {
        let secrets: Vec<_> = texts
            .iter()
            .map(|text| Secret::new((*text).into()))
            .collect();
        Tokens::new(&secrets)
    }

    #[test]
    fn one_or_two_long_tokens_are_accepted() {
        let padded = format!("  {CURRENT}\r\n");
        for (texts, ok) in [
            (&[CURRENT][..], true),
            (&[CURRENT, NEXT], true),
            (&[&padded], true),
            (&[], false),
            (&[CURRENT, NEXT, "third-0123456789abcdef0123456789a"], false),
            (&[CURRENT, &padded], false),
            (&[&CURRENT[1..]], false),
            (&[CURRENT, "short"], false),
            (&["two words-0123456789abcdef0123456"], false),
            (&["\"quoted-0123456789abcdef0123456\""], false),
            (&["'quoted-0123456789abcdef0123456'"], false),
            (&["'quoted-0123456789abcdef01234567"], true),
            (&["ünseen-0123456789abcdef0123456789"], false),
        ] {
            assert_eq!(tokens(texts).is_some(), ok, "{texts:?}");
        }
    }

    #[test]
    fn only_a_known_token_in_one_field_authorizes() {
        let both = tokens(&[CURRENT, NEXT]).unwrap();
        let [good, next] = [CURRENT, NEXT].map(|token| format!("Bearer {token}"));
        for (fields, ok) in [
            (vec![good.clone()], true),
            (vec![next.clone()], true),
            (vec![format!("bEARER {CURRENT}")], true),
            (vec![], false),
            (vec![good.clone(), good.clone()], false),
            (vec![good.clone(), next], false),
            (vec![format!("Bearer  {CURRENT}")], false),
            (vec![format!("Bearer\t{CURRENT}")], false),
            (vec![format!("Bearer {CURRENT} ")], false),
            (vec![format!("Bearer {CURRENT}=")], false),
            (vec![format!("Bearer {CURRENT}, Bearer {NEXT}")], false),
            (vec![format!("Bearer {}", CURRENT.to_uppercase())], false),
            (vec![format!("Bearer {}", &CURRENT[..31])], false),
            (vec![format!("Basic {CURRENT}")], false),
            (vec![CURRENT.to_owned()], false),
            (vec!["Bearer ".to_owned()], false),
            (vec![String::new()], false),
        ] {
            let mut headers = HeaderMap::new();
            for field in &fields {
                headers.append(header::AUTHORIZATION, HeaderValue::from_str(field).unwrap());
            }
            let head = Head {
                method: "POST",
                target: b"/rpc",
                version: Version::HTTP_11,
                headers: &headers,
                raw: b"",
                peer: None,
            };
            assert_eq!(both.authorize(&head), ok, "{fields:?}");
            assert!(
                !Tokens::none().authorize(&head),
                "no token is known: {fields:?}"
            );
        }
    }

    #[test]
    fn tokens_are_never_printed() {
        assert_eq!(format!("{:?}", tokens(&[CURRENT]).unwrap()), "Tokens(1)");
    }
}
