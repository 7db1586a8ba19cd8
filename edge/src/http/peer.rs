//! The peer of a connection: whether it is trusted, and its lines in the debug log.

use super::clients::{Running, Settings};
use super::waiting::ClientMemory;
use http::HeaderMap;
use portcullis_base::telemetry::{Log, Surface};
use portcullis_filters::client::{ClientKey, TrustedProxies};
use portcullis_filters::head;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use tokio::time::Instant;

/// Decides which peers of a listener are trusted: the proxies and balancers in front of it.
pub trait Trust: Send + Sync {
    /// Whether many clients may come through this peer; `None` is a Unix socket and counts as
    /// `127.0.0.1`.
    fn trusts(&self, peer: Option<IpAddr>) -> bool;

    /// The client behind this peer that sent these fields.
    fn client(&self, peer: Option<IpAddr>, fields: &HeaderMap) -> ClientKey;
}

/// Trusts nobody: each peer is a client.
pub struct NoTrust;

impl Trust for NoTrust {
    fn trusts(&self, _: Option<IpAddr>) -> bool {
        false
    }

    fn client(&self, peer: Option<IpAddr>, fields: &HeaderMap) -> ClientKey {
        head::client_of(peer, fields, &TrustedProxies::default()).key
    }
}

/// Trusts the proxies in the settings in force.
impl<S: Settings> Trust for Running<S> {
    fn trusts(&self, peer: Option<IpAddr>) -> bool {
        let peer = peer.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        self.settings().trusted_proxies().contains(peer)
    }

    fn client(&self, peer: Option<IpAddr>, fields: &HeaderMap) -> ClientKey {
        head::client_of(peer, fields, self.settings().trusted_proxies()).key
    }
}

/// The peer of a connection.
pub(super) struct Peer {
    /// The peer's address, or that of the client in its PROXY header; `None` for a Unix socket.
    pub(super) address: Option<IpAddr>,
    /// The memory of the client's requests; `None` for a trusted proxy, which has many clients.
    pub(super) memory: Option<Arc<ClientMemory>>,
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
    pub(super) fn accepted(
        address: Option<IpAddr>,
        memory: Option<Arc<ClientMemory>>,
        surface: Surface,
        log: &Log,
    ) -> Self {
        let trace = log::log_enabled!(log::Level::Debug).then(|| {
            let client = shown(address, log);
            let name = surface.name();
            log::debug!(surface = name, client; "connection accepted");
            let (opened, cause) = (Instant::now(), "the client left");
            Box::new(Trace {
                surface,
                client,
                opened,
                requests: 0,
                cause,
            })
        });
        Self {
            address,
            memory,
            trace,
        }
    }

    /// Whether many clients share this connection: a trusted proxy, or a Unix socket.
    pub(super) fn is_proxy(&self) -> bool {
        self.memory.is_none()
    }

    /// Counts a request, for the debug log.
    pub(super) fn count_request(&mut self) {
        if let Some(trace) = &mut self.trace {
            trace.requests += 1;
        }
    }

    /// Sets why the connection ends, for the debug log.
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

/// An address as the log shows it.
pub(super) fn shown(address: Option<IpAddr>, log: &Log) -> String {
    address.map_or_else(|| "unix".to_owned(), |address| log.shown(address))
}

impl Drop for Trace {
    fn drop(&mut self) {
        let Self {
            client,
            requests,
            cause,
            ..
        } = &*self;
        let (surface, lasted) = (self.surface.name(), self.opened.elapsed());
        log::debug!(surface, client, cause, requests, lasted:?; "connection closed");
    }
}
