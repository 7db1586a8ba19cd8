//! `podcast-rss-feed`: a creator's podcast, by DID or by handle.
//!
//! Both return the same bytes, with the DID in the feed's own URL, since a handle can change its
//! owner. A feed of more than 300 episodes, or of more than some megabytes, has pages that link to
//! each other (RFC 5005, section 3). A few pages are rendered concurrently, outside of the runtime,
//! in memory from a pool. A rendered page is cached for some seconds, since many apps request the
//! same one. [`super::podcast`] renders it.

use super::document::Document;
use super::podcast::{self, Feed, clear_episode, clear_podcast};
use super::query::{Query, invalid};
use super::skipped::Skipped;
use super::turns::{Turn, Turns};
use super::{Refused, Settings, refused};
use crate::reply::Reply;
use portcullis_base::config::SidecarLive;
use portcullis_base::io::clock::now_us;
use portcullis_base::io::cores;
use portcullis_base::io::shared::Shared;
use portcullis_base::io::{MemoryPermit, MemoryPool};
use portcullis_base::telemetry::Metrics;
use portcullis_filters::client::ClientKey;
use portcullis_filters::policy::{Function, RequestParts};
use portcullis_filters::verdict::{Reason, Refusal};
use portcullis_store::{Account, AccountStatus, Episode, Podcast, Store};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Five minutes: the contract's lifetime.
const MAX_AGE: i64 = 300;
/// How long a rendered feed is cached, also after it was taken down.
const CACHED: Duration = Duration::from_secs(10);
/// How long an internal failure is cached, so that requests do not wait for it one after another.
const FAILURE_CACHED: Duration = Duration::from_secs(1);
/// Pages that are read and rendered concurrently: each takes some megabytes before it takes memory
/// from the pool. One client gets half of them at most.
const MAX_RENDERING: usize = 4;
/// Bytes of a page besides its texts, for each episode.
const ITEM: usize = 1 << 10;

/// A page: the creator's DID, the page number, and whether a replica is read: its failures are not
/// those of the primary.
type Key = (String, u32, bool);
/// Rendered pages.
type Pages = Shared<Key, Result<Arc<Rendered>, Refusal>>;

/// The pages of feeds.
pub(super) struct Podcasts {
    pages: Pages,
    renderer: Arc<Renderer>,
}

/// Renders pages, a few concurrently.
struct Renderer {
    metrics: Arc<Metrics>,
    /// The memory of all pages that are cached or being read by a client.
    memory: Arc<MemoryPool>,
    turns: Arc<Turns>,
}

/// A page of a feed, and when its next episode appears.
struct Rendered {
    document: Document,
    /// The value of `Link`.
    links: String,
    /// The feed's URL elsewhere, if the podcast moved.
    moved_to: Option<String>,
    next_publication_us: Option<i64>,
}

impl Podcasts {
    /// Renders into this memory, half of which is for cached pages.
    pub(super) fn new(metrics: &Arc<Metrics>, memory: &Arc<MemoryPool>) -> Self {
        let pages = Pages::new(memory.size() / 2, |page| {
            let body = page.as_ref().map_or(0, |page| page.document.body.len());
            // and at most as much for its gzip form
            2 * body + size_of::<Rendered>()
        });
        let renderer = Renderer {
            metrics: Arc::clone(metrics),
            memory: Arc::clone(memory),
            turns: Turns::equal(MAX_RENDERING),
        };
        Self {
            pages,
            renderer: Arc::new(renderer),
        }
    }

    pub(super) async fn answer(
        &self,
        store: &Arc<Store>,
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
        let turn = self.turn(&key, request.client).await?;
        let live = settings.live.clone();
        let (store, renderer) = (Arc::clone(store), Arc::clone(&self.renderer));
        let render = async move {
            let started = Instant::now();
            let _turn = turn;
            let feed = renderer.render(&store, did, page, live).await;
            let feed = feed.map(Arc::new).map_err(|refused| refused.refusal);
            // it is fresh from now on, however long it took
            let lifetime = lifetime(&feed).map_or(Duration::ZERO, |it| started.elapsed() + it);
            (feed, lifetime)
        };
        let feed = self.pages.get(key, render).await??;
        if settings.live.podcasts.redirect_moved
            && let Some(url) = &feed.moved_to
        {
            return Ok(moved(url));
        }
        let age = max_age(now_us(), feed.next_publication_us);
        let cache_control = format!("public, max-age={age}, stale-if-error=86400");
        let mut reply = feed.document.reply(request, cache_control);
        reply.field("link", feed.links.clone());
        Ok(reply)
    }

    /// The client's turn to render this page; `None` if that is not needed. It is taken before
    /// others join the rendering, so that nobody else waits for it.
    async fn turn(&self, page: &Key, client: ClientKey) -> Result<Option<Turn>, Refused> {
        if self.pages.is_known(page) {
            return Ok(None);
        }
        let turn = self.renderer.turns.take(client).await;
        turn.map(Some).ok_or_else(busy)
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

/// How long a result is cached, if it is: until the next episode appears at the latest.
fn lifetime(feed: &Result<Arc<Rendered>, Refusal>) -> Option<Duration> {
    match feed {
        Ok(feed) => {
            let Some(next) = feed.next_publication_us else {
                return Some(CACHED);
            };
            let left = next.saturating_sub(now_us()).max(0);
            Some(CACHED.min(Duration::from_micros(left.unsigned_abs())))
        }
        Err(refusal) if refusal.reason.is_failure() => Some(FAILURE_CACHED),
        Err(_) => None,
    }
}

/// The stored data of a page.
struct Stored {
    account: Option<Account>,
    podcast: Podcast,
    episodes: Vec<Episode>,
    /// The number of the page and that of the last one.
    pages: (u32, u32),
    changed_us: Option<i64>,
    next_publication_us: Option<i64>,
}

impl Renderer {
    async fn render(
        &self,
        store: &Store,
        did: String,
        page: u32,
        live: SidecarLive,
    ) -> Result<Rendered, Refused> {
        let mut stored = Stored::read(store, &did, page).await?;
        stored
            .clear_unfit()
            .report(&self.metrics, Function::PodcastRssFeed);
        let texts = stored.episodes.iter();
        let length = texts.map(|one| ITEM + one.description_html.len()).sum();
        let rendered = cores::run(length, move || stored.render(&live)).await;
        let mut rendered = rendered.ok_or_else(busy)?;
        let mut memory = MemoryPermit::of(&self.memory);
        memory
            .reserve(rendered.document.body.len())
            .map_err(|_| busy())?;
        rendered.document.memory = Some(Arc::new(memory));
        Ok(rendered)
    }
}

impl Stored {
    async fn read(store: &Store, did: &str, page: u32) -> Result<Self, Refused> {
        let account = store.accounts().by_did(did).await?;
        let podcast = store.podcasts().get(did).await?.ok_or_else(unknown)?;
        let status = account.as_ref().map(|account| account.status);
        if podcast.taken_down || status.is_some_and(|status| status != AccountStatus::Active) {
            return Err(refused(Reason::Gone, "this podcast was taken down"));
        }
        let now = now_us();
        let next_publication_us = store.podcasts().next_publication(did, now).await?;
        let published = store.podcasts().published(did, now).await?;
        if page > published.pages {
            return Err(refused(Reason::NotFound, "this feed has no such page"));
        }
        let episodes = store.podcasts().episodes(did, now, page).await?;
        Ok(Self {
            account,
            podcast,
            episodes,
            pages: (page, published.pages),
            changed_us: published.changed_us,
            next_publication_us,
        })
    }

    fn render(&self, live: &SidecarLive) -> Rendered {
        let feed = Feed {
            podcast: &self.podcast,
            episodes: &self.episodes,
            pages: self.pages,
            changed_us: self.changed_us,
            handle: self
                .account
                .as_ref()
                .and_then(|account| account.handle.as_deref()),
            base_url: &live.base_url,
            hub_url: live.podcasts.hub_url.as_deref(),
        };
        Rendered {
            moved_to: moved_to(&feed).map(str::to_owned),
            document: podcast::render(&feed),
            links: links(&feed),
            next_publication_us: self.next_publication_us,
        }
    }

    /// Removes the episodes that no app could play, and the members that a feed must not show.
    /// Returns them.
    fn clear_unfit(&mut self) -> Skipped {
        let mut skipped = Skipped::default();
        clear_podcast(&mut self.podcast);
        for column in &self.podcast.malformed {
            skipped.add(format_args!("podcast {} {column}", self.podcast.did));
        }
        self.episodes.retain_mut(|episode| {
            let is_playable = clear_episode(episode);
            for column in &episode.malformed {
                skipped.add(format_args!("episode {} {column}", episode.id));
            }
            is_playable
        });
        skipped
    }
}

/// The page's own URL and its hub, for the apps that read headers alone (WebSub, section 4).
fn links(feed: &Feed<'_>) -> String {
    let own = format!("<{}>; rel=\"self\"", feed.url());
    match feed.hub() {
        Some(hub) => format!("{own}, <{hub}>; rel=\"hub\""),
        None => own,
    }
}

/// The new URL of a podcast that moved. A feed that names itself as the new one has just arrived:
/// a redirect would lead nowhere.
fn moved_to<'a>(feed: &Feed<'a>) -> Option<&'a str> {
    let url = feed.podcast.new_feed_url.as_deref()?;
    let is_here = url
        .strip_prefix(feed.base_url)
        .is_some_and(|rest| rest.starts_with('/'));
    if is_here { None } else { Some(url) }
}

/// A permanent redirect, which apps follow from then on.
fn moved(url: &str) -> Reply {
    let mut reply = Reply::text(301, "the podcast moved\n");
    reply.cache_control = Some(format!("public, max-age={MAX_AGE}, stale-if-error=86400").into());
    reply.field("location", url.to_owned());
    reply
}

fn busy() -> Refused {
    refused(Reason::Overloaded, "too many feeds are rendered: try again")
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
