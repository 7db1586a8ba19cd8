//! The other end of a connection, and what the debug log says of it.

use crate::telemetry::{Log, Surface};
use std::net::IpAddr;
use tokio::time::Instant;

/// Who is at the other end.
pub(super) struct Peer {
    /// Its address; `None` for a Unix socket.
    pub(super) address: Option<IpAddr>,
    /// Boxed, and only while debug lines are logged: other connections do not pay for it.
    trace: Option<Box<Trace>>,
}

/// Logs the end of a connection when it is dropped.
struct Trace {
    surface: Surface,
    client: String,
    opened: Instant,
    requests: u64,
    cause: &'static str,
}

impl Peer {
    /// The peer of a connection that was accepted just now.
    pub(super) fn accepted(address: Option<IpAddr>, surface: Surface, log: &Log) -> Self {
        let trace = log::log_enabled!(log::Level::Debug).then(|| {
            let client = address.map_or_else(|| "unix".to_owned(), |peer| log.shown(peer));
            let name = surface.name();
            log::debug!(surface = name, client; "connection accepted");
            let (opened, cause) = (Instant::now(), "the client left");
            Box::new(Trace { surface, client, opened, requests: 0, cause })
        });
        Self { address, trace }
    }

    /// A request arrived.
    pub(super) fn count_request(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.requests += 1;
        }
    }

    /// Why the connection ends.
    pub(super) fn ends(&mut self, cause: &'static str) {
        if let Some(trace) = &mut self.trace {
            trace.cause = cause;
        }
    }

    /// Logs why a TLS handshake failed.
    pub(super) fn log_handshake(&mut self, outcome: &str, error: &std::io::Error) {
        if let Some(trace) = &mut self.trace {
            let (surface, client) = (trace.surface.name(), &trace.client);
            log::debug!(surface, client, outcome, error:%; "TLS handshake failed");
            trace.cause = "its TLS handshake failed";
        }
    }
}

impl Drop for Trace {
    fn drop(&mut self) {
        let Self { client, requests, cause, .. } = &*self;
        let (surface, lasted) = (self.surface.name(), self.opened.elapsed());
        log::debug!(surface, client, cause, requests, lasted:?; "connection closed");
    }
}
