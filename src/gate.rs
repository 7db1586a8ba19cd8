//! Connections: how many, how long, and how slowly a head may come.
//!
//! Pingora reads the head of a request before any filter of ours runs, with a timeout per read but
//! none in all, answers a broken one by itself, and keeps its buffers while a client says nothing.
//! [`Gate`] wraps each accepted stream in a [`Connection`], which reads each head whole, in bounded
//! size and time, and replaces Pingora's own bare refusals by ours; only then is there a session,
//! and Pingora parses the head from memory. The gate also caps the connections, in all and per
//! peer, and their age. Next: `edge`, which takes each request.

mod connection;
mod known;
mod request;

pub use connection::{Connection, Limits};
pub use request::Request;

use crate::config::ConnectionsConfig;
use crate::telemetry::{Metrics, Surface};
use async_trait::async_trait;
use bytes::Bytes;
use pingora_core::apps::ServerApp;
use pingora_core::protocols::Stream;
use pingora_core::server::ShutdownWatch;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::verdict::Reason;
use std::collections::HashMap;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
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
}

/// What is behind a gate.
pub trait App: Send + Sync + 'static {
    /// Answers a request. Says whether the answer was sent, so that the connection may go on.
    fn serve(&self, request: &mut Request) -> impl Future<Output = bool> + Send;
}

/// Stands before an app and lets connections in.
pub struct Gate<A> {
    app: A,
    surface: Surface,
    limits: Arc<Limits>,
    max: usize,
    max_per_peer: usize,
    trusted: TrustedProxies,
    live: Arc<Mutex<Live>>,
    metrics: Arc<Metrics>,
    voice: Arc<dyn Voice>,
}

/// Connections open.
#[derive(Default)]
struct Live {
    all: usize,
    by_peer: HashMap<IpAddr, usize>,
}

impl<A> Gate<A> {
    /// A gate before `app`. Peers in `trusted` are exempt from the cap per peer, because many
    /// clients come through each.
    pub fn new(
        app: A,
        surface: Surface,
        config: &ConnectionsConfig,
        trusted: TrustedProxies,
        metrics: Arc<Metrics>,
        voice: Arc<dyn Voice>,
    ) -> Self {
        let max = i64::try_from(config.max).unwrap_or(i64::MAX);
        metrics.connections_limit[surface as usize].set(max);
        Self {
            app,
            surface,
            limits: Arc::new(Limits {
                header_size: config.header_size.bytes(),
                header_timeout: config.header_timeout,
                idle_timeout: config.idle_timeout,
                lifetime: config.lifetime,
            }),
            max: config.max,
            max_per_peer: config.max_per_client,
            trusted,
            live: Arc::default(),
            metrics,
            voice,
        }
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
        Some(Place::new(Arc::clone(&self.live), counted, self.surface, &self.metrics))
    }
}

impl<A: App> Gate<A> {
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
        self.metrics.connection(self.surface, place.is_some());
        let Some(_place) = place else {
            let [words, ..] = self.voice.refuse(Reason::Overloaded, peer);
            // whether the client takes it or not, the connection ends here
            let told =
                async { stream.write_all(&words).await.is_ok() && stream.flush().await.is_ok() };
            let _ = tokio::time::timeout(TURN_AWAY, told).await;
            return None;
        };
        let limits = Arc::clone(&self.limits);
        let connection = Connection::new(stream, peer, limits, Arc::clone(&self.voice));
        let served = self.serve(connection);
        // between requests the edge ends an old connection; this ends one that never gets there
        let _ = tokio::time::timeout(self.limits.lifetime + LAST_REQUEST, served).await;
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
    fn new(
        live: Arc<Mutex<Live>>,
        peer: Option<IpAddr>,
        surface: Surface,
        metrics: &Metrics,
    ) -> Self {
        let gauge = metrics.connections[surface as usize].clone();
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
