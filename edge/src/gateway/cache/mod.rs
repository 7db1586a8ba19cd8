//! The cache of answers, bounded in bytes and in entries, used only while the chain is observed.
//!
//! A [`ReadRequest`] has the keys of its answer, each hashed once. The watcher supplies the state
//! of the chain as a [`View`], which decides whether an answer is stored and whether it hits. An
//! entry holds a copy of its payload, cut to size, and a permit of the memory for answers; an
//! evicted entry counts until slow clients have read it. The gzip form has a permit of its own, and
//! is evicted with the entry.

use crate::node::{Answer, MAX_ANSWER, Route};
use ahash::RandomState;
use arc_swap::ArcSwap;
use bytes::Bytes;
use portcullis_base::config::{CacheConfig, CacheLive};
use portcullis_base::io::gzip::GzipForm;
use portcullis_base::io::{MemoryPermit, MemoryPool, monotonic};
use portcullis_filters::chain::continuity::Step;
use portcullis_filters::chain::{Validity, View};
use portcullis_filters::felt::Felt;
use portcullis_filters::policy::{Read, ReadCall};
use portcullis_filters::position::ChainPosition;
use portcullis_filters::rpc::{Argument, BlockId, CacheClass, CachePolicy, Method};
use quick_cache::sync::DefaultLifecycle;
use quick_cache::{OptionsBuilder, Weighter};
use std::hash::{Hash, Hasher};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::{Notify, watch};

/// Bytes of an entry in addition to its key and its payload.
const OVERHEAD: usize = 256;
/// The minimum size of a shard, which has one lock: several of the largest answers.
const SHARD: usize = 16 << 20;
/// The minimum number of entries in a shard: an entry that weighs as much as its shard is not
/// inserted.
const SHARD_ENTRIES: usize = 16;
/// The most shards: no more threads than this contend for the cache.
const MAX_SHARDS: usize = 64;

/// A permitted read, independent of the client and of the request's id.
pub struct ReadRequest {
    method: Method,
    /// The call to the node, and the key of a flight.
    pub(super) key: Arc<CacheKey>,
    /// How the answer may be cached, if it may.
    pub(super) class: Option<CacheClass>,
    /// The block that the request names, if any.
    block: Option<BlockId>,
    /// The transaction that the request names, if any.
    transaction: Option<Felt>,
    /// The key of a class at a block tag that follows the chain: all such tags name one class.
    cached_under: Option<Arc<CacheKey>>,
    /// Set if the read may be sent for another block.
    read: Option<Read>,
}

/// Whether `latest` may be pinned to a block, as it is with replicas.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Latest {
    OfNode,
    Pinnable,
}

/// A call to the node with its hash, seeded against collisions that a client could compute.
#[derive(Clone, Debug)]
pub(super) struct CacheKey {
    hash: u64,
    call: ReadCall,
}

impl ReadRequest {
    pub(super) fn new(read: Read, keys: &RandomState, latest: Latest) -> Self {
        let (method, key) = (read.method(), Arc::new(CacheKey::new(read.call(), keys)));
        let (class, block) = (CacheClass::of(method, read.params()), read.params().block());
        let is_at_head = class == Some(CacheClass::ClassAtHead);
        let cached_under =
            is_at_head.then(|| Arc::new(CacheKey::new(read.call_at(BlockId::Latest), keys)));
        let is_pinnable = latest == Latest::Pinnable && block == Some(BlockId::Latest);
        let transaction = match read.params().arguments() {
            [("transaction_hash", Argument::Felt(hash)), ..] => Some(*hash),
            _ => None,
        };
        let read = (is_at_head || is_pinnable).then_some(read);
        Self {
            method,
            key,
            class,
            block,
            transaction,
            cached_under,
            read,
        }
    }

    /// Which URL of the node may answer this read.
    pub(super) fn route(&self) -> Route {
        if let Some(hash) = self.transaction {
            return Route::Transaction(hash);
        }
        match (self.method, self.block) {
            (Method::BlockNumber, _) => Route::HeadNumber,
            (Method::GetBlockWithTxHashes, Some(BlockId::Latest)) => Route::HeadBlock,
            (_, Some(BlockId::Latest)) => Route::Head,
            (_, Some(BlockId::Number(number))) => Route::Block(number),
            _ => Route::Primary,
        }
    }

    /// The key of this read at the block that `latest` is pinned to, if the read is at `latest`.
    pub(super) fn pinned_to(&self, head: u64, keys: &RandomState) -> Option<CacheKey> {
        let read = self
            .read
            .as_ref()
            .filter(|_| self.block == Some(BlockId::Latest))?;
        Some(CacheKey::new(read.call_at(BlockId::Number(head)), keys))
    }

    /// The method, one of the thirteen.
    pub fn method(&self) -> Method {
        self.method
    }

    pub(super) fn cached_under(&self) -> &Arc<CacheKey> {
        self.cached_under.as_ref().unwrap_or(&self.key)
    }

    /// The key of this read at a block, if the answer there is final for this read.
    pub(super) fn at(&self, block: u64, keys: &RandomState) -> Option<CacheKey> {
        let read = self.read.as_ref().filter(|_| self.cached_under.is_some())?;
        Some(CacheKey::new(read.call_at(BlockId::Number(block)), keys))
    }

    /// Bytes on the heap.
    pub(super) fn weight(&self) -> usize {
        let bytes = |key: &CacheKey| key.call.as_bytes().len();
        let cached_under = self.cached_under.as_deref().map_or(0, bytes);
        // a parsed read is about as large as its text
        let read = if self.read.is_some() {
            bytes(&self.key)
        } else {
            0
        };
        bytes(&self.key) + cached_under + read
    }
}

impl CacheKey {
    pub(super) fn new(call: ReadCall, keys: &RandomState) -> Self {
        Self {
            hash: keys.hash_one(call.as_bytes()),
            call,
        }
    }

    pub(super) fn call(&self) -> &ReadCall {
        &self.call
    }
}

impl Hash for CacheKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialEq for CacheKey {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.call == other.call
    }
}

impl Eq for CacheKey {}

/// Answers that no later block can change, within their memory limit.
pub(super) struct Cache {
    entries: Entries,
    view: ArcSwap<View>,
    /// Whether it is enabled; the watcher subscribes to this.
    switch: watch::Sender<bool>,
    /// Whether another instance polls the chain; set by the watcher.
    pub(super) follows: AtomicBool,
    /// Signalled when a request needs a later view than this one.
    pub(super) outdated: Notify,
    /// Signalled when the view has changed.
    changed: Notify,
    pub(super) memory: Arc<MemoryPool>,
}

type Entries = quick_cache::sync::Cache<Arc<CacheKey>, Entry, Weight, RandomState>;

#[derive(Clone)]
struct Entry {
    validity: Validity,
    answer: Answer,
    /// Bytes of its gzip form when the entry was weighed.
    gzip: usize,
}

/// The state of the cache, for metrics.
#[derive(Clone, Copy, Debug, Default)]
pub struct CacheStats {
    /// Whether answers are cached.
    pub enabled: bool,
    /// Cached answers.
    pub entries: u64,
    /// The weight of the entries in bytes.
    pub bytes: u64,
    /// The newest block whose answers may be cached.
    pub settled: Option<u64>,
    /// Whether the cache is bypassed.
    pub suspended: bool,
    /// Bumped whenever the cache is emptied, as continuity cannot be proved.
    pub generation: u64,
    /// The bound on that weight.
    pub capacity: u64,
}

/// Weighs an entry by its bytes, with a minimum that bounds the number of entries.
#[derive(Clone)]
struct Weight {
    least: usize,
}

impl Weighter<Arc<CacheKey>, Entry> for Weight {
    fn weight(&self, key: &Arc<CacheKey>, entry: &Entry) -> u64 {
        (bytes(key, &entry.answer.payload) + entry.gzip).max(self.least) as u64
    }
}

fn bytes(key: &CacheKey, payload: &Bytes) -> usize {
    key.call().as_bytes().len() + payload.len() + OVERHEAD
}

impl Cache {
    /// Creates an empty cache. Entries take their memory from `memory`.
    pub(super) fn new(config: &CacheConfig, live: &CacheLive, memory: Arc<MemoryPool>) -> Self {
        // also while disabled, because a reload can enable it; leaves room for the largest answer
        let size = config
            .size
            .bytes()
            .min(memory.size().saturating_sub(MAX_ANSWER))
            .max(1);
        let shards = (size / SHARD)
            .min(config.max_entries / SHARD_ENTRIES)
            .clamp(1, MAX_SHARDS);
        let options = OptionsBuilder::new()
            // a power of two, rounded down: each holds SHARD bytes
            .shards(1 << shards.ilog2())
            .estimated_items_capacity(config.max_entries)
            .weight_capacity(size as u64)
            .build()
            .expect("both capacities are set");
        let weight = Weight {
            least: size.div_ceil(config.max_entries),
        };
        let lifecycle = DefaultLifecycle::default();
        Self {
            entries: Entries::with_options(options, weight, RandomState::new(), lifecycle),
            view: ArcSwap::default(),
            switch: watch::Sender::new(live.enabled),
            follows: AtomicBool::new(false),
            outdated: Notify::new(),
            changed: Notify::new(),
            memory,
        }
    }

    pub(super) fn view(&self) -> View {
        self.view.load().at(monotonic::now())
    }

    /// Makes a follower read the published state, then waits up to `limit` for the view to reach
    /// `position`. An instance that polls the chain itself does not wait: it knows no more than the
    /// node.
    pub(super) async fn reach(&self, position: ChainPosition, limit: Duration) {
        if !self.follows.load(Ordering::Relaxed) {
            return;
        }
        self.outdated.notify_one();
        let reached = async {
            loop {
                let mut changed = pin!(self.changed.notified());
                changed.as_mut().enable();
                if self.view().reaches(position) {
                    return;
                }
                changed.await;
            }
        };
        // the caller checks the view again
        let _in_time = tokio::time::timeout(limit, reached).await;
    }

    /// The cached answer for this call, if it is still valid.
    pub(super) fn get(&self, key: &CacheKey, view: &View) -> Option<Answer> {
        let entry = self.entries.get(key)?;
        if !view.holds(entry.validity, monotonic::now()) {
            return None;
        }
        Some(entry.answer)
    }

    /// Inserts an answer that was requested under `view`, if its block had settled by then and the
    /// epoch is still the same. Returns the outcome, for the log.
    pub(super) fn insert(
        &self,
        key: Arc<CacheKey>,
        answer: &Answer,
        policy: CachePolicy,
        view: &View,
    ) -> &'static str {
        let generation = self.view.load().generation;
        let validity = match view.validity(policy, generation, monotonic::now()) {
            Ok(validity) => validity,
            Err(why) => return why,
        };
        let mut permit = MemoryPermit::of(&self.memory);
        if permit.reserve(bytes(&key, &answer.payload)).is_err() {
            // answers in flight take precedence
            return "the memory for answers is in use";
        }
        let answer = Answer {
            member: answer.member,
            payload: Bytes::copy_from_slice(&answer.payload),
            memory: Arc::new(permit),
            gzip: answer.gzip.clone(),
            node: answer.node,
        };
        let gzip = answer.gzip.length();
        self.entries.insert(
            Arc::clone(&key),
            Entry {
                validity,
                answer,
                gzip,
            },
        );
        if self.view.load().generation != view.generation {
            // inserted after the purge: it cannot hit, but would hold memory
            self.entries.remove(&key);
        }
        "stored"
    }

    /// Weighs the entry with this gzip form again, after the form was made.
    pub(super) fn reweigh(&self, key: &Arc<CacheKey>, form: &GzipForm) {
        let entry = self
            .entries
            .peek(key)
            .filter(|entry| entry.answer.gzip.is_same(form));
        let Some(entry) = entry else { return };
        let entry = Entry {
            gzip: form.length(),
            ..entry
        };
        // an entry purged meanwhile is not restored; one of a later epoch would be fetched again
        let _ = self.entries.replace(Arc::clone(key), entry, true);
    }

    /// Applies the result of a poll, which is valid until the next poll, or until `until`.
    pub(super) fn apply(&self, step: &Step, until: Option<Duration>) {
        self.change(|_| View::after(step, until));
    }

    /// Starts a generation, and bypasses the cache until the next poll.
    pub(super) fn suspend(&self) {
        self.change(View::suspended);
    }

    /// Bypasses the cache until the next poll; entries may still be valid then.
    pub(super) fn pause(&self) {
        self.change(View::paused);
    }

    /// Updates the view. A new generation purges all entries.
    fn change(&self, change: impl Fn(View) -> View) {
        let before = self.view.rcu(|view| change(**view));
        if change(*before).generation != before.generation {
            self.entries.clear();
        }
        self.changed.notify_waiters();
    }

    /// Enables the cache.
    pub(super) fn enable(&self) {
        self.switch
            .send_if_modified(|is_on| !std::mem::replace(is_on, true));
    }

    /// Disables the cache, and drops its entries: they must not survive a time without polls.
    pub(super) fn disable(&self) {
        if self
            .switch
            .send_if_modified(|is_on| std::mem::replace(is_on, false))
        {
            self.suspend();
        }
    }

    /// Notifies of [`Self::enable`] and [`Self::disable`].
    pub(super) fn switched(&self) -> watch::Receiver<bool> {
        self.switch.subscribe()
    }

    /// The state of the cache, for metrics.
    pub(super) fn stats(&self) -> CacheStats {
        let view = self.view();
        CacheStats {
            enabled: *self.switch.borrow(),
            entries: self.entries.len() as u64,
            bytes: self.entries.weight(),
            settled: view.settled,
            suspended: !view.in_use,
            generation: view.generation,
            capacity: self.entries.capacity(),
        }
    }
}

/// The permit for a body under a policy that allows all thirteen methods.
#[cfg(test)]
pub(super) fn permitted(body: &str) -> portcullis_filters::policy::ReadPermit<'_> {
    let policy = portcullis_filters::policy::GatewayPolicy {
        methods: portcullis_filters::rpc::MethodSet::new(&Method::ALL),
        trusted_proxies: portcullis_filters::client::TrustedProxies::default(),
        blocked: portcullis_filters::client::TrustedProxies::default(),
        has_documents: false,
    };
    policy.inspect(body.as_bytes()).expect("it is permitted")
}

#[cfg(test)]
mod tests;
