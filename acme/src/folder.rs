//! The folder of the account, the certificates and the orders that are under way.
//!
//! Every file has mode 0600 and is replaced as a whole: a crash leaves the old one or the new one.
//! A certificate and its key are one file, so they always match. Among processes that share only
//! the folder, the one that holds its lock orders.

use nix::fcntl::OFlag;
use portcullis_base::config::AcmeConfig;
use portcullis_filters::acme::Progress;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Maximum size of a file in bytes, much more than an account or an order takes.
const LARGEST: u64 = 64 << 10;

/// The file of a certificate's receipt.
pub(super) fn receipt(certificate: &Path) -> PathBuf {
    certificate.with_extension("last.json")
}

/// The folder that `tls.acme.folder` names.
pub(super) struct Folder(PathBuf);

/// The right to order; released on drop, or when the process ends.
pub(super) struct FolderLock(#[expect(dead_code, reason = "the open file holds the lock")] File);

impl Folder {
    pub(super) fn new(config: &AcmeConfig) -> Self {
        Self(config.folder.clone())
    }

    /// Creates the folder if it is missing.
    ///
    /// # Errors
    /// The folder cannot be created, or others can write to it: they could replace what is in it.
    pub(super) fn create(&self) -> io::Result<()> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&self.0)?;
        self.exposure()
            .map_or(Ok(()), |why| Err(io::Error::other(why)))
    }

    /// A message that others can write to the folder; `None` if they cannot, or if it is missing.
    pub(super) fn exposure(&self) -> Option<String> {
        let mode = self.0.metadata().ok()?.permissions().mode() & 0o7777;
        if mode & 0o002 == 0 {
            return None;
        }
        Some(format!(
            "others can write to the folder (mode {mode:04o}): chmod o-w it"
        ))
    }

    /// Creates the folder and takes its lock; `None` while another process holds the lock.
    ///
    /// # Errors
    /// The folder cannot be created or written.
    pub(super) fn lock(&self) -> io::Result<Option<FolderLock>> {
        self.create()?;
        let file = private().create(true).open(self.0.join("lock"))?;
        match file.try_lock() {
            Ok(()) => Ok(Some(FolderLock(file))),
            Err(std::fs::TryLockError::WouldBlock) => Ok(None),
            Err(std::fs::TryLockError::Error(error)) => Err(error),
        }
    }
}

/// Reads the progress of the certificate in this file; empty if nothing is stored.
pub(super) fn progress(certificate: &Path) -> Progress {
    read(&file(certificate)).unwrap_or_default()
}

/// Stores the progress of the certificate in this file.
///
/// # Errors
/// The file cannot be written.
pub(super) fn store_progress(certificate: &Path, progress: &Progress) -> io::Result<()> {
    if progress.is_empty() {
        return remove(&file(certificate));
    }
    write(&file(certificate), progress)
}

fn file(certificate: &Path) -> PathBuf {
    certificate.with_extension("order.json")
}

fn private() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).truncate(false).mode(0o600);
    options.custom_flags(OFlag::O_NOFOLLOW.bits());
    options
}

/// Writes a value as JSON, for [`read`].
///
/// # Errors
/// The file cannot be written.
pub(super) fn write(path: &Path, value: &impl Serialize) -> io::Result<()> {
    write_text(path, &serde_json::to_vec(value)?)
}

/// Replaces a file as a whole, and returns once it is on the disk.
///
/// # Errors
/// The file cannot be written.
pub(super) fn write_text(path: &Path, text: &[u8]) -> io::Result<()> {
    let new = path.with_extension("new");
    let folder = path.parent().unwrap_or(Path::new("."));
    let mut file = match private().create_new(true).open(&new) {
        // a crash left it, or somebody planted it
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            remove(&new)?;
            private().create_new(true).open(&new)?
        }
        opened => opened?,
    };
    file.write_all(text)?;
    file.sync_all()?;
    std::fs::rename(&new, path)?;
    File::open(folder)?.sync_all()
}

/// Removes a file that may be missing.
///
/// # Errors
/// The file exists and cannot be removed.
pub(super) fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Reads a value as JSON; `None` if the file is missing or does not parse.
pub(super) fn read<T: DeserializeOwned>(path: &Path) -> Option<T> {
    serde_json::from_slice(&read_text(path).ok()?).ok()
}

/// Reads at most [`LARGEST`] bytes of a file; a valid one is smaller.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read_text(path: &Path) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(LARGEST).read_to_end(&mut content)?;
    Ok(content)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_planted_link_leads_no_key_away() {
        let name = format!("portcullis-acme-folder-{}", std::process::id());
        let folder = std::env::temp_dir().join(name);
        std::fs::create_dir(&folder).unwrap();
        let (own, other) = (folder.join("acme"), folder.join("other"));
        std::fs::create_dir(&own).unwrap();
        std::fs::write(&other, "theirs").unwrap();
        std::os::unix::fs::symlink(&other, own.join("certificate.new")).unwrap();
        let certificate = own.join("certificate.pem");
        write_text(&certificate, b"the key").unwrap();
        assert_eq!(std::fs::read(&other).unwrap(), b"theirs");
        let mode = certificate.symlink_metadata().unwrap().permissions().mode();
        assert_eq!(mode, 0o100_600, "a file of our own");
        let folder = Folder(own);
        folder.create().unwrap();
        let open = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(&folder.0, open).unwrap();
        let refused = folder.create().unwrap_err().to_string();
        assert!(refused.contains("0777"), "{refused}");
        std::fs::remove_dir_all(folder.0.parent().unwrap()).unwrap();
    }
}
