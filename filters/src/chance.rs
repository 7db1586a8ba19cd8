//! Chance as an argument of pure decisions.

/// A number from 0 to 1, exclusive, in steps of 2^-32.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Chance(pub u32);

impl Chance {
    /// The number in these bytes, in network order.
    #[must_use]
    pub const fn from_bytes(bytes: [u8; 4]) -> Self {
        Self(u32::from_be_bytes(bytes))
    }

    /// This part of `whole`.
    pub(crate) fn of(self, whole: u64) -> u64 {
        let part = u128::from(whole).saturating_mul(u128::from(self.0)) >> 32;
        u64::try_from(part).unwrap_or(whole)
    }
}
