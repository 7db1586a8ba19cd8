//! The command line: one file per command, with its arguments, its help and what it does.
//!
//! Exit codes: 0 success, 1 a check failed, 2 usage or configuration, 70 internal error.

mod archive;
mod check;
mod completions;
mod config;
mod config_file;
mod explain;
mod filter;
mod help;
mod journal;
mod man;
mod probe;
mod serve;
mod sign_webhook;
mod store;
mod token;

use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand};
use clap_complete::Shell;
use config_file::ConfigArgument;
use portcullis_dev as dev;
use portcullis_program::VERSION;
use portcullis_program::command::{Failure, INTERNAL, output};
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

/// The edge in front of a private Starknet node.
#[derive(Debug, Parser)]
#[command(version = VERSION, about, arg_required_else_help = true)]
#[command(after_help = "\
Examples:
  # try it: the whole system on loopback, with a real node
  portcullis dev
  # find the mistakes in a configuration
  portcullis check --config portcullis.toml
  # run with /etc/portcullis/portcullis.toml, or else ./portcullis.toml
  portcullis serve
  # read the help of one command
  portcullis store import --help

Exit codes:
  0   success
  1   a check failed: check, explain, journal, probe, store import
  2   usage, or an unusable configuration or file
  70  internal error

Environment:
  PORTCULLIS__SECTION__KEY  overrides section.key of the configuration
  CREDENTIALS_DIRECTORY     searched first for secrets with a relative path")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the edge.
    Serve(serve::Arguments),
    /// Report every mistake in a configuration.
    Check(check::Arguments),
    /// Show the configuration that is used.
    Config(config::Arguments),
    /// Run the whole system on loopback, with a real node and nothing to configure.
    Dev(dev::Arguments),
    /// Show, check by check, how the gateway or the relay would judge a request.
    Explain(explain::Arguments),
    /// Read the relay's journal; works while a relay runs.
    Journal(journal::Arguments),
    /// Import, export, prune and back up the store; works while a server runs.
    Store(store::Arguments),
    /// GET a URL, as a health check does: exit 0 if the status is 2xx.
    Probe(probe::Arguments),
    /// Sign the body of a webhook, as the age verifier does.
    SignWebhook(sign_webhook::Arguments),
    /// Create a token for the relay.
    #[command(subcommand, after_help = token::HELP)]
    Token(token::TokenCommand),
    /// Write the completion script of a shell.
    #[command(after_help = completions::HELP)]
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages.
    #[command(after_help = man::HELP)]
    Man {
        /// A folder for a page per command; by default, the program's page to standard output.
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
}

/// The exit codes of commands that use the store, in their help.
const STORE_CODES: &str = "
Exit codes:
  0   success
  2   usage, or an unusable configuration or file
  70  the store is unavailable, or of another version";

/// Opens the file at a path; `-` is standard input.
fn open(path: &Path) -> io::Result<Box<dyn Read>> {
    if path == Path::new("-") {
        Ok(Box::new(io::stdin()))
    } else {
        Ok(Box::new(File::open(path)?))
    }
}

/// Parses a duration in an argument.
fn duration(text: &str) -> Result<Duration, String> {
    let expected = "expected a number and its unit, such as 3s, 12h or 90d";
    portcullis_base::config::duration(text).ok_or_else(|| expected.to_owned())
}

/// The definition of the command line, with its help.
pub fn command() -> clap::Command {
    help::styled(Arguments::command())
}

/// Runs the program with the process's arguments.
pub fn run() -> ExitCode {
    if let Err(error) = dev::attached::run() {
        output::notice(format_args!("portcullis: {error}"));
        return ExitCode::from(INTERNAL);
    }
    let matches = command().get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let outcome = match arguments.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Config(arguments) => config::run(&arguments),
        Command::Dev(arguments) => dev::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Journal(arguments) => journal::run(&arguments),
        Command::Store(arguments) => store::run(&arguments),
        Command::Probe(arguments) => probe::run(&arguments),
        Command::SignWebhook(arguments) => sign_webhook::run(&arguments),
        Command::Token(command) => token::run(&command),
        Command::Completions { shell } => completions::run(shell),
        Command::Man { folder } => man::run(folder.as_deref()),
    };
    outcome.unwrap_or_else(|Failure(code, text)| {
        output::notice(text);
        ExitCode::from(code)
    })
}
