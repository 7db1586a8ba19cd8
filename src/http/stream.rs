//! Answers on their way out: in pieces, each of which a client has to take in time.

use crate::http::Request;
use crate::http::answer;
use crate::io::deadline::within;
use crate::reply::BodyStream;
use futures_util::StreamExt as _;
use pingora_core::{Error, ErrorType};
use std::time::Duration;

/// The rest of a body, and how much of it went out.
pub struct Body<'a> {
    /// What is still to be made.
    pub rest: BodyStream,
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

/// Waits until a part of an answer is sent.
///
/// # Errors
/// The client left, or takes longer than `patience` to read it.
pub async fn in_time(
    sent: impl Future<Output = pingora_core::Result<()>>,
    patience: Duration,
) -> pingora_core::Result<()> {
    within(patience, sent)
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
        *body.sent += piece.len();
        let sent = answer::send_more(request, piece);
        in_time(sent, patience).await.map_err(Unsent::Gone)?;
    }
    in_time(answer::end(request), patience).await.map_err(Unsent::Gone)
}
