//! Rows that are written by SQL, past the checks of import.

use crate::content::{PODCAST, episode};
use crate::world::{NOW, World};

pub(crate) async fn rows_that_no_feed_shows_are_refused(world: World) {
    let _store = world.open().await;
    world.raw(PODCAST).await.unwrap();
    world.raw(&episode("1", NOW, "public")).await.unwrap();
    for (table, column, wrong, right) in [
        ("podcast", "link", "javascript:a", "http://a.example"),
        ("podcast", "link", "", "https://a.example/ö"),
        (
            "podcast",
            "image_url",
            "ftp://a.example",
            "https://a.example",
        ),
        ("podcast", "new_feed_url", "data:x", "https://a.example"),
        (
            "podcast",
            "license_url",
            "javascript:a",
            "https://a.example",
        ),
        ("podcast", "language", "", "pt-BR"),
        ("podcast", "language", "English", "en"),
        ("podcast", "category", "Cards", "TV & Film"),
        ("podcast", "medium", "zzz", "newsletter"),
        ("podcast", "owner_email", "x", "a+b@c.example"),
        ("podcast", "owner_email", "a@b@c.example", "a@b.c"),
        ("episode", "link", "javascript:a", "https://a.example"),
        ("episode", "image_url", "//a.example", "https://a.example"),
        ("episode", "chapters_url", "x", "https://a.example"),
        (
            "episode",
            "enclosure_url",
            "ftp://a.example",
            "https://a.example",
        ),
        ("episode", "enclosure_type", "nope", "video/mp4"),
        ("episode", "social_uri", "at://x", "at://did:web:a/b/c"),
    ] {
        let update = |value| format!("UPDATE {table} SET {column} = '{value}'");
        let refused = world.raw(&update(wrong)).await.unwrap_err().to_string();
        let rule = format!("{table}_{column}_is_");
        assert!(
            refused.contains(&rule),
            "{table}.{column} {wrong}: {refused}"
        );
        world.raw(&update(right)).await.unwrap();
    }
    for column in ["new_feed_url", "license_url", "owner_email"] {
        let clear = format!("UPDATE podcast SET {column} = NULL");
        world.raw(&clear).await.unwrap();
    }
    let other = PODCAST.replace("'did:plc:a', 'g'", "'did:plc:b', 'h'");
    let other = other.replace("'en'", "'English'");
    world.raw(&other).await.unwrap_err();
}

pub(crate) async fn a_podcast_says_more_of_itself(world: World) {
    let store = world.open().await;
    world.raw(PODCAST).await.unwrap();
    let more = r#"UPDATE podcast SET license = 'cc-by-4.0', license_url = 'https://l.example',
        categories = '[{"category":"Arts","subcategory":"Design"},{"category":"News"}]',
        locations = '[{"name":"Paris","geo":"geo:48.85,2.35","osm":"R7444","rel":"subject"}]'"#;
    let plain = store.podcasts().get("did:plc:a").await.unwrap().unwrap();
    assert!(plain.categories.is_empty() && plain.locations.is_empty());
    world.raw(more).await.unwrap();
    let full = store.podcasts().get("did:plc:a").await.unwrap().unwrap();
    let categories = full.categories.iter();
    let categories = categories.map(|one| (one.category.as_str(), one.subcategory.as_deref()));
    let expected = [("Arts", Some("Design")), ("News", None)];
    assert!(categories.eq(expected), "{:?}", full.categories);
    assert_eq!(full.license.as_deref(), Some("cc-by-4.0"));
    assert_eq!(full.license_url.as_deref(), Some("https://l.example"));
    assert_eq!(full.locations[0].osm.as_deref(), Some("R7444"));
}

pub(crate) async fn a_stored_row_that_breaks_a_rule_can_be_taken_down(world: World) {
    world.open().await.close().await;
    world.undo_rules().await;
    world
        .raw(&PODCAST.replace("https://a.example", "javascript:a"))
        .await
        .unwrap();
    let store = world.open().await;
    world
        .raw("UPDATE podcast SET status = 'taken_down'")
        .await
        .unwrap();
    let podcast = store.podcasts().get("did:plc:a").await.unwrap().unwrap();
    assert!(podcast.taken_down);
    world
        .raw("UPDATE podcast SET link = 'javascript:b'")
        .await
        .unwrap_err();
}
