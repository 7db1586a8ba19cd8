//! `portcullis sign-webhook`: the signature of a webhook's body, to try the endpoint by hand.
//!
//! Signs the raw bytes; a newline at the end of the file is part of them.

use super::open;
use portcullis_base::secrets;
use portcullis_filters::hmac;
use portcullis_program::command::{Failure, Outcome, written};
use std::io::{self, Read as _, Write as _};
use std::path::PathBuf;

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

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let secret = secrets::read(&arguments.secret_file)?;
    let mut body = Vec::new();
    open(&arguments.body)
        .and_then(|mut file| file.read_to_end(&mut body))
        .map_err(|error| {
            let body = arguments.body.display();
            Failure::usage(format_args!("portcullis sign-webhook: {body}: {error}"))
        })?;
    let signature = hex::encode(hmac::sign(&secret, &body));
    written("sign-webhook", writeln!(io::stdout(), "sha256={signature}"))
}
