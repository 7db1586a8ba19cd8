//! Accepts connections under the caps, and serves them over their protocol.
//!
//! In: accepted streams. Out: for each request a session, on which Pingora's app runs. The client
//! behind a balancer is read from its PROXY header first (`proxied`). Then come the TLS handshake,
//! if the surface has TLS, and the heads, whole and in time (`http1`, `http2`). Next: `proxy`,
//! whose phases answer each request.

use super::challenges;
use super::gate::{ConnectionPermit, Gate};
use super::http1::Connection;
use super::http2::{self, Sender};
use super::peer::{self, Peer};
use super::proxied::{ClosedLog, read_client};
use super::rendered::Rendered;
use super::request::{Request, Transport};
use super::secured::Secured;
use super::session::Handoff;
use crate::http::context::ConnectionGuard;
use crate::http::tls::{self, Identity, Presented};
use async_trait::async_trait;
use http::Version;
use pingora::apps::{HttpServerApp, ServerApp};
use pingora::protocols::{Shutdown, Stream};
use pingora::server::ShutdownWatch;
use portcullis_base::io::{DescriptorUse, cold, lifetime};
use portcullis_base::telemetry::{ConnectionOutcome, Handshake, ProxyHeader, Surface};
use portcullis_filters::verdict::Reason;
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

impl<A: HttpServerApp + Send + Sync + 'static> Gate<A> {
    /// The sender of a connection's requests.
    fn sender(&self, permit: &ConnectionPermit, peer: Option<IpAddr>) -> Sender {
        match self.trusts(peer) {
            true => Sender::Proxy,
            false => Sender::Client {
                connections: permit.place.as_ref().map_or(0, |place| place.connections),
            },
        }
    }

    /// Refuses a client over the cap.
    async fn turn_away(&self, mut stream: Stream, peer: Option<IpAddr>) {
        let refusal = self
            .errors
            .respond(Reason::Overloaded, peer, Version::HTTP_11);
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
            let Some(permit) = self.acquire(None) else {
                return Some((None, peer));
            };
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
        count(if client.is_some() {
            ProxyHeader::Ok
        } else {
            ProxyHeader::Local
        });
        let client = client.or(peer);
        Some((
            permit.counted_as(self.client(client), self.max_per_client),
            client,
        ))
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
            self.process
                .metrics
                .handshake(self.surface, Handshake::Challenge);
            // RFC 8737, section 3: the handshake itself is the answer
            return Shutdown::shutdown(&mut stream).await;
        }
        self.process.metrics.handshake(self.surface, Handshake::Ok);
        let is_http2 = tls::is_http2(stream.protocol());
        let stream: Stream = Box::new(stream);
        if is_http2 {
            http2::serve(self, stream, peer, sender, drain, shutdown).await;
        } else {
            self.serve_http1(self.connection(stream, peer, drain), shutdown)
                .await;
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
                self.process
                    .waiting
                    .request(connected, client(), &header.headers, raw)
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
            let Some(Request(Transport::Http1(answered))) = request else {
                return;
            };
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
        let peer = address
            .and_then(|address| address.as_inet())
            .map(std::net::SocketAddr::ip);
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
