//! What is looked for in the cache and among the flights: a permitted read, its hash made once.

use ahash::RandomState;
use portcullis_filters::verdict::ReadCall;
use std::hash::{Hash, Hasher};

/// A read, as a key.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    /// With keys that no client knows.
    hash: u64,
    call: ReadCall,
}

impl Asked {
    pub(super) fn new(call: ReadCall, keys: &RandomState) -> Self {
        Self { hash: keys.hash_one(call.as_bytes()), call }
    }

    pub(super) fn call(&self) -> &ReadCall {
        &self.call
    }
}

impl Hash for Asked {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl PartialEq for Asked {
    fn eq(&self, other: &Self) -> bool {
        self.hash == other.hash && self.call == other.call
    }
}

impl Eq for Asked {}
