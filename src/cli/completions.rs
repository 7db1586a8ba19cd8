//! `portcullis completions`: what a shell needs to complete this command line, for its own folder
//! of such files.

use super::{Arguments, INTERNAL};
use clap::CommandFactory as _;
use clap_complete::Shell;
use std::io::{self, ErrorKind, Write as _};
use std::process::ExitCode;

pub(super) fn run(shell: Shell) -> ExitCode {
    // to memory first: the generator takes a writer that fails for a bug
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "portcullis", &mut script);
    match io::stdout().write_all(&script) {
        Ok(()) => ExitCode::SUCCESS,
        // whoever reads it has seen enough
        Err(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("portcullis completions: {error}");
            ExitCode::from(INTERNAL)
        }
    }
}
