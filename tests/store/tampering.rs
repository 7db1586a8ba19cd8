//! Somebody with all rights on the database changes the journal: verifying names the entry.

use crate::world::{World, append, intend, intent};
use portcullis_store::{Break, Entry, Store, Verified};

/// A journal of nine entries that nothing protects any more.
async fn unprotected(world: &World) -> Store {
    let store = world.open().await;
    for number in 0..4 {
        let id = intend(&store, &intent(number)).await;
        append(&store, id, u32::from(number == 3)).await;
    }
    let drop = if world.is_sqlite() {
        "DROP TRIGGER journal_keeps_rows; DROP TRIGGER journal_keeps_values"
    } else {
        "DROP TRIGGER journal_keeps_rows ON journal; DROP TRIGGER journal_keeps_all ON journal"
    };
    world.raw(drop).await.unwrap();
    store
}

async fn assert_broken(store: &Store, seq: i64, why: Break, after: &str) {
    let found = store.journal().verify().await.unwrap();
    assert_eq!(found, Verified::Broken { seq, why }, "{after}");
}

pub(crate) async fn a_changed_entry_is_found(world: World) {
    let store = unprotected(&world).await;
    let before = store.journal().entries(4, 1).await.unwrap().remove(0);
    for (column, changed, original) in [
        ("at_us", "1".to_owned(), before.at_us.to_string()),
        ("kind", "'lost'".to_owned(), "'sent'".to_owned()),
        ("intent_id", "NULL".to_owned(), "3".to_owned()),
        (
            "operation",
            "'register'".to_owned(),
            format!("'{}'", before.operation),
        ),
        ("detail", "'{ }'".to_owned(), format!("'{}'", before.detail)),
        (
            "hash",
            format!("'{}'", before.prev_hash),
            format!("'{}'", before.hash),
        ),
    ] {
        let set = |value: &str| format!("UPDATE journal SET {column} = {value} WHERE seq = 4");
        world.raw(&set(&changed)).await.unwrap();
        assert_broken(&store, 4, Break::Hash, column).await;
        world.raw(&set(&original)).await.unwrap();
        assert!(matches!(
            store.journal().verify().await.unwrap(),
            Verified::Whole { .. }
        ));
    }
    world
        .raw("UPDATE journal SET prev_hash = hash WHERE seq = 4")
        .await
        .unwrap();
    assert_broken(&store, 4, Break::Link, "prev_hash").await;
}

/// Replaces an entry by one whose hash is right.
async fn forge(world: &World, store: &Store, seq: i64) -> Entry {
    let mut entry = store.journal().entries(seq, 1).await.unwrap().remove(0);
    entry.detail = "{\"forged\":1}".to_owned();
    entry.hash = entry.computed_hash();
    let forged = format!("detail = '{}', hash = '{}'", entry.detail, entry.hash);
    world
        .raw(&format!("UPDATE journal SET {forged} WHERE seq = {seq}"))
        .await
        .unwrap();
    entry
}

pub(crate) async fn a_forged_hash_shows_at_the_next_entry(world: World) {
    let store = unprotected(&world).await;
    forge(&world, &store, 9).await;
    assert_broken(&store, 9, Break::End, "the newest forged").await;
    forge(&world, &store, 4).await;
    assert_broken(&store, 5, Break::Link, "one in the middle forged").await;
}

pub(crate) async fn a_removed_entry_is_found(world: World) {
    let store = unprotected(&world).await;
    world
        .raw("DELETE FROM journal WHERE seq = 9")
        .await
        .unwrap();
    assert_broken(&store, 9, Break::Missing, "the newest removed").await;
    world
        .raw("DELETE FROM journal WHERE seq = 4")
        .await
        .unwrap();
    assert_broken(&store, 4, Break::Missing, "one in the middle removed").await;
    world
        .raw("DELETE FROM journal WHERE seq = 1")
        .await
        .unwrap();
    assert_broken(&store, 1, Break::Missing, "the oldest removed").await;
    world.raw("DELETE FROM journal").await.unwrap();
    assert_broken(&store, 1, Break::Missing, "all removed").await;
}

pub(crate) async fn an_entry_beyond_the_end_is_found(world: World) {
    let store = unprotected(&world).await;
    world.raw("UPDATE chain_head SET seq = 8").await.unwrap();
    assert_broken(&store, 9, Break::End, "the end moved back").await;
    world.raw("DELETE FROM chain_head").await.unwrap();
    assert_broken(&store, 9, Break::End, "the end removed").await;
}
