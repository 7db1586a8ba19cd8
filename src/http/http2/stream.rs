//! One HTTP/2 request and its response: a stream of RFC 9113.

use super::timed_io::FrameTimer;
use crate::http::http1::{BodyError, STALL};
use crate::http::request::{Gone, H2Response};
use crate::io::within;
use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{Response, StatusCode};
use parking_lot::{Mutex, MutexGuard};
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

/// A request's body, and the sending side of its response.
pub(in crate::http) struct H2Stream {
    peer: Option<IpAddr>,
    body: RecvStream,
    responder: H2Responder,
    timer: Arc<FrameTimer>,
}

/// The sending side of a stream, shared by the code that answers and the code that watches for a
/// reset. Both run in one task, so the lock is never contended.
#[derive(Clone)]
pub(super) struct H2Responder(Arc<Mutex<Stage>>);

enum Stage {
    /// No final status is sent.
    Open(SendResponse<Bytes>),
    /// The body is being sent.
    Started(SendStream<Bytes>),
    /// Everything is handed over.
    Ended,
}

/// Whether a frame ends its stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum EndStream {
    Yes,
    No,
}

impl H2Responder {
    pub(super) fn new(response: SendResponse<Bytes>) -> Self {
        Self(Arc::new(Mutex::new(Stage::Open(response))))
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.lock()
    }

    /// Ready when the client reset the stream or left. Once a response has started its sender sees
    /// that, and the request is logged.
    pub(super) fn poll_reset(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self.stage() {
            Stage::Open(response) => response.poll_reset(cx).map(|_| ()),
            Stage::Started(_) | Stage::Ended => Poll::Pending,
        }
    }

    fn start(&self, head: Response<()>, end: EndStream) -> Result<(), Gone> {
        let mut stage = self.stage();
        let Stage::Open(response) = &mut *stage else { return Err(Gone) };
        let ends = end == EndStream::Yes;
        let body = response.send_response(head, ends)?;
        *stage = if ends { Stage::Ended } else { Stage::Started(body) };
        Ok(())
    }

    /// Hands over as much of `piece` as the client takes at a time; not ready while its window is
    /// closed.
    fn poll_send(
        &self,
        cx: &mut Context<'_>,
        piece: &mut Bytes,
        end: EndStream,
    ) -> Poll<Result<(), Gone>> {
        let mut stage = self.stage();
        let Stage::Started(body) = &mut *stage else { return Poll::Ready(Err(Gone)) };
        body.reserve_capacity(piece.len());
        let mut room = body.capacity();
        while room == 0 {
            // reports changes only
            room = match ready!(body.poll_capacity(cx)) {
                Some(room) => room?,
                None => return Poll::Ready(Err(Gone)),
            };
        }
        let part = piece.split_to(room.min(piece.len()));
        let ends = end == EndStream::Yes && piece.is_empty();
        body.send_data(part, ends)?;
        if ends {
            *stage = Stage::Ended;
        }
        Poll::Ready(Ok(()))
    }

    async fn send(&self, mut piece: Bytes, end: EndStream) -> Result<(), Gone> {
        while !piece.is_empty() {
            let part = within(STALL, poll_fn(|cx| self.poll_send(cx, &mut piece, end)));
            part.await.unwrap_or(Err(Gone))?;
        }
        Ok(())
    }
}

impl H2Stream {
    pub(super) fn new(
        peer: Option<IpAddr>,
        body: RecvStream,
        responder: H2Responder,
        timer: Arc<FrameTimer>,
    ) -> Self {
        Self { peer, body, responder, timer }
    }

    /// Whether `h2` dropped something malformed of it, unless that was requested before.
    fn is_malformed(&self) -> bool {
        self.timer.malformed.take(self.body.stream_id().as_u32())
    }

    pub(in crate::http) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    pub(in crate::http) async fn read_body(&mut self) -> Result<Option<Bytes>, BodyError> {
        let Some(piece) = self.body.data().await else {
            // its trailers may have been malformed
            return if self.is_malformed() { Err(BodyError::Malformed) } else { Ok(None) };
        };
        // a body that is not as long as declared ends the stream as a reset does
        let piece = piece.map_err(|_| BodyError::Gone)?;
        // what is read makes room for more of it
        let released = self.body.flow_control().release_capacity(piece.len());
        released.map_err(|_| BodyError::Gone)?;
        Ok(Some(piece))
    }

    pub(in crate::http) fn is_body_read(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(in crate::http) fn write_continue(&mut self) -> Result<(), Gone> {
        let mut head = Response::new(());
        *head.status_mut() = StatusCode::CONTINUE;
        match &mut *self.responder.stage() {
            Stage::Open(response) => Ok(response.send_informational(head)?),
            Stage::Started(_) | Stage::Ended => Ok(()),
        }
    }

    /// Sends a response, or the start of one that is streamed.
    pub(in crate::http) async fn respond(&mut self, response: &mut H2Response) -> Result<(), Gone> {
        let H2Response { head, body, is_streamed } = response;
        let (head, is_streamed) = (std::mem::take(head), *is_streamed);
        let last = body.iter().rposition(|piece| !piece.is_empty()).filter(|_| !is_streamed);
        let ends = last.is_none() && !is_streamed;
        self.responder.start(head, if ends { EndStream::Yes } else { EndStream::No })?;
        for (at, piece) in body.iter_mut().enumerate() {
            let end = if Some(at) == last { EndStream::Yes } else { EndStream::No };
            self.responder.send(std::mem::take(piece), end).await?;
        }
        Ok(())
    }

    /// Sends more of a body.
    pub(in crate::http) async fn write_piece(&mut self, piece: Bytes) -> Result<(), Gone> {
        self.responder.send(piece, EndStream::No).await
    }

    /// Ends the body.
    pub(in crate::http) fn end(&mut self) -> Result<(), Gone> {
        let mut stage = self.responder.stage();
        if let Stage::Started(body) = &mut *stage {
            body.send_data(Bytes::new(), true)?;
        }
        *stage = Stage::Ended;
        Ok(())
    }
}

impl Drop for H2Stream {
    /// What is malformed of a body that nobody read is forgotten.
    fn drop(&mut self) {
        self.is_malformed();
    }
}

impl From<h2::Error> for Gone {
    /// The stream is reset, or its connection over.
    fn from(_: h2::Error) -> Self {
        Self
    }
}
