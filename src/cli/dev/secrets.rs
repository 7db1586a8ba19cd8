//! The secrets of the development network: keys of three accounts and a token, made where they are
//! missing, kept in files that only their owner can read.

use super::network::account_address;
use crate::cli::token;
use crate::secrets::{self, SecretError};
use portcullis_filters::felt::Felt;
use portcullis_filters::secret::SecretKey;
use std::io;
use std::path::{Path, PathBuf};

/// An account with its key.
pub(super) struct Account {
    pub(super) address: Felt,
    pub(super) key: SecretKey,
}

/// The accounts that sign.
pub(super) struct Accounts {
    pub(super) owner: Account,
    pub(super) verifier: Account,
    pub(super) faucet: Account,
}

/// Why there are none.
#[derive(Debug)]
pub(super) enum KeyError {
    /// A file could not be written.
    Io(PathBuf, io::Error),
    /// A file could not be used.
    Secret(SecretError),
}

impl std::fmt::Display for KeyError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(path, error) => write!(f, "{}: {error}", path.display()),
            Self::Secret(error) => error.fmt(f),
        }
    }
}

impl Accounts {
    /// Those whose keys are in `folder`, with a token beside them.
    pub(super) fn in_folder(folder: &Path) -> Result<Self, KeyError> {
        let token = folder.join("relay.token");
        if !token.exists() {
            token::new(&token).map_err(|error| KeyError::Io(token, error))?;
        }
        let account = |name| account(&folder.join(name));
        Ok(Self {
            owner: account("owner.key")?,
            verifier: account("verifier.key")?,
            faucet: account("faucet.key")?,
        })
    }

    pub(super) fn all(&self) -> [&Account; 3] {
        [&self.owner, &self.verifier, &self.faucet]
    }
}

fn account(file: &Path) -> Result<Account, KeyError> {
    if !file.exists() {
        new_key(file).map_err(|error| KeyError::Io(file.to_owned(), error))?;
    }
    let secret = secrets::read(file).map_err(KeyError::Secret)?;
    let key = SecretKey::parse(&secret)
        .ok_or_else(|| KeyError::Secret(SecretError::not(file, "a private key")))?;
    Ok(Account { address: account_address(key.public_key()), key })
}

/// 248 random bits: below the curve's order without a second try.
fn new_key(file: &Path) -> io::Result<()> {
    token::write(file, &format!("0x{}", token::random_digits::<31>()?))
}
