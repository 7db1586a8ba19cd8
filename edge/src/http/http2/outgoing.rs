//! The rest of a body that is to be sent over HTTP/2, and the bytes of it that `h2` still holds.
//!
//! `h2` reports how much of a body it accepts, not whether those bytes have left. The bytes that it
//! still holds distinguish a stream that waits for the socket, which others share, from one whose
//! window is closed.

use bytes::Bytes;
use futures_util::task::AtomicWaker;
use h2::SendStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll};

/// A body, or a piece of one that is streamed.
pub(super) struct Outgoing {
    pieces: [Bytes; 3],
    is_last: bool,
    /// `None` for a small body, which `h2` accepts whole if the window is open.
    unwritten: Option<Arc<Unwritten>>,
}

/// Bytes of a stream that `h2` holds.
#[derive(Default)]
pub(super) struct Unwritten {
    bytes: AtomicUsize,
    sender: AtomicWaker,
}

/// Bytes that count as unwritten until `h2` drops them.
struct Watched {
    bytes: Bytes,
    unwritten: Arc<Unwritten>,
}

impl Outgoing {
    /// The last, or only, part of a body.
    pub(super) fn last(pieces: [Bytes; 3]) -> Self {
        Self {
            pieces,
            is_last: true,
            unwritten: None,
        }
    }

    /// A part of a body that is streamed.
    pub(super) fn part(pieces: [Bytes; 3]) -> Self {
        Self {
            pieces,
            is_last: false,
            unwritten: None,
        }
    }

    /// Counts in `unwritten` the bytes that `h2` holds.
    pub(super) fn watched_by(self, unwritten: &Arc<Unwritten>) -> Self {
        Self {
            unwritten: Some(Arc::clone(unwritten)),
            ..self
        }
    }

    /// Bytes that `h2` has not taken.
    pub(super) fn left(&self) -> usize {
        self.pieces.iter().map(Bytes::len).sum()
    }

    /// Bytes that `h2` has taken and not written, of this and earlier parts of the body.
    pub(super) fn unwritten(&self) -> usize {
        self.unwritten
            .as_ref()
            .map_or(0, |unwritten| unwritten.bytes.load(Ordering::Relaxed))
    }

    /// Whether the bytes that `h2` holds are counted.
    pub(super) fn is_watched(&self) -> bool {
        self.unwritten.is_some()
    }

    /// Whether the body ends with this part.
    pub(super) fn is_last(&self) -> bool {
        self.is_last
    }

    /// Passes on as much as `h2` accepts now; returns whether everything was accepted.
    pub(super) fn hand_over(&mut self, sender: &mut SendStream<Bytes>) -> Result<bool, h2::Error> {
        while self.left() > 0 {
            sender.reserve_capacity(self.left());
            let room = sender.capacity();
            let Some(piece) = self.pieces.iter_mut().find(|piece| !piece.is_empty()) else {
                break;
            };
            let part = piece.split_to(room.min(piece.len()));
            if part.is_empty() {
                return Ok(false);
            }
            let ends = self.is_last && self.left() == 0;
            sender.send_data(self.watched(part), ends)?;
        }
        Ok(true)
    }

    fn watched(&self, bytes: Bytes) -> Bytes {
        let Some(unwritten) = &self.unwritten else {
            return bytes;
        };
        unwritten.bytes.fetch_add(bytes.len(), Ordering::Relaxed);
        Bytes::from_owner(Watched {
            bytes,
            unwritten: Arc::clone(unwritten),
        })
    }

    /// Ready once `h2` has written or dropped everything that it accepted.
    pub(super) fn poll_written(&self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(unwritten) = &self.unwritten else {
            return Poll::Ready(());
        };
        // registered before the count is read, so that no wake-up is missed
        unwritten.sender.register(cx.waker());
        match unwritten.bytes.load(Ordering::Acquire) {
            0 => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

impl AsRef<[u8]> for Watched {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Watched {
    fn drop(&mut self) {
        let unwritten = self
            .unwritten
            .bytes
            .fetch_sub(self.bytes.len(), Ordering::Release);
        debug_assert!(unwritten >= self.bytes.len(), "what is held is counted");
        self.unwritten.sender.wake();
    }
}
