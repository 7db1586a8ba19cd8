//! Reads the client behind a balancer from the PROXY header, which precedes its first byte.
//!
//! Pingora reads no such header. In: a connection of a trusted peer. Out: the client's address, or
//! why the connection is closed. Exactly the header is read: what follows it, a TLS handshake or a
//! request, stays in the socket. A listener without `proxy_protocol` never gets here.

use parking_lot::Mutex;
use portcullis_base::io::within;
use portcullis_base::telemetry::{ProxyHeader, Surface};
use portcullis_filters::proxy_header::{BadHeader, PRELUDE, Prelude};
use std::net::IpAddr;
use std::pin::pin;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt as _};
use tokio::time::Instant;

/// 10 s between two log lines of a listener: a client can cause a line with each connection.
const WINDOW: Duration = Duration::from_secs(10);

/// Reads the header within `timeout`. Returns the client, or `None` if the connection is the
/// balancer's own.
pub(super) async fn read_client(
    stream: &mut (impl AsyncRead + Unpin),
    timeout: Duration,
) -> Result<Option<IpAddr>, ProxyHeader> {
    within(timeout, pin!(read(stream)))
        .await
        .unwrap_or(Err(ProxyHeader::Timeout))
}

async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Option<IpAddr>, ProxyHeader> {
    let mut prelude = [0; PRELUDE];
    let mut arrived = 0;
    while arrived < PRELUDE {
        arrived += match stream.read(&mut prelude[arrived..]).await {
            Ok(bytes) if bytes > 0 => bytes,
            _ if arrived == 0 => return Err(ProxyHeader::Gone),
            _ => return Err(ProxyHeader::Truncated),
        };
        // a peer that sends something else may wait for an answer to fewer bytes
        Prelude::begins(&prelude[..arrived]).map_err(outcome)?;
    }
    let prelude = Prelude::parse(&prelude).map_err(outcome)?;
    let mut block = vec![0; prelude.block()];
    stream
        .read_exact(&mut block)
        .await
        .map_err(|_| ProxyHeader::Truncated)?;
    prelude.client(&block).map_err(outcome)
}

fn outcome(bad: BadHeader) -> ProxyHeader {
    match bad {
        BadHeader::Absent => ProxyHeader::Absent,
        BadHeader::Text => ProxyHeader::Text,
        BadHeader::Malformed => ProxyHeader::Malformed,
        BadHeader::Unsupported => ProxyHeader::Unsupported,
        BadHeader::TooLarge => ProxyHeader::TooLarge,
    }
}

/// Logs connections that are closed for their header: one line per [`WINDOW`], with the number of
/// unlogged ones before it.
#[derive(Debug, Default)]
pub(super) struct ClosedLog(Mutex<Window>);

#[derive(Debug, Default)]
struct Window {
    since: Option<Instant>,
    unlogged: u64,
}

impl ClosedLog {
    pub(super) fn log(&self, surface: Surface, peer: &str, why: ProxyHeader, now: Instant) {
        let mut window = self.0.lock();
        if window
            .since
            .is_some_and(|since| now.duration_since(since) < WINDOW)
        {
            window.unlogged += 1;
            return;
        }
        let Window {
            unlogged: others, ..
        } = std::mem::replace(
            &mut *window,
            Window {
                since: Some(now),
                unlogged: 0,
            },
        );
        drop(window);
        let surface = surface.name();
        let outcome = why.name();
        let meaning = why.meaning();
        log::warn!(surface, peer, outcome, others; "PROXY header refused: {meaning}");
    }
}
