//! Portcullis, the edge in front of a private Starknet node.
//!
//! ```text
//! listener ── gate (connections: caps, lifetime; heads, whole and in time)
//!    └─ proxy: a request of a surface, from its head to its answer
//!         head ─▶ policy.admit ─▶ bounded body ─▶ policy.inspect ─▶ a permit
//!                                                                       │
//!              gateway.begin · relay.transact  · relay.operate ◀────────┘
//!                       │            │
//!                     node         store (journal, intents)
//!                       └──────▶ Reply ◀─┘
//!         every refusal and every fault ─▶ reply, the one place that knows statuses and bodies
//! ```
//! Imports point downwards only; `tests/tidy.rs` lists the floors. The policy is a crate of its
//! own, `portcullis_filters`, which can do no I/O.
//!
//! Reading order: [`proxy`], [`mod@http`], [`gateway`], [`relay`], [`sidecar`], [`node`],
//! [`store`], [`reply`], then [`config`], [`secrets`], [`io`], [`process`], [`telemetry`],
//! [`admin`], [`cli`].

pub mod admin;
pub mod cli;
pub mod config;
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
