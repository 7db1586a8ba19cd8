//! New secrets, in files that only their owner can read.

use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// Writes a new secret of 64 hexadecimal digits.
///
/// # Errors
/// The file exists or cannot be written.
pub fn new(file: &Path) -> io::Result<()> {
    write(file, &random_digits::<32>()?)
}

/// Random bytes from the kernel, in hexadecimal.
///
/// # Errors
/// The kernel's source cannot be read.
pub fn random_digits<const BYTES: usize>() -> io::Result<String> {
    let mut random = [0; BYTES];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(hex::encode(random))
}

/// Writes a new file that only its owner can read.
///
/// # Errors
/// The file exists or cannot be written.
pub fn write(file: &Path, secret: &str) -> io::Result<()> {
    let mut out = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(file)?;
    writeln!(out, "{secret}")?;
    out.sync_all()
}
