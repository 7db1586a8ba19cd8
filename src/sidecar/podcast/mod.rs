//! A podcast as RSS 2.0 with the `itunes` and `podcast` namespaces, as PSP-1 and Apple ask for it.
//!
//! In: what is stored of a podcast and its published episodes. Out: the document, the same bytes
//! for the same content. It reads no clock: which episodes are published is the caller's question.
//!
//! Reading order: `channel.rs`, `episode.rs`, and `html.rs` for what creators write.

mod channel;
mod episode;
mod html;
#[cfg(test)]
mod tests;

use super::document::Document;
use super::xml::{Attributes, Xml, line, url};
use crate::store::{Episode, Person, Podcast};
use std::fmt::Write as _;

/// `Content-Type` of the feed.
const MEDIA_TYPE: &str = "application/rss+xml; charset=utf-8";
/// PSP-1: what a description may have.
const MAX_DESCRIPTION_BYTES: usize = 4000;
/// PSP-1: what any other text may have.
const MAX_CHARS: usize = 255;
/// The podcast namespace: a person's name and a call for funds.
const MAX_NAME_CHARS: usize = 128;

const NAMESPACES: Attributes<'_> = &[
    ("version", "2.0"),
    ("xmlns:atom", "http://www.w3.org/2005/Atom"),
    ("xmlns:content", "http://purl.org/rss/1.0/modules/content/"),
    ("xmlns:itunes", "http://www.itunes.com/dtds/podcast-1.0.dtd"),
    ("xmlns:podcast", "https://podcastindex.org/namespace/1.0"),
];

/// What a feed is made of.
#[derive(Debug, Clone, Copy)]
pub(super) struct Feed<'a> {
    /// The podcast.
    pub(super) podcast: &'a Podcast,
    /// Its published episodes, newest first.
    pub(super) episodes: &'a [Episode],
    /// Its creator's handle.
    pub(super) handle: Option<&'a str>,
    /// Where this program is reached.
    pub(super) base_url: &'a str,
}

impl Feed<'_> {
    /// The feed's own URL: by the DID, since a handle can change hands.
    pub(super) fn url(&self) -> String {
        let did: String = self.podcast.did.bytes().fold(String::new(), |mut url, byte| {
            if byte.is_ascii_alphanumeric() || b":._-".contains(&byte) {
                url.push(char::from(byte));
            } else {
                // writing to a string does not fail
                let _ = write!(url, "%{byte:02X}");
            }
            url
        });
        format!("{}/functions/podcast-rss-feed?did={did}", self.base_url)
    }

    /// When something of it changed last.
    fn modified_us(&self) -> i64 {
        let episodes = self.episodes.iter().map(|one| one.updated_us.max(one.published_us));
        episodes.fold(self.podcast.updated_us, i64::max)
    }
}

/// The feed as a document.
pub(super) fn render(feed: &Feed<'_>) -> Document {
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

/// Who takes part: in the podcast, or in an episode instead of those of the podcast.
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

/// How the `itunes` namespace writes a flag that must be there.
fn true_or_false(flag: bool) -> &'static str {
    if flag { "true" } else { "false" }
}
