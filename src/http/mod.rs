//! HTTP transport: connections, request heads, bodies and responses, over HTTP/1 and HTTP/2.
//!
//! [`gate`] accepts connections under caps, `http1` and `http2` read heads in time, `session` lends
//! each request to Pingora's app, [`body`] reads bounded bodies, [`respond`] sends responses. Knows
//! nothing of surfaces or of the node.

pub mod body;
pub mod clients;
pub mod context;
pub mod drain;
pub mod gate;
mod http1;
mod http2;
mod request;
mod request_id;
pub mod respond;
mod secured;
mod session;
pub mod tls;

pub use gate::{ErrorResponder, Gate};
pub use request::Request;
pub use request_id::{RequestId, RequestIds, X_REQUEST_ID};
pub use session::Handoff;
