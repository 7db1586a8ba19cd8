//! Secrets that are replaced while requests come in: no restart, no lost request.

use std::collections::BTreeSet;
use std::io::{BufRead as _, BufReader};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use crate::admin::{eventually, metrics, series};
use crate::handover::Successor;
use crate::live_keys::documented;
use crate::manager::Manager;
use crate::support::client::{Client, PATIENCE};
use crate::support::collector::Collector;
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::load::lost_during;
use crate::support::node::{Call, Node};
use crate::support::postgres::Database;
use crate::support::relay::chain::{USER_KEY, honest, is_view, key, result};
use crate::support::relay::stage::{authorised, setup};
use crate::support::request::{QUESTION, Request};
use crate::support::script::{good, json, send, sized};
use crate::support::secure::{ANY, Pair, handshake, secured};
use crate::support::sidecar::content::ALICE;
use crate::support::sidecar::event::{Event, NOBODY, SESSION, SIGNATURE, WEBHOOK, sign};
use crate::support::sidecar::stage::{Stage, post};
use crate::support::sidecar::token::Token;

const OLD: &str = "old-0123456789abcdef0123456789abcdef";
const NEW: &str = "new-0123456789abcdef0123456789abcdef";

/// Each secret as the runbook names it, with the test that replaces it: its file and name.
const REPLACED: &str = "
relay.token_files it/relay/bearer.rs tokens_are_changed_without_a_request_being_refused
admin.token_file it/rotation.rs a_token_and_its_successor_are_both_accepted
sidecar.operator_token_file it/rotation.rs secrets_of_the_sidecar_need_no_restart
sidecar.age.webhook_secret_files it/rotation.rs secrets_of_the_sidecar_need_no_restart
sidecar.session.hs256_secret_files it/rotation.rs secrets_of_the_sidecar_need_no_restart
relay.events.secret_file it/relay/events.rs a_new_secret_loses_no_event
node.header_file it/rotation.rs a_new_key_of_the_node_loses_no_read
trace.header_file it/rotation.rs a_new_key_of_the_collector_loses_no_span
*.tls.certificate_file it/rotation.rs a_new_certificate_loses_no_connection
*.tls.key_file it/rotation.rs a_new_certificate_loses_no_connection
store.password_file it/rotation.rs a_new_password_of_postgresql_needs_no_restart
fleet.password_file it/rotation.rs secrets_of_a_fleet_need_no_restart
fleet.secret_file it/rotation.rs secrets_of_a_fleet_need_no_restart
relay.keys.* it/rotation.rs a_hand_over_applies_new_keys_of_accounts
tls.acme.eab_key_file acme/run.py another_customer
";

/// Whether a name of the runbook, perhaps with one star, is that of a key.
fn is_of(name: &str, key: &str) -> bool {
    match name.split_once('*') {
        Some((begin, end)) => key.starts_with(begin) && key.ends_with(end),
        None => name == key,
    }
}

#[test]
fn each_secret_has_a_row_in_the_runbook_and_a_test() {
    let runbook = std::fs::read_to_string("conf/prometheus/RUNBOOK.md").unwrap();
    let (_, section) = runbook.split_once("\n### Replace a secret\n").unwrap();
    let (section, _) = section.split_once("\n### ").unwrap();
    let rows = section.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.filter_map(|row| row.split_once("` | "));
    let rows: BTreeSet<_> = cells.flat_map(|(cell, _)| cell.split("`, `")).collect();
    let mut tested = BTreeSet::new();
    for line in REPLACED.trim().lines() {
        let mut words = line.split_whitespace();
        let [name, file, test] = [(); 3].map(|()| words.next().unwrap());
        let is_known = documented().keys().any(|key| is_of(name, key));
        assert!(is_known, "{name} is a key");
        let text = std::fs::read_to_string(format!("tests/{file}")).unwrap();
        assert!(text.contains(&format!(" {test}(")), "{name}: {file} {test}");
        tested.insert(name);
    }
    assert_eq!(rows, tested);
    let mut secrets: Vec<_> = documented().into_keys().collect();
    secrets.retain(|key| {
        let is_file = key.ends_with("_file") || key.ends_with("_files");
        // certificates of authorities are public
        is_file && !key.ends_with("ca_file")
    });
    for secret in &secrets {
        let named = rows.iter().filter(|name| is_of(name, secret));
        assert_eq!(named.count(), 1, "{secret} has a row");
    }
}

/// Reloads, and waits for the line about the file of a key.
pub(crate) fn reload(edge: &Edge, key: &str, effective: &str) {
    edge.signal("HUP");
    let line = edge.line(key, |line| {
        line["message"] == "content of a file changed" && line["key"] == key
    });
    assert_eq!(line["effective"], effective, "{line}");
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_new_password_of_postgresql_needs_no_restart() {
    let (database, folder) = (Database::new(), Folder::new());
    let name = database.name();
    database.run(&format!(
        "CREATE ROLE rotated LOGIN PASSWORD 'first'; ALTER DATABASE {name} OWNER TO rotated"
    ));
    let file = folder.secret("password", "first\n");
    let edge = Setup::before(Node::nowhere())
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("sidecar.base_url", "\"https://portcullis.test\"")
        .set("sidecar.requests_per_minute", "1000000")
        .set(
            "store.url",
            &database.url().replace("portcullis@", "rotated@"),
        )
        .set("store.password_file", &format!("{file:?}"))
        .start();
    let ask = || {
        let request = Request::new("GET", "/functions/seo-sitemap");
        Client::connect(edge.sidecar()).ask(&request).status
    };
    const END: &str = "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity \
        WHERE usename = 'rotated'";
    assert_eq!(ask(), 200);
    let (lost, all) = lost_during(ask, || {
        folder.secret("password", "second\n");
        reload(&edge, "store.password_file", "with the next connection");
    });
    assert_eq!(lost, 0, "of {all}");
    assert!(database.number(END) > 0);
    eventually(&edge, "the server knows only the former one", |_| {
        ask() == 200
    });
    let (lost, all) = lost_during(ask, || {
        database.run("ALTER ROLE rotated PASSWORD 'second'");
    });
    assert_eq!(lost, 0, "of {all}");
    assert!(database.number(END) > 0);
    eventually(&edge, "new connections have it", |_| ask() == 200);

    // without a reload: the failure makes it read the file
    folder.secret("password", "third\n");
    database.run("ALTER ROLE rotated PASSWORD 'third'");
    assert!(database.number(END) > 0);
    eventually(&edge, "the file is read after a failure", |_| ask() == 200);
}

/// A Redis of a test's own, at a socket, with a password.
struct Redis {
    shell: Child,
    stdin: Option<ChildStdin>,
    socket: String,
}

/// Starts it, then sets the passwords of its input; ends it with the standard input.
const SCRIPT: &str = r#"
set -euo pipefail
source tests/lib/redis.sh
trap stop_redis EXIT
start_redis
cli() { redis-cli -s "$REDIS_FOLDER/socket" "$@" >/dev/null; }
cli ACL SETUSER default resetpass ">$1"
echo "$REDIS_FOLDER/socket"
while read -r password; do
  redis-cli -s "$REDIS_FOLDER/socket" -a "$1" --no-auth-warning \
    ACL SETUSER default resetpass ">$password" >/dev/null
  set -- "$password"
  redis-cli -s "$REDIS_FOLDER/socket" -a "$1" --no-auth-warning \
    CLIENT KILL TYPE normal SKIPME yes >/dev/null
  echo "$password"
done
"#;

impl Redis {
    fn start(password: &str) -> (Self, BufReader<std::process::ChildStdout>) {
        let mut shell = Command::new("bash")
            .args(["-c", SCRIPT, "redis", password])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("there is a shell");
        let stdin = shell.stdin.take();
        let mut said = BufReader::new(shell.stdout.take().expect("it is piped"));
        let mut socket = String::new();
        said.read_line(&mut socket).expect("it is open");
        let socket = socket.trim_end().to_owned();
        assert!(socket.ends_with("/socket"), "Redis is installed");
        let redis = Self {
            shell,
            stdin,
            socket,
        };
        (redis, said)
    }
}

impl Drop for Redis {
    fn drop(&mut self) {
        drop(self.stdin.take());
        let _status = self.shell.wait();
    }
}

#[test]
#[ignore = "needs Redis: run tests/run"]
fn secrets_of_a_fleet_need_no_restart() {
    use std::io::Write as _;
    let (mut redis, mut said) = Redis::start("first");
    let (node, folder) = (Node::start(good), Folder::new());
    let password = folder.secret("fleet.password", "first\n");
    let secret = folder.secret("fleet.secret", OLD);
    let edge = Setup::before(node.address())
        .set("gateway.requests_per_minute", "1000000")
        .set("fleet.url", &format!("\"unix:{}\"", redis.socket))
        .set("fleet.password_file", &format!("{password:?}"))
        .set("fleet.secret_file", &format!("{secret:?}"))
        .start();
    let is_up = |what: &str| {
        eventually(&edge, what, |now| {
            now["portcullis_fleet_up"] == 1.0 && now["portcullis_fleet_instances"] >= 1.0
        });
    };
    is_up("it is reached");
    let ask = || edge.ask(&Request::post(QUESTION)).status;
    let (lost, all) = lost_during(ask, || {
        folder.secret("fleet.password", "second\n");
        reload(&edge, "fleet.password_file", "with the next connection");
        let stdin = redis.stdin.as_mut().expect("it is open");
        stdin.write_all(b"second\n").expect("the shell reads");
        let mut done = String::new();
        said.read_line(&mut done).expect("it is open");
        assert_eq!(done, "second\n", "its connections are closed");
        is_up("the new password is used");
        folder.secret("fleet.secret", &format!("{NEW}\n{OLD}\n"));
        reload(&edge, "fleet.secret_file", "now");
        is_up("the new secret is used");
    });
    assert_eq!(lost, 0, "of {all}");
    assert_eq!(metrics(&edge)["portcullis_fleet_up"], 1.0);
}

#[test]
fn a_token_and_its_successor_are_both_accepted() {
    let (node, folder) = (Node::start(good), Folder::new());
    let file = folder.secret("admin.token", OLD);
    let edge = Setup::before(node.address())
        .set("admin.token_file", &format!("{file:?}"))
        .start();
    let ask = |token: &str| {
        let request = Request::new("GET", "/metrics");
        let request = request.with("Authorization", &format!("Bearer {token}"));
        Client::connect(edge.admin()).ask(&request).status
    };
    assert_eq!([ask(OLD), ask(NEW)], [200, 401]);
    let reload = || {
        edge.signal("HUP");
        let count = |line: &serde_json::Value| line["key"] == "admin.token_file";
        edge.line("the reload", count);
    };
    folder.secret("admin.token", &format!("{NEW}\n{OLD}\n"));
    let (lost, all) = lost_during(|| ask(OLD), reload);
    assert_eq!(lost, 0, "of {all}");
    assert_eq!([ask(OLD), ask(NEW)], [200, 200], "while both are in use");
    folder.secret("admin.token", NEW);
    let (lost, all) = lost_during(
        || ask(NEW),
        || {
            edge.signal("HUP");
            let deadline = std::time::Instant::now() + crate::support::client::PATIENCE;
            while ask(OLD) != 401 {
                assert!(std::time::Instant::now() < deadline, "the old one ends");
            }
        },
    );
    assert_eq!(lost, 0, "of {all}");
}

/// Reloads, and waits for another line with this text.
fn reload_with(edge: &Edge, text: &str) {
    let lines = || {
        edge.lines()
            .iter()
            .filter(|line| line.contains(text))
            .count()
    };
    let before = lines();
    edge.signal("HUP");
    let deadline = Instant::now() + PATIENCE;
    while lines() == before {
        assert!(Instant::now() < deadline, "{text}: not reloaded");
    }
}

/// Accepts the old secret and the new one, then the new one alone, as the runbook says. `ask` sends
/// a request with a secret, and is answered 200 or 401.
fn rotated(ask: impl Fn(&str) -> u16 + Sync, both: impl FnOnce(), new: impl FnOnce()) {
    assert_eq!([ask(OLD), ask(NEW)], [200, 401]);
    let (lost, all) = lost_during(|| ask(OLD), both);
    assert_eq!(lost, 0, "of {all}");
    assert_eq!([ask(OLD), ask(NEW)], [200, 200], "while both are in use");
    let (lost, all) = lost_during(|| ask(NEW), new);
    assert_eq!(lost, 0, "of {all}");
    assert_eq!([ask(OLD), ask(NEW)], [401, 200]);
}

#[test]
fn secrets_of_the_sidecar_need_no_restart() {
    const OPERATOR: &str = "sidecar.operator_token_file";
    const SESSIONS: &str = "sidecar.session.hs256_secret_files";
    const VERIFIER: &str = "sidecar.age.webhook_secret_files";
    let folder = Folder::new();
    let token = folder.secret("operator.token", OLD);
    let (old, new) = (folder.secret("old", OLD), folder.secret("new", NEW));
    let (old_only, new_only) = (format!("[{old:?}]"), format!("[{new:?}]"));
    let both = format!("[{old:?}, {new:?}]");
    let stage = Stage::with(&[
        (OPERATOR, &format!("{token:?}")),
        (SESSIONS, &old_only),
        (VERIFIER, &old_only),
        ("sidecar.requests_per_minute", "1000000"),
    ]);
    let edge = &stage.edge;
    let name = |key: &str, files: &str| {
        edge.rewrite(&stage.setup.clone().set(key, files));
        reload_with(edge, key);
    };
    rotated(
        |secret| {
            let field = format!("Bearer {secret}");
            let shown = stage.get_with("/functions/health-check", "Authorization", &field);
            if shown.text().contains("latency_ms") {
                200
            } else {
                401
            }
        },
        || {
            folder.secret("operator.token", &format!("{NEW}\n{OLD}\n"));
            reload_with(edge, OPERATOR);
        },
        || {
            folder.secret("operator.token", NEW);
            reload_with(edge, OPERATOR);
        },
    );
    rotated(
        |secret| {
            let token = Token::of(ALICE).signed_with(secret);
            stage.ask(&token.get(SESSION)).status
        },
        || name(SESSIONS, &both),
        || name(SESSIONS, &new_only),
    );
    rotated(
        |secret| {
            let body = Event::new("rotated", NOBODY, "verified", 0).body();
            let signature = sign(secret, &body);
            // its subject is looked up once the signature is valid
            match stage
                .ask(&post(WEBHOOK, &body).with(SIGNATURE, &signature))
                .status
            {
                404 => 200,
                status => status,
            }
        },
        || name(VERIFIER, &both),
        || name(VERIFIER, &new_only),
    );
}

#[test]
fn a_new_key_of_the_node_loses_no_read() {
    // an account has both keys for a while
    let node = Node::start(|call| match call.head.contains("first-key") {
        false if !call.head.contains("second-key") => Vec::new(),
        _ => good(call),
    });
    let folder = Folder::new();
    let header = folder.secret("node.header", "X-Api-Key: first-key");
    let edge = Setup::before(node.address())
        .set("node.header_file", &format!("{header:?}"))
        .set("gateway.requests_per_minute", "1000000")
        .start();
    let ask = || edge.ask(&Request::post(QUESTION)).status;
    assert_eq!(ask(), 200);
    let (lost, all) = lost_during(ask, || {
        folder.secret("node.header", "X-Api-Key: second-key");
        reload(&edge, "node.header_file", "now");
    });
    assert_eq!(lost, 0, "of {all}");
    assert_eq!(ask(), 200);
    let last = node.calls().pop().expect("there are calls");
    assert!(last.head.contains("second-key"), "{}", last.head);
}

#[test]
fn a_new_certificate_loses_no_connection() {
    let (node, folder) = (Node::start(good), Folder::new());
    let (old, new) = (Pair::new(), Pair::until(3000));
    old.write(&folder);
    let edge = secured(Setup::before(node.address()), "gateway", &folder).start();
    let trusts = |pair: &Pair| handshake(edge.gateway(), pair.config(ANY, &[])).is_ok();
    assert!(trusts(&old) && !trusts(&new));
    let ask = || if trusts(&old) || trusts(&new) { 200 } else { 0 };
    let (lost, all) = lost_during(ask, || {
        new.write(&folder);
        reload_with(&edge, "the certificate was reloaded");
    });
    assert_eq!(lost, 0, "of {all}");
    assert!(!trusts(&old) && trusts(&new));
}

#[test]
fn a_reload_names_only_changed_files() {
    let (node, folder) = (Node::start(good), Folder::new());
    folder.secret("node.header", "X-Api-Key: first");
    let token = folder.secret("admin.token", OLD);
    let edge = Setup::before(node.address())
        .environment(
            "CREDENTIALS_DIRECTORY",
            &folder.path().display().to_string(),
        )
        .set("node.header_file", "\"node.header\"")
        .set("admin.token_file", &format!("{token:?}"))
        .start();
    folder.secret("node.header", "X-Api-Key: second");
    reload(&edge, "node.header_file", "now");
    let named = |key: &str| {
        let lines = edge.lines();
        lines.iter().filter(|line| line.contains(key)).count()
    };
    assert_eq!(
        [named("node.header_file"), named("admin.token_file")],
        [1, 0]
    );
    edge.signal("HUP");
    edge.line("the end", |line| {
        line["message"] == "configuration reloaded: nothing changed"
    });
    assert_eq!(named("node.header_file"), 1, "it is the same");
}

#[test]
fn a_new_key_of_the_collector_loses_no_span() {
    // a collector that knows both keys for a while
    let collector = Collector::with(|call| {
        let head = &call.head;
        if head.contains("first-key") || head.contains("second-key") {
            send(json("{}"))
        } else {
            send(sized("401 Unauthorized", &[], ""))
        }
    });
    let (node, folder) = (Node::start(good), Folder::new());
    let header = folder.secret("collector.header", "X-Api-Key: first-key");
    let edge = Setup::before(node.address())
        .set("trace.endpoint", &collector.url())
        .set("trace.ratio", "1.0")
        .set("trace.header_file", &format!("{header:?}"))
        .set("gateway.requests_per_minute", "1000000")
        .start();
    let ask = || edge.ask(&Request::post(QUESTION)).status;
    let (lost, all) = lost_during(ask, || {
        collector.0.wait_for_calls(1);
        folder.secret("collector.header", "X-Api-Key: second-key");
        reload(&edge, "trace.header_file", "with the next connection");
        eventually(&edge, "an export has the new key", |_| {
            let calls = collector.0.calls();
            calls
                .last()
                .is_some_and(|last| last.head.contains("second-key"))
        });
    });
    assert_eq!(lost, 0, "of {all}");
    let now = metrics(&edge);
    assert_eq!(
        series(&now, "portcullis_trace_spans_total", &["rejected"]),
        0.0
    );
}

/// The accounts of owner, verifier and faucet, with their next keys.
const ACCOUNTS: [(&str, &str, &str); 3] = [
    ("owner", "0x100", "0xbee1"),
    ("verifier", "0x101", "0xbee2"),
    ("faucet", "0x102", "0xbee3"),
];

/// The public key of a call's account, once it has its next key.
fn next_key(call: &Call) -> Option<String> {
    let asked = call.json();
    let address = &asked["params"]["request"]["contract_address"];
    let account = ACCOUNTS.iter().find(|(_, of, _)| address == of);
    let (.., next) = account.filter(|_| is_view(call, "get_public_key"))?;
    Some(format!("[\"{}\"]", key(next).public_key()))
}

#[test]
#[ignore = "needs PostgreSQL: run tests/run"]
fn a_hand_over_applies_new_keys_of_accounts() {
    let (database, folder, manager) = (Database::new(), Folder::new(), Manager::new());
    let is_changed = Arc::new(AtomicBool::new(false));
    let shown = Arc::clone(&is_changed);
    let node = Node::start(move |call| match next_key(call) {
        Some(next) if shown.load(Ordering::Relaxed) => result(call, &next),
        _ => honest(call),
    });
    let faucet = folder.secret("faucet.key", USER_KEY);
    let setup = setup(
        node.address(),
        &folder,
        &[
            ("gateway.listen", "\"127.0.0.1:0\""),
            ("gateway.requests_per_minute", "1000000"),
            ("relay.pins.faucet", "\"0x102\""),
            ("relay.keys.faucet_file", &format!("{faucet:?}")),
            ("store.url", &database.url()),
        ],
    );
    let mut edge = manager.of(setup).start();
    let ready = authorised(Request::new("GET", "/readyz"));
    let is_ready = |edge: &Edge| Client::connect(edge.relay()).ask(&ready).status == 200;
    assert!(is_ready(&edge));
    let mut successor = None;
    let (lost, all) = lost_during(
        || edge.ask(&Request::post(QUESTION)).status,
        || {
            is_changed.store(true, Ordering::Relaxed);
            for (role, _, next) in ACCOUNTS {
                folder.secret(&format!("{role}.key"), next);
                reload(&edge, &format!("relay.keys.{role}_file"), "after a restart");
            }
            eventually(&edge, "a restart is pending", |now| {
                now["portcullis_config_pending_restart"] == 3.0
            });
            successor = Some(Successor::of(&edge, &manager));
        },
    );
    assert_eq!(lost, 0, "of {all}");
    assert_eq!(edge.wait_alone().code(), Some(0));
    eventually(&edge, "the successor has the new keys", |now| {
        now["portcullis_relay_pins_ready"] == 1.0
    });
    assert!(is_ready(&edge));
}
