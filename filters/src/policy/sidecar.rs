//! The sidecar's policy: the service endpoints, by their exact paths.
//!
//! [`SidecarPolicy::admit`] checks route, rate, requests in flight, framing and the declared body.
//! It copies the few fields that the functions read into [`RequestParts`] and drops the rest of the
//! head. Users are authenticated by the sidecar, not here, since that may fetch keys; a webhook's
//! body is judged by [`crate::webhook`].

use super::{Admission, Admitted, PendingCall};
use crate::bearer::Tokens;
use crate::client::{Client, ClientKey, TrustedProxies};
use crate::head::{
    Head, MediaType, allowed_method, any_headers, client, declared_size, expects_continue, framing,
    media_type, no_coding, not_json, too_many_in_flight, within_rate, within_size,
};
use crate::limit::{Limiter, Millis, RateCheck};
use crate::named::named;
use crate::networks::Networks;
use crate::secret::Secret;
use crate::verdict::{Reason, Refusal};
use crate::webhook::{MAX_WEBHOOK_BODY, Signature, WebhookPolicy};
use alloc::boxed::Box;
use alloc::vec::Vec;
use http::{HeaderName, header};

/// 1 KiB, for functions that take no body.
const MAX_OTHER_BODY: usize = 1 << 10;
/// The longest query: 8 KiB, twice the longest cursor, feed and ten labels.
const MAX_QUERY: usize = 8 << 10;

/// The parameters of the sidecar's policy.
#[derive(Debug)]
pub struct SidecarPolicy {
    /// The proxies whose `X-Forwarded-For` is trusted.
    pub trusted_proxies: TrustedProxies,
    /// The clients whose requests the rate limit does not count.
    pub exempt: Networks,
    /// The operator's tokens, which open the details of the health check.
    pub operator: Option<Tokens>,
    /// The policy of the verifier's events; `None` without a secret.
    pub webhook: Option<WebhookPolicy>,
    /// The header of the verifier's signature.
    pub signature_header: HeaderName,
}

named! {
    /// A service function, named as in its path.
    pub enum Function {
        /// Describes the feed generator.
        DescribeFeedGenerator = "describeFeedGenerator",
        /// One page of a feed.
        GetFeedSkeleton = "getFeedSkeleton",
        /// A creator's podcast.
        PodcastRssFeed = "podcast-rss-feed",
        /// The pages that search engines may list.
        SeoSitemap = "seo-sitemap",
        /// The paths that crawlers may fetch.
        SeoRobots = "seo-robots",
        /// The health of the dependencies.
        HealthCheck = "health-check",
        /// Starts a user's age verification, or reports its status.
        AgeVerificationSession = "age-verification-session",
        /// Receives the verifier's events.
        AgeVerifierWebhook = "age-verifier-webhook",
        /// The feed generator's DID document.
        DidDocument = "did.json",
        /// The version, as XRPC servers report it.
        XrpcHealth = "_health",
    }
}

impl Function {
    /// The function at this request target. Paths match exactly, on the raw bytes.
    pub fn at(target: &[u8]) -> Option<Self> {
        match split_target(target).0 {
            // XRPC clients and crawlers use fixed paths, without a prefix
            b"/xrpc/app.bsky.feed.describeFeedGenerator" => Some(Self::DescribeFeedGenerator),
            b"/xrpc/app.bsky.feed.getFeedSkeleton" => Some(Self::GetFeedSkeleton),
            b"/.well-known/did.json" => Some(Self::DidDocument),
            b"/xrpc/_health" => Some(Self::XrpcHealth),
            b"/robots.txt" => Some(Self::SeoRobots),
            b"/sitemap.xml" => Some(Self::SeoSitemap),
            path => {
                let name = str::from_utf8(path.strip_prefix(b"/functions/")?).ok()?;
                match Self::parse(name)? {
                    Self::DidDocument | Self::XrpcHealth => None,
                    function => Some(function),
                }
            }
        }
    }

    /// The HTTP methods of the function, as in `Allow`.
    pub const fn methods(self) -> &'static str {
        match self {
            Self::AgeVerificationSession => "GET, HEAD, POST, OPTIONS",
            Self::AgeVerifierWebhook => "POST",
            _ => "GET, HEAD, OPTIONS",
        }
    }

    /// Whether web pages may read the response: the webhook is for the verifier's servers.
    pub fn is_for_pages(self) -> bool {
        self != Self::AgeVerifierWebhook
    }

    /// Whether calls count against the limits of a client. Constants in memory do not: a crawler
    /// takes an error of `robots.txt` for a ban of the whole site.
    fn is_limited(self) -> bool {
        !matches!(self, Self::SeoRobots | Self::DidDocument | Self::XrpcHealth)
    }

    fn max_body(self) -> usize {
        if self == Self::AgeVerifierWebhook {
            MAX_WEBHOOK_BODY
        } else {
            MAX_OTHER_BODY
        }
    }
}

/// The parts of a head that the functions read.
#[derive(Debug)]
pub struct RequestParts {
    /// The function at the path.
    pub function: Function,
    /// The client.
    pub client: ClientKey,
    /// Whether the method is `POST`, not `GET` or `HEAD`.
    pub is_post: bool,
    /// The raw query.
    pub query: Box<[u8]>,
    /// `Authorization`.
    pub authorization: Authorization,
    /// Whether the request has the operator's token.
    pub is_operator: bool,
    /// `If-None-Match`, its lists joined.
    pub if_none_match: Option<Box<[u8]>>,
    /// `If-Modified-Since`.
    pub if_modified_since: Option<Box<[u8]>>,
    /// `Accept`.
    pub accept: Option<Box<[u8]>>,
    /// The webhook's signature.
    pub signature: Signature,
    /// The declared media type of the body.
    pub media_type: MediaType,
}

/// The `Authorization` of a request.
#[derive(Debug)]
pub enum Authorization {
    /// No field.
    Absent,
    /// One field.
    Present(Secret),
    /// More than one field, which authorizes nothing.
    Duplicate,
}

impl SidecarPolicy {
    /// Judges the head of a request at `now`. Every call of a function counts against the rate
    /// limit, refused or not, unless the function is a constant or the client exempt. `enter` takes
    /// a place among the client's requests in flight, or returns `None` when the client has too
    /// many.
    pub fn admit<L: Limiter, G>(
        &self,
        head: &Head<'_>,
        limiter: &L,
        now: Millis,
        enter: impl FnOnce(ClientKey) -> Option<G>,
    ) -> Admission<RequestParts, G, L::Ticket> {
        let client = client(head, &self.trusted_proxies);
        let route = route(head);
        let rate_limit = match route {
            Ok(Route::Call(function)) if self.counts(function, &client) => {
                limiter.check(client.key, now)
            }
            _ => RateCheck::Decided(limiter.peek(client.key, now)),
        };
        let verdict = route.and_then(|route| match route {
            Route::Health => Ok(Admitted::Health),
            Route::Preflight => Ok(Admitted::Preflight),
            Route::Call(function) => {
                if self.counts(function, &client) {
                    rate_limit.judge(within_rate)?;
                }
                let slot = if function.is_limited() {
                    Some(enter(client.key).ok_or_else(too_many_in_flight)?)
                } else {
                    None
                };
                self.call(function, client.key, head, slot)
                    .map(Admitted::Call)
            }
        });
        Admission {
            client,
            rate_limit: Some(rate_limit),
            verdict,
        }
    }

    /// Whether a call counts against the rate limit.
    fn counts(&self, function: Function, client: &Client) -> bool {
        function.is_limited() && !self.exempt.contains(client.address)
    }

    fn call<G>(
        &self,
        function: Function,
        client: ClientKey,
        head: &Head<'_>,
        slot: Option<G>,
    ) -> Result<PendingCall<RequestParts, G>, Refusal> {
        any_headers(head)?;
        let (_, query) = split_target(head.target);
        if query.len() > MAX_QUERY {
            let message = "the query must be at most 8192 bytes";
            return Err(Refusal::new(Reason::InvalidRequest, message));
        }
        let expects_continue = expects_continue(head)?;
        let max_body = function.max_body();
        if function == Function::AgeVerifierWebhook && self.webhook.is_none() {
            // HMAC accepts an empty key: https://www.rfc-editor.org/rfc/rfc2104#section-3
            let message = "the operator has not configured the verifier's secret";
            return Err(Refusal::new(Reason::NotConfigured, message));
        }
        declared_size(head, max_body)?;
        no_coding(head)?;
        let call = self.parts(function, client, head, query);
        Ok(PendingCall {
            call,
            slot,
            expects_continue,
            max_body,
        })
    }

    fn parts(
        &self,
        function: Function,
        client: ClientKey,
        head: &Head<'_>,
        query: &[u8],
    ) -> RequestParts {
        let one = |name| {
            head.single(name)
                .flatten()
                .map(|value| Box::from(value.as_bytes()))
        };
        let all = |name: &HeaderName| head.headers.get_all(name).iter();
        let lists: Vec<_> = all(&header::IF_NONE_MATCH)
            .map(|value| value.as_bytes())
            .collect();
        RequestParts {
            function,
            client,
            is_post: head.method == "POST",
            query: query.into(),
            authorization: match head.single(header::AUTHORIZATION) {
                None => Authorization::Absent,
                Some(None) => Authorization::Duplicate,
                Some(Some(value)) => Authorization::Present(Secret::new(value.as_bytes().to_vec())),
            },
            is_operator: self
                .operator
                .as_ref()
                .is_some_and(|token| token.authorize(head)),
            if_none_match: (!lists.is_empty()).then(|| lists.join(&b","[..]).into()),
            if_modified_since: one(header::IF_MODIFIED_SINCE),
            accept: one(header::ACCEPT),
            signature: Signature::of(all(&self.signature_header)),
            media_type: media_type(head),
        }
    }
}

impl RequestParts {
    /// Refuses a body, unless it is empty or an empty JSON object.
    ///
    /// # Errors
    /// Returns `unsupported_media_type` or `invalid_request`.
    pub fn no_body(&self, body: &[u8]) -> Result<(), Refusal> {
        within_size(body.len(), MAX_OTHER_BODY)?;
        if body.is_empty() {
            return Ok(());
        }
        if self.media_type != MediaType::Json {
            return Err(not_json());
        }
        let space = |byte: &u8| matches!(byte, b' ' | b'\t' | b'\r' | b'\n');
        if body.iter().filter(|byte| !space(byte)).eq(b"{}") {
            return Ok(());
        }
        Err(Refusal::new(
            Reason::InvalidRequest,
            "the body must be empty or {}",
        ))
    }
}

enum Route {
    Health,
    Preflight,
    Call(Function),
}

fn route(head: &Head<'_>) -> Result<Route, Refusal> {
    if let Some(function) = Function::at(head.target) {
        allowed_method(head, function.methods())?;
        if head.method == "OPTIONS" {
            return framing(head).map(|()| Route::Preflight);
        }
        return Ok(Route::Call(function));
    }
    match split_target(head.target).0 {
        b"/healthz" => {
            allowed_method(head, "GET, HEAD")?;
            framing(head).map(|()| Route::Health)
        }
        path if path.starts_with(b"/xrpc/") => {
            let message = "this XRPC method is not served";
            Err(Refusal::new(Reason::UnknownMethod, message))
        }
        _ => Err(Refusal::new(Reason::NotFound, "no such function")),
    }
}

/// The path, and what follows the first `?`.
fn split_target(target: &[u8]) -> (&[u8], &[u8]) {
    let mut parts = target.splitn(2, |byte| *byte == b'?');
    (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    )
}
