//! The HTTP client of the protocol: our own fetches, so there is one TLS stack.

use super::failure::NoAnswer;
use bytes::Bytes;
use http::response::Parts;
use http::{HeaderValue, Request, header};
use http_body_util::BodyExt as _;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use parking_lot::Mutex;
use portcullis_base::fetch::{self, Roots};
use portcullis_base::io::parse_retry_after;
use portcullis_filters::acme::document::{self, Document, Unusable};
use portcullis_filters::acme::{Authorization, Order, schedule};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

/// Timeout of one request: an authority under load takes seconds to sign.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Sends requests to the authority. Clones share the last response.
#[derive(Clone)]
pub(super) struct Client {
    roots: Roots,
    last: Arc<Mutex<Last>>,
}

/// The parts of the last response that the protocol's crate leaves out.
#[derive(Default)]
struct Last {
    retry_after: Option<Duration>,
    is_refusal: bool,
    document: Option<Document>,
}

impl Client {
    pub(super) fn new(roots: Roots) -> Self {
        Self {
            roots,
            last: Arc::default(),
        }
    }

    /// The order of the last response; `None` if the last response had none.
    pub(super) fn order(&self) -> Option<Order> {
        let last = self.last.lock();
        let Some(Document::Order { status, expires }) = last.document else {
            return None;
        };
        Some(Order {
            status,
            expires,
            pause: last.retry_after.map(|pause| pause.as_secs()),
        })
    }

    /// The authorization of the last response; `None` if the last response had none.
    pub(super) fn authorization(&self) -> Option<Authorization> {
        match &self.last.lock().document {
            Some(Document::Authorization(authorization)) => Some(authorization.clone()),
            _ => None,
        }
    }

    /// The seconds that the authority demanded when it refused the last request, if any.
    pub(super) fn retry_after(&self) -> Option<u64> {
        let last = self.last.lock();
        let asked = last.retry_after.filter(|_| last.is_refusal);
        asked.map(|after| after.as_secs())
    }
}

impl HttpClient for Client {
    fn request(
        &self,
        request: Request<BodyWrapper<Bytes>>,
    ) -> Pin<Box<dyn Future<Output = Result<BytesResponse, Error>> + Send>> {
        let Self { roots, last } = self.clone();
        Box::pin(async move {
            let (head, body) = request.into_parts();
            let Ok(body) = body.collect().await;
            let request = Request::from_parts(head, body.to_bytes());
            *last.lock() = Last::default();
            let answer = fetch::exchange(request, roots, TIMEOUT).await;
            let (parts, body) = answer
                .map_err(|why| Error::Other(Box::new(NoAnswer(why))))?
                .into_parts();
            let checked = checked(parts, body, SystemTime::now());
            let (parts, body, seen) = checked.map_err(|why| Error::Other(Box::new(why)))?;
            *last.lock() = seen;
            Ok(BytesResponse {
                parts,
                body: Box::new(body),
            })
        })
    }
}

/// Checks and bounds an answer, before the protocol's crate sees it, which panics at a directory
/// with a malformed URL, and at a delay that overflows the clock.
fn checked(
    mut parts: Parts,
    body: Bytes,
    now: SystemTime,
) -> Result<(Parts, Bytes, Last), Unusable> {
    if body.len() > fetch::MAX_DOCUMENT {
        return Err(Unusable::OVERSIZED);
    }
    let mut last = Last {
        is_refusal: parts.status.is_client_error() || parts.status.is_server_error(),
        ..Last::default()
    };
    if let Some(field) = parts.headers.remove(header::RETRY_AFTER)
        && let Some(delay) = parse_retry_after(field.as_bytes(), now)
    {
        let seconds = delay.as_secs().min(schedule::LONGEST);
        last.retry_after = Some(Duration::from_secs(seconds));
        parts
            .headers
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    if last.is_refusal {
        return Ok((parts, body, last));
    }
    let body = match document::read(&body)? {
        Document::Directory(directory) => Bytes::from(directory),
        other => {
            last.document = Some(other);
            body
        }
    };
    Ok((parts, body, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_oversized_answer_is_unusable() {
        for (bytes, expected) in [
            (fetch::MAX_DOCUMENT, None),
            (
                fetch::MAX_DOCUMENT + 1,
                Some("the authority's response has no usable size"),
            ),
        ] {
            let answer = http::Response::new(Bytes::from(vec![b' '; bytes]));
            let (parts, body) = answer.into_parts();
            let found = checked(parts, body, SystemTime::UNIX_EPOCH).err();
            let found = found.map(|why| why.to_string());
            assert_eq!(found.as_deref(), expected, "{bytes} bytes");
        }
    }

    #[test]
    fn retry_after_is_bounded_before_it_is_added() {
        let week = schedule::LONGEST.to_string();
        for (text, expected) in [
            ("120", Some("120")),
            ("18446744073709551615", Some(&*week)),
            ("99999999999999999999999", Some(&*week)),
            ("Fri, 31 Dec 9999 23:59:59 GMT", Some(&*week)),
            ("Fri, 31 Dec 1899 23:59:59 GMT", None),
            ("soon", None),
        ] {
            let answer = http::Response::builder().header(header::RETRY_AFTER, text);
            let (parts, body) = answer
                .body(Bytes::from_static(b"{}"))
                .expect("a response")
                .into_parts();
            let Ok((parts, _, last)) = checked(parts, body, SystemTime::UNIX_EPOCH) else {
                panic!("{text}: an answer");
            };
            let found = parts.headers.get(header::RETRY_AFTER);
            let found = found.map(|value| value.to_str().expect("text"));
            assert_eq!(found, expected, "{text}");
            assert_eq!(last.retry_after.is_some(), expected.is_some(), "{text}");
            let client = Client::new(Roots::default());
            *client.last.lock() = last;
            assert_eq!(client.retry_after(), None, "it refused nothing");
            client.last.lock().is_refusal = true;
            assert_eq!(client.retry_after().is_some(), expected.is_some(), "{text}");
        }
    }
}
