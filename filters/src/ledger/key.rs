//! Idempotency keys: a key names an intent, not a body, and belongs to one epoch of the chain.
//!
//! A key is claimed before the work, linked to the intent, and answered after the work. A claim
//! with neither link nor answer is in progress, or its process died. It has a token, so that only
//! its owner can release it.

use super::intent::{Intent, IntentId};
use super::state::IntentState;
use alloc::boxed::Box;
use alloc::string::String;

/// Identifies the request that claimed a key: 128 random bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimToken(pub [u8; 16]);

/// A key as it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The chain epoch that it belongs to.
    pub epoch: String,
    /// The operation that it was claimed for.
    pub operation: String,
    /// The digest of the request that it was claimed for.
    pub digest: [u8; 32],
    /// Its owner; `None` if an earlier version claimed it, or if it was claimed again with an
    /// intent.
    pub token: Option<ClaimToken>,
    /// The intent that it names.
    pub intent: Option<IntentId>,
    /// The response: status and body.
    pub answer: Option<(u16, String)>,
}

/// The outcome of claiming a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Claim {
    /// The caller holds the key: do the work, then answer or release it.
    New,
    /// The request was answered before: repeat the response.
    Answered {
        /// The HTTP status.
        status: u16,
        /// The body.
        body: String,
        /// The intent that it reports; `None` for a response that an earlier version stored without
        /// one.
        intent: Option<Box<Intent>>,
    },
    /// The key is claimed and not answered.
    Open {
        /// The intent that is linked to it, if any.
        intent: Option<Box<Intent>>,
    },
    /// The key belongs to another request.
    Conflict,
}

impl Key {
    /// Whether it was claimed for this request.
    #[must_use]
    pub fn is_of(&self, operation: &str, digest: &[u8; 32]) -> bool {
        self.operation == operation && self.digest == *digest
    }

    /// Whether an intent is of this key's own request, in its epoch. Earlier versions linked keys
    /// to intents of former epochs, too: such a link names nothing.
    #[must_use]
    pub fn is_for(&self, intent: &Intent) -> bool {
        self.epoch == intent.epoch && self.is_of(&intent.operation, &intent.digest)
    }

    /// Whether this key, which is linked to `former`, may name `next`, the intent of a request that
    /// joined it. `next` must be of the key's own request, and `former` rejected, lost or replaced
    /// by it.
    #[must_use]
    pub fn may_name(&self, former: Option<&Intent>, next: &Intent) -> bool {
        self.is_for(next) && may_link(former.filter(|former| self.is_for(former)), next)
    }

    /// The outcome of claiming this key, which is stored and linked to the intent `linked`.
    #[must_use]
    pub fn claimed(
        self,
        operation: &str,
        digest: &[u8; 32],
        token: ClaimToken,
        linked: Option<Intent>,
    ) -> Claim {
        if !self.is_of(operation, digest) {
            return Claim::Conflict;
        }
        // the commit of this very claim was not confirmed
        if self.token == Some(token) && self.intent.is_none() && self.answer.is_none() {
            return Claim::New;
        }
        let is_stale = linked.as_ref().is_some_and(|intent| !self.is_for(intent));
        if is_stale {
            return Claim::Open { intent: None };
        }
        debug_assert!(
            linked.as_ref().is_none_or(|it| self.intent == Some(it.id)),
            "the linked intent is the one that the key names"
        );
        // an answer is no longer true once its intent is rejected or lost
        let answer = self
            .answer
            .filter(|_| linked.as_ref().is_none_or(|it| it.state.holds()));
        let intent = linked.map(Box::new);
        match answer {
            Some((status, body)) => Claim::Answered {
                status,
                body,
                intent,
            },
            None => Claim::Open { intent },
        }
    }
}

/// Whether a key that names `former` may name `next` instead: there is no former one, it is
/// rejected or lost, or it is displaced and `next` was written in its place.
#[must_use]
pub(super) fn may_link(former: Option<&Intent>, next: &Intent) -> bool {
    former.is_none_or(|former| {
        let is_replaced = former.state == IntentState::Displaced
            && former.id < next.id
            && former.digest == next.digest
            && former.slot() == next.slot();
        !former.state.holds() || is_replaced
    })
}
