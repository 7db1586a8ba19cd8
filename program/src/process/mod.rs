//! The process: how it starts, listens, reloads, drains, hands over and stops.
//!
//! [`server`] builds everything from a configuration, part by part (`parts`), and runs it under
//! Pingora's `Server`; [`lifecycle`] reacts to signals, which `signals` receives; [`reload`]
//! applies a changed configuration; [`listen`], [`inherited`] and [`handover`] bind, inherit and
//! pass on sockets, `port_owner` finds who holds an address; `loaded` reads secrets and
//! certificates; `files` raises the limit of open files; `health` reports what is wrong, as
//! `failures` and `store_watch` decide; [`systemd`] reports to the service manager.

mod failures;
mod files;
pub mod handover;
mod health;
pub mod inherited;
pub mod lifecycle;
pub mod listen;
pub mod loaded;
mod named_files;
mod parts;
mod peers;
pub mod port_owner;
pub mod reload;
pub mod server;
pub mod signals;
mod start_error;
mod store_watch;
pub mod systemd;
