//! The health of the node's URLs, and the way of a read through them.
//!
//! A URL is judged by its valid answers, to calls and polls alike: a result, or an error of the
//! API. Everything else is a failure of one [`FailureClass`]. In: observations and the time, as a
//! duration since an arbitrary start. Out: which URL to ask next, and whether to ask a second one.
//! Nothing here sends a request.
//! Reading order: [`failure`] (classes), [`health`] (one URL), [`routing`] (one read over all
//! URLs), [`hedge`] (when a second URL is asked as well).

pub mod failure;
pub mod health;
pub mod hedge;
pub mod routing;

pub use failure::{FailureClass, InvalidAnswer};
pub use health::{Asked, Fault, UrlHealth};
pub use hedge::{HedgeBudget, Latency, SLOW};
pub use routing::{End, Repeat, Routing, Standing, Step};
