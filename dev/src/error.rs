//! The reasons why `dev` does not start, and their exit codes.

use super::content::ContentError;
use super::network::NetworkError;
use super::node::StartError;
use super::secrets::KeyError;
use portcullis_base::config;
use portcullis_program::command::{INTERNAL, USAGE};
use portcullis_program::process::server;
use portcullis_store::StoreError;
use std::io;
use std::path::PathBuf;
use thiserror::Error;

/// Why `dev` could not start.
#[derive(Debug, Error)]
pub(super) enum DevError {
    #[error("{0}")]
    Node(#[from] StartError),
    #[error("--node: {0}")]
    NodeUrl(String),
    #[error(
        "--deploy and --prepare deploy contracts, which takes a starknet-devnet: {0} is another \
         node"
    )]
    NoDevnet(String),
    #[error(
        "--node: {0} does not answer: {1}; is it running, and is that the URL of its JSON-RPC, \
         such as http://127.0.0.1:5050/rpc?"
    )]
    Unreachable(String, String),
    #[error("cannot start a thread: {0}")]
    Runtime(io::Error),
    #[error("cannot use the folder {0}: {1}; name another one with --state")]
    State(PathBuf, io::Error),
    #[error(
        "the folder {0} is in use by process {1}, another `portcullis dev`; stop that, or name \
         another folder with --state"
    )]
    Held(PathBuf, String),
    #[error("cannot use the store: {0}")]
    Store(StoreError),
    #[error("cannot create the keys: {0}")]
    Keys(#[from] KeyError),
    #[error("cannot set up the network: {0}")]
    Network(#[from] NetworkError),
    #[error("cannot import the sample content of the folder {0}: {1}")]
    Content(PathBuf, ContentError),
    #[error("{0}")]
    Config(#[from] config::Errors),
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("\n"))]
    Bind(Vec<server::StartError>),
}

impl From<server::StartError> for DevError {
    fn from(error: server::StartError) -> Self {
        Self::Bind(vec![error])
    }
}

impl DevError {
    pub(super) fn code(&self) -> u8 {
        match self {
            Self::NodeUrl(_)
            | Self::NoDevnet(_)
            | Self::Config(_)
            | Self::Bind(_)
            | Self::Held(..) => USAGE,
            Self::Node(_)
            | Self::State(..)
            | Self::Runtime(_)
            | Self::Unreachable(..)
            | Self::Store(_)
            | Self::Keys(_)
            | Self::Network(_)
            | Self::Content(..) => INTERNAL,
        }
    }
}
