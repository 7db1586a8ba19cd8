//! Cursors: the position where a page ended and the next one starts.
//!
//! Opaque to clients: base64url of a version, a fingerprint of feed and filters, a number and a
//! text. A cursor names a position, not an item, so it is valid after that item disappears. It
//! needs no signature: a forged one is just another position.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

const VERSION: u8 = 1;
/// 4 KiB: the at-uri of a post is far shorter.
const MAX_LENGTH: usize = 4 << 10;

/// Identifies a feed with its filters.
pub(super) type Fingerprint = [u8; 8];

/// The fingerprint of these texts, in order.
pub(super) fn fingerprint<'a>(texts: impl IntoIterator<Item = &'a str>) -> Fingerprint {
    let digest = texts.into_iter().fold(Sha256::new(), |digest, text| {
        digest.chain_update(text.len().to_be_bytes()).chain_update(text)
    });
    *digest.finalize().first_chunk().expect("a digest has 32 bytes")
}

/// Encodes a position.
pub(super) fn write(fingerprint: Fingerprint, number: i64, text: &str) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&fingerprint);
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes a position; `None` if it is malformed or of another feed or filters.
pub(super) fn read(fingerprint: Fingerprint, cursor: &str) -> Option<(i64, String)> {
    if cursor.len() > MAX_LENGTH {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let rest = bytes.strip_prefix(&[VERSION])?.strip_prefix(&fingerprint)?;
    let (number, text) = rest.split_first_chunk()?;
    Some((i64::from_be_bytes(*number), str::from_utf8(text).ok()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_fits_its_feed_and_filters_only() {
        let print = fingerprint(["journals", "", "rare"]);
        let cursor = write(print, -7, "at://did:plc:x/app.bsky.feed.post/3");
        let text = "at://did:plc:x/app.bsky.feed.post/3".to_owned();
        assert_eq!(read(print, &cursor), Some((-7, text)));
        for other in [["journals", "rare", ""], ["journals", "", "rar"], ["showcase", "", "rare"]] {
            assert_eq!(read(fingerprint(other), &cursor), None, "{other:?}");
        }
    }

    #[test]
    fn a_malformed_cursor_is_refused() {
        let print = fingerprint(["journals"]);
        let good = write(print, 1, "x");
        for bad in
            ["", "x", "AA", "=", &good[..good.len() - 4], &format!("{good}="), &"A".repeat(5000)]
        {
            assert_eq!(read(print, bad), None, "{bad}");
        }
    }
}
