//! The files that the configuration names: which of them have another content than before, and when
//! that is effective.

use crate::config::Values;
use crate::secrets;
use sha2::{Digest as _, Sha256};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// 1 MiB: more than any of these files may have.
const MAX: u64 = 1 << 20;

/// The digests of the files, by key and path; `None` for a file that cannot be read.
pub(crate) struct NamedFiles(BTreeMap<(&'static str, PathBuf), Option<[u8; 32]>>);

impl NamedFiles {
    /// Reads the files that these values name.
    pub(crate) fn read(values: &Values) -> Self {
        let files = values.files().into_iter();
        Self(
            files
                .map(|(key, file)| {
                    let digest = digest(&file).ok();
                    ((key, file), digest)
                })
                .collect(),
        )
    }

    /// The files that have another content in `new`, with their keys.
    pub(crate) fn changed<'a>(
        &'a self,
        new: &'a Self,
    ) -> impl Iterator<Item = (&'static str, &'a Path)> {
        new.0.iter().filter_map(|(named, digest)| {
            let before = self.0.get(named)?;
            if before == digest {
                return None;
            }
            Some((named.0, &*named.1))
        })
    }
}

/// When a changed file of this key is effective.
pub(crate) fn effective(key: &str) -> &'static str {
    match key {
        "store.password_file" | "store.ca_file" | "fleet.password_file" | "fleet.ca_file" => {
            "with the next connection"
        }
        _ if key.starts_with("relay.keys.") || key.starts_with("tls.acme.") => "after a restart",
        _ => "now",
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
