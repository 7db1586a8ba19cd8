//! Deadlines that cost nothing while nobody waits, and little while somebody does.

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::{Instant, Sleep};

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

/// Runs all that a task is for, for at most `limit`: `None` when that is over.
///
/// The timer asks to wake the task once, and not each time that the task was woken for something
/// else: most lives are over long before their limit.
pub async fn lifetime<T>(limit: Duration, life: impl Future<Output = T>) -> Option<T> {
    let mut life = pin!(life);
    let mut limit = pin!(tokio::time::sleep(limit));
    // before anything else, as a task that has done much is put off
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

/// A timer that is put off when it rings, and not set anew for each deadline.
///
/// Where what is waited for comes in time again and again, as requests of a connection do, it is
/// set once in as long as one of them may take.
#[derive(Debug, Default)]
pub struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Ready when it is `until`.
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

    /// Runs `future` to its end, or until it is `until`: `None`.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_life_ends_by_itself_or_at_its_limit_however_often_it_is_woken() {
        let limit = Duration::from_secs(60);
        assert_eq!(lifetime(limit, async { 7 }).await, Some(7));
        for pause in [Duration::from_secs(7), Duration::from_secs(3600)] {
            let begin = Instant::now();
            let life = async move {
                loop {
                    tokio::time::sleep(pause).await;
                }
            };
            let over: Option<()> = tokio::spawn(lifetime(limit, life)).await.expect("no panic");
            assert_eq!((over, begin.elapsed().as_secs()), (None, 60));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_alarm_rings_at_each_deadline_whether_the_last_was_sooner_or_later() {
        let mut alarm = Alarm::default();
        for seconds in [5, 60, 1, 8, 8] {
            let begin = Instant::now();
            let until = begin + Duration::from_secs(seconds);
            let late = alarm.within(until, tokio::time::sleep(Duration::from_secs(3600))).await;
            assert_eq!((late, begin.elapsed().as_secs()), (None, seconds));
            let in_time = alarm.within(until + Duration::from_secs(2), async { 7 }).await;
            assert_eq!(in_time, Some(7));
        }
    }
}
