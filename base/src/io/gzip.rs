//! gzip (RFC 1952): a payload is compressed once for all requests, whatever their ids.
//!
//! The compressed payload is a sequence of deflate blocks that refer to nothing before them. A
//! response frames them with stored blocks (RFC 1951, section 3.2.4), so that one form serves every
//! request's id; the checksums of the parts are combined. A large payload is compressed outside the
//! runtime, by half of the cores at most: while those are busy, responses are not compressed.
//!
//! If text that an attacker chooses is compressed next to a secret, the length reveals the secret
//! (BREACH). Only public text is compressed here: answers about the chain, and public documents.

use super::cores::{Core, INLINE};
use super::{MemoryPermit, MemoryPool};
use bytes::Bytes;
use flate2::{Compress, Compression, Crc, FlushCompress, Status};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::OnceCell;
use tokio::time::{Instant, timeout_at};

/// 1 KiB: a smaller body fits into the packet of its response head.
pub const MIN_BODY: usize = 1 << 10;
/// 512 bytes: in a body of [`MIN_BODY`], more than this is payload.
const MIN_PAYLOAD: usize = MIN_BODY / 2;
/// Level 2 shrinks a class of 1 MiB to 0.32 of its size, in half the time that level 6 takes for
/// 0.27; level 1 shrinks it to 0.46. A block's hashes shrink to 0.53, and to 0.82 with level 1.
pub const LEVEL: Compression = Compression::new(2);
/// How long a large payload waits for a core: the time in which a dozen of the largest are
/// compressed.
const MAX_WAIT: Duration = Duration::from_secs(1);
/// A member header without a name and a time: RFC 1952, section 2.3.
const HEADER: [u8; 10] = [0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 255];
/// The longest stored block.
const MAX_STORED: usize = u16::MAX as usize;

/// A compressed payload, to be framed.
#[derive(Debug)]
pub struct Deflated {
    blocks: Bytes,
    /// The checksum of the payload.
    crc: Crc,
    /// The memory of the blocks, if it was reserved in a pool.
    pub memory: Option<Arc<MemoryPermit>>,
}

/// The gzip form of one payload, shared by all clones and made when it is first needed.
#[derive(Clone, Debug, Default)]
pub struct GzipForm(Option<Arc<OnceCell<Option<Deflated>>>>);

/// Too much is being compressed, or the pool has no room.
struct Busy;

impl GzipForm {
    /// The form of a payload of this many bytes, not made yet; a small payload has no form.
    pub fn of(length: usize) -> Self {
        Self((length >= MIN_PAYLOAD).then(Arc::default))
    }

    /// Whether the payload is large enough for a gzip form.
    pub fn is_there(&self) -> bool {
        self.0.is_some()
    }

    /// The form, if it is made and smaller than the payload.
    pub fn get(&self) -> Option<&Deflated> {
        self.0.as_ref()?.get()?.as_ref()
    }

    /// Bytes of the form; 0 if it is not made.
    pub fn length(&self) -> usize {
        self.get().map_or(0, |deflated| deflated.blocks.len())
    }

    /// Whether both are forms of the same payload.
    pub fn is_same(&self, other: &Self) -> bool {
        let pair = self.0.as_ref().zip(other.0.as_ref());
        pair.is_some_and(|(own, other)| Arc::ptr_eq(own, other))
    }

    /// Makes the form once. Returns whether this call made it; it does not if the form would not be
    /// smaller, or if no memory or core is free.
    pub async fn make(&self, payload: &Bytes, memory: Option<&Arc<MemoryPool>>) -> bool {
        let Some(cell) = self.0.as_ref().filter(|cell| !cell.initialized()) else {
            return false;
        };
        let (mut is_made, deadline) = (false, Instant::now() + MAX_WAIT);
        let make = async {
            let deflated = make(payload, memory, deadline).await?;
            is_made = deflated.is_some();
            Ok::<_, Busy>(deflated)
        };
        // another request may try again
        let _busy = cell.get_or_try_init(|| make).await;
        is_made
    }
}

/// Compresses a payload; `None` if the result is not smaller. Waits for a core until `deadline`,
/// which has already passed for requests that waited for another one that got no core.
async fn make(
    payload: &Bytes,
    memory: Option<&Arc<MemoryPool>>,
    deadline: Instant,
) -> Result<Option<Deflated>, Busy> {
    let mut permit = memory.map(MemoryPermit::of);
    if let Some(permit) = &mut permit {
        permit.reserve(payload.len()).map_err(|_| Busy)?;
    }
    let deflated = if payload.len() <= INLINE {
        deflate(payload)
    } else {
        let core = timeout_at(deadline, Core::acquire())
            .await
            .map_err(|_| Busy)?;
        let payload = payload.clone();
        core.run(move || deflate(&payload)).await.ok_or(Busy)?
    };
    Ok(deflated.map(|(blocks, crc)| {
        let memory = permit.map(|mut permit| {
            permit.shrink(blocks.len());
            Arc::new(permit)
        });
        Deflated {
            blocks,
            crc,
            memory,
        }
    }))
}

/// Deflate blocks that end at a byte, and the payload's checksum; `None` if they are not smaller.
fn deflate(payload: &[u8]) -> Option<(Bytes, Crc)> {
    let mut blocks = Vec::with_capacity(payload.len());
    let mut deflate = Compress::new(LEVEL, false);
    let status = deflate.compress_vec(payload, &mut blocks, FlushCompress::Sync);
    let is_whole = deflate.total_in() == payload.len() as u64 && blocks.len() < blocks.capacity();
    if !matches!(status, Ok(Status::Ok)) || !is_whole {
        return None;
    }
    let mut crc = Crc::new();
    crc.update(payload);
    Some((blocks.into_boxed_slice().into(), crc))
}

impl Deflated {
    /// The gzip form of `start`, the payload and `end`.
    pub fn frame(&self, start: &[u8], end: &[u8]) -> [Bytes; 3] {
        let mut crc = Crc::new();
        crc.update(start);
        crc.combine(&self.crc);
        crc.update(end);
        let mut head = Vec::with_capacity(HEADER.len() + start.len() + 16);
        head.extend_from_slice(&HEADER);
        start
            .chunks(MAX_STORED)
            .for_each(|piece| store(piece, 0, &mut head));
        let mut tail = Vec::with_capacity(end.len() + 16);
        store(end, 1, &mut tail);
        tail.extend_from_slice(&crc.sum().to_le_bytes());
        tail.extend_from_slice(&crc.amount().to_le_bytes());
        [head.into(), self.blocks.clone(), tail.into()]
    }
}

/// Writes a stored block; `is_last` is 1 for the last one. `piece` has at most [`MAX_STORED`]
/// bytes.
fn store(piece: &[u8], is_last: u8, out: &mut Vec<u8>) {
    let length = u16::try_from(piece.len()).unwrap_or(u16::MAX);
    out.push(is_last);
    out.extend_from_slice(&length.to_le_bytes());
    out.extend_from_slice(&(!length).to_le_bytes());
    out.extend_from_slice(piece);
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::bufread::GzDecoder;
    use futures_util::FutureExt as _;
    use std::io::Read as _;

    fn unzip(pieces: [Bytes; 3]) -> Vec<u8> {
        let whole = pieces.concat();
        let (mut decoder, mut text) = (GzDecoder::new(&whole[..]), Vec::new());
        decoder
            .read_to_end(&mut text)
            .expect("it is one whole member");
        let rest = decoder.into_inner();
        assert!(rest.is_empty(), "nothing follows: {} bytes", rest.len());
        text
    }

    /// Bytes that no coding makes smaller.
    fn noise(length: usize) -> Bytes {
        let mut state = 0x9e37_79b9_7f4a_7c15_u64;
        let step = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state.to_le_bytes()[3]
        };
        std::iter::repeat_with(step).take(length).collect()
    }

    #[tokio::test]
    async fn one_form_serves_every_frame() {
        for length in [MIN_PAYLOAD, 4 << 10, INLINE, INLINE + 1, 1 << 20] {
            let payload = Bytes::from("{\"felt\":\"0x1\"}".repeat(length.div_ceil(14)));
            let form = GzipForm::of(payload.len());
            assert!(form.make(&payload, None).await, "{length}");
            let long = "i".repeat(2 * MAX_STORED + 1);
            for (start, end) in [
                ("", ""),
                ("{\"id\":1,\"result\":", "}"),
                (&long, "}"),
                ("", "}"),
            ] {
                let pieces = form
                    .get()
                    .expect("it is smaller")
                    .frame(start.as_ref(), end.as_ref());
                let expected = [start.as_bytes(), &payload, end.as_bytes()].concat();
                assert!(
                    unzip(pieces) == expected,
                    "{length}, {} before",
                    start.len()
                );
            }
        }
    }

    #[tokio::test]
    async fn what_does_not_become_smaller_has_no_form() {
        let payload = noise(8 << 10);
        let form = GzipForm::of(payload.len());
        assert!(!form.make(&payload, None).await);
        assert!(form.get().is_none());
        let small = GzipForm::of(MIN_PAYLOAD - 1);
        assert!(
            !small
                .make(&Bytes::from(vec![0; MIN_PAYLOAD - 1]), None)
                .await
        );
        assert!(small.get().is_none(), "too small");
    }

    #[tokio::test]
    async fn requests_at_a_time_make_one_form() {
        let payload = Bytes::from(vec![b'7'; 256 << 10]);
        let form = GzipForm::of(payload.len());
        let makes = (0..50).map(|_| form.make(&payload, None));
        let made = futures_util::future::join_all(makes).await;
        assert_eq!(
            made.iter().filter(|made| **made).count(),
            1,
            "one of them made it"
        );
    }

    #[tokio::test]
    async fn a_form_takes_its_own_size_of_the_pool() {
        let payload = Bytes::from(vec![b'7'; 64 << 10]);
        let pool = MemoryPool::new(payload.len());
        let form = GzipForm::of(payload.len());
        assert!(form.make(&payload, Some(&pool)).await);
        assert_eq!(
            pool.taken(),
            form.length(),
            "what it reserved at first is free again"
        );
        let other = GzipForm::of(payload.len());
        assert!(
            !other.make(&payload, Some(&pool)).await,
            "there is no room for the worst case"
        );
        drop(form);
        assert_eq!(pool.taken(), 0);
        assert!(
            other.make(&payload, Some(&pool)).await,
            "a later request makes it"
        );
    }

    #[tokio::test]
    async fn a_client_that_leaves_does_not_lose_the_form() {
        let payload = Bytes::from(vec![b'7'; 256 << 10]);
        let form = GzipForm::of(payload.len());
        let mut first = Box::pin(form.make(&payload, None));
        // another thread compresses, and is seldom done yet
        let _ = (&mut first).now_or_never();
        drop(first);
        assert!(form.make(&payload, None).await, "the next one makes it");
    }
}
