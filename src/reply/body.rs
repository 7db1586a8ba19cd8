//! Response bodies: stored in up to three pieces, or streamed.

use bytes::Bytes;
use futures_util::Stream;
use std::fmt;
use std::pin::Pin;

/// A body in up to three pieces, so that a cached payload is framed without being copied.
#[derive(Clone, Debug, Default)]
pub struct Body([Bytes; 3]);

impl Body {
    /// `payload` between what precedes and what follows it.
    pub fn framed(start: impl Into<Bytes>, payload: Bytes, end: &'static [u8]) -> Self {
        Self([start.into(), payload, Bytes::from_static(end)])
    }

    /// Its length in bytes.
    pub fn length(&self) -> usize {
        self.0.iter().map(Bytes::len).sum()
    }

    /// Its pieces, in order; an unused piece is empty.
    pub fn pieces(&self) -> &[Bytes; 3] {
        &self.0
    }

    /// Takes the pieces.
    pub fn into_pieces(self) -> [Bytes; 3] {
        self.0
    }
}

/// A body in one piece.
impl<T: Into<Bytes>> From<T> for Body {
    fn from(bytes: T) -> Self {
        Self([bytes.into(), Bytes::new(), Bytes::new()])
    }
}

/// The part of a body that is generated while it is sent.
pub struct BodyStream(pub Pin<Box<dyn Stream<Item = Result<Bytes, StreamAborted>> + Send>>);

impl BodyStream {
    /// Streams `pieces`.
    pub fn new(pieces: impl Stream<Item = Result<Bytes, StreamAborted>> + Send + 'static) -> Self {
        Self(Box::pin(pieces))
    }
}

impl fmt::Debug for BodyStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BodyStream")
    }
}

/// The rest of the body is unavailable: the response ends early, and the client can detect that.
#[derive(Clone, Copy, Debug)]
pub struct StreamAborted;
