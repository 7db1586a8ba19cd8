//! Generates streams: one to three requests that are well-formed except for a few oddities, and a
//! last one that marks where a reader believes the next request begins.

use std::fmt::Display;

use crate::draft::Draft;
use crate::rng::Rng;

/// A stream as tokens, which `minimise` removes one by one.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) tokens: Vec<Vec<u8>>,
}

impl Stream {
    /// All bytes.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        self.tokens.concat()
    }
}

/// The request behind every stream.
pub(crate) fn marker(name: &str) -> Vec<u8> {
    format!("GET /marker-{name} HTTP/1.1\r\nHost: edge.test\r\n\r\n").into_bytes()
}

/// The JSON-RPC id of the request at this place of a stream.
pub(crate) fn id_of(index: u64, place: impl Display) -> String {
    format!("s{index:x}.{place}")
}

/// The stream of this number in the run with this seed.
pub(crate) fn generate(seed: u64, index: u64) -> Stream {
    let rng = &mut Rng::of(seed, index);
    let mut tokens = Vec::new();
    // a head that repeats, except for its length, is not parsed from its third time on
    let repeated = rng.percent(10).then(|| Draft::new(rng));
    let count = if repeated.is_some() {
        4
    } else {
        rng.pick(&[1, 1, 2, 2, 3])
    };
    for place in 0..count {
        let mut draft = repeated.clone().unwrap_or_else(|| Draft::new(rng));
        draft.set_body(rng, index, place);
        let is_distorted = repeated.is_none() || place + 1 == count;
        let oddities = if is_distorted {
            rng.pick(&[0, 1, 1, 2, 2, 2, 3, 4])
        } else {
            0
        };
        for _ in 0..oddities {
            draft.distort(rng);
        }
        draft.write(rng, &mut tokens);
    }
    tokens.push(marker(&format!("{index:x}")));
    Stream { tokens }
}

#[test]
fn a_stream_depends_on_its_seed_and_number() {
    let bytes = |seed, index| generate(seed, index).bytes();
    assert_eq!(bytes(1, 7), bytes(1, 7));
    assert_ne!(bytes(1, 7), bytes(1, 8));
    assert_ne!(bytes(1, 7), bytes(2, 7));
    assert!(bytes(1, 7).ends_with(&marker("7")));
}
