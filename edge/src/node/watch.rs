//! The polls of the watch: the newest block of the first URL that may serve, the blocks that show
//! whether the chain continues, and the head of L1.
//!
//! The newest block also counts in the next round of polls, so that no URL is asked for it twice.
//! An answer that is behind closes its connection, so each attempt asks over another one.
//! `continuity` of the pure crate decides which blocks are needed, and what they prove.

use super::Call;
use super::answer::{RESULT, error_code};
use super::chain::{code, is_accepted, write_request};
use super::poller::{Poller, head_time};
use super::target::Target;
use futures_util::future::{join, join_all};
use portcullis_base::io::MemoryPermit;
use portcullis_filters::chain::continuity::{L1, Poll};
use portcullis_filters::chain::{
    Asked, BlockIdentity, Change, FailureClass, Observation, PurgeCause, Repeat, Routing, Turn,
    Watched,
};
use serde_json::Value;
use std::time::Duration;
use tokio::time::{Instant, sleep};

/// Milliseconds to wait before each attempt while all URLs are behind what clients have seen.
const PAUSES: [u64; 4] = [0, 20, 50, 100];

/// Why a poll does not show whether the chain continues; `None` if the node is behind what clients
/// have seen: blocks that it lacks may exist or be gone.
type Unproven = Option<PurgeCause>;

/// No valid answer: another URL may give one.
const FAILED: Unproven = Some(PurgeCause::Unreachable);
/// The answer is not an accepted block.
const STRANGE: Unproven = Some(PurgeCause::Strange);

impl Poller {
    /// Polls the chain for the watch; no attempt ends after `limit`.
    ///
    /// # Errors
    /// Returns why that proves nothing; `None` if all URLs are behind what clients have seen.
    pub async fn watch(&self, limit: Duration) -> Result<Poll, Option<PurgeCause>> {
        if self.node.start.load().is_some() {
            return Err(FAILED);
        }
        let until = Instant::now() + limit;
        for pause in PAUSES {
            sleep(Duration::from_millis(pause)).await;
            let polled = self.watch_any(until).await;
            if polled != Err(None) {
                return polled;
            }
        }
        Err(None)
    }

    /// Polls the first URL that answers and is not behind.
    async fn watch_any(&self, until: Instant) -> Result<Poll, Unproven> {
        let node = &self.node;
        let mut routing = Routing::new(Repeat::Safe);
        let mut unproven = FAILED;
        if node.has_several() && node.read(|state| state.group.is_held_back()) {
            unproven = None;
        }
        let urls = self.targets.len();
        let time = until.saturating_duration_since(Instant::now());
        // a URL that hangs leaves time for the others
        let share = time / u32::try_from(urls).unwrap_or(u32::MAX).max(1);
        loop {
            let url = routing.next(Turn::Next, 0..urls, |url| {
                node.update(|state, now| state.standing(url, None, Asked::Poll, Repeat::Safe, now))
            });
            let Some(target) = url.and_then(|url| self.targets.get(url)) else {
                return Err(unproven);
            };
            match self.watch_one(target, Instant::now() + share).await {
                Err(None) => unproven = None,
                Err(FAILED) => {}
                ended => return ended,
            }
        }
    }

    async fn watch_one(&self, target: &Target, deadline: Instant) -> Result<Poll, Unproven> {
        let (node, anchor) = (&self.node, self.node.anchor());
        let mut head = self.watch_head(target, deadline).await?;
        let newest = node.read(|state| state.group.newest(head.number));
        let newest = newest.ok_or(None)?;
        if newest != head.number {
            let block = self.watch_known(target, newest, deadline).await?;
            head = block.ok_or(STRANGE)?;
        }
        let wanted = node.read(|state| state.continuity.wanted(head, anchor));
        let known = wanted.into_iter();
        let known = known.map(|number| self.watch_known(target, number, deadline));
        let l1 = self.watch_l1(target, deadline);
        let (known, l1) = join(join_all(known), l1).await;
        let known = known.into_iter().collect::<Result<Vec<_>, _>>()?;
        let known = known.into_iter().flatten().collect();
        let l1 = l1?;
        let poll = node.read(|state| state.continuity.poll(head, anchor, known, l1));
        poll.ok_or(STRANGE)
    }

    /// The newest block, unless it is older than what clients have seen.
    async fn watch_head(
        &self,
        target: &Target,
        deadline: Instant,
    ) -> Result<BlockIdentity, Unproven> {
        let block = self.ask_block(target, r#""latest""#, deadline, |block| {
            Some(Watched::Head(accepted(block?)?))
        });
        let block = block.await?.ok_or(STRANGE)?;
        if let Some(time) = head_time(&block) {
            let head = Observation::Head(target.record.index, time);
            self.node.observe(head);
        }
        accepted(&block).ok_or(STRANGE)
    }

    /// The block of this number, which was seen before, or the anchor; `None` if it is gone.
    async fn watch_known(
        &self,
        target: &Target,
        number: u64,
        deadline: Instant,
    ) -> Result<Option<BlockIdentity>, Unproven> {
        let id = format!(r#"{{"block_number":{number}}}"#);
        let block = self.ask_block(target, &id, deadline, |block| match block {
            Some(_) => None,
            None => Some(Watched::Gone(number)),
        });
        let Some(block) = block.await? else {
            return Ok(None);
        };
        let block = accepted(&block).ok_or(STRANGE)?;
        // not another block than the requested one
        Ok(Some(block).filter(|block| block.number == number))
    }

    /// The newest block that is accepted on L1. `starknet-devnet` keeps naming such a block after
    /// it has aborted it, and reuses its hash for the one that replaces it: that is unknown.
    async fn watch_l1(&self, target: &Target, deadline: Instant) -> Result<L1, Unproven> {
        let block = self.ask_block(target, r#""l1_accepted""#, deadline, |_| None);
        match block.await {
            Ok(None) => Ok(L1::Head(None)),
            Ok(Some(block)) if block["status"] == "ACCEPTED_ON_L1" => {
                let block = BlockIdentity::read(&block);
                Ok(block.map_or(L1::Unknown, |block| L1::Head(Some(block))))
            }
            Err(FAILED) => Err(FAILED),
            Ok(Some(_)) | Err(_) => Ok(L1::Unknown),
        }
    }

    /// Requests a block with transaction hashes; `None` if the URL does not have it. Keeps the
    /// connection unless the answer, parsed by `read`, is behind what clients have seen.
    async fn ask_block(
        &self,
        target: &Target,
        id: &str,
        deadline: Instant,
        read: impl Fn(Option<&Value>) -> Option<Watched>,
    ) -> Result<Option<Value>, Unproven> {
        let params = format!(r#"{{"block_id":{id}}}"#);
        let call = Call::new(
            |call: u64, out: &mut Vec<u8>| {
                write_request(call, "starknet_getBlockWithTxHashes", &params, out);
            },
            deadline,
        );
        let call = call.polling();
        let mut permit = MemoryPermit::of(&self.memory);
        let answered = target.ask(&call, &mut permit).await;
        let failure = answered.as_ref().err();
        let error = failure.map(|failure| failure.error().name());
        self.node.metrics.node_call(error, call.start.elapsed());
        let answered = answered.map_err(|_| FAILED)?;
        let (member, text) = &answered.payload;
        let block: Option<Value> = match error_code(&answered.payload) {
            _ if *member == RESULT => Some(serde_json::from_slice(text).map_err(|_| STRANGE)?),
            code::BLOCK_NOT_FOUND => None,
            code if FailureClass::of_error(code).is_some() && self.node.has_several() => {
                return Err(FAILED);
            }
            _ => return Err(STRANGE),
        };
        if let Some(watched) = read(block.as_ref()) {
            let (url, connection) = (target.record.index, answered.connection());
            let observation = Observation::Watched(url, connection, watched);
            if self.node.observe(observation) != Change::None {
                return Err(None);
            }
        }
        target.keep(answered);
        Ok(block)
    }
}

/// The identity of an accepted block.
fn accepted(block: &Value) -> Option<BlockIdentity> {
    if !block["status"].as_str().is_some_and(is_accepted) {
        return None;
    }
    BlockIdentity::read(block)
}
