//! Answers that are given again: bounded in bytes and in entries, and only while the chain that
//! they are about is seen to stand.
//!
//! `watch` says what stands, in a [`View`]; every entry carries the view that it was asked under,
//! so that one from before a rollback is no hit, whoever puts it in however late. An entry holds a
//! copy of its payload, cut to size, under a permit on the memory for answers: one that is thrown
//! out while slow clients still read it counts until they have it.

use super::cache_key::CacheKey;
use super::watch::Step;
use crate::config::CacheConfig;
use crate::io::memory::{MemoryPermit, MemoryPool};
use crate::node::{Answer, MAX_ANSWER};
use arc_swap::ArcSwap;
use bytes::Bytes;
use portcullis_filters::rpc::keep::Keep;
use quick_cache::sync::DefaultLifecycle;
use quick_cache::{DefaultHashBuilder, OptionsBuilder, Weighter};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long the chain's id and the API's version are kept. They do not change while a node runs; a
/// node may be replaced by another.
const BRIEFLY: Duration = Duration::from_secs(10);
/// What an entry takes beside its key and its payload.
const OVERHEAD: usize = 256;
/// A part of the cache under one lock holds at least so much: some of the largest answers.
const SHARD: usize = 16 << 20;
/// And so many entries: one that weighs as much as a part may hold is not taken.
const SHARD_ENTRIES: usize = 16;
/// Locks: more threads than this do not get in each other's way.
const MAX_SHARDS: usize = 64;

/// What the watch made of the chain, for one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct View {
    /// Which life of the chain this is; every doubt begins another.
    pub(super) epoch: u64,
    /// Whether the chain is seen: else nothing is given or kept.
    pub(super) in_use: bool,
    /// The newest block that an answer may stand on.
    pub(super) settled: Option<u64>,
    /// Changes whenever blocks are accepted on L1. `None` when that is not seen.
    pub(super) l1: Option<u64>,
}

/// The cache.
pub(super) struct Cache {
    cached: Cached,
    view: ArcSwap<View>,
    /// Whether it is switched on, for whoever watches.
    switch: watch::Sender<bool>,
    memory: Arc<MemoryPool>,
}

type Cached = quick_cache::sync::Cache<Arc<CacheKey>, Entry, Weight>;

#[derive(Clone)]
struct Entry {
    epoch: u64,
    /// The state of L1 that it depends on, if it does.
    l1: Option<u64>,
    until: Option<Instant>,
    answer: Answer,
}

/// How the cache stands, for the metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStats {
    /// Whether it is switched on.
    pub enabled: bool,
    /// Answers in it.
    pub entries: u64,
    /// What they weigh.
    pub bytes: u64,
    /// The newest block that one may stand on.
    pub settled: Option<u64>,
    /// Whether none is given.
    pub suspended: bool,
    /// Which life of the chain this is; every doubt begins another.
    pub epoch: u64,
    /// What they may weigh.
    pub capacity: u64,
}

/// Weighs an entry by its bytes, and as much at least as lets no more than the most entries in.
#[derive(Clone)]
struct Weight {
    least: usize,
}

impl Weighter<Arc<CacheKey>, Entry> for Weight {
    fn weight(&self, asked: &Arc<CacheKey>, entry: &Entry) -> u64 {
        bytes(asked, &entry.answer.payload).max(self.least) as u64
    }
}

fn bytes(asked: &CacheKey, payload: &Bytes) -> usize {
    asked.call().as_bytes().len() + payload.len() + OVERHEAD
}

impl Cache {
    /// An empty one. `memory` is where answers have theirs.
    pub(super) fn new(config: &CacheConfig, memory: Arc<MemoryPool>) -> Self {
        // a reload can switch on what the start had no memory for: an answer must always fit beside
        let size = config.size.bytes().min(memory.size().saturating_sub(MAX_ANSWER)).max(1);
        let shards = (size / SHARD).min(config.max_entries / SHARD_ENTRIES).clamp(1, MAX_SHARDS);
        let options = OptionsBuilder::new()
            // a power of two, rounded down: each is to hold SHARD
            .shards(1 << shards.ilog2())
            .estimated_items_capacity(config.max_entries)
            .weight_capacity(size as u64)
            .build()
            .expect("both capacities are set");
        let weight = Weight { least: size.div_ceil(config.max_entries) };
        let lifecycle = DefaultLifecycle::default();
        Self {
            cached: Cached::with_options(options, weight, DefaultHashBuilder::default(), lifecycle),
            view: ArcSwap::from_pointee(View { epoch: 0, in_use: false, settled: None, l1: None }),
            switch: watch::Sender::new(config.enabled),
            memory,
        }
    }

    /// What may be given and kept now.
    pub(super) fn view(&self) -> View {
        **self.view.load()
    }

    /// The answer that is kept for this call, if it still holds.
    pub(super) fn get(&self, asked: &CacheKey, view: &View) -> Option<Answer> {
        let entry = self.cached.get(asked)?;
        let holds = view.in_use
            && entry.epoch == view.epoch
            && (entry.l1.is_none() || entry.l1 == view.l1)
            && entry.until.is_none_or(|until| Instant::now() < until);
        holds.then_some(entry.answer)
    }

    /// Keeps an answer that was asked for under `view`, as far as it may be: the block that it
    /// stands on was settled before it was asked for, and nothing has come in between.
    pub(super) fn keep(&self, asked: Arc<CacheKey>, answer: &Answer, keep: Keep, view: &View) {
        let (block, l1, until) = match keep {
            Keep::Briefly => (None, None, Some(Instant::now() + BRIEFLY)),
            Keep::WithBlock(block) => (Some(block), None, None),
            Keep::UntilL1(block) if view.l1.is_some() => (Some(block), view.l1, None),
            Keep::UntilL1(_) => return,
        };
        let settled = block.is_none_or(|block| view.settled >= Some(block));
        if !settled || !view.in_use || self.view.load().epoch != view.epoch {
            return;
        }
        let mut permit = MemoryPermit::of(&self.memory);
        if permit.reserve(bytes(&asked, &answer.payload)).is_err() {
            // those who wait for answers come first
            return;
        }
        let answer = Answer {
            member: answer.member,
            payload: Bytes::copy_from_slice(&answer.payload),
            memory: Arc::new(permit),
        };
        self.cached.insert(Arc::clone(&asked), Entry { epoch: view.epoch, l1, until, answer });
        if self.view.load().epoch != view.epoch {
            // it came after the others were cleared away: no hit, but its memory would be held
            self.cached.remove(&asked);
        }
    }

    /// Takes over what the watch found.
    pub(super) fn take_over(&self, step: &Step) {
        self.change(step.broke.is_some(), |view| {
            let standing = step.standing;
            view.in_use = standing.is_some();
            view.settled = standing.and_then(|standing| standing.settled);
            view.l1 = standing.and_then(|standing| standing.l1);
        });
    }

    /// Gives and keeps nothing until the watch has looked again.
    pub(super) fn suspend(&self) {
        self.change(true, |view| {
            (view.in_use, view.settled, view.l1) = (false, None, None);
        });
    }

    /// Gives and keeps nothing until a look is quick enough; what is kept may stand yet.
    pub(super) fn pause(&self) {
        self.change(false, |view| view.in_use = false);
    }

    /// Another view; in another life of the chain, nothing of before is worth its memory.
    fn change(&self, is_new_epoch: bool, change: impl Fn(&mut View)) {
        self.view.rcu(|view| {
            let mut view = **view;
            view.epoch += u64::from(is_new_epoch);
            change(&mut view);
            view
        });
        if is_new_epoch {
            self.cached.clear();
        }
    }

    /// Switches it on or off. What is kept does not outlive that nobody watches.
    pub(super) fn switch(&self, on: bool) {
        let changed = self.switch.send_if_modified(|was| std::mem::replace(was, on) != on);
        if changed && !on {
            self.suspend();
        }
    }

    /// Tells when it is switched.
    pub(super) fn switched(&self) -> watch::Receiver<bool> {
        self.switch.subscribe()
    }

    /// How it stands.
    pub(super) fn stats(&self) -> CacheStats {
        let view = self.view();
        CacheStats {
            enabled: *self.switch.borrow(),
            entries: self.cached.len() as u64,
            bytes: self.cached.weight(),
            settled: view.settled,
            suspended: !view.in_use,
            epoch: view.epoch,
            capacity: self.cached.capacity(),
        }
    }
}

#[cfg(test)]
mod tests;
