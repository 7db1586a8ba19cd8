//! The stored state of a certificate's renewal, in the folder and in the fleet's store.

use super::message::OrderStatus;
use super::schedule::{self, LastIssue, Stuck};
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// The stored progress towards a certificate that is missing or due for renewal.
#[derive(Clone, Debug, Default, Deserialize, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// The digest of the certificate to renew, in hexadecimal; empty for the first one.
    #[serde(default)]
    pub renews: String,
    /// The order that is under way.
    pub order: Option<Begun>,
    /// Attempts that failed since the last success.
    #[serde(default)]
    pub failed: u32,
    /// Earliest time of the next attempt, in seconds since 1970.
    #[serde(default)]
    pub retry_at: Option<u64>,
    /// Why the last attempt failed.
    #[serde(default)]
    pub cause: String,
}

/// An order that the authority accepted, with the key of its certificate. It is stored before it is
/// finalized, so another process can finish it.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Begun {
    /// Its URL.
    pub url: String,
    /// In PEM.
    pub key: String,
    /// Its status when the last attempt ended.
    #[serde(default)]
    pub status: String,
    /// Attempts in a row that found it with this status.
    #[serde(default)]
    pub unchanged: u32,
}

/// The last certificate of a set of domains, which outlives its progress.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq, Serialize)]
pub struct Receipt {
    /// The URL of its order, so that a repeated download is no second certificate.
    pub order: String,
    /// The facts of its issue.
    pub last: LastIssue,
}

impl Progress {
    /// Whether there was no attempt yet.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        *self
            == Self {
                renews: self.renews.clone(),
                ..Self::default()
            }
    }

    /// Whether this is the progress of an earlier renewal, not that of the certificate `renews`.
    pub(super) fn is_over(&self, renews: &str) -> bool {
        !self.is_empty() && self.renews != renews
    }

    /// The progress towards renewing the certificate `renews`; empty if this is about another one.
    pub(super) fn of(&self, renews: String) -> Self {
        if self.renews == renews {
            return self.clone();
        }
        Self {
            renews,
            ..Self::default()
        }
    }

    /// Keeps the order for the next attempt, or abandons it; returns whether it is abandoned.
    pub(super) fn keep_or_abandon(&mut self, found: &Found, now: u64) -> bool {
        let Some(begun) = &mut self.order else {
            return false;
        };
        let stuck = begun.found(found);
        let is_abandoned = schedule::is_abandoned(stuck, now);
        if is_abandoned {
            self.order = None;
        }
        is_abandoned
    }
}

/// An order as a failed attempt found it.
#[derive(Debug)]
pub(super) struct Found {
    /// Its last status; `None` if the authority did not show it.
    pub(super) status: Option<OrderStatus>,
    /// Its status at the end of the attempt before, in words.
    pub(super) before: Option<String>,
    /// Whether the failure would be repeated.
    pub(super) is_final: bool,
    /// When the authority forgets it, in seconds since 1970.
    pub(super) expires: Option<u64>,
}

impl Begun {
    fn found(&mut self, found: &Found) -> Stuck {
        let Some(status) = found.status else {
            self.unchanged = self.unchanged.saturating_add(1);
            return Stuck {
                is_final: false,
                unchanged: self.unchanged,
                expires: None,
            };
        };
        self.unchanged = match &found.before {
            Some(before) if before == status.name() => self.unchanged.saturating_add(1),
            _ => 1,
        };
        self.status = status.name().into();
        // an invalid order cannot be continued; a refused proof has made it invalid
        let is_final =
            status == OrderStatus::Invalid || found.is_final && status != OrderStatus::Pending;
        Stuck {
            is_final,
            unchanged: self.unchanged,
            expires: found.expires,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_over_once_its_certificate_is_renewed() {
        let failed = Progress {
            renews: "one".to_owned(),
            failed: 3,
            ..Progress::default()
        };
        assert!(
            !failed.is_over("one"),
            "another instance may not know yet that it is due"
        );
        assert_eq!(failed.of("one".to_owned()).failed, 3);
        assert!(failed.is_over("two"));
        assert_eq!(failed.of("two".to_owned()).failed, 0);
        let first = Progress {
            failed: 1,
            ..Progress::default()
        };
        assert!(
            !first.is_over("") && first.is_over("one"),
            "there was no certificate"
        );
        assert!(!Progress::default().is_over("one"), "nothing is stored");
    }
}
