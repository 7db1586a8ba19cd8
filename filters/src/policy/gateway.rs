//! The gateway's policy: thirteen reads, for anyone.
//!
//! [`GatewayPolicy::judge`] judges a head by itself, its client first; [`GatewayPolicy::admit`]
//! checks route, rate, requests in flight, headers and declared size; [`GatewayPolicy::inspect`]
//! checks JSON, envelope, method and parameters. Nothing reaches the node without a
//! [`ReadPermit`], which only this file makes.

use super::{Admission, Admitted, Finding, PendingCall, hints};
use crate::client::{Client, ClientKey, TrustedProxies};
use crate::head::{
    Head, MAX_BODY, allowed_method, any_headers, body_headers, client, declared_size, framing,
    too_many_in_flight, within_rate, within_size,
};
use crate::limit::{Limiter, Millis, RateCheck};
use crate::named::named;
use crate::networks::Networks;
use crate::rpc::json::write_integer;
use crate::rpc::{BlockId, Envelope, Id, Method, MethodSet, Params};
use crate::verdict::{Reason, Refusal};
use alloc::vec::Vec;
use http::header;

/// The HTTP methods of `/rpc`, as in `Allow`.
pub const RPC_METHODS: &str = "POST, OPTIONS";

/// The parameters of the gateway's policy.
#[derive(Debug)]
pub struct GatewayPolicy {
    /// The permitted methods.
    pub methods: MethodSet,
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: TrustedProxies,
    /// The clients whose every request is refused as `blocked`.
    pub blocked: Networks,
    /// Whether the documents of the gateway are served.
    pub has_documents: bool,
}

named! {
    /// A document about the gateway for developers of clients, named by its path.
    pub enum PublicDocument {
        /// The page that shows both descriptions.
        Page = "/docs",
        /// The HTTP interface: paths, statuses, headers.
        OpenApiYaml = "/docs/openapi/gateway.yaml",
        /// The HTTP interface, as JSON.
        OpenApiJson = "/docs/openapi/gateway.json",
        /// The JSON-RPC methods, their parameters and results.
        OpenRpcYaml = "/docs/openrpc/gateway.yaml",
        /// The JSON-RPC methods, as JSON.
        OpenRpcJson = "/docs/openrpc/gateway.json",
    }
}

impl PublicDocument {
    /// The document at this request target. Paths match exactly, on the raw bytes.
    pub fn at(target: &[u8]) -> Option<Self> {
        Self::parse(str::from_utf8(target).ok()?)
    }
}

/// A call of the gateway whose head passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayCall {
    /// A JSON-RPC request; its body is to be inspected.
    Rpc,
    /// A document; a body is ignored.
    Document(PublicDocument),
}

/// The verdict on a head by itself. It depends on the head, the peer and the policy alone, so a
/// repeated head is judged once.
#[derive(Debug)]
pub struct JudgedHead {
    client: Client,
    route: Result<Route, Refusal>,
}

impl JudgedHead {
    /// The client that sent the head.
    pub fn client(&self) -> Client {
        self.client
    }
}

impl GatewayPolicy {
    /// Judges what depends on the head alone.
    pub fn judge(&self, head: &Head<'_>) -> JudgedHead {
        let client = client(head, &self.trusted_proxies);
        let mut route = self.route(head);
        if self.blocked.contains(client.address) && !matches!(route, Ok(Route::Preflight)) {
            let message = "the operator does not serve requests from this network";
            route = Err(Refusal::new(Reason::Blocked, message));
        }
        JudgedHead { client, route }
    }

    /// Admits a request with a judged head at `now`. Every `POST /rpc` counts against the rate
    /// limit, refused or not, and so does every document; a request of a blocked client does not.
    /// `enter` takes a place among the client's requests in flight, or returns `None` when the
    /// client has too many.
    pub fn admit<L: Limiter, G>(
        &self,
        head: &JudgedHead,
        limiter: &L,
        now: Millis,
        enter: impl FnOnce(ClientKey) -> Option<G>,
    ) -> Admission<GatewayCall, G, L::Ticket> {
        let client = head.client;
        let rate_limit = match head.route {
            Ok(Route::Rpc(_) | Route::Document(_)) => limiter.check(client.key, now),
            _ => RateCheck::Decided(limiter.peek(client.key, now)),
        };
        let verdict = match &head.route {
            Err(refusal) => Err(refusal.clone()),
            Ok(Route::Health) => Ok(Admitted::Health),
            Ok(Route::Preflight) => Ok(Admitted::Preflight),
            Ok(Route::Rpc(fields)) => rate_limit.judge(within_rate).and_then(|()| {
                let slot = enter(client.key).ok_or_else(too_many_in_flight)?;
                let expects_continue = fields.clone()?;
                let (call, max_body) = (GatewayCall::Rpc, MAX_BODY);
                Ok(Admitted::Call(PendingCall {
                    call,
                    slot: Some(slot),
                    expects_continue,
                    max_body,
                }))
            }),
            Ok(Route::Document(document)) => rate_limit.judge(within_rate).and_then(|()| {
                let slot = enter(client.key).ok_or_else(too_many_in_flight)?;
                let (call, expects_continue) = (GatewayCall::Document(*document), false);
                Ok(Admitted::Call(PendingCall {
                    call,
                    slot: Some(slot),
                    expects_continue,
                    max_body: 0,
                }))
            }),
        };
        Admission {
            client,
            rate_limit: Some(rate_limit),
            verdict,
        }
    }

    /// Judges the whole body of an admitted call.
    ///
    /// # Errors
    /// Returns `body_too_large`, `parse_error`, `batch`, `invalid_request`, `method_not_allowed` or
    /// `invalid_params`, with the request's id where it is known.
    pub fn inspect<'a>(&self, body: &'a [u8]) -> Result<ReadPermit<'a>, Refusal> {
        self.inspect_with(body, |_| {})
    }

    /// Judges a body like [`Self::inspect`], and reports each passed check.
    pub fn inspect_with<'a>(
        &self,
        body: &'a [u8],
        mut passed: impl FnMut(Finding<'_>),
    ) -> Result<ReadPermit<'a>, Refusal> {
        within_size(body.len(), MAX_BODY)?;
        passed(Finding::Size(body.len()));
        let Envelope { id, method, params } = Envelope::parse(body)?;
        passed(Finding::Envelope(id.as_str()));
        let method = self
            .allowed(&method)
            .map_err(|refusal| refusal.with_id(Some(id)))?;
        passed(Finding::Method(method.name()));
        let params = Params::parse(method, params).map_err(|error| {
            let message = Params::refusal(method, error);
            Refusal::new(Reason::InvalidParams, message)
                .with_hint(hints::instead_of_param(error))
                .with_id(Some(id))
        })?;
        passed(Finding::Params(params.arguments().len()));
        Ok(ReadPermit {
            id,
            read: Read { method, params },
        })
    }

    /// The document at a target, if documents are served.
    fn document(&self, target: &[u8]) -> Option<PublicDocument> {
        PublicDocument::at(target).filter(|_| self.has_documents)
    }

    /// Routes a request. Paths match exactly, on the raw bytes.
    fn route(&self, head: &Head<'_>) -> Result<Route, Refusal> {
        match head.target {
            b"/rpc" => {
                allowed_method(head, RPC_METHODS)
                    .map_err(|refusal| refusal.with_hint(hints::instead_of_verb(head)))?;
                if head.method == "OPTIONS" {
                    return framing(head).map(|()| Route::Preflight);
                }
                Ok(Route::Rpc(call_headers(head)))
            }
            // the actual request gets the refusal, also if the client is blocked: a page cannot
            // read that of a preflight
            _ if is_preflight(head) => framing(head).map(|()| Route::Preflight),
            b"/healthz" => {
                allowed_method(head, "GET, HEAD")?;
                framing(head).map(|()| Route::Health)
            }
            _ if let Some(document) = self.document(head.target) => {
                allowed_method(head, "GET, HEAD")?;
                any_headers(head)?;
                declared_size(head, 0)?;
                Ok(Route::Document(document))
            }
            _ => {
                let message = "no such path; JSON-RPC is at /rpc";
                let refusal = Refusal::new(Reason::NotFound, message);
                Err(refusal.with_hint(hints::instead_of_path(head)))
            }
        }
    }

    fn allowed(&self, name: &str) -> Result<Method, Refusal> {
        let method = Method::parse(name).filter(|method| self.methods.contains(*method));
        method.ok_or_else(|| {
            let message = if name.starts_with("starknet_add") {
                "the gateway only reads; submit signed transactions through the relay"
            } else {
                "this method is not one of the gateway's read methods"
            };
            Refusal::new(Reason::MethodNotAllowed, message)
                .with_hint(hints::instead_of(name, &self.methods))
        })
    }
}

/// A read that passed the whole policy. Borrows the request body it was parsed from.
#[derive(Debug)]
pub struct ReadPermit<'a> {
    id: Id<'a>,
    read: Read,
}

/// A permitted read without its request id.
#[derive(Debug)]
pub struct Read {
    method: Method,
    params: Params,
}

impl<'a> ReadPermit<'a> {
    /// The client's request id, byte for byte.
    pub fn id(&self) -> Id<'a> {
        self.id
    }

    /// The method, one of the thirteen.
    pub fn method(&self) -> Method {
        self.read.method
    }

    /// The parsed parameters.
    pub fn params(&self) -> &Params {
        &self.read.params
    }

    /// The read without the id.
    pub fn into_read(self) -> Read {
        self.read
    }

    /// Appends the JSON-RPC request for the node: this method and these parameters, by name, with
    /// `id` in place of the client's.
    pub fn write_request(&self, id: u64, out: &mut Vec<u8>) {
        self.read.call().write_request(id, out);
    }
}

impl Read {
    /// The method, one of the thirteen.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The parsed parameters.
    pub fn params(&self) -> &Params {
        &self.params
    }

    /// The call to the node.
    pub fn call(&self) -> ReadCall {
        ReadCall::new(self.method, &self.params)
    }

    /// The call at another block, for a method that takes one.
    pub fn call_at(&self, block: BlockId) -> ReadCall {
        ReadCall::new(self.method, &self.params.at(block))
    }
}

/// The method and parameters of a permitted read in canonical form: equal reads are equal bytes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReadCall(Vec<u8>);

impl ReadCall {
    fn new(method: Method, params: &Params) -> Self {
        // fits a method, two hashes and their names
        let mut bytes = Vec::with_capacity(256);
        bytes.extend_from_slice(br#""method":""#);
        bytes.extend_from_slice(method.name().as_bytes());
        bytes.extend_from_slice(br#"","params":"#);
        params.write(&mut bytes);
        Self(bytes)
    }

    /// Appends the JSON-RPC request for the node, with this id.
    pub fn write_request(&self, id: u64, out: &mut Vec<u8>) {
        out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
        write_integer(id, out);
        out.push(b',');
        out.extend_from_slice(&self.0);
        out.push(b'}');
    }

    /// The canonical bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

#[derive(Debug)]
enum Route {
    Health,
    Preflight,
    /// A call, with the verdict on its headers: whether the client waits for `100 Continue`.
    Rpc(Result<bool, Refusal>),
    Document(PublicDocument),
}

/// Judges the headers of a call.
fn call_headers(head: &Head<'_>) -> Result<bool, Refusal> {
    let expects_continue = body_headers(head)?;
    declared_size(head, MAX_BODY)?;
    Ok(expects_continue)
}

/// Whether this is a CORS preflight: the Fetch standard, section 4.8.
fn is_preflight(head: &Head<'_>) -> bool {
    let fields = [header::ORIGIN, header::ACCESS_CONTROL_REQUEST_METHOD];
    head.method == "OPTIONS" && fields.iter().all(|field| head.headers.contains_key(field))
}
