//! `portcullis store backup`: copies a SQLite store to one file, which is complete or absent.

use super::Failed;
use portcullis_base::config::{StoreConfig, StoreTls};
use portcullis_base::secrets;
use portcullis_store::Store;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// Where the shipped units have their secrets; each is a credential `secret_NAME`.
const SECRETS: &str = "/etc/portcullis/secrets";

/// Writes the store to `to`, which must not exist.
pub(super) async fn run(config: &StoreConfig, to: &Path) -> Result<(), Failed> {
    if !config.is_for_one() {
        return Err(Failed::Postgres(pg_dump(config, to)));
    }
    let file_error = |error| Failed::File(to.to_owned(), error);
    if fs::symlink_metadata(to).is_ok() {
        return Err(file_error(ErrorKind::AlreadyExists.into()));
    }
    let partial = Partial::create(to).map_err(file_error)?;
    Store::copy_into(config, &partial.0).await?;
    let bytes = partial.publish(to).map_err(file_error)?;
    Ok(writeln!(io::stdout(), "{}: {bytes} bytes", to.display())?)
}

/// The command that does the same for PostgreSQL, from any folder and without this unit's
/// credentials. The URL has no password.
fn pg_dump(config: &StoreConfig, to: &Path) -> String {
    let mut command = String::new();
    if let Some(file) = &config.password_file {
        command += &format!("PGPASSWORD=\"$(cat {})\" ", lasting_place(file));
    }
    if config.tls == StoreTls::VerifyFull {
        let roots = config.ca_file.as_deref().map(lasting_place);
        let roots = roots.unwrap_or_else(|| "system".to_owned());
        command += &format!("PGSSLMODE=verify-full PGSSLROOTCERT={roots} ");
    }
    let url = quoted(&config.url);
    let to = quoted(&absolute(to));
    format!("{command}pg_dump --format=custom --file={to} {url}")
}

/// The place of a file after this process: the folder of a unit's credentials ends with it, and the
/// shipped units fill it from [`SECRETS`].
fn lasting_place(file: &Path) -> String {
    let place = secrets::locate(file);
    let credential = place
        .strip_prefix("/run/credentials")
        .ok()
        .and_then(Path::file_name)
        .and_then(OsStr::to_str)
        .and_then(|name| name.strip_prefix("secret_"));
    match credential {
        Some(name) => quoted(&format!("{SECRETS}/{name}")),
        None => quoted(&absolute(&place)),
    }
}

fn absolute(path: &Path) -> String {
    let absolute = std::path::absolute(path);
    absolute.as_deref().unwrap_or(path).display().to_string()
}

/// One word of a shell.
fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', r"'\''"))
}

/// An unfinished backup next to its destination; removed when dropped.
struct Partial(PathBuf);

impl Partial {
    fn create(to: &Path) -> io::Result<Self> {
        let mut path = to.to_owned();
        path.add_extension(format!("partial-{}", std::process::id()));
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&path)?;
        Ok(Self(path))
    }

    /// Gives the complete file its name, unless another file has it by now; returns its size in
    /// bytes.
    fn publish(&self, to: &Path) -> io::Result<u64> {
        let file = File::open(&self.0)?;
        file.sync_all()?;
        // unlike a rename, this never replaces a file
        fs::hard_link(&self.0, to)?;
        let folder = to.parent().filter(|folder| !folder.as_os_str().is_empty());
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        Ok(file.metadata()?.len())
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        // a file that cannot be removed is recognizable by its name
        let _ignored = fs::remove_file(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_credential_is_read_where_it_lasts() {
        for (file, place) in [
            (
                "/run/credentials/portcullis.service/secret_a.password",
                "'/etc/portcullis/secrets/a.password'",
            ),
            ("/run/secrets/portcullis/a", "'/run/secrets/portcullis/a'"),
            ("/it's", r"'/it'\''s'"),
        ] {
            assert_eq!(lasting_place(Path::new(file)), place);
        }
    }
}
