//! `age-verification-session`: who may start a session, how many, and the reported status.

use serde_json::{Value, json};

use crate::support::check::each;
use crate::support::request::Request;
use crate::support::sidecar::content::{ALICE, BOB, CAROL, STRANGER};
use crate::support::sidecar::event::{Event, NOBODY, SESSION, time};
use crate::support::sidecar::expect::{answered, refused};
use crate::support::sidecar::stage::{Stage, post};
use crate::support::sidecar::token::{Token, second_of, seconds_from_now};

/// Seconds from now to a timestamp of a response.
fn seconds_until(value: &Value) -> i64 {
    let second = second_of(value).unwrap_or_else(|| panic!("{value} is no date in UTC"));
    second - seconds_from_now(0)
}

#[test]
fn a_session_reference_reveals_nothing() {
    let stage = Stage::new();
    let [first, second] = [0, 1].map(|_| {
        let answer = stage.ask(&Token::of(ALICE).post(SESSION));
        let body = answered(&answer, 201, "a new session");
        assert_eq!(
            body.as_object().map(serde_json::Map::len),
            Some(3),
            "no more: {body}"
        );
        assert_eq!(body["status"], "pending", "{body}");
        let left = seconds_until(&body["expires_at"]);
        assert!(
            (86_390..=86_400).contains(&left),
            "a day by default: {body}"
        );
        body["subject_ref"].as_str().unwrap_or_default().to_owned()
    });
    for reference in [&first, &second] {
        let hex = reference
            .bytes()
            .all(|own| matches!(own, b'0'..=b'9' | b'a'..=b'f'));
        assert!(
            hex && reference.len() == 48,
            "{reference} is 24 bytes in hex"
        );
    }
    assert_ne!(first, second, "each session has its own");
    for body in ["", "{}", " {\r\n} ", "{\t}"] {
        let answer = stage.ask(&Token::of(BOB).on(post(SESSION, body)));
        answered(&answer, 201, &format!("{body:?} is nothing"));
    }
}

#[test]
fn a_session_has_its_redirect_and_lifetime() {
    let stage = Stage::with(&[
        (
            "sidecar.age.verification_url",
            "\"https://verifier.example/start?ref={subject_ref}\"",
        ),
        ("sidecar.age.session_lifetime", "\"2h\""),
    ]);
    let body = answered(
        &stage.ask(&Token::of(ALICE).post(SESSION)),
        201,
        "a session",
    );
    let reference = body["subject_ref"].as_str().unwrap_or_default();
    let expected = format!("https://verifier.example/start?ref={reference}");
    assert_eq!(
        body["verification_url"], expected,
        "the reference is filled in"
    );
    let left = seconds_until(&body["expires_at"]);
    assert!((7_190..=7_200).contains(&left), "two hours: {body}");
}

#[test]
fn a_user_gets_the_effective_status() {
    let stage = Stage::new();
    let only = |status: &str| json!({ "status": status });
    assert_eq!(
        stage.standing(ALICE),
        only("unverified"),
        "before any session"
    );
    let subject = stage.session(ALICE);
    assert_eq!(
        stage.standing(ALICE)["status"],
        "pending",
        "once it is begun"
    );
    let send = |id: &str, event: Event| answered(&stage.send(&event), 200, id);
    send(
        "verified",
        Event::new("verified", &subject, "verified", 0).with("expires_at", time(90_000)),
    );
    let standing = stage.standing(ALICE);
    assert_eq!(standing["status"], "verified", "{standing}");
    assert_eq!(standing["age_band"], "18_plus", "{standing}");
    assert_eq!(standing["verified_at"], time(0), "{standing}");
    assert_eq!(standing["expires_at"], time(90_000), "{standing}");
    assert_eq!(
        standing.as_object().map(serde_json::Map::len),
        Some(4),
        "no more: {standing}"
    );
    send(
        "over",
        Event::new("over", &subject, "verified", 10).with("expires_at", time(3_000)),
    );
    assert_eq!(
        stage.standing(ALICE)["status"],
        "expired",
        "its end is in the past"
    );
    for (second, status) in [
        (20, "expired"),
        (30, "rejected"),
        (40, "pending"),
        (50, "revoked"),
    ] {
        send(
            status,
            Event::new(&format!("at-{second}"), &subject, status, second),
        );
        assert_eq!(
            stage.standing(ALICE)["status"],
            status,
            "as the verifier says"
        );
    }
    assert_eq!(
        stage.standing(BOB),
        only("unverified"),
        "nobody else is touched"
    );
}

#[test]
fn a_verification_without_expiry_uses_the_default() {
    let stage = Stage::with(&[("sidecar.age.validity", "\"2h\"")]);
    let subject = stage.session(ALICE);
    answered(
        &stage.send(&Event::new("e", &subject, "verified", 0)),
        200,
        "an hour ago",
    );
    let standing = stage.standing(ALICE);
    assert_eq!(standing["status"], "verified", "{standing}");
    assert_eq!(
        standing["expires_at"],
        time(7_200),
        "an hour is left: {standing}"
    );
    let brief = Stage::with(&[("sidecar.age.validity", "\"30m\"")]);
    let subject = brief.session(ALICE);
    answered(
        &brief.send(&Event::new("e", &subject, "verified", 0)),
        200,
        "an hour ago",
    );
    assert_eq!(
        brief.standing(ALICE)["status"],
        "expired",
        "which is too long ago"
    );
}

#[test]
fn only_signed_in_users_have_sessions() {
    let stage = Stage::new();
    let service = Token::of_service(
        crate::support::sidecar::content::ALICE_DID,
        super::skeleton::SERVICE,
        "x.y.z",
    );
    let cases = [
        (
            "an expired session",
            Token::of(ALICE).with("exp", json!(1)),
            "JwtExpired",
        ),
        (
            "another secret",
            Token::of(ALICE).signed_with("?"),
            "BadJwtSignature",
        ),
        (
            "another audience",
            Token::of(ALICE).with("aud", json!("x")),
            "BadJwtAudience",
        ),
        (
            "the public key",
            Token::of(ALICE).with("role", json!("anon")),
            "BadJwt",
        ),
        ("no user", Token::of(ALICE).without("sub"), "BadJwt"),
        (
            "an anonymous user",
            Token::of(ALICE).with("is_anonymous", json!(true)),
            "Forbidden",
        ),
        ("a banned user", Token::of(CAROL), "Forbidden"),
    ];
    each(cases, |(what, token, name)| {
        refused(&stage.ask(&token.get(SESSION)), name, what);
        refused(&stage.ask(&token.post(SESSION)), name, what);
    });
    for method in ["GET", "POST"] {
        let nobody = Request::new(method, SESSION).with("Content-Length", "0");
        refused(&stage.ask(&nobody), "AuthenticationRequired", method);
        let answer = stage.ask(&service.on(nobody));
        assert_eq!(
            answer.status,
            401,
            "{method} as an AT Protocol account: {}",
            answer.text()
        );
    }
    assert_eq!(
        stage.standing(STRANGER)["status"],
        "unverified",
        "a user without an account row"
    );
}

#[test]
fn a_session_is_begun_with_nothing() {
    let stage = Stage::new();
    let bodies = [
        r#"{"date_of_birth":"1990-01-01"}"#,
        r#"{"email":"a@mail.example"}"#,
        r#"{"subject_ref":"00"}"#,
        "[]",
        "null",
        "{",
        "{}{}",
        "{} x",
        "\u{feff}{}",
        "x",
        "1",
    ];
    each(bodies, |body| {
        let answer = stage.ask(&Token::of(ALICE).on(post(SESSION, body)));
        let message = refused(&answer, "InvalidRequest", body);
        assert!(
            !message.contains("1990") && !message.contains("mail"),
            "{body}: {message}"
        );
    });
    let typed = post(SESSION, "{}")
        .without("Content-Type")
        .with("Content-Type", "text/plain");
    refused(
        &stage.ask(&Token::of(ALICE).on(typed)),
        "UnsupportedMediaType",
        "no JSON",
    );
    let coded = post(SESSION, "{}").with("Content-Encoding", "gzip");
    refused(
        &stage.ask(&Token::of(ALICE).on(coded)),
        "UnsupportedMediaType",
        "a coding",
    );
    assert_eq!(
        stage.standing(ALICE)["status"],
        "unverified",
        "none of them began one"
    );
    let nobody = stage.ask(&post(SESSION, r#"{"x":1}"#));
    refused(
        &nobody,
        "AuthenticationRequired",
        "without a session no fault of the body is named",
    );
}

#[test]
fn a_user_may_begin_five_sessions_per_minute() {
    let stage = Stage::new();
    for _ in 0..5 {
        stage.session(ALICE);
    }
    for _ in 0..2 {
        let answer = stage.ask(&Token::of(ALICE).post(SESSION));
        refused(&answer, "RateLimitExceeded", "the sixth");
        let retry: i64 = answer
            .header("Retry-After")
            .unwrap_or_default()
            .parse()
            .unwrap();
        assert!(
            (1..=60).contains(&retry),
            "when the first is a minute old: {retry}"
        );
    }
    stage.session(BOB);
    stage.sql("UPDATE age_session SET created_us = created_us - 61000000;");
    stage.session(ALICE);
}

#[test]
fn a_user_may_have_ten_open_sessions() {
    let stage = Stage::new();
    let open = |number: u32, expires: i64| {
        let (created, expires) = (seconds_from_now(-7_200) * 1_000_000, expires * 1_000_000);
        stage.sql(&format!(
            "INSERT INTO age_session (subject_ref, user_id, status, created_us, expires_us)
               VALUES ('{}{number:02}', '{ALICE}', 'pending', {created}, {expires});",
            &NOBODY[2..]
        ));
    };
    for number in 0..9 {
        open(number, seconds_from_now(3_600 + i64::from(number)));
    }
    // an expired session does not count
    open(9, seconds_from_now(-1));
    stage.session(ALICE);
    let answer = stage.ask(&Token::of(ALICE).post(SESSION));
    refused(&answer, "RateLimitExceeded", "the eleventh");
    let retry: i64 = answer
        .header("Retry-After")
        .unwrap_or_default()
        .parse()
        .unwrap();
    assert!(
        (3_500..=3_600).contains(&retry),
        "when the first of them is over: {retry}"
    );
    let used = format!("{}00", &NOBODY[2..]);
    answered(
        &stage.send(&Event::new("used", &used, "rejected", 0)),
        200,
        "one comes to its end",
    );
    stage.session(ALICE);
}

#[test]
fn an_open_session_is_pending_until_it_expires() {
    let stage = Stage::with(&[("sidecar.age.session_lifetime", "\"1h\"")]);
    let subject = stage.session(ALICE);
    stage.sql("UPDATE age_session SET expires_us = created_us - 1;");
    let late = stage.send(&Event::new("late", &subject, "verified", 0));
    answered(&late, 200, "an event that was under way still lands");
    assert_eq!(stage.standing(ALICE)["status"], "verified", "and counts");
}

#[test]
fn without_keys_for_sessions_there_are_none() {
    let stage = Stage::with(&[("sidecar.session.hs256_secret_files", "[]")]);
    for request in [
        Token::of(ALICE).get(SESSION),
        Token::of(ALICE).post(SESSION),
    ] {
        refused(&stage.ask(&request), "NotConfigured", "nobody can be known");
    }
    refused(
        &stage.get(SESSION),
        "NotConfigured",
        "with or without a session",
    );
}
