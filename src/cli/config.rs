//! `portcullis config`: the configuration that a start would use, as a file, and the schema of
//! files.
//!
//! It reads the file and the variables, and no secret: these are shown as the paths of their files.

use super::ConfigArgument;
use clap::Subcommand;
use portcullis_base::config::{Draft, LoadError, schema};
use portcullis_program::command::{Outcome, written};
use std::io::{self, Write as _};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # what a start would use, and where each value is set
  portcullis config show --config portcullis.toml
  # the JSON Schema for an editor
  portcullis config schema > portcullis.schema.json

Exit codes:
  0   success
  2   usage, or an unusable configuration
  70  internal error")]
pub(super) struct Arguments {
    #[command(flatten)]
    file: ConfigArgument,
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, Subcommand)]
enum ConfigCommand {
    /// Show every value that is used, and where it is set.
    ///
    /// That is a line of the file, a variable, or the default. The hash in the second line is the
    /// metric portcullis_config_hash of a process that uses these values.
    #[command(after_help = "\
Examples:
  # what a start would use
  portcullis config show --config portcullis.toml
  # only what differs from the defaults
  portcullis config show | grep -v '# default'

Exit codes:
  0   success
  2   usage, or an unusable configuration
  70  internal error")]
    Show,
    /// Print the JSON Schema of configuration files, for editors.
    ///
    /// It has names, meanings, types and defaults; `portcullis check` also knows bounds, and which
    /// keys exclude each other.
    #[command(after_help = "\
Examples:
  # the file's first line for an editor with Taplo: #:schema ./portcullis.schema.json
  portcullis config schema > portcullis.schema.json

Exit codes:
  0   success
  2   usage
  70  internal error")]
    Schema,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    if let ConfigCommand::Schema = arguments.command {
        return written("config", io::stdout().write_all(schema().as_bytes()));
    }
    let path = arguments.file.path()?;
    let draft = Draft::load(&path, std::env::vars_os())?;
    let text = format!("# {}\n{}", path.display(), draft.effective());
    draft
        .mistakes
        .map_err(|errors| LoadError::Invalid { path, errors })?;
    written("config", io::stdout().write_all(text.as_bytes()))
}
