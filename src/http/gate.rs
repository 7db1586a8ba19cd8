//! Accepts connections: bounds their number and lifetime, and selects their protocol.
//!
//! In: accepted streams. Out: for each request a session, on which Pingora's app runs. Pingora has
//! no cap on connections, in total or per client, and performs TLS handshakes before any code of
//! ours. So the gate counts first, by the client in the PROXY header behind a balancer (`proxied`),
//! then performs the handshake if the surface has TLS, and then reads heads whole and in time
//! (`http1`, `http2`).
//! Next: `proxy`, whose phases answer each request.

use super::challenges;
use super::http1::{Connection, Limits};
use super::http2::{self, Sender};
use super::peer::{self, Peer, TrustedPeers};
use super::proxied::{ClosedLog, read_client};
use super::request::Rendered;
use super::request::{Request, Transport};
use super::secured::Secured;
use super::session::Handoff;
use super::waiting::{ClientMemory, WaitingRequests};
use crate::config::ConnectionsConfig;
use crate::http::certificates::Certificates;
use crate::http::context::{ConnectionGuard, ServerContext};
use crate::http::tls::{self, Identity, Presented};
use crate::io::{DescriptorUse, cold, lifetime};
use crate::telemetry::{ConnectionOutcome, Handshake, ProxyHeader, Surface};
use async_trait::async_trait;
use http::{HeaderMap, Version};
use parking_lot::Mutex;
use pingora::apps::{HttpServerApp, ServerApp};
use pingora::protocols::{Shutdown, Stream};
use pingora::server::ShutdownWatch;
use portcullis_filters::client::ClientKey;
use portcullis_filters::verdict::Reason;
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

/// Beyond its lifetime a connection has this long to finish the request that it serves.
const LAST_REQUEST: Duration = Duration::from_secs(120);
/// Timeout for sending a refusal to a client over the cap.
const TURN_AWAY: Duration = Duration::from_secs(1);

/// Responses to requests that reach no app: over the cap, too slow, too large or malformed.
pub trait ErrorResponder: Send + Sync + 'static {
    /// The response for this version of HTTP. Logs and counts the refusal.
    fn respond(&self, reason: Reason, peer: Option<IpAddr>, version: Version) -> Rendered;
}

/// The message of a refusal by the gate.
pub fn message_of(reason: Reason) -> &'static str {
    match reason {
        Reason::Overloaded => "too many connections",
        Reason::TooManyInFlight => "too many requests at a time: wait for responses",
        Reason::HeaderTooLarge => "the request head is too large",
        Reason::RequestTimeout => "the request head did not arrive in time",
        Reason::WrongHttpMethod => "this is not a forward proxy",
        Reason::ConflictingFraming => "Content-Length or Transfer-Encoding is not usable",
        Reason::InvalidRequest => "the request head is malformed",
        _ => "the request cannot be served",
    }
}

/// Accepts connections for one of Pingora's apps.
pub struct Gate<A> {
    pub(super) app: Arc<A>,
    surface: Surface,
    pub(super) limits: Arc<Limits>,
    max: usize,
    max_per_client: usize,
    trusted: TrustedPeers,
    /// Logs bad PROXY headers, if connections begin with one.
    proxied: Option<ClosedLog>,
    connections: Arc<Mutex<Connections>>,
    pub(super) process: ServerContext,
    tls: Certificates,
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
struct ClientPlace {
    client: ClientKey,
    /// Connections of the client, this one included.
    connections: usize,
    memory: Arc<ClientMemory>,
}

impl Connections {
    fn new(waiting: &Arc<WaitingRequests>) -> Self {
        Self { all: 0, by_client: HashMap::new(), waiting: Arc::clone(waiting) }
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
            .or_insert_with(|| ClientConnections { open: 0, memory: self.waiting.connected() });
        if of_client.open >= max_per_client {
            return None;
        }
        of_client.open += 1;
        let memory = Arc::clone(&of_client.memory);
        Some(ClientPlace { client, connections: of_client.open, memory })
    }

    fn remove(&mut self, client: Option<ClientKey>) {
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
    /// A gate in front of `app`, without TLS. Peers in `trusted` are exempt from the cap per
    /// client, because many clients come through each.
    pub fn new(
        app: Arc<A>,
        surface: Surface,
        config: &ConnectionsConfig,
        trusted: TrustedPeers,
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
        Self { proxied: Some(ClosedLog::default()), ..self }
    }

    /// Whether many clients may come through this peer.
    pub(super) fn trusts(&self, peer: Option<IpAddr>) -> bool {
        self.trusted.contain(self.surface, peer)
    }

    /// The client behind `peer` that sent these fields.
    pub(super) fn client_of(&self, peer: Option<IpAddr>, fields: &HeaderMap) -> ClientKey {
        self.trusted.client(self.surface, peer, fields)
    }

    /// The sender of a connection's requests.
    fn sender(&self, permit: &ConnectionPermit, peer: Option<IpAddr>) -> Sender {
        match self.trusts(peer) {
            true => Sender::Proxy,
            false => Sender::Client {
                connections: permit.place.as_ref().map_or(0, |place| place.connections),
            },
        }
    }

    /// The client that a connection counts for; `None` for a trusted peer or a Unix socket.
    fn client(&self, peer: Option<IpAddr>) -> Option<ClientKey> {
        peer.filter(|_| !self.trusts(peer)).map(ClientKey::of)
    }

    fn acquire(&self, client: Option<ClientKey>) -> Option<ConnectionPermit> {
        let place = self.connections.lock().add(client, self.max, self.max_per_client)?;
        let gauge = self.process.metrics.connections[self.surface as usize].clone();
        gauge.inc();
        let connections = Arc::clone(&self.connections);
        Some(ConnectionPermit { connections, place, gauge })
    }
}

impl<A: HttpServerApp + Send + Sync + 'static> Gate<A> {
    /// Refuses a client over the cap.
    async fn turn_away(&self, mut stream: Stream, peer: Option<IpAddr>) {
        let refusal = self.errors.respond(Reason::Overloaded, peer, Version::HTTP_11);
        // a handshake would cost more than it saves
        if self.tls.is_secured(self.surface) {
            return;
        }
        if let Rendered::Http1([response, ..]) = refusal {
            // the connection ends here, whether the client reads the response or not
            let written =
                async { stream.write_all(&response).await.is_ok() && stream.flush().await.is_ok() };
            let _ = tokio::time::timeout(TURN_AWAY, written).await;
        }
    }

    /// Reads the PROXY header. Returns `None` if a bad header closes the connection, otherwise the
    /// permit, if no cap is reached, and the client's address. Until then, the connection counts
    /// only towards the total cap.
    async fn enter_proxied(
        &self,
        stream: &mut Stream,
        peer: Option<IpAddr>,
        closed: &ClosedLog,
    ) -> Option<(Option<ConnectionPermit>, Option<IpAddr>)> {
        let count = |outcome| self.process.metrics.proxy_header(self.surface, outcome);
        let read = if self.trusts(peer) {
            let Some(permit) = self.acquire(None) else { return Some((None, peer)) };
            let client = read_client(stream, self.limits.header_timeout).await;
            client.map(|client| (permit, client))
        } else {
            Err(ProxyHeader::Untrusted)
        };
        let (permit, client) = read
            .inspect_err(|why| {
                count(*why);
                // balancers without the protocol in their health checks connect and leave
                if *why != ProxyHeader::Gone {
                    let peer = peer::shown(peer, &self.process.log);
                    closed.log(self.surface, &peer, *why, Instant::now());
                }
            })
            .ok()?;
        count(if client.is_some() { ProxyHeader::Ok } else { ProxyHeader::Local });
        let client = client.or(peer);
        Some((permit.counted_as(self.client(client), self.max_per_client), client))
    }

    /// Performs the TLS handshake, then serves the protocol that the client chose.
    async fn serve_secured(
        self: Arc<Self>,
        stream: Stream,
        identity: Option<Arc<Identity>>,
        mut peer: Peer,
        sender: Sender,
        drain: ConnectionGuard,
        shutdown: &ShutdownWatch,
    ) {
        let config = identity.map(|identity| Arc::clone(&identity.config));
        let limit = self.limits.header_timeout;
        let accepted = match (self.tls.challenges.pending(), config) {
            (None, Some(config)) => Secured::accept(stream, config, limit).await,
            (Some(pending), config) => {
                Secured::accept_challenged(stream, config, &pending, limit).await
            }
            // the last challenge has just ended
            (None, None) => return,
        };
        let mut stream = match accepted {
            Ok(stream) => stream,
            Err((outcome, error)) => {
                peer.log_handshake(outcome.meaning(), &error);
                return self.process.metrics.handshake(self.surface, outcome);
            }
        };
        if challenges::is_challenge(stream.protocol()) {
            self.process.metrics.handshake(self.surface, Handshake::Challenge);
            // RFC 8737, section 3: the handshake itself is the answer
            return Shutdown::shutdown(&mut stream).await;
        }
        self.process.metrics.handshake(self.surface, Handshake::Ok);
        let is_http2 = tls::is_http2(stream.protocol());
        let stream: Stream = Box::new(stream);
        if is_http2 {
            http2::serve(self, stream, peer, sender, drain, shutdown).await;
        } else {
            self.serve_http1(self.connection(stream, peer, drain), shutdown).await;
        }
    }

    fn connection(&self, stream: Stream, peer: Peer, drain: ConnectionGuard) -> Box<Connection> {
        let (limits, errors) = (Arc::clone(&self.limits), Arc::clone(&self.errors));
        Box::new(Connection::new(stream, peer, limits, errors, drain))
    }

    /// Serves one request after the other.
    async fn serve_http1(&self, mut connection: Box<Connection>, shutdown: &ShutdownWatch) {
        let handoff = Handoff::default();
        while let Some(header) = connection.next_head().await {
            let client = || self.client_of(connection.peer(), &header.headers);
            let waiting = connection.waits_for_body().then(|| {
                let raw = connection.head().len();
                let connected = connection.memory();
                self.process.waiting.request(connected, client(), &header.headers, raw)
            });
            let Ok(waiting) = waiting.transpose() else {
                let client = client().address();
                drop(header);
                return cold(connection.refuse(Reason::TooManyInFlight, Some(client))).await;
            };
            let session = handoff.lend(Request(Transport::Http1(connection)), header);
            self.app.process_new_http(session, shutdown).await;
            drop(waiting);
            let (request, header) = handoff.take_back();
            let Some(Request(Transport::Http1(answered))) = request else { return };
            connection = answered;
            if !connection.finish(header).await {
                return;
            }
        }
    }
}

#[async_trait]
impl<A: HttpServerApp + Send + Sync + 'static> ServerApp for Gate<A> {
    async fn process_new(
        self: &Arc<Self>,
        mut stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let digest = stream.get_socket_digest();
        let address = digest.as_ref().and_then(|digest| digest.peer_addr());
        let peer = address.and_then(|address| address.as_inet()).map(std::net::SocketAddr::ip);
        let is_reserved =
            self.surface != Surface::Admin && DescriptorUse::Client.is_reserved(stream.id());
        let (permit, peer) = match &self.proxied {
            _ if is_reserved => (None, peer),
            None => (self.acquire(self.client(peer)), peer),
            Some(closed) => cold(self.enter_proxied(&mut stream, peer, closed)).await?,
        };
        let tls = self.tls.presented(self.surface);
        let is_open = !matches!(*tls, Presented::Unusable(_));
        let permit = permit.filter(|_| is_open || self.tls.challenges.pending().is_some());
        let outcome = match permit {
            Some(_) => ConnectionOutcome::Accepted,
            None => ConnectionOutcome::Refused,
        };
        self.process.metrics.connection(self.surface, outcome);
        let Some(permit) = permit else {
            cold(self.turn_away(stream, peer)).await;
            return None;
        };
        let sender = self.sender(&permit, peer);
        let memory = permit.place.as_ref().map(|place| Arc::clone(&place.memory));
        let peer = Peer::accepted(peer, memory, self.surface, &self.process.log);
        let task = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let drain = self.process.drain.watch(task);
        // the proxy closes an old connection between requests; this ends one whose request never
        // ends
        let limit = self.limits.lifetime + LAST_REQUEST;
        let _ = match &*tls {
            Presented::Nothing => {
                let connection = self.connection(stream, peer, drain);
                lifetime(limit, self.serve_http1(connection, shutdown)).await
            }
            secured => {
                let (gate, identity) = (Arc::clone(self), secured.identity().cloned());
                let served = gate.serve_secured(stream, identity, peer, sender, drain, shutdown);
                lifetime(limit, cold(served)).await
            }
        };
        None
    }
}

/// An open connection's share of the caps, released on drop.
struct ConnectionPermit {
    connections: Arc<Mutex<Connections>>,
    /// `None` if the connection counts for no client.
    place: Option<ClientPlace>,
    gauge: prometheus::IntGauge,
}

impl ConnectionPermit {
    /// Counts the permit as this client's, unless the client has `max_per_client` already.
    fn counted_as(mut self, client: Option<ClientKey>, max_per_client: usize) -> Option<Self> {
        if let Some(client) = client {
            self.place = Some(self.connections.lock().add_to(client, max_per_client)?);
        }
        Some(self)
    }
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.gauge.dec();
        self.connections.lock().remove(self.place.as_ref().map(|place| place.client));
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
        assert_eq!(added.map(|place| place.connections), Some(2), "a place was left");
    }
}
