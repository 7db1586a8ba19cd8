//! Why a start fails, in words for the operator's terminal.

use super::files::TooFewFiles;
use super::inherited::InheritError;
use super::listen;
use super::loaded::FileErrors;
use portcullis_base::config::Listen;
use portcullis_base::telemetry::Surface;
use portcullis_edge::fleet::FleetError;
use portcullis_store::StoreError;
use std::io;
use thiserror::Error;

/// Why the server cannot start.
#[derive(Debug, Error)]
pub enum StartError {
    /// A listener cannot be bound.
    #[error("{}: {}", .0.listen_key(), listen::refusal(&.0.listen_key(), .1, .2))]
    Bind(Surface, Listen, io::Error),
    /// An inherited socket cannot be used.
    #[error(transparent)]
    Inherit(#[from] InheritError),
    /// The admin listener inherited a socket that is not local, and has no token.
    #[error("the admin listener at {0} is not local: set admin.token_file")]
    Open(Listen),
    /// Secrets or certificates are unusable.
    #[error(transparent)]
    Files(#[from] FileErrors),
    /// The store at this URL can never be opened as it is configured.
    #[error("store.url: cannot open the store: {0}: {1}")]
    Store(String, StoreError),
    /// The fleet's store cannot be used at all.
    #[error("fleet.url: {0}")]
    Fleet(#[from] FleetError),
    /// The limit of open files is too low.
    #[error(transparent)]
    OpenFiles(#[from] TooFewFiles),
    /// The runtime of the store cannot be started.
    #[error("cannot start threads: {0}")]
    Runtime(io::Error),
}
