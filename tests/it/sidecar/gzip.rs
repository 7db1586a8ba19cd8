//! Documents in gzip: each form has an `ETag` of its own; responses to one user stay uncompressed.

use crate::support::check::each;
use crate::support::request::Request;
use crate::support::response::Response;
use crate::support::sidecar::content::{self, ALICE_DID};
use crate::support::sidecar::expect::{common, lasting_headers};
use crate::support::sidecar::stage::{Stage, encoded};

/// Documents with an `ETag`.
fn tagged() -> [String; 4] {
    [
        format!("/functions/podcast-rss-feed?did={}", encoded(ALICE_DID)),
        "/functions/seo-sitemap".to_owned(),
        "/functions/seo-sitemap?page=1".to_owned(),
        "/sitemap.xml".to_owned(),
    ]
}

/// Requests a document with these headers.
fn get(stage: &Stage, path: &str, headers: &[(&str, &str)]) -> Response {
    let request = Request::new("GET", path);
    let response = stage.ask(
        &headers
            .iter()
            .fold(request, |request, (name, value)| request.with(name, value)),
    );
    common(&response, path);
    response
}

fn zipped(stage: &Stage, path: &str) -> Response {
    get(stage, path, &[("Accept-Encoding", "gzip")])
}

fn coding(response: &Response) -> Option<&str> {
    response.header("Content-Encoding")
}

#[test]
fn a_zipped_document_has_its_own_tag() {
    let stage = Stage::new();
    each(tagged(), |path| {
        let plain = stage.get(&path);
        let response = zipped(&stage, &path);
        assert_eq!((plain.status, coding(&plain)), (200, None), "{path}");
        assert_eq!(
            (response.status, coding(&response)),
            (200, Some("gzip")),
            "{path}"
        );
        assert!(
            response.decoded() == plain.body,
            "{path}: the same document"
        );
        let [own, other] = [&response, &plain].map(|one| one.header("ETag").unwrap_or_default());
        assert!(
            own != other && own.starts_with('"'),
            "{path}: {own} is strong, and not {other}"
        );
        for response in [&plain, &response] {
            assert_eq!(response.header("Vary"), Some("Accept-Encoding"), "{path}");
        }
        assert_eq!(
            zipped(&stage, &path).body,
            response.body,
            "{path}: the same bytes again"
        );
    });
}

#[test]
fn either_tag_is_current_for_either_form() {
    let stage = Stage::new();
    each(tagged(), |path| {
        let (plain, response) = (stage.get(&path), zipped(&stage, &path));
        // only a podcast has a date
        let date = response.header("Last-Modified").unwrap_or("*");
        let [own, other] = [&response, &plain].map(|one| one.header("ETag").unwrap_or_default());
        let [weak, list] = [format!("W/{own}"), format!("\"a\", {other}")];
        for (name, sent, to_gzip, to_identity) in [
            ("If-None-Match", own, own, own),
            ("If-None-Match", other, other, other),
            ("If-None-Match", &weak, own, own),
            ("If-None-Match", &list, other, other),
            ("If-None-Match", "*", own, other),
            ("If-Modified-Since", date, own, other),
        ] {
            if sent == "*" && name == "If-Modified-Since" {
                continue;
            }
            for (accepted, expected) in [("gzip", to_gzip), ("identity", to_identity)] {
                let headers = [(name, sent), ("Accept-Encoding", accepted)];
                let response = get(&stage, &path, &headers);
                let why = format!("{path}: {name}: {sent}, accepting {accepted}");
                assert_eq!((response.status, response.body.len()), (304, 0), "{why}");
                assert_eq!(response.header("ETag"), Some(expected), "{why}");
                assert_eq!(response.header("Vary"), Some("Accept-Encoding"), "{why}");
                assert_eq!(coding(&response), None, "{why}: no body, no coding");
            }
        }
        let headers = [("If-None-Match", "\"other\""), ("Accept-Encoding", "gzip")];
        let response = get(&stage, &path, &headers);
        assert_eq!(
            (response.status, coding(&response)),
            (200, Some("gzip")),
            "{path}"
        );
    });
}

#[test]
fn a_head_states_what_a_get_sends() {
    let stage = Stage::new();
    each(tagged(), |path| {
        let request = Request::new("HEAD", &path).with("Accept-Encoding", "gzip");
        let head = stage.head(&request, &path);
        assert_eq!(
            lasting_headers(&head),
            lasting_headers(&zipped(&stage, &path)),
            "{path}"
        );
    });
}

#[test]
fn a_sitemap_of_many_pieces_is_one_member() {
    let stage = Stage::empty(&[]);
    let urls = (1..=2_000).map(|id| content::page(id, &format!("https://cards.example/{id}"), 1));
    stage.sql(&urls.collect::<String>());
    let plain = stage.get("/sitemap.xml?page=1");
    let response = zipped(&stage, "/sitemap.xml?page=1");
    assert_eq!(coding(&response), Some("gzip"));
    assert!(plain.body.len() > 100_000, "{} bytes", plain.body.len());
    assert!(response.decoded() == plain.body, "the same document");
    assert!(
        response.body.len() < plain.body.len() / 5,
        "{} bytes",
        response.body.len()
    );
    // over HTTP/1.0 the end of the connection ends it
    let old = Request::new("GET", "/").line("GET /sitemap.xml?page=1 HTTP/1.0");
    let mut client = stage.client();
    client.send(
        old.with("Accept-Encoding", "gzip")
            .with("Connection", "close")
            .bytes(),
    );
    let old = client.response();
    assert_eq!(coding(&old), Some("gzip"));
    assert!(old.decoded() == plain.body, "over HTTP/1.0 as well");
}

#[test]
fn small_and_personal_responses_have_one_form() {
    let stage = Stage::new();
    each(
        [
            ("/robots.txt", "less than 1 KiB"),
            ("/healthz", "of one word"),
            ("/functions/health-check", "not cacheable"),
            (
                "/functions/podcast-rss-feed?did=did%3Aplc%3Anobody",
                "a refusal",
            ),
        ],
        |(path, why)| {
            let response = zipped(&stage, path);
            assert_eq!(coding(&response), None, "{path}: {why}");
            let vary = response.header("Vary").unwrap_or_default().to_lowercase();
            assert!(!vary.contains("accept-encoding"), "{path}: {why}");
        },
    );
}

#[test]
fn gzip_can_be_switched_off() {
    let stage = Stage::with(&[("sidecar.gzip", "false")]);
    each(tagged(), |path| {
        let response = zipped(&stage, &path);
        assert_eq!(
            (coding(&response), response.header("Vary")),
            (None, None),
            "{path}"
        );
        let tag = response.header("ETag").unwrap_or_default();
        assert_eq!(
            Some(tag),
            stage.get(&path).header("ETag"),
            "{path}: one form, one tag"
        );
        let headers = [("If-None-Match", tag), ("Accept-Encoding", "gzip")];
        assert_eq!(
            get(&stage, &path, &headers).header("ETag"),
            Some(tag),
            "{path}"
        );
    });
}
