//! `portcullis sign-webhook`: the signature of a webhook's body, to try the endpoint by hand.
//!
//! Signs the raw bytes; a newline at the end of the file is part of them.

use super::{INTERNAL, USAGE, fail};
use crate::secrets;
use portcullis_filters::hmac;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, clap::Args)]
#[command(after_help = r#"Examples:
  # a signature
  portcullis sign-webhook --secret-file webhook.secret event.json
  # an event, as the verifier sends it
  signature=$(portcullis sign-webhook --secret-file webhook.secret event.json)
  curl --data-binary @event.json -H "x-service-verifier-signature: $signature" \
    -H 'content-type: application/json' http://127.0.0.1:8082/functions/age-verifier-webhook

Exit codes:
  0   success
  2   usage, or an unusable file
  70  internal error"#)]
pub(super) struct Arguments {
    /// The file of the secret.
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
    /// A file with the body; - reads it from standard input.
    #[arg(value_name = "BODY", default_value = "-")]
    body: PathBuf,
}

pub(super) fn run(arguments: &Arguments) -> ExitCode {
    let secret = match secrets::read(&arguments.secret_file) {
        Ok(secret) => secret,
        Err(error) => return fail(USAGE, error),
    };
    let body = match read(&arguments.body) {
        Ok(body) => body,
        Err(error) => {
            let body = arguments.body.display();
            return fail(USAGE, format_args!("portcullis sign-webhook: {body}: {error}"));
        }
    };
    match writeln!(io::stdout(), "sha256={}", hex::encode(hmac::sign(&secret, &body))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(INTERNAL, format_args!("portcullis sign-webhook: {error}")),
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
