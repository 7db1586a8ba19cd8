//! Whether a node stands still: the age of its newest block.

use core::fmt;
use core::time::Duration;

/// The newest accepted block that a URL of the node has shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadTime {
    /// Its number.
    pub number: u64,
    /// Its time by the chain, in seconds since 1970.
    pub timestamp: u64,
}

/// The newest block is too old.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stalled {
    number: u64,
    /// Its age in seconds.
    age: u64,
}

impl HeadTime {
    /// How the newest block is too old at `now`, in seconds since 1970; `None` while its age is at
    /// most `max_age`, or if its time is later than `now`.
    pub fn stalled(self, now: u64, max_age: Duration) -> Option<Stalled> {
        let age = now.saturating_sub(self.timestamp);
        if age <= max_age.as_secs() {
            return None;
        }
        Some(Stalled {
            number: self.number,
            age,
        })
    }
}

impl fmt::Display for Stalled {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, age } = self;
        write!(f, "its newest block, {number}, is ")?;
        match age {
            0..120 => write!(f, "{age} s old"),
            120..7_200 => write!(f, "{} min old", age.div_euclid(60)),
            7_200..172_800 => write!(f, "{} h old", age.div_euclid(3_600)),
            _ => write!(f, "{} days old", age.div_euclid(86_400)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_is_too_old_after_the_limit() {
        let head = HeadTime {
            number: 14,
            timestamp: 1_000,
        };
        let max_age = Duration::from_secs(60);
        for (now, expected, why) in [
            (900, None, "the clock of this machine is behind"),
            (1_000, None, "just mined"),
            (1_060, None, "at the limit"),
            (1_061, Some("61 s old"), "above it"),
            (1_660, Some("11 min old"), "minutes"),
            (11_800, Some("3 h old"), "hours"),
            (260_200, Some("3 days old"), "days"),
        ] {
            let found = head.stalled(now, max_age);
            let expected = expected.map(|age| format!("its newest block, 14, is {age}"));
            assert_eq!(found.map(|stalled| stalled.to_string()), expected, "{why}");
        }
    }
}
