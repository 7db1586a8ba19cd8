//! Why an attempt at a URL of the node failed, in words for the operator.
//!
//! A [`NodeError`] and a [`CallFailure`] decide what happens next; a [`Cause`] only explains. Of an
//! answer it holds only the status and `Retry-After`.

use super::NodeError;
use super::breaker::CallFailure;
use super::http1::ExchangeError;
use http::StatusCode;
use portcullis_base::secrets::certificates;
use portcullis_filters::chain::{FailureClass, InvalidAnswer};
use rustls::{Error, InvalidMessage};
use std::fmt;
use std::io;
use std::time::Duration;
use tokio::time::Instant;

/// The shortest wait that is passed on to clients.
const MIN_WAIT: Duration = Duration::from_secs(1);
/// The longest wait that is passed on to clients: an hour of the node's would outlast its cause.
const MAX_WAIT: Duration = Duration::from_secs(60);

/// Why an attempt failed.
#[derive(Debug)]
pub(super) enum Cause {
    /// The host name has no address.
    Resolve(io::Error),
    /// The operating system could not connect.
    Connect(io::Error),
    /// No connection within `node.connect_timeout`.
    ConnectTimeout,
    /// The remaining file descriptors are reserved for other connections.
    NoDescriptor,
    /// No TLS session, or an untrusted one.
    Tls(io::Error),
    /// Why `node.ca_file` or `node.header_file` is unusable.
    Credentials(String),
    /// How the URL's chain differs from the served one.
    Chain(String),
    /// An answer of this HTTP status, and how long the node wants to be left alone.
    Status(u16, Option<Duration>),
    /// A body that is not the response to the request.
    Invalid(InvalidAnswer),
    /// The answer ended after this many bytes of its body.
    CutOff(usize),
    /// A JSON-RPC error with this code, which the API does not define.
    Error(i64),
    /// Any other error.
    Fault(NodeError),
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Resolve(error) => {
                let text = error.to_string();
                let reason = text.rsplit(": ").next().unwrap_or_default();
                write!(f, "cannot resolve the host name: {reason}")
            }
            Self::Connect(error) => f.write_str(&system_reason(error)),
            Self::ConnectTimeout => f.write_str("no connection in time"),
            Self::NoDescriptor => f.write_str("too few file descriptors are left"),
            Self::Tls(error) => f.write_str(&tls_reason(error)),
            Self::Chain(why) | Self::Credentials(why) => f.write_str(why),
            Self::Status(code, _) => {
                let status = StatusCode::from_u16(*code).ok();
                let phrase = status.and_then(|status| status.canonical_reason());
                write!(f, "{code} {}", phrase.unwrap_or("(unknown status)"))
            }
            Self::Invalid(how) => how.fmt(f),
            Self::CutOff(bytes) => write!(f, "the answer was cut off after {bytes} bytes"),
            Self::Error(code @ -32_603) => write!(f, "internal error ({code})"),
            Self::Error(code @ -32_005) => write!(f, "rate limited ({code})"),
            Self::Error(code) => write!(f, "server error ({code})"),
            Self::Fault(error) => f.write_str(match error {
                NodeError::Timeout => "no answer in time",
                NodeError::Unreachable => "no connection",
                NodeError::WrongChain => "another chain",
                NodeError::Lagging => "its head is behind what clients have seen",
                NodeError::Starting => "it is being started",
                NodeError::Cut => "the connection ended before the answer",
                NodeError::Redirect => "a redirect",
                NodeError::Status => "a status other than 200",
                NodeError::Oversized => "the answer is larger than 4 MiB",
                NodeError::Invalid => "the answer is not one complete JSON-RPC 2.0 response",
                NodeError::OverShare => "a client holds its share of the memory for answers",
                NodeError::Crowded => "more calls than it answers in time",
                NodeError::Overloaded => "too many calls or too much memory in use here",
            }),
        }
    }
}

/// Shortens `Connection refused (os error 111)` to `connection refused`.
fn system_reason(error: &io::Error) -> String {
    let text = error.to_string();
    let text = text.split(" (os error").next().unwrap_or_default();
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| {
        first.to_lowercase().chain(chars).collect()
    })
}

/// A TLS error in words, such as `certificate of the node: unknown issuer`.
fn tls_reason(error: &io::Error) -> String {
    let Some(error) = error
        .get_ref()
        .and_then(|inner| inner.downcast_ref::<Error>())
    else {
        return format!("TLS: {}", system_reason(error));
    };
    match error {
        Error::InvalidCertificate(error) => {
            format!("certificate of the node: {}", certificates::refusal(error))
        }
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "TLS: the node speaks something else, perhaps plain HTTP".to_owned()
        }
        other => format!("TLS: {other}"),
    }
}

/// A recorded failure of an attempt at a URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UrlFailure {
    /// The error that the request got.
    pub error: NodeError,
    /// Why it failed, in words.
    pub cause: String,
    /// When it failed.
    pub at: Instant,
    /// Whether the URL gets no calls because of it.
    pub stops_calls: bool,
}

/// The most recent failure of each kind at one URL.
#[derive(Debug, Default)]
pub(super) struct Failures {
    of_error: [Option<(Instant, Cause)>; NodeError::ALL.len()],
    /// The most recent error of the server itself in an answer, which the caller gets as it is.
    in_answer: Option<(Instant, Cause)>,
}

impl Failures {
    /// Records why an attempt failed.
    pub(super) fn note(&mut self, error: NodeError, cause: Cause, now: Instant) {
        if let Some(newest) = self.of_error.get_mut(error as usize) {
            *newest = Some((now, cause));
        }
    }

    /// Records an error of the server itself, of this code.
    pub(super) fn note_error(&mut self, code: i64, now: Instant) {
        self.in_answer = Some((now, Cause::Error(code)));
    }

    /// Why the most recent attempt with this error failed, in words.
    pub(super) fn cause_of(&self, error: NodeError) -> Option<String> {
        let (_, cause) = self.of_error.get(error as usize)?.as_ref()?;
        Some(cause.to_string())
    }

    /// Why the most recent failed attempt failed; `None` if none failed.
    pub(super) fn newest(&self) -> Option<String> {
        let all = self.of_error.iter().chain([&self.in_answer]);
        let (_, cause) = all.flatten().max_by_key(|(at, _)| *at)?;
        Some(cause.to_string())
    }

    /// The seconds that the node still wants to be left alone, by the most recent answer of a
    /// status; `None` if it does not say so.
    pub(super) fn retry_after(&self, now: Instant) -> Option<u32> {
        let ends = self
            .of_error
            .iter()
            .flatten()
            .filter_map(|(at, cause)| match cause {
                Cause::Status(_, Some(wait)) => Some(*at + (*wait).clamp(MIN_WAIT, MAX_WAIT)),
                _ => None,
            });
        let left = ends.max()?.checked_duration_since(now)?;
        match u32::try_from(left.as_millis().div_ceil(1000)) {
            Ok(seconds) if seconds > 0 => Some(seconds),
            _ => None,
        }
    }

    /// All failures; `stopped` is the one because of which the URL gets no calls.
    pub(super) fn all(&self, stopped: Option<NodeError>) -> Vec<UrlFailure> {
        let known = NodeError::ALL.into_iter().zip(&self.of_error);
        let known = known.filter_map(|(error, known)| Some((error, known.as_ref()?)));
        let failure = |(error, (at, cause)): (_, &(Instant, Cause))| UrlFailure {
            error,
            cause: cause.to_string(),
            at: *at,
            stops_calls: stopped == Some(error),
        };
        known.map(failure).collect()
    }
}

/// A failed attempt: its consequence, and its cause.
#[derive(Debug)]
pub(super) struct FailedAttempt {
    pub(super) failure: CallFailure,
    pub(super) cause: Cause,
}

impl FailedAttempt {
    /// No connection: nothing was sent.
    pub(super) fn connect(cause: Cause) -> Self {
        Self {
            failure: CallFailure::Connect,
            cause,
        }
    }

    /// An error of this code in an answer; `None` if it is an error of the API.
    pub(super) fn in_answer(code: i64) -> Option<Self> {
        FailureClass::of_error(code)?;
        Some(Self {
            failure: CallFailure::After(NodeError::Invalid),
            cause: Cause::Error(code),
        })
    }

    /// The failure of a check before the request was sent.
    pub(super) fn unsent(self) -> Self {
        let failure = match self.failure {
            CallFailure::After(error) => CallFailure::Unsent(error),
            failure => failure,
        };
        Self { failure, ..self }
    }

    /// The class of a failure that says something about the URL; `None` if it is ours, or if the
    /// URL has another chain.
    pub(super) fn class(&self) -> Option<FailureClass> {
        if let Cause::Status(code, _) = self.cause {
            return Some(FailureClass::of_status(code));
        }
        if let Cause::Error(code) = self.cause {
            return FailureClass::of_error(code);
        }
        match self.failure.error() {
            error if error.is_ours() => None,
            NodeError::WrongChain | NodeError::Lagging | NodeError::Starting => None,
            NodeError::Timeout => Some(FailureClass::Timeout),
            NodeError::Unreachable | NodeError::Cut => Some(FailureClass::Unreachable),
            NodeError::Redirect => Some(FailureClass::Redirect),
            NodeError::Status => Some(FailureClass::Status),
            NodeError::Oversized | NodeError::Crowded | NodeError::Overloaded => None,
            NodeError::OverShare => None,
            NodeError::Invalid => Some(FailureClass::Invalid),
        }
    }
}

impl From<NodeError> for FailedAttempt {
    fn from(error: NodeError) -> Self {
        Self {
            failure: CallFailure::After(error),
            cause: Cause::Fault(error),
        }
    }
}

impl From<ExchangeError> for FailedAttempt {
    fn from(error: ExchangeError) -> Self {
        match error {
            ExchangeError::BeforeAnswer => NodeError::Cut.into(),
            ExchangeError::Answer(error) => error.into(),
            ExchangeError::CutOff(bytes) => Self {
                failure: CallFailure::After(NodeError::Invalid),
                cause: Cause::CutOff(bytes),
            },
            ExchangeError::Status(code, wait) => Self {
                failure: match code {
                    300..=399 => CallFailure::After(NodeError::Redirect),
                    // the node's own timeout
                    408 => CallFailure::After(NodeError::Timeout),
                    429 | 503 => CallFailure::Busy,
                    _ => CallFailure::After(NodeError::Status),
                },
                cause: Cause::Status(code, wait),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_wait_counts_down_and_is_bounded() {
        let start = Instant::now();
        for (wait, later_ms, expected, why) in [
            (Some(7), 0, Some(7), "as the node says"),
            (Some(7), 2_500, Some(5), "rounded up"),
            (Some(7), 7_000, None, "over"),
            (Some(0), 0, Some(1), "at least a second"),
            (Some(3_600), 0, Some(60), "at most a minute"),
            (None, 0, None, "the node names none"),
        ] {
            let mut failures = Failures::default();
            let wait = wait.map(Duration::from_secs);
            failures.note(NodeError::Status, Cause::Status(429, wait), start);
            let now = start + Duration::from_millis(later_ms);
            assert_eq!(failures.retry_after(now), expected, "{why}");
        }
    }
}
