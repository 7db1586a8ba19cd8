//! The HTTP client of the protocol: our own fetches, so there is one TLS stack.

use super::failure::NoAnswer;
use crate::fetch::{self, Roots};
use crate::io::parse_retry_after;
use bytes::Bytes;
use http::{Request, header};
use http_body_util::BodyExt as _;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use parking_lot::Mutex;
use serde::Deserialize;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use x509_cert::der::DateTime;

/// Timeout of one request: an authority under load takes seconds to sign.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Sends requests to the authority. Clones share the last `Retry-After`.
#[derive(Clone)]
pub(super) struct Client {
    roots: Roots,
    /// The `Retry-After` of the last refusal, which the protocol's errors do not carry.
    retry_after: Arc<Mutex<Option<Duration>>>,
    /// When the last order that was seen expires, which the protocol's orders do not carry.
    order_expires: Arc<Mutex<Option<u64>>>,
}

/// The part of an order that the protocol's crate leaves out: RFC 8555, section 7.1.3.
#[derive(Deserialize)]
struct Expiry {
    #[expect(dead_code, reason = "only an order has it")]
    finalize: String,
    expires: String,
}

impl Client {
    pub(super) fn new(roots: Roots) -> Self {
        Self {
            roots,
            retry_after: Arc::default(),
            order_expires: Arc::default(),
        }
    }

    /// When the last order that was seen expires, in seconds since 1970; `None` if it does not say.
    pub(super) fn order_expires(&self) -> Option<u64> {
        *self.order_expires.lock()
    }

    /// The delay that the authority demanded when it refused the last request, if any.
    pub(super) fn retry_after(&self) -> Option<Duration> {
        *self.retry_after.lock()
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let Self {
            roots,
            retry_after,
            order_expires,
        } = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let Ok(body) = body.collect().await;
            let request = Request::from_parts(head, body.to_bytes());
            let answer = fetch::exchange(request, roots, TIMEOUT).await;
            let (parts, body) = answer
                .map_err(|why| Error::Other(Box::new(NoAnswer(why))))?
                .into_parts();
            let is_refusal = parts.status.is_client_error() || parts.status.is_server_error();
            let field = parts.headers.get(header::RETRY_AFTER);
            *retry_after.lock() = match field {
                Some(field) if is_refusal => parse_retry_after(field.as_bytes(), SystemTime::now()),
                _ => None,
            };
            if let Ok(order) = serde_json::from_slice::<Expiry>(&body) {
                *order_expires.lock() = parse_time(&order.expires);
            }
            Ok(BytesResponse {
                parts,
                body: Box::new(body),
            })
        })
    }
}

/// Parses an RFC 3339 time in UTC, and drops its fraction; `None` for any other.
fn parse_time(text: &str) -> Option<u64> {
    let text = text.strip_suffix('Z')?;
    let whole = text.split_once('.').map_or(text, |(whole, _)| whole);
    let time: DateTime = format!("{whole}Z").parse().ok()?;
    Some(time.unix_duration().as_secs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_expires_at_a_time_in_utc() {
        for (text, expected) in [
            ("2016-01-05T14:09:07.99Z", Some(1_452_002_947)),
            ("2016-01-05T14:09:07Z", Some(1_452_002_947)),
            ("2016-01-05T14:09:07+01:00", None),
            ("tomorrow", None),
            ("", None),
        ] {
            assert_eq!(parse_time(text), expected, "{text:?}");
        }
    }
}
