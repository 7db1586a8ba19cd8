//! The sidecar on the wire: feeds, podcasts, what crawlers read, health, and proofs of age.
//!
//! `stage` starts a sidecar with all that is around it: secrets, a store, and in it what `content`
//! holds. `token` makes the sessions of its users, `event` what a verifier sends, `upstream` stands
//! for whatever a health check or a look-up asks; `expect` knows what every answer must be.

mod age;
mod conditional;
mod config;
mod cursors;
mod describe;
mod discovery;
mod events;
mod framing;
mod headers;
mod health;
mod limits;
mod logs;
mod operating;
mod order;
mod podcast;
mod routes;
mod secured;
mod signatures;
mod skeleton;
mod store;
mod viewers;
mod walk;
