//! The three surfaces, and what is under them.
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
//! Imports point downwards only; `tests/tidy/` lists the floors. Reading order: [`proxy`],
//! [`mod@http`], [`gateway`], [`relay`], [`sidecar`], [`node`], [`fleet`], [`reply`].

pub mod fleet;
pub mod gateway;
pub mod http;
pub mod node;
pub mod proxy;
pub mod relay;
pub mod reply;
pub mod sidecar;
