//! Digests as text: two lower-case digits for each byte.

/// The text of bytes.
pub(super) fn write(bytes: &[u8]) -> String {
    bytes.iter().flat_map(|byte| [byte >> 4, byte & 0xf]).map(digit).collect()
}

fn digit(nibble: u8) -> char {
    char::from(if nibble < 10 { b'0' + nibble } else { b'a' + nibble - 10 })
}

/// The 32 bytes of a text that [`write`] wrote.
pub(super) fn read(text: &str) -> Option<[u8; 32]> {
    let digits: Vec<u8> = text.chars().map(nibble).collect::<Option<_>>()?;
    let (pairs, rest) = digits.as_chunks::<2>();
    if !rest.is_empty() {
        return None;
    }
    let bytes: Vec<u8> = pairs.iter().map(|[high, low]| high << 4 | low).collect();
    bytes.try_into().ok()
}

fn nibble(digit: char) -> Option<u8> {
    if digit.is_ascii_uppercase() {
        return None;
    }
    digit.to_digit(16).and_then(|value| u8::try_from(value).ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_read_as_they_are_written() {
        let digest: [u8; 32] = std::array::from_fn(|at| (at * 8 + 7) as u8);
        let text = write(&digest);
        assert_eq!(text.len(), 64);
        assert!(text.starts_with("070f17"), "{text}");
        assert_eq!(read(&text), Some(digest));
        for wrong in
            ["", "0", &text[1..], &text[2..], &text.to_uppercase(), &text.replace('7', "g")]
        {
            assert_eq!(read(wrong), None, "{wrong:?}");
        }
    }
}
