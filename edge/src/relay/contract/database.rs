//! A database of a test's own, with a wire to it that loses the confirmation of a commit.

use super::suite::Commit;
use portcullis_base::config::{StoreConfig, StoreTls};
use portcullis_filters::ledger::{Intent, IntentId};
use portcullis_store::Store;
use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream, UnixStream};

/// The databases that the product supports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// The file of one process.
    Sqlite,
    /// A server for several.
    Postgres,
}

/// One database.
pub(super) struct Database {
    kind: Kind,
    name: String,
    /// The commit of the first process whose confirmation is lost.
    armed: Arc<Mutex<Option<Commit>>>,
}

/// The URL of PostgreSQL, to which the name of a database is appended.
fn server() -> String {
    std::env::var("PORTCULLIS_TEST_POSTGRES")
        .expect("PORTCULLIS_TEST_POSTGRES is set: run this under tests/lib/postgres.sh")
}

/// Runs a statement at the server.
async fn raw(url: &str, statement: &str) {
    let options: PgConnectOptions = url.parse().expect("a URL");
    let mut connection: PgConnection = options.connect().await.expect("the server runs");
    let statement = AssertSqlSafe(statement.to_owned());
    let done = sqlx::raw_sql(statement).execute(&mut connection).await;
    done.expect("the statement is right");
    let _ = connection.close().await;
}

impl Database {
    /// An empty one.
    pub(super) async fn create(kind: Kind) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let database = Self {
            kind,
            name: format!("contract_{}_{next}", std::process::id()),
            armed: Arc::default(),
        };
        match kind {
            Kind::Sqlite => {
                std::fs::create_dir(database.folder()).expect("the folder is new");
            }
            Kind::Postgres => {
                let create = format!("CREATE DATABASE {} TEMPLATE template0", database.name);
                raw(&format!("{}postgres", server()), &create).await;
            }
        }
        database
    }

    fn folder(&self) -> PathBuf {
        std::env::temp_dir().join(&self.name)
    }

    fn url(&self) -> String {
        match self.kind {
            Kind::Sqlite => format!("sqlite:{}", self.folder().join("relay.db").display()),
            Kind::Postgres => format!("{}{}", server(), self.name),
        }
    }

    /// The URL of each process that it can have.
    pub(super) async fn urls(&self) -> Vec<String> {
        match self.kind {
            Kind::Sqlite => vec![self.url()],
            Kind::Postgres => vec![self.wire().await, self.url()],
        }
    }

    pub(super) async fn drop(self) {
        match self.kind {
            Kind::Sqlite => std::fs::remove_dir_all(self.folder()).expect("the folder is ours"),
            Kind::Postgres => {
                let drop = format!("DROP DATABASE {} WITH (FORCE)", self.name);
                raw(&format!("{}postgres", server()), &drop).await;
            }
        }
    }

    /// Reads an intent over a connection of its own.
    pub(super) async fn read(&self, id: IntentId) -> Option<Intent> {
        let config = StoreConfig {
            url: self.url(),
            read_url: None,
            password_file: None,
            max_connections: 1,
            connection_lifetime: Duration::from_secs(600),
            tls: StoreTls::Off,
            ca_file: None,
        };
        let store = Store::open_shared(&config, None).await;
        let store = store.expect("the tables are there");
        let found = store.intents().get(id).await.expect("the store answers");
        store.close().await;
        found
    }

    pub(super) async fn end_sessions(&self) {
        let end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
                   WHERE datname = current_database() AND pid <> pg_backend_pid()";
        raw(&self.url(), end).await;
    }

    /// Loses the confirmation of the next commit of the first process.
    pub(super) fn cut(&self, commit: Commit) {
        *self.armed.lock().expect("no task panics") = Some(commit);
    }

    /// A port that leads to the database.
    async fn wire(&self) -> String {
        let options: PgConnectOptions = self.url().parse().expect("a URL");
        let folder = options.get_socket().expect("it listens on a Unix socket");
        let socket = folder.join(format!(".s.PGSQL.{}", options.get_port()));
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .expect("a port is free");
        let port = listener.local_addr().expect("it is bound").port();
        let armed = Arc::clone(&self.armed);
        let admin = self.url();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = UnixStream::connect(&socket).await.expect("it runs");
                tokio::spawn(forward(client, server, Arc::clone(&armed), admin.clone()));
            }
        });
        let user = options.get_username();
        format!("postgres://{user}@127.0.0.1:{port}/{}", self.name)
    }
}

/// Forwards the messages of the protocol both ways, until either side leaves or a commit is cut.
async fn forward(
    mut client: TcpStream,
    mut server: UnixStream,
    armed: Arc<Mutex<Option<Commit>>>,
    admin: String,
) {
    client.set_nodelay(true).expect("the socket is open");
    let mut asked = Vec::new();
    let mut answered = Vec::new();
    // the first message has no type
    let mut type_bytes = 0;
    let mut process = 0;
    let mut is_withheld = false;
    loop {
        tokio::select! {
            read = client.read_buf(&mut asked) => if read.unwrap_or(0) == 0 { return },
            read = server.read_buf(&mut answered) => if read.unwrap_or(0) == 0 { return },
        }
        while let Some(message) = take(&mut asked, type_bytes) {
            type_bytes = 1;
            if message.ends_with(b"COMMIT\0") {
                let cut = armed.lock().expect("no task panics").take();
                if cut == Some(Commit::Undone) {
                    return raw(&admin, &format!("SELECT pg_terminate_backend({process})")).await;
                }
                is_withheld |= cut == Some(Commit::Done);
            }
            if server.write_all(&message).await.is_err() {
                return;
            }
        }
        while let Some(message) = take(&mut answered, 1) {
            match message.first() {
                Some(b'K') => process = message.get(5..9).map_or(0, number),
                Some(b'Z') if is_withheld => return,
                _ => {}
            }
            if !is_withheld && client.write_all(&message).await.is_err() {
                return;
            }
        }
    }
}

/// The first message, if it is whole: a type of this many bytes, a length that includes itself, and
/// the rest.
fn take(bytes: &mut Vec<u8>, type_bytes: usize) -> Option<Vec<u8>> {
    let length = number(bytes.get(type_bytes..type_bytes + 4)?) as usize + type_bytes;
    if bytes.len() < length {
        return None;
    }
    Some(bytes.drain(..length).collect())
}

fn number(bytes: &[u8]) -> u32 {
    bytes
        .iter()
        .fold(0, |number, byte| number << 8 | u32::from(*byte))
}
