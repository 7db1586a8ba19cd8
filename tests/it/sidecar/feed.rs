//! A podcast's feed, parsed like a podcast app does.

use portcullis_edge::sidecar::document::Document;
use portcullis_edge::sidecar::podcast::{Feed, clear_podcast, render};
use portcullis_store::{Category, Episode, Funding, Person, Place, Podcast, Transcript, Txt};

use crate::support::sidecar::xml::{Node, read};

const BASE: &str = "https://cards.example";
const DID: &str = "did:plc:z72i7hdynmk6r22z27h6tvur";
const DAY: i64 = 86_400_000_000;
const NOVEMBER: i64 = 1_793_491_200_000_000; // Sun, 01 Nov 2026 00:00:00 GMT

fn text(text: &str) -> Option<String> {
    Some(text.to_owned())
}

fn person(name: &str) -> Person {
    let name = name.to_owned();
    Person {
        name,
        role: text("guest"),
        href: text("https://a.example"),
        ..Person::default()
    }
}

fn podcast() -> Podcast {
    Podcast {
        did: DID.to_owned(),
        guid: "917393e3-1b1e-5cef-ace4-edaa54e1f810".to_owned(),
        title: "Pulls & <Packs>".to_owned(),
        description: "Cards, \"opened\"\nweekly.".to_owned(),
        link: "https://cards.example/@ana".to_owned(),
        language: "en".to_owned(),
        author: text("Ana"),
        category: "Leisure".to_owned(),
        subcategory: text("Hobbies"),
        image_url: "https://cards.example/art.jpg".to_owned(),
        kind: "serial".to_owned(),
        medium: "podcast".to_owned(),
        locked: true,
        copyright: text("© Ana"),
        funding: vec![Funding {
            url: "https://cards.example/tip".to_owned(),
            text: "Tip".to_owned(),
        }],
        persons: vec![person("Ana")],
        txt: vec![Txt {
            purpose: text("verify"),
            value: "code".to_owned(),
        }],
        updated_us: NOVEMBER,
        ..Podcast::default()
    }
}

fn episode(number: i64) -> Episode {
    Episode {
        id: format!("e{number}"),
        did: DID.to_owned(),
        guid: format!("at://{DID}/example.episode/{number}"),
        title: format!("Box {number}"),
        description_html: "<p>One &amp; <a href='https://a.example'>two</a></p><p>Three".to_owned(),
        link: text("https://cards.example/e"),
        enclosure_url: format!("https://media.example/{number}.mp3"),
        enclosure_length: 12_345_678,
        enclosure_type: "audio/mpeg".to_owned(),
        duration_s: Some(3723),
        published_us: NOVEMBER - number * DAY,
        season: Some(2),
        number: Some(number),
        kind: "full".to_owned(),
        explicit: Some(true),
        image_url: text("https://cards.example/é.jpg"),
        transcripts: vec![Transcript {
            url: "https://media.example/1.vtt".to_owned(),
            kind: "text/vtt".to_owned(),
            language: text("en"),
            rel: text("captions"),
        }],
        persons: vec![person("Bo"), person("Cy")],
        chapters_url: text("https://media.example/1.json"),
        social_uri: Some(format!("at://{DID}/app.bsky.feed.post/{number}")),
        updated_us: NOVEMBER - number * DAY,
        ..Episode::default()
    }
}

/// A feed of one page.
fn feed<'a>(podcast: &'a Podcast, episodes: &'a [Episode]) -> Feed<'a> {
    let handle = Some("ana.cards.example");
    Feed {
        podcast,
        episodes,
        pages: (1, 1),
        changed_us: None,
        handle,
        base_url: BASE,
        hub_url: None,
    }
}

fn document(podcast: &Podcast, episodes: &[Episode]) -> Document {
    render(&feed(podcast, episodes))
}

fn channel(podcast: &Podcast, episodes: &[Episode]) -> Node {
    let mut rss = read(&document(podcast, episodes).body);
    assert_eq!(rss.name, "rss");
    assert_eq!(rss.children.len(), 1, "a feed has one channel");
    rss.children.remove(0)
}

/// The value at a path: elements, then an attribute after `@`, or else the text.
fn at<'a>(node: &'a Node, path: &str) -> &'a str {
    let (elements, attribute) = path.split_once('@').unwrap_or((path, ""));
    let node = elements
        .split_terminator('/')
        .fold(node, |node, name| node.one(name));
    if attribute.is_empty() {
        &node.text
    } else {
        node.attribute(attribute).unwrap_or_default()
    }
}

/// The document shows what PSP-1 and Apple require, and that each prefix is declared.
#[test]
fn a_feed_is_the_expected_document() {
    let document = document(&podcast(), &[episode(1), episode(2)]);
    assert_eq!(
        str::from_utf8(&document.body),
        Ok(include_str!("feed.xml").trim_end())
    );
}

#[test]
fn missing_members_are_not_written() {
    let bare = Episode {
        description_html: String::new(),
        link: None,
        duration_s: None,
        season: None,
        number: None,
        explicit: None,
        image_url: None,
        transcripts: Vec::new(),
        persons: Vec::new(),
        chapters_url: None,
        social_uri: text("https://not-atproto.example/1"),
        ..episode(1)
    };
    let channel = channel(&podcast(), &[bare]);
    let names: Vec<_> = channel
        .one("item")
        .children
        .iter()
        .map(|child| &*child.name)
        .collect();
    let expected = [
        "title",
        "enclosure",
        "guid",
        "pubDate",
        "itunes:title",
        "itunes:episodeType",
    ];
    assert_eq!(names, expected);
}

#[test]
fn a_creators_choices_are_written() {
    let chosen = Podcast {
        owner_email: text("ana@cards.example"),
        new_feed_url: text("https://new.example/feed"),
        complete: true,
        block: true,
        locked: false,
        explicit: true,
        subcategory: None,
        description: " ".to_owned(),
        ..podcast()
    };
    let channel = channel(&chosen, &[]);
    for (path, expected) in [
        ("itunes:owner/itunes:name", "Ana"),
        ("itunes:owner/itunes:email", "ana@cards.example"),
        ("podcast:locked@owner", "ana@cards.example"),
        ("podcast:locked", "no"),
        ("itunes:new-feed-url", "https://new.example/feed"),
        ("itunes:complete", "yes"),
        ("itunes:block", "yes"),
        ("itunes:explicit", "true"),
        ("description", "Pulls & < Packs>"),
    ] {
        assert_eq!(at(&channel, path), expected, "{path}");
    }
    assert_eq!(channel.one("itunes:category").children.len(), 0);
    assert_eq!(channel.all("pubDate").count(), 0, "nothing is published");
}

#[test]
fn a_podcast_says_more_of_itself() {
    let place = |name: &str, osm| Place {
        name: name.to_owned(),
        rel: text("subject"),
        geo: text("geo:48.85,2.35"),
        osm,
    };
    let category = |category: &str, subcategory| Category {
        category: category.to_owned(),
        subcategory,
    };
    let mut podcast = Podcast {
        categories: vec![
            category("Arts", text("Design")),
            category("News", None),
            category("Arts", text("Tennis")),
            category("Cards", None),
        ],
        license: text("cc-by-4.0"),
        license_url: text("javascript:alert(1)"),
        locations: vec![place("Paris", text("R7444")), place("Rome", text("x"))],
        ..podcast()
    };
    clear_podcast(&mut podcast);
    assert_eq!(
        podcast.malformed,
        ["license_url", "categories", "locations"]
    );
    let trailer = Episode {
        kind: "trailer".to_owned(),
        ..episode(1)
    };
    let channel = channel(&podcast, &[trailer, episode(2)]);
    let categories = channel.all("itunes:category");
    let names = categories.map(|one| one.attribute("text").unwrap());
    assert_eq!(names.collect::<Vec<_>>(), ["Leisure", "Arts", "News"]);
    for (path, expected) in [
        ("podcast:license", "cc-by-4.0"),
        ("podcast:license@url", ""),
        ("podcast:location", "Paris"),
        ("podcast:location@rel", "subject"),
        ("podcast:location@geo", "geo:48.85,2.35"),
        ("podcast:location@osm", "R7444"),
        ("podcast:trailer", "Box 1"),
        ("podcast:trailer@url", "https://media.example/1.mp3"),
        ("podcast:trailer@pubdate", "Sat, 31 Oct 2026 00:00:00 GMT"),
        ("podcast:trailer@length", "12345678"),
        ("podcast:trailer@type", "audio/mpeg"),
        ("podcast:trailer@season", "2"),
    ] {
        assert_eq!(at(&channel, path), expected, "{path}");
    }
}

#[test]
fn difficult_text_is_preserved() {
    let hard = "ana@b.example \u{1}<b>🃏</b> \u{5d0}\u{5d1} \u{202e}x ]]> &amp;";
    let clean = "ana@b.example <b>🃏</b> \u{5d0}\u{5d1} \u{202e}x ]]> &amp;";
    let podcast = Podcast {
        title: hard.to_owned(),
        description: hard.to_owned(),
        author: text(hard),
        ..podcast()
    };
    let episode = Episode {
        title: hard.to_owned(),
        description_html: hard.to_owned(),
        ..episode(1)
    };
    let channel = channel(&podcast, &[episode]);
    for path in ["title", "itunes:author", "item/title", "item/itunes:title"] {
        assert_eq!(at(&channel, path), clean, "{path}");
    }
    let shown = "ana@b.example < b>🃏< /b> \u{5d0}\u{5d1} \u{202e}x ]]> &amp;";
    assert_eq!(
        at(&channel, "description"),
        shown,
        "also by apps that take it for HTML"
    );
    let plain = "ana@b.example 🃏 \u{5d0}\u{5d1} \u{202e}x ]]> &";
    assert_eq!(at(&channel, "item/description"), plain);
    let html = "ana@b.example <b>🃏</b> \u{5d0}\u{5d1} \u{202e}x ]]&gt; &amp;";
    assert_eq!(at(&channel, "item/content:encoded"), html);
}

/// Parts of a text, with what apps must not take for a tag that acts.
const ACTIVE: &str = "A<script>alert(1)</script><\u{1}script><ScRiPt>\n\
    <img\nsrc=x onerror=alert(1)><a href=javascript:x><b/onclick=x><x onclick=x><svg><style>\
    </iframe><!-- <b <plaintext>Z";

#[test]
fn no_text_of_a_channel_acts_as_html() {
    let hostile = || ACTIVE.to_owned();
    let podcast = Podcast {
        title: hostile(),
        description: hostile(),
        author: text(ACTIVE),
        copyright: text(ACTIVE),
        owner_name: text(ACTIVE),
        owner_email: text("ana@cards.example"),
        persons: vec![person(ACTIVE)],
        funding: vec![Funding {
            url: "https://cards.example/tip".to_owned(),
            text: hostile(),
        }],
        ..podcast()
    };
    let channel = channel(
        &podcast,
        &[Episode {
            title: hostile(),
            ..episode(1)
        }],
    );
    for path in [
        "title",
        "image/title",
        "description",
        "copyright",
        "itunes:author",
        "itunes:owner/itunes:name",
        "podcast:person",
        "podcast:funding",
        "item/title",
        "item/itunes:title",
    ] {
        let text = at(&channel, path);
        let text = text.trim_end_matches('<');
        let tags = text
            .match_indices('<')
            .filter(|(at, _)| !text[at + 1..].starts_with(' '));
        assert_eq!(tags.count(), 0, "{path}: {text}");
        let solid = |text: &str| text.replace(['\u{1}', ' ', '\n'], "");
        let (found, whole) = (solid(text), solid(ACTIVE));
        assert!(
            whole.starts_with(&found) && found.len() > 100,
            "{path} keeps its text: {text}"
        );
    }
}

#[test]
fn a_title_keeps_what_only_looks_like_a_tag() {
    for title in [
        "Salt & <Pepper>",
        "<b>Bold</b>",
        "1 < 2",
        "a <![CDATA[ b ]]>",
        "&lt;script&gt;",
    ] {
        let podcast = Podcast {
            title: title.to_owned(),
            ..podcast()
        };
        assert_eq!(at(&channel(&podcast, &[]), "title"), title);
    }
}

#[test]
fn pages_link_to_each_other() {
    let url = |page: u32| match page {
        1 => format!("{BASE}/functions/podcast-rss-feed?did={DID}"),
        _ => format!("{BASE}/functions/podcast-rss-feed?did={DID}&page={page}"),
    };
    for (pages, expected) in [
        ((1, 1), vec![("self", 1)]),
        (
            (1, 3),
            vec![("self", 1), ("first", 1), ("next", 2), ("last", 3)],
        ),
        (
            (2, 3),
            vec![
                ("self", 2),
                ("first", 1),
                ("previous", 1),
                ("next", 3),
                ("last", 3),
            ],
        ),
        (
            (3, 3),
            vec![("self", 3), ("first", 1), ("previous", 2), ("last", 3)],
        ),
    ] {
        let document = render(&Feed {
            pages,
            ..feed(&podcast(), &[])
        });
        let root = read(&document.body);
        let links = root.one("channel").all("atom:link");
        let link =
            |link: &Node| ["rel", "href"].map(|name| link.attribute(name).unwrap().to_owned());
        let expected = expected
            .into_iter()
            .map(|(relation, page)| [relation.to_owned(), url(page)]);
        assert!(links.map(link).eq(expected), "{pages:?}");
    }
    for (page, hubs) in [(1, vec!["https://hub.example/?a&b"]), (2, vec![])] {
        let document = render(&Feed {
            pages: (page, 2),
            hub_url: Some("https://hub.example/?a&b"),
            ..feed(&podcast(), &[])
        });
        let links = read(&document.body);
        let links = links.one("channel").all("atom:link");
        let hub = links.filter(|link| link.attribute("rel") == Some("hub"));
        let found = hub.map(|link| link.attribute("href").unwrap());
        assert!(found.eq(hubs), "page {page}: apps subscribe to the first");
    }
    let podcast = podcast();
    let changed = Feed {
        changed_us: Some(NOVEMBER + DAY),
        ..feed(&podcast, &[])
    };
    assert_eq!(
        render(&changed).modified_us,
        Some(NOVEMBER + DAY),
        "of any page"
    );
}

#[test]
fn texts_keep_to_their_bounds() {
    let long = "&🃏é ".repeat(4000);
    let podcast = Podcast {
        title: long.clone(),
        description: long.clone(),
        persons: vec![person(&long)],
        ..podcast()
    };
    let episode = Episode {
        title: long.clone(),
        description_html: format!("<p>{long}</p>"),
        ..episode(1)
    };
    let channel = channel(&podcast, &[episode]);
    for path in ["description", "item/description"] {
        let text = at(&channel, path);
        assert!(
            text.ends_with('…') && text.len() <= 4000,
            "{path}: {} bytes",
            text.len()
        );
        assert!(text.len() > 3980, "{path} is cut at the end only");
    }
    for (path, max) in [("title", 255), ("item/title", 255), ("podcast:person", 128)] {
        let found = at(&channel, path).chars().count();
        assert!(
            (max - 1..=max).contains(&found),
            "{path}: {found} characters"
        );
    }
    let whole = at(&channel, "item/content:encoded");
    assert_eq!(
        whole.matches('🃏').count(),
        4000,
        "the whole is in content:encoded"
    );
}

#[test]
fn a_long_episode_is_cut() {
    for (kind, piece) in [
        ("escaped", "<"),
        ("decoded", "&lt;"),
        ("a bare ampersand", "&"),
        ("plain", "a "),
        ("a character of four bytes", "🃏"),
        ("a tag", "<b>"),
        ("a link", "<a href='https://a.example/\"\"\"\"\"\"'>x</a>"),
        ("a paragraph", "<p>x"),
    ] {
        let html = piece.repeat((256 << 10) / piece.len());
        let [encoded, plain] = described(&html);
        assert!(
            encoded.len() <= (64 << 10) + 300,
            "{kind}: {} bytes of HTML",
            encoded.len()
        );
        assert!(plain.len() <= 4000, "{kind}: {} bytes", plain.len());
        let is_cut = encoded.len() > (64 << 10) - 300;
        assert_eq!(encoded.contains('…'), is_cut, "{kind} shows where it ends");
    }
    let hidden = format!("{}x", "<script>y</script>".repeat(4000));
    assert_eq!(
        described(&hidden),
        ["x", "x"],
        "what does not show counts for nothing"
    );
}

#[test]
fn a_feed_is_dated_by_its_content() {
    let base = podcast();
    for (updated, published, edited, expected, why) in [
        (9, 3, 3, 9, "the podcast was edited last"),
        (1, 5, 2, 5, "an episode appeared last"),
        (1, 5, 7, 7, "an episode was edited last"),
    ] {
        let podcast = Podcast {
            updated_us: updated,
            ..base.clone()
        };
        let newest = Episode {
            published_us: published,
            updated_us: edited,
            ..episode(1)
        };
        let older = Episode {
            published_us: 0,
            updated_us: 0,
            ..episode(2)
        };
        let document = document(&podcast, &[newest, older]);
        assert_eq!(document.modified_us, Some(expected), "{why}");
    }
}

#[test]
fn a_feed_names_itself_by_its_did() {
    let podcast = Podcast {
        did: "did:web:localhost%3A3000".to_owned(),
        ..podcast()
    };
    let feed = Feed {
        handle: None,
        ..feed(&podcast, &[])
    };
    let url = "https://cards.example/functions/podcast-rss-feed?did=did:web:localhost%253A3000";
    assert_eq!(feed.url(), url);
    assert_eq!(render(&feed), render(&feed), "equal content, equal bytes");
    assert_eq!(
        render(&feed).media_type,
        "application/rss+xml; charset=utf-8"
    );
}

/// The description of an episode as a feed has it: as HTML, and as plain text.
fn described(html: &str) -> [String; 2] {
    let episode = Episode {
        description_html: html.to_owned(),
        ..episode(1)
    };
    let channel = channel(&podcast(), &[episode]);
    let item = channel.one("item");
    ["content:encoded", "description"].map(|name| {
        item.all(name)
            .map(|element| element.text.as_str())
            .collect()
    })
}

#[test]
fn only_allowed_tags_and_links_remain() {
    for row in include_str!("html.txt").lines() {
        let (html, expected) = row.split_once(" =>").expect("input and output");
        assert_eq!(described(html)[0], expected.trim(), "{html}");
    }
    assert_eq!(described("a&nbsp;b")[0], "a\u{a0}b");
}

#[test]
fn html_without_text_is_no_description() {
    for html in ["", "<p></p>", "<br><br>", "<p> </p>", "<script>x</script>"] {
        assert_eq!(described(html), ["", ""], "{html}");
    }
    assert_eq!(described("<b>a</b>"), ["<b>a</b>", "a"]);
}

#[test]
fn plain_text_has_paragraphs_and_no_tags() {
    for (html, expected) in [
        ("<p>one\n  two</p>\n<p>three</p>", "one two\n\nthree"),
        ("one<br>two<br/><br>three", "one\ntwo\nthree"),
        ("<ul><li>a</li><li>b</li></ul>c", "a\nb\n\nc"),
        ("in<b>one</b>word", "inoneword"),
        ("<b>two</b> <i>words</i>", "two words"),
        ("<a href='https://a.example'>a link</a>", "a link"),
        ("R&amp;D &lt;3", "R&D <3"),
        (
            "&lt;script&gt;x&lt;/script&gt; &lt;!--",
            "< script>x< /script> < !--",
        ),
        ("&lt;<b>script></b>", "< script>"),
        ("&lt;&#1;script>", "< script>"),
        ("<script>x</script> <style>y</style>", ""),
        ("  <p> </p> ", ""),
        ("plain text", "plain text"),
    ] {
        assert_eq!(described(html)[1], expected, "{html}");
    }
}

#[test]
fn hostile_html_stays_small_and_closed() {
    for piece in [
        "<p>",
        "<b>",
        "<a ",
        "<a href=\"",
        "</",
        "<!--",
        "&",
        "<ul><li>",
        "<script>",
    ] {
        let html = piece.repeat(50_000) + "x";
        let [safe, _] = described(&html);
        assert!(
            safe.len() <= 8 * html.len(),
            "{piece}: {} bytes",
            safe.len()
        );
    }
    let [deep, _] = described(&("<b>".repeat(1000) + "x"));
    assert_eq!(deep.matches("<b>").count(), 32);
    assert_eq!(deep.matches("</b>").count(), 32);
}
