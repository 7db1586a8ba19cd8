//! `portcullis token`: fresh relay tokens.
//!
//! `new FILE` writes 32 random bytes from the kernel in hexadecimal to a file that only its owner
//! can read, and never to the terminal. A file that is there already is not touched.

use super::{INTERNAL, TokenCommand, USAGE};
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::process::ExitCode;

pub(super) fn run(command: &TokenCommand) -> ExitCode {
    let TokenCommand::New { file } = command;
    match new(file) {
        Ok(()) => {
            println!("{}: a new token, for relay.token_files and for the backend", file.display());
            ExitCode::SUCCESS
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            eprintln!("portcullis token: {} is there already; name another file", file.display());
            ExitCode::from(USAGE)
        }
        Err(error) => {
            eprintln!("portcullis token: {}: {error}", file.display());
            ExitCode::from(INTERNAL)
        }
    }
}

/// Writes a new secret of 64 hexadecimal digits.
pub(super) fn new(file: &Path) -> io::Result<()> {
    write(file, &random_digits::<32>()?)
}

/// So many random bytes from the kernel, in hexadecimal.
pub(super) fn random_digits<const BYTES: usize>() -> io::Result<String> {
    let mut random = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Writes a new file that only its owner can read.
pub(super) fn write(file: &Path, secret: &str) -> io::Result<()> {
    let mut out = OpenOptions::new().write(true).create_new(true).mode(0o600).open(file)?;
    writeln!(out, "{secret}")?;
    out.sync_all()
}
