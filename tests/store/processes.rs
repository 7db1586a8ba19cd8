//! More than one process, processes that are killed, and databases that are not there.

use crate::wire::{Cut, Moment, Request, Wire};
use crate::world::{
    EPOCH, NOW, World, config, felt, intend, intent, on_postgres, on_sqlite, server, token,
};
use portcullis_base::config::StoreConfig;
use portcullis_filters::felt::Felt;
use portcullis_filters::secret::Secret;
use portcullis_store::{
    Chore, ChoreLock, Claim, Intended, Journal, NewIntent, SessionLock, Store, StoreError, Verified,
};
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Where the process that is killed finds its database.
const CHILD: &str = "PORTCULLIS_TEST_CHILD";

pub(crate) async fn intents_survive_a_kill(world: World) {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([
            "--exact",
            "processes::a_process_that_is_killed",
            "--ignored",
            "--nocapture",
        ])
        .env(CHILD, &world.url)
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(child.stdout.take().unwrap())
        .lines()
        .map_while(Result::ok);
    let id = lines
        .into_iter()
        .find_map(|line| Some(line.split_once("durable ")?.1.to_owned()));
    child.kill().unwrap();
    child.wait().unwrap();
    let id = id.expect("the process says what it intended");

    let store = world.open().await;
    let stored = store.intents().unresolved(EPOCH, None).await.unwrap();
    assert_eq!(stored.len(), 1);
    assert_eq!(stored[0].id.to_string(), id);
    let new = intent(1);
    let claim = store
        .keys(EPOCH)
        .claim("k", new.operation, &new.digest, &token(2), NOW)
        .await
        .unwrap();
    assert!(
        matches!(
            claim,
            Claim::Open {
                intent: Some(_),
                ..
            }
        ),
        "{claim:?}"
    );
    let verified = store.journal().verify().await.unwrap();
    assert!(
        matches!(verified, Verified::Whole { entries: 2, .. }),
        "{verified:?}"
    );
}

#[test]
#[ignore = "it is started, and killed, by the test above"]
fn a_process_that_is_killed() {
    let Ok(url) = std::env::var(CHILD) else {
        return;
    };
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let store = Store::open(&config(&url), None).await.unwrap();
        let claim = store
            .keys(EPOCH)
            .claim("k", "faucet-drip", &intent(1).digest, &token(1), NOW)
            .await
            .unwrap();
        assert_eq!(claim, Claim::New);
        let new = NewIntent {
            idempotency_key: Some("k"),
            ..intent(1)
        };
        println!("durable {}", intend(&store, &new).await);
        std::future::pending::<()>().await;
    });
}

async fn lock(store: &Store, signer: Felt, wait: Duration) -> Result<SessionLock, StoreError> {
    let mut lock = SessionLock::of_signer(signer);
    lock.acquire(store, wait).await.map(|()| lock)
}

pub(crate) async fn a_signer_has_one_holder_at_a_time(world: World) {
    let one = world.open().await;
    let (short, long) = (Duration::from_millis(50), Duration::from_secs(5));
    let mut held = lock(&one, felt(0xa), short).await.unwrap();
    held.check().await.unwrap();
    if world.is_sqlite() {
        held.release().await.unwrap();
        assert!(held.check().await.is_err(), "it is released");
        return;
    }
    let two = world.open().await;
    let began = Instant::now();
    let refused = lock(&two, felt(0xa), short).await;
    assert!(
        matches!(refused, Err(StoreError::SignerHeld)),
        "{refused:?}"
    );
    assert!(began.elapsed() < long, "it waits no longer than its limit");
    let mut other = lock(&two, felt(0xb), short).await.unwrap();

    let waiting = lock(&two, felt(0xa), long);
    let (released, waited) = tokio::join!(held.release(), waiting);
    released.unwrap();
    drop(waited.unwrap());
    let mut again = lock(&one, felt(0xa), long)
        .await
        .expect("a dropped lock is free");
    again.release().await.unwrap();
    other.release().await.unwrap();

    let mut cut = lock(&one, felt(0xa), short).await.unwrap();
    let kill = "SELECT pg_terminate_backend(pid, 30000) FROM pg_locks \
                WHERE locktype = 'advisory' AND granted \
                AND database = (SELECT oid FROM pg_database WHERE datname = current_database())";
    world.raw(kill).await.unwrap();
    let mut held = lock(&two, felt(0xa), long)
        .await
        .expect("a cut connection frees the lock");
    for _ in 0..2 {
        assert!(cut.check().await.is_err(), "and its holder can know");
    }
    held.check().await.unwrap();

    held.release().await.unwrap();
    let idle = "query = 'SELECT pg_advisory_unlock($1)' AND datname = current_database()";
    let kill =
        format!("SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity WHERE {idle}");
    world.raw(&kill).await.unwrap();
    held.acquire(&two, short)
        .await
        .expect("a connection that was cut while idle is replaced");
    let refused = lock(&one, felt(0xa), short).await;
    assert!(
        matches!(refused, Err(StoreError::SignerHeld)),
        "{refused:?}"
    );
    held.abandon();
    lock(&one, felt(0xa), long)
        .await
        .expect("an abandoned lock is free");
}

pub(crate) async fn a_chore_has_one_process_at_a_time(world: World) {
    let one = world.open().await;
    let mut first = ChoreLock::of(Chore::Reconciliation);
    assert!(first.try_acquire(&one).await.unwrap());
    assert!(
        first.try_acquire(&one).await.unwrap(),
        "it stays with who has it"
    );
    if world.is_sqlite() {
        return first.release().await.unwrap();
    }
    let two = world.open().await;
    let mut second = ChoreLock::of(Chore::Reconciliation);
    assert!(!second.try_acquire(&two).await.unwrap());
    assert!(
        ChoreLock::of(Chore::Pruning)
            .try_acquire(&two)
            .await
            .unwrap(),
        "another chore is"
    );
    first.release().await.unwrap();
    assert!(
        second.try_acquire(&two).await.unwrap(),
        "a released one is free"
    );
    assert!(!first.try_acquire(&one).await.unwrap());
    drop(second);
    let began = Instant::now();
    while !first.try_acquire(&one).await.unwrap() {
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "one that ended is replaced"
        );
    }
    // PostgreSQL ends the session of a process that is suspended
    let idle = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%pg_try_advisory_lock%' \
                AND datname = current_database() AND pid <> pg_backend_pid()";
    let began = Instant::now();
    while world.number(idle).await != 1 {
        // the sessions of dropped locks end asynchronously
        assert!(
            began.elapsed() < Duration::from_secs(30),
            "only its session waits"
        );
    }
    let kill = "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity \
                WHERE query LIKE '%pg_try_advisory_lock%' AND datname = current_database() \
                AND pid <> pg_backend_pid()";
    world.raw(kill).await.unwrap();
    let mut third = ChoreLock::of(Chore::Reconciliation);
    assert!(third.try_acquire(&two).await.unwrap());
    assert!(
        !first.try_acquire(&one).await.unwrap(),
        "and it notices when it is back"
    );
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_held_lock_is_handed_over_in_turn() {
    on_postgres(async |world: World| {
        let (one, two) = (world.open().await, world.open().await);
        let long = Duration::from_secs(20);
        let mut held = lock(&one, felt(0xa), long).await.unwrap();
        held.acquire(&one, long).await.expect("it is held");
        assert!(held.is_held());
        let mut waiting = SessionLock::of_signer(felt(0xa));
        let (mut waits, is_waiting) = (
            Box::pin(waiting.acquire(&two, long)),
            "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted \
             AND database = (SELECT oid FROM pg_database WHERE datname = current_database())",
        );
        while world.number(is_waiting).await == 0 {
            let poll = tokio::time::timeout(Duration::from_millis(10), &mut waits).await;
            assert!(poll.is_err(), "it waits");
        }
        held.release().await.unwrap();
        let again = held.acquire(&one, Duration::from_millis(50)).await;
        assert!(
            matches!(again, Err(StoreError::SignerHeld)),
            "the other is first: {again:?}"
        );
        waits.await.unwrap();
        assert!(waiting.is_held() && !held.is_held());
        waiting.release().await.unwrap();
        held.acquire(&one, long).await.unwrap();
        let kill = "SELECT pg_terminate_backend(pid, 30000) FROM pg_locks \
                    WHERE locktype = 'advisory' AND database = \
                    (SELECT oid FROM pg_database WHERE datname = current_database())";
        world.raw(kill).await.unwrap();
        held.acquire(&one, long)
            .await
            .expect("one that was cut while it was held is replaced");
        assert!(held.is_held());
    });
}

pub(crate) async fn another_chain_is_not_written_to_while_one_is_in_force(world: World) {
    let one = world.open().await;
    let minute = Duration::from_secs(60);
    assert_eq!(one.agree(EPOCH, minute).await.unwrap(), EPOCH);
    if world.is_sqlite() {
        assert_eq!(
            one.agree("b", minute).await.unwrap(),
            EPOCH,
            "though it is alone"
        );
        let other = NewIntent {
            epoch: "b",
            ..intent(1)
        };
        let refused = one.intents().intend(&other, one.now_us()).await.unwrap();
        assert_eq!(refused, Intended::OtherChain);
        assert_eq!(one.agree("b", Duration::ZERO).await.unwrap(), "b");
        return;
    }
    let two = world.open().await;
    let skew = one.now_us().abs_diff(two.now_us());
    assert!(skew < 5_000_000, "both have the database's time: {skew}");
    assert_eq!(two.agree("b", minute).await.unwrap(), EPOCH);
    let other = NewIntent {
        epoch: "b",
        ..intent(1)
    };
    let refused = two.intents().intend(&other, two.now_us()).await.unwrap();
    assert_eq!(refused, Intended::OtherChain);
    intend(&one, &intent(1)).await;
    assert_eq!(
        two.agree("b", Duration::ZERO).await.unwrap(),
        "b",
        "nobody reported the first"
    );
    assert_eq!(one.agree(EPOCH, minute).await.unwrap(), "b");
}

pub(crate) async fn a_closed_store_can_be_opened_again(world: World) {
    let store = world.open().await;
    let id = intend(&store, &intent(1)).await;
    let journal = store.journal();
    store.close().await;
    let closed = journal.newest(1).await;
    assert!(
        matches!(closed, Err(StoreError::Unavailable(_))),
        "{closed:?}"
    );
    let store = world.open().await;
    assert!(store.intents().get(id).await.unwrap().is_some());
    drop(store);
    world.open().await;
}

#[test]
fn a_sqlite_file_belongs_to_one_process() {
    on_sqlite(async |world: World| {
        let store = world.open().await;
        intend(&store, &intent(1)).await;
        let path = world.url.trim_start_matches("sqlite:").to_owned();
        let link = format!("{path}.link");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for file in [&path, &link] {
            let url = format!("sqlite:{file}");
            let refused = Store::open(&config(&url), None).await.unwrap_err();
            assert!(matches!(refused, StoreError::Locked(_)), "{refused}");
            let text = refused.to_string();
            assert!(
                text.contains("another process uses this SQLite database"),
                "{text}"
            );
            assert!(text.contains(&format!("{path}.lock")), "{text}");
        }
        for file in ["", "-wal", ".lock"] {
            use std::os::unix::fs::PermissionsExt as _;
            let mode = std::fs::metadata(format!("{path}{file}"))
                .unwrap()
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{file}: nobody else reads it");
        }
        intend(&store, &intent(2)).await;
    });
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn two_relays_on_one_postgresql_share_one_chain() {
    on_postgres(async |world: World| {
        // whatever its administrator prefers
        let database = world.url.rsplit('/').next().unwrap();
        let isolation = "SET default_transaction_isolation = 'serializable'";
        world
            .raw(&format!("ALTER DATABASE {database} {isolation}"))
            .await
            .unwrap();
        let (one, two) = tokio::join!(world.open(), world.open());
        let write = async |store: &Store, from: u64| {
            for number in from..from + 40 {
                intend(store, &intent(number)).await;
            }
        };
        tokio::join!(write(&one, 0), write(&two, 100));
        let verified = one.journal().verify().await.unwrap();
        assert!(
            matches!(verified, Verified::Whole { entries: 160, .. }),
            "{verified:?}"
        );
    });
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn cut_connections_are_reopened() {
    on_postgres(async |world: World| {
        let store = world.open().await;
        for number in 0..3 {
            let id = intend(&store, &intent(number)).await;
            let kill = "SELECT pg_terminate_backend(pid, 30000) FROM pg_stat_activity \
                        WHERE datname = current_database() AND pid <> pg_backend_pid()";
            world.raw(kill).await.unwrap();
            assert!(store.intents().get(id).await.unwrap().is_some());
        }
    });
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_postgresql_reader_needs_no_write_permission() {
    on_postgres(async |world: World| {
        let store = world.open().await;
        let id = intend(&store, &intent(1)).await;
        let role = world.url.rsplit('/').next().unwrap().to_owned();
        let grant = "GRANT SELECT ON ALL TABLES IN SCHEMA public TO";
        world
            .raw(&format!("CREATE ROLE {role} LOGIN; {grant} {role}"))
            .await
            .unwrap();
        let url = world.url.replace("portcullis@", &format!("{role}@"));
        let journal: Journal = Store::open_read_only(&config(&url), None).await.unwrap();
        assert!(journal.intent(id).await.unwrap().is_some());
        assert!(matches!(
            journal.verify().await.unwrap(),
            Verified::Whole { entries: 2, .. }
        ));
        journal.close().await;
        world
            .raw(&format!("DROP OWNED BY {role}; DROP ROLE {role}"))
            .await
            .unwrap();
    });
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn the_password_file_is_used_and_never_shown() {
    on_postgres(async |world: World| {
        let database = world.url.rsplit('/').next().unwrap().to_owned();
        world
            .raw(&format!(
                "DROP ROLE IF EXISTS protected; CREATE ROLE protected LOGIN PASSWORD 'hunter2'; \
                 ALTER DATABASE {database} OWNER TO protected"
            ))
            .await
            .unwrap();
        let url = world.url.replace("portcullis@", "protected@");
        let config = config(&url);
        let open = async |password: Option<&str>| {
            let password = password.map(|password| Secret::new(password.into()));
            Store::open(&config, password.as_ref()).await
        };
        let store = open(Some("hunter2\n")).await.unwrap();
        let mut lock = lock(&store, felt(1), Duration::from_secs(1)).await.unwrap();
        let shown = format!("{store:?} {:?} {lock:?}", store.journal());
        assert!(!shown.contains("hunter2"), "{shown}");
        lock.release().await.unwrap();
        store.close().await;
        for wrong in [None, Some("Hunter2"), Some("")] {
            let text = open(wrong).await.unwrap_err().to_string();
            assert!(!text.to_lowercase().contains("hunter2"), "{text}");
            assert!(!text.contains("postgres://"), "{text}");
        }
        world
            .raw(&format!("ALTER DATABASE {database} OWNER TO portcullis"))
            .await
            .unwrap();
        world
            .raw("DROP OWNED BY protected CASCADE; DROP ROLE protected")
            .await
            .unwrap();
    });
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn open_errors_give_the_cause_without_secrets() {
    on_sqlite(async |world: World| {
        let server = server();
        let inside = format!("{}/relay.db", world.url);
        std::fs::write(
            world.url.trim_start_matches("sqlite:"),
            "no database at all",
        )
        .unwrap();
        let password = Secret::new(b"hunter2".into());
        let missing = format!("{server}no_such_database");
        for (url, expected) in [
            ("mysql://u@h/d", "expected sqlite:FILE or postgres://"),
            ("sqlite:", "no file name after sqlite:"),
            ("sqlite::memory:", "no file name after sqlite:"),
            (
                "postgres://user:hunter2@127.0.0.1/d",
                "move the password to the file",
            ),
            ("postgres://user@127.0.0.1:hunter2/d", "malformed"),
            (
                "postgres://user@127.0.0.1:1/d?application_name=hunter2",
                "refused",
            ),
            (
                "postgres://user@%2Fno%2Fsuch%2Ffolder/hunter2",
                "No such file",
            ),
            (
                "postgres://user@127.0.0.1:1/d?sslmode=require",
                "set store.tls",
            ),
            (&missing, "does not exist"),
            (&inside, "Not a directory"),
            (&world.url, "file is not a database"),
        ] {
            let began = Instant::now();
            let error = Store::open(&config(url), Some(&password))
                .await
                .unwrap_err();
            assert!(began.elapsed() < Duration::from_secs(9), "{url}");
            let text = format!("{error}");
            assert!(text.contains(expected), "{url}: {text}");
            assert!(
                !text.contains("hunter2") && !text.contains("postgres://u"),
                "{text}"
            );
        }
    });
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn an_old_connection_is_replaced() {
    const ON_SERVER: &str = "SELECT coalesce(max(pid), 0)::bigint FROM pg_stat_activity \
         WHERE application_name = 'portcullis' AND datname = current_database()";
    on_postgres(async |world: World| {
        let lifetime = Duration::from_millis(50);
        let config = StoreConfig {
            connection_lifetime: lifetime,
            ..world.config()
        };
        let store = Store::open(&config, None).await.unwrap();
        store.ping().await.unwrap();
        let first = world.number(ON_SERVER).await;
        let began = Instant::now();
        while [0, first].contains(&world.number(ON_SERVER).await) {
            assert!(
                began.elapsed() < Duration::from_secs(30),
                "one connection serves for ever"
            );
            store.ping().await.unwrap();
        }
        store.close().await;
    });
}

/// Runs a test on stores with one connection, each silent from another request on: the read, or the
/// test of its connection by the pool.
fn on_silenced(test: impl AsyncFn(Store, u32)) {
    on_postgres(async |world: World| {
        Store::open(&world.config(), None)
            .await
            .unwrap()
            .close()
            .await;
        for number in 0..4 {
            let wire = Wire::to(&world).await;
            let config = StoreConfig {
                max_connections: 1,
                ..wire.config().clone()
            };
            let store = Store::open(&config, None).await.unwrap();
            wire.arm(Cut {
                request: Request::Number(number),
                moment: Moment::Silent,
            });
            let _may_be_late = store.ping().await;
            test(store, number).await;
        }
    });
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_server_that_falls_silent_does_not_delay_the_end() {
    on_silenced(async |store: Store, number| {
        let closed = tokio::time::timeout(Duration::from_secs(9), store.close()).await;
        assert!(closed.is_ok(), "silent from request {number} on");
    });
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_connection_that_falls_silent_leaves_its_slot_to_another() {
    on_silenced(async |store: Store, number| {
        let began = Instant::now();
        while store.ping().await.is_err() {
            let waited = began.elapsed();
            assert!(
                waited < Duration::from_secs(30),
                "silent from request {number} on"
            );
        }
        store.close().await;
    });
}

#[test]
fn a_hanging_database_times_out_within_seconds() {
    on_sqlite(async |_: World| {
        // accepts by its backlog, and never says a word
        let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("postgres://user@{}/d", silent.local_addr().unwrap());
        let began = Instant::now();
        let error = Store::open(&config(&url), None).await.unwrap_err();
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        assert!(began.elapsed() < Duration::from_secs(9));
    });
}
