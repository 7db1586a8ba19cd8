//! A deadline that costs nothing while nobody waits.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

/// Runs `future`, for at most `limit` from when it first has to wait; `None` when that is over.
///
/// What is done in one go, as most reads and writes of small requests are, reads no clock and sets
/// no timer.
pub async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
        return Some(done);
    }
    tokio::time::timeout(limit, future).await.ok()
}
