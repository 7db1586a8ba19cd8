//! One HTTP/2 connection: many requests at a time, each as bounded as one over HTTP/1.
//!
//! In: a stream whose client chose `h2`. Out: an [`Exchange`] for each request, served by a task of
//! its own that ends when its client does not want the answer any more. The `h2` crate frames and
//! counts; what it has no clock for is here and in [`pace`]: idle and old connections are told
//! GOAWAY and finish what they have begun, and so are all when the process stops.

mod exchange;
mod pace;

pub use exchange::Exchange;

use super::connection::PINGORA_FIELDS;
use super::gate::{App, Gate};
use super::request::Request;
use crate::http::drain::{Hold, LAST_CALL, Watched};
use crate::io::deadline::{Alarm, within};
use bytes::Bytes;
use exchange::Way;
use h2::server::{Builder, Connection, SendResponse};
use h2::{Reason as Reset, RecvStream};
use http::header::HOST;
use http::{HeaderValue, Method, request};
use pace::{Pace, Paced};
use pingora_core::protocols::Stream;
use pingora_http::RequestHeader;
use portcullis_filters::verdict::Reason;
use std::future::poll_fn;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Requests of one connection at a time: the least that RFC 9113, section 6.5.2, recommends.
const MAX_STREAMS: u32 = 100;
/// 64 KiB of a request's body may be on their way: the largest there is.
const STREAM_WINDOW: u32 = 64 << 10;
/// 1 MiB over all requests of a connection.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// 64 KiB of each answer wait to be written; the rest of it waits with its request.
const SEND_BUFFER: usize = 64 << 10;
/// Malformed requests, after which a connection ends: an honest client sends none.
const MAX_MALFORMED: usize = 32;
/// Requests without an answer, or without a head that could be judged, after which a client has to
/// connect anew: pages that are left take back a few, "rapid reset" (CVE-2023-44487) thousands.
const MAX_WASTED: usize = 100;
/// A client that was told GOAWAY gets this long to close, when nothing is under way any more.
const FAREWELL: Duration = Duration::from_secs(2);

/// Serves the requests of a connection until it is over.
pub(super) async fn serve<A: App>(
    gate: Arc<Gate<A>>,
    stream: Stream,
    peer: Option<IpAddr>,
    stop: Watched,
) {
    let born = Instant::now();
    let limits = Arc::clone(&gate.limits);
    let (paced, pace) = Paced::new(stream, limits.header_timeout, limits.write_timeout);
    // what is a little over the limit is refused in our words, the rest in those of `h2`
    let list = u32::try_from(2 * limits.header_size).unwrap_or(u32::MAX);
    let mut builder = Builder::new();
    builder
        .max_concurrent_streams(MAX_STREAMS)
        .max_header_list_size(list)
        .initial_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buffer_size(SEND_BUFFER)
        .max_local_error_reset_streams(Some(MAX_MALFORMED));
    let handshake = within(limits.header_timeout, builder.handshake(paced));
    let Some(Ok(connection)) = handshake.await else { return };
    let mut conversation = Conversation {
        gate,
        peer,
        connection,
        pace,
        requests: JoinSet::new(),
        wasted: 0,
        has_served: false,
        stop,
        last_call: None,
        ends: born + limits.lifetime,
        quiet_since: born,
        alarm: Alarm::default(),
        farewell: None,
        hold: None,
    };
    poll_fn(|cx| conversation.poll(cx)).await;
    if conversation.pace.head_was_late.load(Ordering::Relaxed) {
        // nobody is told: there is no request yet that could be answered. It is logged
        let _ = conversation.gate.voice.refuse(Reason::RequestTimeout, peer);
    }
}

/// A connection and its requests.
struct Conversation<A> {
    gate: Arc<Gate<A>>,
    peer: Option<IpAddr>,
    connection: Connection<Paced<Stream>, Bytes>,
    pace: Arc<Pace>,
    /// Those being answered; they end with the connection.
    requests: JoinSet<Sent>,
    /// Those that came to nothing.
    wasted: usize,
    has_served: bool,
    /// Whether the process stops.
    stop: Watched,
    /// Until when it may bring a request yet, once the process stops.
    last_call: Option<Instant>,
    /// When the connection is old.
    ends: Instant,
    /// Since when there was no request, if there is none.
    quiet_since: Instant,
    alarm: Alarm,
    /// Since when the client knows that no other request is taken.
    farewell: Option<Instant>,
    /// Holds a stop back until every answer is written.
    hold: Option<Hold>,
}

/// Whether an answer was sent to its end.
struct Sent(bool);

impl<A: App> Conversation<A> {
    /// Ready when the connection is over.
    fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            match self.connection.poll_accept(cx) {
                Poll::Ready(Some(Ok((request, mut answer)))) => {
                    if self.farewell.is_some_and(|said| said.elapsed() > FAREWELL) {
                        // it does not hear: others would safely send it again elsewhere
                        answer.send_reset(Reset::REFUSED_STREAM);
                    } else {
                        self.begin(request, answer);
                    }
                    continue;
                }
                Poll::Ready(_) => return Poll::Ready(()),
                Poll::Pending => {}
            }
            // what a request that is over has left to be written is written in the next round
            if self.poll_finished(cx) {
                continue;
            }
            let is_stuck = self.pace.is_stuck.load(Ordering::Relaxed);
            if is_stuck {
                // an answer is still to be written, for as long as `pace` lets it
                self.quiet_since = Instant::now();
            }
            let is_quiet = self.requests.is_empty() && !is_stuck;
            if is_quiet {
                self.hold = None;
            }
            let stops = self.stop.has_begun();
            // one that was just made is heard once, as over HTTP/1
            let must_end = (stops && self.has_served) || self.wasted > MAX_WASTED;
            if must_end && self.farewell.is_none() {
                self.say_farewell();
                continue;
            }
            let until = match self.farewell {
                None if stops => *self.last_call.get_or_insert_with(|| Instant::now() + LAST_CALL),
                None if is_quiet => self.ends.min(self.quiet_since + self.gate.limits.idle_timeout),
                None => self.ends,
                Some(said) if is_quiet => said.max(self.quiet_since) + FAREWELL,
                Some(_) => return Poll::Pending,
            };
            match self.alarm.poll_until(until, cx) {
                Poll::Ready(()) if self.farewell.is_some() => return Poll::Ready(()),
                Poll::Ready(()) => self.say_farewell(),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// No other request is taken; those that are there are answered. RFC 9113, section 6.8.
    fn say_farewell(&mut self) {
        self.farewell = Some(Instant::now());
        self.connection.graceful_shutdown();
    }

    /// Whether a request was finished.
    fn poll_finished(&mut self, cx: &mut Context<'_>) -> bool {
        let Poll::Ready(Some(finished)) = self.requests.poll_join_next(cx) else { return false };
        self.wasted += usize::from(!matches!(finished, Ok(Sent(true))));
        self.quiet_since = Instant::now();
        true
    }

    fn begin(&mut self, request: http::Request<RecvStream>, mut answer: SendResponse<Bytes>) {
        self.has_served = true;
        let (mut head, body) = request.into_parts();
        self.hold.get_or_insert_with(|| self.gate.process.stop.hold());
        if let Err(reason) = take_authority(&mut head, self.gate.limits.header_size) {
            self.wasted += 1;
            let (head, text) = self.gate.voice.refuse_http2(reason, self.peer);
            // a client that is gone needs no words
            if let Ok(mut rest) = answer.send_response(head, text.is_empty())
                && !text.is_empty()
            {
                let _ = rest.send_data(text, true);
            }
            return;
        }
        let way = Way::new(answer);
        let header = RequestHeader::from(head);
        let exchange = Exchange::new(header, self.peer, body, way.clone());
        let gate = Arc::clone(&self.gate);
        self.requests.spawn(async move {
            let mut request = Request::http2(exchange);
            let mut served = pin!(gate.app.serve(&mut request));
            poll_fn(|cx| {
                if let Poll::Ready(was_sent) = served.as_mut().poll(cx) {
                    return Poll::Ready(Sent(was_sent));
                }
                way.poll_unwanted(cx).map(|()| Sent(false))
            })
            .await
        });
    }
}

/// Makes the head what it would be over HTTP/1, or says why it is none: `:authority` is `Host`.
///
/// RFC 9113, section 8.3.1: they may not differ. The size is that of the same head over HTTP/1, and
/// it may have as many fields.
fn take_authority(head: &mut request::Parts, max_size: usize) -> Result<(), Reason> {
    let target = head.uri.path_and_query().map_or(1, |target| target.as_str().len());
    let fields = head.headers.iter();
    let fields: usize =
        fields.map(|(name, value)| name.as_str().len() + value.len() + ": \r\n".len()).sum();
    let line = head.method.as_str().len() + target + "  HTTP/2\r\n\r\n".len();
    let authority = head.uri.authority().map(|authority| authority.as_str());
    let host = authority.map_or(0, |authority| "host: \r\n".len() + authority.len());
    if line + host + fields > max_size || head.headers.len() > PINGORA_FIELDS {
        return Err(Reason::HeaderTooLarge);
    }
    if head.method == Method::CONNECT {
        return Err(Reason::WrongHttpMethod);
    }
    let Some(authority) = authority else { return Ok(()) };
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
    fn the_authority_is_the_host_and_no_other() {
        for (uri, hosts, host) in [
            ("https://edge.test/rpc", &[][..], Ok(Some("edge.test"))),
            ("https://edge.test:1/rpc", &["edge.test:1"], Ok(Some("edge.test:1"))),
            ("https://edge.test/rpc", &["EDGE.test"], Ok(Some("edge.test"))),
            ("https://edge.test/rpc", &["other.test"], Err(Reason::InvalidRequest)),
            ("https://edge.test/rpc", &["edge.test", "x"], Err(Reason::InvalidRequest)),
            // and whether one is needed is the policy's to say
            ("/rpc", &["edge.test"], Ok(Some("edge.test"))),
            ("/rpc", &[], Ok(None)),
        ] {
            let mut head = parts("POST", uri, hosts);
            let taken = take_authority(&mut head, 1 << 10).map(|()| head.headers.get(HOST));
            let taken = taken.map(|host| host.map(|host| host.to_str().expect("ASCII")));
            assert_eq!(taken, host, "{uri} {hosts:?}");
        }
    }

    #[test]
    fn a_head_has_the_size_that_it_would_have_over_http_1() {
        let bytes = "POST /rpc HTTP/2\r\nhost: edge.test\r\n\r\n".len();
        for (max, fits) in [(bytes, Ok(())), (bytes - 1, Err(Reason::HeaderTooLarge))] {
            let mut head = parts("POST", "https://edge.test/rpc", &[]);
            assert_eq!(take_authority(&mut head, max), fits, "{max} of {bytes} bytes");
        }
    }

    #[test]
    fn a_tunnel_is_refused() {
        let mut head = parts("CONNECT", "edge.test:443", &[]);
        assert_eq!(take_authority(&mut head, 1 << 10), Err(Reason::WrongHttpMethod));
    }
}
