//! A podcast as RSS 2.0 with the `itunes` and `podcast` namespaces, as PSP-1 and Apple require.
//!
//! In: the stored data of a podcast and its published episodes. Out: the document, equal bytes for
//! equal data. It reads no clock: the caller selects the published episodes.
//!
//! Reading order: `channel.rs`, `episode.rs`, and `html.rs` for text written by creators.

mod channel;
mod episode;
mod html;

use super::document::Document;
use super::xml::{Attributes, Xml, line, percent_encoded, url};
use crate::store::{Episode, Person, Podcast};

/// `Content-Type` of the feed.
const MEDIA_TYPE: &str = "application/rss+xml; charset=utf-8";
/// PSP-1: the bound on a description.
const MAX_DESCRIPTION_BYTES: usize = 4000;
/// PSP-1: the bound on any other text.
const MAX_CHARS: usize = 255;
/// The podcast namespace: the bound on a person's name and a call for funds.
const MAX_NAME_CHARS: usize = 128;

const NAMESPACES: Attributes<'_> = &[
    ("version", "2.0"),
    ("xmlns:atom", "http://www.w3.org/2005/Atom"),
    ("xmlns:content", "http://purl.org/rss/1.0/modules/content/"),
    ("xmlns:itunes", "http://www.itunes.com/dtds/podcast-1.0.dtd"),
    ("xmlns:podcast", "https://podcastindex.org/namespace/1.0"),
];

/// The data of a feed.
#[derive(Debug, Clone, Copy)]
pub struct Feed<'a> {
    /// The podcast.
    pub podcast: &'a Podcast,
    /// Published episodes, newest first.
    pub episodes: &'a [Episode],
    /// The creator's handle.
    pub handle: Option<&'a str>,
    /// This program's origin.
    pub base_url: &'a str,
}

impl Feed<'_> {
    /// The feed's own URL: by the DID, since a handle can change its owner.
    pub fn url(&self) -> String {
        let is_plain = |_, byte: u8| byte.is_ascii_alphanumeric() || b":._-".contains(&byte);
        let did = percent_encoded(&self.podcast.did, is_plain);
        format!("{}/functions/podcast-rss-feed?did={did}", self.base_url)
    }

    /// The time of the last change.
    fn modified_us(&self) -> i64 {
        let episodes = self.episodes.iter().map(|one| one.updated_us.max(one.published_us));
        episodes.fold(self.podcast.updated_us, i64::max)
    }
}

/// Renders the feed.
pub fn render(feed: &Feed<'_>) -> Document {
    let mut xml = Xml::begin();
    xml.open("rss", NAMESPACES);
    xml.open("channel", &[]);
    channel::write(&mut xml, feed);
    for episode in feed.episodes {
        episode::write(&mut xml, feed, episode);
    }
    xml.close("channel");
    xml.close("rss");
    Document::new(xml.take(), MEDIA_TYPE, Some(feed.modified_us()))
}

/// The persons of the podcast, or those of an episode, who replace them there.
fn persons(xml: &mut Xml, persons: &[Person]) {
    for person in persons {
        let [role, group] =
            [&person.role, &person.group].map(|text| text.as_deref().unwrap_or_default());
        let [image, href] = [&person.image, &person.href].map(|text| optional_url(text.as_deref()));
        let attributes = [("role", role), ("group", group), ("img", &image), ("href", &href)];
        xml.element("podcast:person", &attributes, &line(&person.name, MAX_NAME_CHARS));
    }
}

fn optional_url(text: Option<&str>) -> String {
    text.map(url).unwrap_or_default()
}

/// The `itunes` namespace's form of a required flag.
fn true_or_false(flag: bool) -> &'static str {
    if flag { "true" } else { "false" }
}
