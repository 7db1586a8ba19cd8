//! `portcullis probe`: a GET for health checks, for images without a shell and curl.
//!
//! In: a URL that the operator chose. Out: exit 0 if the status is 2xx, otherwise exit 1 and a line
//! that names the failure. Redirects are not followed, proxies are not used.

use super::duration;
use portcullis_base::fetch::{self, Roots};
use portcullis_program::command::{CHECK_FAILED, Failure, Outcome};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use tokio::runtime::Builder;
use ureq::http::Uri;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # the liveness probe of a container
  portcullis probe http://127.0.0.1:8083/livez
  # its readiness, within a second
  portcullis probe --timeout 1s http://127.0.0.1:8083/readyz
  # with a certificate of a private authority
  portcullis probe --ca-file ca.pem https://gateway.internal:8083/readyz

Exit codes:
  0   the status is 2xx
  1   it is another, or there is no response in time
  2   usage
  70  internal error")]
pub(super) struct Arguments {
    /// Timeout for name lookup, connection and response together.
    #[arg(long, value_name = "TIME", default_value = "3s", value_parser = duration)]
    timeout: Duration,
    /// Certificates of the authority to trust for https, in PEM, instead of the public ones.
    #[arg(long, value_name = "FILE")]
    ca_file: Option<PathBuf>,
    /// Where to send the GET.
    #[arg(value_name = "URL", value_parser = url)]
    url: String,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let Arguments {
        timeout,
        ca_file,
        url,
    } = arguments;
    let roots = ca_file.as_deref().map(Roots::read).transpose();
    let roots = roots.map_err(|error| Failure::usage(format_args!("--ca-file: {error}")))?;
    let runtime = Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|error| Failure::internal(format_args!("portcullis probe: {error}")))?;
    let status = runtime.block_on(fetch::probe(url, roots.unwrap_or_default(), *timeout));
    // a lookup of a name may outlast its deadline
    runtime.shutdown_background();
    let failure = match status {
        Ok(200..300) => return Ok(ExitCode::SUCCESS),
        Ok(status) => format!("status {status}"),
        Err(cause) => cause,
    };
    Err(Failure(
        CHECK_FAILED,
        format!("portcullis probe: {url}: {failure}"),
    ))
}

/// Parses the URL. Refuses a user name and a password: the output has the URL, and may be logged.
fn url(text: &str) -> Result<String, &'static str> {
    let parsed = text.parse::<Uri>().ok().filter(|uri| {
        matches!(uri.scheme_str(), Some("http" | "https"))
            && uri
                .authority()
                .is_some_and(|host| !host.as_str().contains('@'))
    });
    parsed
        .map(|_| text.to_owned())
        .ok_or("expected http://HOST:PORT/PATH or https://, without a user name")
}
