//! What the page follows: a snapshot every second, as server-sent events.
//!
//! A snapshot is made once for all who listen, and none while nobody does. Whoever reads too slowly
//! misses some and never holds up the others. Each is a sign of life, so no other one is sent.
//! <https://html.spec.whatwg.org/multipage/server-sent-events.html>

use crate::reply::{BodyStream, Reply, StreamAborted};
use bytes::Bytes;
use futures_util::{Stream, StreamExt as _, stream};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

/// Between two snapshots.
const TICK: Duration = Duration::from_secs(1);
/// Pages that may be open at a time: some people, on some screens.
pub(super) const MAX_LISTENERS: usize = 16;
/// Milliseconds until a page asks again when the connection is lost.
const RETRY: Bytes = Bytes::from_static(b"retry: 1000\n\n");

/// Makes a snapshot as JSON; none when it is the last: the process stops.
pub(super) trait Source: Send + Sync + 'static {
    /// The next one.
    fn snapshot(&self) -> Option<String>;
}

/// Those who listen.
pub(super) struct Events {
    /// None before the first; an empty one after the last.
    newest: watch::Sender<Option<Bytes>>,
    /// Whether snapshots are made.
    ticks: Mutex<bool>,
}

impl Events {
    pub(super) fn new() -> Self {
        Self { newest: watch::Sender::new(None), ticks: Mutex::new(false) }
    }

    /// The head of the answer to somebody who listens, and no event.
    pub(super) fn head() -> Reply {
        reply(stream::empty())
    }

    /// The answer to somebody who wants to listen; `None` when there are too many.
    pub(super) fn listen(self: &Arc<Self>, source: Arc<impl Source>) -> Option<Reply> {
        let mut ticks = self.ticks.lock().unwrap_or_else(PoisonError::into_inner);
        if self.newest.receiver_count() >= MAX_LISTENERS {
            return None;
        }
        let mut listener = self.newest.subscribe();
        if *ticks {
            // what the others saw last is no older than a tick
            listener.mark_changed();
        } else {
            *ticks = true;
            tokio::spawn(Arc::clone(self).tick(source));
        }
        drop(ticks);
        let rest = stream::unfold(listener, |mut listener| async {
            loop {
                listener.changed().await.ok()?;
                let newest = listener.borrow_and_update().clone();
                if let Some(newest) = newest {
                    return (!newest.is_empty())
                        .then_some((Ok::<_, StreamAborted>(newest), listener));
                }
            }
        });
        Some(reply(rest))
    }

    /// Makes snapshots as long as somebody listens.
    async fn tick(self: Arc<Self>, source: Arc<impl Source>) {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            let Some(snapshot) = self.is_heard().then(|| source.snapshot()) else { return };
            let is_last = snapshot.is_none();
            let event = snapshot.map(|json| format!("data: {json}\n\n")).unwrap_or_default();
            self.newest.send_replace(Some(event.into()));
            if is_last {
                *self.ticks.lock().unwrap_or_else(PoisonError::into_inner) = false;
                return;
            }
        }
    }

    /// Whether anybody listens; if not, nothing is made from now on.
    fn is_heard(&self) -> bool {
        let mut ticks = self.ticks.lock().unwrap_or_else(PoisonError::into_inner);
        *ticks = self.newest.receiver_count() > 0;
        if !*ticks {
            self.newest.send_replace(None);
        }
        *ticks
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

    /// Numbers, up to the last.
    struct Numbers {
        made: AtomicUsize,
        last: usize,
    }

    impl Source for Numbers {
        fn snapshot(&self) -> Option<String> {
            let number = self.made.fetch_add(1, Ordering::Relaxed) + 1;
            (number <= self.last).then(|| number.to_string())
        }
    }

    fn numbers(last: usize) -> (Arc<Events>, Arc<Numbers>) {
        let numbers = Numbers { made: AtomicUsize::new(0), last };
        (Arc::new(Events::new()), Arc::new(numbers))
    }

    async fn next(reply: &mut Reply) -> Option<Bytes> {
        let rest = reply.rest.as_mut().expect("events are a stream");
        rest.0.next().await.map(|piece| piece.expect("it is not cut"))
    }

    #[tokio::test(start_paused = true)]
    async fn all_who_listen_share_one_snapshot_a_tick_and_none_is_made_for_nobody() {
        let (events, source) = numbers(usize::MAX);
        let mut first = events.listen(Arc::clone(&source)).expect("there is room");
        assert_eq!(next(&mut first).await, Some(RETRY), "when to come again");
        assert_eq!(next(&mut first).await.as_deref(), Some(&b"data: 1\n\n"[..]));
        let mut second = events.listen(Arc::clone(&source)).expect("there is room");
        assert_eq!(next(&mut second).await, Some(RETRY));
        assert_eq!(next(&mut second).await.as_deref(), Some(&b"data: 1\n\n"[..]), "at once");
        for reply in [&mut first, &mut second] {
            assert_eq!(next(reply).await.as_deref(), Some(&b"data: 2\n\n"[..]));
        }
        drop((first, second));
        tokio::time::sleep(10 * TICK).await;
        assert_eq!(source.made.load(Ordering::Relaxed), 2, "nobody listens any more");
        let mut third = events.listen(Arc::clone(&source)).expect("there is room");
        assert_eq!(next(&mut third).await, Some(RETRY));
        let piece = next(&mut third).await;
        assert_eq!(piece.as_deref(), Some(&b"data: 3\n\n"[..]), "nothing old is given");
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_listeners_is_bounded_and_a_place_becomes_free() {
        let (events, source) = numbers(usize::MAX);
        let mut held: Vec<_> =
            (0..MAX_LISTENERS).map(|_| events.listen(Arc::clone(&source))).collect();
        assert!(held.iter().all(Option::is_some));
        assert!(events.listen(Arc::clone(&source)).is_none(), "one too many");
        held.pop();
        assert!(events.listen(source).is_some(), "a place is free");
    }

    #[tokio::test(start_paused = true)]
    async fn the_last_snapshot_ends_every_stream() {
        let (events, source) = numbers(2);
        let mut reply = events.listen(source).expect("there is room");
        for _ in 0..3 {
            assert!(next(&mut reply).await.is_some());
        }
        assert_eq!(next(&mut reply).await, None);
    }
}
