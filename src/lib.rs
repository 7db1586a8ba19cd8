//! Portcullis, the edge in front of a private Starknet node.
//!
//! Each crate imports those below it, and its modules those below them:
//!
//! ```text
//! portcullis            the command line
//! portcullis_dev        the whole system on loopback
//! portcullis_program    process: start, listeners, reload, stop; admin: the operator's listener
//! portcullis_acme       certificates
//! portcullis_edge       proxy; gateway, relay, sidecar; http; reply; node, fleet
//! portcullis_store      tables, statements, the journal
//! portcullis_base       config, secrets, io, fetch, telemetry
//! portcullis_filters    everything that decides, without I/O
//! ```
//! Read `edge/src/proxy/mod.rs` first, then `filters/src/policy/gateway.rs`.

pub mod cli;
