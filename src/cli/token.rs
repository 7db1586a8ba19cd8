//! `portcullis token`: tokens for the relay.
//!
//! `new FILE` writes 32 random bytes from the kernel in hexadecimal to a file that only its owner
//! can read, and never to the terminal. An existing file is not changed.

use clap::Subcommand;
use portcullis_base::secrets::fresh;
use portcullis_program::command::{Failure, Outcome, written};
use std::io::{self, ErrorKind, Write as _};
use std::path::PathBuf;

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
    match fresh::new(file) {
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
