//! One HTTP/2 connection: concurrent requests, each with the bounds of one over HTTP/1.
//!
//! In: a stream whose client chose `h2`. Out: an [`H2Stream`] per request, served by a task that
//! ends when the client resets the stream. The `h2` crate frames and counts. The clocks that it
//! lacks are here and in `timed_io`: idle and old connections get GOAWAY and finish the requests
//! that they have started, as all connections do when the process drains. Pingora's own loop bounds
//! none of this. `heads` finds the malformed parts of requests that `h2` drops.

mod bounds;
mod frames;
mod heads;
mod hpack;
mod lingering;
mod open_streams;
mod outgoing;
mod pace;
mod refusals;
pub(super) mod stream;
mod timed_io;

pub(super) use bounds::Sender;

use super::gate::Gate;
use super::http1::MAX_FIELDS;
use super::peer::Peer;
use super::rendered::{H2Response, Rendered};
use super::request::{Request, Transport};
use super::session::Handoff;
use super::waiting::{ClientPermit, WaitingPermit};
use crate::http::context::{ConnectionGuard, DRAIN_KEEPALIVE, DrainGuard};
use bounds::{Bounds, Verdict, Waste};
use bytes::Bytes;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason as Reset, RecvStream, SendStream};
use http::header::{CONTENT_LENGTH, HOST};
use http::{HeaderMap, HeaderValue, Method, Version, request};
use lingering::Lingering;
use outgoing::Outgoing;
use pace::Pace;
use pingora::apps::HttpServerApp;
use pingora::http::RequestHeader;
use pingora::protocols::Stream;
use pingora::server::ShutdownWatch;
use portcullis_base::io::{LazyTimer, within};
use portcullis_filters::client::ClientKey;
use portcullis_filters::verdict::Reason;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use stream::{H2Responder, H2Stream};
use timed_io::{FrameTimer, TimedIo};
use tokio::task::JoinSet;
use tokio::time::Instant;

/// How long a client has to close after GOAWAY, once nothing is under way.
const GOAWAY_GRACE: Duration = Duration::from_secs(2);

const OVER_SHARE: &str = "it does not fit the client's share of memory";

/// Serves the requests of a connection until it is over.
pub(super) async fn serve<A: HttpServerApp + Send + Sync + 'static>(
    gate: Arc<Gate<A>>,
    stream: Stream,
    peer: Peer,
    sender: Sender,
    drain: ConnectionGuard,
    shutdown: &ShutdownWatch,
) {
    let opened = Instant::now();
    let limits = Arc::clone(&gate.limits);
    let bounds = Bounds::of(sender);
    let socket = stream.get_socket_digest();
    let pace = Pace::new(bounds.clients(), opened);
    // without room for it the connection stays open, and its requests are refused
    let _permit = ClientPermit::reserve(peer.memory.as_ref(), bounds.memory())
        .ok()
        .flatten();
    let unfinished = peer.memory.as_ref().map(ClientPermit::of);
    let (io, frame_timer) = TimedIo::new(stream, socket, &limits, bounds, pace, unfinished);
    let mut builder = Builder::new();
    bounds.apply(&mut builder, limits.header_size);
    let handshake = within(limits.header_timeout, pin!(builder.handshake(io))).await;
    let Some(Ok(connection)) = handshake else {
        return;
    };
    let client = gate.client_of(peer.address, &HeaderMap::new());
    let mut connection = H2Connection {
        client,
        gate,
        peer,
        bounds,
        shutdown: shutdown.clone(),
        connection,
        frame_timer,
        requests: JoinSet::new(),
        lingering: Lingering::new(bounds.lingering()),
        wasted: Waste::new(opened),
        has_started: false,
        accepted: 0,
        refused: 0,
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
        let _ = connection
            .gate
            .errors
            .respond(Reason::RequestTimeout, peer, Version::HTTP_2);
    }
}

/// Logs and counts the refusal of a connection that does not fit its client's share.
fn refuse<A>(gate: &Gate<A>, peer: &mut Peer) {
    peer.ends(OVER_SHARE);
    let _ = gate
        .errors
        .respond(Reason::TooManyInFlight, peer.address, Version::HTTP_2);
}

/// The activity on a connection.
#[derive(Clone, Copy)]
struct Activity {
    /// No request is under way, and no response is being written.
    is_quiet: bool,
    /// The process drains.
    drains: bool,
}

/// A connection and its requests.
struct H2Connection<A> {
    gate: Arc<Gate<A>>,
    peer: Peer,
    bounds: Bounds,
    /// The client of requests that no proxy forwarded.
    client: ClientKey,
    shutdown: ShutdownWatch,
    connection: Connection<TimedIo<Stream>, Bytes>,
    frame_timer: Arc<FrameTimer>,
    /// Requests that are being answered; they end with the connection.
    requests: JoinSet<Outcome>,
    lingering: Lingering,
    wasted: Waste,
    /// Whether a request has started since the last round of heads.
    has_started: bool,
    /// Requests that `h2` passed on.
    accepted: usize,
    /// Accepted requests that were refused by a reset.
    refused: usize,
    drain: ConnectionGuard,
    /// The deadline for another request, once the process drains.
    drain_deadline: Option<Instant>,
    /// When the connection reaches its lifetime.
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
    /// The stream, unless it has been reset.
    Answered(Option<SendStream<Bytes>>),
    /// The client reset the request, or did not read the response; its [`Waste::amount`].
    Wasted(usize),
}

impl<A: HttpServerApp + Send + Sync + 'static> H2Connection<A> {
    /// Ready when the connection is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.frame_timer.start_turn();
        loop {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, mut response)))) => {
                    self.accepted += 1;
                    if self
                        .goaway_sent
                        .is_some_and(|sent| sent.elapsed() > GOAWAY_GRACE)
                    {
                        // the client ignores GOAWAY; an honest one can safely retry elsewhere
                        self.refused += 1;
                        response.send_reset(Reset::REFUSED_STREAM);
                    } else {
                        self.start(request, response);
                    }
                    continue;
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending if self.frame_timer.resume() => {
                    if !std::mem::take(&mut self.has_started) {
                        continue;
                    }
                    // these requests run before the next heads are read
                    cx.waker().wake_by_ref();
                }
                Poll::Pending => {}
            }
            // the next round writes the rest of a finished request
            if self.poll_finished(cx) {
                continue;
            }
            self.lingering.poll(cx, &self.frame_timer);
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
            let verdict = self.judge();
            if verdict == Verdict::BreakOff {
                self.break_off();
                continue;
            }
            let must_end = (drains && self.accepted > 0) || verdict == Verdict::Reconnect;
            if must_end && self.goaway_sent.is_none() {
                self.send_goaway();
                continue;
            }
            let Some(until) = self.deadline(Activity { is_quiet, drains }) else {
                return Poll::Pending;
            };
            match self.timer.poll_until(until, cx) {
                Poll::Ready(()) if self.goaway_sent.is_some() => return Poll::Ready(()),
                Poll::Ready(()) => self.send_goaway(),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Judges whether the connection stays open, unless it is ending anyway.
    fn judge(&self) -> Verdict {
        if self.goaway_sent.is_some() {
            // `h2` ignores streams that are opened after GOAWAY
            return Verdict::GoOn;
        }
        if self.frame_timer.must_end() {
            return Verdict::BreakOff;
        }
        let requests = self.frame_timer.requests.load(Ordering::Relaxed);
        let dropped = requests.saturating_sub(self.accepted);
        // streams beyond the allowed number: a client may open one before it knows that another has
        // ended
        let refused = self.frame_timer.refused.load(Ordering::Relaxed);
        let malformed = dropped.saturating_sub(refused.saturating_sub(self.refused));
        self.bounds.judge(&self.wasted, malformed)
    }

    /// When to send GOAWAY, or to close after it.
    fn deadline(&mut self, Activity { is_quiet, drains }: Activity) -> Option<Instant> {
        match self.goaway_sent {
            None if drains => Some(
                *self
                    .drain_deadline
                    .get_or_insert_with(|| Instant::now() + DRAIN_KEEPALIVE),
            ),
            None if is_quiet => Some(
                self.ends
                    .min(self.quiet_since + self.gate.limits.idle_timeout(&self.peer)),
            ),
            None => Some(self.ends),
            Some(sent) if is_quiet => Some(sent.max(self.quiet_since) + GOAWAY_GRACE),
            Some(_) => None,
        }
    }

    /// Ends the connection, with the requests that are under way.
    fn break_off(&mut self) {
        let mut code = Reset::ENHANCE_YOUR_CALM;
        if self.frame_timer.is_over_share.load(Ordering::Relaxed) {
            refuse(&self.gate, &mut self.peer);
        } else if self.frame_timer.streams.lock().has_fault {
            code = Reset::STREAM_CLOSED;
            self.peer.ends("a frame followed the end of its stream");
        } else {
            self.peer.ends("too many of its requests were malformed");
        }
        self.goaway_sent = Some(Instant::now());
        self.connection.abrupt_shutdown(code);
    }

    /// Sends GOAWAY: accepts no further request, and answers those under way. RFC 9113, section
    /// 6.8.
    fn send_goaway(&mut self) {
        self.goaway_sent = Some(Instant::now());
        self.peer
            .ends("GOAWAY was sent: it is idle, old or abusive, or the process shuts down");
        self.lingering.clear();
        self.connection.graceful_shutdown();
    }

    /// Processes a finished request; returns whether there was one.
    fn poll_finished(&mut self, cx: &mut Context<'_>) -> bool {
        let Poll::Ready(Some(finished)) = self.requests.poll_join_next(cx) else {
            return false;
        };
        self.quiet_since = Instant::now();
        match finished {
            Ok(Outcome::Answered(stream)) => self.linger(stream),
            Ok(Outcome::Wasted(amount)) => self.wasted.add(amount, self.quiet_since),
            // the request panicked, which is not the client's fault: the smallest amount
            Err(_) => self.wasted.add(1, self.quiet_since),
        }
        true
    }

    /// Reserves the memory of a request and starts it, or refuses the stream.
    fn start(&mut self, request: http::Request<RecvStream>, mut response: SendResponse<Bytes>) {
        self.peer.count_request();
        let (mut head, body) = request.into_parts();
        self.hold
            .get_or_insert_with(|| self.gate.process.drain.hold());
        let (client, waste) = if self.bounds.is_forwarded(&head.headers) {
            (
                self.gate.client_of(self.peer.address, &head.headers),
                Waste::FORWARDED,
            )
        } else {
            (self.client, Waste::OWN)
        };
        let (waiting, memory) = (&self.gate.process.waiting, self.peer.memory.as_ref());
        let Ok(permit) = waiting.request(memory, client, &head.headers, 0) else {
            self.wasted.add(waste, Instant::now());
            // logged and counted, but not sent: a client may repeat a request that is refused by a
            // reset
            let client = client.address();
            let _ =
                self.gate
                    .errors
                    .respond(Reason::TooManyInFlight, Some(client), Version::HTTP_2);
            self.refused += 1;
            return response.send_reset(Reset::REFUSED_STREAM);
        };
        let judged = match self.frame_timer.malformed.take(body.stream_id().as_u32()) {
            true => Err(Reason::InvalidRequest),
            false => set_host(&mut head, self.gate.limits.header_size),
        };
        let responder = H2Responder::new(response, Arc::clone(&self.frame_timer));
        if let Err(reason) = judged {
            self.wasted.add(waste, Instant::now());
            return self.refuse_request(reason, responder, permit);
        }
        self.has_started = true;
        let (gate, shutdown) = (Arc::clone(&self.gate), self.shutdown.clone());
        let stream = H2Stream::new(self.peer.address, body, responder.clone());
        let header = Box::new(RequestHeader::from(head));
        self.requests.spawn(async move {
            let request = Request(Transport::Http2(Box::new(stream)));
            let answered = serve_request(&gate, &shutdown, request, header, &responder).await;
            let sent = match responder.rest() {
                Some(left) if answered => send_rest(permit, left, &responder).await,
                _ => answered,
            };
            if sent {
                Outcome::Answered(responder.take_sent())
            } else {
                Outcome::Wasted(waste)
            }
        });
    }

    /// Answers a request that does not reach the app.
    fn refuse_request(&mut self, reason: Reason, responder: H2Responder, permit: WaitingPermit) {
        let Rendered::Http2(refusal) = self.respond(reason) else {
            return;
        };
        let H2Response { head, body, .. } = *refusal;
        // a client that is gone reads nothing
        let _ = responder.start(head, Outgoing::last(body));
        match responder.rest() {
            None => self.linger(responder.take_sent()),
            Some(left) => drop(self.requests.spawn(async move {
                send_rest(permit, left, &responder).await;
                Outcome::Answered(responder.take_sent())
            })),
        }
    }

    /// Keeps an answered stream open for a moment, unless the connection is ending.
    fn linger(&mut self, stream: Option<SendStream<Bytes>>) {
        if let Some(stream) = stream
            && self.goaway_sent.is_none()
        {
            self.lingering.add(stream, &self.frame_timer);
        }
    }

    /// Returns the gate's response, and logs and counts it.
    fn respond(&self, reason: Reason) -> Rendered {
        self.gate
            .errors
            .respond(reason, self.peer.address, Version::HTTP_2)
    }
}

/// Runs the app on a request; returns whether it is answered. Drops everything that the request
/// held.
async fn serve_request<A: HttpServerApp + Send + Sync + 'static>(
    gate: &Arc<Gate<A>>,
    shutdown: &ShutdownWatch,
    request: Request,
    header: Box<RequestHeader>,
    responder: &H2Responder,
) -> bool {
    let handoff = Handoff::default();
    let mut served = pin!(
        gate.app
            .process_new_http(handoff.lend(request, header), shutdown)
    );
    poll_fn(|cx| {
        if served.as_mut().poll(cx).is_pending() {
            return responder.poll_reset(cx).map(|()| false);
        }
        Poll::Ready(handoff.take_back().0.is_some())
    })
    .await
}

/// Sends the rest of a small response, which waits without its request; returns whether it is sent.
async fn send_rest(mut permit: WaitingPermit, left: usize, responder: &H2Responder) -> bool {
    permit.shrink_to_response(left);
    responder.send_rest().await.is_ok()
}

/// Sets `Host` to `:authority`, so that the head is what it would be over HTTP/1.
///
/// # Errors
/// Returns a refusal if `Host` and `:authority` differ (RFC 9113, section 8.3.1), the authority has
/// user information, there are two lengths, the request is CONNECT, or the head is larger than it
/// may be over HTTP/1.
fn set_host(head: &mut request::Parts, max_size: usize) -> Result<(), Reason> {
    let target = head
        .uri
        .path_and_query()
        .map_or(1, |target| target.as_str().len());
    let fields = head.headers.iter();
    let fields: usize = fields
        .map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len())
        .sum();
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
    let Some(authority) = authority else {
        return Ok(());
    };
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
            (
                "https://edge.test:1/rpc",
                &["edge.test:1"],
                Ok(Some("edge.test:1")),
            ),
            (
                "https://edge.test/rpc",
                &["EDGE.test"],
                Ok(Some("edge.test")),
            ),
            (
                "https://edge.test/rpc",
                &["other.test"],
                Err(Reason::InvalidRequest),
            ),
            (
                "https://edge.test/rpc",
                &["edge.test", "x"],
                Err(Reason::InvalidRequest),
            ),
            (
                "https://user@edge.test/rpc",
                &[],
                Err(Reason::InvalidRequest),
            ),
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
    fn a_tunnel_is_refused() {
        let mut head = parts("CONNECT", "edge.test:443", &[]);
        assert_eq!(set_host(&mut head, 1 << 10), Err(Reason::WrongHttpMethod));
    }
}
