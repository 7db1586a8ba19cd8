//! Request ids: the client's if it has the right form, else one of ours.

use http::{HeaderMap, HeaderName, HeaderValue};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};

static X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Makes ids that no other process makes: a random prefix and a count.
#[derive(Debug)]
pub struct RequestIds {
    process: u64,
    next: AtomicU64,
}

impl Default for RequestIds {
    fn default() -> Self {
        Self::new()
    }
}

impl RequestIds {
    /// With a prefix drawn from the randomness that the standard library keys its maps with.
    pub fn new() -> Self {
        Self { process: RandomState::new().hash_one(0), next: AtomicU64::new(0) }
    }

    /// The `X-Request-Id` of the request if it is 8 to 64 letters, digits and hyphens, else a new
    /// one.
    pub fn accept_or_mint(&self, headers: &HeaderMap) -> HeaderValue {
        match headers.get(&X_REQUEST_ID) {
            Some(given) if is_well_formed(given.as_bytes()) => given.clone(),
            _ => self.mint(),
        }
    }

    /// A new id.
    pub fn mint(&self) -> HeaderValue {
        let count = self.next.fetch_add(1, Ordering::Relaxed);
        let mut text = [b'-'; 33];
        let (process, rest) = text.split_at_mut(16);
        write_hex(self.process, process);
        write_hex(count, &mut rest[1..]);
        HeaderValue::from_bytes(&text).expect("hexadecimal digits and a hyphen are a header value")
    }
}

/// Fills `digits`, from the right.
fn write_hex(mut number: u64, digits: &mut [u8]) {
    for digit in digits.iter_mut().rev() {
        *digit = b"0123456789abcdef"[(number & 0xf) as usize];
        number >>= 4;
    }
}

fn is_well_formed(id: &[u8]) -> bool {
    (8..=64).contains(&id.len()) && id.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_client_s_id_is_kept_only_in_the_right_form() {
        let ids = RequestIds::new();
        let long = "x".repeat(65);
        for (given, kept) in [
            ("abcdefgh", true),
            ("0f8fad5b-d9cb-469f-a165-70867728950e", true),
            (&long[..64], true),
            (&long, false),
            ("short12", false),
            ("with space", false),
            ("under_score", false),
            ("\"quoted-id\"", false),
        ] {
            let mut headers = HeaderMap::new();
            headers.insert("x-request-id", given.parse().expect("a header value"));
            assert_eq!(ids.accept_or_mint(&headers) == given, kept, "{given}");
        }
    }

    #[test]
    fn minted_ids_have_the_form_that_is_accepted_and_differ() {
        let ids = RequestIds::new();
        let (one, two) = (ids.mint(), ids.mint());
        assert!(is_well_formed(one.as_bytes()), "{one:?}");
        assert_ne!(one, two);
        assert_ne!(RequestIds::new().mint(), RequestIds::new().mint());
    }
}
