//! The HTTP client of the protocol: our own fetches, so there is one TLS stack.

use super::failure::NoAnswer;
use crate::fetch::{self, Roots};
use bytes::Bytes;
use http::{HeaderMap, Request, header};
use http_body_util::BodyExt as _;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use parking_lot::Mutex;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Timeout of one request: an authority under load takes seconds to sign.
const TIMEOUT: Duration = Duration::from_secs(20);

/// Sends requests to the authority. Clones share the last `Retry-After`.
#[derive(Clone)]
pub(super) struct Client {
    roots: Roots,
    /// The `Retry-After` of the last refusal, which the protocol's errors do not carry.
    retry_after: Arc<Mutex<Option<Duration>>>,
}

impl Client {
    pub(super) fn new(roots: Roots) -> Self {
        Self {
            roots,
            retry_after: Arc::default(),
        }
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
        let Self { roots, retry_after } = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let Ok(body) = body.collect().await;
            let request = Request::from_parts(head, body.to_bytes());
            let answer = fetch::exchange(request, roots, TIMEOUT).await;
            let (parts, body) = answer
                .map_err(|why| Error::Other(Box::new(NoAnswer(why))))?
                .into_parts();
            let is_refusal = parts.status.is_client_error() || parts.status.is_server_error();
            let asked = parse_retry_after(&parts.headers, SystemTime::now());
            *retry_after.lock() = asked.filter(|_| is_refusal);
            Ok(BytesResponse {
                parts,
                body: Box::new(body),
            })
        })
    }
}

/// Parses a `Retry-After`, in seconds or as a date: RFC 9110, section 10.2.3.
fn parse_retry_after(headers: &HeaderMap, now: SystemTime) -> Option<Duration> {
    let text = headers.get(header::RETRY_AFTER)?.to_str().ok()?.trim();
    match text.parse() {
        Ok(seconds) => Some(Duration::from_secs(seconds)),
        Err(_) => httpdate::parse_http_date(text)
            .ok()?
            .duration_since(now)
            .ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Fri, 31 Dec 1999 23:59:00 GMT").expect("a date");
        for (text, expected) in [
            ("120", Some(120)),
            ("Fri, 31 Dec 1999 23:59:59 GMT", Some(59)),
            ("Fri, 31 Dec 1999 23:58:00 GMT", None),
            ("soon", None),
            ("-1", None),
        ] {
            let headers = [(header::RETRY_AFTER, text.parse().expect("a value"))];
            let found = parse_retry_after(&headers.into_iter().collect(), now);
            assert_eq!(found, expected.map(Duration::from_secs), "{text}");
        }
    }
}
