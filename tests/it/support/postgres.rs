//! A database of a test's own, on the PostgreSQL that `tests/lib/postgres.sh` starts.

use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

use super::away::socket_of;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

pub(crate) struct Database {
    server: String,
    name: String,
}

impl Database {
    /// A new one, empty.
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let server = std::env::var("PORTCULLIS_TEST_POSTGRES")
            .expect("PORTCULLIS_TEST_POSTGRES is set: run this under tests/lib/postgres.sh");
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("it_{}_{next}", std::process::id());
        let database = Self { server, name };
        let create = format!("CREATE DATABASE {} TEMPLATE template0", database.name);
        database.run_in("postgres", create);
        database
    }

    /// Its URL, as a TOML value.
    pub(crate) fn url(&self) -> String {
        format!("\"{}{}\"", self.server, self.name)
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// The socket of its server.
    pub(crate) fn socket(&self) -> PathBuf {
        socket_of(&self.server)
    }

    /// The number that a query finds in it.
    pub(crate) fn number(&self, query: &'static str) -> i64 {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let url = format!("{}{}", self.server, self.name);
            let mut connection = PgConnection::connect(&url).await.unwrap();
            sqlx::query_scalar(query)
                .fetch_one(&mut connection)
                .await
                .unwrap()
        })
    }

    /// Runs statements in it.
    pub(crate) fn run(&self, statements: &str) {
        self.run_in(&self.name, statements.to_owned());
    }

    fn run_in(&self, database: &str, statements: String) {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap();
        runtime.block_on(async {
            let url = format!("{}{database}", self.server);
            let mut connection = PgConnection::connect(&url).await.unwrap();
            sqlx::raw_sql(AssertSqlSafe(statements))
                .execute(&mut connection)
                .await
                .unwrap();
            connection.close().await.unwrap();
        });
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        self.run_in(
            "postgres",
            format!("DROP DATABASE {} WITH (FORCE)", self.name),
        );
    }
}
