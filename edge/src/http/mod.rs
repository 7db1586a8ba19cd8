//! HTTP transport: connections, request heads, bodies and responses, over HTTP/1 and HTTP/2.
//!
//! `gate` caps connections, `accept` serves them, `http1` and `http2` read heads in time, `session`
//! lends each request to Pingora's app, and a [`Request`] reads its bounded body and sends its
//! response. Knows nothing of surfaces or of the node.

mod accept;
pub mod certificates;
pub mod challenges;
pub mod clients;
pub mod context;
mod errors;
mod gate;
mod http1;
mod http2;
mod peer;
mod progress;
mod proxied;
mod rendered;
pub mod request;
mod secured;
mod session;
pub mod tls;
pub mod waiting;

pub use context::{RequestId, RequestIds, X_REQUEST_ID};
pub use errors::{ErrorResponder, TextErrors, message_of};
pub use gate::Gate;
pub use peer::NoTrust;
pub use peer::Trust;
pub use rendered::{Gone, Rendered};
pub use request::{Incomplete, Request};
pub use session::Handoff;
