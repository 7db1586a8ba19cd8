//! How the differences between admission times are written as bits.
//!
//! In: a difference in milliseconds. Out: up to 64 bits, and back. It is a Rice code: the quotient
//! by 2^shift in unary (that many zeros, then a one), then the remainder in `shift` bits. In a
//! window the differences add up to less than 60,000, so the quotients can't add up to much.
//!
//! It never rounds. Next: `window`, which writes a client's times with it.

#![expect(
    clippy::arithmetic_side_effects,
    reason = "quotients are below 48, shifts at most 15, lengths at most 64"
)]

use super::Quota;

/// The longest difference in a window.
pub(super) const LONGEST: u32 = 59_999;

/// From this quotient on a difference is written plainly, behind as many zeros: no code is longer
/// than 64 bits, and a rare request under a large quota doesn't cost kilobytes of unary.
const ESCAPE: u32 = 48;

/// The bits of a plain difference: [`LONGEST`] fits.
const PLAIN: u32 = 16;

/// The code for one quota.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Code {
    shift: u32,
}

impl Code {
    /// The code that is shortest for a full window of evenly spread times.
    ///
    /// A full window has `quota - 1` differences of `shift + 1` bits and a quotient each. The
    /// quotients add up to `59,999 >> shift` at most. An escape takes up to `15 - shift` bits more
    /// than the quotient's unary, and comes once in 48 units of quotient at most.
    ///
    /// So 180 requests take 179 * 9 + 234 + 4 * 7 = 1,873 bits, which fit in four blocks. A full
    /// window of the largest quota takes hardly more than one bit for each request.
    pub(super) fn for_quota(quota: Quota) -> Self {
        let mean = (LONGEST + 1).checked_div(quota.requests());
        Self { shift: mean.and_then(u32::checked_ilog2).unwrap_or(0) }
    }

    /// The bits of a difference, the first one lowest, and how many they are: 1 to 64.
    pub(super) fn encode(self, difference: u32) -> (u64, u32) {
        let quotient = difference >> self.shift;
        if quotient >= ESCAPE {
            return (u64::from(difference) << ESCAPE, ESCAPE + PLAIN);
        }
        let remainder = u64::from(difference) & self.remainder_bits();
        ((remainder << 1 | 1) << quotient, quotient + 1 + self.shift)
    }

    /// The difference that these bits begin with, and the length of its code.
    pub(super) fn decode(self, bits: u64) -> (u32, u32) {
        let quotient = bits.trailing_zeros();
        if quotient >= ESCAPE {
            return (narrow(bits >> ESCAPE), ESCAPE + PLAIN);
        }
        let remainder = narrow((bits >> quotient >> 1) & self.remainder_bits());
        (quotient << self.shift | remainder, quotient + 1 + self.shift)
    }

    fn remainder_bits(self) -> u64 {
        (1 << self.shift) - 1
    }

    /// The bound that is worked out at [`Code::for_quota`].
    #[cfg(test)]
    pub(super) fn most_bits(self, quota: Quota) -> u32 {
        let quotients = LONGEST >> self.shift;
        let escapes = quotients / ESCAPE * (PLAIN - 1 - self.shift);
        (quota.requests() - 1) * (self.shift + 1) + quotients + escapes
    }
}

/// At most 16 bits, in each place where it is called.
fn narrow(bits: u64) -> u32 {
    u32::try_from(bits).unwrap_or(LONGEST)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_difference_is_read_back_under_every_code() {
        for shift in 0..=15 {
            let code = Code { shift };
            for difference in 0..=LONGEST {
                let (bits, length) = code.encode(difference);
                assert!((1..=64).contains(&length), "{difference} at {shift}: {length} bits");
                let followed_by_ones = bits | u64::MAX.checked_shl(length).unwrap_or(0);
                for word in [bits, followed_by_ones] {
                    assert_eq!(code.decode(word), (difference, length), "at shift {shift}");
                }
            }
        }
    }

    #[test]
    fn a_window_s_bits_are_bounded_by_its_quota() {
        let cases = [(1, 15, 1), (180, 8, 1_873), (60_000, 0, 138_733)];
        for (requests, shift, bits) in cases {
            let quota = Quota::per_minute(requests).unwrap();
            let code = Code::for_quota(quota);
            assert_eq!((code.shift, code.most_bits(quota)), (shift, bits), "{requests} a minute");
        }
    }
}
