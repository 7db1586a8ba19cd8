//! Field elements, as JSON-RPC writes them.
//!
//! Read: `0x` and 1 to 64 hexadecimal digits of either case, leading zeros allowed (wallets pad to
//! 64), with a value below the Stark prime. The node itself is more lenient: it reads the prime as
//! zero and `0x0x12` as `0x12`, so only what was parsed here and written again is forwarded.
//! Written: `0x` and the fewest lower-case digits. Numbers of 64 and 128 bits (gas, prices) have
//! the same form. [`U256`] and [`ShortString`] are what Cairo makes of felts.

mod hex;
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

/// A field element below the Stark prime.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Felt([u64; 4]);

impl Felt {
    /// Zero.
    pub const ZERO: Self = Self([0; 4]);

    /// Parses `0x`-prefixed hexadecimal; `None` for any other text or a value not below the prime.
    pub fn parse(text: &str) -> Option<Self> {
        Self::from_limbs(hex::parse(text)?)
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
        let [0, 0, high, low] = self.0 else { return None };
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
        hex::write(&self.0, out);
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
    fn a_number_is_bounded_by_its_bits() {
        for (text, as_u64, as_u128) in [
            ("0x0", Some(0), Some(0)),
            ("0xffffffffffffffff", Some(u64::MAX), Some(u128::from(u64::MAX))),
            ("0x10000000000000000", None, Some(1 << 64)),
            ("0xffffffffffffffffffffffffffffffff", None, Some(u128::MAX)),
            ("0x100000000000000000000000000000000", None, None),
        ] {
            let felt = Felt::parse(text).unwrap();
            assert_eq!((felt.to_u64(), felt.to_u128()), (as_u64, as_u128), "{text}");
            assert_eq!(as_u128.map(Felt::from).unwrap_or(felt), felt, "{text}");
        }
    }

    #[test]
    fn an_address_is_positive_and_below_the_bound() {
        let bound = "0x7ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff00";
        let last = "0x7fffffffffffffffffffffffffffffffffffffffffffffffffffffffffffeff";
        for (text, ok) in [("0x0", false), ("0x1", true), (last, true), (bound, false)] {
            assert_eq!(Felt::parse(text).unwrap().is_address(), ok, "{text}");
        }
    }

    proptest! {
        #[test]
        fn bytes_and_numbers_come_back(bytes: [u8; 32], number: u128, short in "[ -~]{1,31}") {
            if let Some(felt) = Felt::from_bytes_be(&bytes) {
                prop_assert_eq!(felt.to_bytes_be(), bytes);
                prop_assert_eq!(Felt::parse(&felt.to_string()), Some(felt));
            }
            prop_assert_eq!(Felt::from(number).to_u128(), Some(number));
            let felt = Felt::from_short_string(&short);
            prop_assert_eq!(felt.and_then(|felt| felt.to_short_string()), Some(short));
        }
    }
}
