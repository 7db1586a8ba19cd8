//! The policy of the edge, and nothing else: bytes and time in, verdicts out.
//!
//! This crate opens no socket, reads no clock, no environment and no random number, and holds no
//! global state: it is built without the standard library, so the compiler enforces that. A verdict
//! depends on the arguments alone and can be replayed in a test. The crate imports neither Pingora
//! nor an async runtime.
//!
//! Reading order: [`head`] (a request before its body), [`policy`] (the order of all checks),
//! [`rpc`] (JSON-RPC and the thirteen reads), [`tx`] (transactions, and the calls that users may
//! sign), [`operations`] (what the relay signs), [`txm`] (a write, from request to outcome) with
//! [`ledger`] (the rules of its journal), [`chain`] (what is known of the node and its chain),
//! [`events`] (what the backend is sent about writes), [`webhook`] (the age verifier's events),
//! [`websub`] (when a hub is pinged), [`certificate`] (which one may be served) and [`acme`] (when
//! and how to order one), [`verdict`] (refusals and their reasons). Shared: [`limit`],
//! [`concurrency`], [`window`], [`client`], [`networks`], [`proxy_header`], [`position`],
//! [`bearer`], [`hmac`], [`secret`], [`header_lines`], [`key_values`], [`post`], [`replies`],
//! [`robots`], [`chance`].
#![cfg_attr(not(test), no_std)]
#![cfg_attr(
    not(test),
    deny(
        clippy::indexing_slicing,
        clippy::as_conversions,
        clippy::arithmetic_side_effects
    )
)]

extern crate alloc;

pub mod acme;
pub mod bearer;
pub mod certificate;
pub mod chain;
pub mod chance;
pub mod client;
pub mod clock;
pub mod concurrency;
pub mod events;
pub mod felt;
pub mod head;
pub mod header_lines;
pub mod hmac;
pub mod key_values;
pub mod ledger;
pub mod limit;
mod named;
pub mod nearest;
pub mod networks;
pub mod operations;
pub mod policy;
pub mod position;
pub mod post;
pub mod proxy_header;
mod reason;
pub mod replies;
pub mod robots;
pub mod rpc;
pub mod secret;
mod stark;
pub mod timestamp;
pub mod tx;
pub mod txm;
pub mod verdict;
pub mod webhook;
pub mod websub;
pub mod window;
