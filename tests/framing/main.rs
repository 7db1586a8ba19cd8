//! Request framing, judged by others: a stream that the program accepts is the same requests to
//! every parser that accepts it.
//!
//! `grammar` generates streams of one to four requests with `oddities`; `collected.txt` has known
//! attacks. `http` reads a stream as the program does; `judges` has nginx, HAProxy, llhttp and
//! hyper read it, and `differ` compares. `program` sends accepted streams to the real program,
//! `fronts` through real front proxies. `minimise` shortens a disagreement, `known` lists those in
//! which the program is right. `campaign` runs all of it.

#![expect(
    clippy::unwrap_used,
    reason = "helpers of tests fail by panicking, too"
)]

mod campaign;
mod client;
mod differ;
mod draft;
mod escape;
mod fronts;
mod grammar;
mod http;
mod judges;
mod known;
mod minimise;
mod oddities;
mod processes;
mod program;
mod rng;
mod servers;
