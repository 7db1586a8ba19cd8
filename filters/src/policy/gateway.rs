//! The gateway's policy: thirteen reads, for anyone.
//!
//! [`GatewayPolicy::judge`] tells what a head says by itself; [`GatewayPolicy::admit`] goes through
//! route, rate, requests in flight, headers and declared size; [`GatewayPolicy::inspect`] through
//! JSON, envelope, method and parameters. Only a [`ReadPermit`] from here reaches the node.

use super::head::{
    MAX_BODY, body_headers, declared_size, too_many_in_flight, within_rate, within_size,
    wrong_method,
};
use crate::client::{Client, ClientKey, TrustedProxies};
use crate::head::{Head, X_FORWARDED_FOR};
use crate::limit::{Millis, SharedLimiter, Standing};
use crate::rpc::{Envelope, Id, Method, MethodSet, Misfit, Params};
use crate::verdict::{ReadPermit, Reason, Refusal};
use alloc::format;
use core::hash::BuildHasher;

/// The HTTP methods that `/rpc` takes, as `Allow` tells them.
pub const RPC_METHODS: &str = "POST, OPTIONS";

/// The parameters of the gateway's policy.
#[derive(Debug)]
pub struct GatewayPolicy {
    /// The methods let through.
    pub methods: MethodSet,
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: TrustedProxies,
}

/// What a head says by itself. Under one policy the same head of the same peer always says the
/// same, so a client that repeats its head is judged once.
#[derive(Debug)]
pub struct JudgedHead {
    client: Client,
    route: Result<Route, Refusal>,
}

/// What the head of a request came to.
#[derive(Debug)]
pub struct Admission<G> {
    /// Who sent it.
    pub client: Client,
    /// How the client stands with its rate limit, this request counted.
    pub standing: Standing,
    /// What to do.
    pub verdict: Result<Admitted<G>, Refusal>,
}

/// A request whose head passed.
#[derive(Debug)]
pub enum Admitted<G> {
    /// `GET` or `HEAD /healthz`.
    Health,
    /// `OPTIONS /rpc`.
    Preflight,
    /// `POST /rpc`: read its body.
    Call(AdmittedCall<G>),
}

/// A call whose head passed and whose body is to be read.
#[derive(Debug)]
pub struct AdmittedCall<G> {
    /// The client's place among its requests in flight, held until the answer is out.
    pub slot: G,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
}

/// A check of a body that passed, for whoever wants to follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finding<'a> {
    /// The body is small enough; its bytes.
    Size(usize),
    /// It is one request; the JSON text of its id.
    Envelope(&'a str),
    /// The method is let through; its name.
    Method(&'a str),
    /// The parameters are those of the method; how many were given.
    Params(usize),
}

impl GatewayPolicy {
    /// Judges what a head says, whenever it comes.
    pub fn judge(&self, head: &Head<'_>) -> JudgedHead {
        let forwarded = head.headers.get_all(&X_FORWARDED_FOR).iter().map(|v| v.as_bytes());
        let client = Client::identify(head.peer, forwarded, &self.trusted_proxies);
        JudgedHead { client, route: route(head) }
    }

    /// Admits a request with a judged head that arrived at `now`. Every `POST /rpc` counts against
    /// the limit, whatever comes of it. `enter` takes a place among the client's requests in
    /// flight; `None` when it has too many.
    pub fn admit<G>(
        &self,
        head: &JudgedHead,
        limiter: &SharedLimiter<impl BuildHasher + Clone>,
        now: Millis,
        enter: impl FnOnce(ClientKey) -> Option<G>,
    ) -> Admission<G> {
        let client = head.client;
        let standing = match head.route {
            Ok(Route::Rpc(_)) => limiter.check(client.key, now),
            _ => limiter.peek(client.key, now),
        };
        let verdict = match &head.route {
            Err(refusal) => Err(refusal.clone()),
            Ok(Route::Health) => Ok(Admitted::Health),
            Ok(Route::Preflight) => Ok(Admitted::Preflight),
            Ok(Route::Rpc(fields)) => within_rate(standing).and_then(|()| {
                let slot = enter(client.key).ok_or_else(too_many_in_flight)?;
                let expects_continue = fields.clone()?;
                Ok(Admitted::Call(AdmittedCall { slot, expects_continue }))
            }),
        };
        Admission { client, standing, verdict }
    }

    /// Judges the whole body of an admitted call.
    ///
    /// # Errors
    /// `body_too_large`, `parse_error`, `batch`, `invalid_request`, `method_not_allowed` or
    /// `invalid_params`, with the request's id where it is known.
    pub fn inspect<'a>(&self, body: &'a [u8]) -> Result<ReadPermit<'a>, Refusal> {
        self.inspect_with(body, |_| {})
    }

    /// The same, telling of each check that passed.
    ///
    /// # Errors
    /// As [`Self::inspect`].
    pub fn inspect_with<'a>(
        &self,
        body: &'a [u8],
        mut passed: impl FnMut(Finding<'_>),
    ) -> Result<ReadPermit<'a>, Refusal> {
        within_size(body.len(), MAX_BODY)?;
        passed(Finding::Size(body.len()));
        let Envelope { id, method, params } = Envelope::parse(body)?;
        passed(Finding::Envelope(id.as_str()));
        let method = self.allowed(&method).map_err(|refusal| refusal.with_id(Some(id)))?;
        passed(Finding::Method(method.name()));
        let params = Params::parse(method, params).map_err(|misfit| misfit_refusal(misfit, id))?;
        passed(Finding::Params(params.arguments().len()));
        Ok(ReadPermit::new(id, method, params))
    }

    fn allowed(&self, name: &str) -> Result<Method, Refusal> {
        let method = Method::parse(name).filter(|method| self.methods.contains(*method));
        method.ok_or_else(|| {
            let message = match name {
                // what starknet.js does when a caller leaves the tip open
                "starknet_getBlockWithTxs" => {
                    "this method is not served here: starknet.js asks for it to choose a tip, \
                     pass `tip: 0n`"
                }
                _ if name.starts_with("starknet_add") => {
                    "this gateway only reads: submit signed transactions through the relay"
                }
                _ => "this method is not on the gateway's list of read methods",
            };
            Refusal::new(Reason::MethodNotAllowed, message)
        })
    }
}

#[derive(Debug)]
enum Route {
    Health,
    Preflight,
    /// A call, and what its fields came to: whether the client waits for `100 Continue`.
    Rpc(Result<bool, Refusal>),
}

/// What the fields of a call's head come to.
fn call_headers(head: &Head<'_>) -> Result<bool, Refusal> {
    let expects_continue = body_headers(head)?;
    declared_size(head, MAX_BODY)?;
    Ok(expects_continue)
}

/// Paths match exactly, on the raw bytes.
fn route(head: &Head<'_>) -> Result<Route, Refusal> {
    match (head.target, head.method) {
        (b"/rpc", "POST") => Ok(Route::Rpc(call_headers(head))),
        (b"/rpc", "OPTIONS") => Ok(Route::Preflight),
        (b"/healthz", "GET" | "HEAD") => Ok(Route::Health),
        (b"/rpc", _) => Err(wrong_method(RPC_METHODS, "/rpc takes POST")),
        (b"/healthz", _) => Err(wrong_method("GET, HEAD", "/healthz takes GET")),
        _ => Err(Refusal::new(Reason::NotFound, "there is nothing here: JSON-RPC is at /rpc")),
    }
}

fn misfit_refusal(misfit: Misfit, id: Id<'_>) -> Refusal {
    let name = if misfit.name.is_empty() { "params" } else { misfit.name };
    let message = format!("{name} must be {}", misfit.expected);
    Refusal::new(Reason::InvalidParams, message).with_id(Some(id))
}
