//! Sends a call to a second URL while the first is slow, and takes the first answer that may be
//! passed on.

use super::Call;
use super::answer::Payload;
use super::client::{Attempted, NodeClient, Progress};
use super::target::{Origin, Target};
use futures_util::stream::{FuturesUnordered, Stream, StreamExt as _};
use portcullis_base::io::{MemoryPermit, monotonic};
use portcullis_filters::chain::{Asked, End, FailureClass, Repeat, SLOW, Step, Turn};
use tokio::time::{Instant, timeout_at};

/// The end of an attempt, and the memory that its answer takes.
type Ended = (Attempted, MemoryPermit);

impl NodeClient {
    /// Attempts a call at the URL at `index`. While that is slow, a read is sent to others, too.
    /// Returns the first answer that may be passed on, and where it is from.
    pub(super) async fn hedge<W: Fn(u64, &mut Vec<u8>) + Send + Sync>(
        &self,
        call: &Call<'_, W>,
        index: usize,
        progress: &mut Progress<'_>,
        permit: &mut MemoryPermit,
    ) -> Result<(Payload, Origin), End> {
        if call.repeat() == Repeat::Never {
            let attempted = self.try_url(call, index, permit).await;
            return self.settle(call, attempted, progress);
        }
        let target = self.targets.get(index).ok_or(End::NotAsked)?;
        let slow_at = Instant::now() + SLOW;
        let mut pending = FuturesUnordered::new();
        let own = std::mem::replace(permit, MemoryPermit::of(&self.memory));
        pending.push(self.try_with(call, index, own));
        let mut ended = self.patiently(target, &mut pending).await;
        loop {
            if let Some((attempted, own)) = ended {
                *permit = own;
                match self.settle(call, attempted, progress) {
                    Err(end) if !pending.is_empty() && progress.after(end) == Step::Next => {}
                    settled => return settled,
                }
            }
            let mut next = self.next_url(Turn::Second, call, progress);
            let is_slow = Instant::now() >= slow_at;
            if next.is_none() && is_slow {
                // one that is left out is better than one that is silent
                next = self.next_url(Turn::Next, call, progress);
            }
            ended = match next {
                Some(next) => {
                    pending.push(self.try_with(call, next, MemoryPermit::of(&self.memory)));
                    let until = Instant::now() + SLOW;
                    timeout_at(until, pending.next()).await.unwrap_or(None)
                }
                None if is_slow => pending.next().await,
                None => timeout_at(slow_at, pending.next()).await.unwrap_or(None),
            };
        }
    }

    async fn try_with<W: Fn(u64, &mut Vec<u8>) + Send + Sync>(
        &self,
        call: &Call<'_, W>,
        index: usize,
        mut permit: MemoryPermit,
    ) -> Ended {
        (self.try_url(call, index, &mut permit).await, permit)
    }

    /// Waits for the first URL, and returns how its attempt ended. `None` if it is time to ask a
    /// second one: the URL is slow and the budget allows it, or it has answered nobody for
    /// [`SLOW`].
    async fn patiently(
        &self,
        target: &Target,
        pending: &mut (impl Stream<Item = Ended> + Unpin),
    ) -> Option<Ended> {
        let sent = Instant::now();
        let url = target.record.index;
        let bound = self.node.update(|state, _| state.begin_read(url));
        if let Ok(ended) = timeout_at(sent + bound, pending.next()).await {
            return ended;
        }
        if self.node.update(|state, _| state.hedges.pay()) {
            return None;
        }
        if let Ok(ended) = timeout_at(sent + SLOW, pending.next()).await {
            return ended;
        }
        let since = monotonic::of(sent);
        if self.node.read(|state| state.has_answered_since(url, since)) {
            return pending.next().await;
        }
        let class = Some(FailureClass::Timeout);
        target.note_failure(Asked::Call, class, sent);
        None
    }
}
