//! One trust: servers over https are verified by the authorities of the system.

use std::net::Ipv4Addr;

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use rcgen::DnType;

use crate::support::client::Client;
use crate::support::collector::Collector;
use crate::support::edge::{Edge, Setup};
use crate::support::folder::Folder;
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request};
use crate::support::script::good;
use crate::support::secure::{Pair, secured_node};
use crate::support::sidecar::upstream::{Answer, Upstream};

const HOST: &str = "localhost";
const CAUSE: &str = "certificate: unknown issuer; add its authority to the system's";

/// Files of authorities: with this one, and with another one.
fn authorities(folder: &Folder, pair: &Pair) -> [String; 2] {
    let other = Pair::with(HOST, |params| {
        params.distinguished_name.push(DnType::CommonName, "other");
    });
    [
        folder.secret("system.pem", &pair.certificate),
        folder.secret("other.pem", &other.certificate),
    ]
}

fn cause(edge: &Edge, message: &str) -> String {
    let line = edge.line(message, |line| line["message"] == message);
    line["cause"].as_str().unwrap_or_default().to_owned()
}

#[test]
fn a_collector_is_verified_by_the_system() {
    let (node, collector, folder) = (Node::start(good), Collector::start(), Folder::new());
    let pair = Pair::with(HOST, |_| {});
    let address = secured_node(collector.address(), &pair);
    let [known, other] = authorities(&folder, &pair);
    let setup = Setup::before(node.address())
        .set(
            "trace.endpoint",
            &format!("\"https://{HOST}:{}\"", address.port()),
        )
        .set("trace.ratio", "1.0");
    let edge = setup.clone().environment("SSL_CERT_FILE", &known).start();
    assert_eq!(edge.ask(&Request::post(QUESTION)).status, 200);
    collector.wait_for(1);
    let edge = setup.environment("SSL_CERT_FILE", &other).start();
    assert_eq!(edge.ask(&Request::post(QUESTION)).status, 200);
    let cause = cause(&edge, "the collector does not accept spans");
    assert!(cause.contains(CAUSE), "{cause}");
}

/// The `Authorization` of a user, with a signature that no key fits.
fn session() -> String {
    let parts = [
        r#"{"alg":"ES256","typ":"JWT"}"#.as_bytes(),
        r#"{"sub":"6b2f0f0e-1111-4222-8333-444455556666","aud":"authenticated",
            "role":"authenticated","exp":4000000000}"#
            .as_bytes(),
        &[7; 64],
    ];
    let parts = parts.map(|part| BASE64_URL_SAFE_NO_PAD.encode(part));
    format!("Bearer {}", parts.join("."))
}

#[test]
fn keys_of_sessions_are_verified_by_the_system() {
    let keys = Upstream::start(|_| Answer::Is("200 OK", r#"{"keys":[]}"#.to_owned()));
    let (node, folder, pair) = (Node::start(good), Folder::new(), Pair::with(HOST, |_| {}));
    let address = secured_node((Ipv4Addr::LOCALHOST, keys.port()).into(), &pair);
    let [known, other] = authorities(&folder, &pair);
    let database = folder.file("side.db");
    let setup = Setup::before(node.address())
        .set("sidecar.base_url", "\"https://portcullis.test\"")
        .set("sidecar.listen", "\"127.0.0.1:0\"")
        .set(
            "sidecar.session.jwks_url",
            &format!("\"https://{HOST}:{}/keys\"", address.port()),
        )
        .set("store.url", &format!("\"sqlite:{database}\""));
    let ask = |edge: &Edge| {
        let request = Request::new("POST", "/functions/age-verification-session");
        let request = request.with("Authorization", &session());
        Client::connect(edge.sidecar()).ask(&request).status
    };
    let edge = setup.clone().environment("SSL_CERT_FILE", &known).start();
    assert_eq!(ask(&edge), 401, "no key fits");
    assert!(keys.requests("/keys") > 0, "they were fetched");
    drop(edge);
    let edge = setup.environment("SSL_CERT_FILE", &other).start();
    assert_eq!(ask(&edge), 503, "without keys nobody is known");
    let message = "cannot fetch the keys of sessions from sidecar.session.jwks_url";
    let cause = cause(&edge, message);
    assert!(cause.contains(CAUSE), "{cause}");
}
