//! Portcullis, the edge in front of a private Starknet node.
//!
//! ```text
//! listener ── gate (connections: caps, lifetime; heads, whole and in time)
//!    └─ edge: a request of a surface, from its head to its answer
//!         head ─▶ policy.admit ─▶ bounded body ─▶ policy.inspect ─▶ a permit
//!                                                                       │
//!              gateway.begin · relay.transact  · relay.operate ◀────────┘
//!                       │            │
//!                     node         store (journal, intents)
//!                       └──────▶ Reply ◀─┘
//!         every refusal and every fault ─▶ reply, the one place that knows statuses and bodies
//! ```
//! Imports point one way: `cli → server → edge → {gateway, relay} → {node, store, reply} → config →
//! filters`. The policy is a crate of its own, `portcullis_filters`, which can do no I/O.
//! Reading order: [`edge`], [`gate`], [`body`], [`answer`], [`gateway`], [`relay`], [`node`],
//! [`store`], [`reply`], then [`docs`], [`config`], [`secrets`], [`tls`], [`server`], [`listen`],
//! [`life`], [`stop`], [`telemetry`], [`admin`].

pub mod admin;
pub mod answer;
pub mod body;
pub mod cli;
pub mod clients;
pub mod clock;
pub mod config;
pub mod deadline;
pub mod docs;
pub mod edge;
pub mod gate;
pub mod gateway;
pub mod handover;
pub mod hardening;
pub mod inherited;
pub mod life;
pub mod listen;
mod manager;
pub mod node;
pub mod process;
pub mod relay;
pub mod reload;
pub mod reply;
pub mod secrets;
pub mod server;
pub mod sidecar;
pub mod step;
pub mod stop;
pub mod store;
pub mod surfaces;
pub mod telemetry;
pub mod tls;
pub mod watchdog;
