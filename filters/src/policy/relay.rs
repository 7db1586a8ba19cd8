//! The relay's policy: the permitted writes, for holders of the token.
//!
//! [`RelayPolicy::admit`] checks route, bearer token, rate, requests in flight, headers and size,
//! in this order: only the route is judged before the token. [`RelayPolicy::inspect`] judges
//! the body: a user's transaction, or an operation that the relay signs. What the configuration
//! does not admit is refused later ([`OperationPermit::admission`], [`Unverified::admission`]): a
//! repeat gets its answer by its key or its hash. The state of the chain is checked with the
//! permit.

use super::{Admission, Admitted, Finding, PendingCall, Unverified};
use crate::bearer::Tokens;
use crate::client::{ClientKey, TrustedProxies};
use crate::felt::Felt;
use crate::head::{
    Head, MAX_BODY, allowed_method, any_headers, body_headers, client, declared_size, framing,
    too_many_in_flight, within_failed_tokens, within_rate, within_size,
};
use crate::limit::{Limiter, Millis, RateCheck};
use crate::operations::{Operation, OperationKind, OperationPolicy};
use crate::tx::Contracts;
use crate::verdict::{Reason, Refusal};
use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use http::HeaderName;

/// The longest `Idempotency-Key`: a UUID or a hash with a prefix.
const MAX_KEY: usize = 128;

/// The parameters of the relay's policy.
#[derive(Clone, Debug)]
pub struct RelayPolicy {
    /// The bearer tokens.
    pub tokens: Tokens,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: TrustedProxies,
    /// The chain id that every signature covers.
    pub chain_id: Felt,
    /// The approved account class.
    pub account_class: Felt,
    /// The contracts that users may call.
    pub contracts: Contracts,
    /// The bounds of one transaction.
    pub caps: Caps,
    /// The operations that are served.
    pub operations: Vec<OperationKind>,
    /// Assurances that may be attested.
    pub assurance_types: Vec<String>,
    /// Levels that may be attested.
    pub assurance_levels: Vec<u8>,
    /// Epochs whose usership results are accepted.
    pub usership_epochs: RangeInclusive<u64>,
}

/// The bounds of one user-signed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// The most calls.
    pub max_calls: usize,
    /// The most felts of calldata.
    pub max_felts: usize,
    /// The most L2 gas.
    pub max_l2_gas: u64,
    /// The highest fee that the bounds may allow, in fri.
    pub max_fee: u128,
}

/// An endpoint of the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// `GET /readyz`: proves the pins.
    Ready,
    /// `POST /rpc`: submits a user's transaction.
    Rpc,
    /// `POST` to an operation's path.
    Operation(OperationKind),
}

impl Endpoint {
    /// The endpoint at this request target. Paths match exactly, on the raw bytes.
    pub fn at(target: &[u8]) -> Option<Self> {
        match target {
            b"/readyz" => Some(Self::Ready),
            b"/rpc" => Some(Self::Rpc),
            path => OperationKind::parse_path(path).map(Self::Operation),
        }
    }

    /// The name in logs and metrics: the path without its slash.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "readyz",
            Self::Rpc => "rpc",
            Self::Operation(kind) => kind.name(),
        }
    }
}

/// The parts of a call's head that the relay reads.
#[derive(Debug)]
pub struct RelayCall {
    /// The endpoint.
    pub endpoint: Endpoint,
    /// The client's name for this request: a repeat gets the first response again.
    pub idempotency_key: Option<String>,
}

/// A body that passed every check of its shape.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "matched at once, stored nowhere")]
pub enum Inspected<'a> {
    /// A user's transaction, to be verified by its sender's account.
    Transaction(Unverified<'a>),
    /// An operation for the relay to sign, if it is admitted.
    Operation(OperationPermit),
}

/// A well-formed operation, which its idempotency key may answer. Nothing is written for it unless
/// it is admitted; the state of the chain is not checked yet.
#[derive(Debug)]
pub struct OperationPermit {
    operation: Operation,
    admission: Result<(), Box<Refusal>>,
}

impl OperationPermit {
    /// The operation.
    pub fn operation(&self) -> &Operation {
        &self.operation
    }

    /// The body in canonical form.
    pub fn canonical(&self) -> String {
        self.operation.canonical()
    }

    /// The digest, which identifies the operation.
    pub fn digest(&self) -> [u8; 32] {
        self.operation.digest()
    }

    /// Whether the operation may be written: the result of the checks that depend on the time or
    /// the configuration. It does not apply to a repeat that an earlier write answers.
    ///
    /// # Errors
    /// Returns the refusal of the first of these checks that failed.
    pub fn admission(&self) -> Result<(), &Refusal> {
        match &self.admission {
            Ok(()) => Ok(()),
            Err(refusal) => Err(refusal),
        }
    }
}

impl RelayPolicy {
    /// Judges the head of a request at `now`. `failed_token` counts a wrong token and checks the
    /// client by the limit of those; a request with a valid token is never refused for them.
    /// `enter` takes a place among the client's requests in flight, or returns `None` when the
    /// client has too many.
    pub fn admit<L: Limiter, G>(
        &self,
        head: &Head<'_>,
        limiter: &L,
        now: Millis,
        failed_token: impl FnOnce(ClientKey) -> RateCheck<L::Ticket>,
        enter: impl FnOnce(ClientKey) -> Option<G>,
    ) -> Admission<RelayCall, G, L::Ticket> {
        let client = client(head, &self.trusted_proxies);
        let mut rate_limit = None;
        let verdict = route(head).and_then(|endpoint| {
            let Some(endpoint) = endpoint else {
                return framing(head).map(|()| Admitted::Health);
            };
            if !self.tokens.authorize(head) {
                match failed_token(client.key) {
                    RateCheck::Decided(status) => within_failed_tokens(status)?,
                    pending @ RateCheck::Pending(_) => rate_limit = Some(pending),
                }
                return Err(unauthorized());
            }
            rate_limit
                .insert(limiter.check(client.key, now))
                .judge(within_rate)?;
            let slot = enter(client.key).ok_or_else(too_many_in_flight)?;
            let expects_continue = match endpoint {
                Endpoint::Ready => any_headers(head).map(|()| false)?,
                Endpoint::Rpc | Endpoint::Operation(_) => body_headers(head)?,
            };
            let call = RelayCall {
                endpoint,
                idempotency_key: idempotency_key(head)?,
            };
            declared_size(head, MAX_BODY)?;
            let max_body = MAX_BODY;
            Ok(Admitted::Call(PendingCall {
                call,
                slot: Some(slot),
                expects_continue,
                max_body,
            }))
        });
        Admission {
            client,
            rate_limit,
            verdict,
        }
    }

    /// Judges the whole body of an admitted call, at `now` in seconds since 1970.
    ///
    /// # Errors
    /// Returns the refusal of the first check that fails; on `/rpc`, with the request's id if
    /// known.
    pub fn inspect<'a>(
        &self,
        endpoint: Endpoint,
        body: &'a [u8],
        now: u64,
    ) -> Result<Inspected<'a>, Refusal> {
        self.inspect_with(endpoint, body, now, |_| {})
    }

    /// Judges a body like [`Self::inspect`], and reports each passed check.
    pub fn inspect_with<'a>(
        &self,
        endpoint: Endpoint,
        body: &'a [u8],
        now: u64,
        mut passed: impl FnMut(Finding<'_>),
    ) -> Result<Inspected<'a>, Refusal> {
        within_size(body.len(), MAX_BODY)?;
        passed(Finding::Size(body.len()));
        match endpoint {
            Endpoint::Rpc => self
                .transaction(body, &mut passed)
                .map(Inspected::Transaction),
            Endpoint::Operation(kind) => {
                let operation = Operation::parse(kind, body)?;
                passed(Finding::Operation(&operation));
                let admission = self.admits(kind, &operation, now).map_err(Box::new);
                Ok(Inspected::Operation(OperationPermit {
                    operation,
                    admission,
                }))
            }
            Endpoint::Ready => Err(Refusal::new(
                Reason::InvalidRequest,
                "/readyz takes no body",
            )),
        }
    }

    /// Judges an operation by the configuration. A disabled one is not refused earlier, so that a
    /// repeat gets the answer of a write that was made before.
    fn admits(&self, kind: OperationKind, operation: &Operation, now: u64) -> Result<(), Refusal> {
        if !self.operations.contains(&kind) {
            let message = format!(
                "the operator of this relay has switched off {}",
                kind.name()
            );
            return Err(Refusal::new(Reason::OperationDisabled, message));
        }
        operation.admits(&self.operation_policy(), now)
    }

    /// The parameters by which an operation is admitted.
    fn operation_policy(&self) -> OperationPolicy<'_> {
        OperationPolicy {
            account_class: self.account_class,
            contracts: &self.contracts,
            assurance_types: &self.assurance_types,
            assurance_levels: &self.assurance_levels,
            usership_epochs: &self.usership_epochs,
        }
    }
}

/// The endpoint of a request, `None` for `/healthz`.
fn route(head: &Head<'_>) -> Result<Option<Endpoint>, Refusal> {
    let endpoint = Endpoint::at(head.target);
    let allow = match endpoint {
        Some(Endpoint::Rpc | Endpoint::Operation(_)) => "POST",
        Some(Endpoint::Ready) => "GET, HEAD",
        None if head.target == b"/healthz" => "GET, HEAD",
        None => return Err(Refusal::new(Reason::NotFound, "no such path")),
    };
    allowed_method(head, allow).map(|()| endpoint)
}

/// The one refusal of a missing, malformed, duplicate or wrong token.
fn unauthorized() -> Refusal {
    Refusal::new(
        Reason::Unauthorized,
        "send Authorization: Bearer with the relay's token",
    )
}

/// Reads the key as in the IETF's draft "The Idempotency-Key HTTP Header Field", but unquoted.
fn idempotency_key(head: &Head<'_>) -> Result<Option<String>, Refusal> {
    let Some(key) = head.single(HeaderName::from_static("idempotency-key")) else {
        return Ok(None);
    };
    let key = key.and_then(|key| key.to_str().ok()).filter(|key| {
        (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
    });
    key.map(|key| Some(key.to_owned())).ok_or_else(|| {
        let message = "Idempotency-Key must be one field of 1 to 128 visible ASCII characters";
        Refusal::new(Reason::InvalidRequest, message)
    })
}
