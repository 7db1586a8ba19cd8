//! The HTTP client of the protocol: our own fetches, so there is one TLS stack.

use super::failure::NoAnswer;
use super::schedule;
use crate::fetch::{self, Roots};
use crate::io::parse_retry_after;
use bytes::Bytes;
use http::response::Parts;
use http::uri::Scheme;
use http::{HeaderValue, Request, Uri, header};
use http_body_util::BodyExt as _;
use instant_acme::{BodyWrapper, BytesResponse, Error, HttpClient};
use parking_lot::Mutex;
use serde::Deserialize;
use serde_json::{Map, Value};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use x509_cert::der::DateTime;

/// Timeout of one request: an authority under load takes seconds to sign.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum length of a directory's URL in bytes: those of authorities have fewer than 100.
const LONGEST_URL: usize = 2_048;
/// The URLs of a directory that an order needs.
const NEEDED: [&str; 3] = ["newNonce", "newAccount", "newOrder"];
/// Its other URLs.
const OPTIONAL: [&str; 4] = ["newAuthz", "revokeCert", "keyChange", "renewalInfo"];

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
            let (parts, body) = checked(parts, body, SystemTime::now())
                .map_err(|why| Error::Other(Box::new(why)))?;
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

/// An answer that cannot be used.
#[derive(Debug, thiserror::Error)]
enum Unusable {
    #[error("the authority's directory has no usable {0}")]
    Directory(&'static str),
}

/// Checks and bounds an answer, before the protocol's crate sees it, which panics at a directory
/// with a malformed URL, and at a delay that overflows the clock.
fn checked(mut parts: Parts, body: Bytes, now: SystemTime) -> Result<(Parts, Bytes), Unusable> {
    if let Some(field) = parts.headers.remove(header::RETRY_AFTER)
        && let Some(delay) = parse_retry_after(field.as_bytes(), now)
    {
        let seconds = delay.as_secs().min(schedule::LONGEST);
        parts
            .headers
            .insert(header::RETRY_AFTER, HeaderValue::from(seconds));
    }
    match serde_json::from_slice(&body) {
        Ok(Value::Object(document)) if document.contains_key("newNonce") => {
            Ok((parts, directory(document)?))
        }
        _ => Ok((parts, body)),
    }
}

/// Checks the URLs of a directory: RFC 8555, section 7.1.1. One that is optional and unusable is
/// left out.
fn directory(mut document: Map<String, Value>) -> Result<Bytes, Unusable> {
    for name in NEEDED {
        if !document.get(name).is_some_and(is_url) {
            return Err(Unusable::Directory(name));
        }
    }
    for name in OPTIONAL {
        if !document.get(name).is_some_and(is_url) {
            document.remove(name);
        }
    }
    Ok(Bytes::from(Value::Object(document).to_string()))
}

fn is_url(value: &Value) -> bool {
    let Some(text) = value.as_str().filter(|text| text.len() <= LONGEST_URL) else {
        return false;
    };
    let Ok(url) = text.parse::<Uri>() else {
        return false;
    };
    url.scheme() == Some(&Scheme::HTTPS) && url.host().is_some_and(|host| !host.is_empty())
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

    const DIRECTORY: &str = r#"{"newNonce":"https://a.test/n","newAccount":"https://a.test/a",
        "newOrder":"https://a.test/o","renewalInfo":"https://a.test/r","meta":{}}"#;

    fn check(body: &str, retry_after: &str) -> Result<(Parts, Bytes), Unusable> {
        let answer = http::Response::builder().header(header::RETRY_AFTER, retry_after);
        let (parts, body) = answer
            .body(Bytes::from(body.to_owned()))
            .expect("a response")
            .into_parts();
        checked(parts, body, SystemTime::UNIX_EPOCH)
    }

    #[test]
    fn a_directory_without_usable_urls_is_refused() {
        let changed = |from: &str, to: &str| DIRECTORY.replace(from, to);
        let long = format!("https://a.test/{}", "x".repeat(LONGEST_URL));
        for url in [
            "",
            " ",
            "/n",
            "http://a.test/n",
            "https://a b/",
            "https://",
            &long,
        ] {
            let why = check(&changed("https://a.test/n", url), "0").expect_err(url);
            assert_eq!(
                why.to_string(),
                "the authority's directory has no usable newNonce"
            );
        }
        for body in [
            changed("\"newOrder\"", "\"other\""),
            changed("\"https://a.test/o\"", "7"),
        ] {
            assert!(check(&body, "0").is_err(), "{body}");
        }
        let (_, body) = check(&changed("https://a.test/r", " "), "0").expect("a directory");
        let kept: Value = serde_json::from_slice(&body).expect("JSON");
        assert!(kept.get("renewalInfo").is_none() && kept.get("meta").is_some());
        let (_, body) = check("no JSON", "0").expect("another answer");
        assert_eq!(body, "no JSON");
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
            let (parts, _) = check("{}", text).expect("an answer");
            let found = parts.headers.get(header::RETRY_AFTER);
            let found = found.map(|value| value.to_str().expect("text"));
            assert_eq!(found, expected, "{text}");
        }
    }

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
