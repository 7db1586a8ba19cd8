//! The vectors of Wycheproof for signatures and keys of tokens; `vectors/README.md` lists them.

use super::jwks::KeySet;
use super::jws::Jws;
use super::platform::Platform;
use super::signature::{Alg, PublicKey};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_base::config::SessionLive;
use portcullis_base::secrets::Secret;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fs;
use std::path::Path;

#[derive(Deserialize)]
struct TokenGroup {
    keys: Vec<Value>,
    tests: Vec<TokenTest>,
}

#[derive(Deserialize)]
struct TokenTest {
    id: u32,
    comment: String,
    valid: bool,
    jws: String,
}

#[derive(Deserialize)]
struct SignatureGroup {
    key: RawKey,
    tests: Vec<SignatureTest>,
}

#[derive(Deserialize)]
struct RawKey {
    point: String,
}

#[derive(Deserialize)]
struct SignatureTest {
    id: u32,
    comment: String,
    result: String,
    message: String,
    signature: String,
}

fn groups<T: DeserializeOwned>(name: &str) -> Vec<T> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/sidecar/auth/vectors");
    let text = fs::read_to_string(folder.join(name)).expect("the vectors are committed");
    let groups = text.lines().map(serde_json::from_str);
    groups.collect::<Result<_, _>>().expect("a group is JSON")
}

/// Verifies the token with these keys: a published set, or the secret in the operator's file.
async fn is_accepted(keys: &[Value], token: &str) -> bool {
    let Ok(jws) = Jws::parse(token.as_bytes()) else {
        return false;
    };
    if jws.alg != Alg::Hs256 {
        let set = json!({ "keys": keys }).to_string();
        return KeySet::parse(set.as_bytes()).is_some_and(|set| set.verify(&jws));
    }
    let secrets = keys.iter().filter_map(|key| key["k"].as_str());
    let secrets = secrets.filter_map(|text| URL_SAFE_NO_PAD.decode(text).ok());
    let config = SessionLive {
        issuer: None,
        audience: String::new(),
        hs256_secret_files: Vec::new(),
        jwks_url: None,
        plc_url: String::new(),
        localhost_dids: false,
    };
    let platform = Platform::new(&config, secrets.map(Secret::new).collect());
    platform.verify(&jws).await.is_ok()
}

/// Whether the token names an algorithm of sessions.
fn is_supported(token: &str) -> bool {
    let header = token.split('.').next().unwrap_or_default();
    let header = URL_SAFE_NO_PAD.decode(header).unwrap_or_default();
    let header: Value = serde_json::from_slice(&header).unwrap_or_default();
    let alg = header["alg"].as_str().and_then(Alg::of_header);
    alg.is_some_and(|alg| alg != Alg::Es256k)
}

/// Judges all tokens of a file. Returns the tests that are judged differently from the vectors.
async fn different(name: &str, count: usize) -> Vec<(u32, String)> {
    let mut seen = 0;
    let mut different = Vec::new();
    for TokenGroup { keys, tests } in groups(name) {
        for test in tests {
            seen += 1;
            let expected = test.valid && is_supported(&test.jws);
            if is_accepted(&keys, &test.jws).await != expected {
                different.push((test.id, test.comment));
            }
        }
    }
    assert_eq!(seen, count, "tests of {name}");
    different
}

fn named(expected: &[(u32, &str)]) -> Vec<(u32, String)> {
    let own = |(id, comment): &(u32, &str)| (*id, (*comment).to_owned());
    expected.iter().map(own).collect()
}

#[tokio::test]
async fn tokens_of_wycheproof_are_judged_as_published() {
    let odd = [
        // equal to test 357, which is valid
        (367, "invalidBase64Padding"),
        (370, "invalidBase64PaddingInPayload"),
        // base64 has no question mark
        (373, "InvalidCharacterInsertedInPayload"),
    ];
    assert_eq!(different("jws.ndjson", 401).await, named(&odd));
    let laxer = [
        // a secret is a file without an id or an algorithm, and not part of a set
        (1, "rejectsValid"),
        (4, "rejectsDuplicateKid"),
        (25, "rejectsAesKey"),
        (26, "rejectsAesKey"),
        // a weak key that the platform would have to publish itself
        (7, "rejectsKeyWithRocaVulnerability"),
    ];
    let mut laxer = named(&laxer);
    laxer.sort();
    assert_eq!(different("jwk.ndjson", 26).await, laxer);
}

#[test]
fn signatures_of_wycheproof_are_judged_as_published() {
    for (name, alg, count) in [
        ("p256.ndjson", Alg::Es256, 262),
        ("k256.ndjson", Alg::Es256k, 252),
        ("ed25519.ndjson", Alg::EdDsa, 151),
    ] {
        let mut seen = 0;
        for SignatureGroup { key, tests } in groups(name) {
            let point = &hex::decode(key.point).expect("hex")[..];
            let key = match alg {
                Alg::Es256 => PublicKey::p256(point),
                Alg::Es256k => PublicKey::k256(point),
                _ => point.try_into().ok().map(PublicKey::Ed25519),
            };
            for test in tests {
                seen += 1;
                let message = hex::decode(test.message).expect("hex");
                let signature = hex::decode(test.signature).expect("hex");
                let key = key.as_ref();
                let is_good = key.is_some_and(|key| key.verify(alg, &message, &signature));
                assert_eq!(
                    is_good,
                    test.result == "valid",
                    "{name} {}: {}",
                    test.id,
                    test.comment
                );
            }
        }
        assert_eq!(seen, count, "tests of {name}");
    }
}
