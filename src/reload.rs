//! SIGHUP: the configuration is read again, and what a running process can change is changed.
//!
//! All of it or none: a file with a mistake changes nothing and is reported as `check` would. Each
//! change is logged, and each that only a restart brings.

use crate::config::{Config, LoadError};
use crate::secrets::SecretError;
use crate::surfaces::Surfaces;
use crate::{gateway, relay, sidecar};
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

/// What it takes to reload.
pub struct Reload {
    path: PathBuf,
    current: Mutex<Config>,
    surfaces: Surfaces,
}

impl Reload {
    /// Reloads `path` over `current`, which is in force.
    pub fn new(path: PathBuf, current: Config, surfaces: Surfaces) -> Self {
        Self { path, current: Mutex::new(current), surfaces }
    }

    /// Reads the files again, and takes over what can be.
    pub fn run(&self) {
        let Read { config: new, relay: relay_settings, sidecar: sidecar_settings } =
            match self.read() {
                Ok(read) => read,
                Err(error) => {
                    for line in error.to_string().lines() {
                        log::error!("not reloaded, nothing changes: {line}");
                    }
                    return;
                }
            };
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(gateway), Some(config)) = (&self.surfaces.gateway, &new.gateway) {
            gateway.change(gateway::Settings::from(config));
        }
        if let (Some(relay), Some(settings)) = (&self.surfaces.relay, relay_settings) {
            // the tokens may be others, though their files' names are not
            relay.change(settings.taken_over_by(&relay.settings()));
            log::warn!("the relay's tokens were read again");
        }
        if let (Some(sidecar), Some(settings)) = (&self.surfaces.sidecar, sidecar_settings) {
            sidecar.change(settings);
            log::warn!("the sidecar's secrets were read again");
        }
        log::set_max_level(new.log.level);
        let changes = current.values.changes(&new.values);
        for change in &changes {
            let (key, from, to) = (change.key, change.from, change.to);
            let when = if change.live { "now" } else { "after a restart" };
            log::warn!(key = key, from = from, to = to, effective = when; "configuration changed");
        }
        if changes.is_empty() {
            log::warn!("configuration read again: nothing changed");
        }
        drop(changes);
        *current = new;
    }

    /// The configuration and the secrets, all of them or nothing.
    fn read(&self) -> Result<Read, ReadError> {
        let config = Config::load(&self.path, std::env::vars_os()).map_err(ReadError::Config)?;
        let relay = config.relay.as_ref().map(relay::settings::Settings::load).transpose();
        let relay = relay.map_err(ReadError::Secret)?;
        let sidecar = config.sidecar.as_ref().map(sidecar::Settings::load).transpose();
        let sidecar = sidecar.map_err(ReadError::Secret)?;
        Ok(Read { config, relay, sidecar })
    }
}

/// What was read.
struct Read {
    config: Config,
    relay: Option<relay::settings::Settings>,
    sidecar: Option<sidecar::Settings>,
}

enum ReadError {
    Config(LoadError),
    Secret(SecretError),
}

impl std::fmt::Display for ReadError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Secret(error) => error.fmt(f),
        }
    }
}
