//! What the commands have in common: exit codes, failures and output.

pub mod output;

use portcullis_base::config::LoadError;
use portcullis_base::secrets::SecretError;
use std::fmt::Display;
use std::io::{self, ErrorKind};
use std::process::ExitCode;

/// Exit code if a check failed.
pub const CHECK_FAILED: u8 = 1;
/// Exit code if the command line or the configuration is invalid.
pub const USAGE: u8 = 2;
/// Exit code of an internal error.
pub const INTERNAL: u8 = 70;

/// Why a command cannot do its work: its exit code, and the text for standard error.
pub struct Failure(pub u8, pub String);

impl Failure {
    /// The command line, or a file that it names, is unusable.
    pub fn usage(error: impl Display) -> Self {
        Self(USAGE, error.to_string())
    }

    /// An internal error, or another program's.
    pub fn internal(error: impl Display) -> Self {
        Self(INTERNAL, error.to_string())
    }
}

impl From<LoadError> for Failure {
    fn from(error: LoadError) -> Self {
        Self::usage(error)
    }
}

impl From<SecretError> for Failure {
    fn from(error: SecretError) -> Self {
        Self::usage(error)
    }
}

/// The result of a command.
pub type Outcome = Result<ExitCode, Failure>;

/// The outcome of a command that writes to standard output. A closed pipe is no failure.
///
/// # Errors
/// Standard output cannot be written.
pub fn written(command: &str, result: io::Result<()>) -> Outcome {
    match result {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => Err(Failure::internal(
            format_args!("portcullis {command}: {error}"),
        )),
        _ => Ok(ExitCode::SUCCESS),
    }
}

/// Runs a task on this thread.
///
/// # Errors
/// The kernel has no room for a runtime.
pub fn block_on<T>(task: impl Future<Output = T>) -> io::Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(task))
}
