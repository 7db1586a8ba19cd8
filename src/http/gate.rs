//! Connections: how many, how long, and over which protocol.
//!
//! In: accepted streams. Out: for each request a session, on which Pingora's app runs. Pingora has
//! no cap on connections, in total or per peer, and shakes hands before any code of ours: so the
//! gate counts first, then shakes hands where there is a certificate, and then reads heads whole
//! and in time (`http1`, `http2`). Next: `proxy`, whose phases answer each request.

use super::http1::{Connection, Limits};
use super::http2;
use super::request::{Request, Transport};
use super::respond::Rendered;
use super::secured::Secured;
use super::session::Handoff;
use crate::config::ConnectionsConfig;
use crate::http::context::ServerContext;
use crate::http::drain::ConnectionGuard;
use crate::http::tls::{self, Certificates, Identity};
use crate::io::cold;
use crate::io::deadline::lifetime;
use crate::telemetry::{ConnectionOutcome, Handshake, Surface};
use async_trait::async_trait;
use http::Version;
use parking_lot::Mutex;
use pingora::apps::{HttpServerApp, ServerApp};
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::verdict::Reason;
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// Beyond its lifetime a connection has this long to finish the request that it serves.
const LAST_REQUEST: Duration = Duration::from_secs(120);
/// To send a refusal to a client over the cap.
const TURN_AWAY: Duration = Duration::from_secs(1);

/// Responses to requests that reach no app: over the cap, too slow, too large or malformed.
pub trait ErrorResponder: Send + Sync + 'static {
    /// The response for this version of HTTP. Logs and counts the refusal.
    fn respond(&self, reason: Reason, peer: Option<IpAddr>, version: Version) -> Rendered;
}

/// The message that goes with a refusal by the gate.
pub fn message_of(reason: Reason) -> &'static str {
    match reason {
        Reason::Overloaded => "too many connections",
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
    max_per_peer: usize,
    trusted: TrustedProxies,
    connections: Arc<Mutex<Connections>>,
    pub(super) process: ServerContext,
    tls: Certificates,
    pub(super) errors: Arc<dyn ErrorResponder>,
}

/// Open connections.
#[derive(Default)]
struct Connections {
    all: usize,
    by_peer: HashMap<IpAddr, usize>,
}

impl<A> Gate<A> {
    /// A gate in front of `app`, without TLS. Peers in `trusted` are exempt from the cap per peer,
    /// because many clients come through each.
    pub fn new(
        app: Arc<A>,
        surface: Surface,
        config: &ConnectionsConfig,
        trusted: TrustedProxies,
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
            max_per_peer: config.max_per_client,
            trusted,
            connections: Arc::default(),
            process: process.clone(),
            tls: Certificates::default(),
            errors,
        }
    }

    /// The same gate with the certificate that is in force for its surface when a client connects.
    #[must_use]
    pub fn secured_by(self, tls: Certificates) -> Self {
        Self { tls, ..self }
    }

    fn acquire(&self, peer: Option<IpAddr>) -> Option<ConnectionPermit> {
        let counted = peer.filter(|peer| !self.trusted.contains(*peer));
        let mut connections = self.connections.lock();
        if connections.all >= self.max {
            return None;
        }
        if let Some(peer) = counted {
            let count = connections.by_peer.entry(peer).or_default();
            if *count >= self.max_per_peer {
                return None;
            }
            *count += 1;
        }
        connections.all += 1;
        drop(connections);
        let gauge = self.process.metrics.connections[self.surface as usize].clone();
        gauge.inc();
        let connections = Arc::clone(&self.connections);
        Some(ConnectionPermit { connections, peer: counted, gauge })
    }
}

impl<A: HttpServerApp + Send + Sync + 'static> Gate<A> {
    /// Refuses a client over the cap.
    async fn turn_away(&self, mut stream: Stream, peer: Option<IpAddr>) {
        let refusal = self.errors.respond(Reason::Overloaded, peer, Version::HTTP_11);
        // a handshake would cost more than it saves
        if self.tls.of(self.surface).is_some() {
            return;
        }
        if let Rendered::Http1([response, ..]) = refusal {
            // whether the client reads it or not, the connection ends here
            let written =
                async { stream.write_all(&response).await.is_ok() && stream.flush().await.is_ok() };
            let _ = tokio::time::timeout(TURN_AWAY, written).await;
        }
    }

    /// Shakes hands, then serves the protocol that the client chose.
    async fn serve_secured(
        self: Arc<Self>,
        stream: Stream,
        identity: Arc<Identity>,
        peer: Option<IpAddr>,
        drain: ConnectionGuard,
        shutdown: &ShutdownWatch,
    ) {
        let config = Arc::clone(&identity.config);
        let stream = match Secured::accept(stream, config, self.limits.header_timeout).await {
            Ok(stream) => stream,
            Err(outcome) => return self.process.metrics.handshake(self.surface, outcome),
        };
        self.process.metrics.handshake(self.surface, Handshake::Ok);
        let is_http2 = tls::is_http2(stream.protocol());
        let stream: Stream = Box::new(stream);
        if is_http2 {
            http2::serve(self, stream, peer, drain, shutdown).await;
        } else {
            self.serve_http1(self.connection(stream, peer, drain), shutdown).await;
        }
    }

    fn connection(
        &self,
        stream: Stream,
        peer: Option<IpAddr>,
        drain: ConnectionGuard,
    ) -> Box<Connection> {
        let (limits, errors) = (Arc::clone(&self.limits), Arc::clone(&self.errors));
        Box::new(Connection::new(stream, peer, limits, errors, drain))
    }

    /// Serves one request after the other.
    async fn serve_http1(&self, mut connection: Box<Connection>, shutdown: &ShutdownWatch) {
        let handoff = Handoff::default();
        while let Some(header) = connection.next_head().await {
            let session = handoff.lend(Request(Transport::Http1(connection)), header);
            self.app.process_new_http(session, shutdown).await;
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
        stream: Stream,
        shutdown: &ShutdownWatch,
    ) -> Option<Stream> {
        let digest = stream.get_socket_digest();
        let address = digest.as_ref().and_then(|digest| digest.peer_addr());
        let peer = address.and_then(|address| address.as_inet()).map(std::net::SocketAddr::ip);
        let permit = self.acquire(peer);
        let outcome = match permit {
            Some(_) => ConnectionOutcome::Accepted,
            None => ConnectionOutcome::Refused,
        };
        self.process.metrics.connection(self.surface, outcome);
        let Some(_permit) = permit else {
            cold(self.turn_away(stream, peer)).await;
            return None;
        };
        let task = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let drain = self.process.drain.watch(task);
        // between requests the proxy ends an old connection; this ends one that never gets there
        let limit = self.limits.lifetime + LAST_REQUEST;
        let _ = match self.tls.of(self.surface) {
            None => {
                let connection = self.connection(stream, peer, drain);
                lifetime(limit, self.serve_http1(connection, shutdown)).await
            }
            Some(identity) => {
                let gate = Arc::clone(self);
                let served = gate.serve_secured(stream, identity, peer, drain, shutdown);
                lifetime(limit, cold(served)).await
            }
        };
        None
    }
}

/// An open connection's share of the caps, released on drop.
struct ConnectionPermit {
    connections: Arc<Mutex<Connections>>,
    peer: Option<IpAddr>,
    gauge: prometheus::IntGauge,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        self.gauge.dec();
        let mut connections = self.connections.lock();
        connections.all = connections.all.saturating_sub(1);
        if let Some(peer) = self.peer
            && let Some(count) = connections.by_peer.get_mut(&peer)
        {
            *count -= 1;
            if *count == 0 {
                connections.by_peer.remove(&peer);
            }
        }
    }
}
