//! The files that a configuration names: secrets and certificates, all read before anything starts,
//! so that every unusable one is reported at once. A start, a reload and `check` read them here.

use crate::admin::Access;
use portcullis_acme::AcmeFileError;
use portcullis_base::config::{Config, Live, NodeUrl, NonEmpty};
use portcullis_base::fetch::Roots;
use portcullis_base::secrets::headers::{self, HeadersError};
use portcullis_base::secrets::{self, Secret, SecretError, hardening};
use portcullis_edge::fleet;
use portcullis_edge::http::tls::{Identities, TlsError};
use portcullis_edge::node::{Credentials, CredentialsError};
use portcullis_edge::relay::settings::{Keys, LiveSecrets, load_keys};
use portcullis_edge::sidecar;
use portcullis_filters::bearer::Tokens;
use std::fmt;
use thiserror::Error;

/// The files that a reload reads again.
pub struct Loaded {
    /// The certificates and keys of the surfaces.
    pub identities: Identities,
    /// The relay's secrets, if it is on.
    pub relay: Option<LiveSecrets>,
    pub(crate) sidecar: Option<sidecar::Settings>,
    pub(crate) admin: Option<Option<Tokens>>,
    pub(crate) credentials: Credentials,
}

/// The files that only a start reads.
pub struct StartSecrets {
    /// The relay's keys, if it is on.
    pub keys: Option<Keys>,
    /// The password of the store.
    pub store_password: Option<Secret>,
    /// What the fleet shares a secret by, and its store's password.
    pub fleet: Option<fleet::Credentials>,
    /// The roots by which the ACME authority is verified.
    pub acme: Option<Roots>,
}

/// An unusable file.
#[derive(Debug)]
pub struct FileError {
    /// The configuration key that names it.
    pub key: String,
    /// Which file it is, and what is wrong with it.
    pub message: String,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.message)
    }
}

/// Every unusable file, at least one; shown one per line.
#[derive(Debug, Error)]
#[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
pub struct FileErrors(pub Vec<FileError>);

impl From<SecretError> for FileError {
    fn from(error: SecretError) -> Self {
        Self {
            key: error.key().to_owned(),
            message: error.to_string(),
        }
    }
}

impl From<CredentialsError> for FileError {
    fn from(error: CredentialsError) -> Self {
        Self {
            key: error.key().to_owned(),
            message: error.to_string(),
        }
    }
}

impl From<fleet::CredentialsError> for FileError {
    fn from(fleet::CredentialsError(key, message): fleet::CredentialsError) -> Self {
        Self {
            key: key.to_owned(),
            message,
        }
    }
}

impl From<AcmeFileError> for FileError {
    fn from(error: AcmeFileError) -> Self {
        Self {
            key: error.key().to_owned(),
            message: error.to_string(),
        }
    }
}

impl From<HeadersError> for FileError {
    fn from(error: HeadersError) -> Self {
        Self {
            key: "trace.header_file".to_owned(),
            message: error.to_string(),
        }
    }
}

impl From<TlsError> for FileError {
    fn from(error: TlsError) -> Self {
        Self {
            key: error.key(),
            message: error.message(),
        }
    }
}

impl FileErrors {
    fn add<E: Into<FileError>>(&mut self, errors: impl IntoIterator<Item = E>) {
        self.0.extend(errors.into_iter().map(Into::into));
    }
}

impl Loaded {
    /// Reads the files, for requests to these URLs of the node.
    ///
    /// # Errors
    /// Returns every unusable file.
    pub(crate) fn load(live: Live<'_>, urls: &NonEmpty<NodeUrl>) -> Result<Self, FileErrors> {
        Self::load_with(live, urls, Identities::load(live))
    }

    fn load_with(
        live: Live<'_>,
        urls: &NonEmpty<NodeUrl>,
        identities: Result<Identities, Vec<TlsError>>,
    ) -> Result<Self, FileErrors> {
        let has_secrets =
            live.relay.is_some() || live.sidecar.is_some() || live.node.header_file.is_some();
        if has_secrets || !identities.as_ref().is_ok_and(Identities::are_none) {
            hardening::no_core_files();
        }
        let relay = live.relay.map(LiveSecrets::load).transpose();
        let sidecar = live.sidecar.map(sidecar::Settings::load).transpose();
        let admin = live.admin.map(Access::load).transpose();
        let credentials = Credentials::load(live.node, urls);
        match (identities, relay, sidecar, admin, credentials) {
            (Ok(identities), Ok(relay), Ok(sidecar), Ok(admin), Ok(credentials)) => Ok(Self {
                identities,
                relay,
                sidecar,
                admin,
                credentials,
            }),
            (identities, relay, sidecar, admin, credentials) => {
                let mut errors = FileErrors(Vec::new());
                errors.add(credentials.err().into_iter().flatten());
                errors.add(identities.err().into_iter().flatten());
                let secrets = [relay.err(), sidecar.err(), admin.err()];
                errors.add(secrets.into_iter().flatten().flat_map(|errors| errors.0));
                Err(errors)
            }
        }
    }

    /// Reads the files for a start, including those that only a start reads. An unusable
    /// certificate does not stop the other surfaces: it is logged.
    ///
    /// # Errors
    /// Returns every other unusable file.
    pub(crate) fn load_to_start(config: &Config) -> Result<(Self, StartSecrets), FileErrors> {
        let identities = Identities::load_to_start(config.live()).map(|(identities, errors)| {
            for error in errors {
                log::error!("{}", FileError::from(error));
            }
            identities
        });
        Self::load_all_with(config, identities)
    }

    /// Reads the files, including those that only a start reads.
    ///
    /// # Errors
    /// Returns every unusable file.
    pub fn load_all(config: &Config) -> Result<(Self, StartSecrets), FileErrors> {
        Self::load_all_with(config, Identities::load(config.live()))
    }

    fn load_all_with(
        config: &Config,
        identities: Result<Identities, Vec<TlsError>>,
    ) -> Result<(Self, StartSecrets), FileErrors> {
        if config.fleet.is_some() || config.trace.is_some() {
            hardening::no_core_files();
        }
        let loaded = Self::load_with(config.live(), &config.node.url, identities);
        let keys = config.relay.as_ref().map(load_keys).transpose();
        let store = config
            .store
            .as_ref()
            .and_then(|store| store.password_file.as_deref());
        let store_password = secrets::read_optional("store.password_file", store);
        let fleet = config
            .fleet
            .as_ref()
            .map(fleet::Credentials::load)
            .transpose();
        let acme = config.acme.as_ref().map(portcullis_acme::load).transpose();
        // read again for each export
        let trace = config
            .trace
            .as_ref()
            .map(|trace| headers::for_collector(trace.header_file.as_deref()))
            .transpose();
        match (loaded, keys, store_password, fleet, acme, trace) {
            (Ok(loaded), Ok(keys), Ok(store_password), Ok(fleet), Ok(acme), Ok(_)) => Ok((
                loaded,
                StartSecrets {
                    keys,
                    store_password,
                    fleet,
                    acme,
                },
            )),
            (loaded, keys, store_password, fleet, acme, trace) => {
                let mut errors = loaded.err().unwrap_or_else(|| FileErrors(Vec::new()));
                errors.add(keys.err().into_iter().flat_map(|errors| errors.0));
                errors.add(store_password.err());
                errors.add(fleet.err().into_iter().flatten());
                errors.add(acme.err());
                errors.add(trace.err());
                Err(errors)
            }
        }
    }
}
