//! Verdict to status and body: the one place that knows them.
//!
//! In comes an answer, a refusal of the policy or a fault of the node; out goes a [`Reply`], and
//! from [`render`] its bytes. What a client reads here is all it learns: no address, no internal
//! text.

mod wire;

pub use wire::{Facts, Persistence, render};

use crate::node::{Answer, Fault, Lease};
use bytes::Bytes;
use portcullis_filters::verdict::{Reason, Refusal};

/// What goes back to a client, but for what every answer carries ([`render`] adds that).
#[derive(Debug, Default)]
pub struct Reply {
    /// The HTTP status.
    pub status: u16,
    /// Why it is no answer.
    pub reason: Option<Reason>,
    /// `Content-Type`, of a reply with a body.
    pub media_type: Option<&'static str>,
    /// The body, in pieces.
    pub body: [Bytes; 3],
    /// `Allow`.
    pub allow: Option<&'static str>,
    /// `Retry-After` in seconds.
    pub retry_after: Option<u32>,
    /// Whether to say that a bearer token is asked for.
    pub www_authenticate: bool,
    /// The answer's share of memory, held until it is sent.
    pub lease: Option<Lease>,
}

/// How an error is worded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// A JSON-RPC 2.0 error.
    JsonRpc,
    /// `{"ok":false,"error":…}`, as the relay's operations answer.
    Plain,
}

const JSON: Option<&str> = Some("application/json");
const TEXT: Option<&str> = Some("text/plain; charset=utf-8");

impl Reply {
    /// The liveness answer.
    pub fn health() -> Self {
        let body = [Bytes::from_static(b"ok\n"), Bytes::new(), Bytes::new()];
        Self { status: 200, media_type: TEXT, body, ..Self::default() }
    }

    /// An answer without a body.
    pub fn no_content() -> Self {
        Self { status: 204, ..Self::default() }
    }

    /// The node's answer to the request of this id, its payload as the node wrote it.
    pub fn answer(id: &str, answer: Answer) -> Self {
        let Answer { member, payload, lease } = answer;
        let mut start = Vec::with_capacity(32 + id.len() + member.len());
        for piece in [r#"{"jsonrpc":"2.0","id":"#, id, ",\"", member, "\":"] {
            start.extend_from_slice(piece.as_bytes());
        }
        let body = [start.into(), payload, Bytes::from_static(b"}")];
        Self { status: 200, media_type: JSON, body, lease: Some(lease), ..Self::default() }
    }

    /// A refusal.
    pub fn refusal(style: Style, refusal: &Refusal, request_id: &str) -> Self {
        let Refusal { reason, message, id, allow } = refusal;
        let mut reply = Self::error(style, *reason, message, id.as_deref(), "", request_id);
        reply.allow = *allow;
        reply
    }

    /// A fault of the node, in answer to the request of this JSON-RPC id.
    pub fn fault(style: Style, fault: Fault, id: Option<&str>, request_id: &str) -> Self {
        let (reason, message) = fault_words(fault);
        Self::error(style, reason, message, id, "", request_id)
    }

    /// An error. `more` are members of its data, as JSON text, each with a comma before it.
    pub fn error(
        style: Style,
        reason: Reason,
        message: &str,
        id: Option<&str>,
        more: &str,
        request_id: &str,
    ) -> Self {
        let (status, code) = status_and_code(reason);
        let id = id.unwrap_or("null");
        let message = serde_json::Value::from(message);
        let name = reason.name();
        let body = match style {
            Style::JsonRpc => format!(
                r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message},"data":{{"reason":"{name}","request_id":"{request_id}"{more}}}}}}}"#
            ),
            Style::Plain => format!(
                r#"{{"ok":false,"error":{{"reason":"{name}","message":{message},"request_id":"{request_id}"{more}}}}}"#
            ),
        };
        Self {
            reason: Some(reason),
            retry_after: matches!(status, 429 | 503).then_some(1),
            www_authenticate: status == 401,
            ..Self::json(status, body)
        }
    }

    /// An answer in JSON.
    pub fn json(status: u16, body: String) -> Self {
        let body = [body.into(), Bytes::new(), Bytes::new()];
        Self { status, media_type: JSON, body, ..Self::default() }
    }

    /// Bytes of the body.
    pub fn length(&self) -> usize {
        self.body.iter().map(Bytes::len).sum()
    }
}

/// What is said of a fault of the node.
pub fn fault_words(fault: Fault) -> (Reason, &'static str) {
    match fault {
        Fault::Timeout => (Reason::UpstreamTimeout, "the node did not answer in time"),
        Fault::Unreachable | Fault::Cut => {
            (Reason::UpstreamUnreachable, "the node can not be reached")
        }
        Fault::Redirect => (Reason::UpstreamRedirect, "the node answered with a redirect"),
        Fault::Status => (Reason::UpstreamStatus, "the node answered with an error status"),
        Fault::Oversized => (Reason::UpstreamOversized, "the node's answer is over 4 MiB"),
        Fault::Invalid => (Reason::UpstreamInvalid, "the node's answer is not valid"),
        Fault::Overloaded => (Reason::Overloaded, "too much is under way: try again soon"),
    }
}

/// The HTTP status and the JSON-RPC code of each reason. Codes: JSON-RPC 2.0, section 5.1; -32005
/// is the "limit exceeded" that Ethereum's EIP-1474 brought into use.
pub fn status_and_code(reason: Reason) -> (u16, i32) {
    use Reason as R;
    match reason {
        R::ParseError => (400, -32700),
        R::InvalidRequest | R::Batch | R::ConflictingFraming => (400, -32600),
        R::InvalidParams => (400, -32602),
        R::Unauthorized => (401, -32600),
        R::MethodNotAllowed => (403, -32601),
        R::ContractNotAllowed
        | R::EntrypointNotAllowed
        | R::ArgumentNotAllowed
        | R::TransactionVersion
        | R::TipNotZero
        | R::PaymasterData
        | R::ProofData
        | R::AccountDeploymentData
        | R::DataAvailabilityMode
        | R::TooManyCalls
        | R::CalldataTooLarge
        | R::CalldataMalformed
        | R::FeeBoundExceeded
        | R::ClassNotApproved
        | R::AddressMismatch
        | R::PublicKeyInvalid
        | R::SignatureInvalid
        | R::AssuranceNotAllowed
        | R::EpochOutOfRange
        | R::ConfirmationRequired => (403, -32602),
        R::NotFound => (404, -32600),
        R::WrongHttpMethod => (405, -32600),
        R::RequestTimeout => (408, -32600),
        R::IdentityTaken
        | R::AccountTaken
        | R::AccountNotDeployed
        | R::NotRegistered
        | R::NotVerified
        | R::NotAttested
        | R::AttestationReplayed
        | R::AlreadyMinted
        | R::UsershipConflict
        | R::RecoveryPending
        | R::RecoveryNotPending
        | R::RecoveryNotReady
        | R::RecoveryNotCancellable
        | R::NonceConflict
        | R::Rejected
        | R::Reverted
        | R::IdempotencyConflict
        | R::InProgress => (409, -32000),
        R::BodyTooLarge => (413, -32600),
        R::UnsupportedMediaType | R::UnsupportedEncoding => (415, -32600),
        R::ExpectationFailed => (417, -32600),
        R::RateLimited | R::TooManyInFlight | R::FaucetCooldown => (429, -32005),
        R::HeaderTooLarge => (431, -32600),
        R::UpstreamTimeout
        | R::UpstreamUnreachable
        | R::UpstreamRedirect
        | R::UpstreamStatus
        | R::UpstreamOversized
        | R::UpstreamInvalid => (502, -32603),
        R::Overloaded | R::Draining | R::PinsUnproven | R::StoreUnavailable => (503, -32603),
        R::OutcomeUnknown => (504, -32603),
    }
}
