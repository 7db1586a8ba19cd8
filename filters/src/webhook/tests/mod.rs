//! Events through the policy: accepted signatures, the order of the checks, and the refusals'
//! texts. `event` tests the fields, `record` what an event changes.

mod event;
mod record;

use super::*;
use crate::hmac;
use crate::secret::Secret;
use proptest::prelude::*;
use serde_json::{Value, json};

const CURRENT: &str = "current-0123456789abcdef01234567";
const NEXT: &str = "next-0123456789abcdef0123456789a";
const SUBJECT: &str = "0123456789abcdef0123456789abcdef0123456789abcdef";
/// 2026-03-01T12:00:00Z
const NOON: i64 = 1_772_366_400_000_000;
const SECOND: i64 = 1_000_000;

fn policy() -> WebhookPolicy {
    let secrets = [CURRENT, NEXT].map(|text| Secret::new(text.into()));
    let age_bands = ["under_13", "13_15", "16_17", "18_plus"].map(String::from);
    WebhookPolicy {
        secrets: Secrets::new(secrets.into()).unwrap(),
        age_bands: age_bands.into(),
    }
}

fn header(secret: &str, body: &[u8]) -> String {
    let signature = hmac::sign(&Secret::new(secret.into()), body);
    signature.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Inspects a body that the verifier signed, at noon.
fn signed(body: impl AsRef<[u8]>) -> Result<SignedEvent, Refusal> {
    let body = body.as_ref();
    policy().inspect(
        Signature::of([header(CURRENT, body)]),
        MediaType::Json,
        body,
        NOON,
    )
}

fn verified() -> Value {
    json!({
        "event_id": "evt_1",
        "subject_ref": SUBJECT,
        "status": "verified",
        "age_band": "18_plus",
        "verified_at": "2026-03-01T11:59:00Z",
        "expires_at": "2027-03-01T11:59:00Z",
        "occurred_at": "2026-03-01T12:00:00Z",
    })
}

fn bare(status: &str) -> Value {
    json!({
        "event_id": "evt_1",
        "subject_ref": SUBJECT,
        "status": status,
        "occurred_at": "2026-03-01T12:00:00Z",
    })
}

/// Sets or removes one field of an event.
fn with(mut event: Value, name: &str, value: Option<Value>) -> String {
    let fields = event.as_object_mut().unwrap();
    match value {
        Some(value) => fields.insert(name.to_owned(), value),
        None => fields.remove(name),
    };
    event.to_string()
}

#[test]
fn an_event_is_read_as_it_was_meant() {
    let event = signed(verified().to_string()).unwrap();
    assert_eq!(event.event_id(), "evt_1");
    assert_eq!(event.subject_ref(), SUBJECT);
    assert_eq!(event.status(), AgeStatus::Verified);
    assert_eq!(event.age_band(), Some("18_plus"));
    assert_eq!(event.verified_us(), Some(NOON - 60 * SECOND));
    assert_eq!(
        event.expires_us(),
        Some(NOON - 60 * SECOND + 365 * 86_400 * SECOND)
    );
    assert_eq!(event.occurred_us(), NOON);
    for status in AgeStatus::ALL
        .into_iter()
        .filter(|status| *status != AgeStatus::Verified)
    {
        let event = signed(bare(status.name()).to_string()).unwrap();
        assert_eq!(event.status(), status);
        assert_eq!(
            (event.age_band(), event.verified_us(), event.expires_us()),
            (None, None, None)
        );
    }
}

#[test]
fn the_first_check_that_fails_answers() {
    let good = verified().to_string();
    let junk = "junk";
    let large = " ".repeat(MAX_WEBHOOK_BODY + 1);
    for (body, is_signed, media_type, expected) in [
        (&*large, false, MediaType::Other, Some(Reason::BodyTooLarge)),
        (&large, true, MediaType::Json, Some(Reason::BodyTooLarge)),
        (
            junk,
            false,
            MediaType::Other,
            Some(Reason::BadWebhookSignature),
        ),
        (
            junk,
            false,
            MediaType::Json,
            Some(Reason::BadWebhookSignature),
        ),
        (
            junk,
            true,
            MediaType::Other,
            Some(Reason::UnsupportedMediaType),
        ),
        (junk, true, MediaType::Json, Some(Reason::ParseError)),
        ("{}", true, MediaType::Json, Some(Reason::InvalidRequest)),
        (
            &good,
            false,
            MediaType::Json,
            Some(Reason::BadWebhookSignature),
        ),
        (
            &good,
            true,
            MediaType::Other,
            Some(Reason::UnsupportedMediaType),
        ),
        (&good, true, MediaType::Json, None),
    ] {
        let values = is_signed.then(|| header(CURRENT, body.as_bytes()));
        let verdict = policy().inspect(Signature::of(values), media_type, body.as_bytes(), NOON);
        let found = verdict.err().map(|refusal| refusal.reason);
        let shown = &body[..body.len().min(20)];
        assert_eq!(
            found, expected,
            "{shown} signed: {is_signed}, {media_type:?}"
        );
    }
}

#[test]
fn a_body_has_at_most_16_kib() {
    for (size, ok) in [(MAX_WEBHOOK_BODY, true), (MAX_WEBHOOK_BODY + 1, false)] {
        let body = format!("{:size$}", verified().to_string());
        assert_eq!(signed(body).is_ok(), ok, "{size} bytes");
    }
}

#[test]
fn every_failed_signature_reads_the_same() {
    let policy = policy();
    let body = verified().to_string();
    let current = header(CURRENT, body.as_bytes());
    let foreign = header("foreign-0123456789abcdef01234567", body.as_bytes());
    let mut refusals = Vec::new();
    for (values, ok) in [
        (vec![current.clone()], true),
        (vec![header(NEXT, body.as_bytes())], true),
        (vec![current.to_uppercase()], true),
        (vec![format!("sha256={current}")], true),
        (vec![], false),
        (vec![String::new()], false),
        (vec![current.clone(), current.clone()], false),
        (vec![format!("{current},{current}")], false),
        (vec![format!("SHA256={current}")], false),
        (vec![current[..63].to_owned()], false),
        (vec!["0".repeat(64)], false),
        (vec![foreign], false),
        (vec![header("", body.as_bytes())], false),
        (vec![header(CURRENT, format!("{body} ").as_bytes())], false),
        (vec![header(CURRENT, b"")], false),
    ] {
        let verdict = policy.inspect(
            Signature::of(&values),
            MediaType::Json,
            body.as_bytes(),
            NOON,
        );
        assert_eq!(verdict.is_ok(), ok, "{values:?}");
        refusals.extend(verdict.err());
    }
    let all_the_same = refusals.iter().all(|refusal| *refusal == refusals[0]);
    assert!(
        all_the_same,
        "nobody learns how near a signature came: {refusals:?}"
    );
    assert_eq!(refusals[0].reason, Reason::BadWebhookSignature);
}

#[test]
fn no_bit_of_a_signature_may_differ() {
    let body = verified().to_string();
    let right = hmac::sign(&Secret::new(CURRENT.into()), body.as_bytes());
    for bit in 0..256 {
        let mut wrong = right;
        wrong[bit / 8] ^= 1 << (bit % 8);
        let value: String = wrong.iter().map(|byte| format!("{byte:02x}")).collect();
        let verdict = policy().inspect(
            Signature::of([value]),
            MediaType::Json,
            body.as_bytes(),
            NOON,
        );
        assert_eq!(
            verdict.unwrap_err().reason,
            Reason::BadWebhookSignature,
            "bit {bit}"
        );
    }
}

/// An event with one field changed, and a few bytes replaced anywhere.
fn mangled() -> impl Strategy<Value = Vec<u8>> {
    let name = prop::sample::select(vec!["event_id", "status", "age_band", "verified_at", "x"]);
    let event = (prop::bool::ANY, name, any::<Option<String>>()).prop_map(|(full, name, value)| {
        let event = if full { verified() } else { bare("expired") };
        with(event, name, value.map(Value::from)).into_bytes()
    });
    (
        event,
        any::<prop::sample::Index>(),
        prop::collection::vec(any::<u8>(), 0..3),
    )
        .prop_map(|(mut body, at, bytes)| {
            let at = at.index(body.len());
            body.splice(at..(at + bytes.len()).min(body.len()), bytes);
            body
        })
}

proptest! {
    #[test]
    fn no_body_makes_it_panic(
        body in prop_oneof![prop::collection::vec(any::<u8>(), 0..600), mangled()],
        value in prop::collection::vec(any::<u8>(), 0..80),
        now in any::<i64>(),
    ) {
        let by_anyone = policy().inspect(Signature::of([value]), MediaType::Json, &body, now);
        prop_assert_eq!(by_anyone.unwrap_err().reason, Reason::BadWebhookSignature);
        let signature = Signature::of([header(NEXT, &body)]);
        match policy().inspect(signature, MediaType::Json, &body, now) {
            Ok(event) => {
                let is_verified = event.status() == AgeStatus::Verified;
                prop_assert_eq!(event.age_band().is_some(), is_verified);
                prop_assert_eq!(event.verified_us().is_some(), is_verified);
            }
            Err(refusal) => prop_assert!(matches!(
                refusal.reason,
                Reason::ParseError | Reason::InvalidRequest
            )),
        }
    }

    #[test]
    fn no_bit_of_a_body_may_differ(
        mut body in prop_oneof![prop::collection::vec(any::<u8>(), 1..600), mangled()],
        at in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        let signature = Signature::of([header(CURRENT, &body)]);
        let at = at.index(body.len());
        body[at] ^= 1 << bit;
        let refusal = policy().inspect(signature, MediaType::Json, &body, NOON).unwrap_err();
        prop_assert_eq!(refusal.reason, Reason::BadWebhookSignature);
    }

    #[test]
    fn a_refusal_repeats_nothing_of_what_was_sent(
        name in prop::sample::select(vec![
            "event_id", "subject_ref", "status", "age_band", "verified_at", "expires_at",
            "occurred_at", "MARKED",
        ]),
        text in "[ -~]{0,9}MARKED[ -~]{0,9}",
        full in prop::bool::ANY,
    ) {
        let event = if full { verified() } else { bare("pending") };
        if let Err(refusal) = signed(with(event, name, Some(text.into()))) {
            prop_assert!(!refusal.message.contains("MARKED"), "{}", refusal.message);
        }
    }
}
