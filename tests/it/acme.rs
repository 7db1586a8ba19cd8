//! Certificates that are ordered: what a listener does before it has one, and what is stored. The
//! authority of these tests is away; `tests/acme/run.py` has one.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use sha2::{Digest as _, Sha256};
use tokio::io::AsyncReadExt as _;

use crate::admin::{eventually, metrics, series};
use crate::support::check::assert_result;
use crate::support::client::{Client, PATIENCE};
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request};
use crate::support::script::{RESULT, good};
use crate::support::secure::{ANY, NAME, Pair, handshake};

/// Nobody listens at port 1.
const DIRECTORY: &str = "https://127.0.0.1:1/dir";

/// Where the certificate for these domains is, in the folder.
fn file(domains: &[&str]) -> String {
    let of_all = Sha256::digest(format!("{DIRECTORY} {}", domains.join(" ")));
    let of_all: String = of_all[..4]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect();
    format!("{}-{of_all}.pem", domains[0])
}

/// A gateway with the certificate of [`NAME`] from an authority that is away.
fn ordered(node: SocketAddr, folder: &Folder) -> Setup {
    Setup::before(node)
        .set("gateway.tls.domains", &format!("[\"{NAME}\"]"))
        .set("tls.acme.terms_accepted", "true")
        .set("tls.acme.directory", &format!("\"{DIRECTORY}\""))
        .set(
            "tls.acme.folder",
            &format!("\"{}\"", folder.path().display()),
        )
}

/// Stores a certificate for [`NAME`] as an order does.
fn store(pair: &Pair, folder: &Folder, domains: &[&str]) {
    folder.secret(
        &file(domains),
        &format!("{}\n{}", pair.key, pair.certificate),
    );
}

/// Polls `/readyz?verbose` until it has these words.
fn says(edge: &Edge, words: &str) -> String {
    let deadline = Instant::now() + PATIENCE;
    loop {
        let text = edge.admin_get("/readyz?verbose").text().to_owned();
        if text.contains(words) {
            return text;
        }
        assert!(Instant::now() < deadline, "not {words:?}: {text}");
        let _silence = Client::connect(edge.admin()).silent_for(Duration::from_millis(20));
    }
}

#[test]
fn a_listener_without_its_certificate_is_closed() {
    let folder = Folder::new();
    let edge = ordered(Node::nowhere(), &folder).start();
    let shown = says(&edge, "the authority is unreachable");
    for words in [
        "verdict: failing",
        "ready: ok",
        "certificate needs renewal (gateway)",
        "the first one is ordered: account: the authority is unreachable: connection refused",
        "attempt 2 is at ",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }
    let mut client = edge.client();
    client.send(Request::post(QUESTION).bytes());
    client.ends("it has no certificate, and never speaks in the clear");
    eventually(&edge, "the failure is counted", |metrics| {
        metrics["portcullis_acme_orders_total{outcome=\"failed\"}"] >= 1.0
            && metrics["portcullis_acme_failed_attempts"] >= 1.0
    });
    let line = edge.line("the failure", |line| line["message"] == "not issued");
    assert_eq!(
        (&line["domain"], &line["level"]),
        (&NAME.into(), &"warn".into()),
        "{line}"
    );
}

#[test]
fn a_stored_certificate_serves_without_its_authority() {
    let (node, folder, pair) = (Node::start(good), Folder::new(), Pair::new());
    store(&pair, &folder, &[NAME]);
    let edge = ordered(node.address(), &folder).start();
    let answer = pair.client(edge.gateway()).ask(&Request::post(QUESTION));
    assert_result(&answer, "7", RESULT, "no order is needed");
    assert!(says(&edge, "ready: ok").contains("verdict: ok"));
    let metrics = metrics(&edge);
    assert_eq!(metrics["portcullis_acme_failed_attempts"], 0.0);
    let begin = "portcullis_tls_certificate_not_before_seconds";
    assert_eq!(
        series(&metrics, begin, &["gateway"]),
        157_766_400.0,
        "1 January 1975"
    );
}

#[test]
fn a_stored_certificate_that_others_can_read_is_refused() {
    let (folder, pair) = (Folder::new(), Pair::new());
    store(&pair, &folder, &[NAME]);
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o644);
    std::fs::set_permissions(folder.path().join(file(&[NAME])), mode).expect("it is ours");
    let edge = ordered(Node::nowhere(), &folder).start();
    says(&edge, "the first one is ordered");
}

#[test]
fn a_challenge_that_nobody_waits_for_is_refused() {
    let (folder, pair) = (Folder::new(), Pair::new());
    store(&pair, &folder, &[NAME]);
    let edge = ordered(Node::nowhere(), &folder).start();
    for protocols in [&["acme-tls/1"][..], &["acme-tls/1", "acme-tls/1"]] {
        let refused = handshake(edge.gateway(), pair.config(ANY, protocols));
        assert!(refused.is_err(), "{protocols:?}");
    }
    let mixed = handshake(
        edge.gateway(),
        pair.config(ANY, &["acme-tls/1", "http/1.1"]),
    );
    let agreed = mixed.expect("a protocol in common").1;
    assert_eq!(agreed.as_deref(), Some("http/1.1"));
    eventually(&edge, "they are counted", |metrics| {
        let of = |outcome: &str| {
            let outcome = format!("outcome=\"{outcome}\"");
            series(
                metrics,
                "portcullis_tls_handshakes_total",
                &["gateway", &outcome],
            )
        };
        (of("incompatible"), of("challenge"), of("ok")) == (2.0, 0.0, 1.0)
    });
}

#[test]
fn other_domains_keep_the_last_certificate_meanwhile() {
    let (node, folder, pair) = (Node::start(good), Folder::new(), Pair::new());
    store(&pair, &folder, &[NAME]);
    let setup = ordered(node.address(), &folder);
    let edge = setup.start();
    let more = format!("[\"{NAME}\", \"www.{NAME}\"]");
    edge.rewrite(&setup.set("gateway.tls.domains", &more));
    edge.signal("HUP");
    edge.line("the change", |line| line["key"] == "gateway.tls.domains");
    says(&edge, "the authority is unreachable");
    let answer = pair.client(edge.gateway()).ask(&Request::post(QUESTION));
    assert_result(&answer, "7", RESULT, "the last one serves");
    let both = vec![NAME.to_owned(), format!("www.{NAME}")];
    let next = Pair::with(NAME, |params| {
        let named = rcgen::CertificateParams::new(both).expect("names");
        params.subject_alt_names = named.subject_alt_names;
    });
    store(&next, &folder, &[NAME, &format!("www.{NAME}")]);
    edge.signal("HUP");
    eventually(&edge, "all is well", |metrics| {
        metrics["portcullis_acme_failed_attempts"] == 0.0
    });
    let answer = next.client(edge.gateway()).ask(&Request::post(QUESTION));
    assert_result(&answer, "7", RESULT, "the new one is there");
}

#[test]
fn another_authority_needs_a_restart() {
    let (node, folder, pair) = (Node::start(good), Folder::new(), Pair::new());
    store(&pair, &folder, &[NAME]);
    let setup = ordered(node.address(), &folder);
    let edge = setup.start();
    edge.rewrite(
        &setup
            .clone()
            .set("tls.acme.directory", "\"https://127.0.0.1:2/dir\""),
    );
    edge.signal("HUP");
    let change = edge.line("the change", |line| line["key"] == "tls.acme.directory");
    assert_eq!(change["effective"], "after a restart");
    edge.rewrite(&setup.set("gateway.tls.http2", "false"));
    edge.signal("HUP");
    edge.line("another reload", |line| line["key"] == "gateway.tls.http2");
    assert!(
        says(&edge, "ready: ok").contains("verdict: ok"),
        "nothing is ordered"
    );
    let metrics = metrics(&edge);
    assert_eq!(
        metrics["portcullis_acme_orders_total{outcome=\"failed\"}"],
        0.0
    );
}

#[test]
fn the_first_section_of_acme_needs_a_restart() {
    let (node, folder) = (Node::start(good), Folder::new());
    let plain = Setup::before(node.address());
    let edge = plain.start();
    edge.rewrite(&ordered(node.address(), &folder));
    edge.signal("HUP");
    edge.line("the refusal", |line| {
        let message = line["message"].as_str().unwrap_or_default();
        message.contains("nothing changed: [tls.acme] is new: it needs a restart")
    });
    assert_result(
        &edge.ask(&Request::post(QUESTION)),
        "7",
        RESULT,
        "still in the clear",
    );
}

#[test]
fn port_80_redirects_to_the_domains_only() {
    let (folder, pair) = (Folder::new(), Pair::new());
    store(&pair, &folder, &[NAME]);
    let setup = ordered(Node::nowhere(), &folder);
    let setup = setup.set("tls.acme.http_address", "\"127.0.0.1:0\"");
    for (redirects, status) in [("true", 308), ("false", 404)] {
        let edge = setup
            .clone()
            .set("tls.acme.http_redirect", redirects)
            .start();
        let address = port_80(&edge);
        let ask = |head: &str| {
            let mut client = Client::connect(address);
            client.send(head);
            let response = client.response();
            let location = response.header("Location").map(str::to_owned);
            (response.status, location)
        };
        let framings = "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
        let two = ask(&format!("GET /a HTTP/1.1\r\nHost: {NAME}\r\n{framings}"));
        assert_eq!(two, (400, None), "two framings");
        let absolute = ask(&format!(
            "GET http://{NAME}/a?b=c HTTP/1.1\r\nHost: x\r\n\r\n"
        ));
        assert_eq!(absolute.0, status, "an absolute target");
        let there = format!("https://{NAME}/a?b=c");
        let there = Some(there).filter(|_| status == 308);
        for host in [NAME, "EDGE.test:8080", "edge.test."] {
            let found = ask(&format!("GET /a?b=c HTTP/1.1\r\nHost: {host}\r\n\r\n"));
            assert_eq!(found, (status, there.clone()), "{host}");
        }
        for (head, status) in [
            ("GET / HTTP/1.1\r\nHost: elsewhere.test\r\n\r\n", 404),
            (
                "GET /.well-known/acme-challenge/x HTTP/1.1\r\nHost: edge.test\r\n\r\n",
                404,
            ),
            (
                "POST / HTTP/1.1\r\nHost: edge.test\r\nContent-Length: 0\r\n\r\n",
                405,
            ),
            ("GET / HTTP/1.1\r\nno field\r\n\r\n", 400),
        ] {
            assert_eq!(ask(head), (status, None), "{head}");
        }
    }
}

/// The address of the listener on port 80.
fn port_80(edge: &Edge) -> SocketAddr {
    let listening = edge.line("the listener", |line| {
        line["message"] == "listening" && line["surface"] == "acme"
    });
    listening["address"].as_str().unwrap().parse().unwrap()
}

/// A connection from the loopback address with this last byte.
async fn connection_of(source: u8, to: SocketAddr) -> tokio::net::TcpStream {
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    let from = SocketAddr::from(([127, 0, 7, source], 0));
    socket.bind(from).unwrap();
    socket.connect(to).await.unwrap()
}

#[tokio::test]
async fn silent_connections_leave_room_on_port_80() {
    let folder = Folder::new();
    let pair = Pair::new();
    store(&pair, &folder, &[NAME]);
    let setup = ordered(Node::nowhere(), &folder);
    let edge = setup
        .set("tls.acme.http_address", "\"127.0.0.1:0\"")
        .start();
    let address = port_80(&edge);
    let started = Instant::now();
    let mut held = Vec::new();
    for number in 0..256_u16 {
        let source = u8::try_from(number / 32 + 1).unwrap();
        held.push(connection_of(source, address).await);
    }
    let mut client = Client::connect(address);
    client.send("GET /.well-known/acme-challenge/x HTTP/1.1\r\nHost: edge.test\r\n\r\n");
    assert_eq!(client.response().status, 404);
    for connection in &mut held {
        let read = connection.read(&mut [0]).await;
        assert!(matches!(read, Ok(0) | Err(_)), "it sent nothing");
    }
    let took = started.elapsed();
    assert!(took < Duration::from_secs(30), "closed after {took:?}");
}

#[test]
fn check_reports_what_an_authority_needs() {
    let folder = Folder::new();
    let setup = ordered(Node::nowhere(), &folder);
    let output = setup.run("check");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "an order is no mistake: {text}");
    assert!(
        text.contains("an authority connects to port 443 of a domain"),
        "{text}"
    );
    let output = setup.run_with("check", &["--live"], "");
    let text = String::from_utf8_lossy(&output.stdout);
    for words in [
        "edge.test has no address: an authority cannot reach it",
        "https://127.0.0.1:1/dir: connection refused",
    ] {
        assert!(text.contains(words), "{words}: {text}");
    }
    let setup = setup
        .set(
            "tls.acme.ca_file",
            &format!("\"{}\"", folder.file("none.pem")),
        )
        .set("tls.acme.eab_key_id", "\"kid\"")
        .set(
            "tls.acme.eab_key_file",
            &format!("\"{}\"", folder.secret("eab", "not base64!")),
        );
    let text = String::from_utf8_lossy(&setup.run("check").stdout).into_owned();
    assert!(
        text.contains("tls.acme.eab_key_file") && text.contains("base64url"),
        "{text}"
    );
}
