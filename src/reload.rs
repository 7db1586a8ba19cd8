//! SIGHUP: the configuration is read again, and what a running process can change is changed.
//!
//! All of it or none: a file with a mistake changes nothing and is reported as `check` would. Each
//! change is logged, and each that only a restart brings.

use crate::config::Config;
use crate::gateway::{Gateway, Settings};
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

/// What it takes to reload.
pub struct Reload {
    path: PathBuf,
    current: Mutex<Config>,
    gateway: Option<Arc<Gateway>>,
}

impl Reload {
    /// Reloads `path` over `current`, which is in force.
    pub fn new(path: PathBuf, current: Config, gateway: Option<Arc<Gateway>>) -> Self {
        Self { path, current: Mutex::new(current), gateway }
    }

    /// Reads the file again, and takes over what can be.
    pub fn run(&self) {
        let new = match Config::load(&self.path, std::env::vars_os()) {
            Ok(new) => new,
            Err(error) => {
                for line in error.to_string().lines() {
                    log::error!("not reloaded, nothing changes: {line}");
                }
                return;
            }
        };
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if let (Some(gateway), Some(config)) = (&self.gateway, &new.gateway) {
            gateway.change(Settings::from(config));
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
}
