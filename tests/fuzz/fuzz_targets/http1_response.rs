//! The reader of a node's answers. Its result does not depend on how the bytes are split into
//! reads, and a body is the one that a plain reading of the whole answer finds.
#![no_main]

#[path = "../../../edge/src/node/http1.rs"]
#[expect(dead_code, reason = "the node uses more of it")]
mod http1;
#[path = "../../../base/src/io/mod.rs"]
pub mod io;

// for `http1`
extern crate self as portcullis_base;

use bytes::Bytes;
use http1::{Connection, ExchangeError, NodeStream};
use io::{Exhausted, MemoryPermit, MemoryPool};
use libfuzzer_sys::fuzz_target;
use std::os::fd::OwnedFd;
use std::sync::{Arc, LazyLock};
use std::time::Duration;
use tokio::io::AsyncWriteExt;
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::time::Instant;

/// The bound of the node on an answer's body.
pub const MAX_ANSWER: usize = 4 << 20;

/// Why an answer is not passed on, as the node says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NodeError {
    Timeout,
    Redirect,
    Status,
    Invalid,
    Oversized,
    Overloaded,
}

impl From<Exhausted> for NodeError {
    fn from(_: Exhausted) -> Self {
        Self::Overloaded
    }
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    // time stands still: no clock decides, and an input takes one way through the code
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    runtime
        .enable_all()
        .start_paused(true)
        .build()
        .expect("a runtime")
});
static MEMORY: LazyLock<Arc<MemoryPool>> = LazyLock::new(|| MemoryPool::new(MAX_ANSWER));

fuzz_target!(|data: &[u8]| {
    let [seed, answer @ ..] = data else { return };
    let whole = read(answer, answer.len().max(1));
    let split = read(answer, 1 + usize::from(*seed) % 80);
    assert_eq!(whole, split, "{:?}", String::from_utf8_lossy(answer));
    if answer.len() < 300 {
        assert_eq!(whole, read(answer, 1), "byte by byte");
    }
    assert_eq!(whole.ok().as_deref(), plain_body(answer).as_deref());
    assert_eq!(MEMORY.taken(), 0);
});

/// The reader's result when the answer arrives in pieces of this size, and then ends.
fn read(answer: &[u8], piece: usize) -> Result<Bytes, ExchangeError> {
    RUNTIME.block_on(async {
        // sockets of this family need no ports; nothing that is called asks for the family
        let (node, ours) = UnixStream::pair().expect("a pair of sockets");
        let ours = OwnedFd::from(ours.into_std().expect("a socket"));
        let ours = TcpStream::from_std(ours.into()).expect("a socket");
        let mut connection = Connection::new(NodeStream::Plain(ours));
        let mut permit = MemoryPermit::of(&MEMORY);
        let deadline = Instant::now() + Duration::from_secs(5);
        let reading = connection.exchange(b"?".to_vec(), deadline, &mut permit);
        let (result, ()) = tokio::join!(reading, write(node, answer, piece));
        result
    })
}

async fn write(mut node: UnixStream, answer: &[u8], piece: usize) {
    for piece in answer.chunks(piece) {
        if node.write_all(piece).await.is_err() {
            return;
        }
        // until the reader has taken it
        for _ in 0..2 {
            tokio::task::yield_now().await;
        }
    }
    let _ = node.shutdown().await;
    // an end without an error: everything sent must have been read
    let _ = node.readable().await.map(|()| node.try_read(&mut [0; 8]));
}

/// The body of an answer that is all there, read at once.
fn plain_body(mut answer: &[u8]) -> Option<Vec<u8>> {
    for _ in 0..=8 {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut fields);
        let parsed = response.parse(answer).ok()?;
        let length = if parsed.is_complete() {
            parsed.unwrap()
        } else {
            return None;
        };
        let rest = answer.get(length..)?;
        match response.code? {
            200 if length <= 16 << 10 => return plain_rest(&response, rest),
            100 | 102..=199 if length <= 16 << 10 => answer = rest,
            _ => return None,
        }
    }
    None
}

fn plain_rest(response: &httparse::Response<'_, '_>, rest: &[u8]) -> Option<Vec<u8>> {
    let values = |name: &str| -> Vec<String> {
        let named = response
            .headers
            .iter()
            .filter(|field| field.name.eq_ignore_ascii_case(name));
        named
            .map(|field| String::from_utf8_lossy(field.value.trim_ascii()).into())
            .collect()
    };
    let [codings, lengths, contents, connections] = [
        "transfer-encoding",
        "content-length",
        "content-encoding",
        "connection",
    ]
    .map(values);
    let is_identity = |coding: &String| coding.eq_ignore_ascii_case("identity");
    if !contents.iter().all(is_identity) || contents.len() > 1 || connections.len() > 1 {
        return None;
    }
    match (codings.as_slice(), lengths.as_slice()) {
        ([], []) => Some(rest.to_vec()),
        ([], [length]) => {
            let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
            let length = length
                .parse()
                .ok()
                .filter(|length| digits && *length <= MAX_ANSWER)?;
            rest.get(..length).map(<[u8]>::to_vec)
        }
        ([coding], []) if coding.eq_ignore_ascii_case("chunked") => plain_chunks(rest),
        _ => None,
    }
}

fn plain_chunks(mut rest: &[u8]) -> Option<Vec<u8>> {
    let mut body = Vec::new();
    loop {
        let parsed = httparse::parse_chunk_size(rest).ok()?;
        let (length, size) = if parsed.is_complete() {
            parsed.unwrap()
        } else {
            return None;
        };
        let has_digits = rest.first().is_some_and(u8::is_ascii_hexdigit);
        let is_one_line = rest
            .get(..length - 1)
            .is_some_and(|line| !line.contains(&b'\n'));
        rest = rest.get(length..)?;
        if length > 64 || !has_digits || !is_one_line {
            return None;
        }
        if size == 0 {
            break;
        }
        let size = usize::try_from(size).ok()?;
        body.extend_from_slice(rest.get(..size)?);
        rest = rest.get(size..)?.strip_prefix(b"\r\n")?;
    }
    let mut trailers = 0;
    loop {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let line = rest.get(..end)?;
        trailers += end + 1;
        if trailers > 16 << 10 {
            return None;
        }
        if line.is_empty() || line == b"\r" {
            return Some(body);
        }
        rest = rest.get(end + 1..)?;
    }
}
