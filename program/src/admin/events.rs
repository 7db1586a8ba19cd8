//! Server-sent events for the page: a snapshot every second.
//!
//! One snapshot serves all subscribers, and none is made without subscribers. A slow subscriber
//! skips snapshots and never delays the others. Snapshots serve as keep-alives, too.
//! <https://html.spec.whatwg.org/multipage/server-sent-events.html>

use bytes::Bytes;
use futures_util::{FutureExt as _, Stream, StreamExt as _, stream};
use parking_lot::Mutex;
use portcullis_edge::reply::{BodyStream, Reply, StreamAborted};
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

/// The interval of snapshots.
const TICK: Duration = Duration::from_secs(1);
/// How many pages may be open concurrently.
pub(super) const MAX_SUBSCRIBERS: usize = 16;
/// Milliseconds until a browser reconnects.
const RETRY: Bytes = Bytes::from_static(b"retry: 1000\n\n");

/// The subscribers.
pub(super) struct Events {
    /// The newest event: `None` before the first, empty after the last.
    newest: watch::Sender<Option<Bytes>>,
    /// Whether the task that makes snapshots runs.
    is_running: Mutex<bool>,
}

impl Events {
    pub(super) fn new() -> Self {
        Self {
            newest: watch::Sender::new(None),
            is_running: Mutex::new(false),
        }
    }

    /// The response without events, for HEAD.
    pub(super) fn head() -> Reply {
        reply(stream::empty())
    }

    /// The response to a new subscriber; `None` if there are too many. The first subscriber's
    /// `snapshot` makes the JSON for all; it returns `None` once the process stops, which ends the
    /// streams.
    pub(super) fn subscribe(
        self: &Arc<Self>,
        snapshot: impl Fn() -> Option<String> + Send + 'static,
    ) -> Option<Reply> {
        let mut is_running = self.is_running.lock();
        if self.newest.receiver_count() >= MAX_SUBSCRIBERS {
            return None;
        }
        let mut subscriber = self.newest.subscribe();
        if *is_running {
            // the last snapshot is at most one interval old
            subscriber.mark_changed();
        } else {
            *is_running = true;
            let events = Arc::clone(self);
            tokio::spawn(async move {
                let run = AssertUnwindSafe(Arc::clone(&events).run(snapshot));
                if run.catch_unwind().await.is_err() {
                    events.end();
                }
            });
        }
        drop(is_running);
        let rest = stream::unfold(subscriber, |mut subscriber| async {
            loop {
                subscriber.changed().await.ok()?;
                let newest = subscriber.borrow_and_update().clone();
                if let Some(newest) = newest {
                    return (!newest.is_empty())
                        .then_some((Ok::<_, StreamAborted>(newest), subscriber));
                }
            }
        });
        Some(reply(rest))
    }

    /// Makes snapshots while there are subscribers.
    async fn run(self: Arc<Self>, snapshot: impl Fn() -> Option<String>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let Some(snapshot) = self.has_subscribers().then(&snapshot) else {
                return;
            };
            let is_last = snapshot.is_none();
            let event = snapshot
                .map(|json| format!("data: {json}\n\n"))
                .unwrap_or_default();
            self.newest.send_replace(Some(event.into()));
            if is_last {
                *self.is_running.lock() = false;
                return;
            }
        }
    }

    /// Ends the streams after a panic: their pages connect again, and the first starts a new task.
    fn end(&self) {
        let mut is_running = self.is_running.lock();
        *is_running = false;
        self.newest.send_replace(Some(Bytes::new()));
    }

    /// Whether there are subscribers; if not, the task has to end.
    fn has_subscribers(&self) -> bool {
        let mut is_running = self.is_running.lock();
        *is_running = self.newest.receiver_count() > 0;
        if !*is_running {
            self.newest.send_replace(None);
        }
        *is_running
    }
}

fn reply(events: impl Stream<Item = Result<Bytes, StreamAborted>> + Send + 'static) -> Reply {
    Reply {
        status: 200,
        media_type: Some("text/event-stream"),
        rest: Some(BodyStream::new(stream::iter([Ok(RETRY)]).chain(events))),
        ..Reply::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};

    async fn next(reply: &mut Reply) -> Option<Bytes> {
        let rest = reply.rest.as_mut().expect("events are a stream");
        rest.0
            .next()
            .await
            .map(|piece| piece.expect("it is not cut"))
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_listen_share_one_snapshot_a_tick_and_none_is_made_for_nobody() {
        let made = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&made);
        let source = move || Some((count.fetch_add(1, Ordering::Relaxed) + 1).to_string());
        let events = Arc::new(Events::new());
        let mut first = events.subscribe(source.clone()).expect("there is room");
        assert_eq!(next(&mut first).await, Some(RETRY), "when to come again");
        assert_eq!(next(&mut first).await.as_deref(), Some(&b"data: 1\n\n"[..]));
        let mut second = events.subscribe(source.clone()).expect("there is room");
        assert_eq!(next(&mut second).await, Some(RETRY));
        assert_eq!(
            next(&mut second).await.as_deref(),
            Some(&b"data: 1\n\n"[..]),
            "at once"
        );
        for reply in [&mut first, &mut second] {
            assert_eq!(next(reply).await.as_deref(), Some(&b"data: 2\n\n"[..]));
        }
        drop((first, second));
        tokio::time::sleep(10 * TICK).await;
        assert_eq!(made.load(Ordering::Relaxed), 2, "nobody listens any more");
        let mut third = events.subscribe(source.clone()).expect("there is room");
        assert_eq!(next(&mut third).await, Some(RETRY));
        let piece = next(&mut third).await;
        assert_eq!(
            piece.as_deref(),
            Some(&b"data: 3\n\n"[..]),
            "nothing old is given"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_ends_the_streams() {
        let events = Arc::new(Events::new());
        let fails = || panic!("a defect");
        let mut first = events.subscribe(fails).expect("there is room");
        assert_eq!(next(&mut first).await, Some(RETRY));
        assert_eq!(next(&mut first).await, None, "the page connects again");
        let mut second = events
            .subscribe(|| Some("1".to_owned()))
            .expect("there is room");
        assert_eq!(next(&mut second).await, Some(RETRY));
        let piece = next(&mut second).await;
        assert_eq!(piece.as_deref(), Some(&b"data: 1\n\n"[..]));
    }
}
