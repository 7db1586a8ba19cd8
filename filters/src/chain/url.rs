//! The knowledge of one URL, for people and metrics: how far it is, and why it is not used, in
//! words. [`NodeState::view`](super::state::NodeState::view) concludes it.

use super::head_age::{HeadTime, Stalled};
use super::members::LeftOut;
use alloc::string::String;
use core::time::Duration;

/// A URL that gives no valid answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlFault {
    /// Its last failure, in words.
    pub cause: String,
    /// Whether it has not returned a valid answer since its first failure.
    pub is_total: bool,
}

/// The knowledge of one URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlView {
    /// The newest block that it is known to have; always `None` with a single URL.
    pub head: Option<u64>,
    /// The newest block that it has shown, with its time.
    pub head_time: Option<HeadTime>,
    /// Why the URL is left out because of its blocks or its answers, if it is; a single one never
    /// is.
    pub left_out: Option<LeftOut>,
    /// Why it is not used, for people; another chain is a reason, too.
    pub cause: Option<String>,
    /// Why its answers are not valid, if it fails; also of a single URL.
    pub fault: Option<UrlFault>,
}

impl UrlView {
    /// How its newest block is too old at `now`, in seconds since 1970. `None` if it is not, or if
    /// the URL is not used anyway.
    pub fn stalled(&self, now: u64, max_age: Duration) -> Option<Stalled> {
        if self.left_out.is_some() || self.fault.is_some() {
            return None;
        }
        self.head_time?.stalled(now, max_age)
    }
}
