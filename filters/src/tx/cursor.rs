//! A cursor over calldata that fails on leftovers.
//!
//! Felts are taken from the front, and [`Cursor::finish`] fails if any are left: leftover felts are
//! as wrong as missing ones, since another parser might read them.

use crate::felt::Felt;

/// The rest of a list of felts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cursor<'a>(&'a [Felt]);

impl<'a> Cursor<'a> {
    pub(super) fn new(felts: &'a [Felt]) -> Self {
        Self(felts)
    }

    /// The next felt.
    pub(super) fn take(&mut self) -> Option<Felt> {
        let (first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(*first)
    }

    /// The next `length` felts.
    pub(super) fn sub(&mut self, length: Felt) -> Option<&'a [Felt]> {
        let length = usize::try_from(length.to_u64()?).ok()?;
        let (felts, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(felts)
    }

    /// Checks that no felts are left; `None` if any are.
    pub(super) fn finish(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
