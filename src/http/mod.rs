//! HTTP transport: connections, request heads, bodies and responses, over HTTP/1 and HTTP/2.
//!
//! [`gate`] accepts connections under caps and deadlines, [`connection`] reads HTTP/1 heads,
//! [`http2`] serves streams, [`body`] reads bounded request bodies, [`answer`] and [`stream`] send
//! responses. Knows nothing of surfaces or of the node.

pub mod answer;
pub mod body;
pub mod clients;
mod connection;
pub mod drain;
mod gate;
mod http2;
mod known;
pub mod process;
mod request;
mod request_id;
mod secured;
pub mod stream;
pub mod tls;

pub use connection::{Connection, Limits};
pub use gate::{App, Gate, Voice};
pub use http2::Exchange;
pub use request::Request;
pub use request_id::{RequestId, RequestIds, X_REQUEST_ID};
