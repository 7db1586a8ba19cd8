//! TLS on a listener: versions, protocols, certificate rotation, and clients that do not speak TLS.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Instant;

use rustls::ProtocolVersion::{TLSv1_2, TLSv1_3};
use rustls::version::{TLS12, TLS13};

use crate::admin::{eventually, metrics, series};
use crate::support::check::{assert_common, assert_error, assert_result};
use crate::support::client::{Client, PATIENCE};
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request};
use crate::support::script::{RESULT, good};
use crate::support::secure::{ABOUT_A_SECOND, ANY, Pair, handshake, secured};

const HANDSHAKES: &str = "portcullis_tls_handshakes_total";
const NOT_AFTER: &str = "portcullis_tls_certificate_not_after_seconds";
/// 1 January 4096.
const YEAR_4096: f64 = 67_090_118_400.0;

/// A gateway with a certificate, its node, configuration and files.
struct Stage {
    node: Node,
    edge: Edge,
    setup: Setup,
    folder: Folder,
    pair: Pair,
}

impl Stage {
    fn new(keys: &[(&str, &str)]) -> Self {
        let (node, folder, pair) = (Node::start(good), Folder::new(), Pair::new());
        pair.write(&folder);
        let setup = secured(Setup::before(node.address()), "gateway", &folder);
        let setup = keys
            .iter()
            .fold(setup, |setup, (key, value)| setup.set(key, value));
        Self {
            edge: setup.start(),
            node,
            setup,
            folder,
            pair,
        }
    }

    fn address(&self) -> SocketAddr {
        self.edge.gateway()
    }

    fn reload(&self) {
        let lines = || {
            self.edge
                .lines()
                .into_iter()
                .filter(|line| line.contains("reloaded"))
        };
        let before = lines().count();
        self.edge.signal("HUP");
        let deadline = Instant::now() + PATIENCE;
        let mut pause = Client::connect(self.edge.admin());
        while lines().count() == before {
            assert!(Instant::now() < deadline, "the files are not reloaded");
            let _silence = pause.silent_for(std::time::Duration::from_millis(10));
        }
    }

    fn handshakes(&self, outcome: &str) -> f64 {
        let outcome = format!("outcome=\"{outcome}\"");
        series(
            &metrics(&self.edge),
            HANDSHAKES,
            &["surface=\"gateway\"", &outcome],
        )
    }
}

#[test]
fn tls_and_alpn_are_negotiated() {
    let stage = Stage::new(&[]);
    for (versions, protocols, expected) in [
        (ANY, &["h2", "http/1.1"][..], (TLSv1_3, Some("h2"))),
        (&[&TLS12], &["h2", "http/1.1"], (TLSv1_2, Some("h2"))),
        (&[&TLS13], &["http/1.1", "h2"], (TLSv1_3, Some("h2"))),
        (ANY, &["http/1.1"], (TLSv1_3, Some("http/1.1"))),
        (&[&TLS12], &["http/1.1"], (TLSv1_2, Some("http/1.1"))),
        (ANY, &[], (TLSv1_3, None)),
        (ANY, &["h3", "h2"], (TLSv1_3, Some("h2"))),
    ] {
        let agreed = handshake(stage.address(), stage.pair.config(versions, protocols));
        let agreed = agreed.expect("a version in common");
        let agreed = (agreed.0, agreed.1.as_deref());
        assert_eq!(agreed, expected, "{protocols:?}");
    }
    let nothing_in_common = stage.pair.config(ANY, &["h3"]);
    assert!(
        handshake(stage.address(), nothing_in_common).is_err(),
        "no protocol in common"
    );
    eventually(&stage.edge, "each handshake is counted", |_| {
        (stage.handshakes("ok"), stage.handshakes("incompatible")) == (7.0, 1.0)
    });
}

#[test]
fn http_2_is_offered_only_if_enabled() {
    let stage = Stage::new(&[("gateway.tls.http2", "false")]);
    let both = stage.pair.config(ANY, &["h2", "http/1.1"]);
    let agreed = handshake(stage.address(), both).expect("a protocol in common");
    assert_eq!(agreed.1.as_deref(), Some("http/1.1"));
    let only_h2 = stage.pair.config(ANY, &["h2"]);
    assert!(
        handshake(stage.address(), only_h2).is_err(),
        "there is nothing else to choose"
    );
}

#[test]
fn http_1_behaves_alike_over_tls() {
    let stage = Stage::new(&[]);
    let mut client = stage.pair.client(stage.address());
    for _ in 0..3 {
        assert_result(
            &client.ask(&Request::post(QUESTION)),
            "7",
            RESULT,
            "a persistent connection",
        );
    }
    let refused = client.ask(&Request::post("[]"));
    assert_error(&refused, "batch", "null", "a refusal inside TLS");
    let large = Request::post(vec![b' '; 100_000]);
    let stated = client.ask(&large);
    assert_error(&stated, "body_too_large", "null", "refused while it sends");
    client.ends("its connection is over, and the answer was not lost");
    assert_eq!(stage.node.connections(), 1, "the node is queried as before");
}

/// A client hello of TLS 1.1, and of TLS 1.0: the record, the message, the version, one cipher.
fn old_hello(minor: u8) -> Vec<u8> {
    let mut hello = vec![3, minor];
    hello.extend([7; 32]); // random
    hello.push(0); // no session
    hello.extend([0, 2, 0, 0x2f, 1, 0]); // TLS_RSA_WITH_AES_128_CBC_SHA, no compression
    let length = u8::try_from(hello.len()).expect("a short message");
    let mut message = vec![1, 0, 0, length];
    message.append(&mut hello);
    let mut record = vec![22, 3, 1, 0, length + 4];
    record.append(&mut message);
    record
}

#[test]
fn older_versions_of_tls_are_refused() {
    let stage = Stage::new(&[]);
    for minor in [1, 2] {
        let mut stream = TcpStream::connect(stage.address()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(&old_hello(minor)).unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).unwrap();
        // a fatal alert: handshake_failure or protocol_version; RFC 8446, section 6.2
        let is_refused = matches!(answer.get(5..), Some([2, 40 | 70]));
        assert!(is_refused, "TLS 1.{}: {answer:?}", minor - 1);
    }
    eventually(&stage.edge, "both are counted", |_| {
        stage.handshakes("incompatible") == 2.0
    });
}

#[test]
fn plain_http_on_a_tls_port_gets_nothing() {
    let stage = Stage::new(&[]);
    let mut client = Client::connect(stage.address());
    client.send(Request::post(QUESTION).bytes());
    let came = client.rest().unwrap_or_default();
    assert!(
        came.len() <= 7 && !came.starts_with(b"HTTP"),
        "an alert at most: {came:?}"
    );
    eventually(&stage.edge, "it is counted", |_| {
        stage.handshakes("not_tls") == 1.0
    });
    assert_eq!(stage.node.connections(), 0, "and nothing was requested");
}

#[test]
fn no_listener_speaks_http_2_in_the_clear() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    let mut client = edge.client();
    client.send("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
    assert_error(
        &client.response(),
        "invalid_request",
        "null",
        "a preface of HTTP/2",
    );
    client.ends("there is nothing more to say");
    let upgrade = Request::post(QUESTION)
        .with("Connection", "Upgrade, HTTP2-Settings")
        .with("Upgrade", "h2c")
        .with("HTTP2-Settings", "AAMAAABkAAQAAP__");
    assert_result(
        &edge.ask(&upgrade),
        "7",
        RESULT,
        "an upgrade is not taken up",
    );
}

#[test]
fn a_stalled_handshake_times_out() {
    let stage = Stage::new(&[("gateway.connections.header_timeout", "\"1s\"")]);
    for bytes in [&b""[..], &[22, 3, 1]] {
        let start = Instant::now();
        let mut client = Client::connect(stage.address());
        client.send(bytes);
        client.ends("a handshake that takes too long");
        assert!(
            ABOUT_A_SECOND.contains(&start.elapsed()),
            "took {:?}",
            start.elapsed()
        );
    }
    eventually(&stage.edge, "both are counted", |_| {
        stage.handshakes("timeout") == 2.0
    });
    drop(Client::connect(stage.address()));
    eventually(&stage.edge, "so is one that leaves", |_| {
        stage.handshakes("gone") == 1.0
    });
}

#[test]
fn a_handshake_takes_a_place_among_the_connections() {
    let stage = Stage::new(&[("gateway.connections.max", "1")]);
    let silent = Client::connect(stage.address());
    let open = |metrics: &std::collections::BTreeMap<String, f64>| {
        series(metrics, "portcullis_connections", &["surface=\"gateway\""])
    };
    eventually(&stage.edge, "it has the place", |metrics| {
        open(metrics) == 1.0
    });
    let refused = handshake(stage.address(), stage.pair.config(ANY, &[]));
    assert!(refused.is_err(), "there is no second place");
    stage
        .edge
        .line("the refusal", |line| line["reason"] == "overloaded");
    drop(silent);
    eventually(&stage.edge, "the place is free", |metrics| {
        open(metrics) == 0.0
    });
    handshake(stage.address(), stage.pair.config(ANY, &[])).expect("the place is taken again");
}

#[test]
fn an_untrusting_client_is_counted() {
    let stage = Stage::new(&[]);
    let stranger = Pair::new().config(&[&TLS12], &[]);
    assert!(
        handshake(stage.address(), stranger).is_err(),
        "it trusts another certificate"
    );
    eventually(&stage.edge, "it is counted", |_| {
        stage.handshakes("refused") == 1.0
    });
}

#[test]
fn sighup_presents_a_new_certificate() {
    let stage = Stage::new(&[]);
    let mut open = stage.pair.client(stage.address());
    assert_result(&open.ask(&Request::post(QUESTION)), "7", RESULT, "before");
    let now = metrics(&stage.edge);
    assert_eq!(series(&now, NOT_AFTER, &["surface=\"gateway\""]), YEAR_4096);
    assert!(
        !now.keys()
            .any(|name| name.starts_with(NOT_AFTER) && name.contains("admin"))
    );

    let next = Pair::until(3000);
    next.write(&stage.folder);
    stage.reload();
    handshake(stage.address(), next.config(ANY, &[])).expect("the new certificate");
    assert!(
        handshake(stage.address(), stage.pair.config(ANY, &[])).is_err(),
        "not the old one"
    );
    assert_result(
        &open.ask(&Request::post(QUESTION)),
        "7",
        RESULT,
        "the connection goes on",
    );
    let end = series(&metrics(&stage.edge), NOT_AFTER, &["surface=\"gateway\""]);
    assert!(end < YEAR_4096, "the end of the new one is shown: {end}");
}

#[test]
fn an_unusable_certificate_keeps_the_old_one() {
    let stage = Stage::new(&[]);
    handshake(stage.address(), stage.pair.config(ANY, &[])).expect("it is up");
    let other = Pair::new();
    for (name, text, word) in [
        (
            "edge.key",
            other.key.as_str(),
            "is not that of the first certificate",
        ),
        ("edge.key", "no key at all", "private key in PEM"),
        ("edge.pem", "no certificate at all", "certificates in PEM"),
    ] {
        stage.pair.write(&stage.folder);
        stage.folder.secret(name, text);
        stage.edge.signal("HUP");
        stage.edge.line(word, |line| {
            let message = line["message"].as_str().unwrap_or_default();
            message.contains("reload failed") && message.contains(word)
        });
        handshake(stage.address(), stage.pair.config(ANY, &[])).expect("the pair from before");
    }
}

#[test]
fn sighup_switches_tls_and_http_2() {
    let stage = Stage::new(&[]);
    let both = || stage.pair.config(ANY, &["h2", "http/1.1"]);
    handshake(stage.address(), both()).expect("it is up");
    stage
        .edge
        .rewrite(&stage.setup.clone().set("gateway.tls.http2", "false"));
    stage.edge.signal("HUP");
    stage
        .edge
        .line("the change", |line| line["key"] == "gateway.tls.http2");
    let agreed = handshake(stage.address(), both()).expect("a protocol in common");
    assert_eq!(agreed.1.as_deref(), Some("http/1.1"), "HTTP/2 is off");
    let plain = stage.setup.clone();
    let plain = plain
        .unset("gateway.tls.certificate_file")
        .unset("gateway.tls.key_file");
    stage.edge.rewrite(&plain);
    stage.edge.signal("HUP");
    stage.edge.line("the change", |line| {
        line["key"] == "gateway.tls.key_file" && line["effective"] == "now"
    });
    assert_result(
        &stage.edge.ask(&Request::post(QUESTION)),
        "7",
        RESULT,
        "in the clear",
    );
    let shown = metrics(&stage.edge)
        .keys()
        .any(|name| name.starts_with(NOT_AFTER));
    assert!(!shown, "there is no certificate any more");
}

/// As `openssl x509 -req` makes it without extensions.
const X509_V1: &str = "\
-----BEGIN CERTIFICATE-----
MIIBGDCBvwIURI3+4vCxwBdfn0tDZEJhwno6qBwwCgYIKoZIzj0EAwIwDjEMMAoG
A1UEAwwDb2xkMCAXDTI2MTEyMzAwMDkwOFoYDzIxMjYxMDMwMDAwOTA4WjAOMQww
CgYDVQQDDANvbGQwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAAQaOARRT2ZmcQo+
4hJHUn0dhDG0kavJQ/jWcLtYtjoyG2NMZ23uENCQhECerlziryKkwKZsocfX9cp7
6PNtcciMMAoGCCqGSM49BAMCA0gAMEUCIQCPobh27FqnaLhYq15iOvsshOdjx0Ko
/sA/kuKCrgEEhAIgJX2bv1KUEARYvJpQEDZM6tunOlNIqowfJG40J94Kflk=
-----END CERTIFICATE-----";

#[test]
fn check_and_serve_name_every_tls_mistake() {
    let (folder, pair, other) = (Folder::new(), Pair::new(), Pair::new());
    let setup = secured(Setup::before(Node::nowhere()), "gateway", &folder);
    let setup = secured(setup, "admin", &folder);
    for (certificate, key, words) in [
        (
            pair.certificate.as_str(),
            other.key.as_str(),
            &["is not that of the first"][..],
        ),
        (
            "no PEM",
            "no PEM",
            &["certificates in PEM", "a private key in PEM"],
        ),
        (
            &other.key,
            &pair.certificate,
            &["certificates in PEM", "a private key in PEM"],
        ),
        (
            "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
            &pair.key,
            &["is not X.509"],
        ),
        (
            "-----BEGIN CERTIFICATE-----\nA",
            &pair.key,
            &["certificates in PEM"],
        ),
        (
            X509_V1,
            &pair.key,
            &["is X.509 v1, which TLS clients refuse"],
        ),
    ] {
        folder.secret("edge.pem", certificate);
        folder.secret("edge.key", key);
        for (subcommand, status) in [("check", 1), ("serve", 2)] {
            let output = setup.run(subcommand);
            let stated = [output.stdout, output.stderr].concat();
            let stated = String::from_utf8_lossy(&stated);
            assert_eq!(output.status.code(), Some(status), "{subcommand}: {stated}");
            for surface in ["gateway", "admin"] {
                for word in words {
                    let named = stated.lines().any(|line| {
                        line.contains(&format!("{surface}.tls.")) && line.contains(word)
                    });
                    assert!(named, "{subcommand} names {surface} and {word:?}: {stated}");
                }
            }
            assert!(!stated.contains("PRIVATE KEY"), "{stated}");
        }
    }
}

#[test]
fn a_key_that_others_can_read_is_refused() {
    use std::os::unix::fs::PermissionsExt as _;
    let (folder, pair) = (Folder::new(), Pair::new());
    pair.write(&folder);
    let open = std::fs::Permissions::from_mode(0o640);
    std::fs::set_permissions(folder.path().join("edge.key"), open).unwrap();
    let setup = secured(Setup::before(Node::nowhere()), "gateway", &folder);
    let output = setup.run("check");
    let stated = String::from_utf8_lossy(&output.stdout);
    assert_eq!(output.status.code(), Some(1), "{stated}");
    assert!(stated.contains("mode 0640 lets others read it"), "{stated}");
}

#[test]
fn a_certificate_that_has_ended_is_a_warning() {
    let (node, folder) = (Node::start(good), Folder::new());
    let ended = Pair::until(2001);
    ended.write(&folder);
    let setup = secured(Setup::before(node.address()), "gateway", &folder);
    let output = setup.run("check");
    let stated = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{stated}");
    assert!(
        stated.contains("the certificate ended on 2001-01-01T00:00:00Z"),
        "{stated}"
    );
    let edge = setup.start();
    edge.line("the warning", |line| {
        line["level"] == "warn"
            && line["message"]
                .as_str()
                .is_some_and(|m| m.contains("ended on"))
    });
    let refused = handshake(edge.gateway(), ended.config(ANY, &[]));
    assert!(refused.is_err(), "clients refuse it, not the edge");
}

#[test]
fn relative_paths_resolve_among_the_credentials() {
    let (node, folder, pair) = (Node::start(good), Folder::new(), Pair::new());
    pair.write(&folder);
    let setup = Setup::before(node.address())
        .set("gateway.tls.certificate_file", "\"edge.pem\"")
        .set("gateway.tls.key_file", "\"edge.key\"")
        .environment(
            "CREDENTIALS_DIRECTORY",
            &folder.path().display().to_string(),
        )
        .environment("PORTCULLIS__GATEWAY__TLS__HTTP2", "false");
    let edge = setup.start();
    let agreed = handshake(edge.gateway(), pair.config(ANY, &["h2", "http/1.1"]));
    let agreed = agreed.expect("the credentials are the pair");
    assert_eq!(
        agreed.1.as_deref(),
        Some("http/1.1"),
        "and a variable overrides a key"
    );
}

#[test]
fn a_reload_reads_renewed_credentials() {
    let (node, folder, renewed) = (Node::start(good), Folder::new(), Folder::new());
    let (pair, next) = (Pair::new(), Pair::until(3000));
    pair.write(&folder);
    let place = renewed.path().join("credentials");
    let setup = Setup::before(node.address())
        .set("gateway.tls.certificate_file", "\"edge.pem\"")
        .set("gateway.tls.key_file", "\"edge.key\"")
        .environment(
            "CREDENTIALS_DIRECTORY",
            &folder.path().display().to_string(),
        )
        .environment(
            "RENEWED_CREDENTIALS_DIRECTORY",
            &place.display().to_string(),
        );
    let edge = setup.start();
    handshake(edge.gateway(), pair.config(ANY, &[])).expect("those of the start");
    next.write(&renewed);
    std::fs::create_dir(&place).unwrap();
    for name in ["edge.pem", "edge.key"] {
        std::fs::rename(renewed.path().join(name), place.join(name)).unwrap();
    }
    edge.signal("HUP");
    edge.line("the reload", |line| {
        line["message"] == "the certificate was reloaded"
    });
    handshake(edge.gateway(), next.config(ANY, &[])).expect("those of the reload");
}

#[test]
fn a_reload_names_only_a_changed_certificate() {
    let stage = Stage::new(&[]);
    let named = || {
        let lines = stage.edge.lines();
        lines
            .into_iter()
            .filter(|line| line.contains("the certificate was reloaded"))
            .count()
    };
    stage.reload();
    assert_eq!(named(), 0, "it is the same");
    Pair::until(3000).write(&stage.folder);
    stage.reload();
    stage.edge.line("its end", |line| {
        let expires = line["expires"].as_str().unwrap_or_default();
        line["surface"] == "gateway" && expires.starts_with("3000-")
    });
    assert_eq!(named(), 1);
}

#[test]
fn an_unusable_certificate_closes_its_surface_only() {
    let (node, folder, pair) = (Node::start(good), Folder::new(), Pair::new());
    for name in ["edge.pem", "edge.key"] {
        folder.secret(name, "no PEM");
    }
    let setup = secured(Setup::before(node.address()), "sidecar", &folder)
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set("sidecar.base_url", "\"https://portcullis.test\"")
        .set(
            "store.url",
            &format!("\"sqlite:{}\"", folder.file("store.db")),
        );
    assert_eq!(
        setup.run("check").status.code(),
        Some(1),
        "a check still fails"
    );
    let edge = setup.start();
    assert_result(
        &edge.ask(&Request::post(QUESTION)),
        "7",
        RESULT,
        "the gateway serves",
    );
    let mut plain = Client::connect(edge.sidecar());
    plain.send(Request::new("GET", "/sitemap.xml").bytes());
    plain.ends("nothing is said in the clear");
    edge.line("the cause", |line| {
        let cause = line["cause"].as_str().unwrap_or_default();
        line["condition"] == "certificate" && cause.contains("sidecar.tls.key_file")
    });
    pair.write(&folder);
    eventually(&edge, "it is taken up without a reload", |_| {
        handshake(edge.sidecar(), pair.config(ANY, &[])).is_ok()
    });
}

#[test]
fn the_admin_listener_can_be_secured_too() {
    let (node, folder, pair) = (Node::start(good), Folder::new(), Pair::new());
    pair.write(&folder);
    let edge = secured(Setup::before(node.address()), "admin", &folder).start();
    let ready = pair
        .client(edge.admin())
        .ask(&Request::new("GET", "/readyz"));
    assert_eq!((ready.status, ready.text()), (200, "ok\n"));
    let mut client = crate::support::client2::Client2::connect(edge.admin(), &pair);
    for _ in 0..2 {
        let ready = client.ask(&Request::new("GET", "/readyz"));
        assert_eq!(
            (ready.status, ready.text()),
            (200, "ok\n"),
            "over HTTP/2, on one connection"
        );
    }
    let plain = edge.ask(&Request::post(QUESTION));
    assert_common(&plain, "the gateway next to it speaks in the clear");
}
