//! The sidecar over TLS: responses are the same over HTTP/2 as over HTTP/1.1.

use crate::http2::essence;
use crate::support::client2::Client2;
use crate::support::folder::Folder;
use crate::support::request::{Request, padded};
use crate::support::secure::{Pair, secured};
use crate::support::sidecar::content;
use crate::support::sidecar::stage::{Stage, post, setup};

/// A sidecar with a certificate and the test content.
fn stage() -> (Stage, Pair) {
    let (folder, pair) = (Folder::new(), Pair::new());
    pair.write(&folder);
    let setup = secured(setup(&folder, &[]), "sidecar", &folder);
    let stage = Stage {
        edge: setup.start(),
        setup,
        folder,
    };
    stage.sql(&content::everything());
    (stage, pair)
}

#[test]
fn a_streamed_page_is_whole_over_http_2() {
    let (stage, pair) = stage();
    let mut client = Client2::connect(stage.edge.sidecar(), &pair);
    let request = Request::new("GET", "/sitemap.xml");
    let over_1 = pair.client(stage.edge.sidecar()).ask(&request);
    let over_2 = client.ask(&request);
    assert_eq!(
        over_1.header("transfer-encoding"),
        Some("chunked"),
        "it is streamed"
    );
    assert_eq!(essence(&over_2), essence(&over_1));
    assert!(over_2.text().ends_with("</urlset>\n") || over_2.text().ends_with("</urlset>"));
    let described = client.ask(&Request::new("HEAD", "/sitemap.xml"));
    assert_eq!(
        (described.status, described.body.len()),
        (200, 0),
        "HEAD ends with its head"
    );
}

#[test]
fn every_function_answers_the_same_over_both_versions() {
    let (stage, pair) = stage();
    let mut client = Client2::connect(stage.edge.sidecar(), &pair);
    let webhook = "/functions/age-verifier-webhook";
    let etag = client.ask(&Request::new("GET", "/robots.txt"));
    let etag = etag.header("etag").expect("a document has one").to_owned();
    for request in [
        Request::new("GET", "/robots.txt"),
        Request::new("GET", "/robots.txt").with("If-None-Match", &etag),
        Request::new("GET", "/functions/describeFeedGenerator"),
        Request::new("GET", "/functions/age-verification-session"),
        Request::new("PUT", "/functions/seo-robots"),
        Request::new("GET", "/functions/none"),
        Request::new("OPTIONS", webhook).with("Origin", "https://app.example"),
        post(webhook, "{}"),
        post(webhook, padded("{}", 16_385)),
    ] {
        let over_1 = pair.client(stage.edge.sidecar()).ask(&request);
        let over_2 = client.ask(&request);
        assert_eq!(essence(&over_2), essence(&over_1), "{request:?}");
    }
}
