//! `portcullis sign-webhook`: the signature of a webhook's body, to try the endpoint by hand.
//!
//! Signs the raw bytes, so a new line at the end of the file is part of them.

use super::{INTERNAL, SignWebhookArguments, USAGE};
use crate::secrets;
use portcullis_filters::hmac;
use std::io::{self, Read as _, Write as _};
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(arguments: &SignWebhookArguments) -> ExitCode {
    let secret = match secrets::read(&arguments.secret_file) {
        Ok(secret) => secret,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(USAGE);
        }
    };
    let body = match read(&arguments.body) {
        Ok(body) => body,
        Err(error) => {
            eprintln!("portcullis sign-webhook: {}: {error}", arguments.body.display());
            return ExitCode::from(USAGE);
        }
    };
    let digits: String =
        hmac::sign(&secret, &body).iter().map(|byte| format!("{byte:02x}")).collect();
    match writeln!(io::stdout(), "sha256={digits}") {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("portcullis sign-webhook: {error}");
            ExitCode::from(INTERNAL)
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    if path != Path::new("-") {
        return std::fs::read(path);
    }
    let mut body = Vec::new();
    io::stdin().read_to_end(&mut body)?;
    Ok(body)
}
