//! Every look-up goes by an index, however much is kept: asked of the databases themselves.

use crate::world::World;
use portcullis::store::sql;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, Row as _, SqliteConnection};

/// Statement, its arguments, and the index; two where both hold nothing but what is unresolved.
const LOOK_UPS: [(&str, &[&str], &str); 15] = [
    (sql::ENTRIES, &["900", "10"], "journal_pkey"),
    (sql::ENTRIES_NEWEST, &["10"], "journal_pkey"),
    (sql::ENTRIES_OF, &["900"], "journal_intent"),
    (sql::INTENT_STATE, &["900"], "intent_pkey"),
    (sql::INTENT_MOVE, &["900", "'sent'", "'x'", "1"], "intent_pkey"),
    (sql::INTENT_BY_HASH, &["'e'", "'0x900'"], "intent_hash"),
    (sql::INTENT_BY_DIGEST, &["'e'", "'d900'"], "intent_digest"),
    (sql::INTENT_BY_NONCE, &["'e'", "'0x1'", "900"], "intent_nonce"),
    (sql::UNRESOLVED, &["'e'"], "intent_unresolved or intent_digest"),
    (sql::UNRESOLVED_OF_SIGNER, &["'e'", "'0x1'"], "intent_unresolved"),
    (sql::LAST_OF, &["'e'", "'drip'", "'0x900'"], "intent_subject"),
    (sql::KEY, &["'k900'"], "idempotency_pkey"),
    (sql::KEY_ANSWER, &["'k900'", "200", "''"], "idempotency_pkey"),
    (sql::KEY_PRUNE, &["20"], "idempotency_created"),
    (sql::BOUND_TO, &["'e'", "'0x900'"], "faucet_binding_pkey"),
];

/// Many rows of which few are unresolved.
const FILL: &str = "
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
    INSERT INTO journal SELECT i, i, 'sent', i, 'drip', '{}', 'h', 'h' FROM n;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
    INSERT INTO intent SELECT i, 'e', 'drip', 'd' || i, '0x' || i, '{}', '0x' || (i % 3), i,
      '0x' || i, '{}', CASE WHEN i % 100 = 0 THEN 'sent' ELSE 'succeeded' END, NULL, i, i FROM n;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
    INSERT INTO idempotency SELECT 'k' || i, 'drip', 'd', i, 200, '', i FROM n;
    WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 9000)
    INSERT INTO faucet_binding SELECT 'e', '0x' || i, '0x' || i, i FROM n";

/// The statement with its arguments in it.
fn filled(statement: &str, arguments: &[&str]) -> String {
    let numbered = arguments.iter().enumerate();
    numbered.fold(format!(" {statement}"), |text, (at, argument)| {
        text.replace(&format!("${}", at + 1), argument)
    })
}

pub(crate) async fn every_look_up_uses_its_index(world: World) {
    world.open().await.close().await;
    world.raw(FILL).await.unwrap();
    if !world.is_sqlite() {
        // PostgreSQL does that by itself, SQLite never
        world.raw("ANALYZE").await.unwrap();
    }
    for (statement, arguments, index) in LOOK_UPS {
        let statement = filled(statement, arguments);
        let (plan, expected) = if world.is_sqlite() {
            let plan = sqlite_plan(&world.url, statement.clone()).await;
            let key = match index {
                "journal_pkey" | "intent_pkey" => "INTEGER PRIMARY KEY",
                "idempotency_pkey" => "sqlite_autoindex_idempotency_1",
                "faucet_binding_pkey" => "sqlite_autoindex_faucet_binding_1",
                named => named,
            };
            // the newest entries are walked to by the table itself, from its end
            let walks = index == "journal_pkey" && plan == "SCAN journal";
            (plan, if walks { "SCAN journal" } else { key })
        } else {
            (postgres_plan(&world.url, statement.clone()).await, index)
        };
        let used = expected.split(" or ").any(|index| plan.contains(index));
        assert!(used, "{statement}: {expected} is not in\n{plan}");
    }
}

async fn sqlite_plan(url: &str, statement: String) -> String {
    let mut connection = SqliteConnection::connect(url).await.unwrap();
    let explain = AssertSqlSafe(format!("EXPLAIN QUERY PLAN{statement}"));
    let rows = sqlx::query(explain).fetch_all(&mut connection).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>("detail")).collect::<Vec<_>>().join("\n")
}

async fn postgres_plan(url: &str, statement: String) -> String {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let explain = AssertSqlSafe(format!("EXPLAIN{statement}"));
    let rows = sqlx::query(explain).fetch_all(&mut connection).await.unwrap();
    rows.iter().map(|row| row.get::<String, _>(0)).collect::<Vec<_>>().join("\n")
}
