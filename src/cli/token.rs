//! `portcullis token`: tokens for the relay.
//!
//! `new FILE` writes 32 random bytes from the kernel in hexadecimal to a file that only its owner
//! can read, and never to the terminal. An existing file is not changed.

use super::{Failure, Outcome, written};
use clap::Subcommand;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

pub(super) const HELP: &str = "\
Examples:
  # for relay.token_files
  portcullis token new relay.token

Exit codes:
  0   success
  2   usage, or the file exists
  70  internal error";

#[derive(Debug, Subcommand)]
pub(super) enum TokenCommand {
    /// Write 32 random bytes in hexadecimal to a new file of mode 0600.
    #[command(after_help = "\
Examples:
  # for relay.token_files
  portcullis token new relay.token
  # the next one, while the first is still valid
  portcullis token new relay.token.next

Exit codes:
  0   success
  2   usage, or the file exists
  70  internal error")]
    New {
        /// The file.
        file: PathBuf,
    },
}

pub(super) fn run(command: &TokenCommand) -> Outcome {
    let TokenCommand::New { file } = command;
    let shown = file.display();
    match new(file) {
        Ok(()) => {
            let text = "a new token or secret, 32 random bytes in hexadecimal";
            written("token", writeln!(io::stdout(), "{shown}: {text}"))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let text = format_args!("portcullis token: {shown} exists; name another file");
            Err(Failure::usage(text))
        }
        Err(error) => Err(Failure::internal(format_args!(
            "portcullis token: {shown}: {error}"
        ))),
    }
}

/// Writes a new secret of 64 hexadecimal digits.
pub(super) fn new(file: &Path) -> io::Result<()> {
    write(file, &random_digits::<32>()?)
}

/// Random bytes from the kernel, in hexadecimal.
pub(super) fn random_digits<const BYTES: usize>() -> io::Result<String> {
    let mut random = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(hex::encode(random))
}

/// Writes a new file that only its owner can read.
pub(super) fn write(file: &Path, secret: &str) -> io::Result<()> {
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    writeln!(out, "{secret}")?;
    out.sync_all()
}
