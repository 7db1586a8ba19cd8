//! Reading without a buffer that waits: bytes pass through the stack.
//!
//! Connections mostly wait. A buffer that is allocated before anything arrives would be held all
//! that time, and be cold when it is used.

use bytes::BytesMut;
use std::io;
use std::mem::MaybeUninit;
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, ReadBuf};

/// 16 KiB: what is read at a time where the size is not known. A head and a usual body fit.
pub const READ_SIZE: usize = 16 << 10;

/// Appends what has arrived, at most [`READ_SIZE`] bytes, and returns how many: 0 at the end.
pub fn poll_read_some(
    from: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
    to: &mut BytesMut,
) -> Poll<io::Result<usize>> {
    let mut step = [MaybeUninit::uninit(); READ_SIZE];
    let mut piece = ReadBuf::uninit(&mut step);
    ready!(Pin::new(from).poll_read(cx, &mut piece))?;
    to.extend_from_slice(piece.filled());
    Poll::Ready(Ok(piece.filled().len()))
}
