//! `podcast-rss-feed`: a creator's podcast, by DID or by handle.
//!
//! Both return the same bytes, with the DID in the feed's own URL, since a handle can change its
//! owner. A feed of more than 300 episodes has pages that link to each other (RFC 5005, section 3).
//! A rendered feed is cached for some seconds, since many apps request the same one.
//! [`super::podcast`] renders it.

use super::document::Document;
use super::podcast::{self, Feed};
use super::query::{Query, invalid};
use super::skipped::Skipped;
use super::xml::url;
use super::{Refused, Settings, refused};
use crate::io::clock::now_us;
use crate::io::shared::Shared;
use crate::reply::Reply;
use crate::store::syntax::is_url;
use crate::store::{Account, AccountStatus, Episode, Podcast, Store};
use crate::telemetry::Metrics;
use portcullis_filters::policy::{Function, RequestParts};
use portcullis_filters::verdict::{Reason, Refusal};
use std::sync::Arc;
use std::time::Duration;

/// Five minutes: the contract's lifetime.
const MAX_AGE: i64 = 300;
/// How long a rendered feed is cached, also after it was taken down.
const CACHED: Duration = Duration::from_secs(10);
/// How long an internal failure is cached, so that requests do not wait for it one after another.
const FAILURE_CACHED: Duration = Duration::from_secs(1);
/// Episodes of one page: directories read no more of a feed.
const PAGE: u32 = 300;
/// 64 MiB of feeds, plain and in gzip: about fifty of the largest.
const MAX_CACHE: usize = 64 << 20;

/// Rendered pages by the creator's DID, the page number, and whether a replica was read: its
/// failures are not those of the primary.
pub(super) struct Podcasts(Shared<(String, u32, bool), Result<Arc<Rendered>, Refusal>>);

/// A page of a feed, and when its next episode appears.
struct Rendered {
    document: Document,
    url: String,
    next_publication_us: Option<i64>,
}

impl Podcasts {
    pub(super) fn new() -> Self {
        Self(Shared::new(MAX_CACHE, |feed| {
            let body = feed.as_ref().map_or(0, |feed| feed.document.body.len());
            // and at most as much for its gzip form
            2 * body + size_of::<Rendered>()
        }))
    }

    pub(super) async fn answer(
        &self,
        store: &Arc<Store>,
        metrics: &Arc<Metrics>,
        settings: &Settings,
        request: &RequestParts,
    ) -> Result<Reply, Refused> {
        let query = Query::parse(&request.query);
        let (did, handle) = (query.one("did")?, query.one("handle")?);
        let handle = handle.map(|text| text.strip_prefix('@').unwrap_or(text).to_lowercase());
        let did = match (did, handle) {
            (None, None) => return Err(invalid("did or handle is missing")),
            (Some(did), None) => did.to_owned(),
            (did, Some(handle)) => {
                let account = store
                    .accounts()
                    .by_handle(&handle)
                    .await?
                    .ok_or_else(unknown)?;
                let own = account.did.ok_or_else(unknown)?;
                if did.is_some_and(|did| did != own) {
                    return Err(invalid("did and handle belong to two creators"));
                }
                own
            }
        };
        let page = page(&query)?;
        let key = (did.clone(), page, store.is_replica());
        let base_url = settings.config.base_url.clone();
        let (store, metrics) = (Arc::clone(store), Arc::clone(metrics));
        let render = async move {
            let feed = render(&store, &metrics, &did, page, &base_url).await;
            let feed = feed.map(Arc::new).map_err(|refused| refused.refusal);
            let lifetime = lifetime(&feed);
            (feed, lifetime)
        };
        let feed = self.0.get(key, render).await??;
        let age = max_age(now_us(), feed.next_publication_us);
        let cache_control = format!("public, max-age={age}, stale-if-error=86400");
        let mut reply = feed.document.reply(request, cache_control);
        reply.field("link", format!("<{}>; rel=\"self\"", feed.url));
        Ok(reply)
    }
}

/// The number of the requested page. Only one spelling is accepted: `01` is refused.
fn page(query: &Query) -> Result<u32, Refused> {
    let Some(text) = query.one("page")? else {
        return Ok(1);
    };
    let page = text
        .parse()
        .ok()
        .filter(|page: &u64| *page > 0 && page.to_string() == text);
    let page = page.map(|page| u32::try_from(page).unwrap_or(u32::MAX));
    page.ok_or_else(|| invalid("page must be 1 or more, as the feed's links name it"))
}

/// How long a result is cached: until the next episode appears at the latest.
fn lifetime(feed: &Result<Arc<Rendered>, Refusal>) -> Duration {
    match feed {
        Ok(feed) => feed.next_publication_us.map_or(CACHED, |next| {
            let left = next.saturating_sub(now_us()).max(0);
            CACHED.min(Duration::from_micros(left.unsigned_abs()))
        }),
        Err(refusal) if refusal.reason.is_failure() => FAILURE_CACHED,
        Err(_) => Duration::ZERO,
    }
}

async fn render(
    store: &Store,
    metrics: &Metrics,
    did: &str,
    page: u32,
    base_url: &str,
) -> Result<Rendered, Refused> {
    let account = store.accounts().by_did(did).await?;
    let podcast = store.podcasts().get(did).await?.ok_or_else(unknown)?;
    let is_gone = |account: &Account| account.status != AccountStatus::Active;
    if podcast.taken_down || account.as_ref().is_some_and(is_gone) {
        return Err(refused(Reason::Gone, "this podcast was taken down"));
    }
    let now = now_us();
    let next_publication_us = store.podcasts().next_publication(did, now).await?;
    let published = store.podcasts().published(did, now).await?;
    let pages = u32::try_from(published.count)
        .unwrap_or(u32::MAX)
        .div_ceil(PAGE)
        .max(1);
    if page > pages {
        return Err(refused(Reason::NotFound, "this feed has no such page"));
    }
    let skip = PAGE.saturating_mul(page - 1);
    let mut episodes = store.podcasts().episodes(did, now, PAGE, skip).await?;
    skip_malformed(&podcast, &mut episodes).report(metrics, Function::PodcastRssFeed);
    let feed = Feed {
        podcast: &podcast,
        episodes: &episodes,
        pages: (page, pages),
        changed_us: published.changed_us,
        handle: account
            .as_ref()
            .and_then(|account| account.handle.as_deref()),
        base_url,
    };
    Ok(Rendered {
        document: podcast::render(&feed),
        url: feed.url(),
        next_publication_us,
    })
}

/// Removes the episodes that no app could play. Returns them and the malformed members.
fn skip_malformed(podcast: &Podcast, episodes: &mut Vec<Episode>) -> Skipped {
    let mut skipped = Skipped::default();
    for column in &podcast.malformed {
        skipped.add(format_args!("podcast {} {column}", podcast.did));
    }
    episodes.retain(|episode| {
        let is_playable = is_url(&url(&episode.enclosure_url), &["https://", "http://"]);
        let lost = if is_playable {
            &*episode.malformed
        } else {
            &["enclosure_url"]
        };
        for column in lost {
            skipped.add(format_args!("episode {} {column}", episode.id));
        }
        is_playable
    });
    skipped
}

fn unknown() -> Refused {
    refused(Reason::NotFound, "no creator with a podcast has this name")
}

/// `max-age` in seconds: until the next episode appears at the latest.
fn max_age(now_us: i64, next_publication_us: Option<i64>) -> u32 {
    let next = next_publication_us.map_or(MAX_AGE, |next| {
        next.saturating_sub(now_us)
            .saturating_add(999_999)
            .div_euclid(1_000_000)
    });
    u32::try_from(next.clamp(1, MAX_AGE)).expect("it is 1 to 300")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn max_age_ends_with_the_next_episode() {
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
