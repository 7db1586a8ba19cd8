//! The part of the sidecar that a reload replaces: policy, secrets, documents that never change.
//!
//! In: a [`SidecarLive`] and the files it names. Secrets stay in types that wipe themselves and
//! print nothing.

use super::auth::Auth;
use super::document::Document;
use super::health_check::Health;
use super::seo_robots;
use crate::http::clients::{self, ClientLimits};
use portcullis_base::config::SidecarLive;
use portcullis_base::io::clock::{micros, now_us};
use portcullis_base::secrets::{self, Secret, SecretError, SecretErrors};
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::hmac::Secrets;
use portcullis_filters::networks::Networks;
use portcullis_filters::policy::SidecarPolicy;
use portcullis_filters::webhook::{AgeClock, WebhookPolicy};
use std::path::{Path, PathBuf};
use std::slice;

/// The part of a running sidecar that can change.
pub struct Settings {
    /// The policy.
    pub policy: SidecarPolicy,
    /// The limits of each client.
    pub limits: ClientLimits,
    /// The keys of the configuration that are live.
    pub live: SidecarLive,
    pub(super) auth: Auth,
    pub(super) health: Health,
    pub(super) robots: Document,
}

impl Settings {
    /// Whether public documents of 1 KiB and more are compressed for clients that accept gzip.
    pub fn gzip(&self) -> bool {
        self.live.gzip
    }

    /// The time, and how long a verification without an end is valid.
    pub(super) fn age_clock(&self) -> AgeClock {
        AgeClock {
            now_us: now_us(),
            validity_us: micros(self.live.age.validity),
        }
    }

    /// Reads the secrets of sessions and of the verifier, and the operator's token.
    ///
    /// # Errors
    /// Returns an error for every secret file that cannot be used.
    pub fn load(live: &SidecarLive) -> Result<Self, SecretErrors> {
        let SidecarLive {
            age,
            clients,
            session,
            ..
        } = live;
        let operator_token =
            |file| secrets::tokens("sidecar.operator_token_file", slice::from_ref(file));
        let operator = live
            .operator_token_file
            .as_ref()
            .map(operator_token)
            .transpose();
        let webhook = read_secrets(
            "sidecar.age.webhook_secret_files",
            &age.webhook_secret_files,
        );
        let sessions = read_secrets(
            "sidecar.session.hs256_secret_files",
            &session.hs256_secret_files,
        );
        let (operator, webhook, sessions) = match (operator, webhook, sessions) {
            (Ok(operator), Ok(webhook), Ok(sessions)) => (operator, webhook, sessions),
            (operator, webhook, sessions) => {
                let errors = [operator.err(), webhook.err(), sessions.err()];
                return Err(SecretErrors::join(errors));
            }
        };
        let webhook = Secrets::new(webhook).map(|secrets| WebhookPolicy {
            secrets,
            age_bands: age.age_bands.clone(),
        });
        let auth = Auth::new(session, sessions, live.feeds.service_did.clone());
        Ok(Self {
            policy: SidecarPolicy {
                trusted_proxies: TrustedProxies::from(&*clients.trusted_proxies),
                exempt: Networks::from(&*live.exempt),
                operator,
                webhook,
                signature_header: age.signature_header.clone(),
            },
            limits: ClientLimits::new(clients),
            auth,
            health: Health::new(&live.health),
            robots: seo_robots::robots(live),
            live: live.clone(),
        })
    }
}

impl clients::Settings for Settings {
    fn limits(&self) -> &ClientLimits {
        &self.limits
    }

    fn trusted_proxies(&self) -> &TrustedProxies {
        &self.policy.trusted_proxies
    }
}

/// Reads the HMAC secrets of `key` and checks each one, so that an error names the file at fault.
fn read_secrets(key: &'static str, files: &[PathBuf]) -> Result<Vec<Secret>, SecretErrors> {
    let checked = files
        .iter()
        .enumerate()
        .map(|(at, file)| read_secret(file, &files[..at]));
    let (secrets, errors): (Vec<_>, Vec<_>) = checked.partition(Result::is_ok);
    if errors.is_empty() {
        return Ok(secrets.into_iter().flatten().collect());
    }
    let errors = errors
        .into_iter()
        .filter_map(Result::err)
        .map(|error| error.of(key));
    Err(SecretErrors(errors.collect()))
}

/// Reads a secret that must differ from those of `others`, which are checked separately.
fn read_secret(file: &Path, others: &[PathBuf]) -> Result<Secret, SecretError> {
    if Secrets::new(vec![secrets::read(file)?]).is_none() {
        return Err(SecretError::not(file, "a secret of at least 32 bytes"));
    }
    for other in others {
        // an unusable file is reported on its own
        let Ok(other) = secrets::read(other) else {
            continue;
        };
        if Secrets::new(vec![secrets::read(file)?, other]).is_none() {
            return Err(SecretError::not(file, "a secret that no other file holds"));
        }
    }
    secrets::read(file)
}
