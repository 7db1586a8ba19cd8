//! The messages about leases: their purpose, the limit that they are of, and their answers.

use portcullis_filters::limit::lease::Granted;

/// The unit that a limit counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Counted {
    /// Requests that are admitted.
    Requests,
    /// Requests without a valid token. Each is decided by the store, so that no instance can be
    /// used to guess while another holds a lease.
    FailedTokens,
}

/// The purpose of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Purpose {
    /// Leases requests.
    Lease,
    /// Only to report admissions.
    Report,
}

/// The store's answer.
#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    Granted(Granted),
    /// The store has lost the client's record.
    Forgotten,
}

/// There was no answer; metrics count the cause.
#[derive(Clone, Copy, Debug)]
pub(super) struct Unanswered;
