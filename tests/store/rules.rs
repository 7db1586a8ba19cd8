//! Rules of records beyond the types of their members.

use crate::transfer::{AT, exported, imported, least, refused, with};
use crate::world::World;
use portcullis_store::Store;
use serde_json::json;

/// Refuses these lines at the last one, with this message, and imports nothing of them.
async fn refused_last(store: &Store, lines: &[String], why: &str) {
    let before = exported(store, None).await;
    let error = refused(store, &lines.join("\n")).await;
    let expected = format!("line {}: {why}", lines.len());
    assert!(error.starts_with(&expected), "{lines:?}: {error}");
    assert_eq!(exported(store, None).await, before, "{why}");
}

pub(crate) async fn a_podcast_has_a_category_of_apples(world: World) {
    let store = world.open().await;
    let podcast = |category: &str, subcategory: Option<&str>| {
        with(
            "podcast",
            &[
                ("category", json!(category)),
                ("subcategory", json!(subcategory)),
            ],
        )
    };
    for (category, subcategory) in [
        ("Cards", None),
        ("leisure", None),
        ("Hobbies", None),
        ("Leisure", Some("hobbies")),
        ("Leisure", Some("Tennis")),
        ("Kids &amp; Family", None),
    ] {
        let lines = [
            podcast("Leisure", Some("Hobbies")),
            podcast(category, subcategory),
        ];
        refused_last(&store, &lines, "podcast.category must be one of Apple's").await;
    }
    imported(&store, &podcast("Kids & Family", Some("Stories for Kids"))).await;
    let further = |list| with("podcast", &[("categories", list)]);
    for list in [
        json!([{"category": "Cards"}]),
        json!([{"category": "Arts"}, {"category": "Arts", "subcategory": "Tennis"}]),
    ] {
        refused_last(
            &store,
            &[further(list)],
            "podcast.category must be one of Apple's",
        )
        .await;
    }
    imported(
        &store,
        &further(json!([{"category": "Arts", "subcategory": "Design"}])),
    )
    .await;
}

pub(crate) async fn members_of_a_podcast_have_their_syntax(world: World) {
    let store = world.open().await;
    for (member, value, is_right) in [
        ("license", json!("cc-by-4.0"), true),
        ("license", json!(""), false),
        ("license_url", json!("https://a.example"), true),
        ("license_url", json!("javascript:a"), false),
        ("locations", json!([{"name": "Paris"}]), true),
        (
            "locations",
            json!([{"name": "P", "geo": "geo:-48.85,2.35,7"}]),
            true,
        ),
        ("locations", json!([{"name": "P", "geo": "geo:48"}]), false),
        ("locations", json!([{"name": "P", "geo": "48,2"}]), false),
        ("locations", json!([{"name": "P", "geo": "geo:a,b"}]), false),
        (
            "locations",
            json!([{"name": "P", "osm": "N1#2", "rel": "creator"}]),
            true,
        ),
        ("locations", json!([{"name": "P", "osm": "X1"}]), false),
        ("locations", json!([{"name": "P", "osm": "R"}]), false),
        ("locations", json!([{"name": "P", "rel": "near"}]), false),
        ("locations", json!([{"geo": "geo:1,2"}]), false),
        ("categories", json!([{"subcategory": "Design"}]), false),
    ] {
        let line = with("podcast", &[(member, value)]);
        if is_right {
            imported(&store, &line).await;
            let back = exported(&store, Some("podcast")).await;
            imported(&store, &back).await;
            assert_eq!(exported(&store, Some("podcast")).await, back, "{line}");
        } else {
            refused_last(&store, &[line], &format!("podcast.{member}")).await;
        }
    }
}

pub(crate) async fn episodes_of_a_serial_have_numbers(world: World) {
    let store = world.open().await;
    let podcast = |kind: &str| with("podcast", &[("kind", json!(kind))]);
    let unnumbered = || least("episode").to_string();
    let numbered = || with("episode", &[("number", json!(1))]);
    let why = "episode: number is missing: the podcast is serial";
    refused_last(&store, &[podcast("serial"), unnumbered()], why).await;
    imported(&store, &[podcast("serial"), numbered()].join("\n")).await;
    refused_last(&store, &[podcast("serial"), unnumbered()], why).await;
    let trailer = with("episode", &[("kind", json!("trailer"))]);
    imported(&store, &trailer).await;
    imported(&store, &[podcast("serial"), trailer].join("\n")).await;
    imported(&store, &[podcast("episodic"), unnumbered()].join("\n")).await;
    let why = "podcast: kind is serial, but a stored full episode has no number";
    refused_last(&store, &[podcast("serial")], why).await;
    imported(&store, &[numbered(), podcast("serial")].join("\n")).await;
}

pub(crate) async fn the_guid_of_an_episode_never_changes(world: World) {
    let store = world.open().await;
    let episode = |guid: &str| with("episode", &[("guid", json!(guid)), ("title", json!(guid))]);
    let why = "episode: guid differs from the stored one: it never changes";
    let podcast = || least("podcast").to_string();
    refused_last(&store, &[podcast(), episode("g1"), episode("g2")], why).await;
    imported(&store, &[podcast(), episode("g1")].join("\n")).await;
    refused_last(&store, &[episode("g2")], why).await;
    assert_eq!(imported(&store, &episode("g1")).await, "1 episode", "again");
}

pub(crate) async fn no_post_is_of_the_day_after_tomorrow(world: World) {
    let store = world.open().await;
    let item = |at: &str| with("feed_item", &[("sort_at", json!(at))]);
    let why = "feed_item.sort_at must be at most one day in the future";
    for at in ["2026-11-23T00:00:00.000001Z", "2029-01-01T00:00:00Z"] {
        refused_last(&store, &[item(AT), item(at)], why).await;
    }
    imported(&store, &item("2026-11-23T00:00:00Z")).await;
}
