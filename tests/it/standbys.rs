//! A real PostgreSQL with a standby that streams from it: documents are read from the standby while
//! it is recent, and `check --live` says what stands around the primary, also a real PgBouncer.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};

use crate::admin::{eventually, metrics};
use crate::support::client::Client;
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::load::lost_during;
use crate::support::node::Node;
use crate::support::relay::stage;
use crate::support::request::{QUESTION, Request};
use crate::support::script::good;

/// How far behind a replica may be.
const MAX_LAG: Duration = Duration::from_secs(5);

struct Cluster {
    shell: Child,
    orders: Option<ChildStdin>,
    said: BufReader<std::process::ChildStdout>,
    url: String,
}

impl Cluster {
    fn start() -> Self {
        let mut shell = Command::new("bash")
            .arg("tests/lib/standby.sh")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let orders = shell.stdin.take();
        let mut said = BufReader::new(shell.stdout.take().expect("it is piped"));
        let mut url = String::new();
        said.read_line(&mut url).expect("it is open");
        assert!(
            url.starts_with("postgres://"),
            "PostgreSQL is installed: {url:?}"
        );
        Self {
            shell,
            orders,
            said,
            url: url.trim_end().trim_end_matches('/').to_owned(),
        }
    }

    fn order(&mut self, word: &str) {
        let orders = self.orders.as_mut().expect("until it is dropped");
        orders
            .write_all(format!("{word}\n").as_bytes())
            .expect("the shell reads");
        let mut done = String::new();
        self.said.read_line(&mut done).expect("it is open");
        assert_eq!(done.trim_end(), word, "the shell obeys");
    }

    /// The URL of the server at a port.
    fn at(&self, port: u16) -> String {
        format!("{}:{port}/postgres", self.url)
    }

    fn primary(&self) -> String {
        self.at(5432)
    }

    fn standby(&self) -> String {
        self.at(5433)
    }

    fn sidecar(&self) -> Setup {
        Setup::before(Node::nowhere())
            .set("sidecar.base_url", "\"https://portcullis.test\"")
            .set("sidecar.listen", "\"127.0.0.1:0\"")
            .set("sidecar.requests_per_minute", "1000000")
            .set("store.url", &format!("{:?}", self.primary()))
            .set("store.read_url", &format!("{:?}", self.standby()))
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        drop(self.orders.take());
        let _status = self.shell.wait();
    }
}

/// Runs statements at a server.
fn sql(url: &str, statements: &str) {
    within(async {
        let mut connection = PgConnection::connect(url).await.unwrap();
        let statements = AssertSqlSafe(statements.to_owned());
        sqlx::raw_sql(statements)
            .execute(&mut connection)
            .await
            .unwrap();
        connection.close().await.unwrap();
    });
}

fn number(url: &str, query: &str) -> i64 {
    within(async {
        let mut connection = PgConnection::connect(url).await.unwrap();
        let query = AssertSqlSafe(query.to_owned());
        sqlx::query_scalar(query)
            .fetch_one(&mut connection)
            .await
            .unwrap()
    })
}

fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
        .block_on(work)
}

fn page(id: u32) -> String {
    let values = format!("({id}, 'https://portcullis.test/page-{id}', {id})");
    format!("INSERT INTO sitemap_url (id, loc, lastmod_us) VALUES {values}")
}

fn sitemap(edge: &Edge) -> String {
    let answer =
        Client::connect(edge.sidecar()).ask(&Request::new("GET", "/functions/seo-sitemap"));
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.text().to_owned()
}

fn is_used(edge: &Edge, expected: f64) {
    eventually(edge, &format!("the replica is used: {expected}"), |now| {
        now["portcullis_store_replica_used"] == expected
    });
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn documents_are_read_from_a_recent_replica_only() {
    let mut cluster = Cluster::start();
    let edge = cluster.sidecar().start();
    let (primary, standby) = (cluster.primary(), cluster.standby());
    sql(&primary, &page(1));
    is_used(&edge, 1.0);
    eventually(&edge, "the replica has the page", |_| {
        sitemap(&edge).contains("page-1")
    });
    const READS: &str = "SELECT count(*) FROM pg_stat_activity WHERE \
        application_name = 'portcullis' AND query LIKE '%sitemap_url%'";
    eventually(&edge, "the replica was queried", |_| {
        sitemap(&edge);
        number(&standby, READS) > 0
    });

    sql(&standby, "SELECT pg_wal_replay_pause()");
    sql(&primary, &page(2));
    eventually(&edge, "what is 5 s old is read", |_| {
        sitemap(&edge).contains("page-2")
    });
    is_used(&edge, 0.0);
    edge.line("the begin", |line| {
        line["message"] == "replica of the store not used"
    });
    assert!(
        metrics(&edge)["portcullis_store_replica_lag_seconds"] >= 5.0,
        "how old it is"
    );
    sql(&standby, "SELECT pg_wal_replay_resume()");
    is_used(&edge, 1.0);
    edge.line("the end", |line| {
        line["message"] == "replica of the store used again"
    });

    cluster.order("kill");
    assert!(
        sitemap(&edge).contains("page-2"),
        "the primary serves at once"
    );
    is_used(&edge, 0.0);
    cluster.order("start");
    is_used(&edge, 1.0);
    cluster.order("promote");
    is_used(&edge, 0.0);
    sql(&standby, "DELETE FROM sitemap_url");
    assert!(
        sitemap(&edge).contains("page-2"),
        "a promoted one is another database"
    );
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_start_beside_a_standby_waits_for_its_promotion() {
    let (mut cluster, node) = (Cluster::start(), Node::start(good));
    let edge = Setup::before(node.address())
        .set("sidecar.base_url", "\"https://portcullis.test\"")
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("store.url", &format!("{:?}", cluster.standby()))
        .start();
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        200,
        "the gateway"
    );
    eventually(&edge, "the cause is named", |_| {
        let shown = edge.admin_get("/readyz?verbose").text().to_owned();
        shown.contains("it is a standby, or read-only: name the primary in store.url")
    });
    cluster.order("promote");
    eventually(&edge, "the sidecar serves", |_| {
        let request = Request::new("GET", "/functions/seo-sitemap");
        Client::connect(edge.sidecar()).ask(&request).status == 200
    });
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_replica_that_is_none_is_never_read() {
    let cluster = Cluster::start();
    sql(&cluster.primary(), "CREATE DATABASE other");
    let other = cluster.primary().replace("/postgres", "/other");
    for url in [
        cluster.primary(),
        other,
        "postgres://nobody@127.0.0.1:1/postgres".to_owned(),
    ] {
        let edge = cluster
            .sidecar()
            .set("store.read_url", &format!("{url:?}"))
            .start();
        edge.line("the begin", |line| {
            line["message"] == "replica of the store not used"
        });
        sitemap(&edge);
        is_used(&edge, 0.0);
    }
}

fn live(setup: &Setup, key: &str) -> Vec<(String, String)> {
    let output = setup.run_with("check", &["--live", "--format", "json"], "");
    let report: Value = serde_json::from_slice(&output.stdout).expect("a report");
    let checks = report["checks"].as_array().expect("findings").iter();
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let of_key = checks.filter(|finding| finding["subject"] == key);
    of_key
        .map(|finding| (text(&finding["status"]), text(&finding["message"])))
        .collect()
}

fn assert_found(found: &[(String, String)], status: &str, message: &str) {
    let is = |(its, text): &(String, String)| its == status && text.contains(message);
    assert!(
        found.iter().any(is),
        "expected {status} {message:?} in {found:#?}"
    );
}

/// A relay whose store is at this URL.
fn relay(url: &str, folder: &Folder) -> Setup {
    stage::setup(Node::nowhere(), folder, &[]).set("store.url", &format!("{url:?}"))
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_live_check_reports_standbys() {
    let (cluster, folder) = (Cluster::start(), Folder::new());
    let (primary, standby) = (cluster.primary(), cluster.standby());
    let own = relay(&primary, &folder);
    assert_eq!(own.run("store migrate").status.code(), Some(0));
    let own = own.set("store.read_url", &format!("{standby:?}"));
    let found = live(&own, "store.url");
    assert_found(&found, "ok", "a connection has its session for itself");
    assert_found(&found, "note", "set synchronous_standby_names");
    assert_found(&live(&own, "store.read_url"), "ok", "is a replica");
    // an ordinary user sees that there is a standby, and not more
    sql(
        &primary,
        "CREATE ROLE plain LOGIN; GRANT SELECT ON ALL TABLES IN SCHEMA public TO plain",
    );
    let plain = relay(&primary.replace("portcullis@", "plain@"), &folder);
    assert_found(&live(&plain, "store.url"), "note", "standbys (1)");
    assert_found(
        &live(&relay(&standby, &folder), "store.url"),
        "failed",
        "name the primary",
    );

    sql(&primary, "ALTER SYSTEM SET synchronous_standby_names = '*'");
    sql(&primary, "SELECT pg_reload_conf()");
    assert_found(
        &live(&own, "store.url"),
        "ok",
        "commits wait for its standbys (1)",
    );
}

/// A failover without a change of the configuration, and without a restart.
#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn of_several_hosts_the_primary_is_used() {
    let (mut cluster, node) = (Cluster::start(), Node::start(good));
    let (user, host) = cluster.url.rsplit_once('@').expect("a user");
    let user = user.replace("postgres:", "postgresql:");
    let url = format!("{user}@{host}:5433,{host}:5432/postgres?target_session_attrs=read-write");
    let edge = Setup::before(node.address())
        .set("gateway.requests_per_minute", "1000000")
        .set("sidecar.base_url", "\"https://portcullis.test\"")
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("sidecar.requests_per_minute", "1000000")
        .set("store.url", &format!("{url:?}"))
        .start();
    sql(&cluster.primary(), &page(1));
    assert!(sitemap(&edge).contains("page-1"), "the second host");
    let ask = || edge.ask(&Request::post(QUESTION)).status;
    let (lost, all) = lost_during(ask, || {
        cluster.order("die");
        eventually(&edge, "the cause is named", |_| {
            let shown = edge.admin_get("/readyz?verbose").text().to_owned();
            shown.contains("store unreachable")
        });
        cluster.order("promote");
        eventually(&edge, "the other host is used", |_| {
            let request = Request::new("GET", "/functions/seo-sitemap");
            let answer = Client::connect(edge.sidecar()).ask(&request);
            answer.status == 200 && answer.text().contains("page-1")
        });
        eventually(&edge, "nothing is wrong", |_| {
            let shown = edge.admin_get("/readyz?verbose").text().to_owned();
            shown.contains("verdict: ok")
        });
    });
    assert_eq!(lost, 0, "of {all} reads of the gateway");
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn documents_are_served_while_the_primary_is_away() {
    let mut cluster = Cluster::start();
    let (user, host) = cluster.url.rsplit_once('@').expect("a user");
    let both = format!("{user}@{host}:5432,{host}:5433/postgres");
    let edge = cluster
        .sidecar()
        .set("store.url", &format!("{both:?}"))
        .set(
            "store.read_url",
            &format!("\"{both}?target_session_attrs=standby\""),
        )
        .start();
    sql(&cluster.primary(), &page(1));
    is_used(&edge, 1.0);
    eventually(&edge, "the replica has the page", |_| {
        sitemap(&edge).contains("page-1")
    });
    cluster.order("die");
    let died = Instant::now();
    eventually(&edge, "longer than a replica may be behind", |_| {
        assert!(sitemap(&edge).contains("page-1"));
        died.elapsed() > 2 * MAX_LAG
    });
    is_used(&edge, 1.0);
    assert_eq!(
        metrics(&edge)["portcullis_condition{condition=\"store\"}"],
        1.0
    );
    cluster.order("promote");
    is_used(&edge, 0.0);
    eventually(&edge, "the new primary serves", |_| {
        let request = Request::new("GET", "/functions/seo-sitemap");
        Client::connect(edge.sidecar()).ask(&request).status == 200
    });
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_live_check_finds_a_pooler() {
    let (mut cluster, folder) = (Cluster::start(), Folder::new());
    assert_eq!(
        relay(&cluster.primary(), &folder)
            .run("store migrate")
            .status
            .code(),
        Some(0)
    );
    let is_there = Command::new("pgbouncer").arg("--version").output().is_ok();
    assert!(is_there, "PgBouncer is installed: tests/run does so");
    cluster.order("bouncer");
    let found = live(&relay(&cluster.at(6432), &folder), "store.url");
    assert_found(&found, "failed", "a pooler in transaction mode");
}

#[test]
fn a_url_that_no_replica_has_is_refused() {
    let server = "postgres://a@127.0.0.1:1/a";
    for (url, read_url, expected) in [
        (
            "sqlite:a.db",
            server,
            "SQLite is a file, and has no replica",
        ),
        (
            server,
            "sqlite:a.db",
            "expected postgres://USER@HOST:PORT/DATABASE or",
        ),
        (
            server,
            "postgres://a:hunter2@127.0.0.1:1/a",
            "a password belongs in the file",
        ),
        (
            server,
            "postgres://a@127.0.0.1:1/a?sslmode=require",
            "store.read_url: sslmode requires",
        ),
    ] {
        let setup = Setup::before(Node::nowhere())
            .set("sidecar.base_url", "\"https://portcullis.test\"")
            .set("sidecar.listen", "\"127.0.0.1:0\"")
            .set("store.url", &format!("{url:?}"))
            .set("store.read_url", &format!("{read_url:?}"));
        let output = setup.run("check");
        let found = [output.stdout, output.stderr].concat();
        let found = String::from_utf8_lossy(&found);
        assert_eq!(output.status.code(), Some(1), "{found}");
        assert!(found.contains("store.read_url"), "{found}");
        assert!(found.contains(expected), "expected {expected:?} in {found}");
        assert!(!found.contains("hunter2"), "{found}");
    }
}
