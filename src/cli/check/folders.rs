//! `check` on folders that others can write to: of secrets, of certificates, of ACME's files.
//!
//! A start uses the files of such a folder if their own modes are right, but another user may have
//! put them there.

use super::report::{Finding, Kind, Report, Status};
use portcullis_base::config::Config;
use portcullis_base::secrets;

/// Adds a note for each file in such a folder, and a mistake if it is ACME's: nothing is ordered
/// into it.
pub(super) fn check(config: &Config, report: &mut Report) {
    for file in config.values.files() {
        // a file that is missing has a finding of its own
        if let Ok(Some((folder, mode))) = secrets::open_folder(&file.path) {
            let message = format!(
                "{}: others can write to {} (mode {mode:04o}), and replace the file: chmod o-w it",
                file.path.display(),
                folder.display()
            );
            report.add(Finding::new(Kind::File, file.key, Status::Note, message));
        }
    }
    let folder = config
        .acme
        .as_ref()
        .and_then(portcullis_acme::folder_exposure);
    if let Some(message) = folder {
        report.add(Finding::failed(Kind::File, "tls.acme.folder", message));
    }
}
