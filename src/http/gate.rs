//! Connections: how many, how long, and how slowly a head may come.
//!
//! Pingora reads the head of a request before any filter of ours runs, with a timeout per read but
//! none in all, answers a broken one by itself, and keeps its buffers while a client says nothing.
//! [`Gate`] wraps each accepted stream in a [`Connection`], which reads each head whole, in bounded
//! size and time, and replaces Pingora's own bare refusals by ours; only then is there a session,
//! and Pingora parses the head from memory. The gate also caps the connections, in all and per
//! peer, and their age. Where there is a certificate it shakes hands first, and a client may choose
//! HTTP/2 (`http2`). Next: `edge`, which takes each request.

use super::connection::{Connection, Limits};
use super::http2;
use super::request::Request;
use super::secured::Secured;
use crate::config::ConnectionsConfig;
use crate::http::drain::Watched;
use crate::http::process::Process;
use crate::http::tls::{self, Identity, InForce};
use crate::io::deadline::lifetime;
use crate::telemetry::{Handshake, Surface};
use async_trait::async_trait;
use bytes::Bytes;
use http::Response;
use pingora_core::apps::ServerApp;
use pingora_core::protocols::Stream;
use pingora_core::server::ShutdownWatch;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::verdict::Reason;
use std::collections::HashMap;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;
use tokio::io::AsyncWriteExt;

/// Beyond its lifetime a connection has this long to finish the request that it serves.
const LAST_REQUEST: Duration = Duration::from_secs(120);
/// To tell a client that is turned away.
const TURN_AWAY: Duration = Duration::from_secs(1);

/// Words for requests that no filter sees.
pub trait Voice: Send + Sync + 'static {
    /// The whole HTTP response to a request whose head was refused, and its place in log and
    /// metrics.
    fn refuse(&self, reason: Reason, peer: Option<IpAddr>) -> [Bytes; 3];

    /// The same for a request over HTTP/2: the response's head and its body.
    fn refuse_http2(&self, reason: Reason, peer: Option<IpAddr>) -> (Response<()>, Bytes);
}

/// What is behind a gate.
pub trait App: Send + Sync + 'static {
    /// Answers a request. Says whether the answer was sent, so that the connection may go on.
    fn serve(&self, request: &mut Request) -> impl Future<Output = bool> + Send;
}

/// Stands before an app and lets connections in.
pub struct Gate<A> {
    pub(super) app: A,
    surface: Surface,
    pub(super) limits: Arc<Limits>,
    max: usize,
    max_per_peer: usize,
    trusted: TrustedProxies,
    live: Arc<Mutex<Live>>,
    pub(super) process: Process,
    tls: InForce,
    pub(super) voice: Arc<dyn Voice>,
}

/// Connections open.
#[derive(Default)]
struct Live {
    all: usize,
    by_peer: HashMap<IpAddr, usize>,
}

impl<A> Gate<A> {
    /// A gate before `app`, in the clear. Peers in `trusted` are exempt from the cap per peer,
    /// because many clients come through each.
    pub fn new(
        app: A,
        surface: Surface,
        config: &ConnectionsConfig,
        trusted: TrustedProxies,
        process: &Process,
        voice: Arc<dyn Voice>,
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
            live: Arc::default(),
            process: process.clone(),
            tls: InForce::default(),
            voice,
        }
    }

    /// The same, secured with what is in force for its surface whenever a client connects.
    #[must_use]
    pub fn secured_by(self, tls: InForce) -> Self {
        Self { tls, ..self }
    }

    fn enter(&self, peer: Option<IpAddr>) -> Option<Place> {
        let counted = peer.filter(|peer| !self.trusted.contains(*peer));
        let mut live = lock(&self.live);
        if live.all >= self.max {
            return None;
        }
        if let Some(peer) = counted {
            let count = live.by_peer.entry(peer).or_default();
            if *count >= self.max_per_peer {
                return None;
            }
            *count += 1;
        }
        live.all += 1;
        drop(live);
        let gauge = self.process.metrics.connections[self.surface as usize].clone();
        Some(Place::new(Arc::clone(&self.live), counted, gauge))
    }
}

impl<A: App> Gate<A> {
    /// Shakes hands, and serves what the client then speaks.
    async fn serve_secured(
        self: Arc<Self>,
        stream: Stream,
        identity: Arc<Identity>,
        peer: Option<IpAddr>,
        stop: Watched,
    ) {
        let config = Arc::clone(&identity.config);
        let stream = match Secured::accept(stream, config, self.limits.header_timeout).await {
            Ok(stream) => stream,
            Err(outcome) => return self.process.metrics.tls.handshake(self.surface, outcome),
        };
        self.process.metrics.tls.handshake(self.surface, Handshake::Ok);
        let is_http2 = tls::is_http2(stream.protocol());
        let stream: Stream = Box::new(stream);
        if is_http2 {
            http2::serve(self, stream, peer, stop).await;
        } else {
            self.serve(self.connection(stream, peer, stop)).await;
        }
    }

    fn connection(&self, stream: Stream, peer: Option<IpAddr>, stop: Watched) -> Connection {
        Connection::new(stream, peer, Arc::clone(&self.limits), Arc::clone(&self.voice), stop)
    }

    /// Serves one request after the other. Only the connection lives on between two.
    async fn serve(&self, connection: Connection) {
        let mut connection = Box::new(connection);
        while let Some(mut request) = connection.next_request().await {
            // boxed, so that an idle connection is not as large as one with a request
            let serve: Pin<Box<dyn Future<Output = bool> + Send>> =
                Box::pin(self.app.serve(&mut request));
            if !serve.await {
                return;
            }
            let Some(kept) = request.finish().await else { return };
            connection = kept;
        }
    }
}

#[async_trait]
impl<A: App> ServerApp for Gate<A> {
    async fn process_new(
        self: &Arc<Self>,
        mut stream: Stream,
        _: &ShutdownWatch,
    ) -> Option<Stream> {
        let digest = stream.get_socket_digest();
        let address = digest.as_ref().and_then(|digest| digest.peer_addr());
        let peer = address.and_then(|address| address.as_inet()).map(std::net::SocketAddr::ip);
        let place = self.enter(peer);
        self.process.metrics.connection(self.surface, place.is_some());
        let identity = self.tls.of(self.surface);
        let Some(_place) = place else {
            let [words, ..] = self.voice.refuse(Reason::Overloaded, peer);
            if identity.is_some() {
                // a handshake would cost more than what it is for
                return None;
            }
            // whether the client takes it or not, the connection ends here
            let told =
                async { stream.write_all(&words).await.is_ok() && stream.flush().await.is_ok() };
            let _ = tokio::time::timeout(TURN_AWAY, told).await;
            return None;
        };
        let task = poll_fn(|cx| Poll::Ready(cx.waker().clone())).await;
        let stop = self.process.stop.watch(task);
        // between requests the edge ends an old connection; this ends one that never gets there
        let limit = self.limits.lifetime + LAST_REQUEST;
        let _ = match identity {
            None => {
                let served = self.serve(self.connection(stream, peer, stop));
                lifetime(limit, served).await
            }
            // boxed, so that a connection in the clear is not as large
            Some(identity) => {
                let served = Box::pin(Arc::clone(self).serve_secured(stream, identity, peer, stop));
                lifetime(limit, served).await
            }
        };
        None
    }
}

/// A connection's place among those open.
struct Place {
    live: Arc<Mutex<Live>>,
    peer: Option<IpAddr>,
    gauge: prometheus::IntGauge,
}

impl Place {
    fn new(live: Arc<Mutex<Live>>, peer: Option<IpAddr>, gauge: prometheus::IntGauge) -> Self {
        gauge.inc();
        Self { live, peer, gauge }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.gauge.dec();
        let mut live = lock(&self.live);
        live.all = live.all.saturating_sub(1);
        if let Some(peer) = self.peer
            && let Some(count) = live.by_peer.get_mut(&peer)
        {
            *count -= 1;
            if *count == 0 {
                live.by_peer.remove(&peer);
            }
        }
    }
}

fn lock(live: &Mutex<Live>) -> MutexGuard<'_, Live> {
    live.lock().unwrap_or_else(PoisonError::into_inner)
}
