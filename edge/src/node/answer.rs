//! A verified answer of the node.

use super::cause::{Cause, FailedAttempt};
use super::{CallFailure, NodeError};
use bytes::Bytes;
use portcullis_base::io::MemoryPermit;
use portcullis_base::io::gzip::GzipForm;
use portcullis_filters::chain::{FailureClass, InvalidAnswer};
use portcullis_filters::rpc::response::Outcome;
use serde::Deserialize;
use std::sync::Arc;

/// 4 MiB: the bound on the body of a node's answer.
pub const MAX_ANSWER: usize = 4 << 20;

/// The name of the member that holds a result.
pub(super) const RESULT: &str = "result";

/// The name and the text of a verified payload's member.
pub(super) type Payload = (&'static str, Bytes);

/// The payload of a verified answer, and its share of the memory for answers. Clones share both.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The name of the payload's member: `result` or `error`.
    pub member: &'static str,
    /// The payload's JSON text, as the node wrote it.
    pub payload: Bytes,
    /// Released when the answer has been sent to every client that waits for it.
    pub memory: Arc<MemoryPermit>,
    /// The gzip form of the payload, made for the first client that accepts it.
    pub gzip: GzipForm,
    /// The index in the configuration of the URL that answered; `None` if no call was needed.
    pub node: Option<usize>,
}

impl Answer {
    /// Whether the answer is a result, not the node's error.
    pub fn is_result(&self) -> bool {
        self.member == RESULT
    }

    /// The code of the node's error; `None` if the answer is a result.
    pub fn error_code(&self) -> Option<i64> {
        if self.is_result() {
            return None;
        }
        Some(error_code(&(self.member, self.payload.clone())))
    }
}

/// The part of an error that is read.
#[derive(Deserialize)]
struct ErrorCode {
    code: i64,
}

/// The code of the error in a payload; 0 if it is a result.
pub(super) fn error_code(payload: &Payload) -> i64 {
    let (member, text) = payload;
    if *member == RESULT {
        return 0;
    }
    serde_json::from_slice(text).map_or(0, |ErrorCode { code }| code)
}

/// The class of an error that the API does not define; `None` if the payload is an answer.
pub(super) fn failure_class(payload: &Payload) -> Option<FailureClass> {
    FailureClass::of_error(error_code(payload))
}

/// Returns the payload of a body that is one complete response to the request with this id.
pub(super) fn verify(body: &Bytes, id: u64) -> Result<Payload, FailedAttempt> {
    let outcome = Outcome::verify(body, id).ok_or_else(|| FailedAttempt {
        failure: CallFailure::After(NodeError::Invalid),
        cause: Cause::Invalid(InvalidAnswer::of(body, id)),
    })?;
    let (member, payload) = match outcome {
        Outcome::Result(text) => (RESULT, text),
        Outcome::Error(text) => ("error", text),
    };
    Ok((member, body.slice_ref(payload)))
}
