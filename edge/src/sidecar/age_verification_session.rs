//! `age-verification-session`: starts a proof of age, and reports its status to the user.
//!
//! The reference sent to the verifier is 24 random bytes: it reveals nothing about the user, and
//! knowing it is useless, since the verifier signs its reports.

use super::auth::User;
use super::{Refused, Settings, refused};
use crate::reply::Reply;
use portcullis_base::io::clock::{self, micros, now_us};
use portcullis_filters::policy::RequestParts;
use portcullis_filters::verdict::{Reason, Refusal};
use portcullis_filters::webhook::AgeStatus;
use portcullis_filters::window::seconds_until;
use portcullis_store::{AccountStatus, AgeUser, Opening, Store};
use ring::rand::{SecureRandom as _, SystemRandom};
use serde_json::json;
use std::time::SystemTime;

/// The contract's length of a reference, written as 48 hexadecimal digits.
const REFERENCE_BYTES: usize = 24;

pub(super) async fn answer(
    store: &Store,
    settings: &Settings,
    request: &RequestParts,
    body: &[u8],
) -> Result<Reply, Refused> {
    let user = settings
        .auth
        .user(&request.authorization, SystemTime::now())
        .await?;
    let account = store.accounts().by_user(&user.id).await?;
    if account.is_some_and(|account| account.status == AccountStatus::Banned) {
        return Err(refused(Reason::Forbidden, "this user may not do this"));
    }
    if !request.is_post {
        let known = store.ages().user(&user.id, settings.age_clock()).await?;
        return Ok(status(known.as_ref()));
    }
    request.no_body(body)?;
    open(store, settings, &user).await
}

async fn open(store: &Store, settings: &Settings, user: &User) -> Result<Reply, Refused> {
    let age = &settings.live.age;
    let now = now_us();
    let expires = now.saturating_add(micros(age.session_lifetime));
    let reference = reference()?;
    match store
        .ages()
        .open_session(&user.id, &reference, now, expires)
        .await?
    {
        Opening::TooMany { retry_at_us } => {
            let message = "this user has too many sessions: wait for Retry-After seconds";
            let refusal = Refusal {
                retry_after: seconds_until(retry_at_us, now),
                ..Refusal::new(Reason::RateLimited, message)
            };
            Err(refusal.into())
        }
        Opening::Opened => {
            let mut body = json!({
                "subject_ref": reference,
                "status": AgeStatus::Pending.name(),
                "expires_at": instant(expires),
            });
            if let Some(url) = &age.verification_url {
                body["verification_url"] = url.replace("{subject_ref}", &reference).into();
            }
            Ok(Reply::serialize(201, &body))
        }
    }
}

/// The user's current status.
fn status(known: Option<&AgeUser>) -> Reply {
    let Some(user) = known else {
        return Reply::serialize(200, &json!({ "status": "unverified" }));
    };
    let mut body = json!({ "status": user.status.name() });
    if user.status == AgeStatus::Verified {
        body["age_band"] = user.age_band.as_deref().into();
        body["verified_at"] = user.verified_us.map(instant).into();
        body["expires_at"] = user.expires_us.map(instant).into();
    }
    Reply::serialize(200, &body)
}

fn reference() -> Result<String, Refused> {
    let mut random = [0; REFERENCE_BYTES];
    SystemRandom::new().fill(&mut random).map_err(|_| {
        log::error!("the kernel returned no random bytes");
        refused(
            Reason::Overloaded,
            "no reference can be generated now: try again",
        )
    })?;
    Ok(hex::encode(random))
}

/// RFC 3339, in whole seconds.
fn instant(us: i64) -> String {
    clock::rfc3339_of(us.max(0) / 1_000_000)
}
