//! Viewers: public feeds need no token, and `whoto-follow` requires a signed-in user.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use k256::ecdsa::signature::Signer as _;
use k256::ecdsa::{Signature, SigningKey};
use serde_json::{Value, json};

use super::skeleton::{PATH, SERVICE, feed, posts};
use crate::support::check::each;
use crate::support::client::PATIENCE;
use crate::support::request::Request;
use crate::support::response::Response;
use crate::support::sidecar::content::{
    ALICE, ALICE_DID, BOB, CAROL, FRANK_DID, GINA_DID, PAGED_FEED, STRANGER,
};
use crate::support::sidecar::expect::{anonymous, answered, refused};
use crate::support::sidecar::stage::Stage;
use crate::support::sidecar::token::{Token, seconds_from_now};
use crate::support::sidecar::upstream::{Answer, Upstream};

const METHOD: &str = "app.bsky.feed.getFeedSkeleton";
const ALIAS: &str = "/xrpc/app.bsky.feed.getFeedSkeleton";

fn personal() -> String {
    format!("{PATH}?{}", feed("whoto-follow"))
}

/// Asserts a refusal that is never cached and that varies by viewer.
fn refused_to_viewer(answer: &Response, name: &str, why: &str) {
    refused(answer, name, why);
    assert_private(answer, why);
}

fn assert_private(answer: &Response, why: &str) {
    assert_eq!(
        answer.header("Cache-Control"),
        Some("private, no-store"),
        "{why}: nobody keeps it"
    );
    let vary = answer.header("Vary").unwrap_or_default();
    assert!(
        vary.eq_ignore_ascii_case("Authorization"),
        "{why}: it varies by who asks: {vary}"
    );
}

#[test]
fn public_feeds_ignore_authorization_wholly() {
    let stage = Stage::new();
    let path = format!("{PATH}?{}", feed(PAGED_FEED));
    let plain = stage.get(&path);
    let good = Token::of(ALICE).text();
    let fields: [&[&str]; 9] = [
        &[""],
        &["Bearer"],
        &["Bearer nonsense"],
        &["Basic YWxpY2U6c2VjcmV0"],
        &[&format!("Bearer {good}")],
        &[&format!("Bearer {}", Token::of(CAROL).text())],
        &[&format!(
            "Bearer {}",
            Token::of(ALICE).with("exp", json!(1)).text()
        )],
        &["Bearer a.b.c", "Bearer a.b.c"],
        &[&format!("Bearer {}", "a".repeat(9_000))],
    ];
    each(fields, |fields| {
        let request = fields
            .iter()
            .fold(Request::new("GET", &path), |own, field| {
                own.with("Authorization", field)
            });
        let answer = stage.ask(&request);
        assert_eq!(anonymous(&answer), anonymous(&plain), "{fields:?}");
    });
    let vary = plain.header("Vary");
    assert_eq!(
        vary,
        Some("Accept-Encoding"),
        "the same for all clients: {plain:?}"
    );
}

#[test]
fn suggestions_are_for_the_one_who_asks() {
    let stage = Stage::new();
    for path in [personal(), format!("{ALIAS}?{}", feed("whoto-follow"))] {
        let answer = stage.ask(&Token::of(ALICE).get(&path));
        let body = answered(&answer, 200, &path);
        assert_private(&answer, &path);
        let items: Vec<(&str, &str)> = body["feed"]
            .as_array()
            .into_iter()
            .flatten()
            .map(|item| (text(&item["post"]), text(&item["feedContext"])))
            .collect();
        let post = |did: &str| format!("at://{did}/app.bsky.feed.post/3kintro000001");
        let (gina, frank) = (post(GINA_DID), post(FRANK_DID));
        let contexts = [
            format!("{GINA_DID} same_sets"),
            format!("{FRANK_DID} trades_nearby"),
        ];
        let expected = [(&*gina, &*contexts[0]), (&*frank, &*contexts[1])];
        assert_eq!(
            items, expected,
            "without whom she follows and who was taken down"
        );
        assert_eq!(body.get("cursor"), None, "there is no more");
    }
    let frank = "00000000-0000-4000-8000-000000000006";
    let body = answered(
        &stage.ask(&Token::of(frank).get(&personal())),
        200,
        "another user",
    );
    assert!(
        posts(&body)[0].contains(GINA_DID),
        "those for everybody: {body}"
    );
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}

#[test]
fn suggestions_have_pages() {
    let stage = Stage::new();
    let first = stage.ask(&Token::of(ALICE).get(&format!("{}&limit=1", personal())));
    let first = answered(&first, 200, "the first page");
    let cursor = text(&first["cursor"]);
    assert!(
        !cursor.is_empty() && posts(&first)[0].contains(GINA_DID),
        "{first}"
    );
    let next = format!("{}&limit=1&cursor={cursor}", personal());
    let second = answered(
        &stage.ask(&Token::of(ALICE).get(&next)),
        200,
        "the second page",
    );
    assert!(posts(&second)[0].contains(FRANK_DID), "{second}");
    assert_eq!(second.get("cursor"), None, "which is the last");
    let elsewhere = format!("{PATH}?{}&cursor={cursor}", feed(PAGED_FEED));
    refused(
        &stage.get(&elsewhere),
        "InvalidRequest",
        "a cursor of another feed",
    );
}

#[test]
fn a_signed_in_account_is_required() {
    let stage = Stage::new();
    let of = |user| Token::of(user).get(&personal());
    let anyone = || Request::new("GET", &personal());
    refused_to_viewer(&stage.ask(&anyone()), "AuthenticationRequired", "nobody");
    let basic = anyone().with("Authorization", "Basic YWxpY2U6c2VjcmV0");
    refused_to_viewer(
        &stage.ask(&basic),
        "AuthenticationRequired",
        "another scheme",
    );
    refused_to_viewer(&stage.ask(&of(BOB)), "Forbidden", "a user without a DID");
    refused_to_viewer(
        &stage.ask(&of(STRANGER)),
        "Forbidden",
        "a user whom nobody knows",
    );
    refused_to_viewer(&stage.ask(&of(CAROL)), "Forbidden", "a user who was banned");
    let anonymous = Token::of(ALICE)
        .with("is_anonymous", json!(true))
        .get(&personal());
    refused_to_viewer(
        &stage.ask(&anonymous),
        "Forbidden",
        "a user who is anonymous",
    );
    let lower = anyone().with(
        "Authorization",
        &format!("bearer {}", Token::of(ALICE).text()),
    );
    assert_eq!(stage.ask(&lower).status, 200, "the scheme is in any case");
    let twice = Token::of(ALICE).on(of(ALICE));
    let answer = stage.ask(&twice);
    assert_eq!(answer.status, 401, "one header: {}", answer.text());
}

#[test]
fn each_bad_session_has_its_error_name() {
    let stage = Stage::with(&[(
        "sidecar.session.issuer",
        "\"https://project.example/auth/v1\"",
    )]);
    let alice = || Token::of(ALICE);
    let expired = seconds_from_now(-3_600);
    let cases = [
        ("expired", alice().with("exp", json!(expired)), "JwtExpired"),
        (
            "not valid yet",
            alice().with("nbf", json!(seconds_from_now(3_600))),
            "JwtExpired",
        ),
        (
            "for others",
            alice().with("aud", json!("others")),
            "BadJwtAudience",
        ),
        ("for nobody", alice().without("aud"), "BadJwtAudience"),
        (
            "by somebody else",
            alice().with("iss", json!("https://evil.example")),
            "BadJwtIss",
        ),
        ("by nobody", alice().without("iss"), "BadJwtIss"),
        (
            "another secret",
            alice().signed_with(&"x".repeat(40)),
            "BadJwtSignature",
        ),
        ("no role", alice().without("role"), "BadJwt"),
        (
            "the public key",
            alice().with("role", json!("anon")).without("sub"),
            "BadJwt",
        ),
        (
            "the service's key",
            alice().with("role", json!("service_role")),
            "BadJwt",
        ),
        ("no user", alice().without("sub"), "BadJwt"),
        (
            "a user that is no UUID",
            alice().with("sub", json!("alice")),
            "BadJwt",
        ),
        ("no end", alice().without("exp"), "BadJwt"),
    ];
    each(cases, |(what, token, name)| {
        refused_to_viewer(&stage.ask(&token.get(&personal())), name, what);
    });
    for alg in ["none", "None", "HS384", "HS512", "RS256", "ES256", "EdDSA"] {
        let answer = stage.ask(&alice().header("alg", json!(alg)).get(&personal()));
        assert_eq!(answer.status, 401, "alg {alg}: {}", answer.text());
        let name = answer.json()["error"]
            .as_str()
            .unwrap_or_default()
            .to_owned();
        assert!(
            ["BadJwtType", "BadJwtSignature"].contains(&&*name),
            "alg {alg}: {name}"
        );
        refused_to_viewer(&answer, &name, alg);
    }
    let texts = [
        "nonsense",
        "a.b",
        "a.b.c",
        "..",
        "a.b.c.d",
        &"a".repeat(8_193),
    ];
    each(texts, |text| {
        let request = Request::new("GET", &personal());
        let answer = stage.ask(&request.with("Authorization", &format!("Bearer {text}")));
        refused_to_viewer(&answer, "BadJwt", text);
    });
    let listed = alice().with("aud", json!(["others", "authenticated"]));
    assert_eq!(
        stage.ask(&listed.get(&personal())).status,
        200,
        "an audience in a list"
    );
}

#[test]
fn each_bad_service_token_has_its_error_name() {
    let closed = format!("\"http://{}\"", crate::support::node::Node::nowhere());
    let stage = Stage::with(&[("sidecar.session.plc_url", &*closed)]);
    let of = |issuer: &str| Token::of_service(issuer, SERVICE, METHOD);
    let alice = || of(ALICE_DID);
    let cases = [
        (
            "for another method",
            alice().with("lxm", json!("app.bsky.feed.getFeed")),
            { "BadJwtLexiconMethod" },
        ),
        (
            "for any method",
            alice().without("lxm"),
            "BadJwtLexiconMethod",
        ),
        (
            "for another service",
            alice().with("aud", json!("did:web:api.example")),
            { "BadJwtAudience" },
        ),
        (
            "for another part of it",
            alice().with("aud", json!(format!("{SERVICE}#other"))),
            { "BadJwtAudience" },
        ),
        (
            "expired",
            alice().with("exp", json!(seconds_from_now(-3_600))),
            "JwtExpired",
        ),
        (
            "an access token",
            alice().header("typ", json!("at+jwt")),
            "BadJwtType",
        ),
        (
            "a refresh token",
            alice().header("typ", json!("refresh+jwt")),
            "BadJwtType",
        ),
        (
            "a key of its own",
            of("did:key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme"),
            { "BadJwtIss" },
        ),
        (
            "a part of a DID",
            of(&format!("{ALICE_DID}#atproto_labeler")),
            "BadJwtIss",
        ),
        ("an address", of("did:web:127.0.0.1"), "BadJwtIss"),
        ("a path", of("did:web:alice.example:path"), "BadJwtIss"),
        ("this machine", of("did:web:localhost%3A80"), "BadJwtIss"),
        ("a directory that is not there", alice(), "KeysUnavailable"),
    ];
    each(cases, |(what, token, name)| {
        refused_to_viewer(&stage.ask(&token.get(&personal())), name, what);
    });
}

/// The DID document of an account on this machine, and its DID.
fn account(key: &SigningKey) -> (Upstream, String) {
    let point = key.verifying_key().to_encoded_point(true);
    let multikey = bs58::encode([&[0xe7, 0x01], point.as_bytes()].concat()).into_string();
    let document = Arc::new(OnceLock::<String>::new());
    let stated = Arc::clone(&document);
    let upstream = Upstream::start(move |path| match path {
        "/.well-known/did.json" => Answer::Is("200 OK", stated.wait().clone()),
        _ => Answer::Is("404 Not Found", String::new()),
    });
    let did = format!("did:web:localhost%3A{}", upstream.port());
    let method = json!({
        "id": format!("{did}#atproto"),
        "type": "Multikey",
        "controller": did,
        "publicKeyMultibase": format!("z{multikey}"),
    });
    let text = json!({ "id": did, "verificationMethod": [method] }).to_string();
    document.set(text).expect("it is set once");
    (upstream, did)
}

#[test]
fn an_at_protocol_account_is_verified_by_key() {
    let [key, other] = [7, 9].map(|byte| SigningKey::from_slice(&[byte; 32]).expect("a key"));
    let (upstream, did) = account(&key);
    let stage = Stage::with(&[("sidecar.session.localhost_dids", "true")]);
    let ask = |token: &Token, key: &SigningKey| {
        let sign = |message: &[u8]| {
            let signature: Signature = key.sign(message);
            signature.to_bytes().to_vec()
        };
        stage.get_with(
            &personal(),
            "Authorization",
            &format!("Bearer {}", token.signed_by(sign)),
        )
    };
    for audience in [SERVICE.to_owned(), format!("{SERVICE}#bsky_fg")] {
        let token = Token::of_service(&did, &audience, METHOD);
        let body = answered(&ask(&token, &key), 200, &audience);
        assert!(
            posts(&body)[0].contains(GINA_DID),
            "those for everybody: {body}"
        );
    }
    assert_eq!(
        upstream.requests("/.well-known/did.json"),
        1,
        "its document is cached"
    );
    let token = Token::of_service(&did, SERVICE, METHOD);
    refused_to_viewer(&ask(&token, &other), "BadJwtSignature", "another key");
    let curve = token.header("alg", json!("ES256"));
    let answer = ask(&curve, &key);
    assert_eq!(
        answer.status,
        401,
        "a key of another curve: {}",
        answer.text()
    );
}

#[test]
fn one_clients_slow_hosts_leave_turns_to_others() {
    let key = SigningKey::from_slice(&[7; 32]).expect("a key");
    let (_upstream, did) = account(&key);
    let stage = Stage::with(&[("sidecar.session.localhost_dids", "true")]);
    let ask = |did: &str, from: &str| {
        let token = Token::of_service(did, SERVICE, METHOD).signed_by(|message| {
            let signature: Signature = key.sign(message);
            signature.to_bytes().to_vec()
        });
        let request = Request::new("GET", &personal()).with("X-Forwarded-For", from);
        request.with("Authorization", &format!("Bearer {token}"))
    };
    let slow: Vec<Upstream> = (0..12).map(|_| Upstream::start(|_| Answer::Hang)).collect();
    let mut clients: Vec<_> = slow
        .iter()
        .map(|host| {
            let mut client = stage.client();
            let did = format!("did:web:localhost%3A{}", host.port());
            client.send(ask(&did, "203.0.113.1").bytes());
            client
        })
        .collect();
    let requested = || {
        slow.iter()
            .map(|host| host.requests("/.well-known/did.json"))
            .sum::<usize>()
    };
    let deadline = Instant::now() + PATIENCE;
    while requested() < 4 {
        assert!(
            Instant::now() < deadline,
            "{} hosts are queried",
            requested()
        );
        assert!(
            clients[0].silent_for(Duration::from_millis(10)),
            "a host that is slow"
        );
    }
    assert!(
        clients[0].silent_for(Duration::from_millis(200)),
        "a moment goes by"
    );
    assert_eq!(
        stage.ask(&ask(&did, "203.0.113.2")).status,
        200,
        "another client has its turn"
    );
    assert_eq!(requested(), 4, "half of the eight, though twelve wait");
    let unanswered = clients
        .iter_mut()
        .all(|client| client.silent_for(Duration::from_millis(1)));
    assert!(unanswered, "while the slow ones are under way");
}

#[test]
fn without_keys_for_sessions_a_session_opens_nothing() {
    let stage = Stage::with(&[("sidecar.session.hs256_secret_files", "[]")]);
    let answer = stage.ask(&Token::of(ALICE).get(&personal()));
    refused_to_viewer(&answer, "NotConfigured", "a session");
    let answer = stage.get(&personal());
    refused_to_viewer(&answer, "AuthenticationRequired", "nobody");
    assert_eq!(
        stage.get(&format!("{PATH}?{}", feed(PAGED_FEED))).status,
        200,
        "a public feed"
    );
}
