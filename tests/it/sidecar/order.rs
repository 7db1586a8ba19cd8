//! The webhook's checks and their order: a request with two faults is refused for the one that is
//! checked first.

use crate::support::check::{each, request_id};
use crate::support::request::{Request, padded};
use crate::support::sidecar::content::{ALICE, BOB};
use crate::support::sidecar::event::{Event, NOBODY, SIGNATURE, WEBHOOK, sign, signed, time};
use crate::support::sidecar::expect::{anonymous, answered, refused};
use crate::support::sidecar::stage::{Stage, WEBHOOK_SECRET};

/// The possible faults in the order in which they are checked, and the refusal of each.
const FAULTS: [(Fault, &str); 8] = [
    (Fault::Method, "MethodNotAllowed"),
    (Fault::NoSecret, "NotConfigured"),
    (Fault::Size, "PayloadTooLarge"),
    (Fault::Coding, "UnsupportedMediaType"),
    (Fault::Signature, "InvalidSignature"),
    (Fault::Type, "UnsupportedMediaType"),
    (Fault::Json, "InvalidRequest"),
    (Fault::Subject, "UnknownSubject"),
];

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fault {
    Method,
    NoSecret,
    Size,
    Coding,
    Signature,
    Type,
    Json,
    Subject,
}

/// A request with these faults and no others, about this subject.
fn with_faults(subject: &str, faults: &[Fault]) -> Request {
    let has = |fault| faults.contains(&fault);
    let subject = if has(Fault::Subject) { NOBODY } else { subject };
    let event = Event::new("order", subject, "pending", 0).body();
    let event = if has(Fault::Json) {
        event.replacen('{', "{{", 1)
    } else {
        event
    };
    let body = padded(&event, if has(Fault::Size) { 16_385 } else { 1_000 });
    let method = if has(Fault::Method) { "PUT" } else { "POST" };
    let kind = if has(Fault::Type) {
        "text/plain"
    } else {
        "application/json"
    };
    let secret = if has(Fault::Signature) {
        "not the verifier's"
    } else {
        WEBHOOK_SECRET
    };
    let request = Request::post(&body)
        .line(&format!("{method} {WEBHOOK} HTTP/1.1"))
        .without("Content-Type")
        .with("Content-Type", kind)
        .with(SIGNATURE, &sign(secret, &body));
    if has(Fault::Coding) {
        request.with("Content-Encoding", "gzip")
    } else {
        request
    }
}

#[test]
fn of_two_faults_the_earlier_is_reported() {
    let configured = Stage::new();
    let without = Stage::with(&[("sidecar.age.webhook_secret_files", "[]")]);
    let subjects = [&configured, &without].map(|stage| stage.session(ALICE));
    let pairs = (0..FAULTS.len()).flat_map(|first| (first..FAULTS.len()).map(move |n| (first, n)));
    each(pairs, |(first, second)| {
        let (faults, name) = ([FAULTS[first].0, FAULTS[second].0], FAULTS[first].1);
        let lacks_secret = faults.contains(&Fault::NoSecret);
        let (stage, subject) = if lacks_secret {
            (&without, &subjects[1])
        } else {
            (&configured, &subjects[0])
        };
        let answer = stage.ask(&with_faults(subject, &faults));
        let message = refused(&answer, name, &format!("{faults:?}"));
        if name == "UnsupportedMediaType" {
            let tells_type = message.contains("Content-Type");
            assert_eq!(
                tells_type,
                FAULTS[first].0 == Fault::Type,
                "{faults:?}: {message}"
            );
        }
    });
    let fine = configured.ask(&with_faults(&subjects[0], &[]));
    answered(&fine, 200, "without a fault");
    let unconfigured = without.ask(&with_faults(&subjects[1], &[]));
    refused(
        &unconfigured,
        "NotConfigured",
        "nothing is taken in without a secret",
    );
}

#[test]
fn only_json_without_a_coding_is_taken() {
    let stage = Stage::empty(&[]);
    let event = Event::new("types", NOBODY, "verified", 0).request();
    for kind in [
        "application/json",
        "Application/JSON",
        "application/json; charset=utf-8",
    ] {
        let request = event
            .clone()
            .without("Content-Type")
            .with("Content-Type", kind);
        refused(&stage.ask(&request), "UnknownSubject", kind);
    }
    for kind in [
        "",
        "text/json",
        "application/jsonx",
        "application/x-www-form-urlencoded",
    ] {
        let request = event
            .clone()
            .without("Content-Type")
            .with("Content-Type", kind);
        refused(&stage.ask(&request), "UnsupportedMediaType", kind);
    }
    let untyped = event.clone().without("Content-Type");
    refused(&stage.ask(&untyped), "UnsupportedMediaType", "no type");
    for coding in ["gzip", "br", "deflate", "identity, gzip", "chunked"] {
        let request = event.clone().with("Content-Encoding", coding);
        refused(&stage.ask(&request), "UnsupportedMediaType", coding);
    }
    let plain = event.with("Content-Encoding", "identity");
    refused(
        &stage.ask(&plain),
        "UnknownSubject",
        "identity is no coding",
    );
}

#[test]
fn a_body_has_exactly_the_seven_fields() {
    let stage = Stage::new();
    let subject = stage.session(ALICE);
    let event = || Event::new("fields", &subject, "verified", 0);
    let fields = [
        "event_id",
        "subject_ref",
        "status",
        "age_band",
        "verified_at",
        "occurred_at",
    ];
    let forbidden = [
        "date_of_birth",
        "dateOfBirth",
        "birthdate",
        "age",
        "name",
        "email",
        "phone",
        "address",
        "document_image",
        "document_number",
        "photograph",
        "selfie",
        "evidence",
        "ip_address",
        "metadata",
        "user_id",
        "Status",
        "event_id ",
    ];
    each(forbidden, |name| {
        let answer = stage.send(&event().with(name, "1990-01-01"));
        let message = refused(&answer, "InvalidRequest", name);
        assert!(
            !message.contains("1990"),
            "{name}: its value is repeated: {message}"
        );
    });
    each(fields, |name| {
        refused(&stage.send(&event().without(name)), "InvalidRequest", name);
    });
    each(fields, |name| {
        let answer = stage.send(&event().with(name, 7));
        refused(&answer, "InvalidRequest", &format!("{name} as a number"));
    });
    let standing = stage.standing(ALICE);
    assert_eq!(
        standing["status"], "pending",
        "nothing of it was taken in: {standing}"
    );
    answered(&stage.send(&event()), 200, "the seven alone");
}

#[test]
fn a_body_must_be_one_strict_object() {
    let stage = Stage::new();
    let subject = stage.session(ALICE);
    let event = Event::new("strict", &subject, "pending", 0).body();
    let doubled = |text: &str| event.replacen('{', &format!("{{{text},"), 1);
    let bodies: Vec<(&str, Vec<u8>)> = vec![
        ("nothing", Vec::new()),
        ("a word", b"pending".to_vec()),
        ("null", b"null".to_vec()),
        ("an array", format!("[{event}]").into_bytes()),
        ("cut short", event.as_bytes()[..event.len() - 1].to_vec()),
        ("something behind it", format!("{event}x").into_bytes()),
        ("two of them", format!("{event}{event}").into_bytes()),
        (
            "a field twice",
            doubled("\"status\":\"verified\"").into_bytes(),
        ),
        (
            "a field twice, spelled in escapes",
            doubled(r#""st\u0061tus":"x""#).into_bytes(),
        ),
        (
            "a byte order mark",
            [b"\xef\xbb\xbf", event.as_bytes()].concat(),
        ),
        ("a NUL behind it", format!("{event}\0").into_bytes()),
        (
            "a comma too many",
            event.replacen('}', ",}", 1).into_bytes(),
        ),
        (
            "a control character",
            event.replace("strict", "\u{1}").into_bytes(),
        ),
        (
            "no UTF-8",
            [b"{\"event_id\":\"\xff\"", &event.as_bytes()[20..]].concat(),
        ),
        (
            "deep",
            format!("{}{}", "[".repeat(8_000), "]".repeat(8_000)).into_bytes(),
        ),
        ("a form", b"event_id=1&status=pending".to_vec()),
    ];
    each(bodies, |(what, body)| {
        refused(&stage.ask(&signed(body)), "InvalidRequest", what);
    });
    let spaced = event.replace(',', " ,\r\n\t");
    answered(&stage.ask(&signed(spaced)), 200, "white space is JSON");
}

#[test]
fn a_field_means_something_or_is_refused() {
    let stage = Stage::new();
    let subject = stage.session(BOB);
    let verified = || Event::new("meaning", &subject, "verified", 0);
    let pending = || Event::new("meaning", &subject, "pending", 0);
    let (late, early) = (time(86_400), time(-200 * 86_400));
    let long = "a".repeat(129);
    let cases = [
        ("no id", verified().with("event_id", "")),
        ("an id that is too long", verified().with("event_id", long)),
        ("an id with a space", verified().with("event_id", "a b")),
        (
            "a subject in capitals",
            verified().with("subject_ref", NOBODY.to_uppercase()),
        ),
        (
            "a short subject",
            verified().with("subject_ref", &NOBODY[1..]),
        ),
        ("an unknown status", verified().with("status", "approved")),
        (
            "a status in capitals",
            verified().with("status", "Verified"),
        ),
        (
            "no status of a subject",
            verified().with("status", "unverified"),
        ),
        ("an unknown band", verified().with("age_band", "37")),
        (
            "no band",
            verified().with("age_band", serde_json::Value::Null),
        ),
        (
            "a band of one who is pending",
            pending().with("age_band", "18_plus"),
        ),
        (
            "a verification of one who is pending",
            pending().with("verified_at", time(0)),
        ),
        (
            "an end of one who is pending",
            pending().with("expires_at", time(9_000)),
        ),
        (
            "no verification",
            verified().with("verified_at", serde_json::Value::Null),
        ),
        (
            "verified after it occurred",
            verified().with("verified_at", time(301)),
        ),
        (
            "an end before its begin",
            verified().with("expires_at", time(0)),
        ),
        ("in the future", pending().with("occurred_at", late)),
        (
            "so long ago that it may have been forgotten",
            pending().with("occurred_at", early),
        ),
        (
            "before there was any of this",
            pending().with("occurred_at", "1999-12-31T23:59:59Z"),
        ),
        ("a day", pending().with("occurred_at", "2026-09-09")),
        (
            "no zone",
            pending().with("occurred_at", "2026-09-09T12:00:00"),
        ),
        (
            "no day there is",
            pending().with("occurred_at", "2026-02-30T12:00:00Z"),
        ),
        (
            "seconds since 1970",
            pending().with("occurred_at", "1788912000"),
        ),
    ];
    each(cases, |(what, event)| {
        refused(&stage.send(&event), "InvalidRequest", what);
    });
    assert_eq!(
        stage.standing(BOB)["status"],
        "pending",
        "nothing of it was taken in"
    );
    let offset = pending().with("occurred_at", time(7_200).replace('Z', ".5+02:00"));
    answered(&stage.send(&offset), 200, "another zone is a zone");
}

#[test]
fn an_unknown_subject_leaves_no_trace() {
    let stage = Stage::new();
    let event = Event::new("later", NOBODY, "verified", 0);
    for _ in 0..2 {
        let answer = stage.send(&event);
        refused(&answer, "UnknownSubject", "nobody");
        assert!(!request_id(&answer).is_empty(), "but it can be reported");
    }
    stage.sql(&format!(
        "INSERT INTO age_session (subject_ref, user_id, status, created_us, expires_us)
           VALUES ('{NOBODY}', '{BOB}', 'pending', 1, 4000000000000000);"
    ));
    let body = answered(&stage.send(&event), 200, "the same event once it is known");
    assert_eq!(body["status"], "applied", "it is no duplicate: {body}");
}

#[test]
fn refusals_of_a_signature_are_all_the_same() {
    let stage = Stage::new();
    let subject = stage.session(ALICE);
    let good = Event::new("uniform", &subject, "verified", 0);
    let bodies = [
        good.body(),
        "{}".to_owned(),
        String::new(),
        "not JSON".to_owned(),
    ];
    let unsigned = |body: &String| crate::support::sidecar::stage::post(WEBHOOK, body);
    let mut answers = std::collections::BTreeSet::new();
    for body in &bodies {
        for value in [
            None,
            Some(""),
            Some("x"),
            Some(&*sign("another secret", body)),
        ] {
            let request = unsigned(body);
            let request = value
                .into_iter()
                .fold(request, |own, value| own.with(SIGNATURE, value));
            let answer = stage.ask(&request);
            refused(
                &answer,
                "InvalidSignature",
                &format!("{value:?} over {body}"),
            );
            answers.insert(anonymous(&answer));
        }
    }
    assert_eq!(answers.len(), 1, "the answers differ: {answers:?}");
}
