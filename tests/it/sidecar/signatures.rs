//! Webhook signatures: valid signatures of the verifier, and everything that resembles one.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::support::check::each;
use crate::support::request::Request;
use crate::support::sidecar::content::ALICE;
use crate::support::sidecar::event::{Event, SIGNATURE, WEBHOOK, sign};
use crate::support::sidecar::expect::{answered, refused};
use crate::support::sidecar::stage::{Stage, WEBHOOK_SECRET, post};

const FILES: &str = "sidecar.age.webhook_secret_files";
const NEXT: &str = "the-next-secret-of-the-verifier-0123456";

fn with_signature(body: &str, value: &str) -> Request {
    post(WEBHOOK, body).with(SIGNATURE, value)
}

fn bytes(hex: &str) -> Vec<u8> {
    let pair = |at: usize| u8::from_str_radix(&hex[at..at + 2], 16);
    (0..hex.len())
        .step_by(2)
        .map(|at| pair(at).expect("hex"))
        .collect()
}

#[test]
fn signatures_allow_either_case_and_a_prefix() {
    let stage = Stage::new();
    let subject = stage.session(ALICE);
    let variants: [fn(&str) -> String; 5] = [
        |hex| hex.to_owned(),
        |hex| hex.to_uppercase(),
        |hex| format!("sha256={hex}"),
        |hex| format!("sha256={}", hex.to_uppercase()),
        |hex| format!("  {hex}\t"),
    ];
    for (number, variant) in variants.into_iter().enumerate() {
        let body = Event::new(&format!("hex-{number}"), &subject, "pending", 1).body();
        let value = variant(&sign(WEBHOOK_SECRET, &body));
        let name = if number % 2 == 0 {
            SIGNATURE
        } else {
            "x-service-verifier-signature"
        };
        let answer = stage.ask(&post(WEBHOOK, &body).with(name, &value));
        assert_ne!(answer.status, 401, "{value}: {}", answer.text());
    }
}

#[test]
fn whatever_only_looks_like_a_signature_is_refused() {
    let stage = Stage::new();
    let subject = stage.session(ALICE);
    let body = Event::new("looks", &subject, "verified", 0).body();
    let hex = sign(WEBHOOK_SECRET, &body);
    let flipped = if hex.starts_with('0') { '1' } else { '0' };
    let raw = bytes(&hex);
    let values = [
        String::new(),
        "sha256=".to_owned(),
        hex[1..].to_owned(),
        hex[..63].to_owned(),
        format!("{hex}0"),
        format!("{hex}{hex}"),
        format!("{flipped}{}", &hex[1..]),
        format!("{}g", &hex[..63]),
        format!("SHA256={hex}"),
        format!("sha256:{hex}"),
        format!("sha256= {hex}"),
        format!("sha512={hex}"),
        format!("sha1={hex}"),
        format!("v1={hex}"),
        format!("t=1,v1={hex}"),
        format!("{hex},{hex}"),
        format!("{hex} {hex}"),
        format!("0x{hex}"),
        format!("\"{hex}\""),
        BASE64_STANDARD.encode(&raw),
        format!("v1,{}", BASE64_STANDARD.encode(&raw)),
        "0".repeat(64),
        sign(&WEBHOOK_SECRET[1..], &body),
        sign(&format!("{WEBHOOK_SECRET}\n"), &body),
        sign("", &body),
        sign(WEBHOOK_SECRET, body.replace("verified", "revoked")),
        sign(WEBHOOK_SECRET, format!("{body} ")),
        sign(WEBHOOK_SECRET, ""),
    ];
    each(values, |value| {
        refused(
            &stage.ask(&with_signature(&body, &value)),
            "InvalidSignature",
            &value,
        );
    });
    let twice = with_signature(&body, &hex).with(SIGNATURE, &hex);
    refused(&stage.ask(&twice), "InvalidSignature", "the header twice");
    let second = with_signature(&body, &hex).with(SIGNATURE, "other");
    refused(
        &stage.ask(&second),
        "InvalidSignature",
        "a second signature",
    );
    refused(
        &stage.ask(&post(WEBHOOK, &body)),
        "InvalidSignature",
        "none",
    );
    let elsewhere = post(WEBHOOK, &body).with("X-Hub-Signature-256", &format!("sha256={hex}"));
    refused(
        &stage.ask(&elsewhere),
        "InvalidSignature",
        "in another header",
    );
    let bearer = post(WEBHOOK, &body).with("Authorization", &format!("Bearer {hex}"));
    refused(&stage.ask(&bearer), "InvalidSignature", "as a token");
    answered(
        &stage.ask(&with_signature(&body, &hex)),
        200,
        "the signature itself",
    );
}

#[test]
fn one_bit_of_the_body_makes_another_body() {
    let stage = Stage::new();
    let subject = stage.session(ALICE);
    let body = Event::new("bits", &subject, "verified", 0).body();
    let hex = sign(WEBHOOK_SECRET, &body);
    let mut client = stage.client();
    for at in (0..body.len()).step_by(5) {
        let mut changed = body.clone().into_bytes();
        changed[at] ^= 1 << (at % 8);
        let request = post(WEBHOOK, &changed).with(SIGNATURE, &hex);
        refused(
            &client.ask(&request),
            "InvalidSignature",
            &format!("a bit of byte {at}"),
        );
    }
    let spaced = body.replace("\":", "\": ");
    refused(
        &stage.ask(&with_signature(&spaced, &hex)),
        "InvalidSignature",
        "white space",
    );
    answered(
        &client.ask(&with_signature(&body, &hex)),
        200,
        "the body that was signed",
    );
}

#[test]
fn the_header_has_the_configured_name() {
    let stage = Stage::with(&[("sidecar.age.signature_header", "\"X-Hmac-Signature\"")]);
    let subject = stage.session(ALICE);
    let body = Event::new("named", &subject, "verified", 0).body();
    let hex = sign(WEBHOOK_SECRET, &body);
    refused(
        &stage.ask(&with_signature(&body, &hex)),
        "InvalidSignature",
        "the default name",
    );
    let named = post(WEBHOOK, &body).with("x-hmac-signature", &hex);
    answered(&stage.ask(&named), 200, "the configured one");
}

#[test]
fn two_secrets_are_valid_during_rotation() {
    let stage = Stage::new();
    let subject = stage.session(ALICE);
    let current = stage.folder.file("webhook.secret");
    let next = stage.folder.secret("next.secret", NEXT);
    let files = |files: &[&str]| {
        let files: Vec<_> = files.iter().map(|file| format!("\"{file}\"")).collect();
        let list = format!("[{}]", files.join(","));
        stage.setup.clone().set(FILES, &list)
    };
    let status = |second: i64, secret: &str| {
        let body = Event::new(&format!("at-{second}"), &subject, "pending", second).body();
        stage
            .ask(&with_signature(&body, &sign(secret, &body)))
            .status
    };
    let taken = [WEBHOOK_SECRET, NEXT].map(|secret| status(1, secret));
    assert_eq!(taken, [200, 401], "the next secret is not valid yet");
    stage.reload(FILES, &files(&[&current, &next]));
    let taken = [WEBHOOK_SECRET, NEXT, "another"].map(|secret| status(2, secret));
    assert_eq!(taken, [200, 200, 401], "both are good");
    stage.reload(FILES, &files(&[&next]));
    let taken = [WEBHOOK_SECRET, NEXT].map(|secret| status(3, secret));
    assert_eq!(taken, [401, 200], "the old one is not valid any more");
}
