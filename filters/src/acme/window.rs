//! The renewal times that an authority suggests: ACME Renewal Information, RFC 9773.

use super::schedule::Window;
use alloc::string::String;

/// Shortest and longest time between polls, in seconds: RFC 9773, section 4.3.2.
const SHORTEST: u64 = 60;
const LONGEST: u64 = 24 * 3_600;
/// Seconds to the next poll after no answer, or if the authority has no such information.
const WITHOUT_ANSWER: u64 = 6 * 3_600;

/// The last answer for the certificate in use.
#[derive(Clone, Debug, Default)]
pub(super) struct Known {
    /// Its identifier at its authority.
    certificate: String,
    window: Option<Window>,
    ask_at: u64,
}

impl Known {
    /// The known window of this certificate; `None` if the authority must be polled now.
    pub(super) fn fresh(&self, certificate: &str, now: u64) -> Option<Option<Window>> {
        let is_fresh = now < self.ask_at && self.ask_at <= now.saturating_add(LONGEST);
        if is_fresh && self.certificate == certificate {
            Some(self.window)
        } else {
            None
        }
    }

    /// Stores an answer: the window, and the seconds to the next poll. Without an answer, the last
    /// window of this certificate remains.
    pub(super) fn learn(&mut self, certificate: &str, answer: Option<(Window, u64)>, now: u64) {
        let pause = match answer {
            Some((window, after)) => {
                self.window = Some(window);
                after.clamp(SHORTEST, LONGEST)
            }
            None => {
                if self.certificate != certificate {
                    self.window = None;
                }
                WITHOUT_ANSWER
            }
        };
        self.certificate = certificate.into();
        self.ask_at = now.saturating_add(pause);
    }

    /// The last window of this certificate.
    pub(super) fn of(&self, certificate: &str) -> Option<Window> {
        if self.certificate == certificate {
            self.window
        } else {
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000;
    const WINDOW: Window = Window {
        start: NOW,
        end: NOW + 10,
    };

    #[test]
    fn an_answer_is_used_until_the_next_one() {
        let mut known = Known::default();
        assert_eq!(known.fresh("one", NOW), None, "it is to be asked");
        known.learn("one", Some((WINDOW, 600)), NOW);
        assert_eq!(known.fresh("one", NOW + 599), Some(Some(WINDOW)));
        assert_eq!(known.fresh("one", NOW + 600), None, "asked again");
        assert_eq!(known.fresh("one", 0), None, "the clock was set back");
        assert_eq!(known.fresh("other", NOW), None, "another certificate");
        known.learn("one", None, NOW + 600);
        assert_eq!(known.of("one"), Some(WINDOW), "silence changes nothing");
        known.learn("other", None, NOW);
        assert_eq!(known.of("other"), None);
    }

    #[test]
    fn authorities_are_not_asked_more_often_than_each_minute() {
        for (after, last) in [(0, 59), (60, 59), (u64::MAX, 86_399)] {
            let mut known = Known::default();
            known.learn("one", Some((WINDOW, after)), NOW);
            let fresh = known.fresh("one", NOW + last);
            assert_eq!(fresh, Some(Some(WINDOW)), "{after}");
            assert_eq!(known.fresh("one", NOW + last + 1), None, "{after}");
        }
    }
}
