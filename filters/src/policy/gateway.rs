//! The gateway's policy: thirteen reads, for anyone.
//!
//! [`GatewayPolicy::admit`] judges route, rate, requests in flight, headers and declared size;
//! [`GatewayPolicy::inspect`] JSON, envelope, method and parameters. Only a [`ReadPermit`] from
//! here reaches the node.

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
    /// Judges the head of a request that arrived at `now`. Every `POST /rpc` counts against the
    /// limit, whatever comes of it. `enter` takes a place among the client's requests in flight;
    /// `None` when it has too many.
    pub fn admit<G>(
        &self,
        head: &Head<'_>,
        limiter: &SharedLimiter<impl BuildHasher + Clone>,
        now: Millis,
        enter: impl FnOnce(ClientKey) -> Option<G>,
    ) -> Admission<G> {
        let forwarded = head.headers.get_all(&X_FORWARDED_FOR).iter().map(|v| v.as_bytes());
        let client = Client::identify(head.peer, forwarded, &self.trusted_proxies);
        let route = route(head);
        let standing = match route {
            Ok(Route::Rpc) => limiter.check(client.key, now),
            _ => limiter.peek(client.key, now),
        };
        let verdict = route.and_then(|route| match route {
            Route::Health => Ok(Admitted::Health),
            Route::Preflight => Ok(Admitted::Preflight),
            Route::Rpc => {
                within_rate(standing)?;
                let slot = enter(client.key).ok_or_else(too_many_in_flight)?;
                let expects_continue = body_headers(head)?;
                declared_size(head, MAX_BODY)?;
                Ok(Admitted::Call(AdmittedCall { slot, expects_continue }))
            }
        });
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

enum Route {
    Health,
    Preflight,
    Rpc,
}

/// Paths match exactly, on the raw bytes.
fn route(head: &Head<'_>) -> Result<Route, Refusal> {
    match (head.target, head.method) {
        (b"/rpc", "POST") => Ok(Route::Rpc),
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
