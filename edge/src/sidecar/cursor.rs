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
        digest
            .chain_update(text.len().to_be_bytes())
            .chain_update(text)
    });
    *digest
        .finalize()
        .first_chunk()
        .expect("a digest has 32 bytes")
}

/// Encodes a position.
pub(super) fn write(fingerprint: Fingerprint, number: i64, text: &str) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&fingerprint);
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Decodes a position; `None` if it is malformed or has another fingerprint.
pub(super) fn read(fingerprint: Fingerprint, cursor: &str) -> Option<(i64, String)> {
    if cursor.len() > MAX_LENGTH {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let rest = bytes.strip_prefix(&[VERSION])?.strip_prefix(&fingerprint)?;
    let (number, text) = rest.split_first_chunk()?;
    Some((
        i64::from_be_bytes(*number),
        str::from_utf8(text).ok()?.to_owned(),
    ))
}
