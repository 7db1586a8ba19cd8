//! Requests to other servers, bounded: for health checks, session keys, DID documents, hubs,
//! events, traces and certificates.
//!
//! In: a URL, and who chose it. Out: a status, or a small document. One deadline covers everything
//! from the wait for a thread to the last byte, and one bound limits the threads of all fetches,
//! even of those whose caller has left. Redirects are not followed, and the environment's proxy is
//! not used. Connections are reused only for documents at the operator's URLs. A URL that a
//! stranger chose ([`Trust::Public`]) is fetched over https and from public addresses only: they
//! are checked after the name is resolved, and the connection uses these very addresses.
//! Authorities are those of the system, unless a file of the configuration names others.

pub mod address;
mod handshake;
mod probe;

pub use handshake::{Opening, Server};
use probe::tls;
pub use probe::{Roots, exchange, probe};

use crate::io::within;
use bytes::Bytes;
use std::borrow::Cow;
use std::io;
use std::pin::pin;
use std::sync::LazyLock;
use std::time::{Duration, Instant};
use thiserror::Error;
use tokio::sync::Semaphore;
use ureq::Agent;
use ureq::config::{Config, ConfigBuilder};
use ureq::http::{Uri, header};
use ureq::tls::TlsConfig;
use ureq::typestate::AgentScope;
use ureq::unversioned::resolver::{DefaultResolver, ResolvedSocketAddrs, Resolver};
use ureq::unversioned::transport::{DefaultConnector, NextTimeout, time};

/// Timeout of a document, short because a client waits for it.
const DOCUMENT_TIMEOUT: Duration = Duration::from_secs(3);
/// 64 KiB: key sets and DID documents have a few hundred to a few thousand bytes.
pub const MAX_DOCUMENT: usize = 64 << 10;
/// 16 KiB: the head of a response.
const MAX_HEAD: usize = 16 << 10;

/// Fetches that may run concurrently in this process, each on a thread of the runtime's blocking
/// pool, which others use as well. A round of health checks has at most 37, and lookups of accounts
/// 56.
const MAX_RUNNING: usize = 128;

/// Idle connections to the operator's hosts: as many as there are lookups in the directory.
const MAX_IDLE: usize = 48;
/// Shorter than servers and balancers usually keep an idle connection.
const MAX_IDLE_AGE: Duration = Duration::from_secs(15);

static RUNNING: Semaphore = Semaphore::const_new(MAX_RUNNING);

/// Who chose a URL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trust {
    /// The operator: private networks and plain http are allowed.
    Operator,
    /// A stranger.
    Public,
}

/// Why there is no response.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum FetchError {
    /// The deadline passed.
    #[error("no answer in time")]
    Timeout,
    /// The name has no address, the connection failed, or the response is not HTTP.
    #[error("no connection, or no HTTP")]
    Unreachable,
    /// The server's certificate is refused, or there is no TLS, for this reason.
    #[error("{0}")]
    Tls(String),
    /// A stranger's URL is not https, or its address is not public.
    #[error("the address is not public, or the URL not https")]
    Refused,
    /// The status is not 200.
    #[error("status {0}")]
    Status(u16),
    /// The response is larger than the bound.
    #[error("more than {MAX_DOCUMENT} bytes")]
    TooLarge,
}

/// A document to send.
#[derive(Clone, Debug)]
pub struct Post {
    /// The media type.
    pub media_type: &'static str,
    /// Further headers.
    pub headers: Vec<(Cow<'static, str>, String)>,
    /// The bytes.
    pub body: Bytes,
}

/// A fetched document.
#[derive(Debug)]
pub struct Document {
    /// The media type without parameters, in lower case; empty if there is none.
    pub media_type: String,
    /// The bytes.
    pub body: Vec<u8>,
}

/// Sends a GET, and returns the status of the response, which may be a redirect's.
///
/// # Errors
/// Returns a [`FetchError`] if there is no response within `timeout`.
pub async fn status(url: &str, trust: Trust, timeout: Duration) -> Result<u16, FetchError> {
    let url = url.to_owned();
    on_thread(&RUNNING, timeout, move |left| {
        Ok(get(&url, trust, left)?.status().as_u16())
    })
    .await
}

/// Fetches a document. `permit` is dropped when the work ends, even if the caller has left.
///
/// # Errors
/// Returns a [`FetchError`] if there is no response 200 of at most `MAX_DOCUMENT` bytes within
/// `DOCUMENT_TIMEOUT`.
pub async fn document(
    url: &str,
    trust: Trust,
    permit: impl Send + 'static,
) -> Result<Document, FetchError> {
    let url = url.to_owned();
    on_thread(&RUNNING, DOCUMENT_TIMEOUT, move |left| {
        let _permit = permit;
        let mut response = match trust {
            Trust::Operator => get_over_kept(&url, left)?,
            Trust::Public => get(&url, trust, left)?,
        };
        if response.status() != 200 {
            return Err(FetchError::Status(response.status().as_u16()));
        }
        let media_type = response.headers().get(header::CONTENT_TYPE);
        let media_type = media_type
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default();
        let media_type = media_type.split(';').next().unwrap_or_default();
        let media_type = media_type.trim().to_ascii_lowercase();
        // reading fails at the limit, one byte above the bound
        let body = response
            .body_mut()
            .with_config()
            .limit(MAX_DOCUMENT as u64 + 1);
        Ok(Document {
            media_type,
            body: body.read_to_vec()?,
        })
    })
    .await
}

/// Sends a document to a URL of the operator; returns the status. The rest of the response is not
/// read.
///
/// # Errors
/// Returns a [`FetchError`] if there is no response within `timeout`.
pub async fn post(url: &str, post: Post, timeout: Duration) -> Result<u16, FetchError> {
    let url = url.to_owned();
    on_thread(&RUNNING, timeout, move |left| {
        let agent = agent(Trust::Operator, left);
        let mut request = agent.post(url).content_type(post.media_type);
        for (name, value) in post.headers {
            request = request.header(&*name, value);
        }
        Ok(request.send(&*post.body)?.status().as_u16())
    })
    .await
}

/// Runs `work` on a thread, with the time that is left of `timeout`. The thread counts as one of
/// `running` until it ends, even if its caller has left or a name lookup outlasts the deadline.
async fn on_thread<T: Send + 'static>(
    running: &'static Semaphore,
    timeout: Duration,
    work: impl FnOnce(Duration) -> Result<T, FetchError> + Send + 'static,
) -> Result<T, FetchError> {
    let started = Instant::now();
    let run = async {
        let permit = running.acquire().await;
        let left = timeout.saturating_sub(started.elapsed());
        let work = move || {
            let _permit = permit;
            work(left)
        };
        tokio::task::spawn_blocking(work)
            .await
            .unwrap_or(Err(FetchError::Unreachable))
    };
    within(timeout, pin!(run))
        .await
        .unwrap_or(Err(FetchError::Timeout))
}

fn get(
    url: &str,
    trust: Trust,
    timeout: Duration,
) -> Result<ureq::http::Response<ureq::Body>, ureq::Error> {
    agent(trust, timeout).get(url).call()
}

/// Sends a GET over a pooled connection, and over a new one if that was closed meanwhile.
fn get_over_kept(
    url: &str,
    timeout: Duration,
) -> Result<ureq::http::Response<ureq::Body>, ureq::Error> {
    static KEPT: LazyLock<Agent> = LazyLock::new(|| {
        let config = config(Trust::Operator, tls(Roots::default()))
            .max_idle_connections(MAX_IDLE)
            .max_idle_connections_per_host(MAX_IDLE)
            .max_idle_age(MAX_IDLE_AGE)
            .build();
        Agent::with_parts(
            config,
            DefaultConnector::default(),
            CheckedResolver(Trust::Operator),
        )
    });
    let started = Instant::now();
    let request = KEPT.get(url).config().timeout_global(Some(timeout));
    match request.build().call() {
        Err(ureq::Error::Io(error)) if was_closed(&error) => {
            let left = timeout.saturating_sub(started.elapsed());
            get(url, Trust::Operator, left)
        }
        response => response,
    }
}

/// Whether the other end closed the connection before it answered.
fn was_closed(error: &io::Error) -> bool {
    use io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, UnexpectedEof};
    let kind = error.kind();
    matches!(
        kind,
        BrokenPipe | ConnectionAborted | ConnectionReset | UnexpectedEof
    )
}

fn agent(trust: Trust, timeout: Duration) -> Agent {
    agent_with(trust, timeout, tls(Roots::default()))
}

fn agent_with(trust: Trust, timeout: Duration, tls: TlsConfig) -> Agent {
    let config = config(trust, tls)
        .timeout_global(Some(timeout))
        .max_idle_connections(0)
        .build();
    Agent::with_parts(config, DefaultConnector::default(), CheckedResolver(trust))
}

fn config(trust: Trust, tls: TlsConfig) -> ConfigBuilder<AgentScope> {
    Agent::config_builder()
        .tls_config(tls)
        .https_only(trust == Trust::Public)
        .proxy(None)
        .max_redirects(0)
        .max_redirects_will_error(false)
        .http_status_as_error(false)
        .max_response_header_size(MAX_HEAD)
        .user_agent("portcullis")
}

/// Resolves names and checks the addresses.
#[derive(Debug)]
struct CheckedResolver(Trust);

impl Resolver for CheckedResolver {
    fn resolve(
        &self,
        uri: &Uri,
        config: &Config,
        timeout: NextTimeout,
    ) -> Result<ResolvedSocketAddrs, ureq::Error> {
        // with a timeout, the resolver would leave its lookup behind on a thread of its own
        let timeout = NextTimeout {
            after: time::Duration::NotHappening,
            ..timeout
        };
        let found = DefaultResolver::default().resolve(uri, config, timeout)?;
        // a private address among public ones is an attack
        if self.0 == Trust::Public && !found.iter().all(|found| address::is_public(found.ip())) {
            return Err(ureq::Error::BadUri("not a public address".to_owned()));
        }
        Ok(found)
    }
}

impl From<ureq::Error> for FetchError {
    fn from(error: ureq::Error) -> Self {
        match error {
            ureq::Error::Timeout(_) => Self::Timeout,
            ureq::Error::Io(error) if error.kind() == std::io::ErrorKind::TimedOut => Self::Timeout,
            ureq::Error::BadUri(_) | ureq::Error::RequireHttpsOnly(_) => Self::Refused,
            ureq::Error::BodyExceedsLimit(_) | ureq::Error::LargeResponseHeader(..) => {
                Self::TooLarge
            }
            error => probe::tls_failure(&error).map_or(Self::Unreachable, Self::Tls),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    #[tokio::test]
    async fn a_caller_that_leaves_makes_no_room() {
        // not the process's own bound: a test that uses it up would fail the others
        static RUNNING: Semaphore = Semaphore::const_new(2);
        let short = Duration::from_millis(50);
        let held = [(); 2].map(|()| {
            let (release, released) = mpsc::channel::<()>();
            let work = move |_| {
                let _released = released.recv();
                Ok(())
            };
            (release, on_thread(&RUNNING, short, work))
        });
        let mut releases = Vec::new();
        for (release, fetch) in held {
            assert_eq!(fetch.await, Err(FetchError::Timeout));
            releases.push(release);
        }
        let late = on_thread(&RUNNING, short, |_| Ok(())).await;
        assert_eq!(
            late,
            Err(FetchError::Timeout),
            "both threads are still in use"
        );
        releases.pop();
        let next = on_thread(&RUNNING, DOCUMENT_TIMEOUT, |_| Ok(())).await;
        assert_eq!(next, Ok(()), "a thread that ended makes room");
    }
}
