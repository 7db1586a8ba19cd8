//! Error bodies: one reason and one message, in the format of the surface that responds.

use super::Reply;
use crate::node::{Node, NodeError};
use portcullis_filters::verdict::{Reason, Refusal};
use serde::Serialize;
use serde_json::value::RawValue;
use tokio::time::Instant;

/// Seconds after which to retry while the node starts: a start takes less, a build takes minutes.
const NODE_START: u32 = 5;

/// The format of an error body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorFormat {
    /// A JSON-RPC 2.0 error.
    JsonRpc,
    /// `{"ok":false,"error":…}`, as the relay's operations respond.
    Plain,
    /// `{"error":"Name","message":…}`, as XRPC responds: <https://atproto.com/specs/xrpc>.
    Xrpc,
}

#[derive(Serialize)]
struct JsonRpc<'a, D> {
    jsonrpc: &'static str,
    id: &'a RawValue,
    error: ErrorObject<'a, D>,
}

#[derive(Serialize)]
struct ErrorObject<'a, D> {
    code: i32,
    message: &'a str,
    data: Data<'a, D>,
}

#[derive(Serialize)]
struct Data<'a, D> {
    reason: &'static str,
    request_id: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hint: Option<&'a str>,
    #[serde(flatten)]
    details: D,
}

#[derive(Serialize)]
struct Plain<'a, D> {
    ok: bool,
    error: PlainError<'a, D>,
}

#[derive(Serialize)]
struct PlainError<'a, D> {
    reason: &'static str,
    message: &'a str,
    request_id: &'a str,
    #[serde(flatten)]
    details: D,
}

#[derive(Serialize)]
struct Xrpc<'a, D> {
    error: &'static str,
    message: &'a str,
    request_id: &'a str,
    #[serde(flatten)]
    details: D,
}

impl Reply {
    /// Creates the response to a refused request.
    pub fn refusal(format: ErrorFormat, refusal: &Refusal, request_id: &str) -> Self {
        Self::error(format, refusal, (), request_id)
    }

    /// Creates the response to a request with this JSON-RPC id that the node did not answer.
    pub fn fault(
        format: ErrorFormat,
        fault: NodeError,
        id: Option<&str>,
        request_id: &str,
    ) -> Self {
        let refusal = Refusal {
            id: id.map(Box::from),
            ..Refusal::from(fault)
        };
        Self::refusal(format, &refusal, request_id)
    }

    /// Passes on when the node takes calls again, if it refused this one as too many.
    #[must_use]
    pub fn with_retry_after_of(mut self, node: &Node) -> Self {
        if self.reason == Some(Reason::UpstreamStatus)
            && let Some(seconds) = node.retry_after(Instant::now())
        {
            self.retry_after = Some(seconds);
        }
        self
    }

    /// Creates the response to a refused request, with further members: `details` is a struct or an
    /// enum of newtype variants.
    pub fn error(
        format: ErrorFormat,
        refusal: &Refusal,
        details: impl Serialize,
        request_id: &str,
    ) -> Self {
        let Refusal {
            reason,
            message,
            id,
            allow,
            hint,
            retry_after,
        } = refusal;
        let (status, code) = (reason.status(), reason.code());
        let reason_name = reason.name();
        let mut reply = match format {
            ErrorFormat::JsonRpc => {
                let id = id.as_deref().and_then(|id| serde_json::from_str(id).ok());
                let data = Data {
                    reason: reason_name,
                    request_id,
                    hint: hint.as_deref(),
                    details,
                };
                let error = ErrorObject {
                    code,
                    message,
                    data,
                };
                let id = id.unwrap_or(RawValue::NULL);
                Self::serialize(
                    status,
                    &JsonRpc {
                        jsonrpc: "2.0",
                        id,
                        error,
                    },
                )
            }
            ErrorFormat::Plain => {
                let error = PlainError {
                    reason: reason_name,
                    message,
                    request_id,
                    details,
                };
                Self::serialize(status, &Plain { ok: false, error })
            }
            ErrorFormat::Xrpc => {
                let error = reason.xrpc_name();
                Self::serialize(
                    status,
                    &Xrpc {
                        error,
                        message,
                        request_id,
                        details,
                    },
                )
            }
        };
        reply.reason = Some(*reason);
        reply.allow = *allow;
        reply.retry_after = retry_after.or(reason.retry_after());
        if status == 401 && *reason != Reason::BadWebhookSignature {
            // RFC 6750, section 3: no error code, which would help to guess tokens
            reply.field("www-authenticate", "Bearer");
        }
        reply
    }
}

impl From<NodeError> for Refusal {
    fn from(fault: NodeError) -> Self {
        let (reason, message) = match fault {
            NodeError::Timeout => (Reason::UpstreamTimeout, "the node did not answer in time"),
            NodeError::Unreachable | NodeError::Cut => {
                (Reason::UpstreamUnreachable, "the node cannot be reached")
            }
            NodeError::WrongChain => (
                Reason::UpstreamUnreachable,
                "the node has another chain than the served one",
            ),
            NodeError::Lagging => {
                let message = "lagging: every node that answers is behind an earlier answer";
                (Reason::UpstreamUnreachable, message)
            }
            NodeError::Starting => (
                Reason::NodeStarting,
                "the node is being built or started: retry later",
            ),
            NodeError::Redirect => (
                Reason::UpstreamRedirect,
                "the node answered with a redirect",
            ),
            NodeError::Status => (
                Reason::UpstreamStatus,
                "the node answered with an error status",
            ),
            NodeError::Oversized => (Reason::UpstreamOversized, "the node's answer is over 4 MiB"),
            NodeError::Invalid => (Reason::UpstreamInvalid, "the node's answer is not valid"),
            NodeError::OverShare => {
                let message = "too many large answers at once: read them before you send more";
                (Reason::TooManyInFlight, message)
            }
            NodeError::Crowded => (
                Reason::Overloaded,
                "the node is asked for more than it can answer: retry later",
            ),
            NodeError::Overloaded => (
                Reason::Overloaded,
                "too many requests are in flight: retry soon",
            ),
        };
        let retry_after = (fault == NodeError::Starting).then_some(NODE_START);
        Self {
            retry_after,
            ..Self::new(reason, message)
        }
    }
}
