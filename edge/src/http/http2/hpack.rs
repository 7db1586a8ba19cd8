//! Follows HPACK (RFC 7541) to find what `h2` drops from a header block before this program sees
//! it.
//!
//! In: the whole header blocks of a connection, in order. Out: whether one has a fragment in
//! `:path`, and whether it has pseudo-fields. `h2` decodes the same blocks and ends the connection
//! if one is invalid, so this stores no text and no sizes. It knows the newest entries of the
//! client's table; which of them were evicted does not matter, since `h2` rejects references to
//! those.

use std::collections::VecDeque;

/// Entries of the static table; RFC 7541, appendix A.
const STATIC: usize = 61;
/// A client's table has 4096 bytes, as this program never changes that (RFC 9113, section 6.5.2),
/// and an entry takes at least 32 (RFC 7541, section 4.1).
const MAX_ENTRIES: usize = 4096 / 32;

/// Changes of the table's size in one block: the smallest and the final one (RFC 7541, section
/// 4.2). Each takes one byte, and thousands would cost as much as fields.
const MAX_CHANGES: usize = 2;

/// `:path` in the Huffman code, and the start of every name that begins with `:`.
const CODED_PATH: &[u8] = b"\xb9\x58\xd3\x3f";
const CODED_COLON: u8 = 0b101_1100;
/// `#` in the Huffman code, 12 bits long.
const CODED_FRAGMENT: u32 = 0xffa;
/// For each length in bits, the number of Huffman codes. The code of RFC 7541, appendix B, is
/// canonical: shorter codes come first, and codes of one length are consecutive numbers.
const CODES: [(u32, u32); 21] = [
    (5, 10),
    (6, 26),
    (7, 32),
    (8, 6),
    (10, 5),
    (11, 3),
    (12, 2),
    (13, 6),
    (14, 2),
    (15, 3),
    (19, 3),
    (20, 8),
    (21, 13),
    (22, 26),
    (23, 29),
    (24, 12),
    (25, 4),
    (26, 15),
    (27, 19),
    (28, 29),
    (30, 4),
];

/// The contents of a header block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) has_fragment: bool,
    pub(super) has_pseudo: bool,
}

/// The fields that the client has stored, the newest first.
#[derive(Debug, Default)]
pub(super) struct Hpack(VecDeque<Field>);

#[derive(Clone, Copy, Debug)]
struct Field {
    name: Name,
    has_fragment: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Path,
    OtherPseudo,
    Regular,
}

impl Hpack {
    /// Follows a block; `None` if it cannot be decoded, or changes the table too often.
    pub(super) fn decode(&mut self, block: &[u8]) -> Option<Found> {
        let mut rest = block;
        let mut found = Found::default();
        let mut changes = 0;
        while let Some(first) = rest.first() {
            let field = match first {
                0x80.. => self.field(integer(&mut rest, 7)?)?,
                0x40.. => {
                    let field = self.literal(&mut rest, 6)?;
                    self.0.truncate(MAX_ENTRIES - 1);
                    self.0.push_front(field);
                    debug_assert!(self.0.len() <= MAX_ENTRIES, "older fields are dropped");
                    field
                }
                0x20.. => {
                    // a new size of the table
                    integer(&mut rest, 5)?;
                    changes += 1;
                    if changes > MAX_CHANGES {
                        return None;
                    }
                    continue;
                }
                _ => self.literal(&mut rest, 4)?,
            };
            found.has_fragment |= field.has_fragment;
            found.has_pseudo |= field.name != Name::Regular;
        }
        Some(found)
    }

    fn field(&self, index: usize) -> Option<Field> {
        let name = match index {
            0 => return None,
            4 | 5 => Name::Path,
            1..=14 => Name::OtherPseudo,
            15..=STATIC => Name::Regular,
            _ => return self.0.get(index - STATIC - 1).copied(),
        };
        Some(Field {
            name,
            has_fragment: false,
        })
    }

    fn literal(&self, rest: &mut &[u8], prefix: u32) -> Option<Field> {
        let name = match integer(rest, prefix)? {
            0 => string(rest)?.name(),
            index => self.field(index)?.name,
        };
        let value = string(rest)?;
        Some(Field {
            name,
            has_fragment: name == Name::Path && value.has_fragment(),
        })
    }
}

/// Reads an integer with a prefix of `prefix` bits, in at most five bytes, as `h2` does; RFC 7541,
/// section 5.1.
fn integer(rest: &mut &[u8], prefix: u32) -> Option<usize> {
    let mut next = || {
        let (first, after) = rest.split_first()?;
        *rest = after;
        Some(usize::from(*first))
    };
    let mask = (1 << prefix) - 1;
    let mut value = next()? & mask;
    if value < mask {
        return Some(value);
    }
    for shift in [0, 7, 14, 21] {
        let byte = next()?;
        value += (byte & 0x7f) << shift;
        if byte & 0x80 == 0 {
            return Some(value);
        }
    }
    None
}

/// An encoded string; RFC 7541, section 5.2.
enum Text<'a> {
    Plain(&'a [u8]),
    Coded(&'a [u8]),
}

fn string<'a>(rest: &mut &'a [u8]) -> Option<Text<'a>> {
    let is_coded = rest.first()? & 0x80 != 0;
    let length = integer(rest, 7)?;
    let (text, after) = rest.split_at_checked(length)?;
    *rest = after;
    Some(if is_coded {
        Text::Coded(text)
    } else {
        Text::Plain(text)
    })
}

impl Text<'_> {
    /// The kind of field that has this name; each text has only one Huffman code.
    fn name(&self) -> Name {
        match self {
            Self::Plain(b":path") | Self::Coded(CODED_PATH) => Name::Path,
            Self::Plain([b':', ..]) => Name::OtherPseudo,
            Self::Coded([first, ..]) if first >> 1 == CODED_COLON => Name::OtherPseudo,
            _ => Name::Regular,
        }
    }

    fn has_fragment(&self) -> bool {
        match self {
            Self::Plain(text) => text.contains(&b'#'),
            Self::Coded(text) => codes_fragment(text),
        }
    }
}

/// Whether one of the symbols is `#`.
fn codes_fragment(text: &[u8]) -> bool {
    let mut bytes = text.iter();
    // the bits that were read and not decoded, at most 40
    let (mut window, mut count) = (0_u64, 0_u32);
    loop {
        while count <= 32
            && let Some(byte) = bytes.next()
        {
            (window, count) = (window << 8 | u64::from(*byte), count + 8);
        }
        let (mut first, mut before) = (0_u32, 0);
        let symbol = CODES.iter().find_map(|(bits, codes)| {
            first <<= bits - before;
            let code = (window >> count.checked_sub(*bits)?) as u32;
            (first, before) = (first + codes, *bits);
            (code < first).then_some((code, *bits))
        });
        match symbol {
            Some((CODED_FRAGMENT, 12)) => return true,
            Some((_, bits)) => {
                count -= bits;
                window &= (1 << count) - 1;
            }
            // padding
            None => return false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Option<Found> = Some(Found {
        has_fragment: false,
        has_pseudo: false,
    });
    const PSEUDO: Option<Found> = Some(Found {
        has_fragment: false,
        has_pseudo: true,
    });
    const FRAGMENT: Option<Found> = Some(Found {
        has_fragment: true,
        has_pseudo: true,
    });

    fn bytes(text: &str) -> Vec<u8> {
        hex::decode(text.replace(' ', "")).expect("hexadecimal digits")
    }

    #[test]
    fn the_examples_of_rfc_7541_are_followed() {
        // appendices C.3 and C.4
        for blocks in [
            [
                "8286 8441 0f77 7777 2e65 7861 6d70 6c65 2e63 6f6d",
                "8286 84be 5808 6e6f 2d63 6163 6865",
                "8287 85bf 400a 6375 7374 6f6d 2d6b 6579 0c63 7573 746f 6d2d 7661 6c75 65",
            ],
            [
                "8286 8441 8cf1 e3c2 e5f2 3a6b a0ab 90f4 ff",
                "8286 84be 5886 a8eb 1064 9cbf",
                "8287 85bf 4088 25a8 49e9 5ba9 7d7f 8925 a849 e95b b8e8 b4bf",
            ],
        ] {
            let mut hpack = Hpack::default();
            for block in blocks {
                assert_eq!(hpack.decode(&bytes(block)), PSEUDO, "{block}");
            }
            // custom-key, cache-control, :authority
            for (index, found) in [(b"\xbe", NOTHING), (b"\xbf", NOTHING), (b"\xc0", PSEUDO)] {
                assert_eq!(hpack.decode(index), found, "{index:x?}");
            }
            assert_eq!(hpack.decode(b"\xc1"), None);
        }
    }

    #[test]
    fn a_stored_fragment_is_found_again() {
        let mut hpack = Hpack::default();
        assert_eq!(hpack.decode(b"\x44\x02/#\x44\x01/"), FRAGMENT);
        assert_eq!(hpack.decode(b"\xbe"), PSEUDO, "the newest");
        assert_eq!(hpack.decode(b"\xbf"), FRAGMENT, "the one before");
        // under the name of a stored field, whether the new field is stored or not
        for (block, found) in [
            (b"\x0f\x2f\x02/#", FRAGMENT),
            (b"\x0f\x2f\x02/x", PSEUDO),
            (b"\x7f\x00\x02x#", FRAGMENT),
        ] {
            assert_eq!(hpack.decode(block), found, "{block:x?}");
        }
        for _ in 0..MAX_ENTRIES {
            assert_eq!(hpack.decode(b"\x40\x01a\x01b"), NOTHING);
        }
        assert_eq!(hpack.0.len(), MAX_ENTRIES, "older ones do not fit");
    }

    #[test]
    fn a_fragment_is_found_in_each_encoding() {
        for (block, found) in [
            (&b"\x04\x02/#"[..], FRAGMENT),
            (b"\x14\x02/#", FRAGMENT),
            (b"\x05\x02/#", FRAGMENT),
            (b"\x00\x05:path\x02/#", FRAGMENT),
            (b"\x00\x84\xb9\x58\xd3\x3f\x02/#", FRAGMENT),
            // "/#" and "/?"
            (b"\x44\x83\x63\xfe\xbf", FRAGMENT),
            (b"\x44\x82\x63\xfc", PSEUDO),
            // another pseudo-field, its name in both encodings
            (b"\x01\x02/#", PSEUDO),
            (b"\x00\x06:paths\x02/#", PSEUDO),
            (b"\x00\x84\xb8\x3b\x53\x39\x00", PSEUDO),
            (b"\x0f\x00\x02/#", NOTHING),
            (b"\x00\x04path\x02/#", NOTHING),
            (b"\x3f\xe1\x1f", NOTHING),
            (b"\x20\x3f\xe1\x1f", NOTHING),
            (b"\x20\x20\x3f\xe1\x1f", None),
            (b"", NOTHING),
            (b"\x80", None),
            (b"\xbe", None),
            (b"\x04\x05/#", None),
            (b"\x04\xff\xff\xff\xff\xff\xff/#", None),
        ] {
            assert_eq!(Hpack::default().decode(block), found, "{block:x?}");
        }
    }
}
