//! The status, JSON-RPC code and XRPC name of each reason.

use portcullis_filters::verdict::Reason;

/// The HTTP status and the JSON-RPC code of each reason. Codes: JSON-RPC 2.0, section 5.1; -32005
/// is "limit exceeded" in Ethereum's EIP-1474.
#[rustfmt::skip] // one line for each status, or a few
pub fn status_and_code(reason: Reason) -> (u16, i32) {
    use Reason as R;
    match reason {
        R::ParseError => (400, -32700),
        R::InvalidRequest | R::Batch | R::ConflictingFraming => (400, -32600),
        R::InvalidParams | R::UnknownFeed => (400, -32602),
        R::Unauthorized | R::BadJwt | R::BadJwtType | R::JwtExpired | R::BadJwtAudience
        | R::BadJwtLexiconMethod | R::BadJwtIss | R::BadJwtSignature
        | R::BadWebhookSignature => (401, -32600),
        R::Forbidden => (403, -32600),
        R::MethodNotAllowed => (403, -32601),
        R::ContractNotAllowed | R::EntrypointNotAllowed | R::ArgumentNotAllowed
        | R::TransactionVersion | R::TipNotZero | R::PaymasterData | R::ProofData
        | R::AccountDeploymentData | R::DataAvailabilityMode | R::TooManyCalls
        | R::CalldataTooLarge | R::CalldataMalformed | R::FeeBoundExceeded
        | R::SenderNotAllowed | R::ClassNotApproved | R::AddressMismatch | R::PublicKeyInvalid
        | R::SignatureInvalid | R::AssuranceNotAllowed | R::EpochOutOfRange
        | R::ConfirmationRequired => (403, -32602),
        R::NotFound | R::UnknownSubject => (404, -32600),
        R::WrongHttpMethod => (405, -32600),
        R::RequestTimeout => (408, -32600),
        R::IdentityTaken | R::AccountTaken | R::AccountNotDeployed | R::AccountAlreadyDeployed
        | R::NotRegistered | R::NotVerified | R::NotAttested | R::AttestationReplayed
        | R::AttestationNotInForce | R::AlreadyMinted
        | R::UsershipConflict | R::RecoveryPending | R::RecoveryNotPending
        | R::RecoveryNotReady | R::RecoveryNotCancellable | R::NonceConflict | R::Rejected
        | R::Reverted | R::RefusedByChain | R::IdempotencyConflict | R::InProgress => (409, -32000),
        R::EventConflict | R::StaleTransition | R::InvalidTransition => (409, -32000),
        R::Gone => (410, -32600),
        R::BodyTooLarge => (413, -32600),
        R::UnsupportedMediaType | R::UnsupportedEncoding => (415, -32600),
        R::ExpectationFailed => (417, -32600),
        R::RateLimited | R::TooManyInFlight | R::FaucetCooldown
        | R::BudgetExceeded => (429, -32005),
        R::HeaderTooLarge => (431, -32600),
        R::UnknownMethod => (501, -32601),
        R::UpstreamTimeout | R::UpstreamUnreachable | R::UpstreamRedirect | R::UpstreamStatus
        | R::UpstreamOversized | R::UpstreamInvalid => (502, -32603),
        R::Overloaded | R::Draining | R::PinsUnproven | R::FaucetEmpty | R::StoreUnavailable
        | R::FleetUnavailable | R::ChainPositionBehind | R::NodeStarting
        | R::NotConfigured | R::KeysUnavailable => (503, -32603),
        R::OutcomeUnknown => (504, -32603),
    }
}

/// The name of an error in XRPC: one of its default names, or a more specific one.
pub fn xrpc_name(reason: Reason) -> &'static str {
    use Reason as R;
    match reason {
        R::UnknownFeed => "UnknownFeed",
        R::BadJwt => "BadJwt",
        R::BadJwtType => "BadJwtType",
        R::JwtExpired => "JwtExpired",
        R::BadJwtAudience => "BadJwtAudience",
        R::BadJwtLexiconMethod => "BadJwtLexiconMethod",
        R::BadJwtIss => "BadJwtIss",
        R::BadJwtSignature => "BadJwtSignature",
        R::BadWebhookSignature => "InvalidSignature",
        R::UnknownSubject => "UnknownSubject",
        R::EventConflict => "EventConflict",
        R::StaleTransition => "StaleTransition",
        R::InvalidTransition => "InvalidTransition",
        R::StoreUnavailable => "StoreUnavailable",
        R::NotConfigured => "NotConfigured",
        R::KeysUnavailable => "KeysUnavailable",
        _ => match status_and_code(reason).0 {
            401 => "AuthenticationRequired",
            403 => "Forbidden",
            404 => "NotFound",
            405 => "MethodNotAllowed",
            408 => "RequestTimeout",
            409 => "Conflict",
            410 => "Gone",
            413 => "PayloadTooLarge",
            415 => "UnsupportedMediaType",
            417 => "ExpectationFailed",
            429 => "RateLimitExceeded",
            431 => "HeaderTooLarge",
            501 => "MethodNotImplemented",
            502 => "UpstreamFailure",
            503 => "NotEnoughResources",
            504 => "UpstreamTimeout",
            _ => "InvalidRequest",
        },
    }
}
