//! The sessions that users open to prove their age: their limits, and the status shown to a user.

use super::state::AgeStatus;
use super::user::{AgeClock, AgeReport};
use crate::window::Window;
use alloc::string::String;

/// Sessions that a user may open within a minute.
const MAX_PER_MINUTE: usize = 5;
/// Sessions of a user that may wait for an event.
const MAX_OPEN: usize = 10;
const MINUTE_US: i64 = 60_000_000;

/// The times of a session, which limit further ones. Instants are microseconds since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AgeSession {
    /// When it was opened.
    pub created_us: i64,
    /// Until when it waits for an event.
    pub expires_us: i64,
    /// When its last event occurred; `None` before the first.
    pub last_occurred_us: Option<i64>,
}

impl AgeSession {
    /// Whether it waits for its first event. A session dated further in the future than its
    /// lifetime does not count: the clock was wrong.
    fn is_open(&self, now_us: i64) -> bool {
        let life_us = self.expires_us.saturating_sub(self.created_us);
        let ahead_us = self.created_us.saturating_sub(now_us);
        self.last_occurred_us.is_none() && self.expires_us > now_us && ahead_us <= life_us
    }
}

/// The outcome of opening a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Opening {
    /// The session waits for the verifier.
    Opened,
    /// The user opened too many.
    TooMany {
        /// When the user may open the next one.
        retry_at_us: i64,
    },
}

impl Opening {
    /// The last minute, of which every session counts.
    pub const fn minute(now_us: i64) -> Window {
        Window::new(now_us, MINUTE_US)
    }

    /// Decides whether a user may open another session. `sessions` are the user's earlier ones: at
    /// least those of the last minute and those that wait for an event.
    pub fn decide(sessions: &[AgeSession], now_us: i64, expires_us: i64) -> Self {
        let minute = Self::minute(now_us);
        let opened = sessions
            .iter()
            .map(|it| it.created_us)
            .filter(|at| minute.counts(*at));
        let room_at = limited(opened, MAX_PER_MINUTE).map(|first| minute.end_us(first));
        let open = sessions
            .iter()
            .filter(|it| it.is_open(now_us))
            .map(|it| it.expires_us);
        // a session that was dated ahead waits no longer than a new one would
        let ends_at = limited(open, MAX_OPEN).map(|first| first.min(expires_us));
        room_at
            .max(ends_at)
            .map_or(Self::Opened, |retry_at_us| Self::TooMany { retry_at_us })
    }
}

/// The earliest of these instants, if there are at least `limit` of them.
fn limited(instants: impl Iterator<Item = i64> + Clone, limit: usize) -> Option<i64> {
    let first = instants.clone().min()?;
    (instants.count() >= limit).then_some(first)
}

/// The age status of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgeUser {
    /// The status; a verification past its end is `Expired`.
    pub status: AgeStatus,
    /// The age band, if the verifier reported one.
    pub age_band: Option<String>,
    /// When the age was verified.
    pub verified_us: Option<i64>,
    /// When the verification ends.
    pub expires_us: Option<i64>,
}

impl AgeUser {
    /// The status to show to the user: that of the reports, if there are any. Otherwise it is
    /// pending while one of these sessions waits, and `None` if none does.
    pub fn shown(reports: &[AgeReport], sessions: &[AgeSession], clock: AgeClock) -> Option<Self> {
        let Some(report) = AgeReport::of_user(reports.iter(), clock) else {
            let is_pending = sessions.iter().any(|it| it.is_open(clock.now_us));
            if !is_pending {
                return None;
            }
            return Some(Self {
                status: AgeStatus::Pending,
                age_band: None,
                verified_us: None,
                expires_us: None,
            });
        };
        let end = report.end_us(clock);
        Some(Self {
            status: match end {
                Some(end) if end <= clock.now_us => AgeStatus::Expired,
                _ => report.status,
            },
            age_band: report.age_band.clone(),
            verified_us: report.verified_us,
            expires_us: end,
        })
    }
}
