//! What is looked for in the cache and among the flights: permitted reads, their hashes made once.

use ahash::RandomState;
use portcullis_filters::rpc::Method;
use portcullis_filters::rpc::keep::Keepable;
use portcullis_filters::rpc::params::BlockId;
use portcullis_filters::verdict::{Read, ReadCall};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A permitted read, ready to be asked for, whichever client sends it.
pub struct ReadRequest {
    method: Method,
    /// What the node is asked.
    pub(super) asked: Arc<CacheKey>,
    /// How its answer may be kept, if it may be.
    pub(super) rule: Option<Keepable>,
    at_head: Option<AtHead>,
}

/// A class at a tag that follows the chain: whatever tag it is asked at, it is the same class.
struct AtHead {
    kept_as: Arc<CacheKey>,
    read: Read,
}

/// A read, as a key.
#[derive(Clone, Debug)]
pub(super) struct CacheKey {
    /// With keys that no client knows.
    hash: u64,
    call: ReadCall,
}

impl ReadRequest {
    pub(super) fn new(read: Read, keys: &RandomState) -> Self {
        let (method, asked) = (read.method(), Arc::new(CacheKey::new(read.call(), keys)));
        let rule = Keepable::of(method, read.params());
        let at_head = (rule == Some(Keepable::ClassAtHead)).then(|| AtHead {
            kept_as: Arc::new(CacheKey::new(read.call_at(BlockId::Latest), keys)),
            read,
        });
        Self { method, asked, rule, at_head }
    }

    /// The method, one of the thirteen.
    pub fn method(&self) -> Method {
        self.method
    }

    /// What its answer is kept under.
    pub(super) fn kept_as(&self) -> &Arc<CacheKey> {
        self.at_head.as_ref().map_or(&self.asked, |at_head| &at_head.kept_as)
    }

    /// The same read at the block of this number, where that answers this one for good.
    pub(super) fn at(&self, block: u64, keys: &RandomState) -> Option<CacheKey> {
        let AtHead { read, .. } = self.at_head.as_ref()?;
        Some(CacheKey::new(read.call_at(BlockId::Number(block)), keys))
    }

    /// Bytes of what it holds.
    pub(super) fn weight(&self) -> usize {
        let bytes = |asked: &CacheKey| asked.call.as_bytes().len();
        bytes(&self.asked) + self.at_head.as_ref().map_or(0, |at_head| 2 * bytes(&at_head.kept_as))
    }
}

impl CacheKey {
    pub(super) fn new(call: ReadCall, keys: &RandomState) -> Self {
        Self { hash: keys.hash_one(call.as_bytes()), call }
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

/// What a policy that lets all thirteen methods through makes of a body that it permits.
#[cfg(test)]
pub(super) fn permitted(body: &str) -> portcullis_filters::verdict::ReadPermit<'_> {
    let policy = portcullis_filters::policy::GatewayPolicy {
        methods: portcullis_filters::rpc::MethodSet::new(&Method::ALL),
        trusted_proxies: portcullis_filters::client::TrustedProxies::default(),
    };
    policy.inspect(body.as_bytes()).expect("it is permitted")
}
