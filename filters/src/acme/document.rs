//! The documents of an authority (RFC 8555, RFC 9773), checked and bounded before anything else
//! parses them.
//!
//! In: the body of a response. Out: the document, or why it cannot be used. A field that appears
//! twice, has another type, or is larger than any authority needs makes a document unusable; one
//! that is optional and unusable is left out.

use super::message::{Authorization, Challenge, OrderStatus};
use super::schedule::Window;
use alloc::borrow::ToOwned as _;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::fmt;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Maximum length of a URL in bytes: those of authorities have fewer than 300.
const LONGEST_URL: usize = 2_048;
/// Maximum length of a challenge's token in bytes: those of authorities have 43.
const LONGEST_TOKEN: usize = 512;
/// Maximum number of authorizations of an order, and of challenges of an authorization: an
/// authority permits 100 names.
const MOST: usize = 128;
/// The URLs of a directory that an order needs.
const NEEDED: [&str; 3] = ["newNonce", "newAccount", "newOrder"];
/// Its other URLs.
const OPTIONAL: [&str; 4] = ["newAuthz", "revokeCert", "keyChange", "renewalInfo"];

/// A document that cannot be used: its kind, and the field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unusable(&'static str, &'static str);

impl Unusable {
    /// A response with more bytes than any of them needs.
    pub const OVERSIZED: Self = Self("response", "size");
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(document, field) = self;
        write!(f, "the authority's {document} has no usable {field}")
    }
}

impl core::error::Error for Unusable {}

/// A document that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Document {
    /// The URLs, without those that cannot be used, as JSON.
    Directory(String),
    /// An order.
    Order {
        /// Its status.
        status: OrderStatus,
        /// When the order expires, in seconds since 1970.
        expires: Option<u64>,
    },
    /// An authorization of an order.
    Authorization(Authorization),
    /// When the authority wants a certificate renewed.
    RenewalInfo(Window),
    /// Anything else: a problem, an account, a certificate.
    Other,
}

/// The fields that tell documents apart.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Kind {
    new_nonce: Option<IgnoredAny>,
    new_order: Option<IgnoredAny>,
    finalize: Option<IgnoredAny>,
    authorizations: Option<IgnoredAny>,
    challenges: Option<IgnoredAny>,
    identifier: Option<IgnoredAny>,
    suggested_window: Option<IgnoredAny>,
}

#[derive(Deserialize)]
struct RawOrder {
    status: Option<Value>,
    expires: Option<Value>,
    authorizations: Option<Value>,
    finalize: Option<Value>,
    certificate: Option<Value>,
}

#[derive(Deserialize)]
struct RawAuthorization {
    status: Option<Value>,
    identifier: Option<Value>,
    challenges: Option<Value>,
}

#[derive(Deserialize)]
struct RawRenewalInfo {
    #[serde(rename = "suggestedWindow")]
    suggested_window: RawWindow,
}

#[derive(Deserialize)]
struct RawWindow {
    start: String,
    end: String,
}

/// Reads the body of a successful response.
///
/// # Errors
/// The document cannot be used.
pub fn read(body: &[u8]) -> Result<Document, Unusable> {
    if body.first() != Some(&b'{') {
        return Ok(Document::Other);
    }
    let kind: Kind = parse(body, "response")?;
    if kind.new_nonce.is_some() || kind.new_order.is_some() {
        directory(parse(body, "directory")?)
    } else if kind.finalize.is_some() || kind.authorizations.is_some() {
        order(&parse(body, "order")?)
    } else if kind.challenges.is_some() || kind.identifier.is_some() {
        authorization(parse(body, "authorization")?)
    } else if kind.suggested_window.is_some() {
        renewal_info(&parse(body, "renewal information")?)
    } else {
        Ok(Document::Other)
    }
}

/// Parses JSON in which no known field appears twice.
fn parse<'a, T: Deserialize<'a>>(body: &'a [u8], document: &'static str) -> Result<T, Unusable> {
    serde_json::from_slice(body).map_err(|_| Unusable(document, "JSON"))
}

fn directory(mut document: Map<String, Value>) -> Result<Document, Unusable> {
    for name in NEEDED {
        if url(document.get(name)).is_none() {
            return Err(Unusable("directory", name));
        }
    }
    for name in OPTIONAL {
        if url(document.get(name)).is_none() {
            document.remove(name);
        }
    }
    Ok(Document::Directory(Value::Object(document).to_string()))
}

fn order(order: &RawOrder) -> Result<Document, Unusable> {
    let status = text(order.status.as_ref()).and_then(status_of);
    let status = status.ok_or(Unusable("order", "status"))?;
    let all = list(order.authorizations.as_ref());
    let all = all.ok_or(Unusable("order", "authorizations"))?;
    if all.iter().any(|one| url(Some(one)).is_none()) {
        return Err(Unusable("order", "authorizations"));
    }
    url(order.finalize.as_ref()).ok_or(Unusable("order", "finalize"))?;
    let certificate = order.certificate.as_ref().filter(|value| !value.is_null());
    let is_needed = status == OrderStatus::Valid;
    if (is_needed || certificate.is_some()) && url(certificate).is_none() {
        return Err(Unusable("order", "certificate"));
    }
    let expires = text(order.expires.as_ref()).and_then(time);
    Ok(Document::Order { status, expires })
}

fn status_of(name: &str) -> Option<OrderStatus> {
    let mut all = OrderStatus::ALL.into_iter();
    all.find(|status| status.name().to_ascii_lowercase() == name)
}

fn authorization(document: RawAuthorization) -> Result<Document, Unusable> {
    let status = text(document.status.as_ref()).ok_or(Unusable("authorization", "status"))?;
    let identifier = document.identifier.as_ref();
    let domain = identifier.filter(|id| text(id.get("type")) == Some("dns"));
    let domain = domain.and_then(|id| text(id.get("value")));
    let domain = domain.ok_or(Unusable("authorization", "identifier"))?;
    let all = list(document.challenges.as_ref()).ok_or(Unusable("authorization", "challenges"))?;
    let mut offers = Vec::new();
    for one in all {
        let kind = text(one.get("type")).ok_or(Unusable("authorization", "challenges"))?;
        let Some(challenge) = Challenge::parse(kind) else {
            continue;
        };
        let is_usable =
            url(one.get("url")).is_some() && text(one.get("token")).is_some_and(is_token);
        if !is_usable {
            return Err(Unusable("authorization", "challenges"));
        }
        offers.push(challenge);
    }
    Ok(Document::Authorization(Authorization {
        domain: domain.to_owned(),
        is_pending: status == "pending",
        offers,
    }))
}

fn renewal_info(document: &RawRenewalInfo) -> Result<Document, Unusable> {
    let RawWindow { start, end } = &document.suggested_window;
    match (time(start), time(end)) {
        (Some(start), Some(end)) => Ok(Document::RenewalInfo(Window { start, end })),
        _ => Err(Unusable("renewal information", "suggestedWindow")),
    }
}

fn text(value: Option<&Value>) -> Option<&str> {
    let text = value?.as_str()?;
    if text.len() <= LONGEST_URL {
        Some(text)
    } else {
        None
    }
}

fn list(value: Option<&Value>) -> Option<&[Value]> {
    let list = value?.as_array()?;
    if (1..=MOST).contains(&list.len()) {
        Some(list)
    } else {
        None
    }
}

/// Whether this is a token: RFC 8555, section 8.3. It is a part of a path.
fn is_token(token: &str) -> bool {
    let is_base64url = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=LONGEST_TOKEN).contains(&token.len()) && token.bytes().all(is_base64url)
}

fn url(value: Option<&Value>) -> Option<()> {
    let uri: http::Uri = text(value)?.parse().ok()?;
    let is_https = uri.scheme() == Some(&http::uri::Scheme::HTTPS);
    if is_https && uri.host().is_some_and(|host| !host.is_empty()) {
        Some(())
    } else {
        None
    }
}

/// Parses a time of RFC 3339; `None` before 1970.
fn time(text: &str) -> Option<u64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    u64::try_from(time.unix_timestamp()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const DIRECTORY: &str = r#"{"newNonce":"https://a.test/n","newAccount":"https://a.test/a",
        "newOrder":"https://a.test/o","renewalInfo":"https://a.test/r","meta":{}}"#;
    const ORDER: &str = r#"{"status":"valid","expires":"2016-01-05T14:09:07.99Z",
        "authorizations":["https://a.test/z"],"finalize":"https://a.test/f",
        "certificate":"https://a.test/c"}"#;
    const AUTHORIZATION: &str = r#"{"status":"pending","identifier":{"type":"dns","value":"a.test"},
        "challenges":[{"type":"dns-01"},
            {"type":"http-01","url":"https://a.test/h","token":"a-_Z9"}]}"#;

    fn unusable(body: &str) -> String {
        match read(body.as_bytes()) {
            Err(unusable) => unusable.to_string(),
            Ok(document) => panic!("{body}: {document:?}"),
        }
    }

    #[test]
    fn a_directory_without_usable_urls_is_refused() {
        let long = alloc::format!("https://a.test/{}", "x".repeat(LONGEST_URL));
        for url in [
            "",
            " ",
            "/n",
            "http://a.test/n",
            "https://a b/",
            "https://",
            &long,
        ] {
            let found = unusable(&DIRECTORY.replace("https://a.test/n", url));
            assert_eq!(found, "the authority's directory has no usable newNonce");
        }
        for body in [
            DIRECTORY.replace("\"newOrder\"", "\"other\""),
            DIRECTORY.replace("\"https://a.test/o\"", "7"),
        ] {
            assert!(unusable(&body).ends_with("newOrder"), "{body}");
        }
        let body = DIRECTORY.replace("https://a.test/r", " ");
        let Ok(Document::Directory(kept)) = read(body.as_bytes()) else {
            panic!("{body}");
        };
        assert!(!kept.contains("renewalInfo") && kept.contains("meta"));
    }

    #[test]
    fn an_order_is_whole_or_refused() {
        let expected = Document::Order {
            status: OrderStatus::Valid,
            expires: Some(1_452_002_947),
        };
        assert_eq!(read(ORDER.as_bytes()), Ok(expected));
        for (from, to, field) in [
            ("valid", "done", "status"),
            ("\"valid\"", "7", "status"),
            ("[\"https://a.test/z\"]", "[]", "authorizations"),
            ("https://a.test/z", "ftp://a.test/z", "authorizations"),
            ("https://a.test/f", "", "finalize"),
            ("https://a.test/c", "c", "certificate"),
            ("\"certificate\"", "\"other\"", "certificate"),
            ("\"finalize\"", "\"status\"", "JSON"),
        ] {
            assert!(
                unusable(&ORDER.replace(from, to)).ends_with(field),
                "{from} {to}"
            );
        }
        let body = ORDER.replace("2016", "never");
        let expected = Document::Order {
            status: OrderStatus::Valid,
            expires: None,
        };
        assert_eq!(read(body.as_bytes()), Ok(expected));
    }

    #[test]
    fn an_authorization_offers_usable_challenges() {
        let expected = Document::Authorization(Authorization {
            domain: "a.test".to_owned(),
            is_pending: true,
            offers: alloc::vec![Challenge::Http01],
        });
        assert_eq!(read(AUTHORIZATION.as_bytes()), Ok(expected));
        for (from, to, field) in [
            ("a-_Z9", "../..", "challenges"),
            ("a-_Z9", "", "challenges"),
            ("https://a.test/h", "h", "challenges"),
            ("\"dns\"", "\"ip\"", "identifier"),
            ("\"status\"", "\"state\"", "status"),
        ] {
            let found = unusable(&AUTHORIZATION.replace(from, to));
            assert!(found.ends_with(field), "{from} {to}: {found}");
        }
    }

    #[test]
    fn renewal_information_has_two_times() {
        let body = r#"{"suggestedWindow":{"start":"2016-01-05T14:09:07Z",
            "end":"2016-01-05T15:09:07+01:00"}}"#;
        let window = Window {
            start: 1_452_002_947,
            end: 1_452_002_947,
        };
        assert_eq!(read(body.as_bytes()), Ok(Document::RenewalInfo(window)));
        unusable(&body.replace("\"end\"", "\"start\""));
        unusable(&body.replace("2016-01-05T14:09:07Z", "soon"));
        assert_eq!(read(b"-----BEGIN"), Ok(Document::Other));
        assert_eq!(read(b"{}"), Ok(Document::Other));
    }
}
