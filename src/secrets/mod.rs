//! Secrets come from files, and from nowhere else.
//!
//! In: a path of the configuration. Out: the [`Secret`], or why it can not be trusted. A relative
//! path is looked for in `$CREDENTIALS_DIRECTORY` first, where systemd puts a unit's credentials
//! (systemd.exec(5), "Credentials"). A file that group or others can read is refused: it is no
//! secret any more.

pub use portcullis_filters::secret::Secret;
pub mod hardening;

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// 4 KiB: no token, key or password is longer.
const MAX: u64 = 4 << 10;
/// Permission bits that nobody but the owner may have.
const OTHERS: u32 = 0o077;
/// The same of a credential. Where its file system has access control lists, systemd lets the
/// service read it by one of those, and its mask is what then stands in the group's place (acl(5)):
/// such a file is 0440, and its group is root.
const OTHERS_OF_CREDENTIALS: u32 = 0o037;

/// Why a secret can not be used. It names the file, never what is in it.
#[derive(Debug)]
pub struct SecretError {
    path: PathBuf,
    why: Why,
}

#[derive(Debug)]
enum Why {
    Unreadable(io::Error),
    Exposed(u32),
    TooLarge,
    /// What it should hold.
    NotWhatItShould(&'static str),
}

impl std::fmt::Display for SecretError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "secret file {}: ", self.path.display())?;
        match &self.why {
            Why::Unreadable(error) => error.fmt(f),
            Why::Exposed(mode) => {
                write!(
                    f,
                    "mode {mode:04o} lets others read it; chmod 600 it, and replace what is in it"
                )
            }
            Why::TooLarge => write!(f, "it is larger than {MAX} bytes"),
            Why::NotWhatItShould(what) => write!(f, "it must hold {what}"),
        }
    }
}

impl std::error::Error for SecretError {}

impl SecretError {
    /// The file at `path` does not hold `what` it should.
    pub fn not(path: &Path, what: &'static str) -> Self {
        Self { path: path.to_owned(), why: Why::NotWhatItShould(what) }
    }
}

/// Reads a secret.
///
/// # Errors
/// The file can not be read, is too large, or others can read it.
pub fn read(path: &Path) -> Result<Secret, SecretError> {
    let (path, others) = found(path);
    let failed = |why| SecretError { path: path.clone(), why };
    let unreadable = |error| failed(Why::Unreadable(error));
    let file = File::open(&path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o7777;
    if mode & others != 0 {
        return Err(failed(Why::Exposed(mode)));
    }
    // never grown: a copy that is left behind is not wiped
    let mut bytes = Vec::with_capacity(MAX as usize + 1);
    let read = file.take(MAX + 1).read_to_end(&mut bytes);
    let secret = Secret::new(bytes);
    read.map_err(unreadable)?;
    if secret.expose().len() as u64 > MAX {
        return Err(failed(Why::TooLarge));
    }
    Ok(secret)
}

/// Reads a secret that may be left out.
///
/// # Errors
/// As [`read`].
pub fn read_optional(path: Option<&Path>) -> Result<Option<Secret>, SecretError> {
    path.map(read).transpose()
}

/// Where a file of the configuration is: a relative path may be a credential of the unit.
pub fn locate(path: &Path) -> PathBuf {
    found(path).0
}

/// Where the file is, and the permission bits that a secret there must not have.
fn found(path: &Path) -> (PathBuf, u32) {
    let credentials = std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from);
    let credential = credentials.filter(|_| path.is_relative()).map(|folder| folder.join(path));
    match credential.filter(|path| path.exists()) {
        Some(credential) => (credential, OTHERS_OF_CREDENTIALS),
        None => (path.to_owned(), OTHERS),
    }
}
