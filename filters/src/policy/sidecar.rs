//! The sidecar's policy: the service endpoints, by their exact paths.
//!
//! [`SidecarPolicy::admit`] judges route, rate, requests in flight, framing, and what can be told
//! of a body before it comes; it takes along the few fields that the functions read, so that
//! nothing else of a head gets any further. Who asks is found out by the sidecar, since it may take
//! a look at keys elsewhere; a webhook's body is judged by [`crate::webhook`].

use super::head::{
    any_headers, declared_size, expects_continue, is_json, no_coding, not_json, too_many_in_flight,
    within_rate, within_size, wrong_method,
};
use crate::bearer::Tokens;
use crate::client::{Client, ClientKey, TrustedProxies};
use crate::head::{Head, X_FORWARDED_FOR};
use crate::limit::{Millis, SharedLimiter, Standing};
use crate::secret::Secret;
use crate::verdict::{Reason, Refusal};
use crate::webhook::{MAX_WEBHOOK_BODY, Signature, WebhookPolicy};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::BuildHasher;
use http::{HeaderName, header};

/// 1 KiB: a body of which nothing is read.
const MAX_OTHER_BODY: usize = 1 << 10;
/// 8 KiB: the longest cursor, feed and ten labels fit twice.
const MAX_QUERY: usize = 8 << 10;

/// The parameters of the sidecar's policy.
#[derive(Debug)]
pub struct SidecarPolicy {
    /// Whose `X-Forwarded-For` is believed.
    pub trusted_proxies: TrustedProxies,
    /// Who reads the details of the health check.
    pub operator: Option<Tokens>,
    /// Whose events are taken in; none without a secret.
    pub webhook: Option<WebhookPolicy>,
    /// The header of their signature.
    pub signature_header: HeaderName,
}

/// What a path of the sidecar does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Function {
    /// Describes the feed generator.
    DescribeFeedGenerator,
    /// One page of a feed.
    GetFeedSkeleton,
    /// A creator's podcast.
    PodcastRssFeed,
    /// What search engines may list.
    SeoSitemap,
    /// What they may fetch.
    SeoRobots,
    /// How the dependencies are.
    HealthCheck,
    /// A user's proof of age: begins one, or tells how it stands.
    AgeVerificationSession,
    /// What the verifier found.
    AgeVerifierWebhook,
    /// Who the feed generator is.
    DidDocument,
}

impl Function {
    /// Every function, in the order of the variants.
    pub const ALL: [Self; 9] = [
        Self::DescribeFeedGenerator,
        Self::GetFeedSkeleton,
        Self::PodcastRssFeed,
        Self::SeoSitemap,
        Self::SeoRobots,
        Self::HealthCheck,
        Self::AgeVerificationSession,
        Self::AgeVerifierWebhook,
        Self::DidDocument,
    ];

    /// The name in paths, logs and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Self::DescribeFeedGenerator => "describeFeedGenerator",
            Self::GetFeedSkeleton => "getFeedSkeleton",
            Self::PodcastRssFeed => "podcast-rss-feed",
            Self::SeoSitemap => "seo-sitemap",
            Self::SeoRobots => "seo-robots",
            Self::HealthCheck => "health-check",
            Self::AgeVerificationSession => "age-verification-session",
            Self::AgeVerifierWebhook => "age-verifier-webhook",
            Self::DidDocument => "did.json",
        }
    }

    /// The function at this path.
    fn at(path: &[u8]) -> Option<Self> {
        match path {
            // XRPC clients and crawlers drop path prefixes
            b"/xrpc/app.bsky.feed.describeFeedGenerator" => Some(Self::DescribeFeedGenerator),
            b"/xrpc/app.bsky.feed.getFeedSkeleton" => Some(Self::GetFeedSkeleton),
            b"/.well-known/did.json" => Some(Self::DidDocument),
            b"/robots.txt" => Some(Self::SeoRobots),
            b"/sitemap.xml" => Some(Self::SeoSitemap),
            _ => {
                let name = path.strip_prefix(b"/functions/")?;
                let listed = Self::ALL.into_iter().filter(|one| *one != Self::DidDocument);
                listed.into_iter().find(|one| one.name().as_bytes() == name)
            }
        }
    }

    /// The HTTP methods that it takes, as `Allow` tells them.
    pub const fn methods(self) -> &'static str {
        match self {
            Self::AgeVerificationSession => "GET, HEAD, POST, OPTIONS",
            Self::AgeVerifierWebhook => "POST",
            _ => "GET, HEAD, OPTIONS",
        }
    }

    fn takes(self, method: &str) -> bool {
        self.methods().split(", ").any(|taken| taken == method)
    }

    /// Whether web pages may read its answers: the webhook is for the verifier's servers.
    pub fn is_for_pages(self) -> bool {
        self != Self::AgeVerifierWebhook
    }

    fn max_body(self) -> usize {
        if self == Self::AgeVerifierWebhook { MAX_WEBHOOK_BODY } else { MAX_OTHER_BODY }
    }
}

/// What the head of a request came to.
#[derive(Debug)]
pub struct SidecarAdmission<G> {
    /// Who sent it.
    pub client: Client,
    /// How the client stands with its rate limit, this request counted.
    pub standing: Standing,
    /// Where it goes, if there is anything but liveness.
    pub function: Option<Function>,
    /// What to do.
    pub verdict: Result<SidecarAdmitted<G>, Refusal>,
}

/// A request whose head passed.
#[derive(Debug)]
pub enum SidecarAdmitted<G> {
    /// `GET` or `HEAD /healthz`.
    Health,
    /// `OPTIONS` of a function.
    Preflight,
    /// Anything else: read its body.
    Call(SidecarCall<G>),
}

/// A call whose head passed and whose body is to be read.
#[derive(Debug)]
pub struct SidecarCall<G> {
    /// Where it goes.
    pub function: Function,
    /// What it asks.
    pub asked: Asked,
    /// The client's place among its requests in flight, held until the answer is out.
    pub slot: G,
    /// The client waits for `100 Continue` before it sends the body.
    pub expects_continue: bool,
    /// Bytes that its body may have.
    pub max_body: usize,
}

/// What the functions read of a head.
#[derive(Debug)]
pub struct Asked {
    /// `POST`, not `GET` or `HEAD`.
    pub is_post: bool,
    /// After the first `?`, raw.
    pub query: Box<[u8]>,
    /// Who asks.
    pub authorization: Authorization,
    /// Whether the operator's token came along.
    pub is_operator: bool,
    /// `If-None-Match`, all of its lists.
    pub if_none_match: Option<Box<[u8]>>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<Box<[u8]>>,
    /// `Accept`.
    pub accept: Option<Box<[u8]>>,
    /// What the signature's header says.
    pub signature: Signature,
    /// The body is said to be JSON.
    pub is_json: bool,
}

/// `Authorization`, as far as a head tells.
#[derive(Debug)]
pub enum Authorization {
    /// None.
    Absent,
    /// One.
    Given(Secret),
    /// More than one, which is as good as none.
    Doubled,
}

impl SidecarPolicy {
    /// Judges the head of a request that arrived at `now`. Every call of a function counts against
    /// the limit, whatever comes of it. `enter` takes a place among the client's requests in
    /// flight; `None` when it has too many.
    pub fn admit<G>(
        &self,
        head: &Head<'_>,
        limiter: &SharedLimiter<impl BuildHasher + Clone>,
        now: Millis,
        enter: impl FnOnce(ClientKey) -> Option<G>,
    ) -> SidecarAdmission<G> {
        let forwarded = head.headers.get_all(&X_FORWARDED_FOR).iter().map(|v| v.as_bytes());
        let client = Client::identify(head.peer, forwarded, &self.trusted_proxies);
        let mut target = head.target.splitn(2, |byte| *byte == b'?');
        let path = target.next().unwrap_or_default();
        let query = target.next().unwrap_or_default();
        let function = Function::at(path);
        let route = route(path, function, head.method);
        let standing = match route {
            Ok(Route::Call(_)) => limiter.check(client.key, now),
            _ => limiter.peek(client.key, now),
        };
        let verdict = route.and_then(|route| match route {
            Route::Health => Ok(SidecarAdmitted::Health),
            Route::Preflight => Ok(SidecarAdmitted::Preflight),
            Route::Call(function) => {
                within_rate(standing)?;
                let slot = enter(client.key).ok_or_else(too_many_in_flight)?;
                self.call(function, head, query, slot).map(SidecarAdmitted::Call)
            }
        });
        SidecarAdmission { client, standing, function, verdict }
    }

    fn call<G>(
        &self,
        function: Function,
        head: &Head<'_>,
        query: &[u8],
        slot: G,
    ) -> Result<SidecarCall<G>, Refusal> {
        any_headers(head)?;
        if query.len() > MAX_QUERY {
            let message = "the query is at most 8192 bytes";
            return Err(Refusal::new(Reason::InvalidRequest, message));
        }
        let expects_continue = expects_continue(head)?;
        let max_body = function.max_body();
        if function == Function::AgeVerifierWebhook && self.webhook.is_none() {
            // an empty key would be a key: https://www.rfc-editor.org/rfc/rfc2104#section-3
            let message = "no secret of the verifier is configured";
            return Err(Refusal::new(Reason::NotConfigured, message));
        }
        declared_size(head, max_body)?;
        no_coding(head)?;
        let asked = self.asked(head, query);
        Ok(SidecarCall { function, asked, slot, expects_continue, max_body })
    }

    fn asked(&self, head: &Head<'_>, query: &[u8]) -> Asked {
        let one = |name| head.single(name).flatten().map(|value| Box::from(value.as_bytes()));
        let all = |name: &HeaderName| head.headers.get_all(name).iter();
        let lists: Vec<_> = all(&header::IF_NONE_MATCH).map(|value| value.as_bytes()).collect();
        Asked {
            is_post: head.method == "POST",
            query: query.into(),
            authorization: match head.single(header::AUTHORIZATION) {
                None => Authorization::Absent,
                Some(None) => Authorization::Doubled,
                Some(Some(value)) => Authorization::Given(Secret::new(value.as_bytes().to_vec())),
            },
            is_operator: self.operator.as_ref().is_some_and(|token| token.authorize(head)),
            if_none_match: (!lists.is_empty()).then(|| lists.join(&b","[..]).into()),
            if_modified_since: one(header::IF_MODIFIED_SINCE),
            accept: one(header::ACCEPT),
            signature: Signature::of(all(&self.signature_header)),
            is_json: is_json(head),
        }
    }
}

impl Asked {
    /// Refuses the body of a call that needs none, unless it is empty or an empty JSON object.
    ///
    /// # Errors
    /// `unsupported_media_type` or `invalid_request`.
    pub fn nothing_in(&self, body: &[u8]) -> Result<(), Refusal> {
        within_size(body.len(), MAX_OTHER_BODY)?;
        if body.is_empty() {
            return Ok(());
        }
        if !self.is_json {
            return Err(not_json());
        }
        let space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        if body.iter().filter(|byte| !space(byte)).eq(b"{}") {
            return Ok(());
        }
        Err(Refusal::new(Reason::InvalidRequest, "the body must be empty or {}"))
    }
}

enum Route {
    Health,
    Preflight,
    Call(Function),
}

/// Paths match exactly, on the raw bytes.
fn route(path: &[u8], function: Option<Function>, method: &str) -> Result<Route, Refusal> {
    let Some(function) = function else {
        return match (path, method) {
            (b"/healthz", "GET" | "HEAD") => Ok(Route::Health),
            (b"/healthz", _) => Err(wrong_method("GET, HEAD", "/healthz takes GET")),
            _ if path.starts_with(b"/xrpc/") => {
                let message = "this XRPC method is not served here";
                Err(Refusal::new(Reason::UnknownMethod, message))
            }
            _ => Err(Refusal::new(Reason::NotFound, "there is no such function")),
        };
    };
    if !function.takes(method) {
        return Err(wrong_method(function.methods(), "this function takes other methods"));
    }
    Ok(if method == "OPTIONS" { Route::Preflight } else { Route::Call(function) })
}
