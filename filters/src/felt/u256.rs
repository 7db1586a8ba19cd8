//! 256-bit numbers, which Cairo passes as two felts of 128 bits each.

use super::{Felt, join, parse_hex, split, write_hex};
use alloc::vec::Vec;

/// A number below 2^256: a token amount, or the id of a card.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct U256([u64; 4]);

impl U256 {
    /// Zero.
    pub const ZERO: Self = Self([0; 4]);

    /// Parses decimal digits without leading zeros, or `0x` and 1 to 64 hexadecimal digits.
    pub fn parse(text: &str) -> Option<Self> {
        if text.starts_with("0x") {
            parse_hex(text).map(Self)
        } else {
            parse_decimal(text)
        }
    }

    /// The number that Cairo reads from two felts; `None` if one has more than 128 bits.
    pub fn from_felts(low: Felt, high: Felt) -> Option<Self> {
        let [[high, low], [high_of_low, low_of_low]] = [high.to_u128()?, low.to_u128()?].map(split);
        Some(Self([high, low, high_of_low, low_of_low]))
    }

    /// The two felts that Cairo passes: the lower 128 bits, then the upper.
    pub fn felts(&self) -> [Felt; 2] {
        let [high, low, high_of_low, low_of_low] = self.0;
        [
            Felt::from(join(high_of_low, low_of_low)),
            Felt::from(join(high, low)),
        ]
    }

    /// The value, if it has at most 128 bits.
    pub fn to_u128(&self) -> Option<u128> {
        let [0, 0, high, low] = self.0 else {
            return None;
        };
        Some(join(high, low))
    }

    /// Appends `0x` and the fewest lower-case digits.
    pub fn write(&self, out: &mut Vec<u8>) {
        write_hex(&self.0, out);
    }
}

impl From<u128> for U256 {
    fn from(value: u128) -> Self {
        let [high, low] = split(value);
        Self([0, 0, high, low])
    }
}

fn parse_decimal(text: &str) -> Option<U256> {
    if text.is_empty() || (text.starts_with('0') && text != "0") {
        return None;
    }
    text.bytes().try_fold(U256::ZERO, |number, byte| {
        let digit = byte.checked_sub(b'0').filter(|digit| *digit < 10)?;
        push_digit(number, digit)
    })
}

/// Ten times the number, plus the digit; `None` beyond 256 bits.
fn push_digit(U256(mut limbs): U256, digit: u8) -> Option<U256> {
    let mut carry = u64::from(digit);
    for limb in limbs.iter_mut().rev() {
        // at most 10 * (2^64 - 1) + 9, far below 2^128
        let product = u128::from(*limb)
            .wrapping_mul(10)
            .wrapping_add(u128::from(carry));
        [carry, *limb] = split(product);
    }
    (carry == 0).then_some(U256(limbs))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MAX: &str =
        "115792089237316195423570985008687907853269984665640564039457584007913129639935";
    const OVER: &str =
        "115792089237316195423570985008687907853269984665640564039457584007913129639936";

    #[test]
    fn a_number_is_decimal_or_hexadecimal() {
        let max = format!("0x{}", "f".repeat(64));
        for (text, expected) in [
            ("0", Some("0x0")),
            ("10", Some("0xa")),
            ("18446744073709551616", Some("0x10000000000000000")),
            ("0x0A", Some("0xa")),
            (MAX, Some(&*max)),
            (&max, Some(&*max)),
            (OVER, None),
            (&format!("{MAX}0"), None),
            (&format!("{max}f"), None),
            ("", None),
            ("0x", None),
            ("007", None),
            ("-1", None),
            ("+1", None),
            ("1.0", None),
            ("1e3", None),
            ("1:", None),
            ("1_000", None),
            (" 1", None),
            ("ff", None),
            ("٣", None),
        ] {
            let written = U256::parse(text).map(|number| {
                let mut out = Vec::new();
                number.write(&mut out);
                String::from_utf8(out).unwrap()
            });
            assert_eq!(written.as_deref(), expected, "{text:?}");
        }
    }

    #[test]
    fn a_half_has_at_most_128_bits() {
        let wide = Felt::parse("0x100000000000000000000000000000000").unwrap();
        assert_eq!(U256::from_felts(wide, Felt::ZERO), None);
        assert_eq!(U256::from_felts(Felt::ZERO, wide), None);
    }

    proptest! {
        #[test]
        fn felts_and_digits_come_back(low: u128, high: u128) {
            let number = U256::from_felts(Felt::from(low), Felt::from(high)).unwrap();
            let [low_felt, high_felt] = number.felts();
            prop_assert_eq!((low_felt.to_u128(), high_felt.to_u128()), (Some(low), Some(high)));
            let mut text = Vec::new();
            number.write(&mut text);
            prop_assert_eq!(U256::parse(str::from_utf8(&text).unwrap()), Some(number));
            prop_assert_eq!(U256::parse(&low.to_string()), Some(U256::from(low)));
        }
    }
}
