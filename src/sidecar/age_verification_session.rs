//! `age-verification-session`: begins a proof of age, and tells a user how it stands.
//!
//! The reference that goes to the verifier is 24 random bytes: nothing about the user can be told
//! from it, and knowing it changes nothing, since the verifier signs what it reports.

use super::auth::User;
use super::get_feed_skeleton::sole;
use super::settings::Settings;
use super::{Refused, Sidecar, micros, now_us, refused};
use crate::reply::Reply;
use crate::store::{AccountStatus, AgeUser, Opening};
use portcullis_filters::policy::Asked;
use portcullis_filters::verdict::Reason;
use portcullis_filters::webhook::AgeStatus;
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::json;
use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// The contract's length of a reference: 48 hexadecimal digits.
const REFERENCE_BYTES: usize = 24;

impl Sidecar {
    pub(super) async fn age_verification_session(
        &self,
        settings: &Settings,
        asked: &Asked,
        body: &[u8],
    ) -> Result<Reply, Refused> {
        let user = settings.auth.user(sole(&asked.authorization)?, SystemTime::now()).await?;
        let account = self.store.account_of_user(&user.id).await?;
        if account.is_some_and(|account| account.status == AccountStatus::Banned) {
            return Err(refused(Reason::Forbidden, "this user may not do this"));
        }
        if !asked.is_post {
            let known = self.store.age_user(&user.id, now_us()).await?;
            return Ok(standing(known.as_ref(), settings));
        }
        asked.nothing_in(body)?;
        self.open(settings, &user).await
    }

    async fn open(&self, settings: &Settings, user: &User) -> Result<Reply, Refused> {
        let now = now_us();
        let expires = now.saturating_add(micros(settings.age.session_lifetime));
        let reference = reference()?;
        match self.store.open_age_session(&user.id, &reference, now, expires).await? {
            Opening::TooMany { retry_at_us } => {
                let wait = retry_at_us.saturating_sub(now).div_euclid(1_000_000).saturating_add(1);
                let message = "too many sessions of this user: wait for Retry-After seconds";
                let retry_after = Some(u32::try_from(wait.max(1)).unwrap_or(u32::MAX));
                Err(Refused { retry_after, ..refused(Reason::RateLimited, message) })
            }
            Opening::Opened => {
                let mut body = json!({
                    "subject_ref": reference,
                    "status": AgeStatus::Pending.name(),
                    "expires_at": instant(expires),
                });
                if let Some(url) = &settings.age.verification_url {
                    body["verification_url"] = url.replace("{subject_ref}", &reference).into();
                }
                Ok(Reply::json(201, body.to_string()))
            }
        }
    }
}

/// What is known of a user's age now. A verification that names no end holds as long as configured.
fn standing(known: Option<&AgeUser>, settings: &Settings) -> Reply {
    let Some(user) = known else {
        return Reply::json(200, json!({ "status": "unverified" }).to_string());
    };
    let validity = micros(settings.age.validity);
    let end = user.expires_us.or(user.verified_us.map(|at| at.saturating_add(validity)));
    let is_over = user.status == AgeStatus::Verified && end.is_some_and(|end| end <= now_us());
    let status = if is_over { AgeStatus::Expired } else { user.status };
    let mut body = json!({ "status": status.name() });
    if status == AgeStatus::Verified {
        body["age_band"] = user.age_band.as_deref().into();
        body["verified_at"] = user.verified_us.map(instant).into();
        body["expires_at"] = end.map(instant).into();
    }
    Reply::json(200, body.to_string())
}

fn reference() -> Result<String, Refused> {
    let mut random = [0; REFERENCE_BYTES];
    SystemRandom::new().fill(&mut random).map_err(|_| {
        log::error!("the kernel gives no random bytes");
        refused(Reason::Overloaded, "no reference can be made now: try again")
    })?;
    Ok(random.iter().fold(String::with_capacity(2 * REFERENCE_BYTES), |mut text, byte| {
        // writing to a string does not fail
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

/// RFC 3339, in whole seconds.
fn instant(us: i64) -> String {
    let since = Duration::from_micros(us.max(0).unsigned_abs());
    humantime::format_rfc3339_seconds(UNIX_EPOCH + since).to_string()
}
