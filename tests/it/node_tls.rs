//! `https://` URLs of the node, and the header that a hosted node knows its clients by.

use std::net::SocketAddr;

use rcgen::{DnType, date_time_ymd};
use serde_json::Value;

use crate::support::check::{assert_error, assert_result};
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request};
use crate::support::script::{RESULT, good};
use crate::support::secure::{Pair, secured_node};

const HOST: &str = "localhost";
const KEY: &str = "hunter2-hunter2-hunter2";

/// A gateway in front of this URL, which trusts the certificate that is in the folder.
fn before(url: &str, folder: &Folder, pair: &Pair) -> Setup {
    let ca = folder.secret("ca.pem", &pair.certificate);
    Setup::before(Node::nowhere())
        .set("node.url", &format!("\"{url}\""))
        .set("node.ca_file", &format!("\"{ca}\""))
}

fn url(host: &str, address: SocketAddr) -> String {
    format!("https://{host}:{}/rpc", address.port())
}

/// Asks until the log says why the URL fails.
fn failure(edge: &Edge) -> Value {
    for _ in 0..3 {
        assert_error(
            &edge.ask(&Request::post(QUESTION)),
            "upstream_unreachable",
            "7",
            "TLS",
        );
    }
    edge.line("why it fails", |line| line["message"] == "node URL failed")
}

#[test]
fn a_node_behind_tls_answers() {
    let (node, folder, pair) = (Node::start(good), Folder::new(), Pair::with(HOST, |_| {}));
    let address = secured_node(node.address(), &pair);
    let edge = before(&url(HOST, address), &folder, &pair).start();
    let mut client = edge.client();
    for _ in 0..5 {
        assert_result(
            &client.ask(&Request::post(QUESTION)),
            "7",
            RESULT,
            "over TLS",
        );
    }
    let calls = node.calls();
    assert_eq!(calls.len(), 5);
    let host = format!("Host: localhost:{}\r\n", address.port());
    assert!(
        calls.iter().all(|call| call.head.contains(&host)),
        "{}",
        calls[0].head
    );
    let connections = calls.iter().map(|call| call.connection).max();
    assert_eq!(connections, Some(1), "the connection is pooled");
}

#[test]
fn the_system_s_roots_are_the_default() {
    let (node, folder, pair) = (Node::start(good), Folder::new(), Pair::with(HOST, |_| {}));
    let address = secured_node(node.address(), &pair);
    let setup = before(&url(HOST, address), &folder, &pair).unset("node.ca_file");
    let trusting = setup
        .clone()
        .environment("SSL_CERT_FILE", &folder.file("ca.pem"))
        .start();
    assert_result(
        &trusting.ask(&Request::post(QUESTION)),
        "7",
        RESULT,
        "the system trusts it",
    );
    let other = Pair::with(HOST, |params| {
        params
            .distinguished_name
            .push(DnType::CommonName, "somebody else");
    });
    folder.secret("other.pem", &other.certificate);
    let edge = setup
        .environment("SSL_CERT_FILE", &folder.file("other.pem"))
        .start();
    assert_eq!(
        failure(&edge)["cause"],
        "certificate of the node: unknown issuer"
    );
}

#[test]
fn a_certificate_that_proves_nothing_is_refused() {
    let right = Pair::with(HOST, |_| {});
    let expired = Pair::with(HOST, |params| params.not_after = date_time_ymd(1999, 1, 1));
    let early = Pair::with(HOST, |params| params.not_before = date_time_ymd(4000, 1, 1));
    let other = Pair::with(HOST, |params| {
        params
            .distinguished_name
            .push(DnType::CommonName, "somebody else");
    });
    for (presented, trusted, host, cause) in [
        (
            &right,
            &other,
            HOST,
            "certificate of the node: unknown issuer",
        ),
        (
            &right,
            &right,
            "127.0.0.1",
            "certificate of the node: not for this host name",
        ),
        (&expired, &expired, HOST, "certificate of the node: expired"),
        (
            &early,
            &early,
            HOST,
            "certificate of the node: not valid yet",
        ),
    ] {
        let (node, folder) = (Node::start(good), Folder::new());
        let address = secured_node(node.address(), presented);
        let edge = before(&url(host, address), &folder, trusted).start();
        let line = failure(&edge);
        assert_eq!(line["cause"], cause);
        assert_eq!(line["subject"], url(host, address));
        assert!(node.calls().is_empty(), "{cause}: nothing reaches it");
    }
}

#[test]
fn a_node_without_tls_is_named_so() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            use std::io::{Read as _, Write as _};
            let Ok(mut stream) = stream else { return };
            let mut hello = [0; 64];
            let _hello = stream.read(&mut hello);
            let _refusal = stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n");
        }
    });
    let (folder, pair) = (Folder::new(), Pair::with(HOST, |_| {}));
    let edge = before(&url(HOST, address), &folder, &pair).start();
    let cause = failure(&edge)["cause"].clone();
    assert_eq!(
        cause,
        "TLS: the node speaks something else, perhaps plain HTTP"
    );
}

#[test]
fn a_header_reaches_the_node_and_no_log() {
    let (node, folder) = (Node::start(good), Folder::new());
    let file = folder.secret("node.header", &format!("X-Api-Key:  {KEY} \n"));
    let edge = Setup::before(node.address())
        .set("node.header_file", &format!("\"{file}\""))
        .set("log.level", "\"debug\"")
        .start();
    let mut client = edge.client();
    let mut ask = || {
        assert_result(
            &client.ask(&Request::post(QUESTION)),
            "7",
            RESULT,
            "it is sent",
        );
        node.calls().last().expect("it was queried").headers()
    };
    let header = |value: &str| ("x-api-key".to_owned(), value.to_owned());
    assert!(ask().contains(&header(KEY)));

    folder.secret("node.header", "X-Api-Key: another-hunter2");
    edge.signal("HUP");
    edge.line("the reload", |line| {
        line["key"] == "node.header_file" && line["effective"] == "now"
    });
    assert!(
        ask().contains(&header("another-hunter2")),
        "a reload reads it again"
    );
    folder.secret("node.header", "Host: elsewhere");
    edge.signal("HUP");
    edge.line("a bad header", |line| {
        line["message"]
            .as_str()
            .is_some_and(|text| text.contains("node.header_file"))
    });
    assert!(
        ask().contains(&header("another-hunter2")),
        "a bad file changes nothing"
    );
    edge.line("an attempt", |line| line["message"] == "node attempt");
    for text in [
        edge.lines().join("\n"),
        edge.admin_get("/metrics").text().to_owned(),
    ] {
        assert!(!text.contains("hunter2"), "{text}");
    }
}

#[test]
fn several_headers_and_an_agent_reach_the_node() {
    let (node, folder) = (Node::start(good), Folder::new());
    let text = format!("X-Api-Key: {KEY}\nUser-Agent: our-explorer (ops@a.test)\n");
    let file = folder.secret("node.header", &text);
    let edge = Setup::before(node.address())
        .set("node.header_file", &format!("\"{file}\""))
        .start();
    assert_eq!(edge.ask(&Request::post(QUESTION)).status, 200);
    let headers = node.calls().pop().expect("it was queried").headers();
    let values = |name: &str| {
        let named = headers.iter().filter(|(own, _)| own == name);
        named.map(|(_, value)| value.clone()).collect::<Vec<_>>()
    };
    assert_eq!(values("x-api-key"), [KEY]);
    assert_eq!(values("user-agent"), ["our-explorer (ops@a.test)"]);
}

#[test]
fn a_bad_header_is_found_by_check() {
    let folder = Folder::new();
    let long = format!("X-Key: {}", "a".repeat(5000));
    for text in [
        "",
        "no colon",
        ": hunter2",
        "X-Key:",
        "X Key: hunter2",
        "X-Key: one\nx-key: two",
        "X-Key: \u{e9}",
        "Host: other",
        "content-length: 5",
        "Transfer-Encoding: chunked",
        "Connection: close",
        "Traceparent: 00",
        &long,
    ] {
        let file = folder.secret("node.header", text);
        let setup = Setup::before(Node::nowhere());
        let output = setup
            .set("node.header_file", &format!("\"{file}\""))
            .run("check");
        let message = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(1), "{text:?}");
        assert!(
            message.contains("node.header_file") && message.contains(&file),
            "{message}"
        );
        assert!(!message.contains("hunter2"), "{message}");
    }
}

#[test]
fn a_bad_ca_file_is_found_by_check() {
    let folder = Folder::new();
    let pair = Pair::with(HOST, |_| {});
    for (text, code) in [
        ("", 1),
        ("no PEM", 1),
        (&*pair.key, 1),
        (&*pair.certificate, 0),
    ] {
        let file = folder.secret("ca.pem", text);
        let setup = Setup::before(Node::nowhere()).set("node.ca_file", &format!("\"{file}\""));
        let output = setup.run("check");
        let message = String::from_utf8_lossy(&output.stdout).into_owned();
        assert_eq!(output.status.code(), Some(code), "{message}");
        assert_eq!(message.contains("node.ca_file"), code != 0, "{message}");
    }
}
