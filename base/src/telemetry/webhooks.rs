//! The webhooks that were refused, by reason: how many, and when the last one arrived.
//!
//! For the operator's page, so that a verifier whose events do not arrive is understood. Nothing of
//! a request is kept but the reason, which comes from a closed list.

use parking_lot::Mutex;
use portcullis_filters::verdict::Reason;
use std::time::SystemTime;

/// The refused webhooks of one reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RefusedWebhooks {
    /// The reason.
    pub reason: Reason,
    /// The number since the start.
    pub total: u64,
    /// When the last one arrived.
    pub last: SystemTime,
}

/// All refused webhooks since the start.
#[derive(Debug, Default)]
pub struct WebhookRefusals(Mutex<Vec<RefusedWebhooks>>);

impl WebhookRefusals {
    /// Counts a webhook that was refused at `now`.
    pub fn add(&self, reason: Reason, now: SystemTime) {
        let mut all = self.0.lock();
        match all.iter_mut().find(|one| one.reason == reason) {
            Some(known) => {
                known.total += 1;
                known.last = now;
            }
            None => all.push(RefusedWebhooks {
                reason,
                total: 1,
                last: now,
            }),
        }
    }

    /// One for each reason, the most recent first.
    pub fn by_reason(&self) -> Vec<RefusedWebhooks> {
        let mut all = self.0.lock().clone();
        all.sort_by_key(|one| std::cmp::Reverse(one.last));
        all
    }
}
