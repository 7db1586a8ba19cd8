//! The HTTP client of the protocol: our own fetches, so there is one TLS stack.

use super::failure::NoAnswer;
use crate::fetch::{self, Roots};
use crate::io::parse_retry_after;
use bytes::Bytes;
use http::{Request, header};
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
            let field = parts.headers.get(header::RETRY_AFTER);
            *retry_after.lock() = match field {
                Some(field) if is_refusal => parse_retry_after(field.as_bytes(), SystemTime::now()),
                _ => None,
            };
            Ok(BytesResponse {
                parts,
                body: Box::new(body),
            })
        })
    }
}
