//! Authentication with keys generated here, and a server of key sets and DID documents.

mod platform;
mod service_tokens;
mod stub;

use std::cell::OnceCell;
use std::time::{Duration, SystemTime};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use k256::ecdsa::SigningKey;
use k256::ecdsa::signature::Signer as _;
use portcullis_base::config::SessionLive;
use portcullis_base::secrets::Secret;
use portcullis_edge::sidecar::auth::Auth;
use portcullis_filters::client::ClientKey;
use portcullis_filters::policy::Authorization;
use portcullis_filters::verdict::{Reason, Refusal};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256,
    RsaKeyPair, RsaPublicKeyComponents,
};
use serde_json::{Value, json};
use tokio::time::{Instant, advance};

const NOW: u64 = 1_800_000_000;
const SECRET: &str = "the platform's secret, 32 bytes or more";
const AUDIENCE: &str = "authenticated";

thread_local! {
    static START: OnceCell<Instant> = const { OnceCell::new() };
}

/// The time in tokens.
fn at(second: u64) -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(NOW + second)
}

/// Advances the paused clock of this test to a second after the start, and returns the time.
async fn reach(second: u64) -> SystemTime {
    let start = START.with(|start| *start.get_or_init(Instant::now));
    advance((start + Duration::from_secs(second)).saturating_duration_since(Instant::now())).await;
    at(second)
}

/// No key of the platform, and no server.
fn config() -> SessionLive {
    SessionLive {
        issuer: None,
        audience: AUDIENCE.to_owned(),
        hs256_secret_files: Vec::new(),
        jwks_url: None,
        plc_url: "http://127.0.0.1:9".to_owned(),
        localhost_dids: false,
    }
}

fn auth_with(config: &SessionLive, secrets: &[&str]) -> Auth {
    let secrets = secrets
        .iter()
        .map(|secret| Secret::new((*secret).into()))
        .collect();
    Auth::new(config, secrets, "did:web:feeds.example".to_owned())
}

fn client() -> ClientKey {
    ClientKey::of([127, 0, 0, 1].into())
}

fn header(bearer: &str) -> Authorization {
    Authorization::Present(Secret::new(bearer.into()))
}

/// The issuer's key.
enum Key {
    Secret(Vec<u8>),
    P256(EcdsaKeyPair),
    K256(SigningKey),
    Rsa(RsaKeyPair),
    Ed25519(Ed25519KeyPair),
}

impl Key {
    fn secret(text: &str) -> Self {
        Self::Secret(text.into())
    }

    fn p256() -> Self {
        let (scheme, random) = (&ECDSA_P256_SHA256_FIXED_SIGNING, SystemRandom::new());
        let pkcs8 = EcdsaKeyPair::generate_pkcs8(scheme, &random).expect("a key");
        Self::P256(EcdsaKeyPair::from_pkcs8(scheme, pkcs8.as_ref(), &random).expect("a key"))
    }

    /// The key of this number.
    fn k256(number: u8) -> Self {
        let mut scalar = [0; 32];
        scalar[31] = number;
        Self::K256(SigningKey::from_slice(&scalar).expect("a key"))
    }

    /// A key that is used nowhere else, because making one takes seconds.
    fn rsa() -> Self {
        Self::Rsa(RsaKeyPair::from_der(include_bytes!("rsa.der")).expect("a key"))
    }

    fn ed25519() -> Self {
        let pkcs8 = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).expect("a key");
        Self::Ed25519(Ed25519KeyPair::from_pkcs8(pkcs8.as_ref()).expect("a key"))
    }

    fn alg(&self) -> &'static str {
        match self {
            Self::Secret(_) => "HS256",
            Self::P256(_) => "ES256",
            Self::K256(_) => "ES256K",
            Self::Rsa(_) => "RS256",
            Self::Ed25519(_) => "EdDSA",
        }
    }

    fn sign(&self, message: &[u8]) -> Vec<u8> {
        let random = SystemRandom::new();
        match self {
            Self::Secret(secret) => {
                let secret = Secret::new(secret.clone());
                portcullis_filters::hmac::sign(&secret, message).to_vec()
            }
            Self::P256(key) => key
                .sign(&random, message)
                .expect("signed")
                .as_ref()
                .to_vec(),
            Self::K256(key) => {
                let signature: k256::ecdsa::Signature = key.sign(message);
                signature.to_vec()
            }
            Self::Ed25519(key) => key.sign(message).as_ref().to_vec(),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .expect("signed");
                signature
            }
        }
    }

    /// As a member of a key set.
    fn jwk(&self, kid: &str) -> Value {
        let number = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
        match self {
            Self::Secret(secret) => json!({"kty": "oct", "kid": kid, "k": number(secret)}),
            Self::P256(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                let [x, y] = [x, y].map(number);
                json!({"kty": "EC", "crv": "P-256", "kid": kid, "alg": "ES256", "x": x, "y": y})
            }
            Self::K256(key) => {
                let point = key.verifying_key().to_encoded_point(false);
                let [x, y] = [point.x(), point.y()].map(|part| number(part.expect("a point")));
                json!({"kty": "EC", "crv": "secp256k1", "kid": kid, "x": x, "y": y})
            }
            Self::Ed25519(key) => {
                let x = number(key.public_key().as_ref());
                json!({"kty": "OKP", "crv": "Ed25519", "kid": kid, "alg": "EdDSA", "x": x})
            }
            Self::Rsa(key) => {
                let RsaPublicKeyComponents::<Vec<u8>> { n, e } = key.public().into();
                let [n, e] = [n, e].map(|part| number(&part));
                json!({"kty": "RSA", "kid": kid, "use": "sig", "n": n, "e": e})
            }
        }
    }

    /// As in a DID document: the point, compressed or not, after these bytes.
    fn multibase(&self, codec: &[u8], compressed: bool) -> String {
        let point = match self {
            Self::K256(key) => key
                .verifying_key()
                .to_encoded_point(compressed)
                .as_bytes()
                .to_vec(),
            Self::P256(key) => {
                let full = key.public_key().as_ref();
                let short = || [&[2 + (full[64] & 1)], &full[1..33]].concat();
                if compressed { short() } else { full.to_vec() }
            }
            Self::Secret(_) | Self::Rsa(_) | Self::Ed25519(_) => {
                unreachable!("an account has a key on a curve")
            }
        };
        format!("z{}", bs58::encode([codec, &point].concat()).into_string())
    }

    fn multikey(&self) -> String {
        match self {
            Self::P256(_) => self.multibase(&[0x80, 0x24], true),
            _ => self.multibase(&[0xe7, 0x01], true),
        }
    }

    /// `Authorization` with a token of these claims.
    fn bearer(&self, claims: &Value) -> String {
        self.bearer_with(&json!({"alg": self.alg(), "typ": "JWT"}), claims)
    }

    fn bearer_with(&self, header: &Value, claims: &Value) -> String {
        signed(header, claims, |message| self.sign(message))
    }
}

/// `Authorization` with a token that `sign` signs.
fn signed(header: &Value, claims: &Value, sign: impl Fn(&[u8]) -> Vec<u8>) -> String {
    let [header, claims] = [header, claims].map(|part| URL_SAFE_NO_PAD.encode(part.to_string()));
    let message = format!("{header}.{claims}");
    let signature = URL_SAFE_NO_PAD.encode(sign(message.as_bytes()));
    format!("Bearer {message}.{signature}")
}

/// An object with some members changed: `null` removes one.
fn with(object: &Value, changes: &Value) -> Value {
    let mut object = object.clone();
    let members = object.as_object_mut().expect("an object");
    for (name, value) in changes.as_object().expect("an object") {
        members.insert(name.clone(), value.clone());
    }
    members.retain(|_, value| !value.is_null());
    object
}

fn reason<T>(result: Result<T, Refusal>) -> Option<Reason> {
    result.err().map(|refusal| refusal.reason)
}
