//! GETs to elsewhere, bounded: for health checks, session keys and DID documents.
//!
//! In: a URL, and whose it is. Out: a status, or a small document. One deadline holds from the
//! lookup of the name to the last byte; no redirect is followed, no proxy of the environment used,
//! no connection kept. What a stranger chose ([`Trust::Public`]) is fetched over https alone, and
//! from public addresses alone: they are judged after the name is resolved, and it is these very
//! addresses that are connected to.

mod address;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;
use ureq::Agent;
use ureq::config::Config;
use ureq::http::{Uri, header};
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout};

/// How long a document may take in all: somebody waits for it.
pub const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(3);
/// 64 KiB: sets of keys and DID documents have some hundred bytes to a few thousand.
pub const MAX_DOCUMENT: usize = 64 << 10;
/// 16 KiB: the head of an answer.
const MAX_HEAD: usize = 16 << 10;

/// Who chose a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The operator: it may be of a private network, and plain http.
    Operator,
    /// A stranger.
    Public,
}

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FetchError {
    /// None came in time.
    Timeout,
    /// The name has no address, nobody listens there, or what came is no HTTP.
    Unreachable,
    /// The URL is none that is fetched for a stranger: not https, or no public address.
    Refused,
    /// A status other than 200.
    Status(u16),
    /// The answer is larger than what is read.
    TooLarge,
}

/// What was fetched.
#[derive(Debug)]
pub struct Document {
    /// The media type without its parameters, lower case; empty when the answer names none.
    pub media_type: String,
    /// The body.
    pub body: Vec<u8>,
}

/// The status that a GET is answered with, a redirect's too.
///
/// # Errors
/// No answer came within `timeout`.
pub async fn status(url: &str, trust: Trust, timeout: Duration) -> Result<u16, FetchError> {
    let url = url.to_owned();
    on_thread(move || Ok(get(&url, trust, timeout)?.status().as_u16())).await
}

/// Fetches a document. `held` is given back when the work is over, whether or not anybody still
/// waits for it.
///
/// # Errors
/// There is no answer 200 of at most [`MAX_DOCUMENT`] bytes within [`DOCUMENT_TIMEOUT`].
pub async fn document(
    url: &str,
    trust: Trust,
    held: impl Send + 'static,
) -> Result<Document, FetchError> {
    let url = url.to_owned();
    on_thread(move || {
        let _held = held;
        let mut response = get(&url, trust, DOCUMENT_TIMEOUT)?;
        if response.status() != 200 {
            return Err(FetchError::Status(response.status().as_u16()));
        }
        let media_type = response.headers().get(header::CONTENT_TYPE);
        let media_type = media_type.and_then(|value| value.to_str().ok()).unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default();
        let media_type = media_type.trim().to_ascii_lowercase();
        // the limit is the first byte that fails
        let body = response.body_mut().with_config().limit(MAX_DOCUMENT as u64 + 1);
        Ok(Document { media_type, body: body.read_to_vec()? })
    })
    .await
}

async fn on_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, FetchError> + Send + 'static,
) -> Result<T, FetchError> {
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(FetchError::Unreachable))
}

fn get(
    url: &str,
    trust: Trust,
    timeout: Duration,
) -> Result<ureq::http::Response<ureq::Body>, ureq::Error> {
    let config = Agent::config_builder()
        .timeout_global(Some(timeout))
        .https_only(trust == Trust::Public)
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .max_response_header_size(MAX_HEAD)
        .max_idle_connections(0)
        .user_agent("portcullis")
        .build();
    Agent::with_parts(config, DefaultConnector::default(), Judge(trust)).get(url).call()
}

/// Resolves names, and judges what they resolve to.
#[derive(Debug)]
struct Judge(Trust);

impl Resolver for Judge {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        // one private address among public ones is no accident
        if self.0 == Trust::Public && !found.iter().all(|found| address::is_public(found.ip())) {
            return Err(ureq::Error::Other(Box::new(NotPublic)));
        }
        Ok(found)
    }
}

#[derive(Debug)]
struct NotPublic;

impl fmt::Display for NotPublic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not a public address")
    }
}

impl std::error::Error for NotPublic {}

impl From<ureq::Error> for FetchError {
    fn from(error: ureq::Error) -> Self {
        match error {
            ureq::Error::Timeout(_) => Self::Timeout,
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => Self::Timeout,
            ureq::Error::Other(error) if error.is::<NotPublic>() => Self::Refused,
            ureq::Error::RequireHttpsOnly(_) => Self::Refused,
            ureq::Error::BodyExceedsLimit(_) | ureq::Error::LargeResponseHeader(..) => {
                Self::TooLarge
            }
            _ => Self::Unreachable,
        }
    }
}
