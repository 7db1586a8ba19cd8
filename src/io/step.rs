//! Reading without a buffer that waits: what has come goes through the stack.
//!
//! Most of what connections do is wait. A buffer made before anything has come would be held by
//! each of them all the while, and be cold when it is used.

use bytes::BytesMut;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// 16 KiB: what is read at a time where it is not known how much is to come. A head and a usual
/// body fit.
pub const STEP: usize = 16 << 10;

/// Appends what has come, at most a [`STEP`], and says how much: nothing at the end.
pub fn poll_step(
    from: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    to: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    let mut step = [MaybeUninit::uninit(); STEP];
    let mut piece = ReadBuf::uninit(&mut step);
    ready!(Pin::new(from).poll_read(cx, &mut piece))?;
    to.extend_from_slice(piece.filled());
    Poll::Ready(Ok(piece.filled().len()))
}
