//! Why a request was refused or could not be answered, and the refusal itself.

use crate::rpc::Id;
use crate::rpc::json::Json;
use alloc::borrow::Cow;
use alloc::boxed::Box;

pub use crate::reason::{Api, Reason};

/// A refused request, with the text that its sender may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The reason, from the closed list.
    pub reason: Reason,
    /// The text for the client: what was wrong and what to do, nothing internal.
    pub message: Cow<'static, str>,
    /// The request's JSON-RPC id, byte for byte, once it is known.
    pub id: Option<Box<str>>,
    /// The HTTP methods that the path takes, for [`Reason::WrongHttpMethod`].
    pub allow: Option<&'static str>,
    /// The remedy, if one is likely to help.
    pub hint: Option<Cow<'static, str>>,
    /// Seconds until a retry may pass, if that is known.
    pub retry_after: Option<u32>,
}

impl Refusal {
    /// A refusal without a request id.
    pub fn new(reason: Reason, message: impl Into<Cow<'static, str>>) -> Self {
        let message = message.into();
        Self {
            reason,
            message,
            id: None,
            allow: None,
            hint: None,
            retry_after: None,
        }
    }

    /// Adds a remedy.
    pub(crate) fn with_hint(mut self, hint: impl Into<Option<Cow<'static, str>>>) -> Self {
        self.hint = hint.into();
        self
    }

    /// The refusal of a body that is not JSON.
    pub(crate) fn not_json() -> Self {
        let message = "the body is not one JSON text in UTF-8 of at most 64 levels";
        Self::new(Reason::ParseError, message)
    }

    /// The refusal of a body that is not a JSON object.
    pub(crate) fn not_an_object(body: Option<Json<'_>>) -> Self {
        match body {
            Some(Json::Array(_)) => {
                let message = "batches are not supported: send a single call per request";
                let hint = "send each call as a request of its own; starknet.js: leave out \
                     `batch`, or give the provider a `baseFetch` that splits it";
                Self::new(Reason::Batch, message).with_hint(Cow::Borrowed(hint))
            }
            Some(_) => Self::new(Reason::InvalidRequest, "the body must be a JSON object"),
            None => Self::not_json(),
        }
    }

    /// Adds the id of the request.
    pub(crate) fn with_id(mut self, id: Option<Id<'_>>) -> Self {
        self.id = id.map(|id| Box::from(id.as_str()));
        self
    }
}
