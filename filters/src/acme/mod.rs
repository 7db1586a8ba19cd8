//! How certificates are ordered and renewed by ACME (RFC 8555, RFC 9773).
//!
//! In: the stored state, the authority's answers, time and chance. Out: one [`Action`] at a time,
//! the last of which is a rest. [`Renewal`] decides for one certificate: `renewal` whether an order
//! is due, `attempt` how one goes on, [`schedule`] when. [`document`] checks what an authority
//! sends before anything else parses it, [`Failure`] says what a refusal means, [`Progress`] is
//! stored. Nothing here performs an action: a driver does, and decides nothing.

mod attempt;
pub mod document;
mod failure;
mod message;
mod progress;
mod renewal;
pub mod schedule;
#[cfg(test)]
mod tests;
mod window;

pub use failure::{Class, Failure};
pub use message::{
    Action, Authorization, Certificate, Challenge, Ended, Event, Lock, Order, OrderStatus, Report,
    Rest, Seen,
};
pub use progress::{Begun, Progress, Receipt};
pub use renewal::Renewal;
