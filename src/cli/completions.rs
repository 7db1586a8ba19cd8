//! `portcullis completions`: the script by which a shell completes this command line.

use super::command;
use clap_complete::Shell;
use portcullis_program::command::{Outcome, written};
use std::io::{self, Write as _};

pub(super) const HELP: &str = "\
Examples:
  # in this bash
  source <(portcullis completions bash)
  # for every bash
  portcullis completions bash > /etc/bash_completion.d/portcullis
  # for zsh, in a folder of its fpath
  portcullis completions zsh > /usr/share/zsh/vendor-completions/_portcullis
  # for fish
  portcullis completions fish > /etc/fish/completions/portcullis.fish

Exit codes:
  0   success
  2   usage
  70  internal error";

pub(super) fn run(shell: Shell) -> Outcome {
    // to memory first: the generator panics when a write fails
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command(), "portcullis", &mut script);
    written("completions", io::stdout().write_all(&script))
}
