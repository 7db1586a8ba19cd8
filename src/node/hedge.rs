//! Asks a second URL while the first is slow, and takes the first valid answer.

use super::client::NodeClient;
use super::route::Choice;
use super::target::{Answered, Target};
use super::{Call, CallFailure};
use crate::io::MemoryPermit;
use futures_util::future::{Either, select};
use portcullis_filters::chain::{Asked, FailureClass, Repeat, Routing, SLOW};
use std::pin::{Pin, pin};
use tokio::time::{Instant, timeout_at};

/// The end of an attempt, and the URL's index; `None` if its breaker was open.
type Attempted = Option<(Result<Answered, CallFailure>, usize)>;

impl NodeClient {
    /// Attempts a call at the URL at `index`. If that is slow, a read is sent to a second URL, too.
    pub(super) async fn hedge<W: Fn(u64, &mut Vec<u8>) + Send + Sync>(
        &self,
        call: &Call<'_, W>,
        index: usize,
        choice: &Choice<'_>,
        routing: &mut Routing,
        permit: &mut MemoryPermit,
    ) -> Attempted {
        let target = self.targets.get(index)?;
        if call.repeat() == Repeat::Never {
            return self.try_url(call, index, permit).await;
        }
        let mut spare = MemoryPermit::of(&self.memory);
        let attempted = {
            let mut first = pin!(self.try_url(call, index, permit));
            if let Some(ended) = self.patiently(target, first.as_mut()).await {
                return ended;
            }
            let order = choice.order(self.targets.len());
            let Some(second) = routing.second(order, |url| self.standing(choice, call, url)) else {
                return first.await;
            };
            let second = pin!(self.try_url(call, second, &mut spare));
            match select(first, second).await {
                Either::Left((ended @ Some((Ok(_), _)), _)) => return ended,
                Either::Left((ended, second)) => match second.await {
                    None => return ended,
                    attempted => attempted,
                },
                Either::Right((ended @ Some((Ok(_), _)), _)) => ended,
                Either::Right((_, first)) => return first.await,
            }
        };
        *permit = spare;
        attempted
    }

    /// Waits for the first URL, and returns how its attempt ended. `None` if it is time to ask a
    /// second one: the URL is slow and the budget allows it, or it has answered nobody for
    /// [`SLOW`].
    async fn patiently(
        &self,
        target: &Target,
        mut first: Pin<&mut impl Future<Output = Attempted>>,
    ) -> Option<Attempted> {
        let sent = Instant::now();
        self.node.hedges.lock().earn();
        let bound = target.record.hedge_bound();
        if let Ok(ended) = timeout_at(sent + bound, first.as_mut()).await {
            return Some(ended);
        }
        if bound < SLOW {
            if self.node.hedges.lock().pay() {
                return None;
            }
            if let Ok(ended) = timeout_at(sent + SLOW, first.as_mut()).await {
                return Some(ended);
            }
        }
        if !target.record.has_answered_since(sent) {
            let class = Some(FailureClass::Timeout);
            target.record.note_failure(Asked::Call, class, sent);
            return None;
        }
        if self.node.hedges.lock().pay() {
            return None;
        }
        Some(first.await)
    }
}
