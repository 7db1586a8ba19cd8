//! Wire tests of the sidecar: feeds, podcasts, crawler documents, health, and proofs of age.
//!
//! The harness is `support::sidecar`: `stage` starts a sidecar with secrets and a store filled with
//! `content`. `token` makes user sessions, `event` verifier events, `upstream` the servers that
//! health checks and lookups contact; `expect` checks what every response must have. `auth`,
//! `feed`, `fetch`, `sitemap` and `xml` call the library, to set the time and the data.

mod age;
mod auth;
mod conditional;
mod config;
mod cursors;
mod describe;
mod discovery;
mod events;
mod feed;
mod fetch;
mod framing;
mod gzip;
mod headers;
mod health;
mod hub;
mod limits;
mod logs;
mod operating;
mod order;
mod podcast;
mod routes;
mod secured;
mod signatures;
mod sitemap;
mod skeleton;
mod store;
mod viewers;
mod walk;
mod xml;
