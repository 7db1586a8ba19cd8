//! The parts below all others.
//!
//! Reading order: [`config`], [`secrets`], [`io`], [`fetch`], [`telemetry`].

pub mod config;
pub mod fetch;
pub mod io;
pub mod secrets;
pub mod telemetry;
