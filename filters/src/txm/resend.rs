//! How often an open transaction is sent again unasked. Pure: time is an argument.
//!
//! A node may answer for ever without a decision, or keep a transaction without including it. Each
//! such answer doubles the pause. A node that is silent costs itself nothing, and is back at some
//! time: then the shortest pause applies, as after each change of the intent.

use core::time::Duration;

/// The shortest pause, and the longest.
pub(super) const SHORTEST: Duration = Duration::from_secs(10);
pub(super) const LONGEST: Duration = Duration::from_secs(300);
/// How long no URL shows a sent transaction before its nonce may be used for another.
pub(super) const ABANDONED: Duration = Duration::from_secs(30);

/// How long a write about which the node decides nothing has the same transaction, if this many of
/// its nonce are in doubt: 30 s for the first, then twice as long each time, up to the longest
/// pause. Otherwise a node that answers nothing to anyone would fill the journal.
pub(super) fn until_anew(in_doubt: usize) -> Duration {
    let times = u32::try_from(in_doubt.saturating_sub(1)).unwrap_or(u32::MAX);
    ABANDONED
        .saturating_mul(2_u32.saturating_pow(times))
        .min(LONGEST)
}

/// The last time that an open transaction was sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Resent {
    /// When the node had it, by a monotonic clock.
    at: Duration,
    /// How long nothing is sent after that.
    pause: Duration,
    /// When the intent had last changed, in microseconds since 1970.
    changed_us: i64,
    /// Whether the node answered, which decided nothing.
    is_answered: bool,
}

impl Resent {
    /// Sends the transaction of an intent that last changed at `changed_us` again at `now`; `None`
    /// if it is not time yet.
    pub(super) fn again(last: Option<Self>, changed_us: i64, now: Duration) -> Option<Self> {
        let first = Self {
            at: now,
            pause: SHORTEST,
            changed_us,
            is_answered: false,
        };
        let Some(last) = last else {
            return Some(first);
        };
        let grows = last.is_answered && last.changed_us == changed_us;
        let pause = if grows { last.pause } else { SHORTEST };
        if now.saturating_sub(last.at) < pause {
            return None;
        }
        if !grows {
            return Some(first);
        }
        Some(Self {
            pause: pause.saturating_mul(2).min(LONGEST),
            ..first
        })
    }

    /// Records an attempt to send it.
    pub(super) fn sent(&mut self, now: Duration) {
        debug_assert!(now >= self.at, "the clock is monotonic");
        self.at = now;
    }

    /// The node has answered.
    pub(super) fn answered(&mut self) {
        self.is_answered = true;
    }

    /// A node has shown the transaction, or its nonce as used: if that is rolled back, the shortest
    /// pause applies.
    pub(super) fn moved(&mut self) {
        self.is_answered = false;
    }

    /// Whether nothing follows from it any longer: one that is due after the longest pause is not
    /// forgotten before it is sent again, which would begin with the shortest.
    pub(super) fn is_past(&self, now: Duration) -> bool {
        now.saturating_sub(self.at) >= LONGEST.saturating_mul(2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    /// The seconds at which a transaction is sent again within a while, with a poll each second.
    fn times(
        until: u64,
        is_answered: impl Fn(u64) -> bool,
        changed_us: impl Fn(u64) -> i64,
    ) -> Vec<u64> {
        let mut last = None;
        let is_sent = |second: &u64| {
            let now = Duration::from_secs(*second);
            let Some(mut sent) = Resent::again(last, changed_us(*second), now) else {
                return false;
            };
            if is_answered(*second) {
                sent.answered();
            }
            last = Some(sent);
            true
        };
        (0..until).filter(is_sent).collect()
    }

    #[test]
    fn each_answer_without_a_decision_doubles_the_pause() {
        let found = times(1_600, |_| true, |_| 0);
        assert_eq!(found, [0, 10, 30, 70, 150, 310, 610, 910, 1_210, 1_510]);
    }

    #[test]
    fn a_write_without_a_decision_is_signed_anew_ever_less_often() {
        let seconds = [0, 1, 2, 3, 4, 5, usize::MAX].map(|it| until_anew(it).as_secs());
        assert_eq!(seconds, [30, 30, 60, 120, 240, 300, 300]);
    }

    #[test]
    fn a_silent_node_is_tried_every_ten_seconds() {
        assert_eq!(times(45, |_| false, |_| 0), [0, 10, 20, 30, 40]);
        let found = times(200, |second| second < 100, |_| 0);
        assert_eq!(
            found,
            [0, 10, 30, 70, 150, 160, 170, 180, 190],
            "it was answered until 100"
        );
    }

    #[test]
    fn one_that_was_shown_is_sent_again_after_the_shortest_pause() {
        let second = Duration::from_secs;
        let sent = |last, at| Resent::again(last, 0, second(at));
        let mut first = sent(None, 0).expect("it is the first time");
        first.answered();
        let mut last = sent(Some(first), 10).expect("it is time");
        last.answered();
        assert_eq!(sent(Some(last), 20), None, "the pause has grown");
        last.moved();
        assert!(sent(Some(last), 20).is_some());
    }

    #[test]
    fn a_change_of_the_intent_begins_with_the_shortest_pause() {
        let changed = |second| if second < 200 { 0 } else { 1 };
        let found = times(300, |_| true, changed);
        assert_eq!(found, [0, 10, 30, 70, 150, 200, 210, 230, 270]);
    }

    #[test]
    fn a_pause_begins_when_the_node_had_it() {
        let mut sent = Resent::again(None, 0, Duration::ZERO).expect("it is the first time");
        sent.sent(Duration::from_secs(5));
        let again = [14, 15].map(|now| Resent::again(Some(sent), 0, Duration::from_secs(now)));
        assert_eq!(again.map(|it| it.is_some()), [false, true]);
    }

    #[test]
    fn it_is_forgotten_after_twice_the_longest_pause() {
        let sent = Resent::again(None, 0, Duration::ZERO).expect("it is the first time");
        let due = [LONGEST, LONGEST * 2 - Duration::from_secs(1), LONGEST * 2];
        assert_eq!(due.map(|now| sent.is_past(now)), [false, false, true]);
    }
}
