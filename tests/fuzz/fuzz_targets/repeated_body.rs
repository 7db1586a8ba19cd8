//! The cache of parsed bodies: bodies between 0xff bytes arrive one after the other, each twice,
//! and then under other ids. A hit is the read and the id that the policy finds in the same body.
#![no_main]

#[path = "../../../edge/src/gateway/parsed_bodies.rs"]
mod parsed_bodies;

// `ahash`, for the modules of this target
extern crate self as ahash;

/// Keyed by constants, so that an input takes one way through the code.
#[derive(Clone)]
pub struct RandomState(keyed_ahash::RandomState);

impl RandomState {
    fn new() -> Self {
        Self(keyed_ahash::RandomState::with_seeds(1, 2, 3, 4))
    }

    fn hash_one(&self, value: impl Hash) -> u64 {
        self.0.hash_one(value)
    }
}

impl BuildHasher for RandomState {
    type Hasher = keyed_ahash::AHasher;

    fn build_hasher(&self) -> Self::Hasher {
        self.0.build_hasher()
    }
}

/// The cache of answers, as far as the parsed bodies know it.
mod cache {
    /// A permitted read.
    pub(crate) struct ReadRequest(pub(crate) portcullis_filters::policy::Read);

    impl ReadRequest {
        pub(crate) fn weight(&self) -> usize {
            self.0.call().as_bytes().len()
        }
    }
}

use cache::ReadRequest;
use libfuzzer_sys::fuzz_target;
use parsed_bodies::ParsedBodyCache;
use portcullis_filters::policy::GatewayPolicy;
use portcullis_filters::rpc::BodyWithoutId;
use std::hash::{BuildHasher, Hash};
use std::sync::{Arc, LazyLock};

static POLICY: LazyLock<GatewayPolicy> = LazyLock::new(portcullis_fuzz::gateway);
// made once, because it takes longer than many bodies: its content must be right at any time
static CACHE: LazyLock<ParsedBodyCache> = LazyLock::new(ParsedBodyCache::new);

fuzz_target!(|data: &[u8]| {
    let bodies: Vec<&[u8]> = data.split(|byte| *byte == 0xff).take(8).collect();
    for body in bodies.iter().chain(&bodies).chain(&bodies) {
        arrives(body);
    }
    for body in bodies {
        if let Some([before, after]) = BodyWithoutId::find(body).map(|split| split.parts()) {
            for id in [
                "0",
                "71",
                "999999999999999",
                "9999999999999999",
                "-1",
                "1.0",
                "\"7\"",
                "007",
            ] {
                arrives(&[before, id.as_bytes(), after].concat());
            }
        }
    }
});

/// Compares the verdict on a body with the one that the gateway reaches without its cache.
fn arrives(body: &[u8]) {
    let key = CACHE.key(body);
    let permit = POLICY.inspect(body);
    if let Some((key, request)) = key.as_ref().and_then(|key| Some((key, CACHE.get(key)?))) {
        let permit = permit.expect("only what is permitted is a hit");
        assert_eq!(permit.id().as_str(), key.id());
        assert_eq!(permit.method(), request.0.method());
        assert_eq!(permit.into_read().call(), request.0.call());
    } else if let (Some(key), Ok(permit)) = (key, permit) {
        let id = permit.id();
        let request = ReadRequest(permit.into_read());
        CACHE.insert(&key, id, &Arc::new(request));
    }
}
