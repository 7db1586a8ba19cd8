//! The backend's receiver of events: its URL, and the secrets that sign what it is sent.
//!
//! As <https://www.standardwebhooks.com> says: the id of an event, the time and the body are
//! signed, once with each secret, so that a secret can be replaced.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use portcullis_base::config::EventsLive;
use portcullis_base::fetch::Post;
use portcullis_base::secrets::{self, SecretError};
use portcullis_filters::events::Event;
use portcullis_filters::hmac;
use portcullis_filters::secret::Secret;
use std::ops::RangeInclusive;
use std::path::Path;

const KEY: &str = "relay.events.secret_file";
const PREFIX: &[u8] = b"whsec_";
/// The bytes of a secret, by the specification.
const LENGTHS: RangeInclusive<usize> = 24..=64;

/// The receiver of events.
#[derive(Debug)]
pub(crate) struct Receiver {
    pub(super) url: String,
    /// The current secret, and the next during a rotation.
    secrets: Vec<Secret>,
}

impl Receiver {
    /// Reads the secrets of the receiver, if there is one.
    ///
    /// # Errors
    /// The file is unusable.
    pub(super) fn load(live: &EventsLive) -> Result<Option<Self>, SecretError> {
        let Some((url, file)) = live.url.as_ref().zip(live.secret_file.as_ref()) else {
            return Ok(None);
        };
        let secrets = load_secrets(file).map_err(|error| error.of(KEY))?;
        let url = url.clone();
        Ok(Some(Self { url, secrets }))
    }

    /// An event as it is sent at this time; `None` for one without a body.
    pub(super) fn post(&self, event: &Event, now_us: i64) -> Option<Post> {
        let id = event.id();
        let body = event.body()?;
        let seconds = (now_us / 1_000_000).to_string();
        let signed = format!("{id}.{seconds}.{body}");
        let signatures = self.secrets.iter().map(|secret| {
            let tag = hmac::sign_with(secret.expose(), signed.as_bytes());
            format!("v1,{}", STANDARD.encode(tag))
        });
        let signatures = signatures.collect::<Vec<_>>().join(" ");
        Some(Post {
            media_type: "application/json",
            headers: vec![
                ("webhook-id".into(), id),
                ("webhook-timestamp".into(), seconds),
                ("webhook-signature".into(), signatures),
            ],
            body: Bytes::from(body),
        })
    }
}

fn load_secrets(file: &Path) -> Result<Vec<Secret>, SecretError> {
    let lines = secrets::lines(&secrets::read(file)?);
    let parsed: Option<Vec<Secret>> = lines.iter().map(parse).collect();
    match parsed {
        Some(secrets) if (1..=2).contains(&secrets.len()) => Ok(secrets),
        _ => Err(SecretError::not(
            file,
            "whsec_ and 24 to 64 bytes in base64, on one line, or two",
        )),
    }
}

fn parse(line: &Secret) -> Option<Secret> {
    let text = line.expose().strip_prefix(PREFIX)?;
    let secret = Secret::new(STANDARD.decode(text).ok()?);
    if LENGTHS.contains(&secret.expose().len()) {
        Some(secret)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use portcullis_filters::felt::Felt;
    use portcullis_filters::ledger::{IntentId, IntentState};

    fn secret(text: &str) -> Option<Secret> {
        parse(&Secret::new(text.into()))
    }

    #[test]
    fn a_secret_has_the_form_of_the_specification() {
        let long = format!("whsec_{}", STANDARD.encode([7; 65]));
        for (text, ok) in [
            ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", true),
            ("MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", false),
            ("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLa", false),
            ("whsec_!", false),
            ("whsec_", false),
            (&long, false),
        ] {
            assert_eq!(secret(text).is_some(), ok, "{text}");
        }
    }

    /// The example of the specification's libraries.
    #[test]
    fn a_signature_is_that_of_the_specification() {
        let key = secret("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw").unwrap();
        let signed = r#"msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}"#;
        let tag = hmac::sign_with(key.expose(), signed.as_bytes());
        let expected = "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=";
        assert_eq!(STANDARD.encode(tag), expected);
    }

    #[test]
    fn each_secret_signs() {
        let keys = [[7; 24], [9; 24]].map(|key| Secret::new(key.to_vec()));
        let receiver = Receiver {
            url: String::new(),
            secrets: keys.into(),
        };
        let event = Event {
            hash: "ab".repeat(32),
            at_us: 1,
            write: IntentId(1),
            state: IntentState::Lost,
            previous: None,
            block: None,
            detail: None,
            operation: "invoke".to_owned(),
            subject: None,
            signer: Felt::ZERO,
            nonce: 0,
            transaction_hash: Felt::ZERO,
        };
        let post = receiver.post(&event, 5_000_000).expect("it has a body");
        let [(_, id), (_, time), (_, signatures)] = &post.headers[..] else {
            panic!("{:?}", post.headers);
        };
        let body = std::str::from_utf8(&post.body).unwrap();
        let signed = format!("{id}.{time}.{body}");
        let expected = [[7; 24], [9; 24]].map(|key| {
            let tag = hmac::sign_with(&key, signed.as_bytes());
            format!("v1,{}", STANDARD.encode(tag))
        });
        assert_eq!(*signatures, expected.join(" "));
        assert_eq!(time, "5");
    }
}
