//! Field elements as the wire carries them.
//!
//! Accepted is `0x` and one to 64 hexadecimal digits of either case, leading zeros allowed (wallets
//! pad to 64), with a value below the Stark prime. The node itself is more lenient: it takes the
//! prime for zero and `0x0x12` for `0x12`, which is why nothing is forwarded that was not parsed
//! here and written again. Written is `0x` and the fewest lower-case digits.

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// 2^251 + 17 * 2^192 + 1, the order of the field (Starknet specification, "STARK curve"), as
/// 64-bit limbs, most significant first.
const PRIME: [u64; 4] = [0x0800_0000_0000_0011, 0, 0, 1];

/// A field element below the Stark prime.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Felt([u64; 4]);

impl Felt {
    /// Parses `0x`-prefixed hexadecimal; `None` for any other text or a value not below the prime.
    pub fn parse(text: &str) -> Option<Self> {
        let felt = Self(parse_hex(text)?);
        (felt.0 < PRIME).then_some(felt)
    }

    /// The value as 64-bit limbs, most significant first.
    pub fn limbs(&self) -> [u64; 4] {
        self.0
    }

    /// Appends `0x` and the fewest lower-case digits.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_hex(&self.0, out);
    }
}

impl fmt::Debug for Felt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(66);
        self.write(&mut text);
        f.write_str(&String::from_utf8_lossy(&text))
    }
}

/// An unsigned number of at most 128 bits, written in hexadecimal like a [`Felt`]: gas amounts
/// (`u64`) and prices (`u128`) of the V3 transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HexNumber(u128);

impl HexNumber {
    /// Parses `0x`-prefixed hexadecimal of at most `bits` bits.
    pub fn parse(text: &str, bits: u32) -> Option<Self> {
        let [0, 0, high, low] = parse_hex(text)? else { return None };
        let value = u128::from(high).wrapping_shl(64) | u128::from(low);
        (128_u32.saturating_sub(value.leading_zeros()) <= bits).then_some(Self(value))
    }

    /// Appends `0x` and the fewest lower-case digits.
    pub fn write(&self, out: &mut Vec<u8>) {
        let [mut high, mut low] = [0_u64; 2];
        for (limb, value) in [(&mut high, self.0.wrapping_shr(64)), (&mut low, self.0)] {
            *limb = u64::try_from(value & u128::from(u64::MAX)).unwrap_or_default();
        }
        write_hex(&[0, 0, high, low], out);
    }
}

fn parse_hex(text: &str) -> Option<[u64; 4]> {
    let digits = text.strip_prefix("0x")?.as_bytes();
    if digits.is_empty() || digits.len() > 64 {
        return None;
    }
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return None;
    }
    let mut limbs = [0_u64; 4];
    for (limb, chunk) in limbs.iter_mut().rev().zip(digits.rchunks(16)) {
        for digit in chunk {
            // letters of either case have bit 6 set and low bits from 1: nine more than that
            let nibble = (digit & 0xf).wrapping_add(digit.wrapping_shr(6).wrapping_mul(9));
            *limb = limb.wrapping_shl(4) | u64::from(nibble);
        }
    }
    Some(limbs)
}

fn write_hex(limbs: &[u64; 4], out: &mut Vec<u8>) {
    out.extend_from_slice(b"0x");
    let mut limbs = limbs.iter().skip_while(|limb| **limb == 0);
    let Some(first) = limbs.next() else { return out.push(b'0') };
    let digits = hex_digits(*first);
    let zeros = usize::try_from(first.leading_zeros() / 4).unwrap_or_default();
    out.extend_from_slice(digits.get(zeros..).unwrap_or_default());
    for limb in limbs {
        out.extend_from_slice(&hex_digits(*limb));
    }
}

fn hex_digits(limb: u64) -> [u8; 16] {
    let mut digits = [[0; 2]; 8];
    for (pair, byte) in digits.iter_mut().zip(limb.to_be_bytes()) {
        *pair = [byte.wrapping_shr(4), byte & 0xf]
            .map(|nibble| nibble.wrapping_add(if nibble < 10 { b'0' } else { b'a' - 10 }));
    }
    let mut text = [0; 16];
    text.iter_mut().zip(digits.as_flattened()).for_each(|(to, from)| *to = *from);
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn canonical(text: &str) -> Option<String> {
        let mut out = Vec::new();
        Felt::parse(text)?.write(&mut out);
        String::from_utf8(out).ok()
    }

    #[test]
    fn a_felt_is_prefixed_hexadecimal_below_the_prime() {
        let prime = "0x800000000000011000000000000000000000000000000000000000000000001";
        let below = "0x800000000000011000000000000000000000000000000000000000000000000";
        let padded = format!("0x0{}", &below[2..]);
        let too_long = format!("0x00{}", &below[2..]);
        for (text, expected) in [
            ("0x0", Some("0x0")),
            ("0x00", Some("0x0")),
            ("0xAbC", Some("0xabc")),
            ("0x0000000000000001", Some("0x1")),
            (below, Some(below)),
            (&padded, Some(below)),
            (prime, None),
            (&too_long, None),
            ("0x", None),
            ("", None),
            ("12", None),
            ("0X12", None),
            ("0x0x12", None),
            ("0x-1", None),
            ("0x+1", None),
            ("0x1 ", None),
            (" 0x1", None),
            ("0xg", None),
            ("0x１", None),
        ] {
            assert_eq!(canonical(text).as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_gas_number_is_bounded_by_its_bits() {
        for (text, bits, ok) in [
            ("0xffffffffffffffff", 64, true),
            ("0x10000000000000000", 64, false),
            ("0xffffffffffffffffffffffffffffffff", 128, true),
            ("0x100000000000000000000000000000000", 128, false),
            ("0x0", 64, true),
            ("ff", 64, false),
        ] {
            assert_eq!(HexNumber::parse(text, bits).is_some(), ok, "{text} in {bits} bits");
        }
    }

    proptest! {
        #[test]
        fn what_is_written_parses_to_the_same_value(limbs: [u64; 4]) {
            let mut text = Vec::new();
            write_hex(&limbs, &mut text);
            let text = String::from_utf8(text).unwrap();
            prop_assert_eq!(parse_hex(&text), Some(limbs));
            prop_assert!(text == "0x0" || !text.starts_with("0x0"), "{}", text);
            prop_assert_eq!(parse_hex(&text.to_uppercase().replacen("0X", "0x", 1)), Some(limbs));
        }
    }
}
