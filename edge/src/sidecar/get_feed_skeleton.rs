//! `getFeedSkeleton`: one page of a feed, newest first.
//!
//! A page starts where the previous one ended, so that no item repeats or is skipped while others
//! appear and disappear. The personal feed needs authentication. The lexicon:
//! <https://docs.bsky.app/docs/api/app-bsky-feed-get-feed-skeleton>.

use super::auth::Viewer;
use super::cursor::{self, Fingerprint};
use super::describe_feed_generator::{COLLECTION, PERSONAL, PUBLIC};
use super::query::{Query, invalid};
use super::skipped::Skipped;
use super::{Refused, Settings, refused};
use crate::reply::Reply;
use portcullis_base::config::FeedsLive;
use portcullis_base::io::clock::now_us;
use portcullis_base::telemetry::Metrics;
use portcullis_filters::policy::{Function, RequestParts};
use portcullis_filters::verdict::Reason;
use portcullis_store::syntax::{is_at_uri, is_did, is_record_key};
use portcullis_store::{
    AccountStatus, FeedItem, FeedQuery, Store, StoreError, Suggestion, SuggestionQuery,
};
use serde_json::{Value, json};
use std::time::SystemTime;

/// The method that a service token must name.
const LXM: &str = "app.bsky.feed.getFeedSkeleton";
/// How long shared caches may store public pages.
const PUBLIC_CACHE: &str = "public, max-age=30, s-maxage=30, stale-while-revalidate=60";
/// The lexicon's default and maximum of `limit`.
const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 100;
/// The maximum length of an at-uri: <https://atproto.com/specs/at-uri-scheme>.
const MAX_URI: usize = 8 << 10;
const MAX_SET: usize = 64;
const MAX_LABELS: usize = 10;
const MAX_LABEL: usize = 128;
/// Rows of each further query, which replaces malformed ones.
const REFILL: u32 = 1_000;
/// 7 days: suggestions that were not renewed for longer are not shown.
const SUGGESTIONS_LIVE_US: i64 = 7 * 24 * 3_600 * 1_000_000;

/// The parameters other than the feed.
struct Page {
    limit: u32,
    cursor: Option<String>,
    set: Option<String>,
    labels: Vec<String>,
}

pub(super) async fn answer(
    store: &Store,
    metrics: &Metrics,
    settings: &Settings,
    request: &RequestParts,
) -> Result<Reply, Refused> {
    let query = Query::parse(&request.query);
    let feeds = &settings.live.feeds;
    let feed = feed(&query, feeds)?;
    if feed == PERSONAL {
        let reply = personal_feed(store, metrics, settings, request, &query).await;
        return reply.map_err(|refused| Refused {
            is_personal: true,
            ..refused
        });
    }
    let Page {
        limit,
        cursor,
        set,
        labels,
    } = page(&query)?;
    let set_text = set.as_deref().unwrap_or_default();
    let texts = [feed, set_text]
        .into_iter()
        .chain(labels.iter().map(String::as_str));
    let fingerprint = cursor::fingerprint(texts);
    let after = position(fingerprint, cursor.as_deref())?;
    let query = FeedQuery {
        feed,
        set: set.as_deref(),
        labels: &labels,
        blocked: &feeds.blocked_labels,
        after: after
            .as_ref()
            .map(|(sort_us, uri)| (*sort_us, uri.as_str())),
        limit: limit + 1,
    };
    let mut skipped = Skipped::default();
    let mut items = posts(store, query, &mut skipped).await?;
    skipped.report(metrics, Function::GetFeedSkeleton);
    let end = cut(&mut items, limit);
    let end = end.map(|item| cursor::write(fingerprint, item.sort_us, &item.post_uri));
    let items = items
        .into_iter()
        .map(|item| json!({ "post": item.post_uri }))
        .collect();
    Ok(Reply {
        cache_control: Some(PUBLIC_CACHE.into()),
        ..skeleton(items, end)
    })
}

async fn personal_feed(
    store: &Store,
    metrics: &Metrics,
    settings: &Settings,
    request: &RequestParts,
    query: &Query,
) -> Result<Reply, Refused> {
    let did = viewer(store, settings, request).await?;
    let Page { limit, cursor, .. } = page(query)?;
    let fingerprint = cursor::fingerprint([PERSONAL, &did]);
    let after = match position(fingerprint, cursor.as_deref())? {
        None => None,
        Some((snapshot, rank)) => Some((
            snapshot,
            rank.parse()
                .map_err(|_| invalid("cursor is not of this feed"))?,
        )),
    };
    let query = SuggestionQuery {
        viewer_did: &did,
        blocked: &settings.live.feeds.blocked_labels,
        after,
        newer_than_us: now_us().saturating_sub(SUGGESTIONS_LIVE_US),
        limit: limit + 1,
    };
    let mut skipped = Skipped::default();
    let (snapshot, mut items) = suggestions(store, query, &mut skipped).await?;
    skipped.report(metrics, Function::GetFeedSkeleton);
    let end = cut(&mut items, limit);
    let end = end.map(|item| cursor::write(fingerprint, snapshot, &item.rank.to_string()));
    // a feed holds posts: an account is suggested by one of its posts, whose context names it
    let items = items.into_iter().map(|one| {
        let context = format!("{} {}", one.actor_did, one.reason);
        json!({ "post": one.post_uri, "feedContext": context })
    });
    Ok(skeleton(items.collect(), end).personal())
}

/// Reads well-formed posts: at least as many as the query's limit, unless the feed ends. Further
/// queries replace malformed ones.
async fn posts(
    store: &Store,
    query: FeedQuery<'_>,
    skipped: &mut Skipped,
) -> Result<Vec<FeedItem>, StoreError> {
    let mut items = Vec::new();
    let (mut position, mut limit) = (
        query.after.map(|(at, uri)| (at, uri.to_owned())),
        query.limit,
    );
    loop {
        let after = position
            .as_ref()
            .map(|(sort_us, uri)| (*sort_us, uri.as_str()));
        let rows = store
            .feeds()
            .posts(&FeedQuery {
                after,
                limit,
                ..query
            })
            .await?;
        let is_end = rows.len() < limit as usize;
        position = rows.last().map(|row| (row.sort_us, row.post_uri.clone()));
        for row in rows {
            if is_at_uri(&row.post_uri) {
                items.push(row);
            } else {
                skipped.add(&row.post_uri);
            }
        }
        if is_end || items.len() >= query.limit as usize {
            return Ok(items);
        }
        limit = REFILL;
    }
}

/// Reads well-formed suggestions of one snapshot, as [`posts`] reads posts.
async fn suggestions(
    store: &Store,
    mut query: SuggestionQuery<'_>,
    skipped: &mut Skipped,
) -> Result<(i64, Vec<Suggestion>), StoreError> {
    let (mut items, wanted) = (Vec::new(), query.limit as usize);
    loop {
        let Some(page) = store.feeds().suggestions(&query).await? else {
            return Ok((0, items));
        };
        let is_end = page.items.len() < query.limit as usize;
        query.after = page.items.last().map(|row| (page.snapshot_id, row.rank));
        for row in page.items {
            if is_at_uri(&row.post_uri) && is_did(&row.actor_did) {
                items.push(row);
            } else {
                skipped.add(format_args!("suggestion {}.{}", page.snapshot_id, row.rank));
            }
        }
        if is_end || items.len() >= wanted {
            return Ok((page.snapshot_id, items));
        }
        query.limit = REFILL;
    }
}

/// Truncates the items, of which one more than `limit` was read, to a page. Returns the last item
/// of the page if another page follows.
fn cut<T>(items: &mut Vec<T>, limit: u32) -> Option<&T> {
    let is_last_page = items.len() <= limit as usize;
    items.truncate(limit as usize);
    items.last().filter(|_| !is_last_page)
}

/// The DID of the account that reads its personal feed.
async fn viewer(
    store: &Store,
    settings: &Settings,
    request: &RequestParts,
) -> Result<String, Refused> {
    let RequestParts {
        authorization,
        client,
        ..
    } = request;
    let viewer = settings
        .auth
        .viewer(authorization, LXM, *client, SystemTime::now())
        .await?;
    let viewer = match viewer {
        // an account may be unknown here, but a known one must be active
        Viewer::Did(did) => match store.accounts().by_did(&did).await? {
            Some(account) if account.status != AccountStatus::Active => None,
            _ => Some(did),
        },
        Viewer::User(user) => {
            let account = store.accounts().by_user(&user.id).await?;
            let active = account.filter(|account| account.status == AccountStatus::Active);
            active.and_then(|account| account.did)
        }
    };
    viewer.ok_or_else(|| refused(Reason::Forbidden, "this user has no active account"))
}

fn skeleton(items: Vec<Value>, cursor: Option<String>) -> Reply {
    let mut body = json!({ "feed": items });
    // the lexicon allows no null
    if let Some(cursor) = cursor {
        body["cursor"] = cursor.into();
    }
    Reply::serialize(200, &body)
}

/// The name of the feed, which must be one that this service generates.
fn feed(query: &Query, feeds: &FeedsLive) -> Result<&'static str, Refused> {
    let uri = query
        .one("feed")?
        .ok_or_else(|| invalid("feed is missing"))?;
    let malformed = || invalid("feed is not the at-uri of a record");
    let mut segments = uri.strip_prefix("at://").ok_or_else(malformed)?.split('/');
    let mut segment = |is_well_formed: fn(&str) -> bool| {
        segments
            .next()
            .filter(|text| is_well_formed(text))
            .ok_or_else(malformed)
    };
    let authority = segment(is_authority)?;
    let collection = segment(is_collection)?;
    let name = segment(is_record_key)?;
    if segments.next().is_some() || uri.len() > MAX_URI {
        return Err(malformed());
    }
    let is_ours = [&feeds.publisher_did, &feeds.service_did]
        .iter()
        .any(|did| *did == authority);
    let known = PUBLIC
        .into_iter()
        .chain([PERSONAL])
        .find(|known| *known == name);
    let known = known.filter(|_| is_ours && collection == COLLECTION);
    known.ok_or_else(|| {
        refused(
            Reason::UnknownFeed,
            "this service does not generate that feed",
        )
    })
}

/// Whether a text has only characters of DIDs and handles; the caller compares it with ours.
fn is_authority(text: &str) -> bool {
    consists_of(text, b".-:%_")
}

fn is_collection(text: &str) -> bool {
    consists_of(text, b".-")
}

fn consists_of(text: &str, punctuation: &[u8]) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || punctuation.contains(&byte);
    !text.is_empty() && text.bytes().all(is_allowed)
}

fn page(query: &Query) -> Result<Page, Refused> {
    let limit = match query.one("limit")? {
        None => DEFAULT_LIMIT,
        Some(text) => {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let limit = text
                .parse()
                .ok()
                .filter(|limit| (1..=MAX_LIMIT).contains(limit));
            limit
                .filter(|_| is_number)
                .ok_or_else(|| invalid("limit must be 1 to 100"))?
        }
    };
    let set = query
        .one("set")?
        .map(|set| set.trim().to_lowercase())
        .filter(|set| !set.is_empty());
    if set
        .as_ref()
        .is_some_and(|set| set.chars().count() > MAX_SET)
    {
        return Err(invalid("set must have at most 64 characters"));
    }
    let labels = query
        .all("labels")
        .flat_map(|list| list.split(','))
        .map(str::trim);
    let mut labels: Vec<_> = labels
        .filter(|label| !label.is_empty())
        .map(str::to_lowercase)
        .collect();
    labels.sort_unstable();
    labels.dedup();
    if labels.len() > MAX_LABELS || labels.iter().any(|label| label.len() > MAX_LABEL) {
        return Err(invalid(
            "labels must be at most 10, each of at most 128 bytes",
        ));
    }
    Ok(Page {
        limit,
        cursor: query.one("cursor")?.map(str::to_owned),
        set,
        labels,
    })
}

fn position(
    fingerprint: Fingerprint,
    cursor: Option<&str>,
) -> Result<Option<(i64, String)>, Refused> {
    let Some(cursor) = cursor else {
        return Ok(None);
    };
    let position = cursor::read(fingerprint, cursor);
    position
        .map(Some)
        .ok_or_else(|| invalid("cursor is not of this feed with these filters"))
}
