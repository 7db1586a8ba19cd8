//! Startup: valid and invalid files, ports in use, other listeners.

use std::fs::Permissions;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Output;
use std::time::Instant;

use crate::support::check::{assert_common_with_quota, assert_result};
use crate::support::client::PATIENCE;
use crate::support::edge::{Setup, scratch_path};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request};
use crate::support::response::parse_whole;
use crate::support::script::{RESULT, good};

/// The process's output, stdout and stderr.
fn words(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// A file with three mistakes, and their key paths.
fn three_mistakes() -> (Setup, [&'static str; 3]) {
    let setup = Setup::before(Node::nowhere())
        .set("node.timeout", "\"9s\"")
        .set("gateway.requests_per_minuet", "180")
        .set("gateway.methods", "[\"starknet_chainId\", \"devnet_mint\"]");
    (
        setup,
        [
            "node.timeout",
            "gateway.requests_per_minuet",
            "gateway.methods",
        ],
    )
}

#[test]
fn check_passes_a_right_file() {
    let output = Setup::before(Node::nowhere()).run("check");
    assert_eq!(output.status.code(), Some(0), "{}", words(&output));
}

#[test]
fn check_refuses_a_store_that_serve_refuses() {
    let folder = Folder::new();
    std::fs::create_dir(folder.path().join("folder")).unwrap();
    let file = |name: &str| format!("sqlite:{}", folder.path().join(name).display());
    let sidecar = Setup::before(Node::nowhere())
        .set("sidecar.base_url", "\"http://127.0.0.1:1\"")
        .set("sidecar.listen", "\"127.0.0.1:0\"");
    let verified = sidecar.clone().environment("PGSSLMODE", "verify-full");
    for (setup, url, expected) in [
        (
            &sidecar,
            "postgres://a@127.0.0.1:1/a?sslmode=require".into(),
            "set store.tls",
        ),
        (
            &verified,
            "postgres://a@127.0.0.1:1/a".into(),
            "set store.tls",
        ),
        (
            &sidecar,
            "postgres://a@127.0.0.1:many/a".into(),
            "store.url: malformed",
        ),
        (
            &sidecar,
            file("missing/store.db"),
            "No such file or directory",
        ),
        (&sidecar, file("folder"), "Is a directory"),
        (
            &sidecar,
            "sqlite::memory:".to_owned(),
            "no file name after sqlite:",
        ),
    ] {
        let setup = setup.clone().set("store.url", &format!("{url:?}"));
        for (subcommand, code) in [("check", 1), ("serve", 2)] {
            let output = setup.run(subcommand);
            let found = words(&output);
            assert_eq!(
                output.status.code(),
                Some(code),
                "{subcommand}, {url}: {found}"
            );
            assert!(
                found.contains("cannot open the store: "),
                "{subcommand}: {found}"
            );
            let is_named = found.contains(expected) || subcommand == "serve";
            assert!(is_named, "{expected} in {found}");
        }
    }
}

#[test]
fn a_low_limit_of_open_files_is_logged() {
    let path = scratch_path("limited");
    for (limit, is_raised) in [("ulimit -n 200", false), ("ulimit -Sn 200", true)] {
        let program = env!("CARGO_BIN_EXE_portcullis");
        std::fs::write(
            &path,
            format!("#!/bin/sh\n{limit}\nexec {program} \"$@\"\n"),
        )
        .unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
        let setup = Setup::before(Node::nowhere())
            .program(&path)
            .set("gateway.connections.max", "400")
            .set("node.max_connections", "50");
        let edge = setup.start();
        let metrics = edge.admin_get("/metrics");
        let metrics = metrics.text();
        assert_eq!(
            !metrics.contains("process_max_fds 200\n"),
            is_raised,
            "{metrics}"
        );
        let warning = "at most 200 open files, but all connections take 962";
        let is_logged = edge.lines().iter().any(|line| line.contains(warning));
        assert_eq!(is_logged, !is_raised, "{:?}", edge.lines());
    }
    std::fs::remove_file(path).unwrap();
}

/// The program, under a limit of open files.
fn limited(path: &Path, limit: u64) -> Setup {
    let program = env!("CARGO_BIN_EXE_portcullis");
    let script = format!("#!/bin/sh\nulimit -n {limit}\nexec {program} \"$@\"\n");
    std::fs::write(path, script).unwrap();
    std::fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    Setup::before(Node::nowhere())
        .program(path)
        .set("gateway.connections.max_per_client", "500")
}

#[test]
fn a_limit_without_room_for_connections_is_refused() {
    let folder = Folder::new();
    let path = folder.path().join("limited");
    let setup = limited(&path, 40)
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("sidecar.base_url", "\"http://127.0.0.1:1\"")
        .set(
            "store.url",
            &format!("\"sqlite:{}\"", folder.file("store.db")),
        );
    let output = setup.run("serve");
    let found = words(&output);
    assert_eq!(output.status.code(), Some(2), "{found}");
    let needed = found
        .split("`ulimit -n` to at least ")
        .nth(1)
        .expect("it names the limit");
    let needed: String = needed.chars().take_while(char::is_ascii_digit).collect();
    let needed: u64 = needed.parse().unwrap();
    limited(&path, needed);
    let edge = setup.start();
    for _ in 0..2 {
        // each of them is answered or closed
        let mut burst: Vec<_> = (0..150).map(|_| edge.client()).collect();
        for client in &mut burst {
            client.send(Request::post(QUESTION).bytes());
        }
        // each makes room for the next one
        let served = burst
            .into_iter()
            .filter_map(|mut client| client.try_response().ok());
        assert!(
            served.filter(|response| response.status == 502).count() >= 5,
            "some are served"
        );
        let deadline = Instant::now() + PATIENCE;
        let recovers = || {
            let mut client = edge.client();
            client.send(Request::post(QUESTION).bytes());
            client
                .try_response()
                .is_ok_and(|response| response.status == 502)
        };
        while !recovers() {
            assert!(Instant::now() < deadline, "{needed}: it does not recover");
        }
        assert_eq!(
            edge.admin_get("/livez").status,
            200,
            "the operator has a connection"
        );
    }
}

#[test]
fn check_names_three_mistakes_at_once() {
    let (setup, paths) = three_mistakes();
    let output = setup.run("check");
    assert_eq!(
        output.status.code(),
        Some(1),
        "a check that failed: {}",
        words(&output)
    );
    for path in paths {
        assert!(
            words(&output).contains(path),
            "{path} is named: {}",
            words(&output)
        );
    }
    assert!(
        words(&output).contains("requests_per_minute"),
        "did you mean: {}",
        words(&output)
    );
}

#[test]
fn serve_reports_every_mistake_at_once() {
    let (setup, paths) = three_mistakes();
    let output = setup.run("serve");
    assert_eq!(
        output.status.code(),
        Some(2),
        "a configuration error: {}",
        words(&output)
    );
    for path in paths {
        assert!(
            words(&output).contains(path),
            "{path} is named: {}",
            words(&output)
        );
    }
}

#[test]
fn a_file_that_is_no_configuration_is_refused() {
    let setup = Setup::before(Node::nowhere());
    let cases = [
        ("no node", setup.clone().unset("node.url"), "node"),
        (
            "a node over wss",
            setup.clone().set("node.url", "\"wss://a.test/rpc\""),
            "node.url",
        ),
        ("no TOML", setup.clone().set("node.url", "= ="), "TOML"),
        (
            "a word for a number",
            { setup.clone().set("gateway.requests_per_minute", "\"many\"") },
            "gateway.requests_per_minute",
        ),
        (
            "a duration without a unit",
            { setup.clone().set("gateway.connections.body_timeout", "10") },
            "gateway.connections.body_timeout",
        ),
        (
            "an unknown section",
            setup.clone().set("gatewya.listen", "\"x\""),
            "gatewya",
        ),
        (
            "no surface",
            setup
                .clone()
                .unset("gateway.listen")
                .unset("admin.listen")
                .unset("gateway.requests_per_minute"),
            "gateway",
        ),
    ];
    for (what, setup, named) in cases {
        for (subcommand, code) in [("check", 1), ("serve", 2)] {
            let output = setup.run(subcommand);
            assert_eq!(
                output.status.code(),
                Some(code),
                "{what}: {}",
                words(&output)
            );
            assert!(words(&output).contains(named), "{what}: {}", words(&output));
        }
    }
}

#[test]
fn a_port_that_is_taken_is_reported() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    for key in ["gateway.listen", "admin.listen"] {
        let setup = Setup::before(Node::nowhere()).set(key, &format!("\"{address}\""));
        let output = setup.run("serve");
        assert!(
            ![Some(0), None].contains(&output.status.code()),
            "{key}: {}",
            words(&output)
        );
        assert!(
            words(&output).contains(&address),
            "{key}: which port? {}",
            words(&output)
        );
    }
}

#[test]
fn the_environment_overrides_the_file() {
    let node = Node::start(good);
    let edge = Setup::before(Node::nowhere())
        .environment("PORTCULLIS__GATEWAY__REQUESTS_PER_MINUTE", "77")
        .environment(
            "PORTCULLIS__NODE__URL",
            &format!("http://{}/rpc", node.address()),
        )
        .start();
    let response = edge.ask(&Request::post(QUESTION));
    assert_common_with_quota(&response, 77, "the quota of the environment");
    assert_eq!(
        response.status,
        200,
        "the node of the environment answers: {}",
        response.text()
    );
}

#[test]
fn a_mistake_in_the_environment_is_a_mistake() {
    for name in [
        "PORTCULLIS__GATEWAY__REQUESTS_PER_MINUTE",
        "PORTCULLIS__GATEWAY__NO_SUCH_KEY",
    ] {
        let output = Setup::before(Node::nowhere())
            .environment(name, "many")
            .run("serve");
        assert_eq!(output.status.code(), Some(2), "{name}: {}", words(&output));
        let said = words(&output).to_lowercase();
        let (full, key) = (
            name.to_lowercase(),
            name.to_lowercase()[12..].replace("__", "."),
        );
        assert!(
            said.contains(&full) || said.contains(&key),
            "{name} is named: {said}"
        );
    }
}

#[test]
fn a_surface_that_is_left_out_is_off() {
    let node = Node::start(good);
    let only_gateway = Setup::before(node.address()).unset("admin.listen").start();
    let response = only_gateway.ask(&Request::post(QUESTION));
    assert_result(&response, "7", RESULT, "a gateway without an admin surface");
    let only_admin = Setup::before(node.address())
        .unset("gateway.listen")
        .unset("gateway.requests_per_minute")
        .start();
    assert_eq!(
        only_admin.admin_get("/livez").status,
        200,
        "an admin surface without a gateway"
    );
}

#[test]
fn a_unix_socket_serves_like_a_port() {
    let node = Node::start(good);
    let path = scratch_path("sock");
    let listen = format!("\"unix:{}\"", path.display());
    let edge = Setup::before(node.address())
        .set("gateway.listen", &listen)
        .start();
    let line = edge.line("the socket", |line| line["surface"] == "gateway");
    assert_eq!(
        line["address"],
        format!("unix:{}", path.display()),
        "where it listens"
    );
    for _ in 0..2 {
        let mut stream = UnixStream::connect(&path).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let request = Request::post(QUESTION).with("Connection", "close");
        stream.write_all(&request.bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let response = parse_whole(&bytes).unwrap();
        assert_result(&response, "7", RESULT, "an answer over a Unix socket");
    }
    drop(edge);
    let again = Setup::before(node.address())
        .set("gateway.listen", &listen)
        .start();
    assert!(
        UnixStream::connect(&path).is_ok(),
        "a socket that was left behind is no obstacle"
    );
    drop(again);
    std::fs::remove_file(&path).unwrap();
}
