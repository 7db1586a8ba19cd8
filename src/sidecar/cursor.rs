//! Where a page ended, for whoever asks for the next one.
//!
//! Opaque to clients: base64url of a version, a fingerprint of what the page was taken from, a
//! number and a text. It names a position and not an item, so it holds when that item goes. It
//! needs no signature: whoever makes one up names a position, too.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest as _, Sha256};

const VERSION: u8 = 1;
/// 4 KiB: the at-uri of a post is far shorter, whoever wrote it into the store.
const LONGEST: usize = 4 << 10;

/// What a page was taken from: feed and filters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fingerprint([u8; 8]);

impl Fingerprint {
    /// Of these texts, in order.
    pub(super) fn of<'a>(texts: impl IntoIterator<Item = &'a str>) -> Self {
        let digest = texts.into_iter().fold(Sha256::new(), |digest, text| {
            digest.chain_update(text.len().to_be_bytes()).chain_update(text)
        });
        let mut print = [0; 8];
        print.copy_from_slice(&digest.finalize()[..8]);
        Self(print)
    }
}

/// Writes where a page ended.
pub(super) fn write(print: Fingerprint, number: i64, text: &str) -> String {
    let mut bytes = vec![VERSION];
    bytes.extend_from_slice(&print.0);
    bytes.extend_from_slice(&number.to_be_bytes());
    bytes.extend_from_slice(text.as_bytes());
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Reads where a page ended; `None` unless it was one of the same feed and filters.
pub(super) fn read(print: Fingerprint, cursor: &str) -> Option<(i64, String)> {
    if cursor.len() > LONGEST {
        return None;
    }
    let bytes = URL_SAFE_NO_PAD.decode(cursor).ok()?;
    let rest = bytes.strip_prefix(&[VERSION])?.strip_prefix(&print.0)?;
    let (number, text) = rest.split_first_chunk()?;
    Some((i64::from_be_bytes(*number), str::from_utf8(text).ok()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_is_read_only_where_it_was_written() {
        let print = Fingerprint::of(["journals", "", "rare"]);
        let cursor = write(print, -7, "at://did:plc:x/app.bsky.feed.post/3");
        let text = "at://did:plc:x/app.bsky.feed.post/3".to_owned();
        assert_eq!(read(print, &cursor), Some((-7, text)));
        for other in [["journals", "rare", ""], ["journals", "", "rar"], ["showcase", "", "rare"]] {
            assert_eq!(read(Fingerprint::of(other), &cursor), None, "{other:?}");
        }
    }

    #[test]
    fn what_is_no_cursor_is_refused() {
        let print = Fingerprint::of(["journals"]);
        let good = write(print, 1, "x");
        for bad in
            ["", "x", "AA", "=", &good[..good.len() - 4], &format!("{good}="), &"A".repeat(5000)]
        {
            assert_eq!(read(print, bad), None, "{bad}");
        }
    }
}
