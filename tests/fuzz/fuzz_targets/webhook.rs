//! An age verifier's event, signed, against `serde_json` and a second reading of the seven fields:
//! the same events pass, with the same values, and none under a signature of other bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_filters::hmac::{self, Secrets};
use portcullis_filters::policy::MediaType;
use portcullis_filters::secret::Secret;
use portcullis_filters::verdict::Reason;
use portcullis_filters::webhook::{Signature, SignedEvent, WebhookPolicy};
use portcullis_fuzz::reference::unique;
use serde_json::Value;
use std::sync::LazyLock;
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const SECRET: &str = "current-0123456789abcdef01234567";
const BANDS: [&str; 2] = ["16_17", "18_plus"];
/// 2026-03-01T12:00:00Z, in microseconds.
const NOON: i64 = 1_772_366_400_000_000;
/// Five minutes, in microseconds.
const TOLERANCE: i64 = 300_000_000;

static POLICY: LazyLock<WebhookPolicy> = LazyLock::new(|| WebhookPolicy {
    secrets: Secrets::new(vec![Secret::new(SECRET.into())]).expect("a long secret"),
    age_bands: BANDS.map(String::from).to_vec(),
});

fuzz_target!(|body: &[u8]| {
    let event = inspect(body, body);
    let value = unique(body);
    let expected = value
        .as_ref()
        .and_then(reference)
        .filter(|_| body.len() <= 16_384);
    assert_eq!(event.as_ref().ok().map(fields), expected);

    let mut other = body.to_vec();
    other.push(b' ');
    let reason = inspect(body, &other).expect_err("a signature of other bytes");
    assert!(
        matches!(reason, Reason::BadWebhookSignature | Reason::BodyTooLarge),
        "{reason:?}"
    );
    if let (Ok(event), Some(value)) = (event, value) {
        let respelled = value.to_string();
        let respelled = inspect(respelled.as_bytes(), respelled.as_bytes()).expect("the same");
        assert_eq!(respelled, event);
        assert_eq!(respelled.digest(), event.digest());
    }
});

/// Judges a body under the signature of these bytes.
fn inspect(signed: &[u8], body: &[u8]) -> Result<SignedEvent, Reason> {
    let signature = hmac::sign(&Secret::new(SECRET.into()), signed);
    let signature: String = signature.iter().map(|byte| format!("{byte:02x}")).collect();
    let signature = Signature::of([signature]);
    POLICY
        .inspect(signature, MediaType::Json, body, NOON)
        .map_err(|refusal| refusal.reason)
}

type Fields = (
    String,
    String,
    String,
    Option<String>,
    Option<i64>,
    Option<i64>,
    i64,
);

fn fields(event: &SignedEvent) -> Fields {
    (
        event.event_id().to_owned(),
        event.subject_ref().to_owned(),
        event.status().name().to_owned(),
        event.age_band().map(str::to_owned),
        event.verified_us(),
        event.expires_us(),
        event.occurred_us(),
    )
}

fn reference(event: &Value) -> Option<Fields> {
    const NAMES: [&str; 7] = [
        "event_id",
        "subject_ref",
        "status",
        "age_band",
        "verified_at",
        "expires_at",
        "occurred_at",
    ];
    if !event
        .as_object()?
        .keys()
        .all(|name| NAMES.contains(&name.as_str()))
    {
        return None;
    }
    let is_absent = |name: &str| event.get(name).is_none_or(Value::is_null);
    let text = |name: &str| event.get(name)?.as_str().map(str::to_owned);
    let instant = |name: &str| text(name).and_then(|text| microseconds(&text));
    let one_of = |text: &String, accepted: fn(char) -> bool| text.chars().all(accepted);

    let id = text("event_id").filter(|id| (1..=128).contains(&id.len()))?;
    let subject = text("subject_ref").filter(|subject| subject.len() == 48)?;
    let is_id = one_of(&id, |c| c.is_ascii_alphanumeric() || "._:-".contains(c));
    let is_subject = one_of(&subject, |c| "0123456789abcdef".contains(c));
    let (status, occurred) = (text("status")?, instant("occurred_at")?);
    let band = text("age_band").filter(|band| BANDS.contains(&band.as_str()));
    let (verified, expires) = (instant("verified_at"), instant("expires_at"));
    let has_expiry = is_absent("expires_at") || expires.is_some();
    let is_bare = is_absent("age_band") && is_absent("verified_at");
    let fits = match status.as_str() {
        "verified" => band.is_some() && verified.is_some() && has_expiry,
        "expired" => is_bare && has_expiry,
        "pending" | "rejected" | "revoked" => is_bare && is_absent("expires_at"),
        _ => false,
    };
    let in_order = occurred <= NOON + TOLERANCE
        && verified.is_none_or(|verified| verified <= occurred + TOLERANCE)
        && verified
            .zip(expires)
            .is_none_or(|(from, until)| from < until);
    (is_id && is_subject && fits && in_order)
        .then_some((id, subject, status, band, verified, expires, occurred))
}

/// An instant of RFC 3339, from 2000 on.
fn microseconds(text: &str) -> Option<i64> {
    let time = OffsetDateTime::parse(text, &Rfc3339).ok()?;
    let separated = text
        .get(10..11)
        .is_some_and(|between| between.eq_ignore_ascii_case("t"));
    let us = i64::try_from(time.unix_timestamp_nanos().div_euclid(1_000)).ok()?;
    (separated && us >= 946_684_800_000_000).then_some(us)
}
