//! Cairo short strings: up to 31 characters in one felt.

use super::Felt;
use alloc::string::String;

/// The longest short string: a felt holds 31 whole bytes, one for each character.
const MAX_LENGTH: usize = 31;

/// A text of 1 to 31 printable ASCII characters, which is one felt on chain.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShortString {
    text: String,
    felt: Felt,
}

impl ShortString {
    /// Reads a text; `None` if it is empty, too long, or holds anything but printable ASCII.
    pub fn parse(text: &str) -> Option<Self> {
        let is_printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        if text.is_empty() || text.len() > MAX_LENGTH || !is_printable {
            return None;
        }
        let mut bytes = [0; 32];
        // right-aligned, since the felt is read from its most significant byte on
        for (to, from) in bytes.iter_mut().rev().zip(text.bytes().rev()) {
            *to = from;
        }
        Some(Self {
            text: text.into(),
            felt: Felt::from_bytes_be(&bytes)?,
        })
    }

    /// The short string that `felt` encodes, if it encodes one.
    pub fn of(felt: Felt) -> Option<Self> {
        let bytes = felt.to_bytes_be();
        let start = bytes.iter().position(|byte| *byte != 0)?;
        Self::parse(str::from_utf8(bytes.get(start..)?).ok()?)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The felt.
    pub fn felt(&self) -> Felt {
        self.felt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_short_string_has_1_to_31_characters() {
        let longest = "x".repeat(31);
        for (text, felt) in [
            ("SN_SEPOLIA", Some("0x534e5f5345504f4c4941")),
            ("a b", Some("0x612062")),
            (&longest, Some(&*format!("0x{}", "78".repeat(31)))),
            ("", None),
            (&"x".repeat(32), None),
            ("a\n", None),
            ("a\0b", None),
            ("é", None),
        ] {
            let read = ShortString::parse(text);
            assert_eq!(
                read.map(|read| read.felt()),
                felt.and_then(Felt::parse),
                "{text:?}"
            );
        }
        for felt in ["0x0", "0x6100", "0x610062", "0xff", "0x7f"] {
            assert_eq!(ShortString::of(Felt::parse(felt).unwrap()), None, "{felt}");
        }
    }
}
