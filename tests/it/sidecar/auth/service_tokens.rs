//! Service tokens of AT Protocol.

use portcullis_edge::sidecar::auth::Viewer;

use super::stub::Stub;
use super::*;

const PLC: &str = "did:plc:abcdefghijklmnopqrstuvwx";
const OTHER: &str = "did:plc:234567abcdefghijklmnopqr";
const LXM: &str = "app.bsky.feed.getFeedSkeleton";

fn claims(iss: &str) -> Value {
    let (aud, exp) = ("did:web:feeds.example", NOW + 60);
    json!({"iss": iss, "aud": aud, "lxm": LXM, "iat": NOW, "exp": exp, "jti": "1"})
}

fn method(did: &str, kind: &str, key: &str) -> Value {
    json!({
        "id": format!("{did}#atproto"), "type": kind, "controller": did, "publicKeyMultibase": key,
    })
}

fn document(did: &str, methods: &[Value]) -> Value {
    let context = [
        "https://www.w3.org/ns/did/v1",
        "https://w3id.org/security/multikey/v1",
    ];
    json!({"@context": context, "id": did, "verificationMethod": methods, "service": []})
}

fn with_key(did: &str, key: &Key) -> Value {
    document(did, &[method(did, "Multikey", &key.multikey())])
}

/// Looks DIDs up at this server.
fn auth_at(stub: &Stub) -> Auth {
    let config = SessionLive {
        plc_url: stub.url("/"),
        localhost_dids: true,
        ..config()
    };
    auth_with(&config, &[SECRET])
}

async fn viewer(auth: &Auth, bearer: &str) -> Result<String, Reason> {
    account(auth.viewer(&header(bearer), LXM, client(), at(0)).await)
}

async fn viewer_at(auth: &Auth, bearer: &str, second: u64) -> Result<String, Reason> {
    account(
        auth.viewer(&header(bearer), LXM, client(), reach(second).await)
            .await,
    )
}

fn account(viewer: Result<Viewer, Refusal>) -> Result<String, Reason> {
    match viewer {
        Ok(Viewer::Did(did)) => Ok(did),
        Ok(Viewer::User(user)) => panic!("a service token is not a session: {user:?}"),
        Err(refusal) => Err(refusal.reason),
    }
}

/// A directory with this document of the account `PLC`.
fn shown(document: &Value) -> (Stub, Auth) {
    let stub = Stub::start();
    stub.show(&format!("/{PLC}"), document);
    let auth = auth_at(&stub);
    (stub, auth)
}

#[tokio::test]
async fn each_fault_of_a_token_has_its_reason() {
    let key = Key::k256(7);
    let (stub, auth) = shown(&with_key(PLC, &key));
    let changed = |changes: Value| key.bearer(&with(&claims(PLC), &changes));
    let headed = |header: Value| key.bearer_with(&header, &claims(PLC));
    let bad_type = Some(Reason::BadJwtType);
    for (bearer, expected) in [
        (changed(json!({})), None),
        (
            changed(json!({"aud": "did:web:feeds.example#bsky_fg"})),
            None,
        ),
        (changed(json!({"jti": null, "iat": null})), None),
        (changed(json!({"exp": NOW + 3660})), None),
        (changed(json!({"iat": NOW + 60})), None),
        (headed(json!({"alg": "ES256K"})), None),
        (
            headed(json!({"alg": "ES256K", "typ": "JWT", "kid": "#atproto"})),
            None,
        ),
        (changed(json!({"exp": null})), Some(Reason::BadJwt)),
        (changed(json!({"exp": NOW + 3661})), Some(Reason::BadJwt)),
        (changed(json!({"exp": NOW})), Some(Reason::JwtExpired)),
        (changed(json!({"exp": NOW - 1})), Some(Reason::JwtExpired)),
        (changed(json!({"iat": NOW + 61})), Some(Reason::JwtExpired)),
        (changed(json!({"nbf": NOW + 61})), Some(Reason::JwtExpired)),
        (
            changed(json!({"aud": "did:web:other.example"})),
            Some(Reason::BadJwtAudience),
        ),
        (
            changed(json!({"aud": "did:web:feeds.example#x"})),
            Some(Reason::BadJwtAudience),
        ),
        (
            changed(json!({"aud": ["did:web:feeds.example"]})),
            Some(Reason::BadJwtAudience),
        ),
        (changed(json!({"aud": null})), Some(Reason::BadJwtAudience)),
        (
            changed(json!({"lxm": "app.bsky.feed.getFeed"})),
            Some(Reason::BadJwtLexiconMethod),
        ),
        (
            changed(json!({"lxm": null})),
            Some(Reason::BadJwtLexiconMethod),
        ),
        (
            changed(json!({"iss": format!("{PLC}#atproto")})),
            Some(Reason::BadJwtIss),
        ),
        (headed(json!({"alg": "ES256K", "typ": "at+jwt"})), bad_type),
        (
            headed(json!({"alg": "ES256K", "typ": "application/jwt"})),
            None,
        ),
        (headed(json!({"alg": "EdDSA"})), bad_type),
        (headed(json!({"alg": "HS256"})), bad_type),
        (headed(json!({"alg": "RS256"})), bad_type),
        (
            headed(json!({"alg": "ES256"})),
            Some(Reason::BadJwtSignature),
        ),
        (
            headed(json!({"alg": "ES256K", "kid": "#other"})),
            Some(Reason::BadJwtSignature),
        ),
        (
            Key::k256(8).bearer(&claims(PLC)),
            Some(Reason::BadJwtSignature),
        ),
        (
            Key::p256().bearer(&claims(PLC)),
            Some(Reason::BadJwtSignature),
        ),
        // the platform's secret signs no service token
        (Key::secret(SECRET).bearer(&claims(PLC)), bad_type),
        ("Bearer a.b.c".to_owned(), Some(Reason::BadJwt)),
    ] {
        assert_eq!(viewer(&auth, &bearer).await.err(), expected, "{bearer}");
    }
    assert_eq!(viewer(&auth, &changed(json!({}))).await, Ok(PLC.to_owned()));
    let nobody = auth
        .viewer(&Authorization::Absent, LXM, client(), at(0))
        .await;
    assert_eq!(reason(nobody), Some(Reason::Unauthorized));
    assert_eq!(
        stub.requests(),
        2,
        "once for the key, once for tokens it did not sign"
    );
}

#[tokio::test]
async fn signatures_are_64_bytes_with_any_s() {
    use k256::ecdsa::Signature;
    for key in [Key::k256(7), Key::p256()] {
        let (_stub, auth) = shown(&with_key(PLC, &key));
        let header = json!({"alg": key.alg()});
        let change = |change: fn(Vec<u8>) -> Vec<u8>| {
            signed(&header, &claims(PLC), |message| change(key.sign(message)))
        };
        for (what, bearer, ok) in [
            ("as it is", change(|signature| signature), true),
            ("cut", change(|signature| signature[..63].to_vec()), false),
            (
                "longer",
                change(|signature| [signature, vec![0]].concat()),
                false,
            ),
            ("zero", change(|_| vec![0; 64]), false),
            ("none", change(|_| Vec::new()), false),
            ("DER", change(|raw| der(&raw)), false),
            (
                "r for s",
                change(|raw| {
                    let (r, s) = raw.split_at(32);
                    [s, r].concat()
                }),
                false,
            ),
        ] {
            let expected = if ok {
                Ok(PLC.to_owned())
            } else {
                Err(Reason::BadJwtSignature)
            };
            assert_eq!(viewer(&auth, &bearer).await, expected, "{what}");
        }
        if matches!(key, Key::K256(_)) {
            let high = change(|raw| {
                let low = Signature::from_slice(&raw).expect("a signature");
                let (r, s) = low.split_scalars();
                let high = Signature::from_scalars(r.to_bytes(), (-*s).to_bytes());
                high.expect("a signature").to_vec()
            });
            assert_eq!(viewer(&auth, &high).await, Ok(PLC.to_owned()), "high s");
        }
    }
}

/// The other form of a signature: a sequence of two integers.
fn der(raw: &[u8]) -> Vec<u8> {
    let integer = |part: &[u8]| {
        let number = if part[0] >= 0x80 {
            [&[0], part].concat()
        } else {
            part.to_vec()
        };
        [
            &[2, u8::try_from(number.len()).expect("short")],
            number.as_slice(),
        ]
        .concat()
    };
    let body = [integer(&raw[..32]), integer(&raw[32..])].concat();
    [
        &[0x30, u8::try_from(body.len()).expect("short")],
        body.as_slice(),
    ]
    .concat()
}

#[tokio::test]
async fn the_first_valid_key_of_an_account_signs() {
    let (k256, p256) = (Key::k256(7), Key::p256());
    let (multikey, legacy) = (k256.multikey(), "EcdsaSecp256k1VerificationKey2019");
    let (of_p256, legacy_p256) = (p256.multikey(), "EcdsaSecp256r1VerificationKey2019");
    let good = || method(PLC, "Multikey", &multikey);
    let other = || method(PLC, "Multikey", &Key::k256(8).multikey());
    let short = |key: &Key| key.multibase(&[], true);
    let full = |key: &Key| key.multibase(&[], false);
    let ed25519 = format!(
        "z{}",
        bs58::encode([&[0xed, 1][..], &[7; 32]].concat()).into_string()
    );
    let wrong_codec = k256.multibase(&[0x80, 0x24], true);
    for (what, key, methods, ok) in [
        ("a Multikey", &k256, vec![good()], true),
        (
            "of the other curve",
            &p256,
            vec![method(PLC, "Multikey", &of_p256)],
            true,
        ),
        (
            "a short name",
            &k256,
            vec![with(&good(), &json!({"id": "#atproto"}))],
            true,
        ),
        (
            "legacy",
            &k256,
            vec![method(PLC, legacy, &full(&k256))],
            true,
        ),
        (
            "legacy, compressed",
            &k256,
            vec![method(PLC, legacy, &short(&k256))],
            true,
        ),
        (
            "legacy P-256",
            &p256,
            vec![method(PLC, legacy_p256, &full(&p256))],
            true,
        ),
        (
            "legacy P-256, compressed",
            &p256,
            vec![method(PLC, legacy_p256, &short(&p256))],
            true,
        ),
        (
            "after others",
            &k256,
            vec![json!(1), method(PLC, "X", &multikey), good()],
            true,
        ),
        ("not the first", &k256, vec![other(), good()], false),
        ("none", &k256, vec![], false),
        (
            "another name",
            &k256,
            vec![with(&good(), &json!({"id": "#atproto2"}))],
            false,
        ),
        (
            "another's",
            &k256,
            vec![with(&good(), &json!({"controller": OTHER}))],
            false,
        ),
        (
            "no type",
            &k256,
            vec![with(&good(), &json!({"type": null}))],
            false,
        ),
        (
            "a type of the other curve",
            &k256,
            vec![method(PLC, legacy_p256, &full(&k256))],
            false,
        ),
        (
            "the codec of the other curve",
            &k256,
            vec![method(PLC, "Multikey", &wrong_codec)],
            false,
        ),
        (
            "another curve",
            &k256,
            vec![method(PLC, "Multikey", &ed25519)],
            false,
        ),
        (
            "not compressed",
            &k256,
            vec![method(PLC, "Multikey", &full(&k256))],
            false,
        ),
        (
            "another base",
            &k256,
            vec![method(PLC, "Multikey", &format!("m{multikey}"))],
            false,
        ),
        (
            "not base58",
            &k256,
            vec![method(PLC, "Multikey", "z0OIl")],
            false,
        ),
        (
            "endless",
            &k256,
            vec![method(PLC, "Multikey", &multikey.repeat(900))],
            false,
        ),
    ] {
        let (_stub, auth) = shown(&document(PLC, &methods));
        let found = viewer(&auth, &key.bearer(&claims(PLC))).await;
        let refused = matches!(found, Err(Reason::BadJwtIss | Reason::BadJwtSignature));
        assert!(
            if ok { found.is_ok() } else { refused },
            "{what}: {found:?}"
        );
    }
}

#[tokio::test]
async fn a_document_is_json_about_its_account() {
    let key = Key::k256(7);
    let body = with_key(PLC, &key).to_string();
    let other = with_key(OTHER, &key).to_string();
    let json = "application/json";
    for (status, media_type, body, expected) in [
        (200, json, &body, None),
        (200, "Application/DID+ld+json", &body, None),
        (200, "application/did+json;charset=utf-8", &body, None),
        (200, "text/html", &body, Some(Reason::BadJwtIss)),
        (200, json, &other, Some(Reason::BadJwtIss)),
        (200, json, &"{}".to_owned(), Some(Reason::BadJwtIss)),
        (200, json, &" ".repeat(65_537), Some(Reason::BadJwtIss)),
        (301, json, &body, Some(Reason::BadJwtIss)),
        (404, json, &body, Some(Reason::BadJwtIss)),
        (410, json, &body, Some(Reason::BadJwtIss)),
        (429, json, &body, Some(Reason::KeysUnavailable)),
        (500, json, &body, Some(Reason::KeysUnavailable)),
    ] {
        let (stub, auth) = shown(&json!({}));
        stub.answer(&format!("/{PLC}"), status, media_type, body);
        let found = viewer(&auth, &key.bearer(&claims(PLC))).await;
        assert_eq!(found.err(), expected, "{status} {media_type}");
    }
}

#[tokio::test]
async fn hosts_are_names_of_at_least_two_labels() {
    let stub = Stub::start();
    let auth = auth_at(&stub);
    let long = format!("{}.example", "a".repeat(64));
    let port = stub.port;
    let others = "key:zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme plc:abc \
        plc:abcdefghijklmnopqrstuvw1 plc:ABCDEFGHIJKLMNOPQRSTUVWX \
        plc:abcdefghijklmnopqrstuvwx/../x \
        web: web:localhost web:127.0.0.1 web:127.1 web:2130706433 web:0x7f.0x1 web:8.8.8.8 \
        web:%5B::1%5D web:[::1] web:host.example:path web:host.example%3A443 \
        web:host.example%3A8443 web:host.example/path web:host.example?query \
        web:host.example#fragment web:user@host.example web:Host.example web:host.example. \
        web:.example web:-host.example web:host_a.example web:localhost%3A web:localhost%3A99999";
    let made = [
        format!("web:localhost%3A{port}:path"),
        format!("web:{long}"),
        format!("web:{}example", "abc.".repeat(63)),
    ];
    for id in others
        .split_whitespace()
        .chain(made.iter().map(String::as_str))
    {
        let did = format!("did:{id}");
        let found = viewer(&auth, &Key::k256(7).bearer(&claims(&did))).await;
        assert_eq!(found, Err(Reason::BadJwtIss), "{did}");
    }
    assert_eq!(stub.requests(), 0, "no request was sent");
}

#[tokio::test]
async fn localhost_is_looked_up_if_allowed() {
    let (stub, key) = (Stub::start(), Key::p256());
    let did = format!("did:web:localhost%3A{}", stub.port);
    stub.show("/.well-known/did.json", &with_key(&did, &key));
    let bearer = key.bearer(&claims(&did));
    assert_eq!(viewer(&auth_at(&stub), &bearer).await, Ok(did));
    let elsewhere = auth_with(&config(), &[SECRET]);
    assert_eq!(viewer(&elsewhere, &bearer).await, Err(Reason::BadJwtIss));
    assert_eq!(stub.requests(), 1);
}

#[tokio::test(start_paused = true)]
async fn changed_keys_are_looked_up_every_30_seconds() {
    let (old, new, newer) = (Key::k256(7), Key::p256(), Key::k256(9));
    let lasting = |key: &Key| key.bearer(&with(&claims(PLC), &json!({"exp": NOW + 3600})));
    let (stub, auth) = shown(&with_key(PLC, &old));
    assert_eq!(viewer(&auth, &lasting(&old)).await, Ok(PLC.to_owned()));
    stub.show(&format!("/{PLC}"), &with_key(PLC, &new));
    assert_eq!(
        viewer(&auth, &lasting(&new)).await,
        Ok(PLC.to_owned()),
        "fetched for it"
    );
    assert_eq!(
        viewer(&auth, &lasting(&old)).await,
        Err(Reason::BadJwtSignature)
    );
    stub.show(&format!("/{PLC}"), &with_key(PLC, &newer));
    assert_eq!(
        viewer_at(&auth, &lasting(&newer), 29).await,
        Err(Reason::BadJwtSignature)
    );
    assert_eq!(stub.requests(), 2);
    assert_eq!(
        viewer_at(&auth, &lasting(&newer), 30).await,
        Ok(PLC.to_owned())
    );
    assert_eq!(stub.requests(), 3);
}

#[tokio::test(start_paused = true)]
async fn cached_accounts_survive_an_outage_of_a_day() {
    let key = Key::k256(7);
    let (stub, auth) = shown(&with_key(PLC, &key));
    let day = 24 * 60 * 60;
    let bearer = |second: u64| {
        let life = json!({"iat": NOW + second, "exp": NOW + second + 60});
        key.bearer(&with(&claims(PLC), &life))
    };
    assert_eq!(viewer(&auth, &bearer(0)).await, Ok(PLC.to_owned()));
    stub.fail();
    for (second, expected, requests) in [
        (3599, Ok(PLC.to_owned()), 1),
        (3600, Ok(PLC.to_owned()), 2),
        (day - 1, Ok(PLC.to_owned()), 3),
        (day, Err(Reason::KeysUnavailable), 3),
        (day + 5, Err(Reason::KeysUnavailable), 4),
    ] {
        let found = viewer_at(&auth, &bearer(second), second).await;
        assert_eq!(found, expected, "after {second} s");
        assert_eq!(stub.requests(), requests, "after {second} s");
    }
    // no server at all
    let away = auth_with(&config(), &[]);
    assert_eq!(
        viewer(&away, &bearer(0)).await,
        Err(Reason::KeysUnavailable)
    );
}

#[tokio::test(start_paused = true)]
async fn missing_accounts_are_looked_up_once_a_minute() {
    let key = Key::k256(7);
    let (stub, auth) = shown(&with_key(OTHER, &key));
    let bearer = key.bearer(&with(&claims(PLC), &json!({"exp": NOW + 3600})));
    for (second, requests) in [(0, 1), (59, 1), (60, 2)] {
        assert_eq!(
            viewer_at(&auth, &bearer, second).await,
            Err(Reason::BadJwtIss)
        );
        assert_eq!(stub.requests(), requests, "after {second} s");
    }
    stub.show(&format!("/{PLC}"), &with_key(PLC, &key));
    assert_eq!(viewer_at(&auth, &bearer, 120).await, Ok(PLC.to_owned()));
}

#[tokio::test]
async fn a_hundred_requests_look_up_an_account_once() {
    let key = Key::k256(7);
    let (stub, auth) = shown(&with_key(PLC, &key));
    let bearer = key.bearer(&claims(PLC));
    let found = futures_util::future::join_all((0..100).map(|_| viewer(&auth, &bearer))).await;
    assert!(found.iter().all(Result::is_ok), "{found:?}");
    assert_eq!(stub.requests(), 1);
    // a missing account, too
    let bearer = key.bearer(&claims(OTHER));
    let found = futures_util::future::join_all((0..100).map(|_| viewer(&auth, &bearer))).await;
    assert!(
        found.iter().all(|found| *found == Err(Reason::BadJwtIss)),
        "{found:?}"
    );
    assert_eq!(stub.requests(), 2);
}

/// Made by `createServiceJwt` of npm's `@atproto/xrpc-server` 0.10.21 and `@atproto/crypto` 0.4.5.
#[tokio::test]
async fn tokens_of_the_reference_implementation_are_accepted() {
    const K256: &str = concat!(
        "Bearer eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NksifQ.eyJpYXQiOjE4MDAwMDAwMDAsImlzcyI6ImRpZDpwb",
        "GM6YWJjZGVmZ2hpamtsbW5vcHFyc3R1dnd4IiwiYXVkIjoiZGlkOndlYjpmZWVkcy5leGFtcGxlIiwiZXhwIjox",
        "ODAwMDAwMDYwLCJseG0iOiJhcHAuYnNreS5mZWVkLmdldEZlZWRTa2VsZXRvbiIsImp0aSI6IjVlZmRkOWE5NWR",
        "mYzRiMjYyYTdlYzhlNzRmNDgyZDk0In0.L6cZfznWaDCVcMceQgrJuC8mY3UgA7_slou43N2QW_93HMh0cf-fli",
        "gYkfiBnRi8YO2xqmquYvJqyq627cs3Gg",
    );
    const P256: &str = concat!(
        "Bearer eyJ0eXAiOiJKV1QiLCJhbGciOiJFUzI1NiJ9.eyJpYXQiOjE4MDAwMDAwMDAsImlzcyI6ImRpZDpwbGM",
        "6MjM0NTY3YWJjZGVmZ2hpamtsbW5vcHFyIiwiYXVkIjoiZGlkOndlYjpmZWVkcy5leGFtcGxlIiwiZXhwIjoxOD",
        "AwMDAwMDYwLCJseG0iOiJhcHAuYnNreS5mZWVkLmdldEZlZWRTa2VsZXRvbiIsImp0aSI6ImJkZjA3MzA5N2JjZ",
        "mNkN2M4YTVkM2M2ZDE3OWI5ZGQ5In0.zSAlBCbrMGDbz8hKl-f_91y3bWwUW_SIikYYVTudsOkbirClE_2MI5jQ",
        "4ruSe7XMMWqnE_u_Xe3EPVdzUBmtWQ",
    );
    for (did, key, bearer) in [
        (
            PLC,
            "zQ3shokFTS3brHcDQrn82RUDfCZESWL1ZdCEJwekUDPQiYBme",
            K256,
        ),
        (
            OTHER,
            "zDnaeSxJLzV8QHeUkqFZEoFz4n6Gxi1hQ1JnoyqRqyH2Qpkhq",
            P256,
        ),
    ] {
        let stub = Stub::start();
        stub.show(
            &format!("/{did}"),
            &document(did, &[method(did, "Multikey", key)]),
        );
        assert_eq!(viewer(&auth_at(&stub), bearer).await, Ok(did.to_owned()));
    }
}
