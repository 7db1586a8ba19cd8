//! The epoch of the chain that all relays of a store write to.

use crate::window::Window;
use alloc::borrow::ToOwned;
use alloc::string::String;

/// The epoch in force, and a candidate with the time of its first report in microseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Agreement {
    /// The epoch in force.
    pub epoch: String,
    /// The candidate, and when it was first reported.
    pub candidate: Option<(String, i64)>,
}

impl Agreement {
    /// Applies the report of an epoch. Another epoch replaces the one in force once it was reported
    /// for `patience_us` without a report of the one in force.
    #[must_use]
    pub fn after(last: Option<Self>, reported: &str, now_us: i64, patience_us: i64) -> Self {
        let new = Self {
            epoch: reported.to_owned(),
            candidate: None,
        };
        let Some(last) = last.filter(|last| last.epoch != reported) else {
            return new;
        };
        debug_assert!(
            last.candidate
                .as_ref()
                .is_none_or(|(candidate, _)| *candidate != last.epoch),
            "the epoch in force is no candidate"
        );
        let patience = Window::new(now_us, patience_us);
        let known = last.candidate.filter(|(candidate, since)| {
            // a candidate that is dated further ahead was dated by a wrong clock
            candidate == reported && *since <= patience.until_us()
        });
        let since = known.map_or(now_us, |(_, since)| since.min(now_us));
        if patience.end_us(since) <= now_us {
            return new;
        }
        Self {
            epoch: last.epoch,
            candidate: Some((reported.to_owned(), since)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: i64 = 10;

    fn after(last: Option<Agreement>, reported: &str, now_us: i64) -> Option<Agreement> {
        Some(Agreement::after(last, reported, now_us, PATIENCE))
    }

    #[test]
    fn the_first_epoch_is_in_force_at_once() {
        let first = after(None, "a", 0).unwrap();
        assert_eq!(
            first,
            Agreement {
                epoch: "a".into(),
                candidate: None
            }
        );
    }

    #[test]
    fn a_clock_that_was_ahead_prolongs_the_wait_by_one_patience() {
        let in_force = |last: &Option<Agreement>| last.as_ref().unwrap().epoch.clone();
        for ahead in [5, 10, 1_000_000_000] {
            let mut last = after(after(None, "a", 100 + ahead), "b", 100 + ahead);
            last = after(last, "b", 100);
            assert_eq!(in_force(&last), "a", "{ahead} ahead");
            last = after(last, "b", 110);
            assert_eq!(in_force(&last), "b", "{ahead} ahead");
        }
    }

    #[test]
    fn another_epoch_waits_until_no_process_reports_the_old_one() {
        let in_force = |last: &Option<Agreement>| last.as_ref().unwrap().epoch.clone();
        let mut last = after(after(None, "a", 0), "b", 100);
        assert_eq!(in_force(&last), "a");
        last = after(last, "b", 109);
        assert_eq!(in_force(&last), "a", "not yet");
        last = after(last, "a", 109);
        last = after(last, "b", 111);
        assert_eq!(
            in_force(&last),
            "a",
            "a report of the old one begins the wait again"
        );
        last = after(last, "c", 120);
        last = after(last, "b", 121);
        assert_eq!(in_force(&last), "a", "so does a report of a third one");
        last = after(last, "b", 131);
        assert_eq!(in_force(&last), "b");
        assert_eq!(in_force(&after(last, "a", 132)), "b");
    }
}
