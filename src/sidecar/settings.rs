//! The sidecar's configuration made ready: policy, documents that never change, secrets.
//!
//! In: a [`SidecarConfig`] and the files it names. Secrets stay in types that wipe themselves and
//! print nothing.

use super::auth::{Auth, AuthSettings};
use super::document::Document;
use super::health_check::Health;
use super::seo_robots::{self, Robots};
use crate::config::{AgeConfig, FeedsConfig, SidecarConfig};
use crate::http::clients::ClientLimits;
use crate::secrets::{self, Secret, SecretError};
use portcullis_filters::bearer::Tokens;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::hmac::Secrets;
use portcullis_filters::policy::SidecarPolicy;
use portcullis_filters::webhook::WebhookPolicy;
use std::path::{Path, PathBuf};

/// What a running sidecar can change.
pub struct Settings {
    /// The policy.
    pub policy: SidecarPolicy,
    /// How much one client may ask.
    pub limits: ClientLimits,
    pub(super) base_url: String,
    pub(super) feeds: FeedsConfig,
    pub(super) auth: Auth,
    pub(super) health: Health,
    pub(super) age: AgeConfig,
    pub(super) robots: Document,
}

impl Settings {
    /// Reads the secrets of sessions and of the verifier, and the operator's token.
    ///
    /// # Errors
    /// A secret's file can not be used.
    pub fn load(config: &SidecarConfig) -> Result<Self, SecretError> {
        let SidecarConfig { base_url, feeds, age, robots, .. } = config;
        let operator = config.operator_token_file.as_deref().map(operator).transpose()?;
        let secrets = Secrets::new(secrets(&age.webhook_secret_files)?);
        let webhook =
            secrets.map(|secrets| WebhookPolicy { secrets, age_bands: age.age_bands.clone() });
        Ok(Self {
            policy: SidecarPolicy {
                trusted_proxies: TrustedProxies::from(config.clients.trusted_proxies.clone()),
                operator,
                webhook,
                signature_header: age.signature_header.clone(),
            },
            limits: ClientLimits::new(&config.clients),
            base_url: base_url.clone(),
            feeds: feeds.clone(),
            auth: Auth::new(auth(config)?),
            health: Health::new(&config.health),
            age: age.clone(),
            robots: seo_robots::robots(&Robots {
                base_url,
                indexing: robots.indexing,
                disallow: &robots.disallow,
                blocked_agents: &robots.blocked_agents,
            }),
        })
    }
}

/// How the sidecar finds out who asks.
fn auth(config: &SidecarConfig) -> Result<AuthSettings, SecretError> {
    let session = &config.session;
    Ok(AuthSettings {
        issuer: session.issuer.clone(),
        audience: session.audience.clone(),
        hs256_secrets: secrets(&session.hs256_secret_files)?,
        jwks_url: session.jwks_url.clone(),
        plc_url: session.plc_url.clone(),
        service_did: config.feeds.service_did.clone(),
        localhost_dids: session.localhost_dids,
    })
}

fn operator(file: &Path) -> Result<Tokens, SecretError> {
    let token = secrets::read(file)?;
    Tokens::new(std::slice::from_ref(&token)).ok_or_else(|| {
        SecretError::not(file, "a token: at least 32 visible ASCII characters on one line")
    })
}

/// HMAC secrets, each judged by itself, so that the file at fault is named.
fn secrets(files: &[PathBuf]) -> Result<Vec<Secret>, SecretError> {
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
