//! Sessions of the platform.

use base64::engine::general_purpose::STANDARD;

use super::stub::Stub;
use super::*;

const USER: &str = "3f2504e0-4f89-41d3-9a0c-0305e82c3301";
const ISSUER: &str = "https://project.example/auth/v1";
const JWKS: &str = "/auth/v1/.well-known/jwks.json";

fn session() -> Value {
    json!({
        "iss": ISSUER, "aud": AUDIENCE, "role": "authenticated", "sub": USER, "iat": NOW,
        "exp": NOW + 3600, "session_id": "1", "aal": "aal1", "email": "a@example.com",
        "is_anonymous": false, "user_metadata": {"exp": "not the token's"},
    })
}

async fn user(auth: &Auth, bearer: &str) -> Result<String, Reason> {
    let user = auth.user(&header(bearer), at(0)).await;
    user.map(|user| user.id).map_err(|refusal| refusal.reason)
}

async fn user_at(auth: &Auth, bearer: &str, second: u64) -> Result<String, Reason> {
    let user = auth.user(&header(bearer), reach(second).await).await;
    user.map(|user| user.id).map_err(|refusal| refusal.reason)
}

/// Accepts the public keys that a server shows.
fn with_jwks(keys: &[Value]) -> (Stub, Auth) {
    let stub = Stub::start();
    stub.show(JWKS, &json!({"keys": keys}));
    let config = SessionLive {
        jwks_url: Some(stub.url(JWKS)),
        ..config()
    };
    let auth = auth_with(&config, &[SECRET]);
    (stub, auth)
}

fn named(key: &Key, kid: &str) -> String {
    key.bearer_with(&json!({"alg": key.alg(), "kid": kid}), &session())
}

#[tokio::test]
async fn sessions_belong_to_users_who_are_signed_in() {
    let issuer = Some(ISSUER.to_owned());
    let auth = auth_with(&SessionLive { issuer, ..config() }, &[SECRET]);
    let key = Key::secret(SECRET);
    for (changes, expected) in [
        (json!({}), Ok(())),
        (
            json!({"is_anonymous": null, "iat": null, "email": null}),
            Ok(()),
        ),
        (json!({"sub": USER.to_uppercase()}), Ok(())),
        (json!({"aud": ["other", AUDIENCE]}), Ok(())),
        (json!({"exp": NOW - 59}), Ok(())),
        (json!({"exp": NOW as f64 - 59.5}), Ok(())),
        (json!({"exp": NOW - 60}), Err(Reason::JwtExpired)),
        (json!({"exp": NOW - 61}), Err(Reason::JwtExpired)),
        (json!({"exp": 0}), Err(Reason::JwtExpired)),
        (json!({"exp": null}), Err(Reason::BadJwt)),
        (
            json!({"exp": (NOW + 3600).to_string()}),
            Err(Reason::BadJwt),
        ),
        (json!({"nbf": NOW + 60}), Ok(())),
        (json!({"nbf": NOW + 61}), Err(Reason::JwtExpired)),
        (json!({"iat": NOW + 60}), Ok(())),
        (json!({"iat": NOW + 61}), Err(Reason::JwtExpired)),
        (json!({"aud": "other"}), Err(Reason::BadJwtAudience)),
        (json!({"aud": []}), Err(Reason::BadJwtAudience)),
        (json!({"aud": null}), Err(Reason::BadJwtAudience)),
        (
            json!({"iss": "https://other.example/auth/v1"}),
            Err(Reason::BadJwtIss),
        ),
        (json!({"iss": format!("{ISSUER}/")}), Err(Reason::BadJwtIss)),
        (json!({"iss": null}), Err(Reason::BadJwtIss)),
        // a service token is not a session, whatever signed it
        (
            json!({"iss": "did:plc:234567abcdefghijklmnopqr"}),
            Err(Reason::BadJwtIss),
        ),
        // API keys are signed with the same secret
        (
            json!({"iss": "supabase", "role": "anon", "sub": null, "aud": null}),
            Err(Reason::BadJwt),
        ),
        (
            json!({"iss": "supabase", "role": "service_role", "sub": null}),
            Err(Reason::BadJwt),
        ),
        (json!({"role": "supabase_admin"}), Err(Reason::BadJwt)),
        (json!({"role": null}), Err(Reason::BadJwt)),
        (json!({"sub": null}), Err(Reason::BadJwt)),
        (json!({"sub": "42"}), Err(Reason::BadJwt)),
        (json!({"sub": USER.replace('-', "")}), Err(Reason::BadJwt)),
        (json!({"sub": format!("{{{USER}}}")}), Err(Reason::BadJwt)),
        (json!({"is_anonymous": true}), Err(Reason::Forbidden)),
        (json!({"is_anonymous": "true"}), Err(Reason::BadJwt)),
    ] {
        let found = user(&auth, &key.bearer(&with(&session(), &changes))).await;
        assert_eq!(found, expected.map(|()| USER.to_owned()), "{changes}");
    }
    let other = Key::secret("another secret, 32 bytes or more than that");
    let guest = with(&session(), &json!({"is_anonymous": true}));
    for claims in [session(), guest] {
        let found = user(&auth, &other.bearer(&claims)).await;
        assert_eq!(
            found,
            Err(Reason::BadJwtSignature),
            "signed by somebody: {claims}"
        );
    }
}

#[tokio::test]
async fn the_bearer_token_has_at_most_8_kib() {
    let auth = auth_with(&config(), &[SECRET]);
    let good = Key::secret(SECRET).bearer(&session());
    let token = &good["Bearer ".len()..];
    // three bytes of a claim are four characters
    let padded = |length: usize| {
        let pad = |size: usize| with(&session(), &json!({"pad": "x".repeat(size)}));
        let bearer = |size: usize| Key::secret(SECRET).bearer(&pad(size));
        let most = (length - good.len()) * 3 / 4;
        (0..most)
            .rev()
            .map(bearer)
            .find(|bearer| bearer.len() <= length)
            .expect("one that fits")
    };
    for (value, expected) in [
        (None, Some(Reason::Unauthorized)),
        (Some(good.clone()), None),
        (Some(format!("bEARER {token}")), None),
        (Some(String::new()), Some(Reason::Unauthorized)),
        (Some("Bearer".to_owned()), Some(Reason::Unauthorized)),
        (Some(format!("Basic {token}")), Some(Reason::Unauthorized)),
        (Some(token.to_owned()), Some(Reason::Unauthorized)),
        (Some("Bearer ".to_owned()), Some(Reason::BadJwt)),
        (Some(format!("Bearer  {token}")), Some(Reason::BadJwt)),
        (Some(format!("{good} ")), Some(Reason::BadJwt)),
        (Some(format!("{good}, {good}")), Some(Reason::BadJwt)),
        (
            Some("Bearer sb_publishable_key".to_owned()),
            Some(Reason::BadJwt),
        ),
        (Some(padded(8192)), None),
        (Some(padded(8196)), Some(Reason::BadJwt)),
        (
            Some(format!("{good}{}", "A".repeat(100_000))),
            Some(Reason::BadJwt),
        ),
    ] {
        let authorization = value.as_deref().map_or(Authorization::Absent, header);
        let found = reason(auth.user(&authorization, at(0)).await);
        assert_eq!(
            found,
            expected,
            "{:?} {value:?}",
            value.as_ref().map(String::len)
        );
    }
}

#[tokio::test]
async fn a_token_is_two_objects_and_a_signature() {
    const NO_SESSION: &str = "the token is not the session of a signed-in user";
    const MALFORMED: &str = "the token is not a well-formed JWT";
    const EXTENSION: &str = "the token requires an extension that is not supported";
    const TYPE: &str = "the token's type must be `JWT`";
    const ALGORITHM: &str = "the token's algorithm is not accepted";
    let auth = auth_with(&config(), &[SECRET]);
    let refused = async |token: &str| {
        let refusal = auth
            .user(&header(&format!("Bearer {token}")), at(0))
            .await
            .unwrap_err();
        let wrong_type = matches!(&*refusal.message, TYPE | ALGORITHM);
        let reason = if wrong_type {
            Reason::BadJwtType
        } else {
            Reason::BadJwt
        };
        assert_eq!(refusal.reason, reason, "{}", refusal.message);
        refusal.message
    };
    let (hs256, claims) = (r#"{"alg":"HS256","typ":"JWT"}"#, r#"{"exp":1,"x":[{}]}"#);
    let deep = format!(r#"{{"x":{}}}"#, "[".repeat(3000));
    for (header, claims, signature, expected) in [
        (hs256, claims, "AAAA", NO_SESSION),
        (hs256, claims, "", NO_SESSION),
        (r#"{"alg":"HS256"}"#, claims, "AAAA", NO_SESSION),
        (
            r#"{"alg":"ES256K","typ":"jwt","kid":"1","jku":"x"}"#,
            claims,
            "AAAA",
            NO_SESSION,
        ),
        (
            hs256,
            r#"{"exp":1.5,"aud":["a","b"],"is_anonymous":false}"#,
            "AAAA",
            NO_SESSION,
        ),
        (hs256, r#"{"exp":"1"}"#, "AAAA", MALFORMED),
        (hs256, r#"{"exp":1e999}"#, "AAAA", MALFORMED),
        (hs256, r#"{"exp":1,"exp":2}"#, "AAAA", MALFORMED),
        (
            hs256,
            r#"{"iss":"a","i\u0073s":"did:plc:b"}"#,
            "AAAA",
            MALFORMED,
        ),
        (hs256, r#"{"aud":1}"#, "AAAA", MALFORMED),
        (hs256, r#"{"is_anonymous":"false"}"#, "AAAA", MALFORMED),
        (hs256, "{} {}", "AAAA", MALFORMED),
        (hs256, "[]", "AAAA", MALFORMED),
        (hs256, "", "AAAA", MALFORMED),
        (hs256, "\u{feff}{}", "AAAA", MALFORMED),
        (hs256, &deep, "AAAA", MALFORMED),
        (hs256, claims, "AAA=", MALFORMED),
        (hs256, claims, "AAB", MALFORMED),
        (hs256, claims, "AA AA", MALFORMED),
        (hs256, claims, "AA+/", MALFORMED),
        (hs256, claims, "AAAA.AAAA", MALFORMED),
        ("{}", claims, "AAAA", MALFORMED),
        (
            r#"{"alg":"HS256","alg":"HS256"}"#,
            claims,
            "AAAA",
            MALFORMED,
        ),
        (
            r#"{"alg":"HS256","crit":["b64"],"b64":false}"#,
            claims,
            "AAAA",
            EXTENSION,
        ),
        (r#"{"alg":"HS256","crit":null}"#, claims, "AAAA", EXTENSION),
        (r#"{"alg":"none"}"#, claims, "", ALGORITHM),
        (r#"{"alg":"hs256"}"#, claims, "AAAA", ALGORITHM),
        (r#"{"alg":"HS512"}"#, claims, "AAAA", ALGORITHM),
        (
            r#"{"alg":"HS256","typ":"application/JWT"}"#,
            claims,
            "AAAA",
            NO_SESSION,
        ),
        (
            r#"{"alg":"HS256","typ":"at+jwt"}"#,
            claims,
            "AAAA",
            NO_SESSION,
        ),
        (
            r#"{"alg":"EdDSA","typ":"application/at+jwt"}"#,
            claims,
            "AAAA",
            NO_SESSION,
        ),
        (r#"{"alg":"HS256","typ":"text/jwt"}"#, claims, "AAAA", TYPE),
        (
            r#"{"alg":"HS256","typ":"refresh+jwt"}"#,
            claims,
            "AAAA",
            TYPE,
        ),
        (r#"{"alg":"ES256","typ":"dpop+jwt"}"#, claims, "AAAA", TYPE),
    ] {
        let parts = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part));
        let token = format!("{}.{}.{signature}", parts[0], parts[1]);
        assert_eq!(refused(&token).await, expected, "{header} {claims}");
    }
    for token in ["", ".", "..", "a.b", "e30.e30", "e30.e30.e30.e30"] {
        assert_eq!(refused(token).await, MALFORMED, "{token:?}");
    }
    // not UTF-8, in a member that nobody reads
    let [good, bad] = [&b"x"[..], b"\xff"]
        .map(|text| [br#"{"alg":"HS256","x":""#, text, br#""}"#].concat())
        .map(|part| URL_SAFE_NO_PAD.encode(part));
    for [header, claims] in [[&bad, &good], [&good, &bad]] {
        let token = format!("{header}.{claims}.AAAA");
        assert_eq!(refused(&token).await, MALFORMED, "{token}");
    }
}

#[tokio::test]
async fn without_keys_sessions_are_not_configured() {
    for secrets in [&[][..], &[""]] {
        let auth = auth_with(&config(), secrets);
        for bearer in [Key::secret("").bearer(&session()), "garbage".to_owned()] {
            assert_eq!(
                user(&auth, &bearer).await,
                Err(Reason::NotConfigured),
                "{bearer}"
            );
        }
        let bearer = Key::secret("").bearer(&session());
        let viewer = auth.viewer(&header(&bearer), "m", client(), at(0)).await;
        assert_eq!(reason(viewer), Some(Reason::NotConfigured));
    }
}

#[tokio::test]
async fn both_secrets_sign_during_a_rotation() {
    let next = "the next secret of the platform, 32 bytes";
    let auth = auth_with(&config(), &[&format!("{SECRET}\n"), next]);
    for secret in [SECRET, next] {
        assert_eq!(
            user(&auth, &Key::secret(secret).bearer(&session())).await,
            Ok(USER.to_owned())
        );
    }
}

#[tokio::test]
async fn published_keys_sign_with_their_own_algorithm() {
    let (ec, rsa, k256) = (Key::p256(), Key::rsa(), Key::k256(1));
    let oct = Key::secret("a secret that everybody can read, 32 bytes");
    let encryption = with(&Key::p256().jwk("enc"), &json!({"use": "enc"}));
    let mislabelled = with(&ec.jwk("es512"), &json!({"alg": "ES512"}));
    let keys = [
        ec.jwk("ec"),
        rsa.jwk("rsa"),
        oct.jwk("oct"),
        k256.jwk("k"),
        mislabelled,
    ];
    let odd = [
        encryption,
        json!({"kty": "OKP"}),
        json!(1),
        json!({"kty": "EC", "use": 5}),
    ];
    let (_stub, auth) = with_jwks(&[&keys[..], &odd].concat());

    let pem = match &rsa {
        Key::Rsa(key) => STANDARD.encode(key.public_key().as_ref()),
        _ => unreachable!("it was just made"),
    };
    let pem = format!("-----BEGIN RSA PUBLIC KEY-----\n{pem}\n-----END RSA PUBLIC KEY-----\n");
    let by_pem = Key::secret(&pem);
    let as_rs256 = |kid: &str| json!({"alg": "RS256", "kid": kid});
    let signature = |reason| Err(reason);
    for (what, bearer, expected) in [
        ("ES256", named(&ec, "ec"), Ok(USER.to_owned())),
        ("RS256", named(&rsa, "rsa"), Ok(USER.to_owned())),
        (
            "HS256",
            named(&Key::secret(SECRET), "ec"),
            Ok(USER.to_owned()),
        ),
        ("no kid", ec.bearer(&session()), Ok(USER.to_owned())),
        (
            "another's kid",
            named(&ec, "rsa"),
            signature(Reason::BadJwtSignature),
        ),
        (
            "somebody's key",
            named(&Key::p256(), "ec"),
            signature(Reason::BadJwtSignature),
        ),
        (
            "a key for ES512",
            named(&ec, "es512"),
            signature(Reason::BadJwtSignature),
        ),
        (
            "a secret in the set",
            named(&oct, "oct"),
            signature(Reason::BadJwtSignature),
        ),
        (
            "the public key as a secret",
            named(&by_pem, "rsa"),
            signature(Reason::BadJwtSignature),
        ),
        (
            "that, said to be RS256",
            by_pem.bearer_with(&as_rs256("rsa"), &session()),
            signature(Reason::BadJwtSignature),
        ),
        (
            "ES256, said to be RS256",
            ec.bearer_with(&as_rs256("ec"), &session()),
            signature(Reason::BadJwtSignature),
        ),
        ("ES256K", named(&k256, "k"), signature(Reason::BadJwtType)),
        (
            "none",
            signed(&json!({"alg": "none"}), &session(), |_| Vec::new()),
            signature(Reason::BadJwtType),
        ),
    ] {
        assert_eq!(user(&auth, &bearer).await, expected, "{what}");
    }
}

#[tokio::test]
async fn an_edwards_key_signs_sessions() {
    let key = Key::ed25519();
    let other = Key::ed25519();
    let renamed = with(&key.jwk("new"), &json!({"alg": "Ed25519"}));
    let short = with(&key.jwk("short"), &json!({"x": "AAAA"}));
    let curve = with(&key.jwk("x"), &json!({"crv": "X25519"}));
    let keys = [key.jwk("old"), renamed, short, curve, Key::p256().jwk("ec")];
    let (_stub, auth) = with_jwks(&keys);
    let newer = json!({"alg": "Ed25519", "typ": "at+jwt", "kid": "old"});
    let bad = Err(Reason::BadJwtSignature);
    for (what, bearer, expected) in [
        ("EdDSA", named(&key, "old"), Ok(USER.to_owned())),
        (
            "its newer name",
            key.bearer_with(&newer, &session()),
            Ok(USER.to_owned()),
        ),
        ("that in the set", named(&key, "new"), Ok(USER.to_owned())),
        ("no kid", key.bearer(&session()), Ok(USER.to_owned())),
        ("a stranger's key", named(&other, "old"), bad.clone()),
        ("a key that is too short", named(&key, "short"), bad.clone()),
        ("a key for encryption", named(&key, "x"), bad.clone()),
        ("a key of another curve", named(&key, "ec"), bad.clone()),
        (
            "said to be ES256",
            key.bearer_with(&json!({"alg": "ES256", "kid": "old"}), &session()),
            bad,
        ),
    ] {
        assert_eq!(user(&auth, &bearer).await, expected, "{what}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_keys_are_looked_up_every_30_seconds() {
    let (old, new) = (Key::p256(), Key::p256());
    let (stub, auth) = with_jwks(&[old.jwk("old")]);
    assert_eq!(user(&auth, &named(&old, "old")).await, Ok(USER.to_owned()));
    stub.show(JWKS, &json!({"keys": [new.jwk("new")]}));
    assert_eq!(
        user(&auth, &named(&old, "old")).await,
        Ok(USER.to_owned()),
        "still cached"
    );
    assert_eq!(stub.requests(), 1);
    assert_eq!(
        user(&auth, &named(&new, "new")).await,
        Ok(USER.to_owned()),
        "fetched for it"
    );
    assert_eq!(stub.requests(), 2);
    for second in [0, 10, 29] {
        let found = user_at(&auth, &named(&old, "old"), second).await;
        assert_eq!(found, Err(Reason::BadJwtSignature), "taken out of the set");
    }
    assert_eq!(stub.requests(), 2, "not again so soon");
    assert_eq!(
        user_at(&auth, &named(&old, "old"), 30).await,
        Err(Reason::BadJwtSignature)
    );
    assert_eq!(stub.requests(), 3);
}

#[tokio::test(start_paused = true)]
async fn sessions_survive_an_outage_of_an_hour() {
    let key = Key::p256();
    let claims = with(&session(), &json!({"exp": NOW + 100_000}));
    let (stub, auth) = with_jwks(&[key.jwk("1")]);
    let bearer = key.bearer(&claims);
    assert_eq!(user(&auth, &bearer).await, Ok(USER.to_owned()));
    stub.fail();
    for (second, expected, requests) in [
        (599, Ok(USER.to_owned()), 1),
        (600, Ok(USER.to_owned()), 2),
        (604, Ok(USER.to_owned()), 2),
        (605, Ok(USER.to_owned()), 3),
        (3599, Ok(USER.to_owned()), 4),
        (3600, Err(Reason::KeysUnavailable), 4),
        (3604, Err(Reason::KeysUnavailable), 5),
    ] {
        assert_eq!(
            user_at(&auth, &bearer, second).await,
            expected,
            "after {second} s"
        );
        assert_eq!(stub.requests(), requests, "after {second} s");
    }
    stub.show(JWKS, &json!({"keys": [key.jwk("1")]}));
    assert_eq!(
        user_at(&auth, &bearer, 3609).await,
        Ok(USER.to_owned()),
        "it is over"
    );
}

#[tokio::test]
async fn a_malformed_key_set_counts_as_unavailable() {
    let key = Key::p256();
    let huge = json!({"keys": [key.jwk("1")], "pad": "x".repeat(65_536)});
    for (status, body) in [
        (200, "<html>".to_owned()),
        (200, "[]".to_owned()),
        (200, huge.to_string()),
        (302, String::new()),
        (404, String::new()),
    ] {
        let (stub, auth) = with_jwks(&[]);
        stub.answer(JWKS, status, "application/json", &body);
        let found = user(&auth, &key.bearer(&session())).await;
        assert_eq!(found, Err(Reason::KeysUnavailable), "{status}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hundred_requests_fetch_the_keys_once() {
    let (known, unknown) = (Key::p256(), Key::p256());
    let (stub, auth) = with_jwks(&[known.jwk("1")]);
    let bearer = named(&known, "1");
    let found = futures_util::future::join_all((0..100).map(|_| user(&auth, &bearer))).await;
    assert!(found.iter().all(Result::is_ok), "{found:?}");
    assert_eq!(stub.requests(), 1);
    let bearer = named(&unknown, "2");
    let found = futures_util::future::join_all((0..100).map(|_| user(&auth, &bearer))).await;
    assert!(
        found
            .iter()
            .all(|found| *found == Err(Reason::BadJwtSignature)),
        "{found:?}"
    );
    assert_eq!(stub.requests(), 2);
    stub.fail();
    let bearer = named(&known, "1");
    let late = (0..100).map(|_| user_at(&auth, &bearer, 1000));
    let found = futures_util::future::join_all(late).await;
    assert!(found.iter().all(Result::is_ok), "{found:?}");
    assert_eq!(stub.requests(), 3);
}
