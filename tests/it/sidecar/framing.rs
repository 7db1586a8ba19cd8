//! The end of a body, its maximum size, and its read timeout.

use crate::support::check::each;
use crate::support::request::{Request, chunked, padded};
use crate::support::sidecar::content::ALICE;
use crate::support::sidecar::event::{Event, NOBODY, SESSION, SIGNATURE, WEBHOOK, sign, signed};
use crate::support::sidecar::expect::{answered, common, refused};
use crate::support::sidecar::stage::{Stage, WEBHOOK_SECRET, post};
use crate::support::sidecar::token::Token;

/// A signed event about an unknown subject: refused for that alone, if everything else is valid.
fn fine(size: usize) -> Vec<u8> {
    padded(&Event::new("framing", NOBODY, "verified", 0).body(), size)
}

/// A signed webhook in chunks of this size.
fn in_chunks(body: &[u8], size: usize) -> Request {
    Request::post_chunked(body, size)
        .line(&format!("POST {WEBHOOK} HTTP/1.1"))
        .with(SIGNATURE, &sign(WEBHOOK_SECRET, body))
}

#[test]
fn webhooks_take_at_most_16384_bytes() {
    let stage = Stage::empty(&[]);
    for (size, name) in [(16_384, "UnknownSubject"), (16_385, "PayloadTooLarge")] {
        let body = fine(size);
        refused(&stage.ask(&signed(&body)), name, &format!("{size} bytes"));
        for chunk in [1_000, 16_384, 20_000] {
            let answer = stage.ask(&in_chunks(&body, chunk));
            refused(&answer, name, &format!("{size} bytes in chunks of {chunk}"));
        }
    }
    let declared = Request::new("POST", WEBHOOK).with("Content-Length", "16385");
    let answer = stage.ask(&declared);
    refused(
        &answer,
        "PayloadTooLarge",
        "by its head, before a byte came",
    );
    assert!(
        answer.announces_close(),
        "a body that is not read ends the connection"
    );
}

#[test]
fn a_session_body_is_at_most_1_kib() {
    let stage = Stage::new();
    let alice = || Token::of(ALICE);
    for (size, status) in [(2, 201), (1_024, 201), (1_025, 413)] {
        let body = padded("{}", size);
        let plain = stage.ask(&alice().on(post(SESSION, &body)));
        assert_eq!(plain.status, status, "{size} bytes: {}", plain.text());
        let line = format!("POST {SESSION} HTTP/1.1");
        let chunks = stage.ask(&alice().on(Request::post_chunked(&body, 100).line(&line)));
        assert_eq!(
            chunks.status,
            status,
            "{size} bytes in chunks: {}",
            chunks.text()
        );
    }
    let without = alice().on(Request::new("POST", SESSION));
    answered(&stage.ask(&without), 201, "no length is no body");
    let declared = alice().on(Request::new("POST", SESSION).with("Content-Length", "1025"));
    refused(
        &stage.ask(&declared),
        "PayloadTooLarge",
        "by its head, before a byte came",
    );
}

#[test]
fn conflicting_framing_smuggles_nothing() {
    let stage = Stage::empty(&[]);
    let body = fine(1_000);
    let length = body.len().to_string();
    let bare = signed(&body).without("Content-Length");
    let framings: [&[(&str, &str)]; 8] = [
        &[
            ("Content-Length", &length),
            ("Transfer-Encoding", "chunked"),
        ],
        &[
            ("Transfer-Encoding", "chunked"),
            ("Content-Length", &length),
        ],
        &[("Content-Length", "0"), ("Transfer-Encoding", "chunked")],
        &[("Content-Length", &length), ("Content-Length", "5")],
        &[("Content-Length", &format!("+{length}"))],
        &[("Content-Length", "")],
        &[("Transfer-Encoding", "gzip, chunked")],
        &[("Transfer-Encoding", "chunked, chunked")],
    ];
    each(framings, |lines| {
        let what = format!("{lines:?}");
        let request = lines
            .iter()
            .fold(bare.clone(), |own, (name, value)| own.with(name, value));
        let chunked_lines = lines.iter().any(|(name, _)| *name == "Transfer-Encoding");
        let wire = if chunked_lines {
            chunked(&body, 100)
        } else {
            body.clone()
        };
        let mut client = stage.client();
        let contraband = Request::new("GET", "/robots.txt").bytes();
        client.send([request.head(), wire, contraband].concat());
        refused(&client.response(), "InvalidRequest", &what);
        client.ends(&format!("{what}: nothing comes after the refusal"));
    });
}

#[test]
fn a_get_body_is_no_second_request() {
    let stage = Stage::empty(&[]);
    let contraband = Request::new("GET", "/functions/nothing").bytes();
    for path in [
        "/robots.txt",
        "/functions/health-check?probe=live",
        "/healthz",
    ] {
        let length = contraband.len().to_string();
        let request = Request::new("GET", path).with("Content-Length", &length);
        let mut client = stage.client();
        client.send([request.head(), contraband.clone()].concat());
        let first = client.response();
        common(&first, path);
        if !first.announces_close() {
            client.send(Request::new("GET", "/robots.txt").bytes());
        }
        client.finish();
        let second = client.try_response().map(|response| response.status);
        assert!(
            second.is_err() || second == Ok(200),
            "{path}: smuggled: {second:?}"
        );
    }
}

#[test]
fn a_late_body_times_out() {
    let stage = Stage::new();
    let requests = [
        signed(fine(1_000)),
        Token::of(ALICE).on(post(SESSION, "{}")),
    ];
    let mut clients = requests.map(|request| {
        let (mut client, bytes) = (stage.client(), request.bytes());
        client.send(&bytes[..bytes.len() - 1]);
        client
    });
    for client in &mut clients {
        refused(&client.response(), "RequestTimeout", "one byte is missing");
        client.ends("the rest of the body is not taken for another request");
    }
}

#[test]
fn a_split_body_is_one_body() {
    let stage = Stage::empty(&[]);
    let request = signed(fine(320));
    let mut client = stage.client();
    client.drip(&request.bytes(), std::time::Duration::from_millis(1));
    refused(
        &client.response(),
        "UnknownSubject",
        "the signature is over all of it",
    );
    let mut client = stage.client();
    client.drip(
        &in_chunks(&fine(320), 32).bytes(),
        std::time::Duration::from_millis(1),
    );
    refused(&client.response(), "UnknownSubject", "and so in chunks");
}

#[test]
fn an_expectation_is_met_or_refused() {
    let stage = Stage::empty(&[]);
    let mut client = stage.client();
    let request = signed(fine(600));
    client.send(request.clone().with("Expect", "100-continue").head());
    assert_eq!(client.response().status, 100, "the body is invited");
    client.send(request.body());
    refused(&client.response(), "UnknownSubject", "and judged");
    let mut client = stage.client();
    let large = signed(fine(16_385)).with("Expect", "100-continue");
    client.send(large.head());
    refused(
        &client.response(),
        "PayloadTooLarge",
        "a body that is too large is not invited",
    );
    let other = request.with("Expect", "a-miracle");
    refused(
        &stage.ask(&other),
        "ExpectationFailed",
        "another expectation",
    );
}

#[test]
fn malformed_and_oversized_heads_are_refused() {
    let stage = Stage::empty(&[]);
    let cases = [
        (
            "no Host",
            Request::new("GET", "/robots.txt").without("Host"),
            "InvalidRequest",
        ),
        (
            "two Hosts",
            Request::new("GET", "/robots.txt").with("Host", "b"),
            "InvalidRequest",
        ),
        (
            "a bad version",
            Request::new("GET", "/").line("GET / HTTP/1.9"),
            "InvalidRequest",
        ),
        (
            "a large head",
            { Request::new("GET", "/").with("X-Fill", &"a".repeat(300_000)) },
            { "HeaderTooLarge" },
        ),
    ];
    each(cases, |(what, request, name)| {
        refused(&stage.ask(&request), name, what);
    });
}

#[test]
fn requests_of_one_connection_are_answered_in_order() {
    let stage = Stage::new();
    let mut client = stage.client();
    let paths = ["/robots.txt", "/sitemap.xml", "/healthz", "/robots.txt"];
    for path in paths {
        let answer = client.ask(&Request::new("GET", path));
        common(&answer, path);
        assert_eq!(
            answer.body,
            stage.get(path).body,
            "{path} over a persistent connection"
        );
    }
}
