//! PostgreSQL that is away: when the service starts, and while it runs.

use std::net::SocketAddr;
use std::process::Output;
use std::time::{Duration, Instant};

use crate::admin::eventually;
use crate::support::away::Way;
use crate::support::client::Client;
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::{Call, Node};
use crate::support::postgres::Database;
use crate::support::relay::chain::{self, USER_KEY, honest, is_add};
use crate::support::relay::expect::rpc_refused;
use crate::support::relay::stage::Stage;
use crate::support::relay::user::{ID, User};
use crate::support::request::{QUESTION, Request};
use crate::support::response::Response;
use crate::support::script::good;

/// Far less than six waits of a pool for a connection, 3 s each, on a busy machine, too.
const AT_ONCE: Duration = Duration::from_secs(6);

/// All three surfaces, with their store at the end of this way.
fn start(way: &Way) -> Stage {
    let listen = "\"127.0.0.1:0\"";
    // the node has each transaction already, so it is accepted whatever its hash
    let script = |call: &Call| {
        if is_add(call) {
            chain::error(call, 59)
        } else {
            honest(call)
        }
    };
    Stage::with_script(
        script,
        &[
            ("store.url", &way.url()),
            ("gateway.listen", listen),
            ("sidecar.listen", listen),
            ("sidecar.base_url", "\"https://portcullis.test\""),
            ("sidecar.requests_per_minute", "1000000"),
        ],
    )
}

fn sitemap(edge: &Edge) -> Response {
    Client::connect(edge.sidecar()).ask(&Request::new("GET", "/functions/seo-sitemap"))
}

fn is_refused(edge: &Edge) -> bool {
    edge.admin_get("/readyz?verbose")
        .text()
        .contains("connection refused")
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_start_without_postgresql_serves_and_catches_up() {
    let mut way = Way::closed();
    let stage = start(&way);
    let edge = &stage.edge;
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        200,
        "the gateway needs no store"
    );
    assert_eq!(sitemap(edge).status, 503, "the sidecar does");
    let fine = stage.fine(&User::with_key(USER_KEY), 0);
    rpc_refused(
        &stage.post("/rpc", fine.body()),
        "store_unavailable",
        ID,
        "so does the relay",
    );
    assert_eq!(stage.adds().len(), 0, "nothing is sent without the journal");
    edge.line("the start", |line| {
        line["message"]
            .as_str()
            .is_some_and(|text| text.starts_with("starting without the store"))
    });
    eventually(edge, "the cause is named", |_| is_refused(edge));
    let check = stage.setup.run("check");
    assert_eq!(check.status.code(), Some(1), "a check still fails");

    way.open();
    eventually(edge, "the sidecar serves", |_| sitemap(edge).status == 200);
    eventually(edge, "nothing is wrong", |_| !is_refused(edge));
    stage.assert_passes(&fine);
}

/// A state of PostgreSQL at the start.
struct State {
    what: &'static str,
    database: Database,
    url: String,
    cause: &'static str,
    /// Statements that end it.
    remedy: String,
}

fn states(folder: &Folder) -> Vec<State> {
    let state = |what, cause, begin: fn(&str) -> String, remedy: fn(&str) -> String| {
        let database = Database::new();
        let (url, name) = (database.url(), database.name().to_owned());
        database.run(&begin(&name));
        State {
            what,
            database,
            url,
            cause,
            remedy: remedy(&name),
        }
    };
    let read_only = state(
        "read-only, as a standby is",
        "name the primary in store.url",
        |name| format!("ALTER DATABASE {name} SET default_transaction_read_only = on"),
        |name| {
            format!(
                "BEGIN READ WRITE; ALTER DATABASE {name} RESET default_transaction_read_only; \
                 COMMIT"
            )
        },
    );
    let mut missing = state(
        "without the database",
        "create the database, or correct store.url",
        |_| "SELECT 1".to_owned(),
        |name| format!("CREATE DATABASE {name}_later"),
    );
    missing.url = missing.url.replace(
        missing.database.name(),
        &format!("{}_later", missing.database.name()),
    );
    let mut locked = state(
        "with another password",
        "correct store.password_file",
        |name| {
            format!(
                "CREATE ROLE late LOGIN PASSWORD 'another'; ALTER DATABASE {name} OWNER TO late"
            )
        },
        |_| "ALTER ROLE late PASSWORD 'right'".to_owned(),
    );
    locked.url = locked.url.replace("portcullis@", "late@");
    let mut busy = state(
        "without a connection for the role",
        "too many connections",
        |name| {
            format!(
                "CREATE ROLE busy_{name} LOGIN CONNECTION LIMIT 0; \
                 ALTER DATABASE {name} OWNER TO busy_{name}"
            )
        },
        |name| format!("ALTER ROLE busy_{name} CONNECTION LIMIT -1"),
    );
    let role = format!("busy_{}@", busy.database.name());
    busy.url = busy.url.replace("portcullis@", &role);
    // no disk of the tests' own is full, so a trigger says what PostgreSQL says then
    let full = state(
        "on a full disk",
        "No space left on device",
        |_| {
            "CREATE FUNCTION full_disk() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN \
             RAISE 'could not extend file: No space left on device' USING ERRCODE = '53100'; \
             END $$; \
             CREATE EVENT TRIGGER full_disk ON ddl_command_start EXECUTE FUNCTION full_disk()"
                .to_owned()
        },
        |_| "DROP EVENT TRIGGER full_disk".to_owned(),
    );
    let newer = state(
        "with tables of a later version",
        "the tables belong to another version",
        |_| "SELECT 1".to_owned(),
        |_| "DELETE FROM _sqlx_migrations WHERE version = 99".to_owned(),
    );
    succeeds(&beside(Node::nowhere(), &newer.url, folder).run("store migrate"));
    newer.database.run(
        "INSERT INTO _sqlx_migrations SELECT 99, 'later', installed_on, success, checksum, \
         execution_time FROM _sqlx_migrations WHERE version = 1",
    );
    vec![read_only, missing, locked, busy, full, newer]
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_postgresql_that_says_nothing_closes_no_other_surface() {
    let (node, folder, mut way) = (Node::start(good), Folder::new(), Way::closed());
    let silent = way.silent();
    let edge = beside(node.address(), &way.url(), &folder).start();
    assert_eq!(edge.ask(&Request::post(QUESTION)).status, 200);
    assert_eq!(sitemap(&edge).status, 503);
    eventually(&edge, "the cause is named", |_| {
        let shown = edge.admin_get("/readyz?verbose").text().to_owned();
        shown.contains("store unreachable") && shown.contains("timeout")
    });
    drop(silent);
    way.open();
    eventually(&edge, "the sidecar serves", |_| {
        sitemap(&edge).status == 200
    });
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_corrected_password_file_is_read_while_the_store_is_awaited() {
    let (folder, database) = (Folder::new(), Database::new());
    let name = database.name();
    database.run(&format!(
        "CREATE ROLE mistyped LOGIN PASSWORD 'right'; ALTER DATABASE {name} OWNER TO mistyped"
    ));
    let url = database.url().replace("portcullis@", "mistyped@");
    let setup = beside(Node::nowhere(), &url, &folder);
    folder.secret("password", "wrong\n");
    let edge = setup.start();
    assert_eq!(sitemap(&edge).status, 503);
    folder.secret("password", "right\n");
    eventually(&edge, "no reload is needed", |_| {
        sitemap(&edge).status == 200
    });
}

/// A gateway and a sidecar with this store.
fn beside(node: SocketAddr, url: &str, folder: &Folder) -> Setup {
    let password = folder.secret("password", "right\n");
    Setup::before(node)
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("sidecar.base_url", "\"https://portcullis.test\"")
        .set("store.url", url)
        .set("store.password_file", &format!("{password:?}"))
}

fn succeeds(output: &Output) {
    assert_eq!(output.status.code(), Some(0), "{output:?}");
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn no_state_of_postgresql_closes_other_surfaces() {
    let (node, folder) = (Node::start(good), Folder::new());
    for state in states(&folder) {
        let what = state.what;
        let setup = beside(node.address(), &state.url, &folder);
        // a check writes nothing
        let code = i32::from(what != "on a full disk");
        assert_eq!(setup.run("check").status.code(), Some(code), "{what}");
        let edge = setup.start();
        assert_eq!(edge.ask(&Request::post(QUESTION)).status, 200, "{what}");
        assert_eq!(sitemap(&edge).status, 503, "{what}");
        eventually(&edge, "the cause is named", |_| {
            let shown = edge.admin_get("/readyz?verbose").text().to_owned();
            shown.contains("store unreachable") && shown.contains(state.cause)
        });
        state.database.run(&state.remedy);
        eventually(&edge, what, |_| sitemap(&edge).status == 200);
        eventually(&edge, "nothing is wrong", |_| {
            edge.admin_get("/readyz?verbose")
                .text()
                .contains("verdict: ok")
        });
        drop(edge);
        let name = state.database.name();
        state
            .database
            .run(&format!("DROP DATABASE IF EXISTS {name}_later"));
    }
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_successor_needs_the_store_of_its_predecessor() {
    let (node, folder, database) = (Node::start(good), Folder::new(), Database::new());
    let edge = beside(node.address(), &database.url(), &folder).start();
    let name = database.name();
    database.run(&format!(
        "ALTER DATABASE {name} SET default_transaction_read_only = on"
    ));
    edge.signal("USR2");
    edge.line("the refusal", |line| {
        let message = line["message"].as_str().unwrap_or_default();
        message.starts_with("not handed over, still serving")
    });
    assert_eq!(sitemap(&edge).status, 200, "over its open connections");
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_stopped_postgresql_refuses_at_once() {
    let mut way = Way::closed();
    way.open();
    let stage = start(&way);
    let edge = &stage.edge;
    assert_eq!(sitemap(edge).status, 200);
    way.close();
    eventually(edge, "the cause is named", |_| is_refused(edge));
    edge.line("the cause in the log", |line| {
        let cause = line["cause"].as_str().unwrap_or_default();
        line["message"] == "store unreachable" && cause.ends_with(": connection refused")
    });
    let fine = stage.fine(&User::with_key(USER_KEY), 0);
    let started = Instant::now();
    for _ in 0..3 {
        assert_eq!(sitemap(edge).status, 503);
        rpc_refused(
            &stage.post("/rpc", fine.body()),
            "store_unavailable",
            ID,
            "it is away",
        );
    }
    assert!(
        started.elapsed() < AT_ONCE,
        "six refusals took {:?}",
        started.elapsed()
    );
    way.open();
    eventually(edge, "the sidecar serves", |_| sitemap(edge).status == 200);
    eventually(edge, "nothing is wrong", |_| !is_refused(edge));
    stage.assert_passes(&fine);
}
