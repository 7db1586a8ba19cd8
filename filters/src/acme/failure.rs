//! Why a step failed, and how the next attempt treats it.

use alloc::borrow::ToOwned as _;
use alloc::string::String;

const TYPE_PREFIX: &str = "urn:ietf:params:acme:error:";

/// How an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// The authority gave no usable answer, or a file cannot be written.
    Unreachable,
    /// The authority refused.
    Refused,
}

/// The consequences of a failure for the order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// It may pass: no answer, a rate limit, a fault of the authority.
    Passing,
    /// The authority would answer the same again.
    Final,
    /// The authority no longer has the resource, or it belongs to another account.
    Gone,
    /// The authority does not know the account.
    UnknownAccount,
}

/// A failed step.
#[derive(Clone, Debug)]
pub struct Failure {
    /// Decides the delay before the next attempt.
    pub class: Class,
    /// The cause, for the log, `/readyz?verbose` and the operator's page.
    pub cause: String,
    /// The authority's `Retry-After` in seconds.
    pub retry_after: Option<u64>,
    pub(super) meaning: Meaning,
}

impl Failure {
    /// A failure that may pass: on this side, or without an answer.
    #[must_use]
    pub fn new(cause: &str) -> Self {
        Self {
            class: Class::Unreachable,
            cause: cause.to_owned(),
            retry_after: None,
            meaning: Meaning::Passing,
        }
    }

    /// An answer that is no usable ACME.
    #[must_use]
    pub fn malformed(cause: &str) -> Self {
        Self {
            meaning: Meaning::Final,
            ..Self::new(cause)
        }
    }

    /// A refusal without a problem document.
    #[must_use]
    pub fn refused(cause: &str) -> Self {
        Self {
            class: Class::Refused,
            meaning: Meaning::Final,
            ..Self::new(cause)
        }
    }

    /// A refusal with a problem document: RFC 8555, section 6.7.
    #[must_use]
    pub fn of_problem(kind: Option<&str>, status: Option<u16>, cause: &str) -> Self {
        let kind = kind.map(|kind| kind.strip_prefix(TYPE_PREFIX).unwrap_or(kind));
        let meaning = match (kind, status) {
            (Some("accountDoesNotExist"), _) => Meaning::UnknownAccount,
            (Some("badNonce" | "rateLimited" | "serverInternal"), _) => Meaning::Passing,
            (_, Some(status)) if status >= 500 => Meaning::Passing,
            (Some("malformed" | "unauthorized"), _) | (_, Some(403 | 404 | 410)) => Meaning::Gone,
            _ => Meaning::Final,
        };
        // a nonce is rejected before the authority looks at the request
        let class = if kind == Some("badNonce") {
            Class::Unreachable
        } else {
            Class::Refused
        };
        Self {
            class,
            meaning,
            ..Self::new(cause)
        }
    }

    /// Adds the authority's `Retry-After`, in seconds.
    #[must_use]
    pub fn after(self, retry_after: Option<u64>) -> Self {
        Self {
            retry_after,
            ..self
        }
    }

    /// Whether the same request would get the same answer.
    pub(super) fn is_final(&self) -> bool {
        self.meaning != Meaning::Passing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_says_what_becomes_of_the_order() {
        for (kind, status, class, meaning) in [
            (None, None, Class::Refused, Meaning::Final),
            (
                Some("badNonce"),
                Some(400),
                Class::Unreachable,
                Meaning::Passing,
            ),
            (
                Some("rateLimited"),
                Some(429),
                Class::Refused,
                Meaning::Passing,
            ),
            (
                Some("serverInternal"),
                None,
                Class::Refused,
                Meaning::Passing,
            ),
            (
                Some("orderNotReady"),
                Some(503),
                Class::Refused,
                Meaning::Passing,
            ),
            (Some("malformed"), Some(400), Class::Refused, Meaning::Gone),
            (None, Some(404), Class::Refused, Meaning::Gone),
            (
                Some("accountDoesNotExist"),
                Some(400),
                Class::Refused,
                Meaning::UnknownAccount,
            ),
            (Some("badCSR"), Some(400), Class::Refused, Meaning::Final),
        ] {
            let full = kind.map(|kind| alloc::format!("{TYPE_PREFIX}{kind}"));
            let failure = Failure::of_problem(full.as_deref(), status, "why");
            assert_eq!(
                (failure.class, failure.meaning),
                (class, meaning),
                "{kind:?}"
            );
        }
    }
}
