//! The item of an episode.

use super::{Feed, MAX_CHARS, MAX_DESCRIPTION_BYTES, html, optional_url, persons, true_or_false};
use crate::sidecar::document::http_date;
use crate::sidecar::xml::{Xml, line, shortened, url};
use crate::store::Episode;

/// Shows the posts of an AT Protocol account to anybody.
const PROFILES: &str = "https://bsky.app/profile";

pub(super) fn write(xml: &mut Xml, feed: &Feed<'_>, episode: &Episode) {
    let title = line(&episode.title, MAX_CHARS);
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
    let description = html::plain(&episode.description_html);
    xml.text("description", &*shortened(&description, MAX_DESCRIPTION_BYTES));
    xml.cdata("content:encoded", &html::sanitize(&episode.description_html));
    apple(xml, episode, &title);
    for transcript in &episode.transcripts {
        let language = transcript.language.as_deref().unwrap_or_default();
        let url = url(&transcript.url);
        let attributes = [("url", &*url), ("type", &transcript.kind), ("language", language)];
        xml.empty("podcast:transcript", &attributes);
    }
    if let Some(chapters) = episode.chapters_url.as_deref() {
        let attributes = [("url", &*url(chapters)), ("type", "application/json+chapters")];
        xml.empty("podcast:chapters", &attributes);
    }
    persons(xml, &episode.persons);
    discussion(xml, feed, episode);
    xml.close("item");
}

/// Apple's elements.
fn apple(xml: &mut Xml, episode: &Episode, title: &str) {
    let number = |number: Option<i64>| number.map(|number| number.to_string());
    xml.text("itunes:title", title);
    xml.text("itunes:duration", number(episode.duration_s).as_deref());
    xml.text("itunes:season", number(episode.season).as_deref());
    xml.text("itunes:episode", number(episode.number).as_deref());
    xml.text("itunes:episodeType", &*episode.kind);
    xml.text("itunes:explicit", episode.explicit.map(true_or_false));
    if let Some(image) = episode.image_url.as_deref() {
        xml.empty("itunes:image", &[("href", &url(image))]);
    }
}

/// The post under which the episode is discussed.
fn discussion(xml: &mut Xml, feed: &Feed<'_>, episode: &Episode) {
    let Some(post) = episode.social_uri.as_deref().filter(|uri| uri.starts_with("at://")) else {
        return;
    };
    let did = &feed.podcast.did;
    let account = feed.handle.map_or_else(|| did.clone(), |handle| format!("@{handle}"));
    let attributes = [
        ("protocol", "atproto"),
        ("uri", post),
        ("accountId", &account),
        ("accountUrl", &format!("{PROFILES}/{did}")),
    ];
    xml.empty("podcast:socialInteract", &attributes);
}
