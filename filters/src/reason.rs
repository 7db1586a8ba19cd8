//! The closed list of reasons: one row for each, with its remedy.

use Api::{Gateway, Relay, Sidecar};

/// An API that gives reasons: each has a document that lists its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// The public read path.
    Gateway,
    /// The protected write path.
    Relay,
    /// The service endpoints.
    Sidecar,
}

const ALL: [Api; 3] = [Gateway, Relay, Sidecar];

/// The facts of a reason.
#[derive(Clone, Copy)]
struct Row {
    status: u16,
    code: i32,
    apis: &'static [Api],
    is_failure: bool,
    xrpc: Option<&'static str>,
}

impl Row {
    const fn named(mut self, xrpc: &'static str) -> Self {
        self.xrpc = Some(xrpc);
        self
    }
}

/// A reason to refuse a request, with the HTTP status, the JSON-RPC code and the APIs that give it.
const fn refused(status: u16, code: i32, apis: &'static [Api]) -> Row {
    Row {
        status,
        code,
        apis,
        is_failure: false,
        xrpc: None,
    }
}

/// A failure on our side.
const fn failed(status: u16, code: i32, apis: &'static [Api]) -> Row {
    Row {
        is_failure: true,
        ..refused(status, code, apis)
    }
}

/// Declares the enum and its rows.
macro_rules! reasons {
    (
        $(#[$about:meta])*
        pub enum $Set:ident {
            $($(#[$doc:meta])* $value:ident = $name:literal: $row:expr => $remedy:literal,)*
        }
    ) => {
        $crate::named::named! {
            $(#[$about])*
            pub enum $Set { $($(#[$doc])* $value = $name,)* }
        }

        impl $Set {
            const fn row(self) -> Row {
                match self {
                    $(Self::$value => $row,)*
                }
            }

            /// The remedy for the client, or after a failure for the operator.
            pub const fn remedy(self) -> &'static str {
                match self {
                    $(Self::$value => $remedy,)*
                }
            }
        }
    };
}

reasons! {
    /// Why a request was refused or failed: the closed list for clients, logs and metrics, in the
    /// order of the checks (the head, the body's shape, the policy, the chain's state, our own
    /// failures). Codes: JSON-RPC 2.0, section 5.1; -32005 is "limit exceeded" in Ethereum's
    /// EIP-1474.
    pub enum Reason {
        /// No endpoint has this path.
        NotFound = "not_found": refused(404, -32600, &ALL)
            => "use a path of the surface's document",
        /// The path does not take this HTTP method.
        WrongHttpMethod = "wrong_http_method": refused(405, -32600, &ALL)
            => "use a method of the field Allow",
        /// The request has no valid bearer token.
        Unauthorized = "unauthorized": refused(401, -32600, &[Relay, Sidecar])
            => "send `Authorization: Bearer` with the token of this surface",
        /// The token is malformed.
        BadJwt = "bad_jwt": refused(401, -32600, &[Sidecar]).named("BadJwt")
            => "send a whole JWT of three parts",
        /// The token is of the wrong type.
        BadJwtType = "bad_jwt_type": refused(401, -32600, &[Sidecar]).named("BadJwtType")
            => "send an access token, or a service token",
        /// The token has expired, or is not valid yet.
        JwtExpired = "jwt_expired": refused(401, -32600, &[Sidecar]).named("JwtExpired")
            => "get a new token, and check the clocks",
        /// The token is for another service.
        BadJwtAudience = "bad_jwt_audience":
            refused(401, -32600, &[Sidecar]).named("BadJwtAudience")
            => "ask for a token for this service",
        /// The token is for another method.
        BadJwtLexiconMethod = "bad_jwt_lexicon_method":
            refused(401, -32600, &[Sidecar]).named("BadJwtLexiconMethod")
            => "ask for a token for this method",
        /// The issuer's keys cannot be resolved.
        BadJwtIss = "bad_jwt_iss": refused(401, -32600, &[Sidecar]).named("BadJwtIss")
            => "check the issuer's DID document and its keys",
        /// The token's signature is not its issuer's.
        BadJwtSignature = "bad_jwt_signature":
            refused(401, -32600, &[Sidecar]).named("BadJwtSignature")
            => "sign with the key in the issuer's DID document, or in the key set",
        /// The webhook's signature is not the verifier's over this body.
        BadWebhookSignature = "bad_webhook_signature":
            refused(401, -32600, &[Sidecar]).named("InvalidSignature")
            => "sign the exact bytes of the body with the shared secret",
        /// The user may not do this.
        Forbidden = "forbidden": refused(403, -32600, &[Sidecar])
            => "let the operator decide: the account is banned",
        /// The operator refuses the client's network.
        Blocked = "blocked": refused(403, -32600, &[Gateway])
            => "ask the operator of this gateway",
        /// The client has used up its quota of requests a minute.
        RateLimited = "rate_limited": refused(429, -32005, &ALL)
            => "wait for Retry-After seconds, or share answers",
        /// The client has too many requests in flight.
        TooManyInFlight = "too_many_in_flight": refused(429, -32005, &ALL)
            => "wait for earlier requests to end",
        /// The framing headers contradict each other, or use an unsupported transfer coding.
        ConflictingFraming = "conflicting_framing": refused(400, -32600, &ALL)
            => "send one Content-Length, or one chunked Transfer-Encoding",
        /// The request's head is larger than configured.
        HeaderTooLarge = "header_too_large": refused(431, -32600, &ALL)
            => "send fewer or shorter fields",
        /// An `Expect` other than `100-continue`.
        ExpectationFailed = "expectation_failed": refused(417, -32600, &ALL)
            => "leave Expect out",
        /// An XRPC method that is not served here.
        UnknownMethod = "unknown_method": refused(501, -32601, &[Sidecar])
            => "use a method that the service describes",
        /// Not `application/json`.
        UnsupportedMediaType = "unsupported_media_type": refused(415, -32600, &ALL)
            => "send `Content-Type: application/json`",
        /// The body carries a content coding.
        UnsupportedEncoding = "unsupported_encoding": refused(415, -32600, &ALL)
            => "send the body without Content-Encoding",
        /// The body is larger than the endpoint accepts.
        BodyTooLarge = "body_too_large": refused(413, -32600, &ALL)
            => "send a smaller body",
        /// The head or the body did not arrive in time.
        RequestTimeout = "request_timeout": refused(408, -32600, &ALL)
            => "send the request at once, over a faster connection",
        /// Not one JSON text in UTF-8 within the depth limit.
        ParseError = "parse_error": refused(400, -32700, &ALL)
            => "send one JSON text in UTF-8",
        /// JSON, but not a JSON-RPC 2.0 request.
        InvalidRequest = "invalid_request": refused(400, -32600, &ALL)
            => "send a JSON-RPC 2.0 request with the documented members",
        /// A JSON-RPC batch.
        Batch = "batch": refused(400, -32600, &[Gateway, Relay])
            => "send each call as a request of its own",
        /// A method that is not on the allowlist.
        MethodNotAllowed = "method_not_allowed": refused(403, -32601, &[Gateway, Relay])
            => "use a permitted method, or let the operator permit this one",
        /// The parameters are not those of the method.
        InvalidParams = "invalid_params": refused(400, -32602, &[Gateway])
            => "send the parameters that the message names",
        /// A feed that this service does not generate.
        UnknownFeed = "unknown_feed": refused(400, -32602, &[Sidecar]).named("UnknownFeed")
            => "use a feed that the service describes",
        /// The resource was removed for good.
        Gone = "gone": refused(410, -32600, &[Sidecar])
            => "forget the address",
        /// No session has this subject reference.
        UnknownSubject = "unknown_subject": refused(404, -32600, &[Sidecar]).named("UnknownSubject")
            => "open a session first, and use its reference",
        /// The event's id was used with other content.
        EventConflict = "event_conflict": refused(409, -32000, &[Sidecar]).named("EventConflict")
            => "give another event another id",
        /// The event is older than the recorded status.
        StaleTransition = "stale_transition":
            refused(409, -32000, &[Sidecar]).named("StaleTransition")
            => "send no event that is older than the last one",
        /// The status cannot follow the current one.
        InvalidTransition = "invalid_transition":
            refused(409, -32000, &[Sidecar]).named("InvalidTransition")
            => "send a status that can follow the current one",
        /// A call goes to a contract that is not pinned.
        ContractNotAllowed = "contract_not_allowed": refused(403, -32602, &[Relay])
            => "call a pinned contract, or check the pins",
        /// A call goes to an entrypoint that users may not sign for.
        EntrypointNotAllowed = "entrypoint_not_allowed": refused(403, -32602, &[Relay])
            => "call a permitted entrypoint",
        /// A well-formed value that the policy does not permit.
        ArgumentNotAllowed = "argument_not_allowed": refused(403, -32602, &[Relay])
            => "use a value that the message permits",
        /// The transaction's version is not 3.
        TransactionVersion = "transaction_version": refused(403, -32602, &[Relay])
            => "sign version 3",
        /// The transaction has a tip.
        TipNotZero = "tip_not_zero": refused(403, -32602, &[Relay])
            => "sign with tip 0",
        /// The transaction names a paymaster.
        PaymasterData = "paymaster_data": refused(403, -32602, &[Relay])
            => "sign without a paymaster",
        /// The transaction carries a proof or proof facts.
        ProofData = "proof_data": refused(403, -32602, &[Relay])
            => "sign without proofs",
        /// An invoke that also deploys its account.
        AccountDeploymentData = "account_deployment_data": refused(403, -32602, &[Relay])
            => "deploy the account first, by a transaction of its own",
        /// A data availability mode other than L1.
        DataAvailabilityMode = "data_availability_mode": refused(403, -32602, &[Relay])
            => "sign with both modes L1",
        /// More calls in one transaction than configured.
        TooManyCalls = "too_many_calls": refused(403, -32602, &[Relay])
            => "split the transaction",
        /// More felts of calldata than configured.
        CalldataTooLarge = "calldata_too_large": refused(403, -32602, &[Relay])
            => "split the transaction",
        /// The calldata is not exactly one list of calls.
        CalldataMalformed = "calldata_malformed": refused(403, -32602, &[Relay])
            => "encode the calls as one list, with nothing after it",
        /// The resource bounds allow more gas or a higher fee than configured.
        FeeBoundExceeded = "fee_bound_exceeded": refused(403, -32602, &[Relay])
            => "sign lower resource bounds",
        /// The sender is an account that the relay signs with.
        SenderNotAllowed = "sender_not_allowed": refused(403, -32602, &[Relay])
            => "use an account of the user",
        /// The account is of another class than the pinned one.
        ClassNotApproved = "class_not_approved": refused(403, -32602, &[Relay])
            => "use an account of the pinned class",
        /// The address does not follow from the public key.
        AddressMismatch = "address_mismatch": refused(403, -32602, &[Relay])
            => "derive the address from this public key",
        /// The public key is zero, or not on the curve.
        PublicKeyInvalid = "public_key_invalid": refused(403, -32602, &[Relay])
            => "use a key on the curve",
        /// The signature is not the account's over this transaction.
        SignatureInvalid = "signature_invalid": refused(403, -32602, &[Relay])
            => "sign this transaction's hash with the account's key",
        /// The operator has switched off this operation.
        OperationDisabled = "operation_disabled": refused(403, -32602, &[Relay])
            => "ask the operator of the relay, or use another operation",
        /// An assurance whose type or level is not on the list.
        AssuranceNotAllowed = "assurance_not_allowed": refused(403, -32602, &[Relay])
            => "use a configured type and level",
        /// An epoch outside of the configured range.
        EpochOutOfRange = "epoch_out_of_range": refused(403, -32602, &[Relay])
            => "use an epoch of the configured range",
        /// An irreversible operation was not confirmed word for word.
        ConfirmationRequired = "confirmation_required": refused(403, -32602, &[Relay])
            => "confirm word for word",
        /// The identity is bound to another account.
        IdentityTaken = "identity_taken": refused(409, -32000, &[Relay])
            => "use the account that the identity has, or propose a recovery",
        /// The account is bound to another identity.
        AccountTaken = "account_taken": refused(409, -32000, &[Relay])
            => "use another account",
        /// There is no contract at the account's address.
        AccountNotDeployed = "account_not_deployed": refused(409, -32000, &[Relay])
            => "deploy the account first",
        /// The account that a transaction deploys exists.
        AccountAlreadyDeployed = "account_already_deployed": refused(409, -32000, &[Relay])
            => "send other transactions: nothing is left to deploy",
        /// The identity or the account is not registered.
        NotRegistered = "not_registered": refused(409, -32000, &[Relay])
            => "register the identity first",
        /// The account is not verified.
        NotVerified = "not_verified": refused(409, -32000, &[Relay])
            => "attest the account first",
        /// There is no attestation to revoke.
        NotAttested = "not_attested": refused(409, -32000, &[Relay])
            => "check the account: nothing is left to revoke",
        /// The attestation's id was used with other content.
        AttestationReplayed = "attestation_replayed": refused(409, -32000, &[Relay])
            => "use a new id for another attestation",
        /// The attestation was replaced by another one, or has expired.
        AttestationNotInForce = "attestation_not_in_force": refused(409, -32000, &[Relay])
            => "attest anew with another id",
        /// The card was minted to another account.
        AlreadyMinted = "already_minted": refused(409, -32000, &[Relay])
            => "use another card",
        /// The epoch has another result.
        UsershipConflict = "usership_conflict": refused(409, -32000, &[Relay])
            => "compare with the submitted result",
        /// Another recovery is pending.
        RecoveryPending = "recovery_pending": refused(409, -32000, &[Relay])
            => "execute or cancel the pending recovery first",
        /// No recovery is pending.
        RecoveryNotPending = "recovery_not_pending": refused(409, -32000, &[Relay])
            => "propose a recovery first",
        /// The recovery's delay has not passed.
        RecoveryNotReady = "recovery_not_ready": refused(409, -32000, &[Relay])
            => "wait until `ready_at`",
        /// The time to cancel the recovery has passed.
        RecoveryNotCancellable = "recovery_not_cancellable": refused(409, -32000, &[Relay])
            => "execute the recovery, and propose the next one",
        /// The transaction's nonce is spent or reserved.
        NonceConflict = "nonce_conflict": refused(409, -32000, &[Relay])
            => "sign with the account's next nonce",
        /// The node rejected the transaction.
        Rejected = "rejected": refused(409, -32000, &[Relay])
            => "remove the cause that the node names, then repeat the request",
        /// The transaction reverted.
        Reverted = "reverted": refused(409, -32000, &[Relay])
            => "remove the cause that the contract names",
        /// The chain refused a read or an estimate: nothing was sent.
        RefusedByChain = "refused_by_chain": refused(409, -32000, &[Relay])
            => "remove the cause that the node names: nothing was sent",
        /// The idempotency key was used with another request.
        IdempotencyConflict = "idempotency_conflict": refused(409, -32000, &[Relay])
            => "use another key for another request",
        /// An equal write or an earlier one is not settled.
        InProgress = "in_progress": refused(409, -32000, &[Relay])
            => "repeat the request after Retry-After seconds",
        /// The recipient's last drip is too recent.
        FaucetCooldown = "faucet_cooldown": refused(429, -32005, &[Relay])
            => "wait for Retry-After seconds",
        /// The day's budget of drips or of fees is used up.
        BudgetExceeded = "budget_exceeded": refused(429, -32005, &[Relay])
            => "wait for Retry-After seconds, or raise the budget",
        /// The node did not answer within the deadline.
        UpstreamTimeout = "upstream_timeout": failed(502, -32603, &[Gateway, Relay])
            => "find out why the node is slow",
        /// The node was unreachable, or failed before it answered.
        UpstreamUnreachable = "upstream_unreachable": failed(502, -32603, &[Gateway, Relay])
            => "start the node, or correct node.url",
        /// The node answered with a redirect.
        UpstreamRedirect = "upstream_redirect": failed(502, -32603, &[Gateway, Relay])
            => "set node.url to the address that the node redirects to",
        /// The node answered with a status other than 200.
        UpstreamStatus = "upstream_status": failed(502, -32603, &[Gateway, Relay])
            => "send the method to the node by hand, and read its status",
        /// The node's answer is over 4 MiB.
        UpstreamOversized = "upstream_oversized": failed(502, -32603, &[Gateway, Relay])
            => "ask for less, or read from the node itself",
        /// The node's answer is not a JSON-RPC 2.0 response to our request.
        UpstreamInvalid = "upstream_invalid": failed(502, -32603, &[Gateway, Relay])
            => "check what answers at node.url",
        /// The process is at its bound of memory or connections.
        Overloaded = "overloaded": failed(503, -32603, &ALL)
            => "repeat later, and find the limit that is used up",
        /// The process is shutting down.
        Draining = "draining": failed(503, -32603, &ALL)
            => "repeat the request: another process serves it",
        /// The chain does not match the pins, or could not be read.
        PinsUnproven = "pins_unproven": failed(503, -32603, &[Relay])
            => "compare the pins at GET /readyz with the chain",
        /// The faucet's account cannot pay a drip.
        FaucetEmpty = "faucet_empty": failed(503, -32603, &[Relay])
            => "fund the faucet's account",
        /// The store did not answer.
        StoreUnavailable = "store_unavailable":
            failed(503, -32603, &[Relay, Sidecar]).named("StoreUnavailable")
            => "start the database, or correct its address",
        /// The store of the shared limits did not answer.
        FleetUnavailable = "fleet_unavailable": failed(503, -32603, &ALL)
            => "start the store of the fleet",
        /// The chain has not reached the position that the request named.
        ChainPositionBehind = "chain_position_behind": refused(503, -32603, &[Gateway])
            => "repeat later, or forget the position if the chain went back",
        /// The node is being built or started.
        NodeStarting = "node_starting": failed(503, -32603, &[Gateway])
            => "wait until the node is started",
        /// The operator has not configured this function.
        NotConfigured = "not_configured": failed(503, -32603, &[Sidecar]).named("NotConfigured")
            => "set the key that the log names",
        /// The keys that verify sessions cannot be fetched.
        KeysUnavailable = "keys_unavailable":
            failed(503, -32603, &[Sidecar]).named("KeysUnavailable")
            => "check the address of the keys",
        /// The transaction was sent, but no answer arrived.
        OutcomeUnknown = "outcome_unknown": failed(504, -32603, &[Relay])
            => "repeat the request: nothing is sent twice",
    }
}

impl Reason {
    /// The HTTP status.
    pub const fn status(self) -> u16 {
        self.row().status
    }

    /// The JSON-RPC code.
    pub const fn code(self) -> i32 {
        self.row().code
    }

    /// Whether the failure is on our side, so that the request itself may be good. A position that
    /// the chain has not reached is no failure: a client may name any.
    pub const fn is_failure(self) -> bool {
        self.row().is_failure
    }

    /// Seconds until a retry may pass, unless its cause says more exactly.
    pub const fn retry_after(self) -> Option<u32> {
        match self.status() {
            429 | 503 => Some(1),
            _ => None,
        }
    }

    /// Whether `api` returns it.
    pub fn is_of(self, api: Api) -> bool {
        self.row().apis.contains(&api)
    }

    /// The name of the error in XRPC: one of its default names, or a more specific one.
    pub const fn xrpc_name(self) -> &'static str {
        let row = self.row();
        if let Some(name) = row.xrpc {
            return name;
        }
        match row.status {
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
        }
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

    #[test]
    fn the_runbook_names_each_failure() {
        let text = include_str!("../../conf/prometheus/RUNBOOK.md");
        for reason in Reason::ALL.into_iter().filter(|reason| reason.is_failure()) {
            let name = format!("`{}`", reason.name());
            assert!(text.contains(&name), "{name}: {}", reason.remedy());
        }
    }

    #[test]
    fn what_clients_rely_on_is_as_before() {
        let mut rows = String::new();
        for reason in Reason::ALL {
            let kind = if reason.is_failure() {
                "failure"
            } else {
                "refusal"
            };
            let apis = reason.row().apis;
            let (name, status, code) = (reason.name(), reason.status(), reason.code());
            let xrpc = reason.xrpc_name();
            rows += &format!("{name} {status} {code} {xrpc} {apis:?} {kind}\n");
        }
        assert_eq!(rows, include_str!("reasons.golden"));
    }
}
