//! A creator's podcast and its published episodes. Lists are JSON in their columns, with members
//! named as the fields here.

use super::db::Db;
use super::row::{Arg, FromRow, Row};
use super::{StoreError, sql};
use serde::Deserialize;

/// A creator's podcast.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Podcast {
    /// The creator's DID.
    pub did: String,
    /// `podcast:guid`, assigned once.
    pub guid: String,
    /// The title.
    pub title: String,
    /// The description.
    pub description: String,
    /// The podcast's web page.
    pub link: String,
    /// The language code.
    pub language: String,
    /// The author.
    pub author: Option<String>,
    /// One of Apple's categories.
    pub category: String,
    /// One of its subcategories.
    pub subcategory: Option<String>,
    /// Further categories.
    pub categories: Vec<Category>,
    /// Whether the podcast is for adults only.
    pub explicit: bool,
    /// The cover image.
    pub image_url: String,
    /// `episodic` or `serial`.
    pub kind: String,
    /// `podcast:medium`.
    pub medium: String,
    /// Whether other hosts must not import it.
    pub locked: bool,
    /// The owner's public name.
    pub owner_name: Option<String>,
    /// The owner's public e-mail address.
    pub owner_email: Option<String>,
    /// The copyright notice.
    pub copyright: Option<String>,
    /// The license: a known name, such as `cc-by-4.0`, or a name of the creator's.
    pub license: Option<String>,
    /// The text of the license.
    pub license_url: Option<String>,
    /// Places that it is about, or where it is made.
    pub locations: Vec<Place>,
    /// Pages where listeners can support it.
    pub funding: Vec<Funding>,
    /// Hosts, guests and staff.
    pub persons: Vec<Person>,
    /// `podcast:txt`.
    pub txt: Vec<Txt>,
    /// Whether no more episodes follow.
    pub complete: bool,
    /// Whether directories should not list it.
    pub block: bool,
    /// The new feed URL, if it moved.
    pub new_feed_url: Option<String>,
    /// Whether moderators closed it.
    pub taken_down: bool,
    /// When the row last changed.
    pub updated_us: i64,
    /// When an episode was last hidden or deleted; 0 if none was.
    pub removed_us: i64,
    /// Columns of which malformed items were left out.
    pub malformed: Vec<&'static str>,
}

/// A published episode.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Episode {
    /// The id.
    pub id: String,
    /// The creator's DID.
    pub did: String,
    /// The guid that podcast apps know, assigned once.
    pub guid: String,
    /// The title.
    pub title: String,
    /// The description, in unsanitized HTML.
    pub description_html: String,
    /// The episode's web page.
    pub link: Option<String>,
    /// The media file.
    pub enclosure_url: String,
    /// The file's size in bytes.
    pub enclosure_length: i64,
    /// The file's media type.
    pub enclosure_type: String,
    /// The duration in seconds.
    pub duration_s: Option<i64>,
    /// When it was published.
    pub published_us: i64,
    /// The season.
    pub season: Option<i64>,
    /// The number in its season.
    pub number: Option<i64>,
    /// `full`, `trailer` or `bonus`.
    pub kind: String,
    /// Whether the episode is for adults only; the podcast's value if absent.
    pub explicit: Option<bool>,
    /// The cover image of its own.
    pub image_url: Option<String>,
    /// Transcripts.
    pub transcripts: Vec<Transcript>,
    /// Replaces the podcast's persons.
    pub persons: Vec<Person>,
    /// The chapters file.
    pub chapters_url: Option<String>,
    /// The post where it is discussed.
    pub social_uri: Option<String>,
    /// When the row last changed.
    pub updated_us: i64,
    /// Columns of which malformed items were left out.
    pub malformed: Vec<&'static str>,
}

/// One of Apple's categories.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Category {
    /// The category.
    pub category: String,
    /// One of its subcategories.
    pub subcategory: Option<String>,
}

/// A place.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Place {
    /// The name for people.
    pub name: String,
    /// `subject` or `creator`.
    pub rel: Option<String>,
    /// A `geo:` URI (RFC 5870).
    pub geo: Option<String>,
    /// An object of OpenStreetMap: its type and its number.
    pub osm: Option<String>,
}

/// A page where listeners can support a podcast.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Funding {
    /// The page's URL.
    pub url: String,
    /// The link text.
    pub text: String,
}

/// A person of a podcast or an episode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Person {
    /// The name.
    pub name: String,
    /// The role.
    pub role: Option<String>,
    /// The group of the role.
    pub group: Option<String>,
    /// A portrait.
    pub image: Option<String>,
    /// A web page.
    pub href: Option<String>,
}

/// A `podcast:txt` entry.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Txt {
    /// The purpose.
    pub purpose: Option<String>,
    /// The text.
    pub value: String,
}

/// A transcript file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Transcript {
    /// The file's URL.
    pub url: String,
    /// The file's media type.
    pub kind: String,
    /// The language code.
    pub language: Option<String>,
    /// `captions`, if its lines are timed for display.
    pub rel: Option<String>,
}

impl FromRow for Podcast {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let mut malformed = Vec::new();
        let categories = row.list("categories", &mut malformed)?;
        let locations = row.list("locations", &mut malformed)?;
        let funding = row.list("funding", &mut malformed)?;
        let persons = row.list("persons", &mut malformed)?;
        let txt = row.list("txt", &mut malformed)?;
        let taken_down = row.get::<String>("status")? != "active";
        Ok(from_row!(row;
            get: did guid title description link language author category subcategory image_url
                kind medium owner_name owner_email copyright license license_url new_feed_url
                updated_us removed_us;
            flag: explicit locked complete block;
            { categories, locations, funding, persons, txt, taken_down, malformed }))
    }
}

impl FromRow for Episode {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let mut malformed = Vec::new();
        let transcripts = row.list("transcripts", &mut malformed)?;
        let persons = row.list("persons", &mut malformed)?;
        let explicit = row.get::<Option<i64>>("explicit")?.map(|flag| flag != 0);
        Ok(from_row!(row;
            get: id did guid title description_html link enclosure_url enclosure_length
                enclosure_type duration_s published_us season number kind image_url chapters_url
                social_uri updated_us;
            { transcripts, persons, explicit, malformed }))
    }
}

/// The published episodes of a podcast.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Published {
    /// The number of pages, at least 1.
    pub pages: u32,
    /// When one of the episodes last appeared or changed; `None` without episodes.
    pub changed_us: Option<i64>,
}

impl FromRow for Published {
    fn read(row: &Row) -> Result<Self, StoreError> {
        let last_page: Option<i64> = row.get("last_page")?;
        let pages = last_page.map_or(1, |last| last.saturating_add(1));
        let pages = u32::try_from(pages).unwrap_or(u32::MAX);
        Ok(from_row!(row; get: changed_us; { pages }))
    }
}

/// A feed, and the last change of its episodes.
struct Changed {
    did: String,
    changed_us: i64,
}

impl FromRow for Changed {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(from_row!(row; get: did changed_us;))
    }
}

/// Weight of a page of a feed: its bytes, approximately. Directories read 300 episodes, which fit
/// if each has up to 3 KB of text; of the longest texts, 60 fit.
const PAGE_WEIGHT: i64 = 6_000_000;
/// Least weight of an episode: 300 of them fill a page.
const MIN_WEIGHT: i64 = PAGE_WEIGHT / 300;
/// Greatest weight of an episode's text: longer HTML is cut.
const MAX_WEIGHT: i64 = 100_000;

/// Reads podcasts and episodes.
#[derive(Debug, Clone, Copy)]
pub struct Podcasts<'a> {
    pub(super) db: &'a Db,
}

impl Podcasts<'_> {
    /// The podcast of a creator, closed ones included.
    pub async fn get(&self, did: &str) -> Result<Option<Podcast>, StoreError> {
        self.db.one(sql::PODCAST, &[did.into()]).await
    }

    /// The pages of the public episodes that are published by `now_us`.
    pub async fn published(&self, did: &str, now_us: i64) -> Result<Published, StoreError> {
        let found = self
            .db
            .one(sql::EPISODES_PUBLISHED, &on_pages(did, now_us))
            .await?;
        Ok(found.unwrap_or(Published {
            pages: 1,
            changed_us: None,
        }))
    }

    /// The public episodes of a page, from 1, that are published by `now_us`: newest first.
    pub async fn episodes(
        &self,
        did: &str,
        now_us: i64,
        page: u32,
    ) -> Result<Vec<Episode>, StoreError> {
        let [did, now, weight, least, most] = on_pages(did, now_us);
        let page = (i64::from(page) - 1).into();
        let args = [did, now, weight, least, most, page];
        self.db.all(sql::EPISODES, &args).await
    }

    /// When the next public episode is published.
    pub async fn next_publication(
        &self,
        did: &str,
        now_us: i64,
    ) -> Result<Option<i64>, StoreError> {
        let row = self
            .db
            .row(sql::NEXT_PUBLICATION, &[did.into(), now_us.into()])
            .await?;
        row.map_or(Ok(None), |row| row.get("published_us"))
    }

    /// The creators of the feeds of which an episode appeared or changed after `after_us` and by
    /// `now_us`, at most `limit`, each with the time of the last change.
    pub async fn changed(
        &self,
        after_us: i64,
        now_us: i64,
        limit: usize,
    ) -> Result<Vec<(String, i64)>, StoreError> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        let args = [after_us.into(), now_us.into(), limit.into()];
        let changed: Vec<Changed> = self.db.all(sql::FEEDS_CHANGED, &args).await?;
        Ok(changed
            .into_iter()
            .map(|feed| (feed.did, feed.changed_us))
            .collect())
    }
}

/// The arguments that place episodes on pages.
fn on_pages(did: &str, now_us: i64) -> [Arg<'_>; 5] {
    let weights = [PAGE_WEIGHT, MIN_WEIGHT, MAX_WEIGHT].map(Arg::from);
    let [page, least, most] = weights;
    [did.into(), now_us.into(), page, least, most]
}
