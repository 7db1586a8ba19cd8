//! Secrets, which are read from files only.
//!
//! In: a path of the configuration. Out: the [`Secret`], or why it is unusable. A relative path is
//! first looked up in `$CREDENTIALS_DIRECTORY`, where systemd puts a unit's credentials
//! (systemd.exec(5), "Credentials"). A file that group or others can read is refused, since its
//! secret may be known already.

pub use portcullis_filters::secret::Secret;
pub mod hardening;

use portcullis_filters::bearer::Tokens;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::slice;
use thiserror::Error;

/// 4 KiB: no token, key or password is longer.
const MAX: u64 = 4 << 10;
/// Permission bits that only the owner may have.
const OTHERS: u32 = 0o077;
/// The same for a credential. On a file system with access control lists, systemd grants the
/// service access by one, whose mask then appears as the group's bits (acl(5)): such a file has
/// mode 0440 and the group root.
const OTHERS_OF_CREDENTIALS: u32 = 0o037;

/// Why a secret is unusable. It names the file, never its content.
#[derive(Debug, Error)]
#[error("secret file {path}: {cause}")]
pub struct SecretError {
    path: PathBuf,
    cause: Cause,
}

#[derive(Debug, Error)]
enum Cause {
    #[error("{0}")]
    Unreadable(io::Error),
    #[error("mode {0:04o} lets others read it; set mode 600 and replace the secret")]
    Exposed(u32),
    #[error("it is larger than {MAX} bytes")]
    TooLarge,
    /// It lacks the named content.
    #[error("it must contain {0}")]
    Malformed(&'static str),
}

impl SecretError {
    /// The error for the file at `path`, which must contain `what`.
    pub fn not(path: &Path, what: &'static str) -> Self {
        Self { path: path.to_owned(), cause: Cause::Malformed(what) }
    }
}

/// Reads a secret.
///
/// # Errors
/// The file is unreadable, too large, or readable by others.
pub fn read(path: &Path) -> Result<Secret, SecretError> {
    let (path, others) = found(path);
    let failed = |cause| SecretError { path: path.clone(), cause };
    let unreadable = |error| failed(Cause::Unreadable(error));
    let file = File::open(&path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o7777;
    if mode & others != 0 {
        return Err(failed(Cause::Exposed(mode)));
    }
    // never grown, as a copy left behind would not be wiped
    let mut bytes = Vec::with_capacity(MAX as usize + 1);
    let read = file.take(MAX + 1).read_to_end(&mut bytes);
    let secret = Secret::new(bytes);
    read.map_err(unreadable)?;
    if secret.expose().len() as u64 > MAX {
        return Err(failed(Cause::TooLarge));
    }
    Ok(secret)
}

/// Reads bearer tokens, one in each file.
///
/// # Errors
/// As [`read`]; a file holds no token, or that of another file.
pub fn tokens(files: &[PathBuf]) -> Result<Tokens, SecretError> {
    let mut tokens = Vec::with_capacity(files.len());
    for file in files {
        let token = read(file)?;
        // parsed one by one, so that an error names the file
        Tokens::new(slice::from_ref(&token)).ok_or_else(|| {
            SecretError::not(file, "a token: at least 32 visible ASCII characters on one line")
        })?;
        tokens.push(token);
    }
    Tokens::new(&tokens).ok_or_else(|| {
        let first = files.first().map_or(Path::new(""), PathBuf::as_path);
        SecretError::not(first, "a token that no other file holds")
    })
}

/// Reads a secret that is optional.
///
/// # Errors
/// As [`read`].
pub fn read_optional(path: Option<&Path>) -> Result<Option<Secret>, SecretError> {
    path.map(read).transpose()
}

/// The place of a file of the configuration: a relative path may be a credential of the unit.
pub fn locate(path: &Path) -> PathBuf {
    found(path).0
}

/// The place of a file, and the permission bits that a secret there must not have.
fn found(path: &Path) -> (PathBuf, u32) {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let credential = credentials.filter(|_| path.is_relative()).map(|folder| folder.join(path));
    match credential.filter(|path| path.exists()) {
        Some(credential) => (credential, OTHERS_OF_CREDENTIALS),
        None => (path.to_owned(), OTHERS),
    }
}
