//! A wall clock that is wrong: before 1970, or centuries ahead, at the start and while it runs.
//!
//! The clock is `tests/outages/clock.c`, preloaded: it adds what a file says to the real time.

use std::fs::File;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::support::client::{Client, PATIENCE};
use crate::support::edge::{Edge, Setup, scratch_path};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request};
use crate::support::script::good;
use crate::support::secure::{Pair, secured, secured_node};

/// Seconds since 1970, and the beginning of a date in RFC 3339 and in `Date`.
const TIMES: [(i64, &str, &str); 8] = [
    (-1_000_000, "1969-12-20T", "Sat, 20 Dec 1969 "),
    (-7_000_000_000, "1748-03-", " Mar 1748 "),
    (0, "1970-01-01T", "Thu, 01 Jan 1970 "),
    (915_148_800, "1999-01-01T", "Fri, 01 Jan 1999 "),
    (946_684_800, "2000-01-01T", "Sat, 01 Jan 2000 "),
    (2_177_452_800, "2039-01-01T", "Sat, 01 Jan 2039 "),
    (4_323_283_200, "2107-01-01T", "Sat, 01 Jan 2107 "),
    (9_246_182_400, "2263-01-01T", "Thu, 01 Jan 2263 "),
];

/// The preloaded library, compiled once.
fn library() -> &'static PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        let (source, library) = (
            concat!(env!("CARGO_MANIFEST_DIR"), "/tests/outages/clock.c"),
            scratch_path("so"),
        );
        let mut compiler = Command::new("cc");
        compiler
            .args(["-shared", "-fPIC", "-O", "-o"])
            .arg(&library)
            .arg(source);
        assert!(
            compiler.status().unwrap().success(),
            "there is a C compiler"
        );
        library
    })
}

/// The clock of a process.
struct WallClock(PathBuf);

impl WallClock {
    fn at(folder: &Folder, seconds: i64) -> Self {
        let clock = Self(folder.path().join("clock"));
        clock.set(seconds);
        clock
    }

    /// Sets it, for a running process too.
    fn set(&self, seconds: i64) {
        let now = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap()
            .as_secs();
        // written in place, because the process has it mapped
        let file = File::options()
            .create(true)
            .write(true)
            .truncate(false)
            .open(&self.0);
        file.unwrap()
            .write_all(&(seconds - now.cast_signed()).to_ne_bytes())
            .unwrap();
    }

    fn of(&self, setup: Setup) -> Setup {
        setup
            .environment("LD_PRELOAD", &library().display().to_string())
            .environment("CLOCK_OFFSET", &self.0.display().to_string())
            // its thread waits by the kernel's clock for a time of this one
            .environment("_RJEM_MALLOC_CONF", "background_thread:false")
    }
}

fn setup(node: &Node, folder: &Folder) -> Setup {
    Setup::before(node.address())
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("sidecar.base_url", "\"http://127.0.0.1:1\"")
        .set(
            "store.url",
            &format!("\"sqlite:{}\"", folder.file("store.db")),
        )
}

/// Everything that shows a time answers, with that time.
fn serves(edge: &mut Edge, (_, rfc3339, http): (i64, &str, &str), id: &str) {
    let response = edge.ask(&Request::post(QUESTION).with("X-Request-Id", id));
    assert_eq!(response.status, 200, "{http}: {}", response.text());
    let date = response.header("date").unwrap();
    assert!(date.contains(http), "{date} is not {http}");
    let line = edge.request_line(id);
    assert!(
        line["time"].as_str().unwrap().starts_with(rfc3339),
        "{line}"
    );
    for path in ["/readyz?verbose", "/metrics", "/errors", "/history"] {
        assert_eq!(edge.admin_get(path).status, 200, "{http}: {path}");
    }
    for path in ["/sitemap.xml", "/functions/health-check?probe=live"] {
        let response = Client::connect(edge.sidecar()).ask(&Request::new("GET", path));
        assert_eq!(response.status, 200, "{http}: {path}");
    }
    assert!(edge.runs(), "{http}");
}

#[test]
fn a_clock_that_steps_anywhere_ends_nothing() {
    let (node, folder) = (Node::start(good), Folder::new());
    let clock = WallClock::at(&folder, TIMES[4].0);
    let mut edge = clock.of(setup(&node, &folder)).start();
    for (number, time) in TIMES.into_iter().chain([TIMES[0], TIMES[4]]).enumerate() {
        clock.set(time.0);
        serves(&mut edge, time, &format!("clock-step-{number}"));
    }
    let panics = edge
        .lines()
        .iter()
        .filter(|line| line.contains("panic"))
        .count();
    assert_eq!(panics, 0, "{:?}", edge.lines());
    edge.signal("TERM");
    assert_eq!(edge.wait().code(), Some(0));
}

#[test]
fn a_start_with_a_wrong_clock_serves_and_warns() {
    let node = Node::start(good);
    for time in [TIMES[0], TIMES[2], TIMES[4], TIMES[7]] {
        let folder = Folder::new();
        let clock = WallClock::at(&folder, time.0);
        let mut edge = clock.of(setup(&node, &folder)).start();
        serves(&mut edge, time, "after-a-start");
        let warns = edge
            .lines()
            .iter()
            .any(|line| line.contains("the clock of this machine"));
        assert_eq!(warns, time.0 < TIMES[4].0, "{}: {:?}", time.1, edge.lines());
    }
}

#[test]
fn handshakes_need_no_time() {
    let (node, folder, pair) = (Node::start(good), Folder::new(), Pair::new());
    pair.write(&folder);
    let clock = WallClock::at(&folder, TIMES[0].0);
    let setup = secured(Setup::before(node.address()), "gateway", &folder);
    let edge = clock.of(setup).start();
    for time in [TIMES[0], TIMES[4], TIMES[1], TIMES[7]] {
        clock.set(time.0);
        let response = pair.client(edge.gateway()).ask(&Request::post(QUESTION));
        assert_eq!(response.status, 200, "{}: {}", time.1, response.text());
    }
    let panics = edge
        .lines()
        .iter()
        .filter(|line| line.contains("panic"))
        .count();
    assert_eq!(panics, 0, "{:?}", edge.lines());
}

#[test]
fn a_node_has_no_valid_certificate_before_1970() {
    let (folder, pair) = (Folder::new(), Pair::with("localhost", |_| {}));
    let node = Node::start(good);
    let clock = WallClock::at(&folder, TIMES[0].0);
    let port = secured_node(node.address(), &pair).port();
    let setup = Setup::before(node.address())
        .set("node.url", &format!("\"https://localhost:{port}/rpc\""))
        .set(
            "node.ca_file",
            &format!("\"{}\"", folder.secret("ca.pem", &pair.certificate)),
        );
    let edge = clock.of(setup).start();
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        502,
        "it is not valid yet"
    );
    clock.set(TIMES[7].0);
    let deadline = Instant::now() + PATIENCE;
    while edge.ask(&Request::post(QUESTION)).status != 200 {
        assert!(Instant::now() < deadline, "it is valid now");
    }
    let panics = edge
        .lines()
        .iter()
        .filter(|line| line.contains("panic"))
        .count();
    assert_eq!(panics, 0, "{:?}", edge.lines());
}
