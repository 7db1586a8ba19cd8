//! An event's body: a JSON object of exactly the seven fields.
//!
//! A refusal names the wrong field and never echoes the sender's text, not even the name of an
//! unknown field.

use super::AgeStatus;
use crate::rpc::json::{Json, MemberError};
use crate::verdict::{Reason, Refusal};
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use sha2::{Digest, Sha256};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

const FIELDS: [&str; 7] = [
    "event_id",
    "subject_ref",
    "status",
    "age_band",
    "verified_at",
    "expires_at",
    "occurred_at",
];
/// The longest event id; every UUID, ULID and prefixed id is shorter.
const MAX_EVENT_ID: usize = 128;
/// The length of a subject reference: 24 random bytes in hexadecimal.
const SUBJECT_REF: usize = 48;
/// Five minutes: the clocks of two services may differ by this.
const TOLERANCE_US: i64 = 5 * 60 * 1_000_000;
/// 2000-01-01T00:00:00Z: an older time is a mistake, such as seconds read as milliseconds.
const YEAR_2000_US: i64 = 946_684_800_000_000;

/// A well-formed event, signed by the verifier. Instants are microseconds since 1970.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SignedEvent {
    event_id: Box<str>,
    subject_ref: Box<str>,
    status: AgeStatus,
    age_band: Option<Box<str>>,
    verified_us: Option<i64>,
    expires_us: Option<i64>,
    occurred_us: i64,
}

impl SignedEvent {
    /// Parses a body whose signature is verified.
    ///
    /// # Errors
    /// Returns `parse_error` or `invalid_request`.
    pub(super) fn parse(body: &[u8], age_bands: &[String], now_us: i64) -> Result<Self, Refusal> {
        let [
            event_id,
            subject_ref,
            status,
            age_band,
            verified_at,
            expires_at,
            occurred_at,
        ] = fields(body)?;
        let (event_id, subject_ref) = (event_id.event_id()?, subject_ref.subject_ref()?);
        let (status, occurred_us) = (status.status()?, occurred_at.instant()?);
        let (age_band, verified_us) = match status {
            AgeStatus::Verified => (
                Some(age_band.age_band(age_bands)?),
                Some(verified_at.instant()?),
            ),
            _ => (age_band.absent(status)?, verified_at.absent(status)?),
        };
        let expires_us = match status {
            AgeStatus::Verified | AgeStatus::Expired => expires_at.optional_instant()?,
            _ => expires_at.absent(status)?,
        };
        if occurred_us > now_us.saturating_add(TOLERANCE_US) {
            return Err(invalid("occurred_at must not be in the future"));
        }
        if verified_us.is_some_and(|at| at > occurred_us.saturating_add(TOLERANCE_US)) {
            return Err(invalid("verified_at must not be later than occurred_at"));
        }
        if verified_us
            .zip(expires_us)
            .is_some_and(|(from, until)| until <= from)
        {
            return Err(invalid("expires_at must be later than verified_at"));
        }
        Ok(Self {
            event_id,
            subject_ref,
            status,
            age_band,
            verified_us,
            expires_us,
            occurred_us,
        })
    }

    /// The sender's id of the event, the same at each delivery.
    pub fn event_id(&self) -> &str {
        &self.event_id
    }

    /// The subject of the verification.
    pub fn subject_ref(&self) -> &str {
        &self.subject_ref
    }

    /// The reported status.
    pub fn status(&self) -> AgeStatus {
        self.status
    }

    /// The proven age band; present exactly when verified.
    pub fn age_band(&self) -> Option<&str> {
        self.age_band.as_deref()
    }

    /// The time of the proof; present exactly when verified.
    pub fn verified_us(&self) -> Option<i64> {
        self.verified_us
    }

    /// The expiry, which a verified or an expired event may have.
    pub fn expires_us(&self) -> Option<i64> {
        self.expires_us
    }

    /// When it occurred, which orders events.
    pub fn occurred_us(&self) -> i64 {
        self.occurred_us
    }

    /// Identifies the content, regardless of its spelling: SHA-256 over the fields in order, each
    /// as its length and its bytes; an absent field is empty.
    pub fn digest(&self) -> [u8; 32] {
        let instant = |us: Option<i64>| us.map(i64::to_be_bytes);
        let (verified, expires) = (instant(self.verified_us), instant(self.expires_us));
        let fields: [&[u8]; 7] = [
            self.event_id.as_bytes(),
            self.subject_ref.as_bytes(),
            self.status.name().as_bytes(),
            self.age_band.as_deref().unwrap_or_default().as_bytes(),
            verified
                .as_ref()
                .map(<[u8; 8]>::as_slice)
                .unwrap_or_default(),
            expires
                .as_ref()
                .map(<[u8; 8]>::as_slice)
                .unwrap_or_default(),
            &self.occurred_us.to_be_bytes(),
        ];
        let mut hash = Sha256::new();
        for field in fields {
            hash.update(u64::try_from(field.len()).unwrap_or(u64::MAX).to_be_bytes());
            hash.update(field);
        }
        hash.finalize().into()
    }
}

fn invalid(message: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::new(Reason::InvalidRequest, message)
}

/// The fields of an event; `null` counts as absent.
fn fields(body: &[u8]) -> Result<[Field<'_>; 7], Refusal> {
    let json = Json::parse(body).ok_or_else(Refusal::not_json)?;
    let values = json.members(&FIELDS).map_err(|error| match error {
        MemberError::NotAnObject => invalid("the body must be a JSON object"),
        MemberError::Unknown => invalid(format!(
            "unknown field: an event has only {}",
            FIELDS.join(", ")
        )),
        MemberError::Duplicate(name) => invalid(format!("{name} appears twice")),
    })?;
    let mut names = FIELDS.into_iter();
    Ok(values.map(|value| Field {
        name: names.next().unwrap_or_default(),
        value: value.unwrap_or(Json::Null),
    }))
}

/// A field of an event, before its type is known.
struct Field<'a> {
    name: &'static str,
    value: Json<'a>,
}

impl Field<'_> {
    /// Parses the value, which must be a string.
    fn read<T>(&self, expected: &str, parse: impl FnOnce(&str) -> Option<T>) -> Result<T, Refusal> {
        if self.value == Json::Null {
            return Err(invalid(format!("{} is required", self.name)));
        }
        let read = self.value.as_str().and_then(parse);
        read.ok_or_else(|| invalid(format!("{} must be {expected}", self.name)))
    }

    fn event_id(&self) -> Result<Box<str>, Refusal> {
        let accepted = |byte: u8| byte.is_ascii_alphanumeric() || b"._:-".contains(&byte);
        self.read(
            "a string of 1 to 128 letters, digits, and . _ : -",
            |text| {
                let fits = (1..=MAX_EVENT_ID).contains(&text.len()) && text.bytes().all(accepted);
                fits.then(|| text.into())
            },
        )
    }

    fn subject_ref(&self) -> Result<Box<str>, Refusal> {
        let accepted = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        self.read("a string of 48 hexadecimal digits in lower case", |text| {
            let fits = text.len() == SUBJECT_REF && text.bytes().all(accepted);
            fits.then(|| text.into())
        })
    }

    fn status(&self) -> Result<AgeStatus, Refusal> {
        let expected = "one of pending, verified, rejected, expired and revoked";
        self.read(expected, AgeStatus::parse)
    }

    fn age_band(&self, bands: &[String]) -> Result<Box<str>, Refusal> {
        self.read("one of the configured age bands", |text| {
            bands
                .iter()
                .find(|band| *band == text)
                .map(|band| band.as_str().into())
        })
    }

    fn instant(&self) -> Result<i64, Refusal> {
        self.read(
            "an RFC 3339 time such as 2030-01-31T12:00:00Z, from 2000 on",
            |text| {
                // the parser takes any byte between date and time
                let separated = matches!(text.as_bytes().get(10), Some(b'T' | b't'));
                let time = OffsetDateTime::parse(text, &Rfc3339)
                    .ok()
                    .filter(|_| separated)?;
                let us = i64::try_from(time.unix_timestamp_nanos() / 1_000).ok()?;
                (us >= YEAR_2000_US).then_some(us)
            },
        )
    }

    fn optional_instant(&self) -> Result<Option<i64>, Refusal> {
        if self.value == Json::Null {
            Ok(None)
        } else {
            self.instant().map(Some)
        }
    }

    /// Refuses the field unless it is absent: an event of this status has none.
    fn absent<T>(&self, status: AgeStatus) -> Result<Option<T>, Refusal> {
        if self.value == Json::Null {
            return Ok(None);
        }
        Err(invalid(format!(
            "{} must be absent when {}",
            self.name,
            status.name()
        )))
    }
}
