//! Why a request was refused or could not be answered, and the refusal itself.

use crate::rpc::Id;
use alloc::borrow::Cow;
use alloc::boxed::Box;

/// The enum, its list and its names from one table: a reason is added in one place.
macro_rules! reasons {
    (
        $(#[$about:meta])*
        pub enum Reason { $($(#[$doc:meta])* $reason:ident = $name:literal,)* }
    ) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum Reason {
            $($(#[$doc])* $reason,)*
        }

        impl Reason {
            /// Every reason, in the order of the variants.
            pub const ALL: [Self; [$($name),*].len()] = [$(Self::$reason),*];

            /// The `snake_case` name that error bodies, logs and metrics carry.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$reason => $name,)*
                }
            }
        }
    };
}

reasons! {
    /// Why a request was refused or could not be answered. The closed list of what clients, logs
    /// and metrics name, in the order of the checks: the head, the body's shape, the policy, the
    /// chain's state, and what failed on our side. The HTTP status and the JSON-RPC code of each
    /// stand in one table in the program's `reply` module.
    pub enum Reason {
        /// The path is none of ours.
        NotFound = "not_found",
        /// The path does not take this HTTP method.
        WrongHttpMethod = "wrong_http_method",
        /// The request carries no good bearer token.
        Unauthorized = "unauthorized",
        /// The token is none that can be read.
        BadJwt = "bad_jwt",
        /// The token is of a kind that is not for this.
        BadJwtType = "bad_jwt_type",
        /// The token has expired, or is not valid yet.
        JwtExpired = "jwt_expired",
        /// The token is for another service.
        BadJwtAudience = "bad_jwt_audience",
        /// The token is for another method.
        BadJwtLexiconMethod = "bad_jwt_lexicon_method",
        /// The token's issuer is none whose keys can be known.
        BadJwtIss = "bad_jwt_iss",
        /// The token's signature is not its issuer's.
        BadJwtSignature = "bad_jwt_signature",
        /// The webhook's signature is not the verifier's over this body.
        BadWebhookSignature = "bad_webhook_signature",
        /// The user may not do this.
        Forbidden = "forbidden",
        /// The client spent its requests of this minute.
        RateLimited = "rate_limited",
        /// The client has too many requests under way.
        TooManyInFlight = "too_many_in_flight",
        /// The framing headers contradict each other, or frame in a way we do not read.
        ConflictingFraming = "conflicting_framing",
        /// The request's head is larger than configured.
        HeaderTooLarge = "header_too_large",
        /// An `Expect` that we do not meet.
        ExpectationFailed = "expectation_failed",
        /// An XRPC method that is not served here.
        UnknownMethod = "unknown_method",
        /// Not `application/json`.
        UnsupportedMediaType = "unsupported_media_type",
        /// The body carries a content coding.
        UnsupportedEncoding = "unsupported_encoding",
        /// The body is larger than what the endpoint takes.
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
        /// What was asked for was taken down, for good.
        Gone = "gone",
        /// No session has this subject reference.
        UnknownSubject = "unknown_subject",
        /// The event's id was used with another meaning.
        EventConflict = "event_conflict",
        /// The event is older than what is known.
        StaleTransition = "stale_transition",
        /// The status can not follow the one before.
        InvalidTransition = "invalid_transition",
        /// A call goes to a contract that is not pinned.
        ContractNotAllowed = "contract_not_allowed",
        /// A call goes to an entrypoint that users may not sign for.
        EntrypointNotAllowed = "entrypoint_not_allowed",
        /// A value is well-formed and outside of what the policy lets through.
        ArgumentNotAllowed = "argument_not_allowed",
        /// The transaction's version is not 3.
        TransactionVersion = "transaction_version",
        /// The transaction gives a tip.
        TipNotZero = "tip_not_zero",
        /// The transaction names a paymaster.
        PaymasterData = "paymaster_data",
        /// The transaction carries a proof or facts of one.
        ProofData = "proof_data",
        /// An invoke that would deploy its account.
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
        /// The account is of another class than the pinned one.
        ClassNotApproved = "class_not_approved",
        /// The address is not the one that follows from the public key.
        AddressMismatch = "address_mismatch",
        /// The public key is zero, or no point of the curve.
        PublicKeyInvalid = "public_key_invalid",
        /// The signature is not the account's over this transaction.
        SignatureInvalid = "signature_invalid",
        /// An assurance whose type or level is not on the list.
        AssuranceNotAllowed = "assurance_not_allowed",
        /// An epoch outside of the configured range.
        EpochOutOfRange = "epoch_out_of_range",
        /// What can not be undone was not confirmed word for word.
        ConfirmationRequired = "confirmation_required",
        /// The identity is bound to another account.
        IdentityTaken = "identity_taken",
        /// The account is bound to another identity.
        AccountTaken = "account_taken",
        /// There is no contract at the account's address.
        AccountNotDeployed = "account_not_deployed",
        /// The identity or the account is not registered.
        NotRegistered = "not_registered",
        /// The account is not verified.
        NotVerified = "not_verified",
        /// There is no attestation to revoke.
        NotAttested = "not_attested",
        /// The attestation's id was used with other content.
        AttestationReplayed = "attestation_replayed",
        /// The card was minted to another.
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
        /// The transaction's nonce is spent, or another's.
        NonceConflict = "nonce_conflict",
        /// The node did not take the transaction.
        Rejected = "rejected",
        /// The transaction reverted.
        Reverted = "reverted",
        /// The idempotency key was used with another request.
        IdempotencyConflict = "idempotency_conflict",
        /// The same write, or one before it, is not settled.
        InProgress = "in_progress",
        /// The recipient had a drip too short a time ago.
        FaucetCooldown = "faucet_cooldown",
        /// The node did not answer within the deadline.
        UpstreamTimeout = "upstream_timeout",
        /// The node could not be reached, or failed before it answered.
        UpstreamUnreachable = "upstream_unreachable",
        /// The node answered with a redirect.
        UpstreamRedirect = "upstream_redirect",
        /// The node answered with a status other than 200.
        UpstreamStatus = "upstream_status",
        /// The node's answer is over 4 MiB.
        UpstreamOversized = "upstream_oversized",
        /// The node's answer is not one JSON-RPC 2.0 response to our request.
        UpstreamInvalid = "upstream_invalid",
        /// Our own bound on memory or connections is reached.
        Overloaded = "overloaded",
        /// We are shutting down.
        Draining = "draining",
        /// The chain does not hold what it must, or could not be asked.
        PinsUnproven = "pins_unproven",
        /// The store could not keep or tell what it must.
        StoreUnavailable = "store_unavailable",
        /// The operator has not configured what this needs.
        NotConfigured = "not_configured",
        /// The keys that sessions are verified with can not be had.
        KeysUnavailable = "keys_unavailable",
        /// The transaction was sent, and no answer came.
        OutcomeUnknown = "outcome_unknown",
    }
}

impl Reason {
    /// Whether the request was one that could have been answered: what failed is on our side.
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
                | Self::StoreUnavailable
                | Self::NotConfigured
                | Self::KeysUnavailable
                | Self::OutcomeUnknown
        )
    }
}

/// A request that goes no further, with the text its sender may read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Why.
    pub reason: Reason,
    /// What the client reads: what was wrong and what to do, never an internal of ours.
    pub message: Cow<'static, str>,
    /// The request's JSON-RPC id as its bytes were, once it is known.
    pub id: Option<Box<str>>,
    /// The HTTP methods that the path takes, for [`Reason::WrongHttpMethod`].
    pub allow: Option<&'static str>,
}

impl Refusal {
    /// A refusal whose request id is not known (yet).
    pub fn new(reason: Reason, message: impl Into<Cow<'static, str>>) -> Self {
        Self { reason, message: message.into(), id: None, allow: None }
    }

    /// A body that is not JSON at all.
    pub(crate) fn not_json() -> Self {
        let message = "the body is not one JSON text in UTF-8 of at most 64 levels";
        Self::new(Reason::ParseError, message)
    }

    /// The same refusal, answering the request of this id.
    pub(crate) fn with_id(mut self, id: Option<Id<'_>>) -> Self {
        self.id = id.map(|id| Box::from(id.as_str()));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_reason_is_listed_once_in_order_with_a_name_of_its_own() {
        let mut names = std::collections::HashSet::new();
        for (at, reason) in Reason::ALL.into_iter().enumerate() {
            assert_eq!(reason as usize, at, "{reason:?} stands where its variant stands");
            assert!(names.insert(reason.name()), "{} is taken", reason.name());
        }
    }
}
