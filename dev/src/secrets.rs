//! The secrets of the development network: keys of three accounts, tokens, HMAC secrets and one
//! user's session, created if they are missing, in files that only their owner can read.

use super::hold;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use portcullis_base::secrets::fresh;
use portcullis_base::secrets::{self, SecretError};
use portcullis_filters::felt::Felt;
use portcullis_filters::hmac;
use portcullis_filters::secret::SecretKey;
use portcullis_filters::tx;
use std::io;
use std::path::{Path, PathBuf};
use std::time::SystemTime;
use thiserror::Error;

/// The class of the node's own accounts (OpenZeppelin 1.0.0), which it declares at its start.
pub(super) const ACCOUNT_CLASS: &str =
    "0x5b4b537eaa2399e3aa99c4e2e0208ebd6c71bc1467938cd52c798c601e43564";
/// The first user of the sample content.
const USER: &str = "8eb5140f-16f4-4881-9724-1955b91dddd9";
/// Lifetime of the session in seconds: 30 days.
const SESSION: u64 = 30 * 24 * 3_600;

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

/// Why the secrets are unusable.
#[derive(Debug, Error)]
pub(super) enum KeyError {
    /// A file could not be written.
    #[error("{0}: {1}")]
    Io(PathBuf, io::Error),
    /// A file could not be used.
    #[error("{0}")]
    Secret(#[from] SecretError),
}

impl Accounts {
    /// Reads the keys of the accounts in `folder`; creates those and other secrets that are
    /// missing.
    pub(super) fn in_folder(folder: &Path) -> Result<Self, KeyError> {
        for name in [
            "relay.token",
            "operator.token",
            "session.secret",
            "webhook.secret",
        ] {
            let file = folder.join(name);
            if !file.exists() {
                fresh::new(&file).map_err(|error| KeyError::Io(file, error))?;
            }
        }
        session(folder)?;
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

/// Writes a session of the sample content's first user, renewed at each start.
fn session(folder: &Path) -> Result<(), KeyError> {
    let secret = secrets::read(&folder.join("session.secret"))?;
    let now = SystemTime::UNIX_EPOCH
        .elapsed()
        .unwrap_or_default()
        .as_secs();
    let claims = format!(
        r#"{{"aud":"authenticated","role":"authenticated","sub":"{USER}","iat":{now},"exp":{}}}"#,
        now.saturating_add(SESSION)
    );
    let part = |text: &str| URL_SAFE_NO_PAD.encode(text);
    let signed = format!(
        "{}.{}",
        part(r#"{"alg":"HS256","typ":"JWT"}"#),
        part(&claims)
    );
    let signature = URL_SAFE_NO_PAD.encode(hmac::sign(&secret, signed.as_bytes()));
    let file = folder.join("user.session");
    let failed = |error| KeyError::Io(file.clone(), error);
    hold::remove(&file).map_err(failed)?;
    fresh::write(&file, &format!("{signed}.{signature}")).map_err(failed)
}

fn account(file: &Path) -> Result<Account, KeyError> {
    if !file.exists() {
        new_key(file).map_err(|error| KeyError::Io(file.to_owned(), error))?;
    }
    let secret = secrets::read(file)?;
    let key = SecretKey::parse(&secret).ok_or_else(|| SecretError::not(file, "a private key"))?;
    let class = Felt::parse(ACCOUNT_CLASS).expect("a constant of this file is a felt");
    Ok(Account {
        address: tx::account_address(key.public_key(), class),
        key,
    })
}

/// 248 random bits, which are always below the curve's order.
fn new_key(file: &Path) -> io::Result<()> {
    fresh::write(file, &format!("0x{}", fresh::random_digits::<31>()?))
}
