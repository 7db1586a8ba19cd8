//! Deadlines that cost nothing until something waits, and little after that.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

/// Runs `future` for at most `limit`, counted from when it first has to wait; `None` after that.
///
/// A future that is ready at once, as most reads and writes of small requests are, reads no clock
/// and sets no timer.
pub async fn within<T>(limit: Duration, future: impl Future<Output = T>) -> Option<T> {
    let mut future = pin!(future);
    if let Poll::Ready(done) = poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx))).await {
        return Some(done);
    }
    tokio::time::timeout(limit, future).await.ok()
}

/// Runs the whole work of a task for at most `limit`; `None` after that.
///
/// The timer is registered once, and not polled each time the task wakes for something else: most
/// tasks end long before their limit.
pub async fn lifetime<T>(limit: Duration, life: impl Future<Output = T>) -> Option<T> {
    let mut life = pin!(life);
    let mut limit = pin!(tokio::time::sleep(limit));
    // first, because a task whose budget is spent would not be registered
    if poll_fn(|cx| Poll::Ready(limit.as_mut().poll(cx))).await.is_ready() {
        return None;
    }
    poll_fn(|cx| match life.as_mut().poll(cx) {
        Poll::Ready(done) => Poll::Ready(Some(done)),
        Poll::Pending if limit.is_elapsed() => Poll::Ready(None),
        Poll::Pending => Poll::Pending,
    })
    .await
}

/// A timer that is postponed when it fires, instead of being set for each deadline.
///
/// Where deadlines are met again and again, as by the requests of a connection, it is set once per
/// deadline's length instead of once per request.
#[derive(Debug, Default)]
pub struct LazyTimer(Option<Pin<Box<Sleep>>>);

impl LazyTimer {
    /// Ready at `until`.
    pub fn poll_until(&mut self, until: Instant, cx: &mut Context<'_>) -> Poll<()> {
        let sleep = self.0.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(until)));
        if sleep.deadline() > until {
            sleep.as_mut().reset(until);
        }
        while sleep.as_mut().poll(cx).is_ready() {
            if sleep.deadline() >= until {
                return Poll::Ready(());
            }
            sleep.as_mut().reset(until);
        }
        Poll::Pending
    }

    /// Runs `future` to its end; `None` at `until`.
    pub async fn within<T>(
        &mut self,
        until: Instant,
        future: impl Future<Output = T>,
    ) -> Option<T> {
        let mut future = pin!(future);
        poll_fn(|cx| match future.as_mut().poll(cx) {
            Poll::Ready(done) => Poll::Ready(Some(done)),
            Poll::Pending => self.poll_until(until, cx).map(|()| None),
        })
        .await
    }
}
