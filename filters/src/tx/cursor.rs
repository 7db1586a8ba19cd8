//! A cursor over calldata that knows when it is used up.
//!
//! Whoever reads with it takes felts from the front and, at the end, says so: felts that are left
//! over are as wrong as felts that are missing, since another reader might make something of them.

use crate::felt::Felt;

/// What is left of a list of felts.
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

    /// The next felts, as many as `length` says.
    pub(super) fn sub(&mut self, length: Felt) -> Option<&'a [Felt]> {
        let length = usize::try_from(length.to_u64()?).ok()?;
        let (felts, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(felts)
    }

    /// Nothing, if nothing is left.
    pub(super) fn finish(self) -> Option<()> {
        self.0.is_empty().then_some(())
    }
}
