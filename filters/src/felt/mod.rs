//! Field elements, as JSON-RPC writes them.
//!
//! Read: `0x` and 1 to 64 hexadecimal digits of either case, leading zeros allowed (wallets pad to
//! 64), with a value below the Stark prime. The node itself is more lenient: it reads the prime as
//! zero and `0x0x12` as `0x12`, so only values that were parsed and written again are forwarded.
//! Written: `0x` and the fewest lower-case digits. Numbers of 64 and 128 bits (gas, prices) have
//! the same form. [`U256`] and [`ShortString`] are Cairo types made of felts. Sixteen digits are
//! read at once, as the bytes of one `u128`: felts are most of a request, and digit by digit they
//! took longer to read than the JSON around them.

mod short_string;
mod u256;

pub use short_string::ShortString;
pub use u256::U256;

use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;

/// 2^251 + 17 * 2^192 + 1, the order of the field (Starknet specification, "STARK curve"), as
/// 64-bit limbs, most significant first.
const PRIME: [u64; 4] = [0x0800_0000_0000_0011, 0, 0, 1];

/// 2^251 - 256: addresses are below it (Starknet specification, "Contract address").
const ADDRESS_BOUND: [u64; 4] = [0x07ff_ffff_ffff_ffff, u64::MAX, u64::MAX, u64::MAX - 255];

/// The hexadecimal digits of a limb.
const SIXTEEN: usize = 16;

/// A field element below the Stark prime.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Felt([u64; 4]);

impl Felt {
    /// Zero.
    pub const ZERO: Self = Self([0; 4]);

    /// Parses `0x`-prefixed hexadecimal; `None` for any other text or a value not below the prime.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_limbs(parse_hex(text)?)
    }

    /// The felt of these limbs, most significant first, if they are below the prime.
    pub fn from_limbs(limbs: [u64; 4]) -> Option<Self> {
        (limbs < PRIME).then_some(Self(limbs))
    }

    /// The value as 64-bit limbs, most significant first.
    pub fn limbs(&self) -> [u64; 4] {
        self.0
    }

    /// The felt of 32 bytes, most significant first, if they are below the prime.
    pub fn from_bytes_be(bytes: &[u8; 32]) -> Option<Self> {
        let mut limbs = [0; 4];
        for (limb, bytes) in limbs.iter_mut().zip(bytes.as_chunks().0) {
            *limb = u64::from_be_bytes(*bytes);
        }
        Self::from_limbs(limbs)
    }

    /// The value as 32 bytes, most significant first.
    pub fn to_bytes_be(&self) -> [u8; 32] {
        let mut bytes = [0; 32];
        for (bytes, limb) in bytes.as_chunks_mut().0.iter_mut().zip(self.0) {
            *bytes = limb.to_be_bytes();
        }
        bytes
    }

    /// The value, if it has at most 64 bits.
    pub fn to_u64(&self) -> Option<u64> {
        let [0, 0, 0, low] = self.0 else { return None };
        Some(low)
    }

    /// The value, if it has at most 128 bits.
    pub fn to_u128(&self) -> Option<u128> {
        let [0, 0, high, low] = self.0 else {
            return None;
        };
        Some(join(high, low))
    }

    /// The felt of a Cairo short string; `None` if the text is not one.
    pub fn from_short_string(text: &str) -> Option<Self> {
        ShortString::parse(text).map(|text| text.felt())
    }

    /// The text of this felt as a Cairo short string, if it is one.
    pub fn to_short_string(&self) -> Option<String> {
        ShortString::of(*self).map(|text| text.as_str().to_string())
    }

    /// Whether a contract can have this address: not zero, and below 2^251 - 256.
    pub fn is_address(&self) -> bool {
        *self != Self::ZERO && self.0 < ADDRESS_BOUND
    }

    /// Appends `0x` and the fewest lower-case digits.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_hex(&self.0, out);
    }
}

impl From<u64> for Felt {
    fn from(value: u64) -> Self {
        Self([0, 0, 0, value])
    }
}

impl From<u128> for Felt {
    fn from(value: u128) -> Self {
        let [high, low] = split(value);
        Self([0, 0, high, low])
    }
}

impl fmt::Display for Felt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = Vec::with_capacity(66);
        self.write(&mut text);
        f.pad(&String::from_utf8_lossy(&text))
    }
}

impl fmt::Debug for Felt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// A number's upper and lower half.
pub(crate) fn split(value: u128) -> [u64; 2] {
    let low = value & u128::from(u64::MAX);
    [value.wrapping_shr(64), low].map(|half| u64::try_from(half).unwrap_or_default())
}

/// The number of these halves.
fn join(high: u64, low: u64) -> u128 {
    u128::from(high).wrapping_shl(64) | u128::from(low)
}

/// The 64-bit limbs of `0x` and 1 to 64 digits of either case, most significant first.
#[expect(
    clippy::arithmetic_side_effects,
    reason = "the rest is shorter than sixteen digits"
)]
fn parse_hex(text: &str) -> Option<[u64; 4]> {
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
#[expect(
    clippy::arithmetic_side_effects,
    reason = "a limb has at most 64 leading zeros"
)]
fn write_hex(limbs: &[u64; 4], out: &mut Vec<u8>) {
    let mut digits = [[0; 2]; 2 * SIXTEEN];
    for (pair, byte) in digits
        .iter_mut()
        .zip(limbs.map(u64::to_be_bytes).as_flattened())
    {
        *pair = [hex_digit(byte >> 4), hex_digit(byte & 0xf)];
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
#[expect(clippy::arithmetic_side_effects, reason = "a nibble is below 16")]
const fn hex_digit(nibble: u8) -> u8 {
    nibble + if nibble < 10 { b'0' } else { b'a' - 10 }
}

#[expect(clippy::arithmetic_side_effects, reason = "no byte carries")]
fn parse_limb(digits: &[u8; SIXTEEN]) -> Option<u64> {
    // no early exit: checking all sixteen takes a few vector instructions
    if !digits
        .iter()
        .fold(true, |all, digit| all & digit.is_ascii_hexdigit())
    {
        return None;
    }
    let digits = u128::from_be_bytes(*digits);
    // a letter of either case has bit 6 set and low bits from 1: its value is nine more
    let nibbles = (digits & each(0xf)) + (digits >> 6 & each(1)) * 9;
    let bytes = (nibbles | nibbles >> 4) & 0x00ff_00ff_00ff_00ff_00ff_00ff_00ff_00ff;
    let pairs = (bytes | bytes >> 8) & 0x0000_ffff_0000_ffff_0000_ffff_0000_ffff;
    let fours = (pairs | pairs >> 16) & 0x0000_0000_ffff_ffff_0000_0000_ffff_ffff;
    u64::try_from((fours | fours >> 32) & u128::from(u64::MAX)).ok()
}

/// `byte` in each of the sixteen bytes.
#[inline]
const fn each(byte: u8) -> u128 {
    u128::from_ne_bytes([byte; SIXTEEN])
}

#[cfg(test)]
mod tests;
