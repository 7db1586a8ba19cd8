//! One request over HTTP/2 and its answer: a stream of RFC 9113.

use bytes::Bytes;
use h2::server::SendResponse;
use h2::{RecvStream, SendStream};
use http::{Response, StatusCode};
use pingora_core::ErrorType::{ConnectionClosed, WriteError};
use pingora_core::{Error, Result};
use pingora_http::RequestHeader;
use std::future::poll_fn;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, ready};

/// A request, and the way of its answer.
pub struct Exchange {
    header: RequestHeader,
    peer: Option<IpAddr>,
    body: RecvStream,
    way: Way,
}

/// The way of an answer, shared by whoever sends it and whoever looks out for its client. Both are
/// one task: nobody waits for the lock.
#[derive(Clone)]
pub(super) struct Way(Arc<Mutex<Stage>>);

enum Stage {
    /// No final status is sent.
    Open(SendResponse<Bytes>),
    /// The body is being sent.
    Begun(SendStream<Bytes>),
    /// Everything is handed over.
    Over,
}

impl Way {
    pub(super) fn new(answer: SendResponse<Bytes>) -> Self {
        Self(Arc::new(Mutex::new(Stage::Open(answer))))
    }

    fn stage(&self) -> MutexGuard<'_, Stage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ready when the client does not want an answer any more, or is gone. Once an answer has
    /// begun, whoever sends it is told, and the request is logged.
    pub(super) fn poll_unwanted(&self, cx: &mut Context<'_>) -> Poll<()> {
        match &mut *self.stage() {
            Stage::Open(answer) => answer.poll_reset(cx).map(|_| ()),
            Stage::Begun(_) | Stage::Over => Poll::Pending,
        }
    }

    /// Sends the head.
    fn begin(&self, head: Response<()>, is_all: bool) -> Result<()> {
        let mut stage = self.stage();
        let Stage::Open(answer) = &mut *stage else { return Err(gone("it was answered")) };
        let body = answer.send_response(head, is_all).map_err(failed)?;
        *stage = if is_all { Stage::Over } else { Stage::Begun(body) };
        Ok(())
    }

    /// Hands over as much of `piece` as the client takes at a time.
    fn poll_send(&self, cx: &mut Context<'_>, piece: &mut Bytes, last: bool) -> Poll<Result<()>> {
        let mut stage = self.stage();
        let Stage::Begun(body) = &mut *stage else {
            return Poll::Ready(Err(gone("the answer is over")));
        };
        body.reserve_capacity(piece.len());
        let mut room = body.capacity();
        while room == 0 {
            // it tells of changes only
            room = match ready!(body.poll_capacity(cx)) {
                Some(room) => room.map_err(failed)?,
                None => return Poll::Ready(Err(gone("the client left"))),
            };
        }
        let part = piece.split_to(room.min(piece.len()));
        let is_last = last && piece.is_empty();
        body.send_data(part, is_last).map_err(failed)?;
        if is_last {
            *stage = Stage::Over;
        }
        Poll::Ready(Ok(()))
    }

    fn end(&self) -> Result<()> {
        let mut stage = self.stage();
        if let Stage::Begun(body) = &mut *stage {
            body.send_data(Bytes::new(), true).map_err(failed)?;
        }
        *stage = Stage::Over;
        Ok(())
    }
}

impl Exchange {
    pub(super) fn new(
        header: RequestHeader,
        peer: Option<IpAddr>,
        body: RecvStream,
        way: Way,
    ) -> Self {
        Self { header, peer, body, way }
    }

    pub(in crate::http) fn header(&self) -> &RequestHeader {
        &self.header
    }

    pub(in crate::http) fn peer(&self) -> Option<IpAddr> {
        self.peer
    }

    pub(in crate::http) async fn read_body(&mut self) -> Result<Option<Bytes>> {
        let Some(piece) = self.body.data().await else { return Ok(None) };
        // a length that was not kept to ends the stream as a reset does
        let piece = piece.map_err(failed)?;
        // what is read makes room for more of it
        self.body.flow_control().release_capacity(piece.len()).map_err(failed)?;
        Ok(Some(piece))
    }

    pub(in crate::http) fn is_body_read(&self) -> bool {
        self.body.is_end_stream()
    }

    pub(in crate::http) fn write_continue(&mut self) -> Result<()> {
        let mut head = Response::new(());
        *head.status_mut() = StatusCode::CONTINUE;
        match &mut *self.way.stage() {
            Stage::Open(answer) => answer.send_informational(head).map_err(failed),
            Stage::Begun(_) | Stage::Over => Ok(()),
        }
    }

    /// Sends a whole answer.
    ///
    /// # Errors
    /// The client left.
    pub async fn answer(&mut self, head: Response<()>, body: [Bytes; 3]) -> Result<()> {
        let Some(last) = body.iter().rposition(|piece| !piece.is_empty()) else {
            return self.way.begin(head, true);
        };
        self.way.begin(head, false)?;
        for (at, mut piece) in body.into_iter().enumerate() {
            while !piece.is_empty() {
                poll_fn(|cx| self.way.poll_send(cx, &mut piece, at == last)).await?;
            }
        }
        Ok(())
    }

    /// Sends the head of an answer whose body is made while it is sent.
    ///
    /// # Errors
    /// The client left.
    pub fn begin(&mut self, head: Response<()>) -> Result<()> {
        self.way.begin(head, false)
    }

    /// Sends more of the body.
    ///
    /// # Errors
    /// The client left.
    pub async fn send(&mut self, pieces: [Bytes; 3]) -> Result<()> {
        for mut piece in pieces {
            while !piece.is_empty() {
                poll_fn(|cx| self.way.poll_send(cx, &mut piece, false)).await?;
            }
        }
        Ok(())
    }

    /// Says that the body is whole.
    ///
    /// # Errors
    /// The client left.
    pub fn end(&mut self) -> Result<()> {
        self.way.end()
    }
}

fn gone(why: &'static str) -> Box<Error> {
    Error::explain(WriteError, why)
}

/// The stream is reset, or its connection over: nobody is there any more.
fn failed(error: h2::Error) -> Box<Error> {
    Error::because(ConnectionClosed, "the stream is over", error)
}
