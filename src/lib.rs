//! Portcullis, the edge in front of a private Starknet node.
//!
//! ```text
//! listener ── http::Gate: connection caps, TLS handshake, each head whole and in time
//!    └─ pingora_proxy::HttpProxy<Proxy>: HTTP/1 and HTTP/2, one run of the phases per request
//!         new_ctx          Context: request id, start
//!         request_filter   admit(head) ─▶ bounded body ─▶ inspect ─▶ Permit ─▶ answer ─▶ respond
//!                               └──────── Refusal ───────────┴────────────────────────▶ respond
//!         upstream_peer    Err: nothing reaches the node without a permit
//!         fail_to_proxy    the surface's envelope for whatever Pingora refuses
//!         logging          one log line, one set of counters
//! ```
//! Imports point downwards only; `tests/tidy/` lists the floors. The policy is a crate of its
//! own, `portcullis_filters`, which can do no I/O.
//!
//! Reading order: [`proxy`], [`mod@http`], [`gateway`], [`relay`], [`sidecar`], [`node`],
//! [`fleet`], [`store`], [`reply`], then [`config`], [`secrets`], [`io`], [`fetch`], [`acme`],
//! [`process`], [`telemetry`], [`admin`], [`cli`].

pub mod acme;
pub mod admin;
pub mod cli;
pub mod config;
pub mod fetch;
pub mod fleet;
pub mod gateway;
pub mod http;
pub mod io;
pub mod node;
pub mod process;
pub mod proxy;
pub mod relay;
pub mod reply;
pub mod secrets;
pub mod sidecar;
pub mod store;
pub mod telemetry;
