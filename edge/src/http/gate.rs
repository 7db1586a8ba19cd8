//! The caps on connections, in total and per client.
//!
//! Pingora has no cap on connections, and shakes hands before any code of ours: so the gate counts
//! first. `accept` serves what it admits.

use super::errors::ErrorResponder;
use super::http1::Limits;
use super::peer::Trust;
use super::proxied::ClosedLog;
use super::waiting::{ClientMemory, WaitingRequests};
use crate::http::certificates::Certificates;
use crate::http::context::ServerContext;
use http::HeaderMap;
use parking_lot::Mutex;
use portcullis_base::config::ConnectionsConfig;
use portcullis_base::telemetry::Surface;
use portcullis_filters::client::ClientKey;
use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Arc;

/// Accepts connections for one of Pingora's apps.
pub struct Gate<A> {
    pub(super) app: Arc<A>,
    pub(super) surface: Surface,
    pub(super) limits: Arc<Limits>,
    max: usize,
    pub(super) max_per_client: usize,
    trusted: Arc<dyn Trust>,
    /// Logs bad PROXY headers, if connections begin with one.
    pub(super) proxied: Option<ClosedLog>,
    connections: Arc<Mutex<Connections>>,
    pub(super) process: ServerContext,
    pub(super) tls: Certificates,
    pub(super) errors: Arc<dyn ErrorResponder>,
}

/// Open connections. An IPv6 /64 counts as one client, as it does for requests.
struct Connections {
    all: usize,
    by_client: HashMap<ClientKey, ClientConnections>,
    waiting: Arc<WaitingRequests>,
}

/// The connections of one client, and the memory of their requests.
struct ClientConnections {
    open: usize,
    memory: Arc<ClientMemory>,
}

/// A connection that counts for a client.
pub(super) struct ClientPlace {
    client: ClientKey,
    /// Connections of the client, this one included.
    pub(super) connections: usize,
    pub(super) memory: Arc<ClientMemory>,
}

impl Connections {
    fn new(waiting: &Arc<WaitingRequests>) -> Self {
        Self {
            all: 0,
            by_client: HashMap::new(),
            waiting: Arc::clone(waiting),
        }
    }

    /// Counts a connection, unless there are `max` or its client has `max_per_client`.
    fn add(
        &mut self,
        client: Option<ClientKey>,
        max: usize,
        max_per_client: usize,
    ) -> Option<Option<ClientPlace>> {
        if self.all >= max {
            return None;
        }
        let place = match client {
            Some(client) => Some(self.add_to(client, max_per_client)?),
            None => None,
        };
        self.all += 1;
        Some(place)
    }

    /// Counts a connection as this client's, unless the client has `max_per_client`.
    fn add_to(&mut self, client: ClientKey, max_per_client: usize) -> Option<ClientPlace> {
        let of_client = self
            .by_client
            .entry(client)
            .or_insert_with(|| ClientConnections {
                open: 0,
                memory: self.waiting.connected(),
            });
        if of_client.open >= max_per_client {
            return None;
        }
        of_client.open += 1;
        let memory = Arc::clone(&of_client.memory);
        Some(ClientPlace {
            client,
            connections: of_client.open,
            memory,
        })
    }

    fn remove(&mut self, client: Option<ClientKey>) {
        debug_assert!(self.all > 0, "each connection is counted");
        self.all = self.all.saturating_sub(1);
        if let Some(client) = client
            && let Some(of_client) = self.by_client.get_mut(&client)
        {
            of_client.open -= 1;
            if of_client.open == 0 {
                self.by_client.remove(&client);
            }
        }
    }
}

impl<A> Gate<A> {
    /// A gate in front of `app`, without TLS. Trusted peers are exempt from the cap per
    /// client, because many clients come through each.
    pub fn new(
        app: Arc<A>,
        surface: Surface,
        config: &ConnectionsConfig,
        trusted: Arc<dyn Trust>,
        process: &ServerContext,
        errors: Arc<dyn ErrorResponder>,
    ) -> Self {
        let max = i64::try_from(config.max).unwrap_or(i64::MAX);
        process.metrics.connections_limit[surface as usize].set(max);
        Self {
            app,
            surface,
            limits: Arc::new(Limits {
                header_size: config.header_size.bytes(),
                header_timeout: config.header_timeout,
                write_timeout: config.write_timeout,
                idle_timeout: config.idle_timeout,
                proxy_idle_timeout: config.proxy_idle_timeout,
                lifetime: config.lifetime,
            }),
            max: config.max,
            max_per_client: config.max_per_client,
            trusted,
            proxied: None,
            connections: Arc::new(Mutex::new(Connections::new(&process.waiting))),
            process: process.clone(),
            tls: Certificates::default(),
            errors,
        }
    }

    /// Secures the gate with the certificate in force for its surface when a client connects.
    #[must_use]
    pub fn secured_by(self, tls: Certificates) -> Self {
        Self { tls, ..self }
    }

    /// Makes the gate expect a PROXY header at the start of each connection.
    #[must_use]
    pub fn behind_balancer(self) -> Self {
        Self {
            proxied: Some(ClosedLog::default()),
            ..self
        }
    }

    /// Whether many clients may come through this peer.
    pub(super) fn trusts(&self, peer: Option<IpAddr>) -> bool {
        self.trusted.trusts(peer)
    }

    /// The client behind `peer` that sent these fields.
    pub(super) fn client_of(&self, peer: Option<IpAddr>, fields: &HeaderMap) -> ClientKey {
        self.trusted.client(peer, fields)
    }

    /// The client that a connection counts for; `None` for a trusted peer or a Unix socket.
    pub(super) fn client(&self, peer: Option<IpAddr>) -> Option<ClientKey> {
        peer.filter(|_| !self.trusts(peer)).map(ClientKey::of)
    }

    pub(super) fn acquire(&self, client: Option<ClientKey>) -> Option<ConnectionPermit> {
        let place = self
            .connections
            .lock()
            .add(client, self.max, self.max_per_client)?;
        let gauge = self.process.metrics.connections[self.surface as usize].clone();
        gauge.inc();
        let connections = Arc::clone(&self.connections);
        Some(ConnectionPermit {
            connections,
            place,
            gauge,
        })
    }
}

/// An open connection's share of the caps, released on drop.
pub(super) struct ConnectionPermit {
    connections: Arc<Mutex<Connections>>,
    /// `None` if the connection counts for no client.
    pub(super) place: Option<ClientPlace>,
    gauge: prometheus::IntGauge,
}

impl ConnectionPermit {
    /// Counts the permit as this client's, unless the client has `max_per_client` already.
    pub(super) fn counted_as(
        mut self,
        client: Option<ClientKey>,
        max_per_client: usize,
    ) -> Option<Self> {
        if let Some(client) = client {
            self.place = Some(self.connections.lock().add_to(client, max_per_client)?);
        }
        Some(self)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.gauge.dec();
        self.connections
            .lock()
            .remove(self.place.as_ref().map(|place| place.client));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_of_one_slash_64_are_one_client() {
        let client = |address: &str| Some(ClientKey::of(address.parse().expect("an address")));
        let mut connections = Connections::new(&Arc::default());
        for (address, place) in [
            ("2001:db8::1", Some(1)),
            ("2001:db8::2", Some(2)),
            ("2001:db8::3", None),
            ("2001:db8:0:1::1", Some(1)),
            ("192.0.2.1", Some(1)),
            ("192.0.2.2", Some(1)),
        ] {
            let added = connections.add(client(address), 9, 2).flatten();
            assert_eq!(added.map(|place| place.connections), place, "{address}");
        }
        connections.remove(client("2001:db8::2"));
        let added = connections.add(client("2001:db8::3"), 9, 2).flatten();
        assert_eq!(
            added.map(|place| place.connections),
            Some(2),
            "a place was left"
        );
    }
}
