//! One HTTP/2 request and its response: a stream of RFC 9113.
//!
//! A small response that the client does not take at once waits here without its request: the
//! phases end, and with them the head and everything else that the request held.

use super::outgoing::{Outgoing, Unwritten};
use super::timed_io::FrameTimer;
use crate::http::http1::BodyError;
use crate::http::progress::{Progress, STALL, WriteClock, acknowledged};
use crate::http::rendered::{Gone, H2Response};
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{Reason, RecvStream, SendStream};
use http::{Response, StatusCode};
use parking_lot::{Mutex, MutexGuard};
use portcullis_base::io::{LARGE, LazyTimer};
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::{Context, Poll, Waker, ready};
use std::time::Duration;

/// 4 KiB: a response up to this size waits without its request. All errors and most answers are
/// smaller.
const SMALL: usize = 4 << 10;

/// A request's body, and the sending side of its response.
pub(in crate::http) struct H2Stream {
    peer: Option<IpAddr>,
    body: RecvStream,
    responder: H2Responder,
    /// The bytes that `h2` holds of a response that may be large.
    unwritten: Option<Arc<Unwritten>>,
}

/// The sending side of a stream, shared by the code that answers and the code that watches for a
/// reset. Both run in one task, so the lock is never contended.
#[derive(Clone)]
pub(super) struct H2Responder(Arc<Shared>);

struct Shared {
    stage: Mutex<Stage>,
    timer: Arc<FrameTimer>,
}

enum Stage {
    /// No final status has been sent.
    Open(SendResponse<Bytes>),
    /// The body is being sent.
    Started(SendStream<Bytes>),
    /// The rest of a small body waits for the client.
    Rest(SendStream<Bytes>, Box<Outgoing>),
    /// Everything has been handed over.
    Sent(SendStream<Bytes>),
    /// Nothing more is sent.
    Ended,
}

impl Stage {
    /// Ends a response that has been handed over.
    fn end(&mut self) {
        *self = match std::mem::replace(self, Self::Ended) {
            Self::Started(sender) => Self::Sent(sender),
            Self::Open(_) | Self::Rest(..) | Self::Sent(_) | Self::Ended => Self::Ended,
        };
    }
}

impl H2Responder {
    pub(super) fn new(response: SendResponse<Bytes>, timer: Arc<FrameTimer>) -> Self {
        let stage = Mutex::new(Stage::Open(response));
        Self(Arc::new(Shared { stage, timer }))
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.stage.lock()
    }

    /// Ready when the client reset the stream or left. Once a response has started, its sender
    /// detects that instead, and the request is logged.
    pub(super) fn poll_reset(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self.stage() {
            Stage::Open(response) => response.poll_reset(cx).map(|_| ()),
            Stage::Started(_) | Stage::Rest(..) | Stage::Sent(_) | Stage::Ended => Poll::Pending,
        }
    }

    /// Sends the head of a response, and as much of its body as the client takes at once. Returns
    /// the rest; a small rest is left to [`H2Responder::send_rest`].
    pub(super) fn start(
        &self,
        head: Response<()>,
        mut body: Outgoing,
    ) -> Result<Option<Outgoing>, Gone> {
        let mut stage = self.stage();
        let Stage::Open(response) = &mut *stage else {
            return Err(Gone);
        };
        let is_empty = body.is_last() && body.left() == 0;
        let mut sender = response.send_response(head, is_empty)?;
        let is_handed_over = is_empty || body.hand_over(&mut sender)?;
        let (next, rest) = match (is_handed_over, body.is_last()) {
            (true, false) => (Stage::Started(sender), None),
            (true, true) if is_empty || !body.is_watched() => (Stage::Sent(sender), None),
            (false, true) if body.left() <= SMALL => (Stage::Rest(sender, Box::new(body)), None),
            _ => (Stage::Started(sender), Some(body)),
        };
        *stage = next;
        Ok(rest)
    }

    /// Whether the connection has more to write than the client takes.
    fn is_stuck(&self) -> bool {
        self.0.timer.is_stuck.load(Ordering::Relaxed)
    }

    /// Bytes of a small response that wait for the client.
    pub(super) fn rest(&self) -> Option<usize> {
        match &*self.stage() {
            Stage::Rest(_, rest) => Some(rest.left()),
            Stage::Open(_) | Stage::Started(_) | Stage::Sent(_) | Stage::Ended => None,
        }
    }

    /// The stream of a response that has been handed over.
    pub(super) fn take_sent(&self) -> Option<SendStream<Bytes>> {
        match std::mem::replace(&mut *self.stage(), Stage::Ended) {
            Stage::Sent(sender) => Some(sender),
            Stage::Open(_) | Stage::Started(_) | Stage::Rest(..) | Stage::Ended => None,
        }
    }

    /// Sends the rest of a small response.
    pub(super) async fn send_rest(&self) -> Result<(), Gone> {
        match self.take_rest() {
            Some(mut rest) => self.send(&mut rest, STALL).await,
            None => Ok(()),
        }
    }

    fn take_rest(&self) -> Option<Box<Outgoing>> {
        let mut stage = self.stage();
        match std::mem::replace(&mut *stage, Stage::Ended) {
            Stage::Rest(sender, rest) => {
                *stage = Stage::Started(sender);
                Some(rest)
            }
            other => {
                *stage = other;
                None
            }
        }
    }

    /// Hands over as much as the client takes; not ready while its window is closed.
    fn poll_send(&self, cx: &mut Context<'_>, body: &mut Outgoing) -> Poll<Result<(), Gone>> {
        let mut stage = self.stage();
        let Stage::Started(sender) = &mut *stage else {
            return Poll::Ready(Err(Gone));
        };
        while !body.hand_over(sender)? {
            // `poll_capacity` reports changes only
            match ready!(sender.poll_capacity(cx)) {
                Some(room) => room?,
                None => return Poll::Ready(Err(Gone)),
            };
        }
        debug_assert_eq!(body.left(), 0, "all of it is handed over");
        if body.is_last() {
            ready!(body.poll_written(cx));
            stage.end();
        }
        Poll::Ready(Ok(()))
    }

    /// Sends a body, or a piece of it; ends the stream if the client does not read it in time.
    pub(super) async fn send(&self, body: &mut Outgoing, timeout: Duration) -> Result<(), Gone> {
        let (mut clock, mut timer) = (WriteClock::new(timeout), LazyTimer::default());
        poll_fn(|cx| match self.poll_send(cx, body) {
            Poll::Ready(sent) => Poll::Ready(sent),
            Poll::Pending => {
                let given_up = clock.poll(cx, &mut timer, || self.progress(body));
                given_up.map(|()| {
                    self.cancel();
                    Err(Gone)
                })
            }
        })
        .await
    }

    /// The progress of this stream. Others of its connection do not count, unless all wait for the
    /// socket.
    fn progress(&self, body: &Outgoing) -> Progress {
        let unwritten = body.unwritten();
        let socket = self.0.timer.socket.as_deref().filter(|_| unwritten > 0);
        Progress {
            acknowledged: acknowledged(socket),
            left: body.left() + unwritten,
        }
    }

    /// Resets the stream and drops its unwritten part.
    pub(super) fn cancel(&self) {
        if let Stage::Started(sender) | Stage::Rest(sender, _) = &mut *self.stage() {
            sender.send_reset(Reason::CANCEL);
        }
    }
}

impl H2Stream {
    pub(super) fn new(peer: Option<IpAddr>, body: RecvStream, responder: H2Responder) -> Self {
        Self {
            peer,
            body,
            responder,
            unwritten: None,
        }
    }

    /// Takes the stream's malformed flag: whether `h2` dropped a malformed part.
    fn is_malformed(&self) -> bool {
        self.responder
            .0
            .timer
            .malformed
            .take(self.body.stream_id().as_u32())
    }

    pub(in crate::http) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    pub(in crate::http) async fn read_body(&mut self) -> Result<Option<Bytes>, BodyError> {
        let Some(piece) = self.body.data().await else {
            // its trailers may have been malformed
            return if self.is_malformed() {
                Err(BodyError::Malformed)
            } else {
                Ok(None)
            };
        };
        // a body that differs from its declared length ends the stream, as a reset does
        let piece = piece.map_err(|_| BodyError::Gone)?;
        // reading makes room for more
        let released = self.body.flow_control().release_capacity(piece.len());
        released.map_err(|_| BodyError::Gone)?;
        Ok(Some(piece))
    }

    /// The whole body, if it arrived as one frame with the head. Otherwise its first frame is lost.
    pub(in crate::http) fn take_arrived_body(&mut self) -> Option<Bytes> {
        let mut cx = Context::from_waker(Waker::noop());
        let Poll::Ready(Some(Ok(piece))) = self.body.poll_data(&mut cx) else {
            return None;
        };
        if self.body.is_end_stream() {
            Some(piece)
        } else {
            None
        }
    }

    pub(in crate::http) fn is_body_read(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(in crate::http) fn write_continue(&mut self) -> Result<(), Gone> {
        let mut head = Response::new(());
        *head.status_mut() = StatusCode::CONTINUE;
        match &mut *self.responder.stage() {
            Stage::Open(response) => Ok(response.send_informational(head)?),
            Stage::Started(_) | Stage::Rest(..) | Stage::Sent(_) | Stage::Ended => Ok(()),
        }
    }

    /// Sends a response, or the start of one that is streamed.
    pub(in crate::http) async fn respond(
        &mut self,
        response: &mut H2Response,
        timeout: Duration,
    ) -> Result<(), Gone> {
        let H2Response {
            head,
            body,
            is_streamed,
        } = response;
        let (head, pieces) = (std::mem::take(head), std::mem::take(body));
        let mut body = if *is_streamed {
            Outgoing::part(pieces)
        } else {
            Outgoing::last(pieces)
        };
        if *is_streamed || body.left() >= LARGE || self.responder.is_stuck() {
            body = body.watched_by(self.unwritten.get_or_insert_default());
        }
        match self.responder.start(head, body)? {
            None => Ok(()),
            Some(mut rest) => self.responder.send(&mut rest, timeout).await,
        }
    }

    /// Sends more of a body.
    pub(in crate::http) async fn write_piece(
        &mut self,
        piece: Bytes,
        timeout: Duration,
    ) -> Result<(), Gone> {
        let piece = Outgoing::part([piece, Bytes::new(), Bytes::new()]);
        let mut piece = piece.watched_by(self.unwritten.get_or_insert_default());
        self.responder.send(&mut piece, timeout).await
    }

    /// Ends the body.
    pub(in crate::http) fn end(&mut self) -> Result<(), Gone> {
        let mut stage = self.responder.stage();
        if let Stage::Started(body) = &mut *stage {
            body.send_data(Bytes::new(), true)?;
        }
        stage.end();
        Ok(())
    }
}

impl Drop for H2Stream {
    /// Forgets that an unread body was malformed.
    fn drop(&mut self) {
        self.is_malformed();
    }
}

impl From<h2::Error> for Gone {
    /// The stream was reset, or its connection has ended.
    fn from(_: h2::Error) -> Self {
        Self
    }
}
