//! Why a request was refused or could not be answered, and the refusal itself.

use crate::named::named;
use crate::rpc::Id;
use crate::rpc::json::Json;
use alloc::borrow::Cow;
use alloc::boxed::Box;

named! {
    /// Why a request was refused or failed: the closed list for clients, logs and metrics, in the
    /// order of the checks (the head, the body's shape, the policy, the chain's state, our own
    /// failures). The program's `reply` module has the HTTP status and the JSON-RPC code of each.
    pub enum Reason {
        /// No endpoint has this path.
        NotFound = "not_found",
        /// The path does not take this HTTP method.
        WrongHttpMethod = "wrong_http_method",
        /// The request has no valid bearer token.
        Unauthorized = "unauthorized",
        /// The token is malformed.
        BadJwt = "bad_jwt",
        /// The token is of the wrong type.
        BadJwtType = "bad_jwt_type",
        /// The token has expired, or is not valid yet.
        JwtExpired = "jwt_expired",
        /// The token is for another service.
        BadJwtAudience = "bad_jwt_audience",
        /// The token is for another method.
        BadJwtLexiconMethod = "bad_jwt_lexicon_method",
        /// The issuer's keys cannot be resolved.
        BadJwtIss = "bad_jwt_iss",
        /// The token's signature is not its issuer's.
        BadJwtSignature = "bad_jwt_signature",
        /// The webhook's signature is not the verifier's over this body.
        BadWebhookSignature = "bad_webhook_signature",
        /// The user may not do this.
        Forbidden = "forbidden",
        /// The client has used up its quota of requests a minute.
        RateLimited = "rate_limited",
        /// The client has too many requests in flight.
        TooManyInFlight = "too_many_in_flight",
        /// The framing headers contradict each other, or use an unsupported transfer coding.
        ConflictingFraming = "conflicting_framing",
        /// The request's head is larger than configured.
        HeaderTooLarge = "header_too_large",
        /// An `Expect` other than `100-continue`.
        ExpectationFailed = "expectation_failed",
        /// An XRPC method that is not served here.
        UnknownMethod = "unknown_method",
        /// Not `application/json`.
        UnsupportedMediaType = "unsupported_media_type",
        /// The body carries a content coding.
        UnsupportedEncoding = "unsupported_encoding",
        /// The body is larger than the endpoint accepts.
        BodyTooLarge = "body_too_large",
        /// The head or the body did not arrive in time.
        RequestTimeout = "request_timeout",
        /// Not one JSON text in UTF-8 within the depth limit.
        ParseError = "parse_error",
        /// JSON, but not a JSON-RPC 2.0 request.
        InvalidRequest = "invalid_request",
        /// A JSON-RPC batch.
        Batch = "batch",
        /// A method that is not on the allowlist.
        MethodNotAllowed = "method_not_allowed",
        /// The parameters are not those of the method.
        InvalidParams = "invalid_params",
        /// A feed that this service does not generate.
        UnknownFeed = "unknown_feed",
        /// The resource was removed for good.
        Gone = "gone",
        /// No session has this subject reference.
        UnknownSubject = "unknown_subject",
        /// The event's id was used with other content.
        EventConflict = "event_conflict",
        /// The event is older than the recorded status.
        StaleTransition = "stale_transition",
        /// The status cannot follow the current one.
        InvalidTransition = "invalid_transition",
        /// A call goes to a contract that is not pinned.
        ContractNotAllowed = "contract_not_allowed",
        /// A call goes to an entrypoint that users may not sign for.
        EntrypointNotAllowed = "entrypoint_not_allowed",
        /// A well-formed value that the policy does not permit.
        ArgumentNotAllowed = "argument_not_allowed",
        /// The transaction's version is not 3.
        TransactionVersion = "transaction_version",
        /// The transaction has a tip.
        TipNotZero = "tip_not_zero",
        /// The transaction names a paymaster.
        PaymasterData = "paymaster_data",
        /// The transaction carries a proof or proof facts.
        ProofData = "proof_data",
        /// An invoke that also deploys its account.
        AccountDeploymentData = "account_deployment_data",
        /// A data availability mode other than L1.
        DataAvailabilityMode = "data_availability_mode",
        /// More calls in one transaction than configured.
        TooManyCalls = "too_many_calls",
        /// More felts of calldata than configured.
        CalldataTooLarge = "calldata_too_large",
        /// The calldata is not exactly one list of calls.
        CalldataMalformed = "calldata_malformed",
        /// The resource bounds allow more gas or a higher fee than configured.
        FeeBoundExceeded = "fee_bound_exceeded",
        /// The sender is an account that the relay signs with.
        SenderNotAllowed = "sender_not_allowed",
        /// The account is of another class than the pinned one.
        ClassNotApproved = "class_not_approved",
        /// The address does not follow from the public key.
        AddressMismatch = "address_mismatch",
        /// The public key is zero, or not on the curve.
        PublicKeyInvalid = "public_key_invalid",
        /// The signature is not the account's over this transaction.
        SignatureInvalid = "signature_invalid",
        /// An assurance whose type or level is not on the list.
        AssuranceNotAllowed = "assurance_not_allowed",
        /// An epoch outside of the configured range.
        EpochOutOfRange = "epoch_out_of_range",
        /// An irreversible operation was not confirmed word for word.
        ConfirmationRequired = "confirmation_required",
        /// The identity is bound to another account.
        IdentityTaken = "identity_taken",
        /// The account is bound to another identity.
        AccountTaken = "account_taken",
        /// There is no contract at the account's address.
        AccountNotDeployed = "account_not_deployed",
        /// The account that a transaction deploys exists.
        AccountAlreadyDeployed = "account_already_deployed",
        /// The identity or the account is not registered.
        NotRegistered = "not_registered",
        /// The account is not verified.
        NotVerified = "not_verified",
        /// There is no attestation to revoke.
        NotAttested = "not_attested",
        /// The attestation's id was used with other content.
        AttestationReplayed = "attestation_replayed",
        /// The attestation was replaced by another one, or has expired.
        AttestationNotInForce = "attestation_not_in_force",
        /// The card was minted to another account.
        AlreadyMinted = "already_minted",
        /// The epoch has another result.
        UsershipConflict = "usership_conflict",
        /// Another recovery is pending.
        RecoveryPending = "recovery_pending",
        /// No recovery is pending.
        RecoveryNotPending = "recovery_not_pending",
        /// The recovery's delay has not passed.
        RecoveryNotReady = "recovery_not_ready",
        /// The time to cancel the recovery has passed.
        RecoveryNotCancellable = "recovery_not_cancellable",
        /// The transaction's nonce is spent or reserved.
        NonceConflict = "nonce_conflict",
        /// The node rejected the transaction.
        Rejected = "rejected",
        /// The transaction reverted.
        Reverted = "reverted",
        /// The chain refused a read or an estimate: nothing was sent.
        RefusedByChain = "refused_by_chain",
        /// The idempotency key was used with another request.
        IdempotencyConflict = "idempotency_conflict",
        /// An equal write or an earlier one is not settled.
        InProgress = "in_progress",
        /// The recipient's last drip is too recent.
        FaucetCooldown = "faucet_cooldown",
        /// The day's budget of drips or of fees is used up.
        BudgetExceeded = "budget_exceeded",
        /// The node did not answer within the deadline.
        UpstreamTimeout = "upstream_timeout",
        /// The node was unreachable, or failed before it answered.
        UpstreamUnreachable = "upstream_unreachable",
        /// The node answered with a redirect.
        UpstreamRedirect = "upstream_redirect",
        /// The node answered with a status other than 200.
        UpstreamStatus = "upstream_status",
        /// The node's answer is over 4 MiB.
        UpstreamOversized = "upstream_oversized",
        /// The node's answer is not a JSON-RPC 2.0 response to our request.
        UpstreamInvalid = "upstream_invalid",
        /// The process is at its bound of memory or connections.
        Overloaded = "overloaded",
        /// The process is shutting down.
        Draining = "draining",
        /// The chain does not match the pins, or could not be read.
        PinsUnproven = "pins_unproven",
        /// The faucet's account cannot pay a drip.
        FaucetEmpty = "faucet_empty",
        /// The store did not answer.
        StoreUnavailable = "store_unavailable",
        /// The store of the shared limits did not answer.
        FleetUnavailable = "fleet_unavailable",
        /// The chain has not reached the position that the request named.
        ChainPositionBehind = "chain_position_behind",
        /// The node is being built or started.
        NodeStarting = "node_starting",
        /// The operator has not configured this function.
        NotConfigured = "not_configured",
        /// The keys that verify sessions cannot be fetched.
        KeysUnavailable = "keys_unavailable",
        /// The transaction was sent, but no answer arrived.
        OutcomeUnknown = "outcome_unknown",
    }
}

impl Reason {
    /// Whether the failure is on our side, so that the request itself may be good. A position that
    /// the chain has not reached is no failure: a client may name any.
    pub const fn is_failure(self) -> bool {
        matches!(
            self,
            Self::UpstreamTimeout
                | Self::UpstreamUnreachable
                | Self::UpstreamRedirect
                | Self::UpstreamStatus
                | Self::UpstreamOversized
                | Self::UpstreamInvalid
                | Self::Overloaded
                | Self::Draining
                | Self::PinsUnproven
                | Self::FaucetEmpty
                | Self::StoreUnavailable
                | Self::FleetUnavailable
                | Self::NodeStarting
                | Self::NotConfigured
                | Self::KeysUnavailable
                | Self::OutcomeUnknown
        )
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_has_its_own_name() {
        let mut names = std::collections::HashSet::new();
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at, "{reason:?} is out of order");
            assert!(names.insert(reason.name()), "{} is taken", reason.name());
        }
    }
}
