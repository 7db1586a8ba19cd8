//! SIGHUP: reads the configuration again, and applies what a running process can change.
//!
//! All or nothing: an invalid file changes nothing and is reported as `check` would. Each change is
//! logged, even if it needs a restart; [`AppliedConfig`] records them for the operator's page.

use crate::admin::Access;
use crate::config::{AppliedConfig, Change, Config, LoadError};
use crate::gateway;
use crate::http::tls::Identities;
use crate::node::Node;
use crate::process::loaded::{FileErrors, Loaded};
use crate::proxy::Surfaces;
use crate::secrets;
use crate::telemetry::Metrics;
use parking_lot::Mutex;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use thiserror::Error;

/// Reloads a configuration file.
pub(crate) struct Reload {
    pub(crate) path: PathBuf,
    /// The configuration in force.
    pub(crate) current: Mutex<Config>,
    pub(crate) parts: Reloadable,
}

/// The parts that a reload changes, and those that report it.
#[derive(Clone)]
pub(crate) struct Reloadable {
    pub(crate) surfaces: Surfaces,
    pub(crate) access: Option<Arc<Access>>,
    pub(crate) node: Arc<Node>,
    pub(crate) in_force: Arc<AppliedConfig>,
    pub(crate) metrics: Arc<Metrics>,
}

impl Reload {
    /// Reads the files again, applies what can change, and returns the number of changed keys.
    ///
    /// # Errors
    /// Fails if a file is invalid; then nothing has changed. The error is logged.
    pub(crate) fn run(&self) -> Result<usize, ReloadError> {
        let read = self.read();
        match &read {
            Ok(_) => self.parts.metrics.reloads.succeeded(),
            Err(_) => self.parts.metrics.reloads.failed(),
        }
        let read = read.inspect_err(|error| {
            for line in error.to_string().lines() {
                log::error!("reload failed, nothing changed: {line}");
            }
            self.parts.in_force.record(None);
            let current = self.current.lock();
            secrets::set_group_read(current.secrets.group_read());
        })?;
        let mut current = self.current.lock();
        let (new, loaded) = read;
        let new = self.apply(new, loaded);
        let changes = current.values.changes(&new.values);
        for change in &changes {
            let Change {
                key,
                from,
                to,
                live,
            } = change;
            let when = if *live { "now" } else { "after a restart" };
            log::warn!(key = key, from = from, to = to, effective = when; "configuration changed");
        }
        if changes.is_empty() {
            log::info!("configuration reloaded: nothing changed");
        }
        let count = changes.len();
        drop(changes);
        self.parts.in_force.record(Some(&new.values));
        *current = new;
        Ok(count)
    }

    /// Applies what can change, and returns the configuration.
    fn apply(&self, config: Config, loaded: Loaded) -> Config {
        let Surfaces {
            gateway,
            relay,
            sidecar,
            ..
        } = &self.parts.surfaces;
        if let (Some(gateway), Some(config)) = (gateway, &config.gateway) {
            gateway.change(gateway::Settings::from(config));
        }
        if let (Some(relay), Some(settings)) = (relay, loaded.relay) {
            // tokens may differ although their file names do not
            relay
                .running
                .change(settings.applied_to(&relay.running.settings()));
            log::info!("the relay's tokens were reloaded");
        }
        if let (Some(sidecar), Some(settings)) = (sidecar, loaded.sidecar) {
            sidecar.change(settings);
            log::info!("the sidecar's secrets were reloaded");
        }
        if let (Some(access), Some(tokens)) = (&self.parts.access, loaded.admin)
            && access.change(tokens)
        {
            log::info!("the operator's token was reloaded");
        }
        self.parts.node.change(loaded.credentials);
        self.change_identities(&loaded.identities);
        self.parts.surfaces.trusted.change(&config);
        for warning in &config.warnings {
            log::warn!("{warning}");
        }
        log::set_max_level(config.log.level);
        config
    }

    /// Applies the certificates, which may differ although their file names do not.
    fn change_identities(&self, identities: &Identities) {
        for (surface, identity) in self.parts.surfaces.tls.change(identities) {
            let (surface, expires) = (surface.name(), identity.end());
            log::info!(surface = surface, expires = expires; "the certificate was reloaded");
        }
        for warning in identities.warnings(SystemTime::now()) {
            log::warn!("{warning}");
        }
    }

    /// Reads the configuration and all secrets.
    fn read(&self) -> Result<(Config, Loaded), ReloadError> {
        let mut config = Config::load(&self.path, std::env::vars_os())?;
        match self.current.lock().acme.clone() {
            Some(acme) => config.keep_acme(acme),
            None if config.acme.is_some() => return Err(ReloadError::Acme),
            None => {}
        }
        let loaded = Loaded::load(&config)?;
        Ok((config, loaded))
    }
}

/// Why a reload failed.
#[derive(Debug, Error)]
pub(crate) enum ReloadError {
    /// The configuration is invalid, or cannot be read.
    #[error(transparent)]
    Config(#[from] LoadError),
    /// Secrets or certificates are unusable.
    #[error(transparent)]
    Files(#[from] FileErrors),
    /// `[tls.acme]` is new: no running part would order the certificates.
    #[error("[tls.acme] is new: it needs a restart")]
    Acme,
}
