//! Answers on their way out: in pieces, each of which a client has to take in time.

use crate::deadline::within;
use crate::gate::Request;
use crate::reply::{self, Rest};
use bytes::Bytes;
use futures_util::StreamExt as _;
use pingora_core::{Error, ErrorType};
use std::time::Duration;

/// The rest of a body, and how it goes out.
pub struct Body<'a> {
    /// What is still to be made.
    pub rest: Rest,
    /// Whether it goes out in chunks; else the end of the connection is its end.
    pub chunks: bool,
    /// Bytes of the body that went out, to be counted on.
    pub sent: &'a mut usize,
}

/// Why the rest of a body did not get out.
#[derive(Debug)]
pub enum Unsent {
    /// It can not be had.
    Cut,
    /// The client left, or does not read.
    Gone(Box<Error>),
}

/// Sends these bytes of an answer.
///
/// # Errors
/// The client left, or takes longer than `patience` to read them.
pub async fn send(
    request: &mut Request,
    pieces: [Bytes; 3],
    patience: Duration,
) -> pingora_core::Result<()> {
    within(patience, request.send(pieces))
        .await
        .unwrap_or_else(|| Error::e_explain(ErrorType::WriteTimedout, "the client does not read"))
}

/// Sends the rest of a body as it is made.
///
/// # Errors
/// [`Unsent`]: the client sees that it has not all of it.
pub async fn stream(
    request: &mut Request,
    mut body: Body<'_>,
    patience: Duration,
) -> Result<(), Unsent> {
    while let Some(piece) = body.rest.0.next().await {
        let piece = piece.map_err(|_| Unsent::Cut)?;
        // an empty chunk would be the last one
        if piece.is_empty() {
            continue;
        }
        *body.sent += piece.len();
        let pieces =
            if body.chunks { reply::chunk(piece) } else { [piece, Bytes::new(), Bytes::new()] };
        send(request, pieces, patience).await.map_err(Unsent::Gone)?;
    }
    if body.chunks {
        let end = [Bytes::from_static(reply::LAST_CHUNK), Bytes::new(), Bytes::new()];
        send(request, end, patience).await.map_err(Unsent::Gone)?;
    }
    Ok(())
}
