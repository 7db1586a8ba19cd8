//! `portcullis store import`: files one after the other, with a progress bar on a terminal.

use super::Failed;
use indicatif::{HumanDuration, ProgressBar, ProgressState, ProgressStyle};
use portcullis_base::secrets::fresh::random_digits;
use portcullis_store::{ImportError, ImportRules, Stage, Store};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufReader, Seek as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

const BAR: &str = "{prefix} {msg:<8} [{bar:32}] {bytes}/{total_bytes}{left}";

/// Opens all files before anything is imported.
pub(super) fn open(paths: &[PathBuf]) -> Result<Vec<(PathBuf, File)>, Failed> {
    let open = |path: &PathBuf| match readable_twice(path) {
        Ok(file) => Ok((path.clone(), file)),
        Err(error) => Err(Failed::File(path.clone(), error)),
    };
    paths.iter().map(open).collect()
}

/// Imports the files in order, up to the first refused one.
pub(super) async fn run(
    store: &Store,
    files: Vec<(PathBuf, File)>,
    rules: ImportRules<'_>,
) -> Result<(), Failed> {
    let mut shown = Ok(());
    for (path, file) in files {
        let length = file.metadata()?.len();
        let bar = bar(&path, length);
        let progress = |stage, bytes| {
            bar.set_message(match stage {
                Stage::Checking => "checking",
                Stage::Applying if bytes < length => "writing",
                Stage::Applying => "syncing",
            });
            bar.set_position(bytes);
        };
        let done = store
            .content()
            .import(&mut BufReader::new(file), rules, progress)
            .await;
        bar.finish_and_clear();
        match done {
            // a closed standard output does not stop the import
            Ok(imported) => {
                shown = shown.and(writeln!(io::stdout(), "{}: {imported}", path.display()));
            }
            Err(ImportError::Read(error)) => return Err(Failed::File(path, error)),
            Err(error) => return Err(Failed::Import(path, error)),
        }
    }
    Ok(shown?)
}

/// A progress bar on standard error, if that is a terminal.
fn bar(path: &Path, length: u64) -> ProgressBar {
    let style = ProgressStyle::with_template(BAR).expect("the template is constant");
    let name = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy()
        .into_owned();
    // before the first bytes there is nothing to estimate from
    let style = style.with_key("left", |state: &ProgressState, out: &mut dyn fmt::Write| {
        let _ = (state.pos() > 0).then(|| write!(out, ", {:#} left", HumanDuration(state.eta())));
    });
    ProgressBar::new(length)
        .with_style(style.progress_chars("=> "))
        .with_prefix(name)
}

/// Opens a file that can be read twice. A pipe is first copied to a temporary file, which is
/// created exclusively, private and already unlinked.
fn readable_twice(path: &Path) -> io::Result<File> {
    let mut pipe: Box<dyn io::Read> = if path == Path::new("-") {
        Box::new(io::stdin())
    } else {
        let file = File::open(path)?;
        if file.metadata()?.is_file() {
            return Ok(file);
        }
        Box::new(file)
    };
    let name = format!("portcullis-import-{}", random_digits::<16>()?);
    let spool = std::env::temp_dir().join(name);
    let mut file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&spool)?;
    std::fs::remove_file(&spool)?;
    io::copy(&mut pipe, &mut file)?;
    file.rewind()?;
    Ok(file)
}
