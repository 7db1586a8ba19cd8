//! The outcome of judging a head, the same for every surface.

use crate::client::Client;
use crate::limit::RateCheck;
use crate::verdict::Refusal;
use core::convert::Infallible;

/// The outcome of judging a head. `C` holds the parts of a call's head that the surface reads, `G`
/// is the guard of its place among the client's requests in flight, `T` the ticket for a pending
/// check.
#[derive(Debug)]
pub struct Admission<C, G, T = Infallible> {
    /// The client.
    pub client: Client,
    /// The check of the client's rate limit. At the relay it is `None` without a valid token,
    /// unless the limit of wrong tokens is still being checked. A refusal by it comes before that
    /// of the verdict.
    pub rate_limit: Option<RateCheck<T>>,
    /// The verdict on the request.
    pub verdict: Result<Admitted<C, G>, Refusal>,
}

/// A request whose head passed.
#[derive(Debug)]
pub enum Admitted<C, G> {
    /// `GET` or `HEAD /healthz`.
    Health,
    /// A CORS preflight.
    Preflight,
    /// Any other request: read its body.
    Call(PendingCall<C, G>),
}

/// A call whose head passed and whose body is to be read.
#[derive(Debug)]
pub struct PendingCall<C, G> {
    /// The part of the head that the surface read.
    pub call: C,
    /// The client's place among its requests in flight, held until the response is sent; `None` for
    /// a call that takes none.
    pub slot: Option<G>,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// The longest body that is accepted, in bytes.
    pub max_body: usize,
}
