//! One HTTP/2 connection: many requests at a time, each as bounded as one over HTTP/1.
//!
//! In: a stream whose client chose `h2`. Out: an [`H2Stream`] per request, served by a task that
//! ends when the client resets the stream. The `h2` crate frames and counts; what it has no clock
//! for is here and in `timed_io`: idle and old connections get GOAWAY and finish what they have
//! started, and so do all when the process drains. Pingora's own loop bounds none of this. What
//! `h2` drops of a malformed request is found in `heads`.

mod heads;
mod hpack;
mod stream;
mod timed_io;

pub(super) use stream::H2Stream;

use super::gate::Gate;
use super::http1::MAX_FIELDS;
use super::peer::Peer;
use super::request::{Rendered, Request, Transport};
use super::session::Handoff;
use crate::http::context::{ConnectionGuard, DRAIN_KEEPALIVE, DrainGuard};
use crate::io::{LazyTimer, within};
use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason as Reset, RecvStream};
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderValue, Method, Version, request};
use pingora::apps::HttpServerApp;
use pingora::http::RequestHeader;
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use portcullis_filters::verdict::Reason;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use stream::H2Responder;
use timed_io::{FrameTimer, TimedIo};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Requests of one connection at a time: the least that RFC 9113, section 6.5.2, recommends.
const MAX_STREAMS: u32 = 100;
/// 64 KiB of a request's body may be under way: the largest there is.
const STREAM_WINDOW: u32 = 64 << 10;
/// 256 KiB over all requests of a connection: what is under way is in no other bound.
const CONNECTION_WINDOW: u32 = 256 << 10;
/// 64 KiB of each response wait to be written; the rest waits with its request.
const SEND_BUFFER: usize = 64 << 10;
/// Above this many times the size of a header list, `h2` ends the connection.
const LARGEST_LIST: usize = 4;
/// Malformed requests, after which a connection ends: an honest client sends none. `h2` counts them
/// for the connection's life, so a trusted proxy gets GOAWAY, which ends no request, at half of
/// them.
const MAX_MALFORMED: usize = 32;
/// Requests without a response, or whose head was refused, after which a client has to reconnect:
/// pages that are left reset a few, "rapid reset" (CVE-2023-44487) thousands. In [`WASTE_WINDOW`].
const MAX_WASTED: usize = 100;
const WASTE_WINDOW: Duration = Duration::from_secs(60);
/// A trusted proxy's connection has many clients, and must not end for one of them: as many more.
const CLIENTS_OF_A_PROXY: usize = 100;
/// After GOAWAY a client gets this long to close once nothing is under way.
const GOAWAY_GRACE: Duration = Duration::from_secs(2);

/// Serves the requests of a connection until it is over.
pub(super) async fn serve<A: HttpServerApp + Send + Sync + 'static>(
    gate: Arc<Gate<A>>,
    stream: Stream,
    peer: Peer,
    drain: ConnectionGuard,
    shutdown: &ShutdownWatch,
) {
    let opened = Instant::now();
    let limits = Arc::clone(&gate.limits);
    // a head a little over the limit gets our response, a larger one that of `h2`
    let list = 2 * limits.header_size;
    let times = (limits.header_timeout, limits.write_timeout);
    let (io, frame_timer) = TimedIo::new(stream, times, LARGEST_LIST * list);
    let is_proxy = peer.address.is_some() && gate.trusts(peer.address);
    let times = if is_proxy { CLIENTS_OF_A_PROXY } else { 1 };
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(u32::try_from(list).unwrap_or(u32::MAX))
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        .max_local_error_reset_streams(Some(MAX_MALFORMED * times));
    let handshake = within(limits.header_timeout, pin!(builder.handshake(io))).await;
    let Some(Ok(connection)) = handshake else { return };
    let mut connection = H2Connection {
        gate,
        peer,
        is_proxy,
        shutdown: shutdown.clone(),
        connection,
        frame_timer,
        requests: JoinSet::new(),
        wasted: Waste { amount: 0, since: opened },
        accepted: 0,
        drain,
        drain_deadline: None,
        ends: opened + limits.lifetime,
        quiet_since: opened,
        timer: LazyTimer::default(),
        goaway_sent: None,
        hold: None,
    };
    poll_fn(|cx| connection.poll(cx)).await;
    if connection.frame_timer.head_was_late.load(Ordering::Relaxed) {
        // there is no request to answer yet: this logs and counts the refusal
        let peer = connection.peer.address;
        let _ = connection.gate.errors.respond(Reason::RequestTimeout, peer, Version::HTTP_2);
    }
}

/// A connection and its requests.
struct H2Connection<A> {
    gate: Arc<Gate<A>>,
    peer: Peer,
    /// The peer is a trusted proxy.
    is_proxy: bool,
    shutdown: ShutdownWatch,
    connection: Connection<TimedIo<Stream>, Bytes>,
    frame_timer: Arc<FrameTimer>,
    /// Those being answered; they end with the connection.
    requests: JoinSet<Outcome>,
    wasted: Waste,
    /// Requests that `h2` passed on.
    accepted: usize,
    drain: ConnectionGuard,
    /// Until when the client may still send a request, once the process drains.
    drain_deadline: Option<Instant>,
    /// When the connection is old.
    ends: Instant,
    /// Since when there has been no request.
    quiet_since: Instant,
    timer: LazyTimer,
    goaway_sent: Option<Instant>,
    /// Delays the end of the process until every response is written.
    hold: Option<DrainGuard>,
}

/// How a request ended.
enum Outcome {
    Answered,
    /// The client reset it, or did not read the response: [`Waste::amount`].
    Wasted(usize),
}

/// Requests without a response, in the current window.
struct Waste {
    /// [`CLIENTS_OF_A_PROXY`] for each, 1 for each that a trusted proxy forwarded.
    amount: usize,
    /// When the window began.
    since: Instant,
}

impl Waste {
    fn add(&mut self, amount: usize, now: Instant) {
        if now.duration_since(self.since) >= WASTE_WINDOW {
            *self = Self { amount: 0, since: now };
        }
        self.amount += amount;
    }

    fn is_abuse(&self) -> bool {
        self.amount > MAX_WASTED * CLIENTS_OF_A_PROXY
    }
}

impl<A: HttpServerApp + Send + Sync + 'static> H2Connection<A> {
    /// Ready when the connection is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, mut response)))) => {
                    self.accepted += 1;
                    if self.goaway_sent.is_some_and(|sent| sent.elapsed() > GOAWAY_GRACE) {
                        // the client ignores GOAWAY: others would safely retry elsewhere
                        response.send_reset(Reset::REFUSED_STREAM);
                    } else {
                        self.start(request, response);
                    }
                    continue;
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {}
            }
            // what a finished request has left to write is written in the next round
            if self.poll_finished(cx) {
                continue;
            }
            let is_stuck = self.frame_timer.is_stuck.load(Ordering::Relaxed);
            if is_stuck {
                // a response is still to be written, for as long as `TimedIo` allows
                self.quiet_since = Instant::now();
            }
            let is_quiet = self.requests.is_empty() && !is_stuck;
            if is_quiet {
                self.hold = None;
            }
            let drains = self.drain.has_begun();
            // a new connection may send one request, as over HTTP/1
            let must_end = (drains && self.accepted > 0) || self.is_abuse();
            if must_end && self.goaway_sent.is_none() {
                self.send_goaway();
                continue;
            }
            let Some(until) = self.deadline(is_quiet, drains) else { return Poll::Pending };
            match self.timer.poll_until(until, cx) {
                Poll::Ready(()) if self.goaway_sent.is_some() => return Poll::Ready(()),
                Poll::Ready(()) => self.send_goaway(),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Whether the client has to reconnect, for what it wasted or for what `h2` refused by itself.
    fn is_abuse(&self) -> bool {
        let requests = self.frame_timer.requests.load(Ordering::Relaxed);
        let refused = requests.saturating_sub(self.accepted);
        self.wasted.is_abuse() || refused >= MAX_MALFORMED * CLIENTS_OF_A_PROXY / 2
    }

    /// When to send GOAWAY, or to close after it.
    fn deadline(&mut self, is_quiet: bool, drains: bool) -> Option<Instant> {
        match self.goaway_sent {
            None if drains => {
                Some(*self.drain_deadline.get_or_insert_with(|| Instant::now() + DRAIN_KEEPALIVE))
            }
            None if is_quiet => {
                Some(self.ends.min(self.quiet_since + self.gate.limits.idle_timeout))
            }
            None => Some(self.ends),
            Some(sent) if is_quiet => Some(sent.max(self.quiet_since) + GOAWAY_GRACE),
            Some(_) => None,
        }
    }

    /// Takes no other request; those under way are answered. RFC 9113, section 6.8.
    fn send_goaway(&mut self) {
        self.goaway_sent = Some(Instant::now());
        self.peer.ends("GOAWAY was sent: it is idle, old or abusive, or the process shuts down");
        self.connection.graceful_shutdown();
    }

    /// Whether a request was finished.
    fn poll_finished(&mut self, cx: &mut Context<'_>) -> bool {
        let Poll::Ready(Some(finished)) = self.requests.poll_join_next(cx) else { return false };
        self.quiet_since = Instant::now();
        match finished {
            Ok(Outcome::Answered) => {}
            Ok(Outcome::Wasted(amount)) => self.wasted.add(amount, self.quiet_since),
            // it panicked, which is no client's fault
            Err(_) => self.wasted.add(1, self.quiet_since),
        }
        true
    }

    fn start(&mut self, request: http::Request<RecvStream>, response: SendResponse<Bytes>) {
        self.peer.count_request();
        let (mut head, body) = request.into_parts();
        self.hold.get_or_insert_with(|| self.gate.process.drain.hold());
        let is_forwarded = self.is_proxy && head.headers.contains_key("x-forwarded-for");
        let waste = if is_forwarded { 1 } else { CLIENTS_OF_A_PROXY };
        let judged = match self.frame_timer.malformed.take(body.stream_id().as_u32()) {
            true => Err(Reason::InvalidRequest),
            false => set_host(&mut head, self.gate.limits.header_size),
        };
        if let Err(reason) = judged {
            self.wasted.add(waste, Instant::now());
            return self.refuse(reason, response);
        }
        let responder = H2Responder::new(response);
        let timer = Arc::clone(&self.frame_timer);
        let stream = H2Stream::new(self.peer.address, body, responder.clone(), timer);
        let handoff = Handoff::default();
        let request = Request(Transport::Http2(Box::new(stream)));
        let session = handoff.lend(request, Box::new(RequestHeader::from(head)));
        let (gate, shutdown) = (Arc::clone(&self.gate), self.shutdown.clone());
        self.requests.spawn(async move {
            let mut served = pin!(gate.app.process_new_http(session, &shutdown));
            poll_fn(|cx| {
                if served.as_mut().poll(cx).is_pending() {
                    return responder.poll_reset(cx).map(|()| Outcome::Wasted(waste));
                }
                let (answered, _) = handoff.take_back();
                Poll::Ready(answered.map_or(Outcome::Wasted(waste), |_| Outcome::Answered))
            })
            .await
        });
    }

    fn refuse(&mut self, reason: Reason, mut response: SendResponse<Bytes>) {
        let refusal = self.gate.errors.respond(reason, self.peer.address, Version::HTTP_2);
        let Rendered::Http2(refusal) = refusal else { return };
        // a refusal is one piece, and smaller than any window; a client that is gone reads nothing
        let [text, ..] = refusal.body;
        if let Ok(mut body) = response.send_response(refusal.head, text.is_empty())
            && !text.is_empty()
        {
            let _ = body.send_data(text, true);
        }
    }
}

/// Sets `Host` to `:authority`, so that the head is what it would be over HTTP/1.
///
/// # Errors
/// They differ (RFC 9113, section 8.3.1), the authority has user information, a length stands
/// twice, the request is CONNECT, or the head is larger than the same head may be over HTTP/1.
fn set_host(head: &mut request::Parts, max_size: usize) -> Result<(), Reason> {
    let target = head.uri.path_and_query().map_or(1, |target| target.as_str().len());
    let fields = head.headers.iter();
    let fields: usize =
        fields.map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum();
    let line = head.method.as_str().len() + target + "  HTTP/2\r\n\r\n".len();
    let authority = head.uri.authority().map(|authority| authority.as_str());
    let host = authority.map_or(0, |authority| "host: \r\n".len() + authority.len());
    if line + host + fields > max_size || head.headers.len() > MAX_FIELDS {
        return Err(Reason::HeaderTooLarge);
    }
    if head.method == Method::CONNECT {
        return Err(Reason::WrongHttpMethod);
    }
    // one length only, as over HTTP/1
    if head.headers.get_all(CONTENT_LENGTH).iter().nth(1).is_some() {
        return Err(Reason::ConflictingFraming);
    }
    let Some(authority) = authority else { return Ok(()) };
    // no user information: RFC 9113, section 8.3.1
    if authority.contains('@') {
        return Err(Reason::InvalidRequest);
    }
    let differs = |host: &HeaderValue| !host.as_bytes().eq_ignore_ascii_case(authority.as_bytes());
    if head.headers.get_all(HOST).iter().any(differs) {
        return Err(Reason::InvalidRequest);
    }
    let host = HeaderValue::from_str(authority).map_err(|_| Reason::InvalidRequest)?;
    head.headers.insert(HOST, host);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(method: &str, uri: &str, hosts: &[&str]) -> request::Parts {
        let mut request = http::Request::builder().method(method).uri(uri);
        for host in hosts {
            request = request.header(HOST, *host);
        }
        request.body(()).expect("a request").into_parts().0
    }

    #[test]
    fn the_authority_is_the_host() {
        for (uri, hosts, host) in [
            ("https://edge.test/rpc", &[][..], Ok(Some("edge.test"))),
            ("https://edge.test:1/rpc", &["edge.test:1"], Ok(Some("edge.test:1"))),
            ("https://edge.test/rpc", &["EDGE.test"], Ok(Some("edge.test"))),
            ("https://edge.test/rpc", &["other.test"], Err(Reason::InvalidRequest)),
            ("https://edge.test/rpc", &["edge.test", "x"], Err(Reason::InvalidRequest)),
            ("https://user@edge.test/rpc", &[], Err(Reason::InvalidRequest)),
            // the policy decides whether one is needed
            ("/rpc", &["edge.test"], Ok(Some("edge.test"))),
            ("/rpc", &[], Ok(None)),
        ] {
            let mut head = parts("POST", uri, hosts);
            let taken = set_host(&mut head, 1 << 10).map(|()| head.headers.get(HOST));
            let taken = taken.map(|host| host.map(|host| host.to_str().expect("ASCII")));
            assert_eq!(taken, host, "{uri} {hosts:?}");
        }
    }

    #[test]
    fn a_head_is_as_large_as_over_http_1() {
        let bytes = "POST /rpc HTTP/2\r\nhost: edge.test\r\n\r\n".len();
        for (max, fits) in [(bytes, Ok(())), (bytes - 1, Err(Reason::HeaderTooLarge))] {
            let mut head = parts("POST", "https://edge.test/rpc", &[]);
            assert_eq!(set_host(&mut head, max), fits, "{max} of {bytes} bytes");
        }
    }

    #[test]
    fn abuse_is_of_one_minute() {
        let start = Instant::now();
        let mut waste = Waste { amount: 0, since: start };
        for second in 0..600 {
            waste.add(CLIENTS_OF_A_PROXY, start + Duration::from_secs(second));
            assert!(!waste.is_abuse(), "one in a second, for ten minutes");
        }
        for _ in 0..2 * MAX_WASTED {
            waste.add(CLIENTS_OF_A_PROXY, start + Duration::from_secs(600));
        }
        assert!(waste.is_abuse(), "hundreds at once");
    }

    #[test]
    fn a_tunnel_is_refused() {
        let mut head = parts("CONNECT", "edge.test:443", &[]);
        assert_eq!(set_host(&mut head, 1 << 10), Err(Reason::WrongHttpMethod));
    }
}
