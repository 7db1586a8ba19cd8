//! Permitted reads and their cache keys, each hashed once.

use ahash::RandomState;
use portcullis_filters::rpc::CacheClass;
use portcullis_filters::rpc::Method;
use portcullis_filters::rpc::params::BlockId;
use portcullis_filters::verdict::{Read, ReadCall};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// A permitted read, independent of the client and of the request's id.
pub struct ReadRequest {
    method: Method,
    /// The call to the node, and the key of a flight.
    pub(super) key: Arc<CacheKey>,
    /// How its answer may be cached, if it may.
    pub(super) class: Option<CacheClass>,
    at_head: Option<AtHead>,
}

/// A class at a block tag that follows the chain. Every such tag names the same class.
struct AtHead {
    cached_under: Arc<CacheKey>,
    read: Read,
}

/// A call to the node with its hash, seeded against collisions that a client could compute.
#[derive(Clone, Debug)]
pub(super) struct CacheKey {
    hash: u64,
    call: ReadCall,
}

impl ReadRequest {
    pub(super) fn new(read: Read, keys: &RandomState) -> Self {
        let (method, key) = (read.method(), Arc::new(CacheKey::new(read.call(), keys)));
        let class = CacheClass::of(method, read.params());
        let at_head = (class == Some(CacheClass::ClassAtHead)).then(|| AtHead {
            cached_under: Arc::new(CacheKey::new(read.call_at(BlockId::Latest), keys)),
            read,
        });
        Self { method, key, class, at_head }
    }

    /// The method, one of the thirteen.
    pub fn method(&self) -> Method {
        self.method
    }

    pub(super) fn cached_under(&self) -> &Arc<CacheKey> {
        self.at_head.as_ref().map_or(&self.key, |at_head| &at_head.cached_under)
    }

    /// The same read at this block, where that answers this read for good.
    pub(super) fn at(&self, block: u64, keys: &RandomState) -> Option<CacheKey> {
        let AtHead { read, .. } = self.at_head.as_ref()?;
        Some(CacheKey::new(read.call_at(BlockId::Number(block)), keys))
    }

    /// Bytes on the heap.
    pub(super) fn weight(&self) -> usize {
        let bytes = |key: &CacheKey| key.call.as_bytes().len();
        let at_head = self.at_head.as_ref().map_or(0, |at_head| 2 * bytes(&at_head.cached_under));
        bytes(&self.key) + at_head
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

/// The permit for a body under a policy that allows all thirteen methods.
#[cfg(test)]
pub(super) fn permitted(body: &str) -> portcullis_filters::verdict::ReadPermit<'_> {
    let policy = portcullis_filters::policy::GatewayPolicy {
        methods: portcullis_filters::rpc::MethodSet::new(&Method::ALL),
        trusted_proxies: portcullis_filters::client::TrustedProxies::default(),
    };
    policy.inspect(body.as_bytes()).expect("it is permitted")
}
