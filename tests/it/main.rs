//! The program on the wire: real processes, raw sockets, a node that misbehaves on command.
//!
//! Reading order: `edge` starts the program, `client` talks to it (`request`, `response`), `node`
//! stands behind it (`script`), `check` holds what is true of every answer, `documents` holds each
//! against the document of its surface; then one file for each topic, and a folder for each of the
//! other surfaces: `relay`, `sidecar`. Every test has its own process on free ports, and none
//! sleeps: they wait for bytes.

#![expect(clippy::unwrap_used, reason = "helpers of tests fail by panicking, too")]

mod admin;
mod answers;
mod cache;
mod chain;
mod check;
mod client;
mod client2;
mod commands;
mod connections;
mod documents;
mod edge;
mod flights;
mod folder;
mod framing;
mod handover;
mod heads;
mod http2;
mod limits;
mod manager;
mod node;
mod node_body;
mod node_head;
mod node_time;
mod operator;
mod order;
mod refusals;
mod relay;
mod reload;
mod repeats;
mod request;
mod response;
mod script;
mod secure;
mod sidecar;
mod slow;
mod startup;
mod stop;
mod store;
mod supervised;
mod tls;
