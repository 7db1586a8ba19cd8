//! WebSub: pings a hub when episodes of a podcast appear or change, so that apps need not poll.
//!
//! In: the changes in the store, and the hub's answers. Out: `hub.mode=publish` requests, one at a
//! time, to the operator's URL; redirects are not followed. `portcullis_filters::websub` decides
//! which feeds are due, and repeats what failed. A ping names a feed and says nothing else.

use super::Sidecar;
use super::podcast::feed_url;
use super::xml::percent_encoded;
use async_trait::async_trait;
use bytes::Bytes;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use portcullis_base::fetch::{self, Post};
use portcullis_base::io::clock::now_us;
use portcullis_base::secrets::chance::drawn;
use portcullis_filters::post::Answer;
use portcullis_filters::websub::{Announcements, LOOK_BACK_US, MAX_FEEDS, PingOutcome};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::time::sleep;

/// Time between two queries of the store. Without a hub, apps poll every five minutes.
const INTERVAL: Duration = Duration::from_secs(10);
/// Timeout of a ping: hubs fetch the feed afterwards.
const TIMEOUT: Duration = Duration::from_secs(5);
/// The encoding of a ping.
const FORM: &str = "application/x-www-form-urlencoded";

/// The task that pings the hub.
pub struct HubPings {
    sidecar: Arc<Sidecar>,
    /// Whether the last ping failed: only the first failure in a row is a warning.
    has_failed: AtomicBool,
}

#[async_trait]
impl BackgroundService for HubPings {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        tokio::select! {
            _ = shutdown.changed() => {}
            () = self.run() => {}
        }
    }
}

impl HubPings {
    /// Pings the hub of this sidecar's settings, if they name one.
    pub fn new(sidecar: Arc<Sidecar>) -> Self {
        Self {
            sidecar,
            has_failed: AtomicBool::new(false),
        }
    }

    async fn run(&self) {
        let mut known_hub = None;
        let mut announcements = Announcements::default();
        loop {
            let hub = self
                .sidecar
                .running
                .settings()
                .live
                .podcasts
                .hub_url
                .clone();
            if hub != known_hub {
                // another hub knows nothing yet
                announcements = Announcements::default();
            }
            if let Some(hub) = &hub {
                self.round(hub, &mut announcements).await;
            }
            known_hub = hub;
            sleep(INTERVAL).await;
        }
    }

    async fn round(&self, hub: &str, announcements: &mut Announcements) {
        // what a feed shows, and not more
        let store = self.sidecar.store.replica();
        let store = store.unwrap_or(&self.sidecar.store);
        let now = now_us();
        let podcasts = store.podcasts();
        match podcasts.changed(now - LOOK_BACK_US, now, MAX_FEEDS).await {
            Ok(changed) => announcements.observe(changed, now),
            Err(error) => log::debug!("cannot read which episodes appeared: {error}"),
        }
        for did in announcements.due(now) {
            self.ping(hub, &did, announcements).await;
        }
    }

    async fn ping(&self, hub: &str, did: &str, announcements: &mut Announcements) {
        let settings = self.sidecar.running.settings();
        let feed = feed_url(&settings.live.base_url, did);
        let post = Post {
            media_type: FORM,
            headers: Vec::new(),
            body: publication(&feed),
        };
        let answer = fetch::post(hub, post, TIMEOUT).await;
        let (answer, cause) = match answer {
            Ok(status) => (Answer::Status(status), format!("status {status}")),
            Err(error) => (Answer::None, error.to_string()),
        };
        let outcome = announcements.conclude(did, answer, now_us(), drawn());
        self.sidecar.metrics.sidecar.hub_ping(outcome);
        let has_failed = outcome != PingOutcome::Accepted;
        let had_failed = self.has_failed.swap(has_failed, Ordering::Relaxed);
        match outcome {
            PingOutcome::Accepted => log::info!(hub, feed; "hub pinged"),
            PingOutcome::Failed if had_failed => log::debug!(hub, feed, cause; "hub not pinged"),
            PingOutcome::Failed => {
                log::warn!(hub, feed, cause; "hub not pinged: the ping is repeated");
            }
            PingOutcome::GivenUp => {
                log::warn!(hub, feed, cause; "hub not pinged: apps find the change when they poll");
            }
        }
    }
}

/// The body of a ping. Hubs read one of both names, the older ones `hub.url`.
fn publication(feed: &str) -> Bytes {
    let topic = percent_encoded(feed, |_, byte| byte.is_ascii_alphanumeric());
    format!("hub.mode=publish&hub.topic={topic}&hub.url={topic}").into()
}
