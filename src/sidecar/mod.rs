//! The service endpoints: feeds, podcasts, search discovery, health, age verification.
//!
//! In: a call whose head passed the policy, and its body. Out: a [`Reply`], or why there is none.
//! Content is read from the store, where the product's backend wrote it; only age verification
//! writes. Absolute addresses come from the configuration, never from a request, and documents are
//! made of stored data alone, so that the same data is the same bytes.
//!
//! One file per function, named as its path; then what they share: `query.rs`, `cursor.rs`,
//! `document.rs`, `xml.rs`, [`fetch`], and [`auth`]: who asks.

mod age_verification_session;
mod age_verifier_webhook;
pub mod auth;
mod cursor;
mod describe_feed_generator;
mod document;
pub mod fetch;
mod get_feed_skeleton;
mod health_check;
mod podcast;
mod podcast_rss_feed;
mod query;
mod seo_robots;
mod seo_sitemap;
mod settings;
mod sitemap;
mod xml;

pub use settings::Settings;

use crate::config::SidecarConfig;
use crate::http::clients::Clients;
use crate::reply::Reply;
use crate::store::clock::{micros, now_us};
use crate::store::{Store, StoreError};
use crate::telemetry::Metrics;
use arc_swap::ArcSwap;
use document::Document;
use pingora_limits::inflight::Guard;
use podcast_rss_feed::Podcasts;
use portcullis_filters::head::Head;
use portcullis_filters::policy::{Asked, Function, SidecarAdmission};
use portcullis_filters::verdict::{Reason, Refusal};
use std::borrow::Cow;
use std::sync::Arc;
use tokio::runtime::Handle;
use tokio::time::Instant;

/// The sidecar's policy and state.
pub struct Sidecar {
    settings: ArcSwap<Settings>,
    clients: Clients,
    podcasts: Podcasts,
    store: Arc<Store>,
    metrics: Arc<Metrics>,
    runtime: Handle,
}

/// What a sidecar is made of.
pub struct Parts {
    /// What it can change while it runs.
    pub settings: Settings,
    /// What is kept.
    pub store: Arc<Store>,
    /// The metrics.
    pub metrics: Arc<Metrics>,
    /// Where what outlives its request runs.
    pub runtime: Handle,
}

/// Why there is no answer, and how it is told.
#[derive(Debug)]
pub struct Refused {
    /// Why.
    pub refusal: Refusal,
    /// When to come again, in seconds, if it is known.
    pub retry_after: Option<u32>,
    /// Whether it is one user's matter, in which no cache may take part.
    pub is_personal: bool,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self { refusal, retry_after: None, is_personal: false }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        log::error!("store: {error}");
        refused(Reason::StoreUnavailable, "the store does not answer: try again")
    }
}

fn refused(reason: Reason, message: impl Into<Cow<'static, str>>) -> Refused {
    Refusal::new(reason, message).into()
}

impl Sidecar {
    /// A sidecar as configured.
    pub fn new(config: &SidecarConfig, parts: Parts) -> Self {
        let Parts { settings, store, metrics, runtime } = parts;
        Self {
            clients: Clients::new(&settings.limits, &config.clients),
            settings: ArcSwap::from_pointee(settings),
            podcasts: Podcasts::new(),
            store,
            metrics,
            runtime,
        }
    }

    /// The settings in force.
    pub fn settings(&self) -> Arc<Settings> {
        self.settings.load_full()
    }

    /// Takes over other settings, for the requests to come.
    pub fn change(&self, mut settings: Settings) {
        settings.auth.keep(&self.settings().auth);
        self.clients.change(&settings.limits);
        self.settings.store(Arc::new(settings));
    }

    /// Judges a head that came at `now`.
    pub fn admit(
        &self,
        settings: &Settings,
        head: &Head<'_>,
        now: Instant,
    ) -> SidecarAdmission<Guard> {
        let enter = |client| self.clients.enter(client, &settings.limits);
        settings.policy.admit(head, self.clients.limiter(), self.clients.millis(now), enter)
    }

    /// Answers a call.
    ///
    /// # Errors
    /// Why there is no answer.
    pub async fn answer(
        &self,
        settings: &Settings,
        function: Function,
        asked: &Asked,
        body: &[u8],
    ) -> Result<Reply, Refused> {
        match function {
            Function::DescribeFeedGenerator => Ok(describe_feed_generator::answer(settings)),
            Function::DidDocument => describe_feed_generator::did_document(settings),
            Function::GetFeedSkeleton => self.get_feed_skeleton(settings, asked).await,
            Function::PodcastRssFeed => self.podcast_rss_feed(settings, asked).await,
            Function::SeoSitemap => self.seo_sitemap(settings, asked).await,
            Function::SeoRobots => Ok(document_reply(&settings.robots, asked, HOUR)),
            Function::HealthCheck => Ok(self.health_check(settings, asked).await),
            Function::AgeVerificationSession => {
                self.age_verification_session(settings, asked, body).await
            }
            Function::AgeVerifierWebhook => self.age_verifier_webhook(settings, asked, body).await,
        }
    }

    /// Its clients.
    pub fn clients(&self) -> &Clients {
        &self.clients
    }
}

/// The contract's lifetime of what changes rarely.
const HOUR: &str = "public, max-age=3600";

/// A document, or that it is what the client has.
fn document_reply(
    document: &Document,
    asked: &Asked,
    cache_control: impl Into<Cow<'static, str>>,
) -> Reply {
    let Document { body, media_type, etag, modified_us } = document;
    let mut reply = validated(asked, cache_control, etag, *modified_us);
    if reply.status == 200 {
        reply.media_type = Some(media_type);
        reply.body = body.clone().into();
    }
    reply
}

/// The head of an answer that can be asked for again: 304 when the client has it. RFC 9110,
/// sections 13 and 15.4.5.
fn validated(
    asked: &Asked,
    cache_control: impl Into<Cow<'static, str>>,
    etag: &str,
    modified_us: Option<i64>,
) -> Reply {
    let [if_none_match, since] = [&asked.if_none_match, &asked.if_modified_since]
        .map(|field| field.as_deref().and_then(|value| str::from_utf8(value).ok()));
    let unchanged = document::is_unchanged(if_none_match, since, etag, modified_us);
    let mut reply = Reply {
        status: if unchanged { 304 } else { 200 },
        cache_control: Some(cache_control.into()),
        ..Reply::default()
    };
    reply.field("etag", etag);
    if let Some(us) = modified_us {
        reply.field("last-modified", document::http_date(us));
    }
    reply
}
