//! Verifier events: permitted status transitions, late events, and duplicates.

use serde_json::{Value, json};

use crate::operator::Page;
use crate::support::check::each;
use crate::support::request::Request;
use crate::support::response::Response;
use crate::support::sidecar::content::{ALICE, BOB};
use crate::support::sidecar::event::{Event, NOBODY, WEBHOOK};
use crate::support::sidecar::expect::{answered, refused};
use crate::support::sidecar::stage::{Stage, post};

/// In ascending order of precedence.
const STATUSES: [&str; 5] = ["pending", "verified", "rejected", "expired", "revoked"];

/// The effect of an event of each status on a subject of each status: `y` is applied, `n` refused.
const TABLE: [(&str, &str); 5] = [
    ("pending", "yyyyy"),
    ("verified", "nyyyy"),
    ("rejected", "yyyny"),
    ("expired", "yyyyy"),
    ("revoked", "nnnny"),
];

/// A distinct user per number: each may start few sessions per minute.
fn user(number: usize) -> String {
    format!("00000000-0000-4000-9000-{number:012}")
}

fn applied(answer: &Response, state: &str, why: &str) {
    let body = answered(answer, 200, why);
    assert_eq!(
        body,
        json!({ "status": "applied", "state": state }),
        "{why}"
    );
}

fn duplicate(answer: &Response, outcome: &str, state: &str, why: &str) {
    let body = answered(answer, 200, why);
    let expected = json!({ "status": "duplicate", "outcome": outcome, "state": state });
    assert_eq!(body, expected, "{why}");
}

#[test]
fn one_status_follows_another_by_the_table() {
    let stage = Stage::new();
    let cells = TABLE
        .iter()
        .enumerate()
        .flat_map(|(row, (from, verdicts))| {
            let cells = STATUSES.iter().zip(verdicts.chars()).enumerate();
            cells.map(move |(column, (to, verdict))| (row * 5 + column, *from, *to, verdict == 'y'))
        });
    each(cells, |(number, from, to, follows)| {
        let why = format!("{from} to {to}");
        let user = user(number);
        let subject = stage.session(&user);
        let first = Event::new(&format!("first-{number}"), &subject, from, 0);
        applied(&stage.send(&first), from, &format!("{why}: the first"));
        let second = Event::new(&format!("second-{number}"), &subject, to, 1);
        let answer = stage.send(&second);
        if follows {
            applied(&answer, to, &why);
            duplicate(&stage.send(&second), "applied", to, &why);
        } else {
            refused(&answer, "InvalidTransition", &why);
            duplicate(&stage.send(&second), "invalid", from, &why);
        }
        let standing = stage.standing(&user);
        assert_eq!(
            standing["status"],
            if follows { to } else { from },
            "{why}: the user"
        );
    });
}

#[test]
fn older_events_are_stale() {
    let stage = Stage::new();
    let subject = stage.session(ALICE);
    applied(
        &stage.send(&Event::new("new", &subject, "verified", 10)),
        "verified",
        "the newest",
    );
    for (id, status, second) in [
        ("old", "revoked", 9),
        ("older", "pending", -86_400),
        ("same", "verified", 10),
    ] {
        let event = Event::new(id, &subject, status, second);
        refused(&stage.send(&event), "StaleTransition", id);
        duplicate(&stage.send(&event), "stale", "verified", id);
    }
    assert_eq!(stage.standing(ALICE)["status"], "verified", "nothing moved");
    let newer = Event::new("newer", &subject, "revoked", 11);
    applied(&stage.send(&newer), "revoked", "what is newer moves it");
    duplicate(
        &stage.send(&Event::new("old", &subject, "revoked", 9)),
        "stale",
        "verified",
        "a repeated event tells what was true when it came first",
    );
}

#[test]
fn simultaneous_events_apply_the_graver_one() {
    let order = STATUSES;
    let stage = Stage::new();
    let pairs = (0..5).flat_map(|first| (0..5).map(move |second| (first, second)));
    each(pairs, |(first, second)| {
        let why = format!("{} and {}", order[first], order[second]);
        let subject = stage.session(&user(100 + first * 5 + second));
        let id = |at: &str| format!("{at}-{first}-{second}");
        let event = Event::new(&id("a"), &subject, order[first], 5);
        applied(&stage.send(&event), order[first], &why);
        let answer = stage.send(&Event::new(&id("b"), &subject, order[second], 5));
        if second > first {
            applied(&answer, order[second], &why);
        } else {
            refused(&answer, "StaleTransition", &why);
        }
    });
}

#[test]
fn a_repeated_id_with_new_meaning_conflicts() {
    let stage = Stage::new();
    let subject = stage.session(ALICE);
    let other_subject = stage.session(BOB);
    let event = || Event::new("one", &subject, "verified", 0);
    applied(&stage.send(&event()), "verified", "the first time");
    let at = crate::support::sidecar::event::time(0);
    let in_other_words = [
        ("byte for byte", event()),
        (
            "a fraction of nothing",
            event().with("occurred_at", at.replace('Z', ".000Z")),
        ),
        (
            "an offset of nothing",
            event().with("occurred_at", at.replace('Z', "+00:00")),
        ),
        ("an absent end", event().without("expires_at")),
    ];
    each(in_other_words, |(what, event)| {
        duplicate(&stage.send(&event), "applied", "verified", what);
    });
    let spaced = event().body().replace(',', ",\n  ");
    duplicate(
        &stage.ask(&crate::support::sidecar::event::signed(spaced)),
        "applied",
        "verified",
        "white space",
    );
    let other_meanings = [
        ("another status", Event::new("one", &subject, "revoked", 0)),
        (
            "another instant",
            event().with("occurred_at", crate::support::sidecar::event::time(1)),
        ),
        ("another band", event().with("age_band", "16_17")),
        (
            "another verification",
            event().with("verified_at", crate::support::sidecar::event::time(-1)),
        ),
        (
            "another end",
            event().with("expires_at", crate::support::sidecar::event::time(90_000)),
        ),
        (
            "another subject",
            event().with("subject_ref", &*other_subject),
        ),
        (
            "a subject that is unknown",
            event().with("subject_ref", crate::support::sidecar::event::NOBODY),
        ),
    ];
    each(other_meanings, |(what, event)| {
        refused(&stage.send(&event), "EventConflict", what);
    });
    duplicate(
        &stage.send(&event()),
        "applied",
        "verified",
        "the first one stands",
    );
    assert_eq!(
        stage.standing(ALICE)["status"],
        "verified",
        "and nothing else moved"
    );
    assert_eq!(stage.standing(BOB)["status"], "pending", "for nobody");
}

#[test]
fn the_same_event_at_once_is_applied_once() {
    let stage = Stage::new();
    let subject = stage.session(ALICE);
    let request = Event::new("burst", &subject, "verified", 0).request();
    let bodies: Vec<Value> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..20)
            .map(|_| scope.spawn(|| answered(&stage.ask(&request), 200, "one of many")))
            .collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let count = |status: &str| {
        bodies
            .iter()
            .filter(|body| body["status"] == status)
            .count()
    };
    assert_eq!(
        (count("applied"), count("duplicate")),
        (1, 19),
        "{bodies:?}"
    );
}

#[test]
fn an_acknowledged_event_survives_a_restart() {
    let mut stage = Stage::new();
    let subject = stage.session(ALICE);
    let event = Event::new("durable", &subject, "verified", 0);
    applied(&stage.send(&event), "verified", "the first time");
    stage.restart();
    duplicate(&stage.send(&event), "applied", "verified", "after a kill");
    assert_eq!(
        stage.standing(ALICE)["status"],
        "verified",
        "it is still known"
    );
}

#[test]
fn a_verification_ends_with_its_own_attempt() {
    let stage = Stage::new();
    let (old, new) = (stage.session(ALICE), stage.session(ALICE));
    applied(
        &stage.send(&Event::new("n", &new, "verified", 10)),
        "verified",
        "the newer attempt",
    );
    applied(
        &stage.send(&Event::new("o", &old, "rejected", 5)),
        "rejected",
        "the older attempt",
    );
    for (id, subject, status, second) in [("r", &old, "revoked", 20), ("p", &new, "expired", 30)] {
        assert_eq!(
            stage.standing(ALICE)["status"],
            "verified",
            "no other attempt takes it away"
        );
        applied(
            &stage.send(&Event::new(id, subject, status, second)),
            status,
            "a later word",
        );
    }
    assert_eq!(
        stage.standing(ALICE)["status"],
        "expired",
        "its own attempt does"
    );
}

#[test]
fn the_page_shows_refused_webhooks_by_reason() {
    let stage = Stage::new();
    let event = Event::new("an-event", NOBODY, "pending", 0);
    for (request, reason) in [
        (Request::new("GET", WEBHOOK), "MethodNotAllowed"),
        (post(WEBHOOK, event.body()), "InvalidSignature"),
        (post(WEBHOOK, "{}"), "InvalidSignature"),
        (event.request(), "UnknownSubject"),
    ] {
        refused(&stage.ask(&request), reason, reason);
    }
    let ours = stage.session(ALICE);
    let good = Event::new("another", &ours, "pending", 0);
    applied(
        &stage.send(&good),
        "pending",
        "what is applied is not shown",
    );
    let rows = |now: &Value| now["sidecar"]["refused_webhooks"].as_array().cloned();
    let shown = Page::listening(&stage.edge).until("three reasons", |now| {
        rows(now).is_some_and(|rows| rows.len() == 3 && rows[0]["reason"] == "unknown_subject")
    });
    let rows = rows(&shown).unwrap_or_default();
    let totals = rows
        .iter()
        .map(|row| (row["reason"].as_str(), row["total"].as_u64()));
    let expected = [
        (Some("unknown_subject"), Some(1)),
        (Some("bad_webhook_signature"), Some(2)),
        (Some("wrong_http_method"), Some(1)),
    ];
    assert!(totals.eq(expected), "the newest first: {rows:?}");
    let all = Value::from(rows).to_string();
    for private in [NOBODY, "an-event", "127.0.0.1"] {
        assert!(!all.contains(private), "{private} in {all}");
    }
}
