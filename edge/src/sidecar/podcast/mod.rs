//! A podcast as RSS 2.0 with the `itunes` and `podcast` namespaces, as PSP-1 and Apple require.
//!
//! In: the stored data of a podcast and its published episodes. Out: the document, equal bytes for
//! equal data. It reads no clock: the caller selects the published episodes. Text by creators
//! passes through `html.rs`; `unfit.rs` removes what a row must not have.

mod html;
mod unfit;

pub use unfit::{clear_episode, clear_podcast};

use super::document::{Document, http_date};
use super::xml::{Attributes, Xml, line, percent_encoded, prefix, shortened, url};
use portcullis_store::{Episode, Person, Place, Podcast};

/// `Content-Type` of the feed.
const MEDIA_TYPE: &str = "application/rss+xml; charset=utf-8";
/// PSP-1: the bound on a description.
const MAX_DESCRIPTION_BYTES: usize = 4000;
/// Text beyond this cannot show in a description, whatever is left out.
const READ_DESCRIPTION_BYTES: usize = 2 * MAX_DESCRIPTION_BYTES;
/// 64 KiB of HTML about an episode, as written: Apple reads 10,000 characters.
const MAX_HTML_BYTES: usize = 64 << 10;
/// 256 KiB of stored HTML are read: what import accepts.
const READ_HTML_BYTES: usize = 256 << 10;
/// PSP-1: the bound on any other text.
const MAX_CHARS: usize = 255;
/// 8 bytes of a stored text are read for each character of a label: tags and white space may take
/// some.
const LABEL_BYTES: usize = 8;
/// The podcast namespace: the bound on a person's name and a call for funds.
const MAX_NAME_CHARS: usize = 128;
/// The podcast namespace: the longest `podcast:txt`.
const MAX_TXT_CHARS: usize = 4000;
/// Public profiles of AT Protocol accounts.
const PROFILES: &str = "https://bsky.app/profile";

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
    /// The published episodes of this page, newest first.
    pub episodes: &'a [Episode],
    /// The number of this page and that of the last one, from 1.
    pub pages: (u32, u32),
    /// When an episode of any page last changed.
    pub changed_us: Option<i64>,
    /// The creator's handle.
    pub handle: Option<&'a str>,
    /// This program's origin.
    pub base_url: &'a str,
    /// The hub that announces changes, if there is one.
    pub hub_url: Option<&'a str>,
}

impl Feed<'_> {
    /// The URL of this page.
    pub fn url(&self) -> String {
        self.url_of(self.pages.0)
    }

    fn url_of(&self, page: u32) -> String {
        let feed = feed_url(self.base_url, &self.podcast.did);
        if page > 1 {
            format!("{feed}&page={page}")
        } else {
            feed
        }
    }

    /// The hub of this page: of the first one only, which apps subscribe to.
    pub fn hub(&self) -> Option<&str> {
        if self.pages.0 == 1 {
            self.hub_url
        } else {
            None
        }
    }

    /// The time of the last change of any page: an episode that comes or goes moves others to
    /// another page.
    fn modified_us(&self) -> i64 {
        let episodes = self
            .episodes
            .iter()
            .map(|one| one.updated_us.max(one.published_us));
        let podcast = [self.podcast.updated_us, self.podcast.removed_us];
        let all = episodes.chain(self.changed_us).chain(podcast);
        all.fold(i64::MIN, i64::max)
    }
}

/// The URL of the feed that apps subscribe to, which is the first page: with the DID, since a
/// handle can change its owner.
pub fn feed_url(base_url: &str, did: &str) -> String {
    let is_plain = |_, byte: u8| byte.is_ascii_alphanumeric() || b":._-".contains(&byte);
    let did = percent_encoded(did, is_plain);
    format!("{base_url}/functions/podcast-rss-feed?did={did}")
}

/// Renders the feed.
pub fn render(feed: &Feed<'_>) -> Document {
    let mut xml = Xml::begin();
    xml.open("rss", NAMESPACES);
    xml.open("channel", &[]);
    channel(&mut xml, feed);
    for episode in feed.episodes {
        item(&mut xml, feed, episode);
    }
    xml.close("channel");
    xml.close("rss");
    Document::new(xml.take(), MEDIA_TYPE, Some(feed.modified_us()))
}

/// Writes all elements of the channel except the items.
fn channel(xml: &mut Xml, feed: &Feed<'_>) {
    let podcast = feed.podcast;
    links(xml, feed);
    about(xml, podcast);
    if let Some(newest) = feed
        .episodes
        .iter()
        .map(|episode| episode.published_us)
        .max()
    {
        xml.text("pubDate", &*http_date(newest));
    }
    xml.text("lastBuildDate", &*http_date(feed.modified_us()));
    channel_apple(xml, podcast);
    xml.text("podcast:guid", &*podcast.guid);
    xml.text("podcast:medium", &*podcast.medium);
    let owner = [("owner", podcast.owner_email.as_deref().unwrap_or_default())];
    xml.element(
        "podcast:locked",
        &owner,
        if podcast.locked { "yes" } else { "no" },
    );
    if let Some(license) = podcast.license.as_deref() {
        let link = optional_url(podcast.license_url.as_deref());
        let license = label(license, MAX_NAME_CHARS);
        xml.element("podcast:license", &[("url", &link)], &license);
    }
    locations(xml, &podcast.locations);
    trailers(xml, feed.episodes);
    for funding in &podcast.funding {
        let text = label(&funding.text, MAX_NAME_CHARS);
        xml.element("podcast:funding", &[("url", &url(&funding.url))], &text);
    }
    persons(xml, &podcast.persons);
    for txt in &podcast.txt {
        let purpose = [("purpose", txt.purpose.as_deref().unwrap_or_default())];
        let value = prefix(&txt.value, LABEL_BYTES * MAX_TXT_CHARS);
        xml.element("podcast:txt", &purpose, &line(value, MAX_TXT_CHARS));
    }
}

/// Writes the links to this page and, if there are several, to the others (RFC 5005, section 3),
/// and to the hub (WebSub, section 4).
fn links(xml: &mut Xml, feed: &Feed<'_>) {
    let (page, last) = feed.pages;
    let relations = [
        ("self", Some(page)),
        ("first", (last > 1).then_some(1)),
        ("previous", (page > 1).then(|| page - 1)),
        ("next", (page < last).then(|| page + 1)),
        ("last", (last > 1).then_some(last)),
    ];
    for (relation, page) in relations {
        if let Some(page) = page {
            let url = feed.url_of(page);
            let link = [
                ("href", &*url),
                ("rel", relation),
                ("type", "application/rss+xml"),
            ];
            xml.empty("atom:link", &link);
        }
    }
    if let Some(hub) = feed.hub() {
        xml.empty("atom:link", &[("href", hub), ("rel", "hub")]);
    }
}

/// Writes the places that the podcast is about, or where it is made.
fn locations(xml: &mut Xml, locations: &[Place]) {
    for location in locations {
        let [rel, geo, osm] = [&location.rel, &location.geo, &location.osm]
            .map(|text| text.as_deref().unwrap_or_default());
        let attributes = [("rel", rel), ("geo", geo), ("osm", osm)];
        let name = label(&location.name, MAX_NAME_CHARS);
        xml.element("podcast:location", &attributes, &name);
    }
}

/// Writes the trailers among the episodes of this page, for apps that show one before a listener
/// subscribes.
fn trailers(xml: &mut Xml, episodes: &[Episode]) {
    for trailer in episodes.iter().filter(|one| one.kind == "trailer") {
        let season = trailer.season.map(|season| season.to_string());
        let attributes = [
            ("pubdate", &*http_date(trailer.published_us)),
            ("url", &url(&trailer.enclosure_url)),
            ("length", &trailer.enclosure_length.to_string()),
            ("type", &trailer.enclosure_type),
            ("season", season.as_deref().unwrap_or_default()),
        ];
        let title = label(&trailer.title, MAX_NAME_CHARS);
        xml.element("podcast:trailer", &attributes, &title);
    }
}

/// Writes RSS's own elements.
fn about(xml: &mut Xml, podcast: &Podcast) {
    let (title, link) = (label(&podcast.title, MAX_CHARS), url(&podcast.link));
    // RSS requires a description
    let is_described = !podcast.description.trim().is_empty();
    let described = if is_described {
        &podcast.description
    } else {
        &podcast.title
    };
    let described = prefix(described.trim_start(), READ_DESCRIPTION_BYTES);
    let description = shortened(&html::without_tags(described), MAX_DESCRIPTION_BYTES);
    xml.text("title", &*title);
    xml.text("link", &*link);
    xml.text("description", &*description);
    xml.text("language", &*podcast.language);
    xml.text(
        "copyright",
        &*label(podcast.copyright.as_deref().unwrap_or_default(), MAX_CHARS),
    );
    if !podcast.image_url.is_empty() && !link.is_empty() {
        xml.open("image", &[]);
        xml.text("url", &*url(&podcast.image_url));
        xml.text("title", &*title);
        xml.text("link", &*link);
        xml.close("image");
    }
}

/// Writes Apple's elements of a podcast.
fn channel_apple(xml: &mut Xml, podcast: &Podcast) {
    xml.text(
        "itunes:author",
        &*label(podcast.author.as_deref().unwrap_or_default(), MAX_CHARS),
    );
    category(xml, &podcast.category, podcast.subcategory.as_deref());
    for further in &podcast.categories {
        category(xml, &further.category, further.subcategory.as_deref());
    }
    xml.text("itunes:explicit", &*podcast.explicit.to_string());
    if !podcast.image_url.is_empty() {
        xml.empty("itunes:image", &[("href", &url(&podcast.image_url))]);
    }
    xml.text("itunes:type", &*podcast.kind);
    // a feed is public: an address is written only if the creator stored one
    if let Some(email) = podcast.owner_email.as_deref() {
        let name = podcast.owner_name.as_ref().or(podcast.author.as_ref());
        xml.open("itunes:owner", &[]);
        xml.text(
            "itunes:name",
            name.map(|name| label(name, MAX_CHARS)).as_deref(),
        );
        xml.text("itunes:email", email);
        xml.close("itunes:owner");
    }
    xml.text(
        "itunes:new-feed-url",
        &*optional_url(podcast.new_feed_url.as_deref()),
    );
    // no other value has a meaning
    xml.text("itunes:complete", podcast.complete.then_some("yes"));
    xml.text("itunes:block", podcast.block.then_some("yes"));
}

/// Writes one of Apple's categories, unless its name is empty.
fn category(xml: &mut Xml, name: &str, subcategory: Option<&str>) {
    let category = [("text", name)];
    match subcategory {
        _ if name.is_empty() => {}
        Some(subcategory) => {
            xml.open("itunes:category", &category);
            xml.empty("itunes:category", &[("text", subcategory)]);
            xml.close("itunes:category");
        }
        None => xml.empty("itunes:category", &category),
    }
}

/// Writes the item of an episode.
fn item(xml: &mut Xml, feed: &Feed<'_>, episode: &Episode) {
    let title = label(&episode.title, MAX_CHARS);
    xml.open("item", &[]);
    xml.text("title", &*title);
    let length = episode.enclosure_length.to_string();
    let media = [
        ("url", &*url(&episode.enclosure_url)),
        ("length", &length),
        ("type", &episode.enclosure_type),
    ];
    xml.empty("enclosure", &media);
    xml.element("guid", &[("isPermaLink", "false")], &episode.guid);
    xml.text("link", &*optional_url(episode.link.as_deref()));
    xml.text("pubDate", &*http_date(episode.published_us));
    let stored = prefix(&episode.description_html, READ_HTML_BYTES);
    let description = html::plain(stored, READ_DESCRIPTION_BYTES);
    xml.text(
        "description",
        &*shortened(&description, MAX_DESCRIPTION_BYTES),
    );
    // readers want a description before it, and show nothing of HTML without text
    if !description.is_empty() {
        xml.cdata("content:encoded", &html::sanitize(stored, MAX_HTML_BYTES));
    }
    item_apple(xml, episode, &title);
    for transcript in &episode.transcripts {
        let language = transcript.language.as_deref().unwrap_or_default();
        let url = url(&transcript.url);
        let attributes = [
            ("url", &*url),
            ("type", &transcript.kind),
            ("language", language),
            ("rel", transcript.rel.as_deref().unwrap_or_default()),
        ];
        xml.empty("podcast:transcript", &attributes);
    }
    if let Some(chapters) = episode.chapters_url.as_deref() {
        let attributes = [
            ("url", &*url(chapters)),
            ("type", "application/json+chapters"),
        ];
        xml.empty("podcast:chapters", &attributes);
    }
    persons(xml, &episode.persons);
    discussion(xml, feed, episode);
    xml.close("item");
}

/// Writes Apple's elements of an episode.
fn item_apple(xml: &mut Xml, episode: &Episode, title: &str) {
    let number = |number: Option<i64>| number.map(|number| number.to_string());
    xml.text("itunes:title", title);
    xml.text("itunes:duration", number(episode.duration_s).as_deref());
    xml.text("itunes:season", number(episode.season).as_deref());
    xml.text("itunes:episode", number(episode.number).as_deref());
    xml.text("itunes:episodeType", &*episode.kind);
    xml.text(
        "itunes:explicit",
        episode.explicit.map(|it| it.to_string()).as_deref(),
    );
    if let Some(image) = episode.image_url.as_deref() {
        xml.empty("itunes:image", &[("href", &url(image))]);
    }
}

/// Writes the post under which the episode is discussed.
fn discussion(xml: &mut Xml, feed: &Feed<'_>, episode: &Episode) {
    let Some(post) = episode
        .social_uri
        .as_deref()
        .filter(|uri| uri.starts_with("at://"))
    else {
        return;
    };
    let did = &feed.podcast.did;
    let account = feed
        .handle
        .map_or_else(|| did.clone(), |handle| format!("@{handle}"));
    let attributes = [
        ("protocol", "atproto"),
        ("uri", post),
        ("accountId", &account),
        ("accountUrl", &format!("{PROFILES}/{did}")),
    ];
    xml.empty("podcast:socialInteract", &attributes);
}

/// Writes the persons of the podcast, or those of an episode, which replace the podcast's.
fn persons(xml: &mut Xml, persons: &[Person]) {
    for person in persons {
        let [role, group] =
            [&person.role, &person.group].map(|text| text.as_deref().unwrap_or_default());
        let [image, href] = [&person.image, &person.href].map(|text| optional_url(text.as_deref()));
        let attributes = [
            ("role", role),
            ("group", group),
            ("img", &image),
            ("href", &href),
        ];
        xml.element(
            "podcast:person",
            &attributes,
            &label(&person.name, MAX_NAME_CHARS),
        );
    }
}

/// A text on one line.
fn label(text: &str, max_chars: usize) -> String {
    let text = prefix(text.trim_start(), LABEL_BYTES * max_chars);
    line(&html::without_active_tags(text), max_chars)
}

fn optional_url(text: Option<&str>) -> String {
    text.map(url).unwrap_or_default()
}
