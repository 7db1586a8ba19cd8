//! Episodes that appeared or changed since a time.

use crate::content::{PODCAST, episode};
use crate::world::{NOW, World};

pub(crate) async fn a_feed_changes_with_its_episodes(world: World) {
    let store = world.open().await;
    world.raw(PODCAST).await.unwrap();
    let changed = async |after_us, now_us| {
        let found = store.podcasts().changed(after_us, now_us, 9).await.unwrap();
        let since = |(did, at): (String, i64)| (did, at - NOW);
        found.into_iter().map(since).collect::<Vec<_>>()
    };
    let none = Vec::new();
    assert_eq!(changed(0, NOW).await, none, "no episode");
    for (id, published_us, visibility) in [
        ("1", NOW - 50, "public"),
        ("2", NOW - 9, "public"),
        ("3", NOW + 5, "public"),
        ("4", NOW - 1, "hidden"),
    ] {
        let row = episode(id, published_us, visibility);
        world.raw(&row).await.unwrap();
    }
    let at = |us| vec![("did:plc:a".to_owned(), us)];
    assert_eq!(changed(NOW - 10, NOW).await, at(-9), "published");
    assert_eq!(changed(NOW - 9, NOW).await, none, "before that");
    assert_eq!(changed(NOW - 9, NOW + 5).await, at(5), "as planned");
    let update = format!("UPDATE episode SET updated_us = {} WHERE id = ", NOW - 2);
    for (id, expected, why) in [
        ("'4'", none.clone(), "hidden"),
        ("'3'", none.clone(), "not published yet"),
        ("'1'", at(-2), "rewritten"),
    ] {
        world.raw(&format!("{update}{id}")).await.unwrap();
        assert_eq!(changed(NOW - 9, NOW).await, expected, "{why}");
    }
    world
        .raw(
            "INSERT INTO account (user_id, did, handle, status, created_us)
             VALUES ('u', 'did:plc:a', 'a.example', 'taken_down', 1)",
        )
        .await
        .unwrap();
    assert_eq!(changed(0, NOW).await, none, "taken down");
}

pub(crate) async fn a_removed_episode_dates_its_podcast(world: World) {
    let store = world.open().await;
    world.raw(PODCAST).await.unwrap();
    for (id, visibility) in [("1", "public"), ("2", "public"), ("3", "hidden")] {
        let row = episode(id, NOW - 50, visibility);
        world.raw(&row).await.unwrap();
    }
    for (change, is_removal) in [
        ("UPDATE episode SET updated_us = 5 WHERE id = '1'", false),
        ("UPDATE episode SET visibility = 'public'", false),
        ("UPDATE episode SET published_us = 9 WHERE id = '1'", false),
        ("UPDATE episode SET published_us = 10 WHERE id = '1'", true),
        (
            "UPDATE episode SET visibility = 'members' WHERE id = '2'",
            true,
        ),
        ("DELETE FROM episode WHERE id = '1'", true),
        ("DELETE FROM episode WHERE id = '2'", false),
        ("DELETE FROM podcast", false),
    ] {
        let reset = "UPDATE podcast SET removed_us = 0";
        world.raw(reset).await.unwrap();
        world.raw(change).await.unwrap();
        let podcast = store.podcasts().get("did:plc:a").await.unwrap();
        let removed_us = podcast.map_or(0, |podcast| podcast.removed_us);
        assert_eq!(removed_us > 0, is_removal, "{change}");
    }
}
