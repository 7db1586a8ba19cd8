//! When a second URL is tried because the first is slow.
//!
//! The bound follows the recent latencies of the URL, as a retransmission timeout follows the round
//! trips (RFC 6298), and a budget limits how many calls cost double.

use core::time::Duration;

/// The longest wait for a URL before the read is sent to a second one.
pub const SLOW: Duration = Duration::from_secs(1);
/// The shortest: below it, a second call costs more than it saves.
const SHORTEST: Duration = Duration::from_millis(50);
/// Calls that pay for one more.
const PRICE: u16 = 20;
/// Credit for ten calls: a burst of slow ones may be spared at once.
const MAX_CREDIT: u16 = 200;

/// The recent latencies of a URL, as a mean and its deviation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency(Option<Estimate>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Estimate {
    mean: Duration,
    deviation: Duration,
}

impl Latency {
    /// Records how long an answer took.
    pub fn note(&mut self, took: Duration) {
        self.0 = Some(match self.0 {
            None => Estimate {
                mean: took,
                deviation: average(Duration::ZERO, 1, took),
            },
            Some(Estimate { mean, deviation }) => Estimate {
                mean: average(mean, 7, took),
                deviation: average(deviation, 3, mean.abs_diff(took)),
            },
        });
    }

    /// How long to wait for an answer before the read is sent to a second URL.
    pub fn bound(self) -> Duration {
        let Some(Estimate { mean, deviation }) = self.0 else {
            return SLOW;
        };
        let bound = mean.saturating_add(deviation.saturating_mul(4));
        bound.clamp(SHORTEST, SLOW)
    }
}

/// The average of a newest value and earlier ones, which count this often.
fn average(earlier: Duration, count: u32, newest: Duration) -> Duration {
    let sum = earlier.saturating_mul(count).saturating_add(newest);
    sum.checked_div(count.saturating_add(1)).unwrap_or_default()
}

/// The calls that may cost double: one in twenty.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HedgeBudget(u16);

impl HedgeBudget {
    /// Records a call.
    pub fn earn(&mut self) {
        self.0 = self.0.saturating_add(1).min(MAX_CREDIT);
    }

    /// Pays for a second call. Returns false if there is no credit.
    pub fn pay(&mut self) -> bool {
        debug_assert!(self.0 <= MAX_CREDIT, "credit is bounded");
        let left = self.0.checked_sub(PRICE);
        self.0 = left.unwrap_or(self.0);
        left.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_follows_recent_latencies() {
        let mut latency = Latency::default();
        assert_eq!(latency.bound(), SLOW, "nothing is known");
        (0..100).for_each(|_| latency.note(Duration::from_millis(2)));
        assert_eq!(latency.bound(), SHORTEST);
        (0..100).for_each(|_| latency.note(Duration::from_millis(200)));
        let steady = latency.bound();
        assert!(steady >= Duration::from_millis(195) && steady < Duration::from_millis(250));
        latency.note(Duration::from_millis(600));
        assert!(latency.bound() > steady, "it varies");
        (0..9).for_each(|_| latency.note(Duration::from_secs(8)));
        assert_eq!(latency.bound(), SLOW, "never more");
    }

    #[test]
    fn one_call_in_twenty_costs_double() {
        let mut budget = HedgeBudget::default();
        let mut paid = 0;
        for call in 1..=10_000 {
            budget.earn();
            paid += u32::from(budget.pay());
            assert!(paid * 20 <= call, "{paid} of {call}");
        }
        assert_eq!(paid, 500);
        (0..10_000).for_each(|_| budget.earn());
        let burst = (0..100).filter(|_| budget.pay()).count();
        assert_eq!(burst, 10, "credit is bounded");
    }
}
