//! The store's content: a few users, feeds, podcasts and pages, as the product's backend writes
//! them.

use super::token::seconds_from_now;

/// A user with every kind of content.
pub(crate) const ALICE: &str = "00000000-0000-4000-8000-000000000001";
/// A user without an AT Protocol account.
pub(crate) const BOB: &str = "00000000-0000-4000-8000-000000000002";
/// A banned user.
pub(crate) const CAROL: &str = "00000000-0000-4000-8000-000000000003";
/// A user that is not in the store.
pub(crate) const STRANGER: &str = "00000000-0000-4000-8000-0000000000ff";

/// The account of Alice, who has a podcast.
pub(crate) const ALICE_DID: &str = "did:plc:aliceaaaaaaaaaaaaaaaaaaa";
/// An account that was taken down, with its podcast.
pub(crate) const DORA_DID: &str = "did:plc:doraaaaaaaaaaaaaaaaaaaaa";
/// An account that its owner deactivated, with its podcast.
pub(crate) const ERIN_DID: &str = "did:plc:erinaaaaaaaaaaaaaaaaaaaa";
/// An account without a podcast.
pub(crate) const FRANK_DID: &str = "did:plc:frankaaaaaaaaaaaaaaaaaaa";
/// An account whose podcast was taken down.
pub(crate) const GINA_DID: &str = "did:plc:ginaaaaaaaaaaaaaaaaaaaaa";

/// An account that is not in the store.
const HARRY_DID: &str = "did:plc:harryaaaaaaaaaaaaaaaaaaa";

/// The write time of all rows: 9 September 2026.
const WRITTEN: i64 = 1_788_912_000_000_000;

/// The feed of [`PAGED`] posts.
pub(crate) const PAGED_FEED: &str = "collection-posts";
/// Posts in it, numbered from 1; the newest has the greatest number.
pub(crate) const PAGED: u32 = 60;
/// The feed of posts 101 to 104, of which moderators hid 102, and 103 is hidden.
pub(crate) const MODERATED_FEED: &str = "showcase";
/// The feed without posts.
pub(crate) const EMPTY_FEED: &str = "journals";

/// The address of a post of Alice.
pub(crate) fn post(number: u32) -> String {
    format!("at://{ALICE_DID}/app.bsky.feed.post/3kpost{number:06}")
}

/// All statements.
pub(crate) fn everything() -> String {
    [accounts(), feeds(), suggestions(), podcasts(), pages()].concat()
}

fn accounts() -> String {
    let rows = [
        (ALICE, Some((ALICE_DID, "alice")), "active"),
        (BOB, None, "active"),
        (
            CAROL,
            Some(("did:plc:carolaaaaaaaaaaaaaaaaaaa", "carol")),
            "banned",
        ),
        (
            "00000000-0000-4000-8000-000000000004",
            Some((DORA_DID, "dora")),
            "taken_down",
        ),
        (
            "00000000-0000-4000-8000-000000000005",
            Some((ERIN_DID, "erin")),
            "deactivated",
        ),
        (
            "00000000-0000-4000-8000-000000000006",
            Some((FRANK_DID, "frank")),
            "active",
        ),
        (
            "00000000-0000-4000-8000-000000000007",
            Some((GINA_DID, "gina")),
            "active",
        ),
    ];
    let rows = rows.map(|(user, known, status)| {
        let known = known.map_or("NULL, NULL".to_owned(), |(did, handle)| {
            format!("'{did}', '{handle}.cards.example'")
        });
        format!(
            "INSERT INTO account (user_id, did, handle, status, created_us)
               VALUES ('{user}', {known}, '{status}', {WRITTEN});\n"
        )
    });
    rows.concat()
}

/// A post in a feed.
pub(crate) fn item(feed: &str, number: u32, set: &str) -> String {
    let (uri, sort) = (post(number), WRITTEN + i64::from(number) * 1_000_000);
    format!(
        "INSERT INTO feed_item (feed, post_uri, author_did, set_code, sort_us)
           VALUES ('{feed}', '{uri}', '{ALICE_DID}', '{set}', {sort});\n"
    )
}

fn feeds() -> String {
    let mut sql = String::from("BEGIN;\n");
    for number in 1..=PAGED {
        sql += &item(
            PAGED_FEED,
            number,
            if number % 2 == 0 { "base1" } else { "neo" },
        );
        for (label, every) in [("rare", 3), ("holo", 5)] {
            if number % every == 0 {
                sql += &label_of(PAGED_FEED, number, label);
            }
        }
    }
    for number in 101..=104 {
        sql += &item(MODERATED_FEED, number, "base1");
    }
    let (moderated, hidden) = (post(102), post(103));
    sql += &format!("INSERT INTO moderation_label VALUES ('{moderated}', '!hide');\n");
    sql += &format!("UPDATE feed_item SET hidden = 1 WHERE feed = '{MODERATED_FEED}'\n");
    sql += &format!("  AND post_uri = '{hidden}';\n");
    sql += "COMMIT;\n";
    sql
}

fn label_of(feed: &str, number: u32, label: &str) -> String {
    let uri = post(number);
    format!(
        "INSERT INTO feed_label (feed, post_uri, label) VALUES ('{feed}', '{uri}', '{label}');\n"
    )
}

/// Suggestions for Alice: Gina, Harry (whom she follows), Frank, and Dora (who was taken down). For
/// other viewers: Gina alone.
fn suggestions() -> String {
    let built = seconds_from_now(-60) * 1_000_000;
    let rows = [
        (ALICE_DID, 1, GINA_DID, "same_sets"),
        (ALICE_DID, 2, HARRY_DID, "same_sets"),
        (ALICE_DID, 3, FRANK_DID, "trades_nearby"),
        (ALICE_DID, 4, DORA_DID, "same_sets"),
        ("*", 1, GINA_DID, "popular"),
    ];
    let rows = rows.map(|(viewer, rank, actor, reason)| {
        // each snapshot has its own id
        let snapshot = built + i64::from(viewer == "*");
        format!(
            "INSERT INTO suggestion VALUES ('{viewer}', {snapshot}, {rank}, '{actor}',
               'at://{actor}/app.bsky.feed.post/3kintro000001', '{reason}', {built});\n"
        )
    });
    format!(
        "{}INSERT INTO follow VALUES ('{ALICE_DID}', '{HARRY_DID}');\n",
        rows.concat()
    )
}

fn podcasts() -> String {
    let rows = [
        (ALICE_DID, "active"),
        (DORA_DID, "active"),
        (ERIN_DID, "active"),
        (GINA_DID, "taken_down"),
    ];
    let rows = (1..).zip(rows).map(|(number, (did, status))| {
        format!(
            "INSERT INTO podcast (did, guid, title, description, link, language, category,
               explicit, image_url, status, updated_us) VALUES ('{did}',
               '00000000-0000-5000-8000-00000000000{number}', 'Cards & Co', 'About <cards>',
               'https://cards.example/pod', 'en', 'Leisure', 0,
               'https://cdn.example/pod.png', '{status}', {WRITTEN});\n{}",
            episode(did, 1, WRITTEN)
        )
    });
    rows.collect()
}

/// An episode that is published at this microsecond.
pub(crate) fn episode(did: &str, number: u32, published: i64) -> String {
    format!(
        "INSERT INTO episode (id, did, guid, title, description_html, enclosure_url,
           enclosure_length, enclosure_type, published_us, updated_us) VALUES (
           '{did}-{number}', '{did}', 'guid-{number}', 'Episode {number}', '<p>Packs</p>',
           'https://cdn.example/{number}.mp3', 1000, 'audio/mpeg', {published}, {WRITTEN});\n"
    )
}

fn pages() -> String {
    let rows = [
        (1, "https://cards.example/cards/pikachu", 1),
        (2, "https://cards.example/cards/mew", 1),
        (3, "https://cards.example/private", 0),
    ];
    rows.map(|(id, loc, indexable)| page(id, loc, indexable))
        .concat()
}

/// A page of the product.
pub(crate) fn page(id: u32, loc: &str, indexable: u8) -> String {
    format!(
        "INSERT INTO sitemap_url (id, loc, lastmod_us, indexable)
           VALUES ({id}, '{loc}', {WRITTEN}, {indexable});\n"
    )
}
