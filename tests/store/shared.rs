//! A store that is opened while another process has it, and what a ping reports.

use crate::world::{World, felt, intend, intent};
use portcullis_store::{Binding, NewIntent, Store, StoreError};
use std::pin::pin;
use std::sync::Arc;
use tokio::task::JoinSet;

pub(crate) async fn a_shared_store_reads_and_writes(world: World) {
    let first = world.open().await;
    let second = Store::open_shared(&world.config(), None).await.unwrap();
    for number in 0..20 {
        let (one, other) = if number % 2 == 0 {
            (&first, &second)
        } else {
            (&second, &first)
        };
        let (identity, subject) = (Some(felt(number)), Some(felt(100 + number)));
        intend(
            one,
            &NewIntent {
                epoch: "e",
                identity,
                subject,
                ..intent(number)
            },
        )
        .await;
        let seen = other
            .faucet()
            .check("e", felt(number), felt(9))
            .await
            .unwrap();
        assert_eq!(
            seen,
            Binding::IdentityElsewhere,
            "what the one wrote, the other reads"
        );
    }
    second.close().await;
    first.ping().await.unwrap();
}

pub(crate) async fn tables_are_created_once(world: World) {
    let config = world.config();
    let (one, two) = tokio::join!(
        Store::open_shared(&config, None),
        Store::open_shared(&config, None)
    );
    let made = [one, two].into_iter().filter_map(|opened| match opened {
        Ok(store) => Some(store),
        // the other has it for itself for a moment
        Err(StoreError::Locked(_)) => None,
        Err(error) => panic!("{error}"),
    });
    for store in made.collect::<Vec<_>>() {
        store.ping().await.unwrap();
        store.close().await;
    }
    world.open().await.ping().await.unwrap();
}

pub(crate) async fn tables_appear_all_at_once(world: World) {
    let config = world.config();
    let mut creating = pin!(Store::open(&config, None));
    loop {
        let seen = async {
            match Store::open_read_only(&config, None).await {
                Err(StoreError::Version { found, .. }) => panic!("a reader saw version {found}"),
                _ => tokio::task::yield_now().await,
            }
        };
        tokio::select! {
            created = &mut creating => break created.unwrap().ping().await.unwrap(),
            () = seen => {}
        }
    }
}

pub(crate) async fn a_shared_store_refuses_another_version(world: World) {
    world.open().await.close().await;
    for change in ["version = version + 1", "version = version - 2"] {
        let newest = "(SELECT max(version) FROM _sqlx_migrations)";
        let others = format!("DELETE FROM _sqlx_migrations WHERE version <> {newest}");
        world.raw(&others).await.unwrap();
        world
            .raw(&format!("UPDATE _sqlx_migrations SET {change}"))
            .await
            .unwrap();
        let refused = Store::open_shared(&world.config(), None).await;
        assert!(
            matches!(refused, Err(StoreError::Version { .. })),
            "{change}: {refused:?}"
        );
    }
}

pub(crate) async fn a_ping_reports_the_cause(world: World) {
    let store = world.open().await;
    store.ping().await.unwrap();
    world
        .raw("UPDATE _sqlx_migrations SET version = 99 WHERE version = 2")
        .await
        .unwrap();
    let wrong = store.ping().await;
    assert!(
        matches!(wrong, Err(StoreError::Version { .. })),
        "{wrong:?}"
    );
    world.raw("DROP TABLE _sqlx_migrations").await.unwrap();
    let wrong = store.ping().await;
    assert!(matches!(wrong, Err(StoreError::NoTables)), "{wrong:?}");
}

pub(crate) async fn a_probe_that_writes_leaves_nothing(world: World) {
    let one = Arc::new(world.open().await);
    let two = match world.is_sqlite() {
        true => Arc::clone(&one),
        false => Arc::new(world.open().await),
    };
    let mut probes = JoinSet::new();
    for number in 0..12 {
        let store = Arc::clone(if number % 2 == 0 { &one } else { &two });
        probes.spawn(async move { store.ping_write().await });
    }
    for probe in probes.join_all().await {
        probe.unwrap();
    }
    assert_eq!(world.number("SELECT count(*) FROM idempotency").await, 0);
    let tables = match world.is_sqlite() {
        true => "SELECT count(*) FROM sqlite_schema WHERE name = 'portcullis_room'",
        false => "SELECT count(*) FROM pg_class WHERE relname = 'portcullis_room'",
    };
    assert_eq!(world.number(tables).await, 0);
    assert_eq!(
        world.number("SELECT seq FROM chain_head").await,
        0,
        "the journal is empty"
    );
    world
        .raw("ALTER TABLE chain_head RENAME TO gone")
        .await
        .unwrap();
    one.ping_write().await.unwrap_err();
    world
        .raw("ALTER TABLE gone RENAME TO chain_head")
        .await
        .unwrap();
    one.ping_write().await.unwrap();
}
