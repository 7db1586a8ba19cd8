//! The service endpoints: feeds, podcasts, search discovery, health checks, age verification.
//!
//! In: a call whose head passed the policy, and its body. Out: a [`Reply`], or a refusal. Content
//! comes from the store, where the product's backend writes it; only age verification writes.
//! Absolute URLs are built from the configuration, never from a request, and documents depend on
//! stored data alone, so that equal data gives equal bytes.
//!
//! One file per function, named after its path; shared code is in `query.rs`, `cursor.rs`,
//! `document.rs`, `skipped.rs`, `xml.rs` and `auth/`. Public items have their tests in
//! `tests/it/sidecar`.

mod age_verification_session;
mod age_verifier_webhook;
pub mod auth;
mod cursor;
mod describe_feed_generator;
pub mod document;
mod get_feed_skeleton;
mod health_check;
mod hub;
pub mod podcast;
mod podcast_rss_feed;
mod query;
pub mod seo_robots;
pub mod seo_sitemap;
mod settings;
pub mod skipped;
mod turns;
pub mod xml;

pub use hub::HubPings;
pub use settings::Settings;

use crate::http::clients::Running;
use crate::reply::Reply;
use age_verifier_webhook::Recorder;
use podcast_rss_feed::Podcasts;
use portcullis_base::config::SidecarConfig;
use portcullis_base::io::shared::Aborted;
use portcullis_base::io::{MemoryPermit, MemoryPool, cold};
use portcullis_base::telemetry::Metrics;
use portcullis_filters::policy::{Function, RequestParts};
use portcullis_filters::verdict::{Reason, Refusal};
use portcullis_store::{Store, StoreError};
use std::borrow::Cow;
use std::sync::Arc;
use tokio::runtime::Handle;

/// 64 MiB of documents: one client holds at most a quarter, which is more than the largest page of
/// a feed.
const DOCUMENTS: usize = 64 << 20;

/// The sidecar's policy and state.
pub struct Sidecar {
    /// The settings in force, and the clients.
    pub running: Running<Settings>,
    /// The memory of documents that are cached, or that clients have not read.
    pub documents: Arc<MemoryPool>,
    podcasts: Podcasts,
    store: Arc<Store>,
    metrics: Arc<Metrics>,
    runtime: Handle,
}

/// A refusal, and how it is sent.
#[derive(Debug)]
pub struct Refused {
    /// The reason and its message.
    pub refusal: Refusal,
    /// Whether the response concerns one user, so that no cache may store it.
    pub is_personal: bool,
}

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self {
            refusal,
            is_personal: false,
        }
    }
}

impl From<StoreError> for Refused {
    fn from(error: StoreError) -> Self {
        error.log();
        refused(
            Reason::StoreUnavailable,
            "the store does not answer: try again",
        )
    }
}

impl From<Aborted> for Refused {
    fn from(_: Aborted) -> Self {
        refused(Reason::Overloaded, "this cannot be computed now: try again")
    }
}

fn refused(reason: Reason, message: impl Into<Cow<'static, str>>) -> Refused {
    Refusal::new(reason, message).into()
}

impl Sidecar {
    /// A sidecar with this configuration. Work that outlives its request runs on `runtime`.
    pub fn new(
        config: &SidecarConfig,
        settings: Settings,
        store: Arc<Store>,
        metrics: Arc<Metrics>,
        runtime: Handle,
    ) -> Self {
        let documents = MemoryPool::new(DOCUMENTS);
        Self {
            running: Running::new(settings, &config.clients),
            podcasts: Podcasts::new(&metrics, &documents),
            documents,
            store,
            metrics,
            runtime,
        }
    }

    /// Applies other settings to the requests that follow.
    pub fn change(&self, mut settings: Settings) {
        settings.auth.adopt_cache(&self.running.settings().auth);
        self.running.change(settings);
        self.check_robots();
    }

    /// Warns of rules for crawlers that forbid pages of the sitemap, once the store answers.
    pub fn check_robots(&self) {
        let settings = self.running.settings();
        let store = Arc::clone(&self.store);
        self.runtime.spawn(async move {
            match seo_robots::conflicts(store.sitemap(), &settings.live).await {
                Ok(warnings) => {
                    for warning in warnings {
                        log::warn!("{ROBOTS_KEY}: {warning}");
                    }
                }
                Err(error) => log::debug!("cannot compare robots.txt with the sitemap: {error}"),
            }
        });
    }

    /// Answers a call.
    ///
    /// # Errors
    /// Returns the refusal.
    pub async fn answer(
        &self,
        settings: &Settings,
        request: &RequestParts,
        body: &[u8],
    ) -> Result<Reply, Refused> {
        let Self {
            store,
            metrics,
            runtime,
            ..
        } = self;
        match request.function {
            Function::DescribeFeedGenerator => Ok(describe_feed_generator::answer(settings)),
            Function::DidDocument => describe_feed_generator::did_document(settings),
            Function::XrpcHealth => Ok(describe_feed_generator::health()),
            Function::GetFeedSkeleton | Function::PodcastRssFeed | Function::SeoSitemap => {
                self.content(settings, request).await
            }
            Function::SeoRobots => Ok(settings.robots.reply(request, HOUR)),
            Function::HealthCheck => settings.health.answer(store, metrics, request).await,
            Function::AgeVerificationSession => {
                cold(age_verification_session::answer(
                    store, settings, request, body,
                ))
                .await
            }
            Function::AgeVerifierWebhook => {
                let recorder = Recorder {
                    store,
                    metrics,
                    runtime,
                };
                recorder.answer(settings, request, body).await
            }
        }
    }
}

impl Sidecar {
    /// Serves stored content from the replica or, if that is unavailable, from the primary.
    async fn content(&self, settings: &Settings, request: &RequestParts) -> Result<Reply, Refused> {
        if let Some(replica) = self.store.replica() {
            match self.content_of(replica, settings, request).await {
                Err(error) if error.refusal.reason == Reason::StoreUnavailable => {
                    self.store.suspend_replica();
                }
                answer => return answer,
            }
        }
        self.content_of(&self.store, settings, request).await
    }

    async fn content_of(
        &self,
        store: &Arc<Store>,
        settings: &Settings,
        request: &RequestParts,
    ) -> Result<Reply, Refused> {
        let metrics = &self.metrics;
        match request.function {
            Function::GetFeedSkeleton => {
                get_feed_skeleton::answer(store, metrics, settings, request).await
            }
            Function::PodcastRssFeed => self.podcasts.answer(store, settings, request).await,
            // boxed, since its future would enlarge that of every request
            _ => {
                let share = self.running.clients().answers_of(request.client);
                let memory = MemoryPermit::for_client(&self.documents, Some(share));
                cold(seo_sitemap::answer(
                    store, metrics, settings, request, memory,
                ))
                .await
            }
        }
    }
}

/// The key whose rules may forbid pages of the sitemap.
pub const ROBOTS_KEY: &str = "sidecar.robots.disallow";

/// `Cache-Control` of documents that rarely change.
const HOUR: &str = "public, max-age=3600";
