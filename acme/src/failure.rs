//! Why an attempt to get a certificate failed, in words for the operator.
//!
//! In: an error of the protocol. Out: a [`Failure`], with the problem document of the authority
//! (RFC 8555, section 6.7) as one bounded line without control characters.

use instant_acme::{Error, Problem};
use portcullis_base::io::plain::is_plain;
use portcullis_filters::acme::Failure;
use portcullis_filters::acme::document::Unusable;

/// Maximum length of a line in characters: a problem's detail is one sentence, a longer one is cut.
const LONGEST: usize = 400;
const TYPE_PREFIX: &str = "urn:ietf:params:acme:error:";

/// The authority did not answer, with the cause.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct NoAnswer(pub(super) String);

/// Converts an error of the protocol; `do_what` names the step that failed.
pub(super) fn failure(error: Error, do_what: &str, retry_after: Option<u64>) -> Failure {
    let cause = |cause: &str| clean(&format!("{do_what}: {cause}"));
    let failure = match error {
        Error::Api(problem) => Failure::of_problem(
            problem.r#type.as_deref(),
            problem.status,
            &cause(&words(&problem)),
        ),
        Error::Other(error) => match error.downcast::<NoAnswer>() {
            Ok(no) => Failure::new(&cause(&format!("the authority is unreachable: {no}"))),
            Err(error) if error.is::<Unusable>() => Failure::malformed(&cause(&error.to_string())),
            Err(error) => Failure::new(&cause(&error.to_string())),
        },
        Error::Json(_) => Failure::malformed(&cause("the authority's response is not ACME")),
        error => Failure::malformed(&cause(&error.to_string())),
    };
    failure.after(retry_after)
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
pub(super) fn clean(text: &str) -> String {
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
    use portcullis_filters::acme::Class;

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
        let refused = failure(Error::Api(problem("{}")), "new order", None);
        assert_eq!(refused.class, Class::Refused);
        let silent = Error::Other(Box::new(NoAnswer("connection refused".to_owned())));
        let silent = failure(silent, "new order", Some(7));
        assert_eq!(silent.class, Class::Unreachable);
        assert_eq!(silent.retry_after, Some(7));
        assert_eq!(
            silent.cause,
            "new order: the authority is unreachable: connection refused"
        );
    }
}
