//! Secrets, which are read from files only.
//!
//! In: a path of the configuration. Out: the [`Secret`], or why it is unusable. A relative path is
//! first looked up in `$RENEWED_CREDENTIALS_DIRECTORY`, where a reload of our unit puts
//! credentials, then in `$CREDENTIALS_DIRECTORY`, where systemd puts them at a start
//! (systemd.exec(5), "Credentials"). A file that group or others can read is refused, since its
//! secret may be known already, unless `secrets.allow_group_read` says that it is mounted so.

pub use portcullis_filters::secret::Secret;
pub mod certificates;
pub mod chance;
pub mod fresh;
pub mod hardening;
pub mod headers;
pub mod seal;
pub mod tickets;
pub mod trust;

use portcullis_filters::bearer::Tokens;
use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use thiserror::Error;

/// 4 KiB: no token, key or password is longer.
const MAX: u64 = 4 << 10;
/// Permission bits that only the owner may have.
const OTHERS: u32 = 0o077;
/// [`OTHERS`] for a credential. On a file system with access control lists, systemd grants the
/// service access by one, whose mask then appears as the group's bits (acl(5)): such a file has
/// mode 0440 and the group root.
const OTHERS_OF_CREDENTIALS: u32 = 0o037;

/// [`OTHERS`] for a file that Kubernetes or Docker mounts: reading is permitted.
const OTHERS_OF_MOUNTS: u32 = 0o033;
/// Permission bits that only the owner of a mount's folder may have.
const OTHERS_OF_FOLDERS: u32 = 0o022;

/// The permission of others to write to a folder.
const OTHERS_WRITE: u32 = 0o002;
/// The bit of folders such as `/tmp`.
const STICKY: u32 = 0o1000;

/// Whether files that group and others can read are accepted.
static IS_GROUP_READ_ALLOWED: AtomicBool = AtomicBool::new(false);

/// The policy for files that group and others can read: `secrets.allow_group_read`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GroupRead {
    /// Such files are unusable.
    Refused,
    /// Such files are used.
    Accepted,
}

/// Sets the policy for all files that are read from now on.
pub fn set_group_read(policy: GroupRead) {
    IS_GROUP_READ_ALLOWED.store(policy == GroupRead::Accepted, Ordering::Relaxed);
}

/// Why a secret is unusable. The text names the file, never its content.
#[derive(Debug, Error)]
#[error(
    "secret file {path}: {cause}{}",
    if matches!(.cause, Cause::Unreadable(_)) { searched(.path) } else { String::new() }
)]
pub struct SecretError {
    key: Option<&'static str>,
    path: PathBuf,
    cause: Cause,
}

/// Every unusable secret of a part, at least one.
#[derive(Debug)]
pub struct SecretErrors(pub Vec<SecretError>);

impl From<SecretError> for SecretErrors {
    fn from(error: SecretError) -> Self {
        Self(vec![error])
    }
}

impl SecretErrors {
    /// Joins the errors of several parts.
    pub fn join(all: impl IntoIterator<Item = Option<Self>>) -> Self {
        Self(
            all.into_iter()
                .flatten()
                .flat_map(|errors| errors.0)
                .collect(),
        )
    }
}

#[derive(Debug, Error)]
enum Cause {
    #[error("{0}")]
    Unreadable(io::Error),
    #[error(
        "mode {0:04o} lets others read it; set mode 600 and replace the secret{remedy}",
        remedy = remedy(*.0)
    )]
    Exposed(u32),
    #[error(
        "others can write to its folder (mode {0:04o}), so its content may be anyone's; remove \
         that permission, or mount the secret elsewhere"
    )]
    InOpenFolder(u32),
    #[error("it is larger than {0} bytes")]
    TooLarge(u64),
    /// The file lacks the named content.
    #[error("it must contain {0}")]
    Malformed(&'static str),
}

/// The additional remedy, if the mode is that of a mount.
fn remedy(mode: u32) -> &'static str {
    match mode & OTHERS_OF_MOUNTS {
        0 => ", or if Kubernetes or Docker mounts it so, set secrets.allow_group_read = true",
        _ => "",
    }
}

impl SecretError {
    /// The error for the file at `path`, which must contain `what`.
    pub fn not(path: &Path, what: &'static str) -> Self {
        Self {
            key: None,
            path: path.to_owned(),
            cause: Cause::Malformed(what),
        }
    }

    /// Adds the configuration key that names the file to the error.
    #[must_use]
    pub fn of(self, key: &'static str) -> Self {
        Self {
            key: Some(key),
            ..self
        }
    }

    /// The configuration key that names the file.
    pub fn key(&self) -> &'static str {
        self.key.unwrap_or_default()
    }
}

/// Reads a secret.
///
/// # Errors
/// Fails if the file is unreadable, too large, or readable by others.
pub fn read(path: &Path) -> Result<Secret, SecretError> {
    read_at_most(path, MAX)
}

/// Reads a secret of at most `max` bytes.
///
/// # Errors
/// Fails as [`read`] does.
pub fn read_at_most(path: &Path, max: u64) -> Result<Secret, SecretError> {
    let (path, others) = found(path);
    let failed = |cause| SecretError {
        key: None,
        path: path.clone(),
        cause,
    };
    let unreadable = |error| failed(Cause::Unreadable(error));
    let file = File::open(&path).map_err(unreadable)?;
    let mode = file.metadata().map_err(unreadable)?.permissions().mode() & 0o7777;
    if mode & others != 0 {
        let is_allowed = IS_GROUP_READ_ALLOWED.load(Ordering::Relaxed);
        if !is_allowed || mode & OTHERS_OF_MOUNTS != 0 {
            return Err(failed(Cause::Exposed(mode)));
        }
        let folder = folder_mode(&path).map_err(unreadable)?;
        if folder & OTHERS_OF_FOLDERS != 0 {
            return Err(failed(Cause::InOpenFolder(folder)));
        }
    }
    // never grown, as a copy left behind would not be wiped
    let mut bytes = Vec::with_capacity(max as usize + 1);
    let read = file.take(max + 1).read_to_end(&mut bytes);
    let secret = Secret::new(bytes);
    read.map_err(unreadable)?;
    if secret.expose().len() as u64 > max {
        return Err(failed(Cause::TooLarge(max)));
    }
    Ok(secret)
}

/// The mode of the folder that the file itself is in: Kubernetes mounts links to it.
fn folder_mode(path: &Path) -> io::Result<u32> {
    let file = path.canonicalize()?;
    let folder = file.parent().unwrap_or(Path::new("/"));
    Ok(folder.metadata()?.permissions().mode() & 0o7777)
}

/// The folder of a file that others can write to, with its mode: the folder in which the file is
/// named, or the one that links lead to. In a folder with the sticky bit nobody replaces a file of
/// another user.
///
/// # Errors
/// Fails if the file is missing.
pub fn open_folder(path: &Path) -> io::Result<Option<(PathBuf, u32)>> {
    let named = locate(path);
    for file in [std::path::absolute(&named)?, named.canonicalize()?] {
        let folder = file.parent().unwrap_or(Path::new("/"));
        let mode = folder.metadata()?.permissions().mode() & 0o7777;
        if mode & (OTHERS_WRITE | STICKY) == OTHERS_WRITE {
            return Ok(Some((folder.to_owned(), mode)));
        }
    }
    Ok(None)
}

/// Reads bearer tokens from the files of `key`: one in each, or while it is replaced the new and
/// the old one on two lines.
///
/// # Errors
/// Fails as [`read`] does for each file, or if a file holds no token, or that of another file.
pub fn tokens(key: &'static str, files: &[PathBuf]) -> Result<Tokens, SecretErrors> {
    let mut tokens = Vec::with_capacity(files.len());
    let mut errors = Vec::new();
    for file in files {
        // parsed one by one, so that an error names the file
        let of_file =
            read(file)
                .map(|secret| lines(&secret))
                .and_then(|found| match Tokens::new(&found) {
                    Some(_) => Ok(found),
                    None => {
                        let what = "a token of at least 32 visible ASCII characters on one line, \
                                    without quotation marks around it, or two";
                        Err(SecretError::not(file, what))
                    }
                });
        match of_file {
            Ok(found) => tokens.extend(found),
            Err(error) => errors.push(error.of(key)),
        }
    }
    if !errors.is_empty() {
        return Err(SecretErrors(errors));
    }
    Tokens::new(&tokens).ok_or_else(|| {
        let first = files.first().map_or(Path::new(""), PathBuf::as_path);
        SecretError::not(first, "a token that no other file holds, of two in all")
            .of(key)
            .into()
    })
}

/// The lines of a secret that are not empty, without white space around them.
pub fn lines(secret: &Secret) -> Vec<Secret> {
    let lines = secret.expose().split(|byte| *byte == b'\n');
    lines
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty())
        .map(|line| Secret::new(line.to_vec()))
        .collect()
}

/// Reads a secret that is optional.
///
/// # Errors
/// Fails as [`read`] does.
pub fn read_optional(
    key: &'static str,
    path: Option<&Path>,
) -> Result<Option<Secret>, SecretError> {
    path.map(read).transpose().map_err(|error| error.of(key))
}

/// The folders of a unit's credentials, in the order in which a file is looked up. The folder of
/// the last reload is first, because systemd does not refresh that of the start.
fn credentials() -> impl Iterator<Item = (&'static str, PathBuf)> {
    ["RENEWED_CREDENTIALS_DIRECTORY", "CREDENTIALS_DIRECTORY"]
        .into_iter()
        .filter_map(|name| Some((name, PathBuf::from(std::env::var_os(name)?))))
        // the renewed folder exists only after a reload
        .filter(|(name, folder)| *name == "CREDENTIALS_DIRECTORY" || folder.is_dir())
}

/// The places where a file with a relative path was searched, to be appended to an error's text.
pub fn searched(path: &Path) -> String {
    if path.is_absolute() {
        return String::new();
    }
    let working = std::env::current_dir().unwrap_or_default();
    let working = format!("in the working directory ({})", working.display());
    let folders = credentials().map(|(name, folder)| format!("in ${name} ({})", folder.display()));
    let places: Vec<_> = folders.chain([working]).collect();
    format!("; searched {}", places.join(" and "))
}

/// Resolves a path of the configuration: a relative one may be a credential of the unit.
pub fn locate(path: &Path) -> PathBuf {
    found(path).0
}

/// Resolves a path; also returns the permission bits that a secret there must not have.
fn found(path: &Path) -> (PathBuf, u32) {
    let mut folders = credentials().filter(|_| path.is_relative());
    match folders.find_map(|(_, folder)| Some(folder.join(path)).filter(|path| path.exists())) {
        Some(credential) => (credential, OTHERS_OF_CREDENTIALS),
        None => (path.to_owned(), OTHERS),
    }
}
