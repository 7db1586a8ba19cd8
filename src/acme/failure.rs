//! Why an attempt to get a certificate failed, in words for the operator.
//!
//! In: an error of the protocol. Out: a [`Failure`], with the problem document of the authority
//! (RFC 8555, section 6.7) as one bounded line without control characters.

use super::schedule::Class;
use crate::io::plain::is_plain;
use instant_acme::{Error, Problem};
use std::time::Duration;

/// Maximum length of a line in characters: a problem's detail is one sentence, a longer one is cut.
const LONGEST: usize = 400;
const TYPE_PREFIX: &str = "urn:ietf:params:acme:error:";

/// The authority does not know the account: RFC 8555, section 6.7.
const NO_ACCOUNT: &str = "urn:ietf:params:acme:error:accountDoesNotExist";
/// The authority did not accept the nonce, not even in the client's own retries, and has not
/// looked at the request: RFC 8555, section 6.5.
const BAD_NONCE: &str = "urn:ietf:params:acme:error:badNonce";

/// A failed attempt.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) class: Class,
    /// The cause, for the log, `/readyz?verbose` and the operator's page.
    pub(super) cause: String,
    /// The authority's `Retry-After`.
    pub(super) retry_after: Option<Duration>,
    pub(super) is_unknown_account: bool,
    /// Whether the same question would get the same answer.
    pub(super) is_final: bool,
}

/// The authority did not answer, with the cause.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoAnswer(pub(super) String);

impl Failure {
    /// A failure on this side, or an answer that cannot be parsed.
    pub(super) fn new(cause: &str) -> Self {
        Self {
            class: Class::Unreachable,
            cause: clean(cause),
            retry_after: None,
            is_unknown_account: false,
            is_final: false,
        }
    }

    /// A refusal by the authority, without an error of the protocol.
    pub(super) fn refused(cause: &str) -> Self {
        Self {
            class: Class::Refused,
            is_final: true,
            ..Self::new(cause)
        }
    }

    /// Converts an error of the protocol; `do_what` names the step that failed.
    pub(super) fn of(error: Error, do_what: &str, retry_after: Option<Duration>) -> Self {
        let failed = |cause: String| Self {
            retry_after,
            ..Self::new(&format!("{do_what}: {cause}"))
        };
        let is_final = is_final(&error);
        match error {
            Error::Api(problem) => Self {
                is_final,
                class: match problem.r#type.as_deref() {
                    Some(BAD_NONCE) => Class::Unreachable,
                    _ => Class::Refused,
                },
                is_unknown_account: problem.r#type.as_deref() == Some(NO_ACCOUNT),
                ..failed(words(&problem))
            },
            Error::Other(error) => match error.downcast::<NoAnswer>() {
                Ok(no) => failed(format!("the authority is unreachable: {no}")),
                Err(error) => failed(error.to_string()),
            },
            Error::Json(_) => Self {
                is_final,
                ..failed("the authority's response is not ACME".to_owned())
            },
            Error::Timeout(_) => failed("the authority is not done yet".to_owned()),
            error => Self {
                is_final,
                ..failed(error.to_string())
            },
        }
    }
}

/// Whether an answer would be repeated: neither silence, nor a fault that may pass.
fn is_final(error: &Error) -> bool {
    match error {
        Error::Api(problem) => {
            let is_passing = problem.r#type.as_deref().is_some_and(|kind| {
                matches!(
                    kind.strip_prefix(TYPE_PREFIX),
                    Some("badNonce" | "rateLimited" | "serverInternal")
                )
            });
            !is_passing && problem.status.is_none_or(|status| status < 500)
        }
        Error::Other(_) | Error::Timeout(_) => false,
        _ => true,
    }
}

/// Whether the authority no longer has the requested resource, or it belongs to another account.
pub(super) fn is_gone(problem: &Problem) -> bool {
    let kind = problem
        .r#type
        .as_deref()
        .and_then(|kind| kind.strip_prefix(TYPE_PREFIX));
    matches!(problem.status, Some(403 | 404 | 410))
        || matches!(
            kind,
            Some("malformed" | "unauthorized" | "accountDoesNotExist")
        )
}

/// Formats a problem document: its detail and type, then those of its subproblems.
pub(super) fn words(problem: &Problem) -> String {
    let part = |detail: &Option<String>, kind: &Option<String>| {
        let detail = detail.as_deref().unwrap_or("no detail");
        match kind.as_deref() {
            Some(kind) => format!(
                "{detail} ({})",
                kind.strip_prefix(TYPE_PREFIX).unwrap_or(kind)
            ),
            None => detail.to_owned(),
        }
    };
    let mut all = vec![part(&problem.detail, &problem.r#type)];
    all.extend(
        problem
            .subproblems
            .iter()
            .map(|sub| part(&sub.detail, &sub.r#type)),
    );
    clean(&all.join("; "))
}

/// Returns the text on one line of bounded length, without control characters.
fn clean(text: &str) -> String {
    let mut plain = text.chars().map(|c| if is_plain(c) { c } else { ' ' });
    let mut line: String = plain.by_ref().take(LONGEST).collect();
    if plain.next().is_some() {
        line.push('…');
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    fn problem(json: &str) -> Problem {
        serde_json::from_str(json).expect("a problem document")
    }

    #[test]
    fn a_problem_is_one_bounded_line() {
        let long = "x".repeat(9_999);
        for (json, expected) in [
            (
                r#"{"type":"urn:ietf:params:acme:error:rateLimited","detail":"too many"}"#
                    .to_owned(),
                "too many (rateLimited)".to_owned(),
            ),
            (
                r#"{"detail":"a\nb\u001b[31mc\u202ed"}"#.to_owned(),
                "a b [31mc d".to_owned(),
            ),
            ("{}".to_owned(), "no detail".to_owned()),
            (
                r#"{"detail":"one","subproblems":[{"type":"urn:x","detail":"two"}]}"#.to_owned(),
                "one; two (urn:x)".to_owned(),
            ),
            (
                format!(r#"{{"detail":"{long}"}}"#),
                format!("{}…", "x".repeat(LONGEST)),
            ),
        ] {
            assert_eq!(words(&problem(&json)), expected, "{json:.80}");
        }
    }

    #[test]
    fn a_refusal_waits_longer_than_silence() {
        let refused = Failure::of(Error::Api(problem("{}")), "new order", None);
        assert_eq!(
            (refused.class, refused.is_unknown_account),
            (Class::Refused, false)
        );
        let silent = Error::Other(Box::new(NoAnswer("connection refused".to_owned())));
        let silent = Failure::of(silent, "new order", None);
        assert_eq!(silent.class, Class::Unreachable);
        assert_eq!(
            silent.cause,
            "new order: the authority is unreachable: connection refused"
        );
        let nonce = problem(&format!(r#"{{"type":"{BAD_NONCE}"}}"#));
        let nonce = Failure::of(Error::Api(nonce), "new order", None);
        assert_eq!(nonce.class, Class::Unreachable, "nothing is refused");
        let gone = problem(&format!(r#"{{"type":"{NO_ACCOUNT}"}}"#));
        assert!(Failure::of(Error::Api(gone), "new order", None).is_unknown_account);
    }
}
