//! A request's body: whole, bounded, and in time.

use super::http1::BodyError;
use crate::http::Request;
use crate::io::cold;
use crate::io::deadline::within;
use bytes::{Bytes, BytesMut};
use portcullis_filters::policy;
use portcullis_filters::verdict::{Reason, Refusal};
use std::time::Duration;

/// Why there is no whole body.
#[derive(Debug)]
pub enum Incomplete {
    /// It is refused; the rest of it is still under way.
    Refused(Refusal),
    /// The client left: there is nobody to answer.
    Gone,
}

/// Reads the whole body of at most `max` bytes within `timeout`. What counts are the bytes that
/// arrive, not the length that was declared.
///
/// # Errors
/// `body_too_large`, `request_timeout`, `conflicting_framing` for malformed chunks, or
/// [`Incomplete::Gone`].
pub async fn read(
    request: &mut Request,
    timeout: Duration,
    max: usize,
) -> Result<Bytes, Incomplete> {
    if let Some(body) = request.take_whole_body() {
        policy::within_size(body.len(), max).map_err(Incomplete::Refused)?;
        return Ok(body);
    }
    match within(timeout, cold(read_all(request, max))).await {
        Some(result) => result,
        None => Err(refused(Reason::RequestTimeout, "the body did not arrive in time")),
    }
}

async fn read_all(request: &mut Request, max: usize) -> Result<Bytes, Incomplete> {
    let mut first = Bytes::new();
    let mut all = BytesMut::new();
    loop {
        let piece = match request.read_body().await {
            Ok(Some(piece)) => piece,
            // a body in one piece is not copied
            Ok(None) if all.is_empty() => return Ok(first),
            Ok(None) => return Ok(all.freeze()),
            Err(BodyError::Gone) => return Err(Incomplete::Gone),
            Err(BodyError::Malformed) => {
                return Err(refused(Reason::ConflictingFraming, "the body's framing is broken"));
            }
        };
        policy::within_size(first.len().max(all.len()) + piece.len(), max)
            .map_err(Incomplete::Refused)?;
        if first.is_empty() {
            first = piece;
        } else {
            if all.is_empty() {
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&piece);
        }
    }
}

/// Reads and drops the rest of a refused body if it is small and already under way, so that the
/// connection can be used again. Returns whether the end was reached.
pub async fn discard(request: &mut Request, timeout: Duration) -> bool {
    let rest = async {
        let mut bytes = 0;
        loop {
            match request.read_body().await {
                Ok(Some(piece)) => bytes += piece.len(),
                Ok(None) => return true,
                Err(_) => return false,
            }
            if bytes > policy::MAX_BODY {
                return false;
            }
        }
    };
    within(timeout, rest).await.unwrap_or(false)
}

fn refused(reason: Reason, message: &'static str) -> Incomplete {
    Incomplete::Refused(Refusal::new(reason, message))
}
