//! Turns of tasks that always find something to read.

use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::task::yield_now;

/// 16 KiB: small frames of that many bytes take less than a millisecond.
const TURN: usize = 16 << 10;

/// Lets other tasks run after some input.
///
/// The runtime ends a task's turn after 128 reads, which may be megabytes, and sees new input of
/// others only after dozens of turns: a few clients that send at full speed would delay everybody.
#[derive(Default)]
pub struct Turn {
    /// Bytes read in this turn.
    read: usize,
    pause: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
}

impl Turn {
    /// Counts bytes that were read.
    pub fn count(&mut self, bytes: usize) {
        self.read += bytes;
    }

    /// Ready at once within a turn, and after the others at its end.
    pub fn poll(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.read < TURN {
            return Poll::Ready(());
        }
        let pause = self.pause.get_or_insert_with(|| Box::pin(yield_now()));
        ready!(pause.as_mut().poll(cx));
        (self.read, self.pause) = (0, None);
        Poll::Ready(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    #[tokio::test]
    async fn others_run_between_two_turns() {
        let turns = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&turns);
        let reader = tokio::spawn(async move {
            let mut turn = Turn::default();
            for _ in 0..100 {
                poll_fn(|cx| turn.poll(cx)).await;
                turn.count(TURN / 2);
                counted.fetch_add(1, Ordering::Relaxed);
            }
        });
        let mut seen = Vec::new();
        while !reader.is_finished() {
            seen.push(turns.load(Ordering::Relaxed));
            yield_now().await;
        }
        assert!(seen.len() > 40, "{} times between two turns of the reader", seen.len());
        reader.await.expect("it does not panic");
    }
}
