//! Numbers of 256 bits as `0x` and hexadecimal digits, sixteen digits at a time.
//!
//! Felts are most of what a request holds, and digit by digit they took longer to read than the
//! JSON around them. The sixteen digits of a limb are the bytes of one `u128`, on which each
//! operation works on all of them.

#![expect(clippy::arithmetic_side_effects, reason = "no byte carries, and no shift is too long")]

use alloc::vec::Vec;

/// The digits of a limb.
const SIXTEEN: usize = 16;

/// The 64-bit limbs of `0x` and 1 to 64 digits of either case, most significant first.
pub(super) fn parse(text: &str) -> Option<[u64; 4]> {
    let digits = text.strip_prefix("0x")?.as_bytes();
    if digits.is_empty() || digits.len() > 4 * SIXTEEN {
        return None;
    }
    let (rest, whole) = digits.as_rchunks::<SIXTEEN>();
    let mut limbs = [0; 4];
    let mut free = limbs.iter_mut().rev();
    for (digits, limb) in whole.iter().rev().zip(free.by_ref()) {
        *limb = parse_limb(digits)?;
    }
    if let Some(limb) = free.next() {
        *limb = match digits.first_chunk() {
            // reads sixteen digits too; the last of them are in the next limb already
            Some(first) => {
                let read_twice = 4 * (SIXTEEN - rest.len());
                parse_limb(first)?.unbounded_shr(u32::try_from(read_twice).unwrap_or(u64::BITS))
            }
            None => rest.iter().try_fold(0, |limb, digit| {
                let digit = char::from(*digit).to_digit(16)?;
                Some(limb << 4 | u64::from(digit))
            })?,
        };
    }
    Some(limbs)
}

/// Appends `0x` and the fewest lower-case digits.
pub(super) fn write(limbs: &[u64; 4], out: &mut Vec<u8>) {
    let mut digits = [[0; 2]; 2 * SIXTEEN];
    for (pair, byte) in digits.iter_mut().zip(limbs.map(u64::to_be_bytes).as_flattened()) {
        *pair = [digit(byte >> 4), digit(byte & 0xf)];
    }
    let zero_bits = match limbs {
        // zero has one digit
        [0, 0, 0, low] => 3 * u64::BITS + (low | 1).leading_zeros(),
        [0, 0, limb, _] => 2 * u64::BITS + limb.leading_zeros(),
        [0, limb, ..] => u64::BITS + limb.leading_zeros(),
        [limb, ..] => limb.leading_zeros(),
    };
    let zeros = usize::try_from(zero_bits / 4).unwrap_or_default();
    out.extend_from_slice(b"0x");
    out.extend_from_slice(digits.as_flattened().get(zeros..).unwrap_or_default());
}

#[inline]
const fn digit(nibble: u8) -> u8 {
    nibble + if nibble < 10 { b'0' } else { b'a' - 10 }
}

fn parse_limb(digits: &[u8; SIXTEEN]) -> Option<u64> {
    // without a stop at the first other byte: that takes a few vector instructions
    if !digits.iter().fold(true, |all, digit| all & digit.is_ascii_hexdigit()) {
        return None;
    }
    let digits = u128::from_be_bytes(*digits);
    // letters of either case have bit 6 set and low bits from 1: nine more than that
    let nibbles = (digits & each(0xf)) + (digits >> 6 & each(1)) * 9;
    let bytes = (nibbles | nibbles >> 4) & 0x00ff_00ff_00ff_00ff_00ff_00ff_00ff_00ff;
    let pairs = (bytes | bytes >> 8) & 0x0000_ffff_0000_ffff_0000_ffff_0000_ffff;
    let fours = (pairs | pairs >> 16) & 0x0000_0000_ffff_ffff_0000_0000_ffff_ffff;
    u64::try_from((fours | fours >> 32) & u128::from(u64::MAX)).ok()
}

/// This in each byte.
#[inline]
const fn each(byte: u8) -> u128 {
    u128::from_ne_bytes([byte; SIXTEEN])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn any_other_byte_spoils_the_digits() {
        let digits = "0123456789abcdefABCDEF".repeat(3);
        for length in 1..=64 {
            for at in 0..length {
                for byte in 0..=127_u8 {
                    let mut text = format!("0x{}", &digits[..length]).into_bytes();
                    text[2 + at] = byte;
                    let is_read = parse(str::from_utf8(&text).unwrap()).is_some();
                    assert_eq!(is_read, byte.is_ascii_hexdigit(), "{byte} at {at} of {length}");
                }
            }
        }
        assert_eq!(parse("0xé0123456789abcdef"), None, "more bytes than letters");
    }

    #[test]
    fn leading_zeros_change_nothing() {
        for length in 1..=64 {
            let text = format!("0x{:0>length$}", "7");
            assert_eq!(parse(&text), Some([0, 0, 0, 7]), "{text}");
        }
    }

    proptest! {
        #[test]
        fn digits_match_the_formatter_s(high: u128, low: u128, shift in 0..128) {
            for [high, low] in [[high >> shift, low], [0, high >> shift]] {
                let halves = [high >> 64, high, low >> 64, low].map(|limb| limb as u64);
                let mut text = Vec::new();
                write(&halves, &mut text);
                let expected = match high {
                    0 => format!("{low:#x}"),
                    _ => format!("{high:#x}{low:032x}"),
                };
                prop_assert_eq!(String::from_utf8(text).unwrap(), expected);
            }
        }

        #[test]
        fn what_is_written_parses_to_the_same_value(limbs: [u64; 4]) {
            let mut text = Vec::new();
            write(&limbs, &mut text);
            let text = String::from_utf8(text).unwrap();
            prop_assert_eq!(parse(&text), Some(limbs));
            prop_assert!(text == "0x0" || !text.starts_with("0x0"), "{}", text);
            prop_assert_eq!(parse(&text.to_uppercase().replacen("0X", "0x", 1)), Some(limbs));
        }
    }
}
