//! Text for people on standard output and standard error.
//!
//! A reader may be gone or hang: a message that cannot be written within a second is dropped.
//! Results are not written here: each command writes its own, and fails if it cannot.

use std::fmt::Display;
use std::io::{self, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

/// How long a message waits for its reader.
const WAIT: Duration = Duration::from_secs(1);

/// Writes a message and a line feed to standard error.
pub fn notice(message: impl Display) {
    write_to(io::stderr(), format!("{message}\n"));
}

/// Writes a text to standard output.
pub fn show(text: String) {
    write_to(io::stdout(), text);
}

fn write_to(mut to: impl Write + Send + 'static, text: String) {
    let (done, written) = mpsc::channel();
    let thread = thread::Builder::new().spawn(move || {
        let result = to.write_all(text.as_bytes()).and_then(|()| to.flush());
        done.send(result)
    });
    if thread.is_ok() {
        // a message that is not written is dropped
        let _ = written.recv_timeout(WAIT);
    }
}
