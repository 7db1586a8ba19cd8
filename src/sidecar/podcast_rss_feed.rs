//! `podcast-rss-feed`: a creator's podcast, by DID or by handle.
//!
//! Both give the same bytes, with the DID in the feed's own address: handles change hands. A feed
//! that was made is kept for some seconds, since apps ask for the same one over and over. What is
//! in it: [`super::podcast`].

use super::document::Document;
use super::podcast::{self, Feed};
use super::query::{Query, invalid};
use super::{Refused, Settings, Sidecar, document_reply, now_us, refused};
use crate::reply::Reply;
use crate::store::{Account, AccountStatus};
use portcullis_filters::policy::Asked;
use portcullis_filters::verdict::{Reason, Refusal};
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Five minutes: the contract's lifetime.
const MAX_AGE: i64 = 300;
/// How long a feed that was made serves everybody, and a taken-down one is still told.
const KEPT: Duration = Duration::from_secs(10);
/// Episodes of one feed: directories read no more.
const MAX_EPISODES: u32 = 300;
/// 64 MiB of feeds, some hundred of the largest.
const MEMORY: u64 = 64 << 20;
/// Feeds that are expected in it.
const FEEDS: usize = 1_000;

/// How long a failure of ours does: whoever comes meanwhile need not wait for another.
const FAILURE_KEPT: Duration = Duration::from_secs(1);

/// Feeds that were made a short time ago, by their creators' DIDs, and why there is none.
pub(super) struct Podcasts(Cache<String, Arc<Attempt>, Bytes>);

/// What came of making a feed, and when.
struct Attempt {
    at: Instant,
    result: Result<Made, Refusal>,
}

/// A feed, and until when it is up to date.
struct Made {
    document: Document,
    address: String,
    next_publication_us: Option<i64>,
}

#[derive(Clone)]
struct Bytes;

impl Weighter<String, Arc<Attempt>> for Bytes {
    fn weight(&self, did: &String, attempt: &Arc<Attempt>) -> u64 {
        let body = attempt.result.as_ref().map_or(0, |made| made.document.body.len());
        (did.len() + body + size_of::<Attempt>()) as u64
    }
}

impl Podcasts {
    pub(super) fn new() -> Self {
        Self(Cache::with_weighter(FEEDS, MEMORY, Bytes))
    }
}

impl Attempt {
    fn is_fresh(&self) -> bool {
        match &self.result {
            Ok(made) => {
                let next = made.next_publication_us;
                self.at.elapsed() < KEPT && next.is_none_or(|next| next > now_us())
            }
            Err(refusal) => refusal.reason.is_failure() && self.at.elapsed() < FAILURE_KEPT,
        }
    }
}

impl Sidecar {
    pub(super) async fn podcast_rss_feed(
        &self,
        settings: &Settings,
        asked: &Asked,
    ) -> Result<Reply, Refused> {
        let query = Query::parse(&asked.query);
        let (did, handle) = (query.one("did")?, query.one("handle")?);
        let handle = handle.map(|text| text.strip_prefix('@').unwrap_or(text).to_lowercase());
        let attempt = match (did, handle.as_deref()) {
            (None, None) => return Err(invalid("did or handle is missing")),
            (Some(did), None) => self.attempt(settings, did).await,
            (did, Some(handle)) => {
                let account = self.store.account_of_handle(handle).await?.ok_or_else(unknown)?;
                let own = account.did.ok_or_else(unknown)?;
                if did.is_some_and(|did| did != own) {
                    return Err(invalid("did and handle are of two creators"));
                }
                self.attempt(settings, &own).await
            }
        };
        let made = attempt.result.as_ref().map_err(Clone::clone)?;
        let age = max_age(now_us(), made.next_publication_us);
        let cache_control = format!("public, max-age={age}, stale-if-error=86400");
        let mut reply = document_reply(&made.document, asked, cache_control);
        reply.field("link", format!("<{}>; rel=\"self\"", made.address));
        Ok(reply)
    }

    /// What came of making a creator's feed. One that is not kept is made once, however many ask.
    async fn attempt(&self, settings: &Settings, did: &str) -> Arc<Attempt> {
        let kept = &self.podcasts.0;
        kept.remove_if(did, |attempt| !attempt.is_fresh());
        match kept.get_value_or_guard_async(did).await {
            Ok(attempt) => attempt,
            Err(guard) => {
                let at = Instant::now();
                let result = self.make(settings, did).await.map_err(|refused| refused.refusal);
                let attempt = Arc::new(Attempt { at, result });
                // one that was removed meanwhile is made again for the next who asks
                let _ = guard.insert(Arc::clone(&attempt));
                attempt
            }
        }
    }

    async fn make(&self, settings: &Settings, did: &str) -> Result<Made, Refused> {
        let account = self.store.account_of_did(did).await?;
        let podcast = self.store.podcast(did).await?.ok_or_else(unknown)?;
        let is_gone = |account: &Account| account.status != AccountStatus::Active;
        if podcast.taken_down || account.as_ref().is_some_and(is_gone) {
            return Err(refused(Reason::Gone, "this podcast was taken down"));
        }
        let now = now_us();
        let next_publication_us = self.store.next_publication(did, now).await?;
        let episodes = self.store.episodes(did, now, MAX_EPISODES).await?;
        let feed = Feed {
            podcast: &podcast,
            episodes: &episodes,
            handle: account.as_ref().and_then(|account| account.handle.as_deref()),
            base_url: &settings.base_url,
        };
        let (document, address) = (podcast::render(&feed), feed.url());
        Ok(Made { document, address, next_publication_us })
    }
}

fn unknown() -> Refused {
    refused(Reason::NotFound, "no such creator has a podcast")
}

/// For how many seconds a feed may be kept: until the next episode is to appear at the latest.
fn max_age(now_us: i64, next_publication_us: Option<i64>) -> u32 {
    let next = next_publication_us.map_or(MAX_AGE, |next| {
        next.saturating_sub(now_us).saturating_add(999_999).div_euclid(1_000_000)
    });
    u32::try_from(next.clamp(1, MAX_AGE)).expect("it is 1 to 300")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_is_fresh_for_five_minutes_or_until_the_next_episode() {
        let now = 1_800_000_000_000_000;
        for (next, seconds, why) in [
            (None, 300, "nothing is scheduled"),
            (Some(now + 86_400_000_000), 300, "tomorrow"),
            (Some(now + 90_000_000), 90, "in 90 seconds"),
            (Some(now + 90_000_001), 91, "never before it appears"),
            (Some(now + 1), 1, "at once"),
            (Some(now), 1, "now"),
            (Some(i64::MIN), 1, "long ago"),
            (Some(i64::MAX), 300, "never"),
        ] {
            assert_eq!(max_age(now, next), seconds, "{why}");
        }
    }
}
