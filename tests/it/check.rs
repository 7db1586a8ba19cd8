//! `check` finds what `serve` would refuse, at once: values, files, addresses, the store.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixListener;
use std::process::Output;

use serde_json::Value;

use crate::support::edge::Setup;
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::relay::chain::{error, method};
use crate::support::relay::stage;
use crate::support::script::{good, result, send};

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&[output.stdout.as_slice(), &output.stderr].concat()).into_owned()
}

/// The report as JSON, and the exit code.
fn report(setup: &Setup, more: &[&str]) -> (Value, Option<i32>) {
    let output = setup.run_with("check", &[&["--format", "json"], more].concat(), "");
    let report = serde_json::from_slice(&output.stdout);
    (
        report.unwrap_or_else(|error| panic!("{error}: {}", words(&output))),
        output.status.code(),
    )
}

/// The findings about a subject.
fn about<'r>(report: &'r Value, subject: &str) -> Vec<&'r Value> {
    let checks = report["checks"].as_array().expect("a report has findings");
    checks
        .iter()
        .filter(|finding| finding["subject"] == subject)
        .collect()
}

fn sidecar(folder: &Folder) -> Setup {
    let url = format!("\"sqlite:{}\"", folder.file("portcullis.db"));
    Setup::before(Node::nowhere())
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("sidecar.base_url", "\"http://127.0.0.1:1\"")
        .set("store.url", &url)
}

#[test]
fn a_wrong_value_hides_no_missing_file() {
    let folder = Folder::new();
    let gone = |name: &str| format!("{:?}", folder.file(name));
    let setup = stage::setup(Node::nowhere(), &folder, &[])
        .set("gateway.listen", "\"127.0.0.1:0\"")
        .set("gateway.requests_per_minuet", "180")
        .set("node.timeout", "\"9s\"")
        .set(
            "relay.token_files",
            &format!("[{}, {}]", gone("a.token"), gone("b.token")),
        )
        .set("relay.keys.owner_file", &gone("c.key"))
        .set("relay.keys.verifier_file", &gone("d.key"))
        .set("admin.token_file", &gone("e.token"))
        .set("gateway.tls.certificate_file", &gone("f.pem"))
        .set("gateway.tls.key_file", &gone("g.key"));
    let (found, code) = report(&setup, &[]);
    assert_eq!(code, Some(1), "{found:#}");
    for (key, count, named) in [
        ("gateway.requests_per_minuet", 1, "did you mean"),
        ("node.timeout", 1, "from 100ms to 8s"),
        ("relay.token_files", 2, ".token: No such file"),
        ("relay.keys.owner_file", 1, "c.key: No such file"),
        ("relay.keys.verifier_file", 1, "d.key: No such file"),
        ("admin.token_file", 1, "e.token: No such file"),
        ("gateway.tls.certificate_file", 1, "f.pem: No such file"),
        ("gateway.tls.key_file", 1, "g.key: No such file"),
    ] {
        let about = about(&found, key);
        assert_eq!(about.len(), count, "{key}: {found:#}");
        for finding in about {
            assert_eq!(finding["status"], "failed", "{found:#}");
            assert!(
                finding["message"].as_str().unwrap().contains(named),
                "{named}: {found:#}"
            );
        }
    }
    assert_eq!(found["summary"]["failed"], 9, "{found:#}");
    let right = setup
        .unset("gateway.requests_per_minuet")
        .unset("node.timeout");
    let output = right.run("serve");
    for key in [
        "relay.token_files",
        "relay.keys.owner_file",
        "admin.token_file",
    ] {
        assert!(
            words(&output).contains(key),
            "serve names {key}, too: {}",
            words(&output)
        );
    }
}

#[test]
fn a_key_that_is_missing_is_not_a_missing_file() {
    let setup = Setup::before(Node::nowhere()).set("gateway.tls.http2", "true");
    let (found, _) = report(&setup, &[]);
    for key in ["gateway.tls.certificate_file", "gateway.tls.key_file"] {
        assert_eq!(about(&found, key).len(), 1, "{found:#}");
    }
}

#[test]
fn a_relative_path_says_where_it_was_searched() {
    let folder = Folder::new();
    let setup = Setup::before(Node::nowhere()).set("admin.token_file", "\"no.token\"");
    let here = std::env::current_dir().unwrap().display().to_string();
    let credentials = folder.path().display().to_string();
    let said = words(&setup.run("check"));
    assert!(
        said.contains(&format!("searched in the working directory ({here})")),
        "{said}"
    );
    let said = words(
        &setup
            .environment("CREDENTIALS_DIRECTORY", &credentials)
            .run("check"),
    );
    assert!(
        said.contains(&credentials) && said.contains(&here),
        "{said}"
    );
}

#[test]
fn an_address_in_use_names_key_and_holder() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let folder = Folder::new();
    let path = folder.file("taken.sock");
    let _held = UnixListener::bind(&path).unwrap();
    let tcp = taken.local_addr().unwrap().to_string();
    // by its program: what another test is about to start has the sockets of this process, too
    let program = format!(" ({}", std::env::current_exe().unwrap().display());
    for listen in [tcp, format!("unix:{path}")] {
        for (section, variable) in [("gateway", "GATEWAY"), ("admin", "ADMIN")] {
            let key = format!("{section}.listen");
            let setup = Setup::before(Node::nowhere()).set(&key, &format!("{listen:?}"));
            for (command, code) in [("check", 1), ("serve", 2)] {
                let output = setup.run(command);
                let said = words(&output);
                assert_eq!(output.status.code(), Some(code), "{command}: {said}");
                let holder = format!("{listen} is in use by process ");
                let variable = format!("PORTCULLIS__{variable}__LISTEN");
                for named in [&key, &holder, &program, &variable] {
                    assert!(
                        said.contains(named.as_str()),
                        "{command}: {named} in {said}"
                    );
                }
            }
        }
    }
}

#[test]
fn the_running_service_is_no_mistake() {
    let (node, folder) = (Node::start(good), Folder::new());
    let setup = sidecar(&folder).set("node.url", &format!("\"http://{}/rpc\"", node.address()));
    let edge = setup.start();
    let listen = format!("\"{}\"", edge.gateway());
    let (found, code) = report(&setup.set("gateway.listen", &listen), &[]);
    assert_eq!(code, Some(0), "a check before a reload: {found:#}");
    for (key, named) in [
        ("gateway.listen", "is in use by process"),
        ("store.url", "holds"),
    ] {
        assert_eq!(about(&found, key)[0]["status"], "note", "{found:#}");
        let message = about(&found, key)[0]["message"].as_str().unwrap();
        assert!(message.contains(named), "{message}");
    }
}

#[test]
fn a_check_leaves_everything_as_it_was() {
    let folder = Folder::new();
    let socket = folder.file("edge.sock");
    let setup = sidecar(&folder).set("gateway.listen", &format!("\"unix:{socket}\""));
    let (found, code) = report(&setup, &[]);
    assert_eq!(code, Some(0), "{found:#}");
    assert!(
        about(&found, "store.url")[0]["message"]
            .to_string()
            .contains("no tables yet")
    );
    let left: Vec<_> = std::fs::read_dir(folder.path())
        .unwrap()
        .flatten()
        .collect();
    assert!(left.is_empty(), "{left:?}");
    drop(setup.start());
    let (found, code) = report(&setup, &[]);
    assert_eq!(code, Some(0), "{found:#}");
    assert_eq!(about(&found, "store.url")[0]["status"], "ok", "{found:#}");
}

#[test]
fn a_store_that_is_none_is_named() {
    let folder = Folder::new();
    let file = folder.secret("portcullis.db", &"no database ".repeat(500));
    for command in ["check", "serve"] {
        let said = words(&sidecar(&folder).run(command));
        let named = said.contains("store.url") && said.contains(&format!("sqlite:{file}"));
        assert!(
            named && said.contains("not a database"),
            "{command}: {said}"
        );
    }
}

/// Asserts that a start serves without the store, and that the log says why.
fn assert_starts_without(setup: &Setup, why: &[&str]) {
    setup.start().line("the start without the store", |line| {
        let message = line["message"].as_str().unwrap_or_default();
        let is_whole = why.iter().all(|named| message.contains(named));
        message.starts_with("starting without the store: ") && is_whole
    });
}

#[test]
fn a_database_that_is_down_fails_the_check() {
    let folder = Folder::new();
    let url = "postgres://a@127.0.0.1:1/a";
    let setup = sidecar(&folder).set("store.url", &format!("{url:?}"));
    let output = setup.run("check");
    let said = words(&output);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let names = ["store.url", url, "onnection refused"];
    for named in names {
        assert!(said.contains(named), "{named} in {said}");
    }
    assert_starts_without(&setup, &names);
}

#[test]
fn a_live_check_ends_with_a_summary() {
    let node = Node::start(|call| match &*method(call) {
        "starknet_specVersion" => send(result(call, "\"0.10.2\"")),
        _ => good(call),
    });
    let setup = Setup::before(node.address());
    let text = words(&setup.run_with("check", &["--live"], ""));
    let last = text.lines().last().unwrap_or_default();
    assert!(last.ends_with(": 7 ok, 0 failed, 0 notes"), "{text}");
    assert!(!text.contains('\u{1b}'), "no colours for a file: {text:?}");
    let (found, code) = report(&setup, &["--live"]);
    assert_eq!(
        (found["ok"].as_bool(), code),
        (Some(true), Some(0)),
        "{found:#}"
    );
    assert_eq!(found["live"], true);
    let down = Setup::before(Node::nowhere());
    let (found, code) = report(&down, &["--live"]);
    assert_eq!(
        (found["ok"].as_bool(), code),
        (Some(false), Some(1)),
        "{found:#}"
    );
}

#[test]
fn a_node_of_another_version_fails_the_check() {
    let node = Node::start(
        |call| match (&*method(call), call.head.contains("/v0_10 ")) {
            ("starknet_specVersion", true) => send(result(call, "\"0.10.1\"")),
            ("starknet_specVersion", false) => send(result(call, "\"0.9.0\"")),
            _ => good(call),
        },
    );
    for (path, remedy) in [
        ("/rpc/v0_9", "/rpc/v0_10 serves 0.10.1: set it in node.url"),
        ("/rpc", "/rpc/v0_10 serves 0.10.1: set it in node.url"),
        ("/v0_9/api", "/v0_10/api, or name a URL that serves it"),
        ("/public", "name a URL that serves it in node.url"),
    ] {
        let url = format!("\"http://{}{path}\"", node.address());
        let (found, code) = report(
            &Setup::before(node.address()).set("node.url", &url),
            &["--live"],
        );
        assert_eq!(code, Some(1), "{path}: {found:#}");
        assert_eq!(found["summary"]["failed"], 1, "{path}: {found:#}");
        let text = found.to_string();
        assert!(
            text.contains("0.9.0") && text.contains(remedy),
            "{path}: {found:#}"
        );
    }
}

#[test]
fn a_method_that_the_node_lacks_is_named() {
    let node = Node::start(|call| match &*method(call) {
        "starknet_specVersion" => send(result(call, "\"0.10.2\"")),
        "starknet_getTransactionStatus" => error(call, -32601),
        "starknet_getClass" => error(call, -32602),
        _ => good(call),
    });
    let (found, code) = report(&Setup::before(node.address()), &["--live"]);
    assert_eq!(code, Some(1), "{found:#}");
    assert_eq!(found["summary"]["failed"], 1, "{found:#}");
    let text = found.to_string();
    let lacks = "starknet_getTransactionStatus: the node does not have this method";
    assert!(text.contains(lacks), "{found:#}");
}

#[test]
fn folders_that_others_can_write_are_named() {
    let folder = Folder::new();
    let token = folder.secret("admin.token", &"t".repeat(32));
    let acme = folder.path().join("acme");
    let link = Folder::new();
    let linked = link.file("admin.token");
    std::os::unix::fs::symlink(&token, &linked).unwrap();
    let setup = Setup::before(Node::nowhere())
        .set("gateway.tls.domains", "[\"edge.test\"]")
        .set("tls.acme.terms_accepted", "true")
        .set("tls.acme.directory", "\"https://127.0.0.1:2/dir\"")
        .set(
            "tls.acme.folder",
            &format!("{:?}", acme.display().to_string()),
        );
    let judge = |mode: u32, token: &str| {
        for path in [folder.path(), &acme] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(mode)).unwrap();
        }
        let setup = setup.clone().set("admin.token_file", &format!("{token:?}"));
        let (found, _) = report(&setup, &[]);
        let status_of = |subject: &str, text: &str| {
            let about = about(&found, subject);
            let about = about
                .iter()
                .find(|one| one["message"].to_string().contains(text));
            about.and_then(|one| one["status"].as_str().map(str::to_owned))
        };
        let token = status_of("admin.token_file", "others can write to");
        [token, status_of("tls.acme.folder", "others can write to")]
    };
    std::fs::create_dir(&acme).unwrap();
    for (mode, path, expected) in [
        (0o755, &token, [None, None]),
        (0o777, &token, [Some("note"), Some("failed")]),
        (0o777, &linked, [Some("note"), Some("failed")]),
        // nobody can replace a file of another user, but ACME's are new each time
        (0o1777, &token, [None, Some("failed")]),
    ] {
        let expected = expected.map(|status| status.map(str::to_owned));
        assert_eq!(judge(mode, path), expected, "{mode:o} {path}");
    }
}
