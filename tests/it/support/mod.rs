//! The test harness: `edge` starts the program, `client` and `client2` connect to it (`request`,
//! `response`), `node` is the fake node (`script`), `check` asserts the invariants of every
//! response, `documents` checks each response against the document of its surface.

pub(crate) mod away;
pub(crate) mod balancer;
pub(crate) mod brands;
pub(crate) mod chain;
pub(crate) mod check;
pub(crate) mod client;
pub(crate) mod client2;
pub(crate) mod collector;
pub(crate) mod dev;
pub(crate) mod documents;
pub(crate) mod edge;
pub(crate) mod folder;
pub(crate) mod forward;
pub(crate) mod load;
pub(crate) mod node;
pub(crate) mod postgres;
pub(crate) mod redis;
pub(crate) mod relay;
pub(crate) mod replicas;
pub(crate) mod request;
pub(crate) mod response;
pub(crate) mod script;
pub(crate) mod secure;
pub(crate) mod sidecar;
