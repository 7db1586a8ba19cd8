//! The part of the sidecar that a reload replaces: policy, secrets, documents that never change.
//!
//! In: a [`SidecarConfig`] and the files it names. Secrets stay in types that wipe themselves and
//! print nothing.

use super::auth::Auth;
use super::document::Document;
use super::health_check::Health;
use super::seo_robots;
use crate::config::SidecarConfig;
use crate::http::clients::{self, ClientLimits};
use crate::secrets::{self, Secret, SecretError};
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::hmac::Secrets;
use portcullis_filters::policy::SidecarPolicy;
use portcullis_filters::webhook::WebhookPolicy;
use std::path::PathBuf;
use std::slice;

/// The part of a running sidecar that can change.
pub struct Settings {
    /// The policy.
    pub policy: SidecarPolicy,
    /// The limits of each client.
    pub limits: ClientLimits,
    pub(super) config: SidecarConfig,
    pub(super) auth: Auth,
    pub(super) health: Health,
    pub(super) robots: Document,
}

impl Settings {
    /// Reads the secrets of sessions and of the verifier, and the operator's token.
    ///
    /// # Errors
    /// A secret's file cannot be used.
    pub fn load(config: &SidecarConfig) -> Result<Self, SecretError> {
        let SidecarConfig { age, clients, session, .. } = config;
        let operator = config.operator_token_file.as_ref();
        let operator = operator.map(|file| secrets::tokens(slice::from_ref(file))).transpose()?;
        let secrets = Secrets::new(read_secrets(&age.webhook_secret_files)?);
        let webhook =
            secrets.map(|secrets| WebhookPolicy { secrets, age_bands: age.age_bands.clone() });
        let service_did = config.feeds.service_did.clone();
        let auth = Auth::new(session, read_secrets(&session.hs256_secret_files)?, service_did);
        Ok(Self {
            policy: SidecarPolicy {
                trusted_proxies: TrustedProxies::from(clients.trusted_proxies.clone()),
                operator,
                webhook,
                signature_header: age.signature_header.clone(),
            },
            limits: ClientLimits::new(clients),
            auth,
            health: Health::new(&config.health),
            robots: seo_robots::robots(&config.base_url, &config.robots),
            config: config.clone(),
        })
    }
}

impl clients::Settings for Settings {
    fn limits(&self) -> &ClientLimits {
        &self.limits
    }
}

/// Reads HMAC secrets and checks each one, so that the error names the file at fault.
fn read_secrets(files: &[PathBuf]) -> Result<Vec<Secret>, SecretError> {
    for (at, file) in files.iter().enumerate() {
        if Secrets::new(vec![secrets::read(file)?]).is_none() {
            return Err(SecretError::not(file, "a secret of at least 32 bytes"));
        }
        for other in &files[..at] {
            if Secrets::new(vec![secrets::read(file)?, secrets::read(other)?]).is_none() {
                return Err(SecretError::not(file, "a secret that no other file holds"));
            }
        }
    }
    files.iter().map(|file| secrets::read(file)).collect()
}
