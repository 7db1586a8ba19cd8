//! One database of a test's own, and the values that tests write to it.

use portcullis_base::config::{StoreConfig, StoreTls};
use portcullis_filters::felt::Felt;
use portcullis_store::{
    Budgets, Change, ClaimToken, Intended, IntentId, IntentState, Journal, NewIntent, Refusal,
    Store, StoreError,
};
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection, SqliteConnection};
use std::path::PathBuf;
use std::pin::pin;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use tokio::runtime::Runtime;

/// The instant at which most of it happens.
pub(crate) const NOW: i64 = 1_700_000_000_000_000;
/// The life of the chain in which most of it happens.
pub(crate) const EPOCH: &str = "epoch-1";

pub(crate) struct World {
    pub(crate) url: String,
    folder: Option<PathBuf>,
}

static WORLDS: AtomicU32 = AtomicU32::new(0);

fn name() -> String {
    format!(
        "store_{}_{}",
        std::process::id(),
        WORLDS.fetch_add(1, Ordering::Relaxed)
    )
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    Sqlite,
    Postgres,
}

/// Runs a test that blocks on the runtime by itself, as one does that is run many times.
pub(crate) fn with_world(kind: Kind, test: impl FnOnce(&Runtime, World)) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    let name = name();
    if kind == Kind::Sqlite {
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let url = format!("sqlite:{}", folder.join("relay.db").display());
        return test(
            &runtime,
            World {
                url,
                folder: Some(folder),
            },
        );
    }
    let server = server();
    let admin = format!("{server}postgres");
    let create = format!("CREATE DATABASE {name} TEMPLATE template0");
    runtime.block_on(raw(&admin, &create)).unwrap();
    test(
        &runtime,
        World {
            url: format!("{server}{name}"),
            folder: None,
        },
    );
    runtime
        .block_on(raw(&admin, &format!("DROP DATABASE {name} WITH (FORCE)")))
        .unwrap();
}

pub(crate) fn on_sqlite(test: impl AsyncFnOnce(World)) {
    with_world(Kind::Sqlite, |runtime, world| runtime.block_on(test(world)));
}

pub(crate) fn on_postgres(test: impl AsyncFnOnce(World)) {
    with_world(Kind::Postgres, |runtime, world| {
        runtime.block_on(test(world))
    });
}

/// This many histories, or ten times as many in the long run of all tests.
pub(crate) fn seeds(count: u64) -> u64 {
    if std::env::var_os("PORTCULLIS_TEST_LONG").is_some() {
        10 * count
    } else {
        count
    }
}

/// The URL of PostgreSQL, to which the name of a database is appended.
pub(crate) fn server() -> String {
    std::env::var("PORTCULLIS_TEST_POSTGRES")
        .expect("PORTCULLIS_TEST_POSTGRES is set: run this under tests/lib/postgres.sh")
}

/// The configuration of a store without a password.
pub(crate) fn config(url: &str) -> StoreConfig {
    StoreConfig {
        url: url.to_owned(),
        read_url: None,
        password_file: None,
        max_connections: 8,
        connection_lifetime: Duration::from_secs(600),
        tls: StoreTls::Off,
        ca_file: None,
    }
}

/// Runs statements past the store.
pub(crate) async fn raw(url: &str, statements: &str) -> Result<(), sqlx::Error> {
    let statements = sqlx::raw_sql(AssertSqlSafe(statements.to_owned()));
    if url.starts_with("sqlite:") {
        let mut connection = SqliteConnection::connect(url).await?;
        statements.execute(&mut connection).await?;
        connection.close().await
    } else {
        let options: sqlx::postgres::PgConnectOptions = url.parse()?;
        let mut connection: PgConnection = options.connect().await?;
        statements.execute(&mut connection).await?;
        connection.close().await
    }
}

impl World {
    pub(crate) fn is_sqlite(&self) -> bool {
        self.folder.is_some()
    }

    pub(crate) fn config(&self) -> StoreConfig {
        config(&self.url)
    }

    /// Opens the store. A busy machine may take longer than a connection may, so it tries again.
    pub(crate) async fn open(&self) -> Store {
        let mut attempts = 1..5;
        loop {
            match Store::open(&self.config(), None).await {
                Err(StoreError::Unavailable(_)) if attempts.next().is_some() => {}
                opened => return opened.unwrap(),
            }
        }
    }

    /// Another database, empty, whichever this one is.
    pub(crate) async fn other(&self) -> Store {
        let folder = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        let file = folder.join(format!("{}.db", name()));
        let url = format!("sqlite:{}", file.display());
        Store::open_shared(&config(&url), None).await.unwrap()
    }

    pub(crate) async fn read_only(&self) -> Result<Journal, StoreError> {
        Store::open_read_only(&self.config(), None).await
    }

    /// Runs `second` while a transaction is open that has executed `first`, and commits the
    /// transaction once `second` waits for it. Returns the output of `second`. Only PostgreSQL has
    /// two writers.
    pub(crate) async fn behind<T>(&self, first: &str, second: impl Future<Output = T>) -> T {
        let mut holder = PgConnection::connect(&self.url).await.unwrap();
        let first = AssertSqlSafe(format!("BEGIN; {first}"));
        sqlx::raw_sql(first).execute(&mut holder).await.unwrap();
        let mut second = pin!(second);
        let waits = async {
            let waiting = "SELECT count(*) FROM pg_stat_activity \
                           WHERE wait_event_type = 'Lock' AND datname = current_database()";
            while self.number(waiting).await == 0 {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = &mut second => panic!("it did not wait for the transaction"),
            () = waits => {}
        }
        sqlx::raw_sql("COMMIT").execute(&mut holder).await.unwrap();
        second.await
    }

    /// The number that a query finds.
    pub(crate) async fn number(&self, query: &str) -> i64 {
        let query = AssertSqlSafe(query.to_owned());
        if self.is_sqlite() {
            let mut connection = SqliteConnection::connect(&self.url).await.unwrap();
            sqlx::query_scalar(query)
                .fetch_one(&mut connection)
                .await
                .unwrap()
        } else {
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            sqlx::query_scalar(query)
                .fetch_one(&mut connection)
                .await
                .unwrap()
        }
    }

    /// The texts that a query finds.
    pub(crate) async fn texts(&self, query: &str) -> Vec<String> {
        let query = AssertSqlSafe(query.to_owned());
        if self.is_sqlite() {
            let mut connection = SqliteConnection::connect(&self.url).await.unwrap();
            sqlx::query_scalar(query)
                .fetch_all(&mut connection)
                .await
                .unwrap()
        } else {
            let mut connection = PgConnection::connect(&self.url).await.unwrap();
            sqlx::query_scalar(query)
                .fetch_all(&mut connection)
                .await
                .unwrap()
        }
    }

    /// Drops everything of the relay, as the database of a test is dropped as a whole.
    pub(crate) async fn empty(&self) {
        if let Some(folder) = &self.folder {
            std::fs::remove_dir_all(folder).unwrap();
            std::fs::create_dir(folder).unwrap();
        } else {
            self.raw("DROP SCHEMA public CASCADE; CREATE SCHEMA public")
                .await
                .unwrap();
        }
    }

    /// Takes migration 11 back.
    pub(crate) async fn undo_pruning(&self) {
        let undo = "DROP TABLE pruning; DELETE FROM _sqlx_migrations WHERE version = 11";
        self.raw(undo).await.unwrap();
    }

    /// Takes migration 10 back, whose rows older versions did not write, and 11.
    pub(crate) async fn undo_displaced(&self) {
        self.undo_pruning().await;
        let undo = "DELETE FROM intent_count WHERE state = 'displaced'; \
             DELETE FROM _sqlx_migrations WHERE version = 10";
        self.raw(undo).await.unwrap();
        if self.is_sqlite() {
            // it writes the tables anew
            return;
        }
        self.raw(
            "DROP INDEX intent_slot, intent_request, intent_displaced; \
             ALTER TABLE intent DROP COLUMN identity, DROP COLUMN born, \
             DROP COLUMN included_number, DROP COLUMN included_fingerprint; \
             ALTER TABLE idempotency DROP COLUMN claim_token",
        )
        .await
        .unwrap();
    }

    /// Takes migration 15 back.
    pub(crate) async fn undo_rules(&self) {
        let undo = if self.is_sqlite() {
            "DROP TRIGGER podcast_comes; DROP TRIGGER podcast_changes; \
             DROP TRIGGER episode_comes; DROP TRIGGER episode_changes; \
             DELETE FROM _sqlx_migrations WHERE version = 15"
        } else {
            "DROP FUNCTION refuse_row CASCADE; DELETE FROM _sqlx_migrations WHERE version = 15"
        };
        self.raw(undo).await.unwrap();
    }

    /// Takes migration 13 back.
    pub(crate) async fn undo_age_reports(&self) {
        let undo = "ALTER TABLE age_session DROP COLUMN age_band; \
            ALTER TABLE age_session DROP COLUMN verified_us; \
            ALTER TABLE age_session DROP COLUMN verified_until_us; \
            DELETE FROM _sqlx_migrations WHERE version = 13";
        self.raw(undo).await.unwrap();
    }

    pub(crate) async fn raw(&self, statements: &str) -> Result<(), sqlx::Error> {
        raw(&self.url, statements).await
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if let Some(folder) = &self.folder {
            std::fs::remove_dir_all(folder).unwrap();
        }
    }
}

pub(crate) fn felt(number: u64) -> Felt {
    Felt::parse(&format!("{number:#x}")).unwrap()
}

/// An intent like no other: each number has its own digest, nonce and hash.
pub(crate) fn intent(number: u64) -> NewIntent<'static> {
    let mut digest = [0; 32];
    digest[..8].copy_from_slice(&number.to_be_bytes());
    NewIntent {
        operation: "faucet-drip",
        digest,
        subject: Some(felt(0x5000 + number)),
        identity: None,
        request: "{\"identity\":\"0x1\"}",
        epoch: EPOCH,
        born: 0,
        signer: felt(0xa11ce),
        nonce: number,
        transaction_hash: felt(0xf000_0000 + number),
        transaction: "{\"version\":\"0x3\"}",
        idempotency_key: None,
        replaces: None,
        max_fee: 0,
        budgets: Budgets::default(),
        cooldown: None,
    }
}

/// Intends what must be new.
pub(crate) async fn intend(store: &Store, new: &NewIntent<'_>) -> IntentId {
    match store.intents().intend(new, NOW).await.unwrap() {
        Intended::New(id) => id,
        other => panic!("{new:?} is new, not {other:?}"),
    }
}

/// The change that leads to a state.
pub(crate) fn change(state: IntentState, detail: &str) -> Change<'_> {
    let included = |outcome| Change::Included {
        outcome,
        fee: None,
        block: None,
    };
    match state {
        IntentState::Intended | IntentState::Sent => panic!("nothing leads to {state:?}"),
        IntentState::Accepted => Change::Accepted,
        IntentState::Succeeded => included(Ok(())),
        IntentState::Reverted => included(Err(Some(detail))),
        IntentState::Rejected => Change::Rejected(detail),
        IntentState::Displaced => Change::Displaced {
            from: None,
            why: detail,
        },
        IntentState::Lost => Change::Lost(detail),
    }
}

/// Records a change that leads to a state, and returns whether that was possible.
pub(crate) async fn advance(store: &Store, id: IntentId, state: IntentState) -> bool {
    store
        .intents()
        .apply(id, &change(state, "why"), NOW)
        .await
        .unwrap()
}

/// Records a refusal.
pub(crate) async fn refuse(store: &Store, operation: &str, reason: &str, now_us: i64) {
    let refusal = Refusal {
        operation: operation.to_owned(),
        reason: reason.to_owned(),
        request_id: format!("r{now_us}"),
    };
    let intents = store.intents();
    intents.record_refusal(refusal, now_us).await.unwrap();
}

/// Appends this many entries to the journal: an intent of which there is one entry more each time
/// that its block is taken back, or returns.
pub(crate) async fn append(store: &Store, id: IntentId, count: u32) {
    for _ in 0..count {
        let intent = store.journal().intent(id).await.unwrap().unwrap();
        let next = match intent.state {
            IntentState::Succeeded => IntentState::Displaced,
            _ => IntentState::Succeeded,
        };
        assert!(advance(store, id, next).await);
    }
}

/// The owner of a claim.
pub(crate) fn token(number: u8) -> ClaimToken {
    ClaimToken([number; 16])
}

/// Numbers that look like chance, the same in every run.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below another: SplitMix64.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (mixed ^ (mixed >> 31)) % bound
    }
}
