//! SIGHUP: the configuration is read again, and what a running process can change is changed.
//!
//! All of it or none: a file with a mistake changes nothing and is reported as `check` would. Each
//! change is logged, also those that need a restart; [`AppliedConfig`] records both.

use crate::admin::Access;
use crate::config::{AppliedConfig, Config, LoadError};
use crate::http::tls::{Identities, TlsErrors};
use crate::proxy::surfaces::Surfaces;
use crate::secrets::SecretError;
use crate::secrets::hardening;
use crate::telemetry::{Metrics, Surface};
use crate::{gateway, relay, sidecar};
use portcullis_filters::bearer::Tokens;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

/// What can be changed while the process runs.
#[derive(Clone)]
pub struct Live {
    /// The surfaces.
    pub surfaces: Surfaces,
    /// Who may see the operator's page, if there is one.
    pub access: Option<Arc<Access>>,
    /// Where it is noted.
    pub in_force: Arc<AppliedConfig>,
    /// Where it is counted.
    pub metrics: Arc<Metrics>,
}

/// What it takes to reload.
pub struct Reload {
    path: PathBuf,
    current: Mutex<Config>,
    live: Live,
}

impl Reload {
    /// Reloads `path` over `current`, which is in force.
    pub fn new(path: PathBuf, current: Config, live: Live) -> Self {
        Self { path, current: Mutex::new(current), live }
    }

    /// Reads the files again, and takes over what can be. Returns how many keys have changed.
    ///
    /// # Errors
    /// A file can not be used: nothing has changed. It is logged.
    pub fn run(&self) -> Result<usize, ReloadError> {
        let read = self.read();
        self.live.metrics.reloads.count(read.is_ok());
        let read = read.inspect_err(|error| {
            for line in error.to_string().lines() {
                log::error!("not reloaded, nothing changes: {line}");
            }
            self.live.in_force.record(None);
        })?;
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let new = self.take_over(read);
        let changes = current.values.changes(&new.values);
        for change in &changes {
            let (key, from, to) = (change.key, change.from, change.to);
            let when = if change.live { "now" } else { "after a restart" };
            log::warn!(key = key, from = from, to = to, effective = when; "configuration changed");
        }
        if changes.is_empty() {
            log::warn!("configuration read again: nothing changed");
        }
        let count = changes.len();
        drop(changes);
        self.live.in_force.record(Some(&new.values));
        *current = new;
        Ok(count)
    }

    /// Changes what can change, and gives back the configuration.
    fn take_over(&self, read: Read) -> Config {
        let Surfaces { gateway, relay, sidecar, .. } = &self.live.surfaces;
        if let (Some(gateway), Some(config)) = (gateway, &read.config.gateway) {
            gateway.change(gateway::Settings::from(config));
        }
        if let (Some(relay), Some(settings)) = (relay, read.relay) {
            // the tokens may be others, though their files' names are not
            relay.change(settings.applied_to(&relay.settings()));
            log::warn!("the relay's tokens were read again");
        }
        if let (Some(sidecar), Some(settings)) = (sidecar, read.sidecar) {
            sidecar.change(settings);
            log::warn!("the sidecar's secrets were read again");
        }
        if let (Some(access), Some(tokens)) = (&self.live.access, read.admin)
            && access.change(tokens)
        {
            log::warn!("the operator's token was read again");
        }
        self.change_identities(&read.identities);
        log::set_max_level(read.config.log.level);
        read.config
    }

    /// The certificates may be others, though their files' names are not.
    fn change_identities(&self, identities: &Identities) {
        if !identities.are_none() {
            hardening::no_core_files();
        }
        self.live.surfaces.tls.change(identities);
        for surface in Surface::ALL {
            if self.live.surfaces.tls.of(surface).is_some() {
                log::warn!(surface = surface.name(); "the certificate was read again");
            }
        }
        for warning in identities.warnings(SystemTime::now()) {
            log::warn!("{warning}");
        }
    }

    /// The configuration and the secrets, all of them or nothing.
    fn read(&self) -> Result<Read, ReloadError> {
        let config = Config::load(&self.path, std::env::vars_os()).map_err(ReloadError::Config)?;
        let relay = config.relay.as_ref().map(relay::settings::Settings::load).transpose();
        let relay = relay.map_err(ReloadError::Secret)?;
        let sidecar = config.sidecar.as_ref().map(sidecar::Settings::load).transpose();
        let sidecar = sidecar.map_err(ReloadError::Secret)?;
        let admin = config.admin.as_ref().map(Access::load).transpose();
        let admin = admin.map_err(ReloadError::Secret)?;
        let identities = Identities::load(&config).map_err(ReloadError::Tls)?;
        Ok(Read { config, relay, sidecar, admin, identities })
    }
}

/// What was read.
struct Read {
    config: Config,
    relay: Option<relay::settings::Settings>,
    sidecar: Option<sidecar::Settings>,
    admin: Option<Option<Tokens>>,
    identities: Identities,
}

/// Why nothing was reloaded.
#[derive(Debug)]
pub enum ReloadError {
    /// The configuration has mistakes, or can not be read.
    Config(LoadError),
    /// A secret can not be used.
    Secret(SecretError),
    /// A certificate or its key can not be used.
    Tls(TlsErrors),
}

impl std::error::Error for ReloadError {}

impl std::fmt::Display for ReloadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Secret(error) => error.fmt(f),
            Self::Tls(errors) => errors.fmt(f),
        }
    }
}
