//! The coding of a body: gzip for clients that accept it. RFC 9110, sections 8.4 and 12.5.3.
//!
//! A reply that has both forms names `Accept-Encoding` in `Vary`, whichever form is sent. Each form
//! has a strong `ETag` of its own (RFC 9110, section 8.8.3.3). A client that names the current tag
//! of either form gets 304 with that tag: it has selected that form (section 13.1.2).

use super::{Body, BodyStream, Reply, StreamAborted};
use bytes::Bytes;
use flate2::write::GzEncoder;
use futures_util::stream::{self, StreamExt as _};
use http::HeaderValue;
use portcullis_base::io::gzip::{GzipForm, LEVEL, MIN_BODY};
use portcullis_base::io::{MemoryPool, cores};
use sha2::{Digest as _, Sha256};
use std::io::Write as _;
use std::mem;
use std::sync::Arc;

/// Whether a reply depends on `Accept-Encoding`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Coding {
    /// The reply has only one form.
    #[default]
    Only,
    /// The reply has a gzip form as well.
    Negotiable,
    /// As [`Self::Negotiable`], and `If-None-Match` named the gzip form or the identity.
    Selected,
    /// The reply is in its gzip form.
    Gzip,
}

/// Makes a public reply negotiable, if it is large enough. Shared caches may store a public reply,
/// so it contains no secret that its length could reveal.
pub fn offer(reply: &mut Reply) {
    let is_public = reply
        .cache_control
        .as_deref()
        .is_some_and(|text| text.starts_with("public"));
    // a 304 has no body; its coding is set where it is made
    if is_public && (reply.rest.is_some() || reply.body.length() >= MIN_BODY) {
        reply.coding = Coding::Negotiable;
    }
}

/// Converts a negotiable reply to gzip, unless the gzip form cannot be made now or is not smaller.
/// The form takes its memory from the pool, if there is one.
pub async fn compress(reply: &mut Reply, memory: Option<&Arc<MemoryPool>>) {
    if reply.coding != Coding::Negotiable {
        return;
    }
    if let Some(rest) = reply.rest.take() {
        reply.rest = Some(zip(rest));
        reply.coding = Coding::Gzip;
    }
    let payload = payload(&reply.body).clone();
    if !payload.is_empty() {
        if !reply.gzip.is_there() {
            reply.gzip = GzipForm::of(payload.len());
        }
        reply.gzip.make(&payload, memory).await;
    }
    encode(reply);
}

/// Replaces the body with its gzip form, if that is made already.
pub fn encode(reply: &mut Reply) {
    let form = mem::take(&mut reply.gzip);
    if let Some(deflated) = form.get() {
        let [start, payload, end] = reply.body.pieces();
        let start = if payload.is_empty() { payload } else { start };
        reply.body = Body(deflated.frame(start, end));
        // the payload itself is no longer needed
        reply.memory = deflated.memory.clone().or(reply.memory.take());
        reply.coding = Coding::Gzip;
    }
    if reply.coding == Coding::Gzip || reply.status == 304 {
        retag(reply);
    }
}

/// The piece of a body that is compressed: the payload of a framed body, otherwise the whole body.
pub fn payload(body: &Body) -> &Bytes {
    let [start, payload, _] = body.pieces();
    if payload.is_empty() { start } else { payload }
}

/// The strong `ETag` of the gzip form of a document with this `ETag`. It includes our version,
/// because another one may compress to other bytes.
pub fn gzip_etag(etag: &[u8]) -> String {
    let version = concat!("gzip ", env!("CARGO_PKG_VERSION"));
    format!(
        "\"{:x}\"",
        Sha256::new()
            .chain_update(etag)
            .chain_update(version)
            .finalize()
    )
}

/// Replaces the `ETag` with that of the gzip form.
fn retag(reply: &mut Reply) {
    let etag = reply.fields.iter_mut().find(|(name, _)| *name == "etag");
    if let Some((_, value)) = etag
        && let Ok(tag) = HeaderValue::try_from(gzip_etag(value.as_bytes()))
    {
        *value = tag;
    }
}

/// Compresses a body while it is streamed. If the body is aborted, so is the result.
fn zip(rest: BodyStream) -> BodyStream {
    let zipped = stream::try_unfold(Some((rest, None)), |state| async move {
        let Some((mut rest, encoder)) = state else {
            return Ok(None);
        };
        // not before the body is polled: a HEAD never polls it
        let mut encoder = encoder.unwrap_or_else(|| GzEncoder::new(Vec::new(), LEVEL));
        let Some(piece) = rest.0.next().await.transpose()? else {
            return encoder
                .finish()
                .map(|end| Some((end.into(), None)))
                .map_err(|_| StreamAborted);
        };
        let length = piece.len();
        let work = move || {
            let written = encoder.write_all(&piece);
            let out = Bytes::from(mem::take(encoder.get_mut()));
            written.map(|()| (encoder, out))
        };
        let done = cores::run(length, work).await;
        let (encoder, out) = done.and_then(Result::ok).ok_or(StreamAborted)?;
        Ok(Some((out, Some((rest, Some(encoder))))))
    });
    BodyStream::new(zipped)
}
