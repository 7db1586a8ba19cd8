//! A creator's podcast and the episodes that are out. Lists are JSON in their columns, with the
//! members named as the fields here.

use super::db::Row;
use super::{Store, StoreError, sql};
use serde::Deserialize;

/// A podcast.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Podcast {
    /// Whose it is.
    pub did: String,
    /// `podcast:guid`: given once.
    pub guid: String,
    /// Its title.
    pub title: String,
    /// What it is about.
    pub description: String,
    /// Its page.
    pub link: String,
    /// The language's code.
    pub language: String,
    /// Who is named as its author.
    pub author: Option<String>,
    /// One of Apple's categories.
    pub category: String,
    /// One below it.
    pub subcategory: Option<String>,
    /// Whether it is for adults only.
    pub explicit: bool,
    /// Its cover.
    pub image_url: String,
    /// `episodic` or `serial`.
    pub kind: String,
    /// `podcast:medium`.
    pub medium: String,
    /// Whether other platforms must not import it.
    pub locked: bool,
    /// Who owns it, if that is to be public.
    pub owner_name: Option<String>,
    /// Where its owner is written to, if that is to be public.
    pub owner_email: Option<String>,
    /// Who has the rights.
    pub copyright: Option<String>,
    /// Where it can be supported.
    pub funding: Vec<Funding>,
    /// Who makes it.
    pub persons: Vec<Person>,
    /// `podcast:txt`.
    pub txt: Vec<Txt>,
    /// Whether no episode will follow.
    pub complete: bool,
    /// Whether directories are to leave it out.
    pub block: bool,
    /// Where it moved to.
    pub new_feed_url: Option<String>,
    /// Whether moderators closed it.
    pub taken_down: bool,
    /// When any of this last changed.
    pub updated_us: i64,
}

/// An episode that is out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Episode {
    /// Its id.
    pub id: String,
    /// Whose it is.
    pub did: String,
    /// What podcast programs know it by: given once.
    pub guid: String,
    /// Its title.
    pub title: String,
    /// What it is about, in HTML that nobody has checked.
    pub description_html: String,
    /// Its page.
    pub link: Option<String>,
    /// The file.
    pub enclosure_url: String,
    /// The file's size in bytes.
    pub enclosure_length: i64,
    /// The file's media type.
    pub enclosure_type: String,
    /// How long it is.
    pub duration_s: Option<i64>,
    /// When it came out.
    pub published_us: i64,
    /// Its season.
    pub season: Option<i64>,
    /// Its number in the season.
    pub number: Option<i64>,
    /// `full`, `trailer` or `bonus`.
    pub kind: String,
    /// Whether it is for adults only; as the podcast when that is not said.
    pub explicit: Option<bool>,
    /// Its own cover.
    pub image_url: Option<String>,
    /// What is said in it.
    pub transcripts: Vec<Transcript>,
    /// Who makes it, instead of the podcast's persons.
    pub persons: Vec<Person>,
    /// Its chapters.
    pub chapters_url: Option<String>,
    /// The post where it is talked about.
    pub social_uri: Option<String>,
    /// When any of this last changed.
    pub updated_us: i64,
}

/// Where a podcast can be supported.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Funding {
    /// The page.
    pub url: String,
    /// What it is called.
    pub text: String,
}

/// Who makes a podcast or an episode.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Person {
    /// The name.
    pub name: String,
    /// As what.
    pub role: Option<String>,
    /// In which group of roles.
    pub group: Option<String>,
    /// A picture.
    pub image: Option<String>,
    /// A page.
    pub href: Option<String>,
}

/// A text for programs.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Txt {
    /// What it is for.
    pub purpose: Option<String>,
    /// The text.
    pub value: String,
}

/// What is said in an episode, as a file.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
pub struct Transcript {
    /// The file.
    pub url: String,
    /// Its media type.
    pub kind: String,
    /// The language's code.
    pub language: Option<String>,
}

impl Podcast {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            did: row.get("did")?,
            guid: row.get("guid")?,
            title: row.get("title")?,
            description: row.get("description")?,
            link: row.get("link")?,
            language: row.get("language")?,
            author: row.get("author")?,
            category: row.get("category")?,
            subcategory: row.get("subcategory")?,
            explicit: row.flag("explicit")?,
            image_url: row.get("image_url")?,
            kind: row.get("kind")?,
            medium: row.get("medium")?,
            locked: row.flag("locked")?,
            owner_name: row.get("owner_name")?,
            owner_email: row.get("owner_email")?,
            copyright: row.get("copyright")?,
            funding: row.json("funding")?,
            persons: row.json("persons")?,
            txt: row.json("txt")?,
            complete: row.flag("complete")?,
            block: row.flag("block")?,
            new_feed_url: row.get("new_feed_url")?,
            taken_down: row.get::<String>("status")? != "active",
            updated_us: row.get("updated_us")?,
        })
    }
}

impl Episode {
    fn read(row: &Row) -> Result<Self, StoreError> {
        Ok(Self {
            id: row.get("id")?,
            did: row.get("did")?,
            guid: row.get("guid")?,
            title: row.get("title")?,
            description_html: row.get("description_html")?,
            link: row.get("link")?,
            enclosure_url: row.get("enclosure_url")?,
            enclosure_length: row.get("enclosure_length")?,
            enclosure_type: row.get("enclosure_type")?,
            duration_s: row.get("duration_s")?,
            published_us: row.get("published_us")?,
            season: row.get("season")?,
            number: row.get("number")?,
            kind: row.get("kind")?,
            explicit: row.get::<Option<i64>>("explicit")?.map(|flag| flag != 0),
            image_url: row.get("image_url")?,
            transcripts: row.json("transcripts")?,
            persons: row.json("persons")?,
            chapters_url: row.get("chapters_url")?,
            social_uri: row.get("social_uri")?,
            updated_us: row.get("updated_us")?,
        })
    }
}

impl Store {
    /// The podcast of a creator, also one that moderators closed.
    ///
    /// # Errors
    /// The database is unavailable. [`StoreError::Corrupt`]: a list can not be read.
    pub async fn podcast(&self, did: &str) -> Result<Option<Podcast>, StoreError> {
        self.db.row(sql::PODCAST, &[did.into()]).await?.as_ref().map(Podcast::read).transpose()
    }

    /// The episodes of a podcast that are public and out, newest first.
    ///
    /// # Errors
    /// The database is unavailable. [`StoreError::Corrupt`]: a list can not be read.
    pub async fn episodes(
        &self,
        did: &str,
        now_us: i64,
        limit: u32,
    ) -> Result<Vec<Episode>, StoreError> {
        let args = [did.into(), now_us.into(), i64::from(limit).into()];
        self.db.rows(sql::EPISODES, &args).await?.iter().map(Episode::read).collect()
    }

    /// When the next public episode of a podcast comes out.
    ///
    /// # Errors
    /// The database is unavailable.
    pub async fn next_publication(
        &self,
        did: &str,
        now_us: i64,
    ) -> Result<Option<i64>, StoreError> {
        let row = self.db.row(sql::NEXT_PUBLICATION, &[did.into(), now_us.into()]).await?;
        row.map_or(Ok(None), |row| row.get("published_us"))
    }
}
