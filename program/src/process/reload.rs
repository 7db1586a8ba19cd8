//! SIGHUP: reads the configuration again, and applies what a running process can change.
//!
//! All or nothing: an invalid file changes nothing and is reported as `check` would. Each change is
//! logged, even if it needs a restart; [`AppliedConfig`] records them for the operator's page.

use crate::admin::Access;
use crate::process::loaded::{FileError, FileErrors, Loaded};
use crate::process::named_files::NamedFiles;
use crate::process::peers::PeerCertificates;
use parking_lot::Mutex;
use portcullis_base::config::{
    AppliedConfig, Change, Config, Effect, Live, LoadError, NamedFile, NodeUrl, NonEmpty,
};
use portcullis_base::secrets;
use portcullis_edge::fleet::Fleet;
use portcullis_edge::gateway;
use portcullis_edge::http::context::ServerContext;
use portcullis_edge::http::tls::Identities;
use portcullis_edge::node::Node;
use portcullis_edge::proxy::Surfaces;
use portcullis_store::Store;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::SystemTime;
use thiserror::Error;

/// Reloads a configuration file.
pub(crate) struct Reload {
    pub(crate) path: PathBuf,
    /// The configuration in force.
    current: Mutex<Config>,
    /// The URLs of the node that are in use: others need a restart.
    urls: NonEmpty<NodeUrl>,
    /// The files that it names, as they were at the start.
    started: NamedFiles,
    /// These files, as they were last read.
    files: Mutex<NamedFiles>,
    parts: Reloadable,
}

/// The parts that a reload changes, and those that report it.
#[derive(Clone)]
pub(crate) struct Reloadable {
    pub(crate) surfaces: Surfaces,
    pub(crate) access: Option<Arc<Access>>,
    pub(crate) store: Option<Arc<Store>>,
    pub(crate) fleet: Option<Arc<Fleet>>,
    pub(crate) node: Arc<Node>,
    pub(crate) in_force: Arc<AppliedConfig>,
    pub(crate) process: ServerContext,
    pub(crate) peers: PeerCertificates,
}

impl Reload {
    /// Reloads `path`, from which `current` was read at the start.
    pub(crate) fn new(path: PathBuf, current: Config, parts: Reloadable) -> Self {
        let started = NamedFiles::read(&current.values);
        let files = Mutex::new(started.clone());
        let urls = current.node.url.clone();
        let current = Mutex::new(current);
        Self {
            path,
            current,
            urls,
            started,
            files,
            parts,
        }
    }

    /// Reads the files again, applies what can change, and returns the number of changed keys and
    /// files.
    ///
    /// # Errors
    /// Fails if a file is invalid; then nothing has changed. The error is logged.
    pub(crate) fn run(&self) -> Result<usize, ReloadError> {
        let read = self.read().inspect_err(|error| {
            self.parts.process.metrics.reloads.failed();
            for line in error.to_string().lines() {
                log::error!("reload failed, nothing changed: {line}");
            }
            self.parts.in_force.record(None);
            let current = self.current.lock();
            secrets::set_group_read(current.secrets.group_read());
        })?;
        let mut current = self.current.lock();
        let (new, loaded) = read;
        for warning in &new.warnings {
            log::warn!("{warning}");
        }
        self.apply(new.live(), loaded);
        let changes = current.values.changes(&new.values);
        for change in &changes {
            let Change {
                key,
                from,
                to,
                effect,
            } = change;
            let effective = effect.of_value();
            log::warn!(key, from, to, effective; "configuration changed");
        }
        let count = changes.len() + self.report_files(&new);
        if count == 0 {
            log::info!("configuration reloaded: nothing changed");
        }
        drop(changes);
        self.parts.in_force.record(Some(&new.values));
        self.measure();
        self.parts.process.metrics.reloads.succeeded();
        *current = new;
        Ok(count)
    }

    /// Logs the named files whose content changed, and returns their number.
    fn report_files(&self, config: &Config) -> usize {
        let new = NamedFiles::read(&config.values);
        let mut known = self.files.lock();
        let mut count = 0;
        for NamedFile { key, path, effect } in known.changed(&new) {
            let (file, effective) = (path.display().to_string(), effect.of_content());
            log::warn!(key, file, effective; "content of a file changed");
            count += 1;
        }
        *known = new;
        count
    }

    /// Sets the metrics of the values in use, and of those that wait for a restart.
    fn measure(&self) {
        let Reloadable {
            in_force, process, ..
        } = &self.parts;
        let files = self.files.lock();
        let changed = self.started.changed(&files);
        let waiting = changed.filter(|file| file.effect == Effect::Restart);
        let pending = in_force.pending_restart() + waiting.count();
        let reloads = &process.metrics.reloads;
        reloads.set_active(in_force.hash(), pending);
    }

    /// Reads the passwords of the stores and the fleet's secret again.
    fn renew_secrets(&self) {
        if let Some(store) = &self.parts.store
            && let Err(error) = store.renew_password()
        {
            log::error!("store.password_file: {error}");
        }
        if let Some(fleet) = &self.parts.fleet {
            for error in fleet.renew().err().into_iter().flatten() {
                log::error!("{}", FileError::from(error));
            }
        }
    }

    /// Applies what can change.
    fn apply(&self, live: Live<'_>, loaded: Loaded) {
        let Surfaces {
            gateway,
            relay,
            sidecar,
            ..
        } = &self.parts.surfaces;
        if let (Some(gateway), Some(live)) = (gateway, live.gateway) {
            gateway.change(gateway::Settings::from(live));
        }
        if let (Some(relay), Some((live, secrets))) = (relay, live.relay.zip(loaded.relay)) {
            // secrets may differ although their file names do not
            relay.change(live, secrets);
        }
        if let (Some(sidecar), Some(settings)) = (sidecar, loaded.sidecar) {
            sidecar.change(settings);
        }
        if let (Some(access), Some(tokens)) = (&self.parts.access, loaded.admin) {
            access.change(tokens);
        }
        self.renew_secrets();
        self.parts.node.change(loaded.credentials);
        self.change_identities(&loaded.identities);
        self.parts.process.log.change(live.log);
        self.parts.peers.change(live);
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
        let loaded = Loaded::load(config.live(), &self.urls)?;
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
