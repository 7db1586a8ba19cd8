//! A standard error that nobody reads, or that is full: the process still stops, and says what is
//! missing.

use std::fs::{self, File, OpenOptions, Permissions};
use std::io::{self, BufRead, BufReader, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::PathBuf;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::support::client::{Client, PATIENCE};
use crate::support::dev::dev;
use crate::support::edge::{Setup, Spawned, signal};
use crate::support::folder::Folder;
use crate::support::node::{Act, Latch, Node};
use crate::support::request::{QUESTION, Request};
use crate::support::script::good;

/// fcntl(2): of a pipe that another process may have, without changing it for that process.
const O_NONBLOCK: i32 = 0o4000;

/// A process whose stderr is a pipe that was read until it served, and is full now.
struct Stalled {
    process: Spawned,
    gateway: Option<SocketAddr>,
    /// Open, so that a write waits instead of failing.
    _reader: BufReader<io::PipeReader>,
}

impl Stalled {
    fn start(setup: &Setup) -> Self {
        Self::spawned_by(|stderr| setup.spawn("serve", Stdio::null(), stderr))
    }

    fn spawned_by(spawn: impl FnOnce(Stdio) -> Spawned) -> Self {
        let (reader, writer) = io::pipe().unwrap();
        let process = spawn(writer.into());
        let (mut reader, mut gateway) = (BufReader::new(reader), None);
        loop {
            let mut line = String::new();
            assert!(
                reader.read_line(&mut line).unwrap() > 0,
                "it ended before it served"
            );
            gateway = gateway.or_else(|| listens("gateway", &line));
            if line.contains(r#""serving""#) || line.ends_with(" serving\n") {
                break;
            }
        }
        fill(reader.get_ref());
        Self {
            process,
            gateway,
            _reader: reader,
        }
    }

    fn signal(&self, name: &str) {
        signal(self.process.child.id(), name);
    }

    fn ends(&mut self, what: &str) -> Option<i32> {
        let ended = self.process.ends_within(PATIENCE);
        ended
            .unwrap_or_else(|| panic!("{what}: it still runs"))
            .code()
    }
}

/// The address in a line that says where a surface listens.
fn listens(surface: &str, line: &str) -> Option<SocketAddr> {
    let line: Value = serde_json::from_str(line).ok()?;
    let is_it = line["message"] == "listening" && line["surface"] == surface;
    is_it.then(|| line["address"].as_str()?.parse().ok())?
}

/// Writes into a pipe until not one more byte fits.
fn fill(reader: &io::PipeReader) {
    let pipe = format!("/proc/self/fd/{}", reader.as_raw_fd());
    let mut pipe = OpenOptions::new()
        .write(true)
        .custom_flags(O_NONBLOCK)
        .open(pipe)
        .unwrap();
    for size in [4_096, 1] {
        let more = vec![b' '; size];
        while let Ok(written) = pipe.write(&more) {
            assert!(written > 0);
        }
        assert_eq!(pipe.write(&more).unwrap_err().kind(), ErrorKind::WouldBlock);
    }
}

/// A node that answers nothing until the latch is open.
fn held_node() -> (Node, Latch) {
    let latch = Latch::default();
    let hold = latch.clone();
    (Node::start(move |_| vec![Act::Hold(hold.clone())]), latch)
}

#[test]
fn a_log_that_nobody_reads_delays_no_stop() {
    let node = Node::start(good);
    for name in ["TERM", "INT"] {
        let mut stalled = Stalled::start(&Setup::before(node.address()));
        let mut client = Client::connect(stalled.gateway.unwrap());
        assert_eq!(
            client.ask(&Request::post(QUESTION)).status,
            200,
            "it serves without a log"
        );
        stalled.signal(name);
        assert_eq!(stalled.ends(name), Some(0), "a stop is no failure");
    }
}

#[test]
fn a_second_signal_waits_for_nothing() {
    let (node, _never) = held_node();
    let setup = Setup::before(node.address()).set("server.grace_period", "\"600s\"");
    let mut stalled = Stalled::start(&setup);
    let mut client = Client::connect(stalled.gateway.unwrap());
    client.send(Request::post(QUESTION).bytes());
    node.wait_for_calls(1);
    stalled.signal("TERM");
    let deadline = Instant::now() + PATIENCE;
    while TcpStream::connect(stalled.gateway.unwrap()).is_ok() {
        assert!(Instant::now() < deadline, "the first signal was received");
    }
    assert!(
        stalled.process.ends_within(Duration::ZERO).is_none(),
        "a request is in flight"
    );
    stalled.signal("INT");
    assert_eq!(stalled.ends("the second"), Some(0), "as documented");
}

#[test]
fn dev_stops_without_a_reader_and_its_node_with_it() {
    for (signals, drain_delay) in [(&["INT"][..], "0s"), (&["INT", "TERM"], "600s")] {
        let folder = Folder::new();
        let mut stalled = Stalled::spawned_by(|stderr| {
            let mut command = dev(folder.path(), &[]);
            command.env("PORTCULLIS__SERVER__DRAIN_DELAY", drain_delay);
            // no reader of the greeting either
            command
                .stdin(Stdio::null())
                .stdout(io::pipe().unwrap().1)
                .stderr(stderr);
            Spawned::of(command)
        });
        let children = format!("/proc/{0}/task", stalled.process.child.id());
        let node = fs::read_dir(children).unwrap().find_map(|task| {
            let children = fs::read_to_string(task.unwrap().path().join("children")).unwrap();
            children.split_whitespace().next().map(str::to_owned)
        });
        let node = node.expect("its node runs");
        for (name, is_last) in signals
            .iter()
            .zip((1..).map(|number| number == signals.len()))
        {
            stalled.signal(name);
            if is_last {
                assert_eq!(stalled.ends(name), Some(0), "{signals:?}");
            }
        }
        let deadline = Instant::now() + PATIENCE;
        let status = || fs::read_to_string(format!("/proc/{node}/stat")).unwrap_or_default();
        while !(status().is_empty() || status().contains(") Z ")) {
            assert!(Instant::now() < deadline, "its node ends: {}", status());
        }
    }
}

#[test]
fn a_failed_start_ends_without_a_reader() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("\"{}\"", taken.local_addr().unwrap());
    let setup = Setup::before(Node::nowhere()).set("admin.listen", &address);
    // the pipe is full before it starts
    let (reader, writer) = io::pipe().unwrap();
    fill(&reader);
    let mut process = setup.spawn("serve", Stdio::null(), writer.into());
    let ended = process.ends_within(PATIENCE).expect("it ends");
    assert_eq!(ended.code(), Some(2));
}

/// A process with its log in a file that may not be larger than 8 KiB.
struct Capped {
    process: Spawned,
    log: PathBuf,
    _folder: Folder,
}

impl Capped {
    fn start(setup: &Setup) -> Self {
        let folder = Folder::new();
        let (script, log) = (folder.path().join("capped"), folder.path().join("log"));
        let program = env!("CARGO_BIN_EXE_portcullis");
        let shell = "#!/bin/bash\ntrap '' XFSZ\nulimit -f 8\n";
        fs::write(&script, format!("{shell}exec {program} \"$@\"\n")).unwrap();
        fs::set_permissions(&script, Permissions::from_mode(0o755)).unwrap();
        let to = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&log)
            .unwrap();
        let setup = setup.clone().program(&script);
        let process = setup.spawn("serve", Stdio::null(), to.into());
        let capped = Self {
            process,
            log,
            _folder: folder,
        };
        capped.wait_for("\"serving\"");
        capped
    }

    fn text(&self) -> String {
        let mut text = Vec::new();
        File::open(&self.log)
            .unwrap()
            .read_to_end(&mut text)
            .unwrap();
        String::from_utf8(text).unwrap()
    }

    fn wait_for(&self, text: &str) -> String {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let found = self.text();
            if found.contains(text) {
                return found;
            }
            assert!(Instant::now() < deadline, "{text} is not in {found}");
            std::thread::yield_now();
        }
    }

    fn admin(&self, text: &str, path: &str) -> String {
        let address = text
            .lines()
            .find_map(|line| listens("admin", line))
            .unwrap();
        let request = Request::new("GET", path)
            .without("Host")
            .with("Host", "localhost");
        Client::connect(address).ask(&request).text().to_owned()
    }
}

/// Lines that the metrics count as missing.
fn missing(metrics: &str) -> u64 {
    let line = metrics
        .lines()
        .find(|line| line.starts_with("portcullis_log_dropped_lines_total "));
    line.unwrap().rsplit(' ').next().unwrap().parse().unwrap()
}

#[test]
fn lines_that_a_full_disk_loses_are_counted_and_reported() {
    let node = Node::start(good);
    let mut capped = Capped::start(&Setup::before(node.address()));
    let start = capped.text();
    let gateway = start
        .lines()
        .find_map(|line| listens("gateway", line))
        .unwrap();
    let id = |number: usize| format!("a-request-of-the-test-{number:04}");
    let ask = |number: usize| {
        let request = Request::post(QUESTION).with("X-Request-Id", &id(number));
        assert_eq!(
            Client::connect(gateway).ask(&request).status,
            200,
            "it serves without a log"
        );
    };
    let (mut sent, deadline) = (0, Instant::now() + PATIENCE);
    while missing(&capped.admin(&start, "/metrics")) < 5 {
        assert!(Instant::now() < deadline, "a file of 8 KiB is full");
        ask(sent);
        sent += 1;
    }
    let events = capped.admin(&start, "/errors");
    assert!(
        events.contains("log lines cannot be written: File too large"),
        "{events}"
    );

    let full = capped.text();
    OpenOptions::new()
        .write(true)
        .open(&capped.log)
        .unwrap()
        .set_len(0)
        .unwrap();
    let report = "log lines could not be written: File too large";
    capped.wait_for(report);
    ask(sent);
    let after = capped.wait_for(&id(sent));
    let first = after.lines().find(|line| !line.is_empty()).unwrap();
    let first: Value = serde_json::from_str(first).unwrap_or_else(|_| panic!("{after}"));
    assert_eq!(first["message"], report, "before anything else");
    let lost = missing(&capped.admin(&start, "/metrics"));
    assert_eq!(first["lines"], lost.to_string(), "all of them");
    let is_there = |number: &usize| {
        let mut lines = full
            .lines()
            .chain(after.lines())
            .filter(|line| line.ends_with('}'));
        lines.any(|line| line.contains(&id(*number)))
    };
    let absent = (0..=sent).filter(|number| !is_there(number)).count() as u64;
    assert!(
        (1..=lost).contains(&absent),
        "{absent} requests of {lost} lines"
    );
    assert!(
        capped.admin(&start, "/errors").contains(report),
        "on the page, too"
    );
    signal(capped.process.child.id(), "TERM");
    assert_eq!(
        capped
            .process
            .ends_within(PATIENCE)
            .and_then(|ended| ended.code()),
        Some(0)
    );
}

#[test]
fn a_command_whose_reader_is_gone_does_not_panic() {
    let folder = Folder::new();
    let request = folder.file("request.json");
    fs::write(&request, QUESTION).unwrap();
    let setup = Setup::before(Node::nowhere());
    let full = || Stdio::from(OpenOptions::new().write(true).open("/dev/full").unwrap());
    let gone = || Stdio::from(io::pipe().unwrap().1);
    for (what, words, stdout, stderr, code) in [
        (
            "no reader",
            format!("explain {request}"),
            gone(),
            Stdio::null(),
            0,
        ),
        (
            "no room",
            format!("explain {request}"),
            full(),
            Stdio::null(),
            70,
        ),
        ("no reader", "check".to_owned(), gone(), Stdio::null(), 0),
        (
            "no reader of a mistake",
            "journal list".to_owned(),
            Stdio::null(),
            gone(),
            2,
        ),
        (
            "no room for a mistake",
            "journal list".to_owned(),
            Stdio::null(),
            full(),
            2,
        ),
    ] {
        let mut process = setup.spawn(&words, stdout, stderr);
        let ended = process
            .ends_within(PATIENCE)
            .unwrap_or_else(|| panic!("{words}: it ends"));
        assert_eq!(ended.code(), Some(code), "{words}: {what}");
    }
}
