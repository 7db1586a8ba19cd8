//! The knowledge of one URL: how far it is, whether it may serve, and why not in words.
//!
//! Health, head and chain are observed apart; here is the one place that puts them together.

use super::head_age::{HeadTime, Stalled};
use super::health::Fault;
use super::members::{GroupState, LeftOut};
use alloc::borrow::ToOwned as _;
use alloc::string::String;
use core::time::Duration;

/// The observations of one URL.
#[derive(Clone, Debug)]
pub struct UrlFacts<'a> {
    /// Its index in the configuration.
    pub url: usize,
    /// The state of all URLs; `None` if there is only one.
    pub group: Option<&'a GroupState>,
    /// Why its answers are not valid, if they are not.
    pub fault: Option<Fault>,
    /// Its last failure, in words.
    pub failure: Option<String>,
    /// The newest block that it has shown, with its time.
    pub head_time: Option<HeadTime>,
}

/// A URL that gives no valid answers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlFault {
    /// Its last failure, in words.
    pub cause: String,
    /// Whether it has given no valid answer at all since it failed first.
    pub is_total: bool,
}

/// The knowledge of one URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlView {
    /// The newest block that it is known to have; always `None` with a single URL.
    pub head: Option<u64>,
    /// The newest block that it has shown, with its time.
    pub head_time: Option<HeadTime>,
    /// Why the URL is left out, if it is; a single one never is.
    pub left_out: Option<LeftOut>,
    /// Why it is not used, in words.
    pub cause: Option<String>,
    /// Why its answers are not valid, if it fails; also of a single URL.
    pub fault: Option<UrlFault>,
}

impl UrlView {
    /// Concludes from what was observed. `answers` returns whether calls to a URL are answered.
    pub fn of(facts: UrlFacts<'_>, answers: impl Fn(usize) -> bool) -> Self {
        let UrlFacts { url, failure, .. } = facts;
        let fault = facts.fault.map(|fault| UrlFault {
            cause: failure.unwrap_or_else(|| fault.class.name().to_owned()),
            is_total: fault.is_total,
        });
        let alone = Self {
            head: None,
            head_time: facts.head_time,
            left_out: None,
            cause: None,
            fault,
        };
        let Some(group) = facts.group else {
            return alone;
        };
        let Some(member) = group.members.get(url) else {
            return alone;
        };
        let failing = alone.fault.as_ref();
        Self {
            head: member.head,
            left_out: match failing {
                Some(_) => member.left_out.or(Some(LeftOut::Failing)),
                None => member.left_out,
            },
            cause: match failing {
                Some(fault) => Some(fault.cause.clone()),
                None => group.cause(url, answers),
            },
            ..alone
        }
    }

    /// How its newest block is too old at `now`, in seconds since 1970. `None` if it is not, or if
    /// the URL is not used anyway.
    pub fn stalled(&self, now: u64, max_age: Duration) -> Option<Stalled> {
        if self.left_out.is_some() || self.fault.is_some() {
            return None;
        }
        self.head_time?.stalled(now, max_age)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::{ConnectionId, FailureClass, NodeMode, PollResult};

    fn polled(head: u64) -> Option<PollResult> {
        Some(PollResult {
            head,
            version: None,
            keeps_history: false,
            block: None,
            connection: ConnectionId(head),
        })
    }

    const FAULT: Fault = Fault {
        class: FailureClass::Status,
        is_total: true,
    };

    #[test]
    fn a_url_says_why_it_does_not_serve() {
        let mut group = GroupState::new(2, NodeMode::Failover, 8);
        group.end_round(&[polled(20), polled(5)]);
        let lagging = "lagging: its head is 5, that of others 20";
        for (url, fault, failure, left_out, cause) in [
            (0, None, None, None, None),
            (0, None, Some("an old one"), None, None),
            (0, Some(FAULT), None, Some(LeftOut::Failing), Some("status")),
            (
                0,
                Some(FAULT),
                Some("502"),
                Some(LeftOut::Failing),
                Some("502"),
            ),
            (1, None, None, Some(LeftOut::Lagging), Some(lagging)),
            (
                1,
                Some(FAULT),
                Some("502"),
                Some(LeftOut::Lagging),
                Some("502"),
            ),
        ] {
            let mut facts = UrlFacts {
                url,
                group: Some(&group),
                fault,
                failure: failure.map(str::to_owned),
                head_time: None,
            };
            let found = UrlView::of(facts.clone(), |_| true);
            assert_eq!(found.left_out, left_out, "{url} {failure:?}");
            assert_eq!(found.cause.as_deref(), cause, "{url} {failure:?}");
            facts.group = None;
            let alone = UrlView::of(facts, |_| true);
            assert_eq!(
                (alone.head, alone.left_out, alone.cause),
                (None, None, None)
            );
            assert_eq!(alone.fault, found.fault, "it fails all the same");
        }
    }

    #[test]
    fn only_a_url_in_use_stands_still() {
        let old = Some(HeadTime {
            number: 4,
            timestamp: 100,
        });
        let limit = Duration::from_secs(60);
        for (fault, head_time, is_stalled) in [
            (None, old, true),
            (None, None, false),
            (Some(FAULT), old, false),
        ] {
            let facts = UrlFacts {
                url: 0,
                group: None,
                fault,
                failure: None,
                head_time,
            };
            let view = UrlView::of(facts, |_| true);
            assert_eq!(view.stalled(1_000, limit).is_some(), is_stalled, "{view:?}");
        }
    }
}
