//! Reads that are asked again in the same words: what the policy made of a body holds for each that
//! differs in the number of its id alone.
//!
//! Only reads whose answers were given from the cache get in here, so what comes once costs nothing
//! but the look. What is kept is no answer: it says where to look for one.

use super::asked::Asked;
use ahash::RandomState;
use portcullis_filters::rpc::{Method, Numbered};
use portcullis_filters::verdict::ReadPermit;
use quick_cache::sync::{Cache, DefaultLifecycle};
use quick_cache::{DefaultHashBuilder, Equivalent, OptionsBuilder, Weighter};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

/// 4 MiB: some ten thousand reads.
const SIZE: usize = 4 << 20;
/// 1 KiB: a read that may be kept is a method, a hash or two and their names.
const MAX_BODY: usize = 1 << 10;
/// What an entry takes beside its bytes.
const OVERHEAD: usize = 256;
/// Locks.
const SHARDS: usize = 16;

/// Reads that were asked before.
pub(super) struct Repeats {
    kept: Kept,
    /// What bodies are hashed with.
    keys: RandomState,
}

type Kept = Cache<Words, Judged, Weight>;

/// What the policy made of a body.
#[derive(Clone)]
pub(super) struct Judged {
    /// The method, to be let through still.
    pub(super) method: Method,
    /// What its answer is kept under.
    pub(super) asked: Arc<Asked>,
}

/// A body that is kept, but for the number.
#[derive(Clone, PartialEq, Eq)]
struct Words {
    parts: Box<[u8]>,
    /// Where the second part begins.
    at: usize,
    hash: u64,
}

/// A body that is looked for.
struct Said<'a> {
    body: Numbered<'a>,
    hash: u64,
}

impl Hash for Words {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Hash for Said<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.hash);
    }
}

impl Equivalent<Words> for Said<'_> {
    fn equivalent(&self, words: &Words) -> bool {
        self.hash == words.hash && Numbered::kept(&words.parts, words.at) == Some(self.body)
    }
}

#[derive(Clone)]
struct Weight;

impl Weighter<Words, Judged> for Weight {
    fn weight(&self, words: &Words, judged: &Judged) -> u64 {
        (words.parts.len() + judged.asked.call().as_bytes().len() + OVERHEAD) as u64
    }
}

impl Repeats {
    pub(super) fn new() -> Self {
        let options = OptionsBuilder::new()
            .shards(SHARDS)
            .estimated_items_capacity(SIZE / (2 * OVERHEAD))
            .weight_capacity(SIZE as u64)
            .build()
            .expect("both capacities are set");
        let lifecycle = DefaultLifecycle::default();
        let kept = Kept::with_options(options, Weight, DefaultHashBuilder::default(), lifecycle);
        Self { kept, keys: RandomState::new() }
    }

    /// What the policy made of this body when it came before, but for the number that is its id.
    pub(super) fn find<'a>(&self, body: &'a [u8]) -> Option<(Judged, &'a str)> {
        let body = Numbered::find(body)?;
        let judged = self.kept.get(&Said { body, hash: self.keys.hash_one(body) })?;
        Some((judged, body.id()))
    }

    /// Takes in what it made of this one.
    pub(super) fn add(&self, body: &[u8], permit: &ReadPermit<'_>, asked: &Arc<Asked>) {
        let body = Numbered::find(body).filter(|numbered| {
            body.len() <= MAX_BODY && numbered.is_at(permit.id())
        });
        let Some(body) = body else { return };
        let [before, after] = body.parts();
        let hash = self.keys.hash_one(body);
        let words = Words { parts: [before, after].concat().into(), at: before.len(), hash };
        self.kept.insert(words, Judged { method: permit.method(), asked: Arc::clone(asked) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_filters::client::TrustedProxies;
    use portcullis_filters::policy::GatewayPolicy;
    use portcullis_filters::rpc::MethodSet;

    /// A receipt, asked for under this id.
    fn body(id: &str) -> String {
        let params = r#""params":["0x71"]"#;
        format!(r#"{{"id":{id},"method":"starknet_getTransactionReceipt",{params},"jsonrpc":"2.0"}}"#)
    }

    fn add(repeats: &Repeats, body: &str) {
        let methods = MethodSet::new(&Method::ALL);
        let policy = GatewayPolicy { methods, trusted_proxies: TrustedProxies::default() };
        let permit = policy.inspect(body.as_bytes()).expect("it is permitted");
        let asked = Asked::new(permit.call(), &RandomState::with_seed(0));
        repeats.add(body.as_bytes(), &permit, &Arc::new(asked));
    }

    #[test]
    fn a_body_is_known_again_under_another_number_and_in_no_other_words() {
        let repeats = Repeats::new();
        add(&repeats, &body("7"));
        for (said, id) in [
            (body("7"), Some("7")),
            (body("800"), Some("800")),
            (body("0"), Some("0")),
            (body("08"), None),
            (body("-8"), None),
            (body("\"8\""), None),
            (body(" 8"), None),
            (body("8").replace("0x71", "0x72"), None),
            (body("8").replace("0x71", "0x071"), None),
            (body("8").replace("2.0", "1.0"), None),
            (body("8") + " ", None),
        ] {
            let found = repeats.find(said.as_bytes());
            assert_eq!(found.as_ref().map(|(_, id)| *id), id, "{said}");
            if let Some((judged, _)) = found {
                assert_eq!(judged.method, Method::GetTransactionReceipt);
            }
        }
    }

    #[test]
    fn a_body_whose_number_is_not_the_id_or_that_is_long_is_not_kept() {
        let long = body("7").replace(",\"jsonrpc", &format!("{},\"jsonrpc", " ".repeat(MAX_BODY)));
        for said in [body("\"7\""), body("7.5"), long] {
            let repeats = Repeats::new();
            add(&repeats, &said);
            assert_eq!(repeats.kept.len(), 0, "{said}");
        }
    }

    #[test]
    fn what_is_kept_is_bounded_in_bytes() {
        let repeats = Repeats::new();
        for number in 0..SIZE / OVERHEAD {
            add(&repeats, &body("7").replace("0x71", &format!("{number:#x}")));
        }
        assert!(repeats.kept.weight() <= SIZE as u64, "{}", repeats.kept.weight());
    }
}
