//! `getFeedSkeleton`: one page of a feed, newest first.
//!
//! A page is taken by the position where the one before ended, so that none repeats or skips what
//! stays while items come and go. Whoever asks for the personal feed is known first. The lexicon:
//! <https://docs.bsky.app/docs/api/app-bsky-feed-get-feed-skeleton>.

use super::auth::Viewer;
use super::cursor::{self, Fingerprint};
use super::describe_feed_generator::{COLLECTION, PERSONAL, PUBLIC};
use super::query::{Query, invalid};
use super::settings::Settings;
use super::{Refused, Sidecar, now_us, refused};
use crate::config::FeedsConfig;
use crate::reply::Reply;
use crate::store::{AccountStatus, FeedQuery, SuggestionQuery};
use portcullis_filters::policy::{Asked, Authorization};
use portcullis_filters::verdict::{Reason, Refusal};
use serde_json::{Value, json};
use std::time::SystemTime;

/// The method that a service token is for.
const LXM: &str = "app.bsky.feed.getFeedSkeleton";
/// Shared caches may keep public pages this long.
const PUBLIC_CACHE: &str = "public, max-age=30, s-maxage=30, stale-while-revalidate=60";
/// The lexicon's default and bounds of `limit`.
const DEFAULT_LIMIT: u32 = 50;
const MAX_LIMIT: u32 = 100;
/// Longer at-uris name nothing: <https://atproto.com/specs/at-uri-scheme>.
const MAX_URI: usize = 8 << 10;
const MAX_SET: usize = 64;
const MAX_LABELS: usize = 10;
const MAX_LABEL: usize = 128;
/// 7 days: suggestions that were not renewed for so long are not shown.
const SUGGESTIONS_LIVE_US: i64 = 7 * 24 * 3_600 * 1_000_000;

/// What is asked for, but for the feed.
struct Page {
    limit: u32,
    cursor: Option<String>,
    set: Option<String>,
    labels: Vec<String>,
}

impl Sidecar {
    pub(super) async fn get_feed_skeleton(
        &self,
        settings: &Settings,
        asked: &Asked,
    ) -> Result<Reply, Refused> {
        let query = Query::parse(&asked.query);
        let feed = feed(&query, &settings.feeds)?;
        if feed == PERSONAL {
            let reply = self.personal_feed(settings, asked, &query).await;
            return reply.map_err(|refused| Refused { is_personal: true, ..refused });
        }
        let Page { limit, cursor, set, labels } = page(&query)?;
        let set_text = set.as_deref().unwrap_or_default();
        let print = [feed, set_text].into_iter().chain(labels.iter().map(String::as_str));
        let print = Fingerprint::of(print);
        let after = position(print, cursor.as_deref())?;
        let mut items = self
            .store
            .feed(&FeedQuery {
                feed,
                set: set.as_deref(),
                labels: &labels,
                blocked: &settings.feeds.blocked_labels,
                after: after.as_ref().map(|(sort_us, uri)| (*sort_us, uri.as_str())),
                // one more tells whether there is another page
                limit: limit + 1,
            })
            .await?;
        let is_last = items.len() <= limit as usize;
        items.truncate(limit as usize);
        let end = items.last().filter(|_| !is_last);
        let end = end.map(|item| cursor::write(print, item.sort_us, &item.post_uri));
        let items = items.into_iter().map(|item| json!({ "post": item.post_uri })).collect();
        Ok(Reply { cache_control: Some(PUBLIC_CACHE.into()), ..skeleton(items, end) })
    }

    async fn personal_feed(
        &self,
        settings: &Settings,
        asked: &Asked,
        query: &Query,
    ) -> Result<Reply, Refused> {
        let did = self.viewer(settings, &asked.authorization).await?;
        let Page { limit, cursor, .. } = page(query)?;
        let print = Fingerprint::of([PERSONAL, &did]);
        let after = match position(print, cursor.as_deref())? {
            None => None,
            Some((snapshot, rank)) => {
                let rank = rank.parse().map_err(|_| invalid("cursor is none of this feed"))?;
                Some((snapshot, rank))
            }
        };
        let suggestions = self
            .store
            .suggestions(&SuggestionQuery {
                viewer_did: &did,
                blocked: &settings.feeds.blocked_labels,
                after,
                newer_than_us: now_us().saturating_sub(SUGGESTIONS_LIVE_US),
                limit: limit + 1,
            })
            .await?;
        let (snapshot, mut items) =
            suggestions.map_or((0, Vec::new()), |found| (found.snapshot_id, found.items));
        let is_last = items.len() <= limit as usize;
        items.truncate(limit as usize);
        let end = items.last().filter(|_| !is_last);
        let end = end.map(|item| cursor::write(print, snapshot, &item.rank.to_string()));
        // a feed holds posts: the account goes along with one of its own
        let items = items.into_iter().map(|one| {
            let context = format!("{} {}", one.actor_did, one.reason);
            json!({ "post": one.post_uri, "feedContext": context })
        });
        Ok(skeleton(items.collect(), end).personal())
    }

    /// The account of whoever looks at a feed of their own.
    async fn viewer(
        &self,
        settings: &Settings,
        authorization: &Authorization,
    ) -> Result<String, Refused> {
        let now = SystemTime::now();
        let viewer = settings.auth.viewer(sole(authorization)?, LXM, now).await?;
        let viewer = match viewer {
            // an account need not be known here, but one that is known must be open
            Viewer::Did(did) => match self.store.account_of_did(&did).await? {
                Some(account) if account.status != AccountStatus::Active => None,
                _ => Some(did),
            },
            Viewer::User(user) => {
                let account = self.store.account_of_user(&user.id).await?;
                let open = account.filter(|account| account.status == AccountStatus::Active);
                open.and_then(|account| account.did)
            }
        };
        viewer.ok_or_else(|| {
            refused(Reason::Forbidden, "this user has no account that could follow others")
        })
    }
}

/// The header's only value.
pub(super) fn sole(authorization: &Authorization) -> Result<Option<&[u8]>, Refusal> {
    match authorization {
        Authorization::Absent => Ok(None),
        Authorization::Given(value) => Ok(Some(value.expose())),
        Authorization::Doubled => {
            Err(Refusal::new(Reason::Unauthorized, "send one Authorization header"))
        }
    }
}

fn skeleton(items: Vec<Value>, cursor: Option<String>) -> Reply {
    let mut body = json!({ "feed": items });
    // a null is no string: the key is left out
    if let Some(cursor) = cursor {
        body["cursor"] = cursor.into();
    }
    Reply::json(200, body.to_string())
}

/// The name of the feed, of those that this service generates.
fn feed(query: &Query, feeds: &FeedsConfig) -> Result<&'static str, Refused> {
    let uri = query.one("feed")?.ok_or_else(|| invalid("feed is missing"))?;
    let malformed = || invalid("feed is no at-uri of a record");
    let mut segments = uri.strip_prefix("at://").ok_or_else(malformed)?.split('/');
    let mut segment = |is_well_formed: fn(&str) -> bool| {
        segments.next().filter(|text| is_well_formed(text)).ok_or_else(malformed)
    };
    let authority = segment(is_authority)?;
    let collection = segment(is_collection)?;
    let name = segment(is_record_key)?;
    if segments.next().is_some() || uri.len() > MAX_URI {
        return Err(malformed());
    }
    let is_ours = [&feeds.publisher_did, &feeds.service_did].iter().any(|did| *did == authority);
    let known = PUBLIC.into_iter().chain([PERSONAL]).find(|known| *known == name);
    let known = known.filter(|_| is_ours && collection == COLLECTION);
    known.ok_or_else(|| refused(Reason::UnknownFeed, "this service does not generate that feed"))
}

/// A DID or a handle, by their letters: whose it is, is compared.
fn is_authority(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-:%_".contains(&byte);
    !text.is_empty() && text.bytes().all(is_letter)
}

fn is_collection(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-".contains(&byte);
    !text.is_empty() && text.bytes().all(is_letter)
}

/// <https://atproto.com/specs/record-key>.
fn is_record_key(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:~".contains(&byte);
    (1..=512).contains(&text.len()) && text.bytes().all(is_letter) && !matches!(text, "." | "..")
}

fn page(query: &Query) -> Result<Page, Refused> {
    let limit = match query.one("limit")? {
        None => DEFAULT_LIMIT,
        Some(text) => {
            let is_number = text.bytes().all(|byte| byte.is_ascii_digit());
            let limit = text.parse().ok().filter(|limit| (1..=MAX_LIMIT).contains(limit));
            limit.filter(|_| is_number).ok_or_else(|| invalid("limit is 1 to 100"))?
        }
    };
    let set = query.one("set")?.map(|set| set.trim().to_lowercase()).filter(|set| !set.is_empty());
    if set.as_ref().is_some_and(|set| set.chars().count() > MAX_SET) {
        return Err(invalid("set has at most 64 characters"));
    }
    let given = query.all("labels").flat_map(|list| list.split(',')).map(str::trim);
    let mut labels: Vec<_> =
        given.filter(|label| !label.is_empty()).map(str::to_lowercase).collect();
    labels.sort_unstable();
    labels.dedup();
    if labels.len() > MAX_LABELS || labels.iter().any(|label| label.len() > MAX_LABEL) {
        return Err(invalid("labels are at most 10, each of at most 128 bytes"));
    }
    Ok(Page { limit, cursor: query.one("cursor")?.map(str::to_owned), set, labels })
}

fn position(print: Fingerprint, cursor: Option<&str>) -> Result<Option<(i64, String)>, Refused> {
    let Some(cursor) = cursor else { return Ok(None) };
    let position = cursor::read(print, cursor);
    position.map(Some).ok_or_else(|| invalid("cursor is none of this feed with these filters"))
}
