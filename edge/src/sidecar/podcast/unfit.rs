//! Removes the members of a podcast and its episodes that a feed must not show.
//!
//! Rows are written by SQL as well, past the checks of import. In: rows as they were stored. Out:
//! rows whose URLs, languages, types and addresses follow the rules of import
//! ([`portcullis_store::may_show`]), and the names of the columns that lost a value.

use crate::sidecar::xml::url;
use portcullis_store::{Episode, Person, Podcast, may_show, shown_category};

/// A record's type, and the columns that lost a value.
struct Check<'a> {
    of: &'static str,
    malformed: &'a mut Vec<&'static str>,
}

/// Clears the members of a podcast that a feed must not show.
pub fn clear_podcast(podcast: &mut Podcast) {
    let mut check = Check {
        of: "podcast",
        malformed: &mut podcast.malformed,
    };
    check.url("link", &mut podcast.link);
    check.url("image_url", &mut podcast.image_url);
    check.text("language", &mut podcast.language);
    check.text("medium", &mut podcast.medium);
    check.optional_text("owner_email", &mut podcast.owner_email);
    check.optional_url("new_feed_url", &mut podcast.new_feed_url);
    check.optional_url("license_url", &mut podcast.license_url);
    check.list("categories", &mut podcast.categories, |one| {
        let sub = one.subcategory.as_deref();
        shown_category(&one.category, sub) == (Some(one.category.as_str()), sub)
    });
    check.list("locations", &mut podcast.locations, |location| {
        may_show(&["podcast", "locations", "name"], &location.name)
            && shows_optional(&["podcast", "locations", "rel"], &location.rel)
            && shows_optional(&["podcast", "locations", "geo"], &location.geo)
            && shows_optional(&["podcast", "locations", "osm"], &location.osm)
    });
    check.list("funding", &mut podcast.funding, |funding| {
        shows_url(&["podcast", "funding", "url"], &mut funding.url)
    });
    check.persons(&mut podcast.persons);
    let (category, sub) = shown_category(&podcast.category, podcast.subcategory.as_deref());
    let category = category.unwrap_or_default().to_owned();
    let sub = sub.map(str::to_owned);
    if category != podcast.category {
        check.malformed.push("category");
    }
    if sub != podcast.subcategory {
        check.malformed.push("subcategory");
    }
    podcast.category = category;
    podcast.subcategory = sub;
}

/// Clears the members of an episode that a feed must not show. Returns whether apps can play it.
pub fn clear_episode(episode: &mut Episode) -> bool {
    let mut check = Check {
        of: "episode",
        malformed: &mut episode.malformed,
    };
    check.url("enclosure_url", &mut episode.enclosure_url);
    // more than Apple's types, which import requires: other apps play them
    let is_media = ["audio/", "video/"]
        .iter()
        .any(|kind| episode.enclosure_type.starts_with(kind));
    if !is_media {
        episode.enclosure_type.clear();
        check.malformed.push("enclosure_type");
    }
    check.optional_url("link", &mut episode.link);
    check.optional_url("image_url", &mut episode.image_url);
    check.optional_url("chapters_url", &mut episode.chapters_url);
    check.optional_text("social_uri", &mut episode.social_uri);
    check.list("transcripts", &mut episode.transcripts, |transcript| {
        shows_url(&["episode", "transcripts", "url"], &mut transcript.url)
            && may_show(&["episode", "transcripts", "kind"], &transcript.kind)
            && shows_optional(&["episode", "transcripts", "rel"], &transcript.rel)
    });
    check.persons(&mut episode.persons);
    is_media && !episode.enclosure_url.is_empty()
}

impl Check<'_> {
    fn text(&mut self, column: &'static str, text: &mut String) {
        if !may_show(&[self.of, column], text) {
            text.clear();
            self.malformed.push(column);
        }
    }

    fn url(&mut self, column: &'static str, text: &mut String) {
        *text = url(text);
        self.text(column, text);
    }

    fn optional_text(&mut self, column: &'static str, text: &mut Option<String>) {
        if text
            .take_if(|text| !may_show(&[self.of, column], text))
            .is_some()
        {
            self.malformed.push(column);
        }
    }

    fn optional_url(&mut self, column: &'static str, text: &mut Option<String>) {
        *text = text.as_deref().map(url);
        self.optional_text(column, text);
    }

    /// Keeps the items that a feed may show.
    fn list<T>(
        &mut self,
        column: &'static str,
        items: &mut Vec<T>,
        shows: impl FnMut(&mut T) -> bool,
    ) {
        let before = items.len();
        items.retain_mut(shows);
        if items.len() < before && !self.malformed.contains(&column) {
            self.malformed.push(column);
        }
    }

    /// Clears the links of persons, which are named without them as well.
    fn persons(&mut self, persons: &mut [Person]) {
        let mut is_cleared = false;
        for person in persons {
            for (name, link) in [("image", &mut person.image), ("href", &mut person.href)] {
                *link = link.as_deref().map(url);
                let path = [self.of, "persons", name];
                is_cleared |= link.take_if(|link| !may_show(&path, link)).is_some();
            }
        }
        if is_cleared && !self.malformed.contains(&"persons") {
            self.malformed.push("persons");
        }
    }
}

fn shows_optional(path: &[&str], text: &Option<String>) -> bool {
    text.as_ref().is_none_or(|text| may_show(path, text))
}

fn shows_url(path: &[&str], text: &mut String) -> bool {
    *text = url(text);
    may_show(path, text)
}
