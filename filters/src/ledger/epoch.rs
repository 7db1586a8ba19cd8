//! The epoch of the chain that all relays of a store write to.

use crate::window::Window;
use alloc::borrow::ToOwned;
use alloc::string::String;

/// The epoch in force, and another that was reported since a time in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreement {
    /// The epoch in force.
    pub epoch: String,
    /// Another, and since when it was reported.
    pub candidate: Option<(String, i64)>,
}

impl Agreement {
    /// What follows from the report of an epoch: another replaces the one in force once that was
    /// reported for `patience_us`, and the one in force by no process.
    #[must_use]
    pub fn after(last: Option<Self>, reported: &str, now_us: i64, patience_us: i64) -> Self {
        let new = Self { epoch: reported.to_owned(), candidate: None };
        let Some(last) = last.filter(|last| last.epoch != reported) else { return new };
        let patience = Window::new(now_us, patience_us);
        let known = last.candidate.filter(|(candidate, since)| {
            // one that is dated further ahead was dated by a clock that was wrong
            candidate == reported && *since <= patience.until_us()
        });
        let since = known.map_or(now_us, |(_, since)| since.min(now_us));
        if patience.end_us(since) <= now_us {
            return new;
        }
        Self { epoch: last.epoch, candidate: Some((reported.to_owned(), since)) }
    }
}
