//! Wire tests of the program: real processes, raw sockets, a node that misbehaves on command.
//!
//! `support` holds the harness. The gateway's tests have one file per topic; the other surfaces
//! have folders, `relay` and `sidecar`. Each test has its own process on free ports, and never
//! sleeps: tests wait for bytes. Some of the sidecar's call the library instead.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, too"
)]

mod access;
mod acme;
mod admin;
mod answers;
mod backup;
mod balancers;
mod brands;
mod breaker;
mod cache;
mod chains;
mod check;
mod client_networks;
mod commands;
mod config;
mod connections;
mod debugging;
mod dev;
mod dev_nodes;
mod documents;
mod drift;
mod failover;
mod fleet;
mod fleet_servers;
mod flights;
mod framing;
mod gzip;
mod handover;
mod heads;
mod help;
mod http2;
mod http2_faults;
mod http2_frames;
mod http2_streams;
mod io;
mod late_keys;
mod late_store;
mod limits;
mod live_keys;
mod manager;
mod node_body;
mod node_causes;
mod node_head;
mod node_time;
mod node_tls;
mod nodes;
mod operator;
mod order;
mod peer_certificates;
mod positions;
mod probe;
mod proxied;
mod public_documents;
mod refusals;
mod relay;
mod reload;
mod repeats;
mod rotation;
mod sampling;
mod secret_modes;
mod shown;
mod sidecar;
mod slow;
mod slow_readers;
mod standbys;
mod startup;
mod stderr;
mod stop;
mod store;
mod store_tls;
mod supervised;
mod support;
mod tasks;
mod tls;
mod traces;
mod trust;
mod unread;
mod verdict;
mod wall_clock;
