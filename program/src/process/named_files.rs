//! The files that the configuration names: which of them have another content than before.

use portcullis_base::config::{NamedFile, Values};
use portcullis_base::secrets;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// 1 MiB: more than any of these files may have.
const MAX: u64 = 1 << 20;

/// The digests of the files; `None` for a file that cannot be read.
#[derive(Clone)]
pub(crate) struct NamedFiles(BTreeMap<NamedFile, Option<[u8; 32]>>);

impl NamedFiles {
    /// Reads the files that these values name.
    pub(crate) fn read(values: &Values) -> Self {
        let files = values.files().into_iter();
        Self(
            files
                .map(|file| {
                    let digest = digest(&file.path).ok();
                    (file, digest)
                })
                .collect(),
        )
    }

    /// The files that have another content in `new`.
    pub(crate) fn changed<'a>(&'a self, new: &'a Self) -> impl Iterator<Item = &'a NamedFile> {
        new.0.iter().filter_map(|(file, digest)| {
            let before = self.0.get(file)?;
            if before == digest { None } else { Some(file) }
        })
    }
}

fn digest(file: &Path) -> io::Result<[u8; 32]> {
    let mut bytes = Vec::new();
    File::open(secrets::locate(file))?
        .take(MAX)
        .read_to_end(&mut bytes)?;
    let secret = secrets::Secret::new(bytes);
    Ok(Sha256::digest(secret.expose()).into())
}
