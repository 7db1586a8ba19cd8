//! The gateway's policy: the order of all checks, on one screen.
//!
//! A request is judged in two steps. [`GatewayPolicy::admit`] sees the head, before a byte of the
//! body is read: route, rate, requests in flight, headers, declared size.
//! [`GatewayPolicy::inspect`] sees the whole body: JSON, envelope, method, parameters. The first
//! check that fails answers. Only a [`ReadPermit`] from here reaches the node.
//! The order is code and can not be configured; what a deployment sets are the parameters.

use crate::client::{Client, ClientKey, TrustedProxies};
use crate::head::Head;
use crate::limit::{Millis, SharedLimiter, Standing};
use crate::rpc::params::Misfit;
use crate::rpc::{Envelope, Id, Method, MethodSet, Params};
use crate::verdict::{ReadPermit, Reason, Refusal};
use alloc::format;
use core::hash::BuildHasher;
use http::{Version, header};

/// 64 KiB: the contract's bound on a gateway request, in bytes of the body on the wire.
pub const MAX_BODY: usize = 65_536;

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
        let forwarded = head.headers.get_all("x-forwarded-for").iter().map(|v| v.as_bytes());
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
                let expects_continue = headers(head)?;
                declared_size(head)?;
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
        within_size(body.len())?;
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

/// Refuses a body of more than [`MAX_BODY`] bytes; also to be asked while the body comes in.
///
/// # Errors
/// `body_too_large`.
pub fn within_size(bytes: usize) -> Result<(), Refusal> {
    if bytes > MAX_BODY {
        return Err(Refusal::new(Reason::BodyTooLarge, "a request is at most 65536 bytes"));
    }
    Ok(())
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

fn wrong_method(allow: &'static str, message: &'static str) -> Refusal {
    Refusal { allow: Some(allow), ..Refusal::new(Reason::WrongHttpMethod, message) }
}

fn within_rate(standing: Standing) -> Result<(), Refusal> {
    if standing.admitted {
        return Ok(());
    }
    Err(Refusal::new(Reason::RateLimited, "too many requests: wait for Retry-After seconds"))
}

fn too_many_in_flight() -> Refusal {
    Refusal::new(
        Reason::TooManyInFlight,
        "too many requests at the same time: wait for answers before you send more",
    )
}

/// Framing, expectation, media type and coding; says whether the client waits for `100 Continue`.
fn headers(head: &Head<'_>) -> Result<bool, Refusal> {
    framing(head)?;
    if head.version == Version::HTTP_11 && !head.headers.contains_key(header::HOST) {
        // RFC 9112, section 3.2
        return Err(Refusal::new(Reason::InvalidRequest, "HTTP/1.1 asks for a Host header"));
    }
    let expects_continue = match head.single(header::EXPECT) {
        // RFC 9110, section 10.1.1: an HTTP/1.0 client can not mean it
        _ if head.version < Version::HTTP_11 => false,
        None => false,
        Some(Some(value)) if value.as_bytes().eq_ignore_ascii_case(b"100-continue") => true,
        Some(_) => {
            let message = "the only expectation that is met is 100-continue";
            return Err(Refusal::new(Reason::ExpectationFailed, message));
        }
    };
    media_type(head)?;
    match head.single(header::CONTENT_ENCODING) {
        None => Ok(expects_continue),
        Some(Some(value)) if value.as_bytes().eq_ignore_ascii_case(b"identity") => {
            Ok(expects_continue)
        }
        Some(_) => {
            let message = "the body must carry no content coding";
            Err(Refusal::new(Reason::UnsupportedEncoding, message))
        }
    }
}

/// One way to tell where the body ends, or the next request is a matter of opinion: RFC 9112,
/// sections 6.1 and 11.2.
fn framing(head: &Head<'_>) -> Result<(), Refusal> {
    let Some(coding) = head.single(header::TRANSFER_ENCODING) else { return Ok(()) };
    let message = if head.was_sent(&header::CONTENT_LENGTH) {
        "send Content-Length or Transfer-Encoding, not both"
    } else if coding.is_none_or(|coding| !coding.as_bytes().eq_ignore_ascii_case(b"chunked")) {
        "the only transfer coding that is read is chunked"
    } else {
        return Ok(());
    };
    Err(Refusal::new(Reason::ConflictingFraming, message))
}

fn media_type(head: &Head<'_>) -> Result<(), Refusal> {
    let essence = head.single(header::CONTENT_TYPE).flatten().and_then(|value| {
        value.as_bytes().split(|byte| *byte == b';').next().map(<[u8]>::trim_ascii)
    });
    if essence.is_some_and(|essence| essence.eq_ignore_ascii_case(b"application/json")) {
        return Ok(());
    }
    Err(Refusal::new(Reason::UnsupportedMediaType, "send Content-Type: application/json"))
}

/// An early answer where the size is declared; what counts is the body itself. A length that is no
/// number was refused with the framing.
fn declared_size(head: &Head<'_>) -> Result<(), Refusal> {
    let declared = head.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    within_size(declared.and_then(|text| text.parse().ok()).unwrap_or(0))
}

fn misfit_refusal(misfit: Misfit, id: Id<'_>) -> Refusal {
    let name = if misfit.name.is_empty() { "params" } else { misfit.name };
    let message = format!("{name} must be {}", misfit.expected);
    Refusal::new(Reason::InvalidParams, message).with_id(Some(id))
}
