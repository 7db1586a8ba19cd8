//! The relay's policy: the writes that are let through, for whoever holds the token.
//!
//! [`RelayPolicy::admit`] judges route, bearer, rate, requests in flight, headers and declared
//! size: but for the route, nothing is judged before the token is. [`RelayPolicy::inspect`] judges
//! the body: a user's transaction, or an operation that we sign. What the chain must hold for it is
//! asked afterwards, with the permit.

use super::head::{
    MAX_BODY, any_headers, body_headers, declared_size, too_many_in_flight, within_rate,
    within_size, wrong_method,
};
use crate::bearer::Tokens;
use crate::client::{Client, ClientKey, TrustedProxies};
use crate::felt::Felt;
use crate::head::{Head, X_FORWARDED_FOR};
use crate::limit::{Millis, SharedLimiter, Standing};
use crate::operation::{Operation, OperationKind};
use crate::tx::{AllowedCall, Contracts, Transaction};
use crate::verdict::{OperationPermit, Reason, Refusal, Unverified};
use alloc::borrow::ToOwned;
use alloc::string::String;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use core::ops::RangeInclusive;
use http::HeaderName;

/// Characters of an `Idempotency-Key`: room for a UUID or a hash with a prefix, no more to keep.
const MAX_KEY: usize = 128;

/// The parameters of the relay's policy.
#[derive(Clone, Debug)]
pub struct RelayPolicy {
    /// The bearer tokens.
    pub tokens: Tokens,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: TrustedProxies,
    /// The chain that signatures are for.
    pub chain_id: Felt,
    /// The class of every account.
    pub account_class: Felt,
    /// The contracts that users may call.
    pub contracts: Contracts,
    /// The bounds of one transaction.
    pub caps: Caps,
    /// Assurances that may be attested.
    pub assurance_types: Vec<String>,
    /// Levels that may be attested.
    pub assurance_levels: Vec<u8>,
    /// Epochs whose usership results are taken.
    pub usership_epochs: RangeInclusive<u64>,
}

/// The bounds of one user-signed transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Calls.
    pub max_calls: usize,
    /// Felts of calldata.
    pub max_felts: usize,
    /// Gas of L2.
    pub max_l2_gas: u64,
    /// The fee that the bounds allow, in fri.
    pub max_fee: u128,
}

/// What a path of the relay does. Errors are worded in its style.
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
    /// The name in logs and metrics: the path without its slash.
    pub fn name(self) -> &'static str {
        match self {
            Self::Ready => "readyz",
            Self::Rpc => "rpc",
            Self::Operation(kind) => kind.name(),
        }
    }
}

/// What the head of a request came to.
#[derive(Debug)]
pub struct RelayAdmission<G> {
    /// Who sent it.
    pub client: Client,
    /// How the client stands with its rate limit, this request counted; for holders of a token.
    pub standing: Option<Standing>,
    /// Where it goes, if there is anything but liveness.
    pub endpoint: Option<Endpoint>,
    /// What to do.
    pub verdict: Result<RelayAdmitted<G>, Refusal>,
}

/// A request whose head passed.
#[derive(Debug)]
pub enum RelayAdmitted<G> {
    /// `GET` or `HEAD /healthz`.
    Health,
    /// Anything else: read its body.
    Call(RelayCall<G>),
}

/// A call whose head passed and whose body is to be read.
#[derive(Debug)]
pub struct RelayCall<G> {
    /// Where it goes.
    pub endpoint: Endpoint,
    /// The client's place among its requests in flight, held until the answer is out.
    pub slot: G,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// What the client calls this request, so that a repeat gets the same answer.
    pub idempotency_key: Option<String>,
}

/// A body that passed.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "taken apart at once, kept nowhere")]
pub enum Inspected<'a> {
    /// A user's transaction: its sender's account is to be read.
    Transaction(Unverified<'a>),
    /// An operation for us to sign.
    Operation(OperationPermit),
}

/// A check of a body that passed, for whoever wants to follow.
#[derive(Clone, Copy, Debug)]
pub enum RelayFinding<'a> {
    /// The body is small enough; its bytes.
    Size(usize),
    /// It is one JSON-RPC request; the JSON text of its id.
    Envelope(&'a str),
    /// The method is let through; its name.
    Method(&'a str),
    /// It is a V3 transaction with nothing in it that has no use here.
    Transaction(&'a Transaction),
    /// The calls are let through; none for an account's deployment, which is.
    Calls(&'a [AllowedCall]),
    /// The fee is within its bounds; what the user must have signed.
    Hash(Felt),
    /// It is a well-formed operation.
    Operation(&'a Operation),
}

impl RelayPolicy {
    /// Judges the head of a request that arrived at `now`. `guesses` counts a failed token and says
    /// whether the client had too many; a good token is never refused for them. `enter` takes a
    /// place among the client's requests in flight; `None` when it has too many.
    pub fn admit<G>(
        &self,
        head: &Head<'_>,
        limiter: &SharedLimiter<impl BuildHasher + Clone>,
        now: Millis,
        guesses: impl FnOnce(ClientKey) -> bool,
        enter: impl FnOnce(ClientKey) -> Option<G>,
    ) -> RelayAdmission<G> {
        let forwarded = head.headers.get_all(&X_FORWARDED_FOR).iter().map(|v| v.as_bytes());
        let client = Client::identify(head.peer, forwarded, &self.trusted_proxies);
        let mut standing = None;
        let (endpoint, allowed) = route(head);
        let verdict = allowed.and_then(|()| {
            let Some(endpoint) = endpoint else { return Ok(RelayAdmitted::Health) };
            self.bearer(head, client.key, guesses)?;
            within_rate(*standing.insert(limiter.check(client.key, now)))?;
            let slot = enter(client.key).ok_or_else(too_many_in_flight)?;
            let expects_continue = match endpoint {
                Endpoint::Ready => any_headers(head).map(|()| false)?,
                Endpoint::Rpc | Endpoint::Operation(_) => body_headers(head)?,
            };
            let idempotency_key = idempotency_key(head)?;
            declared_size(head, MAX_BODY)?;
            Ok(RelayAdmitted::Call(RelayCall { endpoint, slot, expects_continue, idempotency_key }))
        });
        RelayAdmission { client, standing, endpoint, verdict }
    }

    /// A missing, malformed, doubled or wrong token is all the same to the client.
    fn bearer(
        &self,
        head: &Head<'_>,
        client: ClientKey,
        guesses: impl FnOnce(ClientKey) -> bool,
    ) -> Result<(), Refusal> {
        if self.tokens.authorize(head) {
            return Ok(());
        }
        Err(if guesses(client) {
            let message = "too many requests without the relay's token: wait a minute";
            Refusal::new(Reason::RateLimited, message)
        } else {
            let message = "this needs Authorization: Bearer with the relay's token";
            Refusal::new(Reason::Unauthorized, message)
        })
    }

    /// Judges the whole body of an admitted call, at `now` in seconds since 1970.
    ///
    /// # Errors
    /// The first check that fails; on `/rpc` with the request's id where it is known.
    pub fn inspect<'a>(
        &self,
        endpoint: Endpoint,
        body: &'a [u8],
        now: u64,
    ) -> Result<Inspected<'a>, Refusal> {
        self.inspect_with(endpoint, body, now, |_| {})
    }

    /// The same, telling of each check that passed.
    ///
    /// # Errors
    /// As [`Self::inspect`].
    pub fn inspect_with<'a>(
        &self,
        endpoint: Endpoint,
        body: &'a [u8],
        now: u64,
        mut passed: impl FnMut(RelayFinding<'_>),
    ) -> Result<Inspected<'a>, Refusal> {
        within_size(body.len(), MAX_BODY)?;
        passed(RelayFinding::Size(body.len()));
        match endpoint {
            Endpoint::Rpc => self.transaction(body, &mut passed).map(Inspected::Transaction),
            Endpoint::Operation(kind) => {
                let operation = Operation::parse(kind, body)?;
                passed(RelayFinding::Operation(&operation));
                self.permits(&operation, now)?;
                Ok(Inspected::Operation(OperationPermit::new(operation)))
            }
            Endpoint::Ready => {
                Err(Refusal::new(Reason::InvalidRequest, "/readyz takes no body to judge"))
            }
        }
    }
}

/// Where a request goes, and whether it may go there: liveness if to no endpoint. Paths match
/// exactly, on the raw bytes.
fn route(head: &Head<'_>) -> (Option<Endpoint>, Result<(), Refusal>) {
    let get = || match head.method {
        "GET" | "HEAD" => Ok(()),
        _ => Err(wrong_method("GET, HEAD", "this path takes GET")),
    };
    let post = || match head.method {
        "POST" => Ok(()),
        _ => Err(wrong_method("POST", "this path takes POST")),
    };
    match head.target {
        b"/healthz" => (None, get()),
        b"/readyz" => (Some(Endpoint::Ready), get()),
        b"/rpc" => (Some(Endpoint::Rpc), post()),
        path => match OperationKind::parse_path(path) {
            Some(kind) => (Some(Endpoint::Operation(kind)), post()),
            None => (None, Err(Refusal::new(Reason::NotFound, "there is nothing here"))),
        },
    }
}

/// Of the IETF's draft "The Idempotency-Key HTTP Header Field", without its quotes.
fn idempotency_key(head: &Head<'_>) -> Result<Option<String>, Refusal> {
    let Some(key) = head.single(HeaderName::from_static("idempotency-key")) else {
        return Ok(None);
    };
    let key = key.and_then(|key| key.to_str().ok()).filter(|key| {
        (1..=MAX_KEY).contains(&key.len()) && key.bytes().all(|byte| byte.is_ascii_graphic())
    });
    key.map(|key| Some(key.to_owned())).ok_or_else(|| {
        let message = "Idempotency-Key is one field of 1 to 128 visible ASCII characters";
        Refusal::new(Reason::InvalidRequest, message)
    })
}
