//! `portcullis probe`, as the health check of a container runs it.

use std::process::Output;

use crate::support::edge::{Edge, Setup, program};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::script::good;
use crate::support::secure::{Pair, secured};
use crate::support::sidecar::upstream::{Answer, Upstream};

fn probe(arguments: &[&str]) -> Output {
    program()
        .arg("probe")
        .args(arguments)
        .output()
        .expect("the program can be started")
}

fn complaint(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).expect("what is printed is text")
}

#[test]
fn a_probe_of_a_running_edge_succeeds() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for url in [
        format!("http://{}/livez", edge.admin()),
        format!("http://{}/healthz", edge.gateway()),
        format!("http://localhost:{}/healthz", edge.gateway().port()),
    ] {
        let output = probe(&[&url]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{url}: {}",
            complaint(&output)
        );
        assert!(
            output.stdout.is_empty() && output.stderr.is_empty(),
            "{url}: no output"
        );
    }
    let missing = probe(&[&format!("http://{}/nothing", edge.admin())]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(
        complaint(&missing).ends_with("/nothing: status 404\n"),
        "{}",
        complaint(&missing)
    );
}

#[test]
fn any_status_of_2xx_is_success() {
    for (status, code) in [
        ("204 No Content", 0),
        ("299 Odd", 0),
        // if it were followed, another server would be probed
        ("302 Found\r\nLocation: /other", 1),
        ("401 Unauthorized", 1),
        ("503 Service Unavailable", 1),
    ] {
        let target = Upstream::start(move |path| match path {
            "/probed" => Answer::Is(status, String::new()),
            _ => Answer::Is("200 OK", String::new()),
        });
        let output = probe(&[&target.url("/probed")]);
        assert_eq!(
            output.status.code(),
            Some(code),
            "{status}: {}",
            complaint(&output)
        );
        let named = format!("/probed: status {}\n", &status[..3]);
        assert_eq!(
            complaint(&output).ends_with(&named),
            code == 1,
            "{}",
            complaint(&output)
        );
        assert_eq!(
            (target.requests("/probed"), target.requests("/other")),
            (1, 0),
            "{status}"
        );
    }
}

#[test]
fn a_probe_without_a_response_names_the_cause() {
    let silent = Upstream::start(|_| Answer::Hang);
    for (url, expected) in [
        (
            format!("http://{}/livez", Node::nowhere()),
            "connection refused",
        ),
        (
            "http://nowhere.invalid/livez".to_owned(),
            "the name has no address",
        ),
        (silent.url("/livez"), "no answer in time"),
        // it has no TLS
        (silent.url("/livez").replace("http:", "https:"), ""),
    ] {
        let output = probe(&["--timeout", "2s", &url]);
        assert_eq!(output.status.code(), Some(1), "{url}");
        let line = format!("portcullis probe: {url}: {expected}");
        assert!(
            complaint(&output).starts_with(&line),
            "{}",
            complaint(&output)
        );
    }
}

#[test]
fn a_probe_trusts_a_private_authority_that_is_named() {
    let (node, folder) = (Node::start(good), Folder::new());
    let pair = Pair::with("localhost", |_| ());
    pair.write(&folder);
    let edge = secured(Setup::before(node.address()), "admin", &folder).start();
    let (authority, port) = (folder.file("edge.pem"), edge.admin().port());
    let url = format!("https://localhost:{port}/readyz");
    let trusted = probe(&["--ca-file", &authority, &url]);
    assert_eq!(trusted.status.code(), Some(0), "{}", complaint(&trusted));
    for (url, options, expected) in [
        (
            url.clone(),
            &[][..],
            "certificate: unknown issuer; name its authority's",
        ),
        (
            url.replace("localhost", "127.0.0.1"),
            &["--ca-file", &authority],
            "certificate: not for this host name; use a name that it lists",
        ),
        (
            url.replace("https:", "http:"),
            &[],
            "does it take https://?",
        ),
    ] {
        let output = probe(&[options, &[&*url]].concat());
        assert_eq!(output.status.code(), Some(1), "{url}");
        assert!(
            complaint(&output).contains(expected),
            "{}",
            complaint(&output)
        );
    }
    let missing = probe(&["--ca-file", "no/such/file.pem", &url]);
    assert_eq!(missing.status.code(), Some(2), "{}", complaint(&missing));
    assert!(
        complaint(&missing).contains("no/such/file.pem"),
        "{}",
        complaint(&missing)
    );
}

#[test]
fn a_probe_ignores_the_proxy_of_its_environment() {
    let (node, proxy) = (Node::start(good), Upstream::start(|_| Answer::Hang));
    let edge = Edge::start(&node);
    let mut command = program();
    command.env("http_proxy", proxy.url(""));
    command.env("ALL_PROXY", proxy.url(""));
    let output = command
        .args(["probe", &format!("http://{}/livez", edge.admin())])
        .output();
    // the proxy would never respond
    assert_eq!(
        output.expect("the program can be started").status.code(),
        Some(0)
    );
}

#[test]
fn an_unusable_url_is_a_mistake_of_usage() {
    for url in [
        "127.0.0.1:8083",
        "/livez",
        "ftp://127.0.0.1/",
        "http://",
        "http://a:b@127.0.0.1/",
        "",
    ] {
        let output = probe(&[url]);
        assert_eq!(
            output.status.code(),
            Some(2),
            "{url}: {}",
            complaint(&output)
        );
        assert!(
            complaint(&output).contains("http://HOST:PORT/PATH"),
            "{}",
            complaint(&output)
        );
    }
    let output = probe(&["--timeout", "3", "http://127.0.0.1/"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        complaint(&output).contains("such as 3s"),
        "{}",
        complaint(&output)
    );
}
