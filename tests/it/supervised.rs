//! Under a service manager: notifications, inherited sockets, and restarts without lost requests.

use std::fs::File;
use std::io::{Read, Write};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use portcullis_program::process::systemd::Runtimes;
use tokio::runtime::Handle;

use crate::manager::{Manager, listener, value};
use crate::node_head::{ask_about, row};
use crate::operator;
use crate::support::check::{assert_error, assert_result};
use crate::support::client::{Client, PATIENCE};
use crate::support::edge::{Setup, program, scratch_path, signal};
use crate::support::folder::Folder;
use crate::support::node::{Act, Latch, Node};
use crate::support::request::{QUESTION, Request};
use crate::support::response::parse_whole;
use crate::support::script::{RESULT, echo, good};

/// The address as a TOML string.
fn quoted(address: impl std::fmt::Display) -> String {
    format!("\"{address}\"")
}

#[test]
fn ready_means_listeners_and_store_are_open() {
    let (node, folder, manager) = (Node::start(good), Folder::new(), Manager::new());
    let database = folder.file("portcullis.db");
    let setup = Setup::before(node.address())
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("sidecar.base_url", "\"https://cards.example\"")
        .set("store.url", &quoted(format!("sqlite:{database}")));
    let edge = manager.of(setup).start();
    let ready = manager.hear();
    assert!(
        ready.lines().any(|line| line == "READY=1"),
        "the first notification: {ready}"
    );
    let status = value(&ready, "STATUS");
    for (name, address) in [
        ("gateway", edge.gateway()),
        ("sidecar", edge.sidecar()),
        ("admin", edge.admin()),
    ] {
        assert!(
            status.contains(&format!("{name} {address}")),
            "{name} is shown: {status}"
        );
    }
    assert!(
        std::path::Path::new(&database).exists(),
        "the store is there"
    );
    assert_eq!(edge.ask(&Request::post(QUESTION)).status, 200, "it serves");
}

#[test]
fn without_a_store_ready_is_not_sent() {
    let manager = Manager::new();
    let setup = Setup::before(Node::nowhere())
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("sidecar.base_url", "\"https://cards.example\"")
        .set("store.url", "\"sqlite:/nowhere/at/all/portcullis.db\"");
    let output = manager.of(setup).run("serve");
    assert_eq!(
        output.status.code(),
        Some(2),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    manager.is_silent();
}

#[test]
fn reloads_are_reported_and_counted() {
    let (node, manager) = (Node::start(good), Manager::new());
    let setup = manager.of(Setup::before(node.address()));
    let edge = setup.start();
    manager.hear_of("READY=1");
    let metric = |name: &str| {
        let response = edge.admin_get("/metrics");
        let text = response.text();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap()
            .trim()
            .to_owned();
        line.parse::<f64>().unwrap()
    };
    let outcomes = || {
        ["ok", "failed"].map(|outcome| {
            metric(&format!(
                "portcullis_config_reloads_total{{outcome=\"{outcome}\"}}"
            ))
        })
    };
    assert_eq!(
        metric("portcullis_config_last_reload_successful"),
        1.0,
        "the start read it"
    );
    let begin = metric("portcullis_config_last_reload_success_timestamp_seconds");
    assert!(begin > 1.6e9, "seconds since 1970: {begin}");

    edge.rewrite(&setup.clone().set("gateway.requests_per_minute", "7000"));
    edge.signal("HUP");
    let reloading = manager.hear_of("RELOADING=1");
    assert!(
        value(&reloading, "MONOTONIC_USEC").parse::<u64>().is_ok(),
        "{reloading}"
    );
    let ready = manager.hear_of("READY=1");
    assert!(
        value(&ready, "STATUS").contains("changed 1 key or file"),
        "the outcome: {ready}"
    );
    assert_eq!(outcomes(), [1.0, 0.0]);

    edge.rewrite(&setup.set("gateway.requests_per_minute", "\"many\""));
    edge.signal("HUP");
    manager.hear_of("RELOADING=1");
    let ready = manager.hear_of("READY=1");
    assert!(
        value(&ready, "STATUS").contains("FAILED"),
        "it serves on, and says so: {ready}"
    );
    assert_eq!(outcomes(), [1.0, 1.0]);
    assert_eq!(metric("portcullis_config_last_reload_successful"), 0.0);
    assert!(metric("portcullis_config_last_reload_success_timestamp_seconds") >= begin);
}

#[test]
fn a_reload_during_startup_follows_it() {
    let (node, manager, path) = (Node::start(good), Manager::new(), scratch_path("fifo"));
    assert!(
        Command::new("mkfifo")
            .arg(&path)
            .status()
            .unwrap()
            .success()
    );
    let text = Setup::before(node.address()).toml();
    let mut command = program();
    command
        .args(["serve", "--config"])
        .arg(&path)
        .stderr(Stdio::null());
    let mut edge = command
        .env("NOTIFY_SOCKET", manager.path())
        .spawn()
        .unwrap();
    // startup blocks until it has read the configuration
    let mut configuration = File::create(&path).unwrap();
    signal(edge.id(), "HUP");
    configuration
        .write_all(text.as_bytes())
        .expect("it is still there");
    drop(configuration);
    manager.hear_of("READY=1");
    manager.hear_of("RELOADING=1");
    std::fs::write(&path, text).unwrap();
    let ready = manager.hear_of("READY=1");
    assert!(
        value(&ready, "STATUS").contains("changed nothing"),
        "{ready}"
    );
    edge.kill().unwrap();
    edge.wait().unwrap();
    std::fs::remove_file(path).unwrap();
}

#[test]
fn a_stop_is_announced() {
    let (node, manager) = (Node::start(good), Manager::new());
    let mut edge = manager.of(Setup::before(node.address())).start();
    manager.hear_of("READY=1");
    edge.signal("TERM");
    manager.hear_of("STOPPING=1");
    assert_eq!(edge.wait().code(), Some(0), "a stop is no failure");
}

#[test]
fn the_watchdog_is_fed_when_it_is_ours() {
    let (node, manager) = (Node::start(good), Manager::new());
    let setup = manager
        .of(Setup::before(node.address()))
        .environment("WATCHDOG_USEC", "100000");
    let _edge = setup.start();
    for _ in 0..5 {
        manager.hear_of("WATCHDOG=1");
    }
    let other = Manager::new();
    let setup = other
        .of(Setup::before(node.address()))
        .environment("WATCHDOG_USEC", "1000");
    let mut edge = setup.environment("WATCHDOG_PID", "1").start();
    other.hear_of("READY=1");
    edge.signal("TERM");
    assert!(
        !other.hear().contains("WATCHDOG"),
        "it is meant for another process"
    );
    edge.wait();
}

#[test]
fn sockets_match_by_address_or_name() {
    let node = Node::start(good);
    let (socket, address) = listener();
    for (name, listen) in [
        ("portcullis.socket", address.to_string()),
        ("gateway", "127.0.0.1:1".to_owned()),
    ] {
        let setup = Setup::before(node.address()).set("gateway.listen", &quoted(listen));
        let edge = setup.socket(name, &socket).start();
        assert_eq!(
            edge.gateway(),
            address,
            "{name}: it listens where the socket is bound"
        );
        let line = edge.line("listening", |line| line["surface"] == "gateway");
        assert_eq!(
            line["holder"], "service manager",
            "{name}: whose it is is logged"
        );
        let response = edge.ask(&Request::post(QUESTION));
        assert_result(&response, "7", RESULT, name);
    }
}

#[test]
fn an_inherited_unix_socket_keeps_its_file() {
    let node = Node::start(good);
    let path = scratch_path("sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    let listen = quoted(format!("unix:{}", path.display()));
    let setup = Setup::before(node.address()).set("gateway.listen", &listen);
    let mut edge = setup.socket("web", &Arc::new(listener.into())).start();
    edge.line("listening", |line| line["holder"] == "service manager");
    let mut stream = UnixStream::connect(&path).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(&Request::post(QUESTION).with("Connection", "close").bytes())
        .unwrap();
    let mut bytes = Vec::new();
    stream.read_to_end(&mut bytes).unwrap();
    assert_result(
        &parse_whole(&bytes).unwrap(),
        "7",
        RESULT,
        "over a socket that was handed in",
    );
    let mode = std::fs::metadata(&path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o600, "the file belongs to the process that bound it");
    edge.signal("TERM");
    assert_eq!(edge.wait().code(), Some(0));
    assert!(
        path.exists(),
        "the file is still there for the next process"
    );
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn an_unmatched_socket_is_named_in_the_error() {
    let (socket, address) = listener();
    let (other, _) = listener();
    let datagram = Arc::new(std::net::UdpSocket::bind("127.0.0.1:0").unwrap().into());
    let file = Arc::new(std::fs::File::open("/dev/null").unwrap().into());
    let setup = Setup::before(Node::nowhere());
    let cases = [
        (
            "no such surface",
            setup.clone().socket("relay", &socket),
            "relay",
        ),
        (
            "another address",
            setup.clone().socket("web", &socket),
            &*address.to_string(),
        ),
        (
            "two for one",
            setup
                .clone()
                .socket("gateway", &other)
                .socket("gateway", &socket),
            "gateway",
        ),
        (
            "a datagram socket",
            setup.clone().socket("gateway", &datagram),
            "not a listening socket",
        ),
        (
            "no socket at all",
            setup.socket("gateway", &file),
            "not a listening socket",
        ),
    ];
    for (what, setup, named) in cases {
        let output = setup.serve_in_vain();
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{what}: {said}");
        assert!(
            said.contains("LISTEN_FDS") && said.contains(named),
            "{what}: {said}"
        );
    }
}

#[test]
fn a_public_admin_socket_needs_a_token() {
    let open = Arc::new(std::net::TcpListener::bind("0.0.0.0:0").unwrap().into());
    let output = Setup::before(Node::nowhere())
        .socket("admin", &open)
        .serve_in_vain();
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(
        said.contains("admin.token_file"),
        "it says what is missing: {said}"
    );
}

#[test]
fn sockets_of_another_process_are_left_alone() {
    let node = Node::start(good);
    // as left behind by a shell in between
    let setup = Setup::before(node.address()).environment("LISTEN_FDS", "2");
    let edge = setup.environment("LISTEN_PID", "1").start();
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        200,
        "it binds its own"
    );
}

#[test]
fn a_restart_under_a_held_socket_answers_everybody() {
    let latch = Latch::default();
    let hold = latch.clone();
    let node = Node::start(move |call| {
        let held = (row(call) == 1).then(|| Act::Hold(hold.clone()));
        held.into_iter().chain(echo(call)).collect()
    });
    let (socket, _) = listener();
    let setup = Setup::before(node.address())
        .set("server.drain_delay", "\"60s\"")
        .set("server.grace_period", "\"60s\"")
        .socket("gateway", &socket);
    let mut first = setup.start();
    let address = first.gateway();
    // an open event stream does not delay the stop
    let mut page = Client::connect(first.admin());
    page.send(operator::local("/events").bytes());
    assert_eq!(
        page.response_to_head().status,
        200,
        "the operator's page follows"
    );
    let mut in_flight = first.client();
    in_flight.send(ask_about(1, "\"held\"").bytes());
    node.wait_for_calls(1);
    let mut idle = first.client();
    let mut persistent = first.client();
    for client in [&mut idle, &mut persistent] {
        assert_eq!(
            client.ask(&ask_about(2, "\"a\"")).status,
            200,
            "a persistent connection"
        );
    }
    let next = ask_about(3, "\"b\"").bytes();
    persistent.send(&next[..20]);
    first.signal("TERM");
    first.line("the stop", |line| {
        line["message"]
            .as_str()
            .is_some_and(|text| text.contains("another process"))
    });
    persistent.send(&next[20..]);
    let answered = persistent.response();
    assert_eq!(answered.status, 200, "no 503: {}", answered.text());
    assert!(answered.announces_close(), "it was the connection's last");
    persistent.ends("the connection is closed in order");
    idle.ends("and one that brings nothing more is, too");
    // no process accepts it now: it waits for the next one
    let mut waiting = Client::connect(address);
    waiting.send(ask_about(4, "\"c\"").bytes());
    latch.open();
    assert_eq!(
        in_flight.response().status,
        200,
        "what was in flight is answered"
    );
    assert_eq!(
        first.wait().code(),
        Some(0),
        "a stop is no failure, and waits for no drain delay"
    );
    let _second = setup.start();
    assert_eq!(
        waiting.response().status,
        200,
        "who came in between is answered"
    );
}

#[test]
fn a_plain_stop_answers_503_on_unheld_sockets() {
    let (node, folder) = (Node::start(good), Folder::new());
    let (socket, _) = listener();
    let database = folder.file("portcullis.db");
    let setup = Setup::before(node.address())
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("sidecar.base_url", "\"https://cards.example\"")
        .set("store.url", &quoted(format!("sqlite:{database}")));
    let mut edge = setup.socket("gateway", &socket).start();
    let mut halfway = edge.client();
    assert_eq!(
        halfway.ask(&Request::post(QUESTION)).status,
        200,
        "its connection is accepted"
    );
    let head = Request::post(QUESTION).bytes();
    halfway.send(&head[..20]);
    edge.signal("TERM");
    edge.line("the stop", |line| {
        line["message"]
            .as_str()
            .is_some_and(|text| text.contains("still serving"))
    });
    halfway.send(&head[20..]);
    assert_error(
        &halfway.response(),
        "draining",
        "7",
        "the sidecar has no heir",
    );
    assert_eq!(edge.wait().code(), Some(0));
}

#[test]
fn credentials_with_an_acl_mask_are_accepted() {
    let folder = Folder::new();
    let setup = Setup::before(Node::nowhere())
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("sidecar.base_url", "\"https://cards.example\"")
        .set("sidecar.operator_token_file", "\"operator.token\"")
        .set(
            "store.url",
            &quoted(format!("sqlite:{}", folder.file("portcullis.db"))),
        );
    let path = folder.secret("operator.token", "0123456789abcdef0123456789abcdef");
    for (mode, credential, plain) in [(0o400, 0, 0), (0o440, 0, 1), (0o444, 1, 1), (0o460, 1, 1)] {
        std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let directory = folder.path().display().to_string();
        let output = setup
            .clone()
            .environment("CREDENTIALS_DIRECTORY", &directory)
            .run("check");
        let said = String::from_utf8_lossy(&output.stdout);
        assert_eq!(
            output.status.code(),
            Some(credential),
            "{mode:o}, a credential: {said}"
        );
        let output = setup
            .clone()
            .set("sidecar.operator_token_file", &quoted(&path))
            .run("check");
        assert_eq!(output.status.code(), Some(plain), "{mode:o}, a file");
    }
}

#[tokio::test]
async fn a_stuck_or_closed_runtime_does_not_respond() {
    let runtimes = Runtimes::default();
    runtimes.add(Handle::current());
    let mut other = tokio::runtime::Builder::new_multi_thread();
    let other = other
        .worker_threads(1)
        .enable_all()
        .build()
        .expect("threads can be started");
    runtimes.add(other.handle().clone());
    assert!(runtimes.respond().await, "both respond");

    let (release, held) = mpsc::channel::<()>();
    other.spawn(async move { held.recv() });
    let response = runtimes.respond();
    tokio::pin!(response);
    let waited = tokio::time::timeout(Duration::from_millis(100), &mut response).await;
    assert!(waited.is_err(), "one is stuck");
    release.send(()).expect("it waits");
    assert!(response.await, "both respond again");

    other.shutdown_background();
    assert!(!runtimes.respond().await, "one is shut down");
}
