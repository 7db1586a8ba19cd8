//! The elements of a feed that describe the podcast itself.

use super::{
    Feed, MAX_CHARS, MAX_DESCRIPTION_BYTES, MAX_NAME_CHARS, optional_url, persons, true_or_false,
};
use crate::sidecar::document::http_date;
use crate::sidecar::xml::{Xml, line, shortened, url};
use crate::store::Podcast;

/// The podcast namespace: the longest `podcast:txt`.
const MAX_TXT_CHARS: usize = 4000;

/// Writes all elements of the channel except the items.
pub(super) fn write(xml: &mut Xml, feed: &Feed<'_>) {
    let podcast = feed.podcast;
    let own = feed.url();
    let link = [("href", own.as_str()), ("rel", "self"), ("type", "application/rss+xml")];
    xml.empty("atom:link", &link);
    about(xml, podcast);
    if let Some(newest) = feed.episodes.iter().map(|episode| episode.published_us).max() {
        xml.text("pubDate", &*http_date(newest));
    }
    xml.text("lastBuildDate", &*http_date(feed.modified_us()));
    apple(xml, podcast);
    xml.text("podcast:guid", &*podcast.guid);
    xml.text("podcast:medium", &*podcast.medium);
    let owner = [("owner", podcast.owner_email.as_deref().unwrap_or_default())];
    xml.element("podcast:locked", &owner, if podcast.locked { "yes" } else { "no" });
    for funding in &podcast.funding {
        let text = line(&funding.text, MAX_NAME_CHARS);
        xml.element("podcast:funding", &[("url", &url(&funding.url))], &text);
    }
    persons(xml, &podcast.persons);
    for txt in &podcast.txt {
        let purpose = [("purpose", txt.purpose.as_deref().unwrap_or_default())];
        xml.element("podcast:txt", &purpose, &line(&txt.value, MAX_TXT_CHARS));
    }
}

/// RSS's own elements.
fn about(xml: &mut Xml, podcast: &Podcast) {
    let (title, link) = (line(&podcast.title, MAX_CHARS), url(&podcast.link));
    let description = shortened(&podcast.description, MAX_DESCRIPTION_BYTES);
    xml.text("title", &*title);
    xml.text("link", &*link);
    // RSS requires one
    xml.text("description", if description.is_empty() { &*title } else { &*description });
    xml.text("language", &*podcast.language);
    xml.text("copyright", &*line(podcast.copyright.as_deref().unwrap_or_default(), MAX_CHARS));
    xml.open("image", &[]);
    xml.text("url", &*url(&podcast.image_url));
    xml.text("title", &*title);
    xml.text("link", &*link);
    xml.close("image");
}

/// Apple's elements.
fn apple(xml: &mut Xml, podcast: &Podcast) {
    xml.text("itunes:author", &*line(podcast.author.as_deref().unwrap_or_default(), MAX_CHARS));
    let category = [("text", podcast.category.as_str())];
    match podcast.subcategory.as_deref() {
        Some(subcategory) => {
            xml.open("itunes:category", &category);
            xml.empty("itunes:category", &[("text", subcategory)]);
            xml.close("itunes:category");
        }
        None => xml.empty("itunes:category", &category),
    }
    xml.text("itunes:explicit", true_or_false(podcast.explicit));
    xml.empty("itunes:image", &[("href", &url(&podcast.image_url))]);
    xml.text("itunes:type", &*podcast.kind);
    // the address is public: it is shown only if the creator stored one
    if let Some(email) = podcast.owner_email.as_deref() {
        let name = podcast.owner_name.as_ref().or(podcast.author.as_ref());
        xml.open("itunes:owner", &[]);
        xml.text("itunes:name", name.map(|name| line(name, MAX_CHARS)).as_deref());
        xml.text("itunes:email", email);
        xml.close("itunes:owner");
    }
    xml.text("itunes:new-feed-url", &*optional_url(podcast.new_feed_url.as_deref()));
    // no other value has a meaning
    xml.text("itunes:complete", podcast.complete.then_some("yes"));
    xml.text("itunes:block", podcast.block.then_some("yes"));
}
