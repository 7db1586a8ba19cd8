//! Chance as an argument of pure decisions.

use core::num::NonZeroU32;

/// A number from 0 to 1, exclusive, in steps of 2^-32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance(pub u32);

impl Chance {
    /// The number in these bytes, in network order.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 4]) -> Self {
        Self(u32::from_be_bytes(bytes))
    }

    /// Whether this is the one in `many` that is chosen.
    #[must_use]
    pub fn is_one_in(self, many: NonZeroU32) -> bool {
        self.of(u64::from(many.get())) == 0
    }

    /// This part of `whole`.
    pub(crate) fn of(self, whole: u64) -> u64 {
        let part = u128::from(whole).saturating_mul(u128::from(self.0)) >> 32;
        u64::try_from(part).unwrap_or(whole)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_in_many_is_chosen() {
        for (many, chosen) in [(1, 65_536), (2, 32_768), (100, 656), (65_536, 1)] {
            let many = NonZeroU32::new(many).expect("not zero");
            let all = (0..65_536u32).map(|part| Chance(part << 16));
            let found = all.filter(|chance| chance.is_one_in(many)).count();
            assert_eq!(
                found, chosen,
                "of 65,536 evenly spread chances, 1 in {many}"
            );
        }
    }
}
