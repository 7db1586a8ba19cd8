//! Reads that are asked again in the same words: what the policy made of a body holds for each that
//! differs in the number of its id alone.
//!
//! A body gets in here when it comes a second time, so those that come once cost little more than
//! the look. What is kept is no answer: it says what to look for, or what to ask the node.

use super::cache_key::ReadRequest;
use ahash::RandomState;
use portcullis_filters::rpc::{Id, Numbered};
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, Equivalent, OptionsBuilder, Weighter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// 4 MiB: some five thousand reads.
const SIZE: usize = 4 << 20;
/// 2 KiB: of a larger body, reading it is not what takes long.
const MAX_BODY: usize = 2 << 10;
/// What an entry takes beside its bytes.
const OVERHEAD: usize = 256;
/// Locks.
const SHARDS: usize = 16;
/// Bodies that are remembered to have come once: about as many come between one look of a client
/// that asks every second and its next.
const ONCE: usize = 4096;

/// Reads that were asked before.
pub(super) struct ParsedBodyCache {
    kept: Kept,
    /// Parts of the hashes of bodies that came once, each in the place that it says; the next one
    /// for the same place takes it.
    once: Box<[AtomicU32]>,
    /// What bodies are hashed with.
    keys: RandomState,
}

type Kept = Cache<StoredBody, Arc<ReadRequest>, Weight>;

/// A body that is kept, but for the number.
#[derive(Clone, PartialEq, Eq)]
struct StoredBody {
    parts: Box<[u8]>,
    /// Where the second part begins.
    at: usize,
    hash: u64,
}

/// A body that came.
pub(super) struct BodyKey<'a> {
    body: Numbered<'a>,
    hash: u64,
}

impl Hash for StoredBody {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Hash for BodyKey<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Equivalent<StoredBody> for BodyKey<'_> {
    fn equivalent(&self, words: &StoredBody) -> bool {
        self.hash == words.hash && Numbered::kept(&words.parts, words.at) == Some(self.body)
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<StoredBody, Arc<ReadRequest>> for Weight {
    fn weight(&self, words: &StoredBody, wanted: &Arc<ReadRequest>) -> u64 {
        (words.parts.len() + wanted.weight() + OVERHEAD) as u64
    }
}

impl<'a> BodyKey<'a> {
    /// The JSON text of its id, if it is a body that is known.
    pub(super) fn id(&self) -> &'a str {
        self.body.id()
    }
}

impl ParsedBodyCache {
    pub(super) fn new() -> Self {
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .estimated_items_capacity(SIZE / (2 * OVERHEAD))
            .weight_capacity(SIZE as u64)
            .build()
            .expect("both capacities are set");
        let lifecycle = DefaultLifecycle::default();
        let kept = Kept::with_options(options, Weight, DefaultHashBuilder::default(), lifecycle);
        let once = std::iter::repeat_with(AtomicU32::default).take(ONCE).collect();
        Self { kept, once, keys: RandomState::new() }
    }

    /// A body in a form in which it can be known again, if it has one.
    pub(super) fn said<'a>(&self, body: &'a [u8]) -> Option<BodyKey<'a>> {
        let body = Some(body).filter(|body| body.len() <= MAX_BODY).and_then(Numbered::find)?;
        Some(BodyKey { body, hash: self.keys.hash_one(body) })
    }

    /// What it asks for, if it came before.
    pub(super) fn find(&self, said: &BodyKey<'_>) -> Option<Arc<ReadRequest>> {
        self.kept.get(said)
    }

    /// Takes in a body that the policy permitted, with this id: at its second time.
    pub(super) fn add(&self, said: &BodyKey<'_>, id: Id<'_>, wanted: &Arc<ReadRequest>) {
        let BodyKey { body, hash } = said;
        if !body.is_at(id) || !self.came_before(*hash) {
            return;
        }
        let [before, after] = body.parts();
        let parts = [before, after].concat().into();
        self.kept.insert(StoredBody { parts, at: before.len(), hash: *hash }, Arc::clone(wanted));
    }

    /// Whether a body of this hash came lately; from now on one did.
    fn came_before(&self, hash: u64) -> bool {
        let place = self.once.get(hash as usize % ONCE);
        let mark = (hash >> 32) as u32;
        place.is_some_and(|place| place.swap(mark, Ordering::Relaxed) == mark)
    }
}

#[cfg(test)]
mod tests {
    use super::super::cache_key::permitted;
    use super::*;

    /// A receipt, asked for under this id.
    fn body(id: &str) -> String {
        let params = r#""params":["0x71"]"#;
        format!(
            r#"{{"id":{id},"method":"starknet_getTransactionReceipt",{params},"jsonrpc":"2.0"}}"#
        )
    }

    /// A body comes, is not known, and is permitted.
    fn comes(bodies: &ParsedBodyCache, body: &str) {
        let permit = permitted(body);
        let id = permit.id();
        let wanted = ReadRequest::new(permit.into_read(), &RandomState::with_seed(0));
        if let Some(said) = bodies.said(body.as_bytes()) {
            bodies.add(&said, id, &Arc::new(wanted));
        }
    }

    /// The id of a body that is known.
    fn known<'a>(bodies: &ParsedBodyCache, body: &'a str) -> Option<&'a str> {
        let said = bodies.said(body.as_bytes())?;
        bodies.find(&said).map(|_| said.id())
    }

    #[test]
    fn a_body_that_came_twice_is_known_under_another_number_and_in_no_other_words() {
        let bodies = ParsedBodyCache::new();
        comes(&bodies, &body("7"));
        assert_eq!(known(&bodies, &body("7")), None, "it came once");
        comes(&bodies, &body("80"));
        for (said, id) in [
            (body("7"), Some("7")),
            (body("800"), Some("800")),
            (body("0"), Some("0")),
            (body("08"), None),
            (body("-8"), None),
            (body("\"8\""), None),
            (body("  8"), None),
            (body("8").replace("0x71", "0x72"), None),
            (body("8").replace("0x71", "0x071"), None),
            (body("8").replace("2.0", "1.0"), None),
            (body("8") + " ", None),
        ] {
            assert_eq!(known(&bodies, &said), id, "{said}");
        }
    }

    #[test]
    fn a_body_whose_number_is_not_the_id_or_that_is_long_is_not_kept() {
        let long = body("7").replace(",\"jsonrpc", &format!("{},\"jsonrpc", " ".repeat(MAX_BODY)));
        for said in [body("\"7\""), body("7.5"), long] {
            let bodies = ParsedBodyCache::new();
            for _ in 0..3 {
                comes(&bodies, &said);
            }
            assert_eq!(bodies.kept.len(), 0, "{said}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded_in_bytes() {
        let bodies = ParsedBodyCache::new();
        for number in 0..SIZE / OVERHEAD {
            let said = body("7").replace("0x71", &format!("{number:#x}"));
            comes(&bodies, &said);
            comes(&bodies, &said);
        }
        assert!(bodies.kept.len() > SHARDS, "{}", bodies.kept.len());
        assert!(bodies.kept.weight() <= SIZE as u64, "{}", bodies.kept.weight());
    }
}
