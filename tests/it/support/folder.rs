//! A temporary folder for a test: tokens and keys with the permissions that the program requires,
//! and its store.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use crate::support::edge::scratch_path;

/// A new folder; removed on drop.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new() -> Self {
        let path = scratch_path("d");
        std::fs::create_dir(&path).expect("the directory for temporary files can be written");
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    /// The path of a file in it, as text.
    pub(crate) fn file(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    /// Writes or replaces a file that only its owner can read; returns its path.
    pub(crate) fn secret(&self, name: &str, text: &str) -> String {
        let path = self.0.join(name);
        let file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(path);
        let mut file = file.expect("the folder is ours");
        file.write_all(text.as_bytes()).expect("the folder is ours");
        self.file(name)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _gone_already = std::fs::remove_dir_all(&self.0);
    }
}
