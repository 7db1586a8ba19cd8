//! The documents that the gateway serves to those who write clients: `gateway.docs`.

use portcullis_filters::policy::PublicDocument;
use portcullis_filters::rpc::Method;
use portcullis_filters::verdict::Reason;

use crate::support::check::assert_error;
use crate::support::edge::{Edge, Setup};
use crate::support::node::Node;
use crate::support::request::{QUESTION, Request};
use crate::support::response::Response;
use crate::support::script::good;

/// The response with a document, and its text.
fn read(edge: &Edge, path: &str) -> (Response, String) {
    let response = edge.ask(&Request::new("GET", path).with("Accept-Encoding", "gzip"));
    let text = String::from_utf8(response.decoded()).expect("a document is text");
    (response, text)
}

#[test]
fn documents_are_off_by_default() {
    let node = Node::start(good);
    let edge = Edge::start(&node);
    for document in PublicDocument::ALL {
        let response = edge.ask(&Request::new("GET", document.name()));
        assert_error(&response, "not_found", "null", document.name());
    }
}

#[test]
fn wallet_developers_can_read_every_method_and_reason() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.docs", "true")]);
    let (response, page) = read(&edge, "/docs");
    assert_eq!(
        (response.status, response.header("Content-Encoding")),
        (200, Some("gzip"))
    );
    assert_eq!(
        response.header("Content-Type"),
        Some("text/html; charset=utf-8")
    );
    let policy = response
        .header("Content-Security-Policy")
        .unwrap_or_default();
    assert!(
        policy.starts_with("default-src 'none'; style-src 'sha256-"),
        "{policy}"
    );
    for method in Method::ALL {
        assert!(
            page.contains(&format!("<code>{}</code>", method.name())),
            "{method:?}"
        );
    }
    for reason in [
        Reason::Batch,
        Reason::RateLimited,
        Reason::ChainPositionBehind,
    ] {
        assert!(
            page.contains(&format!("<code>{}</code>", reason.name())),
            "{reason:?}"
        );
    }
    for word in [
        "/mint-card",
        "Operator's page",
        "[[",
        "/readyz",
        "Listens on",
    ] {
        assert!(!page.contains(word), "{word} is for the operator");
    }
    for link in page
        .split(" href=\"/")
        .skip(1)
        .filter_map(|rest| rest.split('"').next())
    {
        assert_eq!(
            read(&edge, &format!("/{link}")).0.status,
            200,
            "/{link} leads nowhere"
        );
    }
    assert_eq!(node.connections(), 0, "no document comes from the node");
}

#[test]
fn each_document_has_its_media_type() {
    let node = Node::start(good);
    let edge = Edge::with(&node, &[("gateway.docs", "true")]);
    for document in PublicDocument::ALL {
        let (response, text) = read(&edge, document.name());
        let media_type = match document.name().rsplit('.').next() {
            Some("json") => "application/json",
            Some("yaml") => "application/yaml",
            _ => "text/html; charset=utf-8",
        };
        let path = document.name();
        assert_eq!(
            (response.status, response.header("Content-Type")),
            (200, Some(media_type))
        );
        assert!(text.contains("starknet_chainId"), "{path}");
        let head = edge.ask(&Request::post(QUESTION).line(&format!("POST {path} HTTP/1.1")));
        assert_error(&head, "wrong_http_method", "7", path);
        let plain = edge.ask(&Request::new("GET", path));
        assert_eq!(
            (plain.header("Content-Encoding"), plain.text()),
            (None, text.as_str()),
            "{path}"
        );
    }
    let other = edge.ask(&Request::new("GET", "/docs/openapi/relay.yaml"));
    assert_error(&other, "not_found", "null", "only the gateway's own");
}

#[test]
fn documents_count_as_calls() {
    let node = Node::start(good);
    let keys = [
        ("gateway.docs", "true"),
        ("gateway.requests_per_minute", "2"),
    ];
    let edge = Edge::with(&node, &keys);
    let statuses = [(); 3].map(|()| edge.ask(&Request::new("GET", "/docs")).status);
    assert_eq!(statuses, [200, 200, 429]);
    for document in PublicDocument::ALL {
        assert_eq!(
            edge.ask(&Request::new("GET", document.name())).status,
            429,
            "{document:?}"
        );
    }
    assert_eq!(
        edge.ask(&Request::post(QUESTION)).status,
        429,
        "one limit for both"
    );
}

#[test]
fn a_reload_switches_documents() {
    let node = Node::start(good);
    let setup = Setup::before(node.address());
    let edge = setup.start();
    assert_eq!(edge.ask(&Request::new("GET", "/docs")).status, 404);
    edge.rewrite(&setup.set("gateway.docs", "true"));
    edge.signal("HUP");
    edge.line("the change", |line| line["key"] == "gateway.docs");
    assert_eq!(edge.ask(&Request::new("GET", "/docs")).status, 200);
}
