//! The age status of a user: a fold over the references that the verifier reported on.
//!
//! In: the newest applied event of each reference, in any order, and the time. Out: the one that
//! counts. A verification holds until its own end, or until its own reference changes; an attempt
//! that proves nothing takes nothing from another reference.

use super::event::SignedEvent;
use super::state::AgeStatus;
use alloc::string::String;

/// The time of a decision, and how long a verification without an end is valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AgeClock {
    /// Microseconds since 1970.
    pub now_us: i64,
    /// Microseconds from the verification on.
    pub validity_us: i64,
}

/// The newest applied event of a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AgeReport {
    /// The reported status.
    pub status: AgeStatus,
    /// When the event occurred.
    pub occurred_us: i64,
    /// The proven age band, when verified.
    pub age_band: Option<String>,
    /// When the age was verified.
    pub verified_us: Option<i64>,
    /// When the verification ends, if the verifier set an end.
    pub expires_us: Option<i64>,
}

impl AgeReport {
    /// The report of an event.
    pub fn of(event: &SignedEvent) -> Self {
        Self {
            status: event.status(),
            occurred_us: event.occurred_us(),
            age_band: event.age_band().map(String::from),
            verified_us: event.verified_us(),
            expires_us: event.expires_us(),
        }
    }

    /// When this verification ends; `None` for any other report.
    pub fn end_us(&self, clock: AgeClock) -> Option<i64> {
        if self.status != AgeStatus::Verified {
            return None;
        }
        let from = self.verified_us.unwrap_or(self.occurred_us);
        let end = from.saturating_add(clock.validity_us);
        Some(self.expires_us.unwrap_or(end))
    }

    /// Whether this is a verification that has not ended.
    fn is_in_force(&self, clock: AgeClock) -> bool {
        self.end_us(clock).is_some_and(|end| end > clock.now_us)
    }

    /// The report of a user with these references: of the verifications in force the one that ends
    /// last, otherwise the newest of all.
    pub fn of_user<'a>(
        references: impl Iterator<Item = &'a Self> + Clone,
        clock: AgeClock,
    ) -> Option<&'a Self> {
        let in_force = references.clone().filter(|one| one.is_in_force(clock));
        let longest = in_force.max_by_key(|one| (one.end_us(clock), one.order()));
        longest.or_else(|| references.max_by_key(|one| one.order()))
    }

    /// A total order, so that the order of the references never matters: newest last, and of one
    /// instant the one that grants less.
    fn order(&self) -> (i64, AgeStatus, Option<i64>, Option<i64>, Option<&str>) {
        let Self {
            status,
            occurred_us,
            age_band,
            verified_us,
            expires_us,
        } = self;
        let band = age_band.as_deref();
        (*occurred_us, *status, *verified_us, *expires_us, band)
    }
}
