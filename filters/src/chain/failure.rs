//! The classes of failures: everything but a result or an error of the API.

use crate::named;
use crate::rpc::response::Outcome;
use core::fmt;

named! {
    /// How a URL failed to give a valid answer.
    pub enum FailureClass {
        /// An error of the server itself in a JSON-RPC answer.
        Internal = "internal",
        /// Too many calls: 429, or the error -32005.
        Limited = "limited",
        /// Wrong or missing credentials: 401 or 403.
        Refused = "refused",
        /// Any other status except 200.
        Status = "status",
        /// A 3xx status.
        Redirect = "redirect",
        /// A body that is not the response to the request.
        Invalid = "invalid",
        /// No answer in time.
        Timeout = "timeout",
        /// No connection, or one that ended before the answer.
        Unreachable = "unreachable",
    }
}

impl FailureClass {
    /// The class of an HTTP status other than 200.
    pub const fn of_status(code: u16) -> Self {
        match code {
            300..=399 => Self::Redirect,
            401 | 403 => Self::Refused,
            408 => Self::Timeout,
            429 => Self::Limited,
            _ => Self::Status,
        }
    }

    /// The class of an error in a JSON-RPC answer; `None` if it is an answer. The Starknet API uses
    /// positive codes, and JSON-RPC 2.0 reserves these for failures of the server (section 5.1).
    pub const fn of_error(code: i64) -> Option<Self> {
        match code {
            -32_005 => Some(Self::Limited),
            -32_603 | -32_099..=-32_000 => Some(Self::Internal),
            _ => None,
        }
    }
}

/// How a body differs from the response to our request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InvalidAnswer {
    /// A page for people.
    Html,
    /// A response to another request.
    OtherId,
    /// Anything else.
    Malformed,
}

impl InvalidAnswer {
    /// Explains a body that is not the response to the request of this id.
    pub fn of(body: &[u8], id: u64) -> Self {
        if body.trim_ascii_start().starts_with(b"<") {
            return Self::Html;
        }
        let found = serde_json::from_slice::<serde_json::Value>(body);
        let found = found.ok().and_then(|answer| answer.get("id")?.as_u64());
        match found {
            Some(found) if found != id && Outcome::verify(body, found).is_some() => Self::OtherId,
            _ => Self::Malformed,
        }
    }
}

impl fmt::Display for InvalidAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Html => "an HTML page instead of a JSON-RPC response",
            Self::OtherId => "the response has the id of another request",
            Self::Malformed => "the answer is not one complete JSON-RPC 2.0 response",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn statuses_have_classes() {
        for (code, class) in [
            (204, FailureClass::Status),
            (301, FailureClass::Redirect),
            (401, FailureClass::Refused),
            (403, FailureClass::Refused),
            (404, FailureClass::Status),
            (408, FailureClass::Timeout),
            (429, FailureClass::Limited),
            (503, FailureClass::Status),
        ] {
            assert_eq!(FailureClass::of_status(code), class, "{code}");
        }
    }

    #[test]
    fn errors_of_the_api_are_answers() {
        let answers = [
            1, 20, 24, 29, 41, 63, 68, -1, -32_600, -32_601, -32_602, -32_700,
        ];
        for code in answers {
            assert_eq!(FailureClass::of_error(code), None, "{code}");
        }
        assert_eq!(FailureClass::of_error(-32_005), Some(FailureClass::Limited));
        for code in [-32_603, -32_000, -32_099] {
            let class = FailureClass::of_error(code);
            assert_eq!(class, Some(FailureClass::Internal), "{code}");
        }
    }

    #[test]
    fn an_invalid_answer_is_explained() {
        for (body, kind) in [
            ("\n <!doctype html><p>502", InvalidAnswer::Html),
            (
                r#"{"jsonrpc":"2.0","id":8,"result":1}"#,
                InvalidAnswer::OtherId,
            ),
            (r#"{"jsonrpc":"2.0","id":8}"#, InvalidAnswer::Malformed),
            (r#"{"jsonrpc":"2.0","id":7,"#, InvalidAnswer::Malformed),
            ("", InvalidAnswer::Malformed),
        ] {
            assert_eq!(InvalidAnswer::of(body.as_bytes(), 7), kind, "{body}");
        }
    }
}
