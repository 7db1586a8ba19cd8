//! Which podcast feeds a WebSub hub is pinged about, and when. Pure: time and chance are arguments.
//!
//! In: the feeds whose episodes changed within the last hour, and the hub's answers. Out: the feeds
//! that are due, and what follows from an answer. Nothing is stored: after a restart the changes of
//! the last hour are announced once more, and each instance of a fleet announces them. A hub
//! fetches the feed and finds nothing new, so a repeated ping is harmless. Times are microseconds
//! since 1970.

use crate::chance::Chance;
use crate::named::named;
use crate::post::{Answer, Delays};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;

const SECOND: i64 = 1_000_000;
/// One hour: a row that is stored later than this after its times is not announced.
pub const LOOK_BACK_US: i64 = 3_600 * SECOND;
/// Feeds that are remembered: those of an hour.
pub const MAX_FEEDS: usize = 10_000;
/// 15 s between a change and its ping: the instances cache a rendered feed for 10 s, and the hub
/// must not fetch the old one.
const SETTLING: i64 = 15 * SECOND;
/// Pings in a row, before changes are read again.
const MAX_DUE: usize = 100;
/// Pings about one change. The last is about half an hour after the first.
const MAX_ATTEMPTS: u32 = 8;
/// The delay after the first failure is doubled after each further one.
const DELAYS: Delays = Delays {
    first_us: 15 * SECOND.unsigned_abs(),
    longest_us: u64::MAX,
};

named! {
    /// The result of a ping.
    pub enum PingOutcome {
        /// The hub fetches the feed.
        Accepted = "accepted",
        /// The ping is repeated later.
        Failed = "failed",
        /// The ping is not repeated: the hub refused it, or failed too often.
        GivenUp = "given_up",
    }
}

/// The feeds of an hour, by DID.
#[derive(Debug, Default)]
pub struct Announcements(BTreeMap<String, Feed>);

#[derive(Debug)]
struct Feed {
    changed_us: i64,
    /// The next ping; `None` once the change was announced, or given up.
    ping: Option<Ping>,
}

#[derive(Clone, Copy, Debug)]
struct Ping {
    due_us: i64,
    failed: u32,
}

impl Announcements {
    /// Learns which feeds changed within the last hour, each with its last change. Forgets what is
    /// older.
    pub fn observe(&mut self, changed: impl IntoIterator<Item = (String, i64)>, now_us: i64) {
        let oldest = now_us.saturating_sub(LOOK_BACK_US);
        self.0
            .retain(|_, feed| feed.ping.is_some() || feed.changed_us > oldest);
        for (did, changed_us) in changed {
            let known = self.0.get(&did);
            if known.is_some_and(|feed| feed.changed_us >= changed_us) {
                continue;
            }
            if known.is_none() && self.0.len() >= MAX_FEEDS {
                continue;
            }
            let ping = Ping {
                due_us: now_us.saturating_add(SETTLING),
                failed: 0,
            };
            let feed = Feed {
                changed_us,
                ping: Some(ping),
            };
            self.0.insert(did, feed);
        }
    }

    /// The feeds to ping about now, those that wait longest first.
    pub fn due(&self, now_us: i64) -> Vec<String> {
        let waiting = self.0.iter().filter_map(|(did, feed)| {
            let due_us = feed.ping?.due_us;
            if due_us <= now_us {
                Some((due_us, did))
            } else {
                None
            }
        });
        let mut due: Vec<_> = waiting.collect();
        due.sort_unstable();
        let due = due.into_iter().take(MAX_DUE);
        due.map(|(_, did)| did.clone()).collect()
    }

    /// Decides what follows from the hub's answer to a ping about this feed.
    pub fn conclude(
        &mut self,
        did: &str,
        answer: Answer,
        now_us: i64,
        chance: Chance,
    ) -> PingOutcome {
        let outcome = match answer {
            Answer::Status(200..=299) => PingOutcome::Accepted,
            Answer::Status(408 | 429 | 500..) | Answer::None => PingOutcome::Failed,
            Answer::Status(_) => PingOutcome::GivenUp,
        };
        let Some(feed) = self.0.get_mut(did) else {
            return outcome;
        };
        let failed = feed.ping.map_or(0, |ping| ping.failed).saturating_add(1);
        if outcome != PingOutcome::Failed {
            feed.ping = None;
            return outcome;
        }
        if failed >= MAX_ATTEMPTS {
            feed.ping = None;
            return PingOutcome::GivenUp;
        }
        feed.ping = Some(Ping {
            due_us: now_us.saturating_add(DELAYS.after(failed, chance)),
            failed,
        });
        outcome
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::borrow::ToOwned as _;
    use alloc::format;
    use proptest::prelude::*;

    const NOW: i64 = 1_800_000_000 * SECOND;
    const HALF: Chance = Chance(1 << 31);

    /// Announcements that know that `did` changed.
    fn changed(did: &str, changed_us: i64) -> Announcements {
        let mut all = Announcements::default();
        all.observe([(did.to_owned(), changed_us)], NOW);
        all
    }

    #[test]
    fn a_change_is_announced_once() {
        let mut all = changed("a", NOW - 5);
        assert!(all.due(NOW).is_empty(), "the old feed is still cached");
        let later = NOW + SETTLING;
        assert_eq!(all.due(later), ["a"]);
        let accepted = all.conclude("a", Answer::Status(202), later, HALF);
        assert_eq!(accepted, PingOutcome::Accepted);
        // the hour is read again and again
        all.observe([("a".to_owned(), NOW - 5)], later);
        assert!(all.due(later + LOOK_BACK_US).is_empty());
        all.observe([("a".to_owned(), later)], later);
        assert_eq!(all.due(later + SETTLING), ["a"], "it changed again");
    }

    #[test]
    fn only_what_may_pass_is_retried() {
        for (answer, outcome) in [
            (Answer::Status(200), PingOutcome::Accepted),
            (Answer::Status(204), PingOutcome::Accepted),
            (Answer::Status(302), PingOutcome::GivenUp),
            (Answer::Status(400), PingOutcome::GivenUp),
            (Answer::Status(404), PingOutcome::GivenUp),
            (Answer::Status(408), PingOutcome::Failed),
            (Answer::Status(429), PingOutcome::Failed),
            (Answer::Status(503), PingOutcome::Failed),
            (Answer::None, PingOutcome::Failed),
        ] {
            let mut all = changed("a", NOW);
            let later = NOW + SETTLING;
            assert_eq!(
                all.conclude("a", answer, later, HALF),
                outcome,
                "{answer:?}"
            );
            assert!(all.due(later).is_empty(), "{answer:?}: not at once");
            let is_due = !all.due(NOW + LOOK_BACK_US).is_empty();
            assert_eq!(is_due, outcome == PingOutcome::Failed, "{answer:?}");
        }
    }

    #[test]
    fn a_silent_hub_is_given_up() {
        for chance in [Chance(0), HALF, Chance(u32::MAX)] {
            let mut all = changed("a", NOW);
            let mut now = NOW + SETTLING;
            let mut pings = 0;
            loop {
                assert_eq!(all.due(now), ["a"]);
                pings += 1;
                if all.conclude("a", Answer::None, now, chance) == PingOutcome::GivenUp {
                    break;
                }
                let feed = &all.0["a"];
                now = feed.ping.expect("it is retried").due_us;
            }
            assert_eq!(pings, MAX_ATTEMPTS);
            let minutes = (now - NOW) / 60 / SECOND;
            assert!((23..=41).contains(&minutes), "{minutes} minutes");
        }
    }

    #[test]
    fn what_waits_longest_is_first() {
        let mut all = changed("b", NOW);
        all.observe([("a".to_owned(), NOW)], NOW + 1);
        assert_eq!(all.due(NOW + SETTLING + 1), ["b", "a"]);
        let many = (0..2 * MAX_FEEDS).map(|number| (format!("c{number}"), NOW));
        all.observe(many, NOW);
        assert_eq!(all.0.len(), MAX_FEEDS, "memory is bounded");
        assert_eq!(all.due(NOW + LOOK_BACK_US).len(), MAX_DUE);
    }

    proptest! {
        /// Whatever the hub answers, each change is announced or given up, and then forgotten.
        #[test]
        fn nothing_waits_for_ever(statuses in prop::collection::vec(0_u16..=599, 1..40)) {
            let mut all = changed("a", NOW);
            let mut now = NOW;
            for status in statuses.iter().cycle().take(200) {
                now += 60 * SECOND;
                for did in all.due(now) {
                    all.conclude(&did, Answer::Status(*status), now, HALF);
                }
            }
            prop_assert!(all.due(i64::MAX).is_empty());
            all.observe([], now);
            prop_assert!(all.0.is_empty());
        }
    }
}
