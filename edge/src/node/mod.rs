//! A client of the Starknet node: one verified answer per permitted read, or a [`NodeError`].
//!
//! One deadline covers everything from the first connect to the last byte. An answer of at most
//! 4 MiB is read whole and verified before it is passed on. The request is built from scratch: the
//! only header of a client that reaches the node is a well-formed `traceparent`.
//! The pure crate concludes (`portcullis_filters::chain`); next: `client` (calls), `shared` (what
//! all clients know), `status` (which URLs serve), `poller`, `watch` (its polls for the cache),
//! `probes`, `target` (one URL: its connections and attempts), `record` (its failures), `breaker`,
//! `slots` (concurrent reads), `hedge` (a second URL while one is slow), `behind` (waits), `http1`
//! (one exchange), `chain` (typed calls).

mod answer;
mod behind;
mod breaker;
mod call;
mod cause;
pub mod chain;
mod client;
mod credentials;
mod error;
mod hedge;
mod http1;
mod poller;
mod probes;
mod record;
mod route;
mod serving;
mod shared;
mod slots;
mod status;
mod target;
mod watch;

pub use answer::{Answer, MAX_ANSWER};
pub use breaker::{BREAKER_PAUSE, Breaker, CallFailure};
pub use call::{Call, ConnectionChoice};
pub use cause::UrlFailure;
pub use client::NodeClient;
pub use credentials::{Credentials, CredentialsError};
pub use error::NodeError;
pub use poller::Poller;
pub use probes::Probes;
pub use route::Route;
pub use serving::{Serving, Switch};
pub use shared::Node;
pub use slots::ClientRead;
pub use status::{NodeStatus, UrlStats};
