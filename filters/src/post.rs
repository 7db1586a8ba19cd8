//! A document that is sent to another server: the server's answer, and the delay before the
//! document is sent again.

use crate::chance::Chance;

/// A server's answer to a document.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// A response with this status.
    Status(u16),
    /// No response.
    None,
}

/// Delays between attempts, in microseconds: the first is doubled up to the longest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Delays {
    pub(crate) first_us: u64,
    pub(crate) longest_us: u64,
}

impl Delays {
    /// The delay after this many failures: 75 to 125 % of it, so that senders do not retry at once.
    pub(crate) fn after(self, failed: u32, chance: Chance) -> i64 {
        let doublings = failed.saturating_sub(1).min(32);
        let doubled = self.first_us.saturating_mul(1 << doublings);
        let delay = doubled.min(self.longest_us);
        let delay = delay
            .saturating_sub(delay / 4)
            .saturating_add(chance.of(delay / 2));
        i64::try_from(delay).unwrap_or(i64::MAX)
    }
}
