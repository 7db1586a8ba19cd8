//! The command line: one file per subcommand.
//!
//! Exit codes: 0 fine, 1 a check failed, 2 usage or configuration, 70 internal.

mod check;
mod dev;
mod explain;
mod serve;

use crate::config::LogFormat;
use clap::{Parser, Subcommand, ValueEnum};
use std::path::PathBuf;
use std::process::ExitCode;

/// A check found something wrong.
const CHECK_FAILED: u8 = 1;
/// The command line or the configuration is wrong.
const USAGE: u8 = 2;
/// Something that should work did not.
const INTERNAL: u8 = 70;

/// The edge in front of a private Starknet node.
#[derive(Debug, Parser)]
#[command(version, about, arg_required_else_help = true)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run the edge.
    Serve(ServeArguments),
    /// Report everything that is wrong with a configuration.
    Check(CheckArguments),
    /// Run the whole system on loopback, with a real node and nothing to configure.
    Dev(DevArguments),
    /// Show, check by check, how the gateway would judge a request.
    Explain(ExplainArguments),
}

#[derive(Debug, clap::Args)]
struct ConfigArgument {
    /// The configuration, a TOML file; PORTCULLIS__SECTION__KEY variables override it.
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

#[derive(Debug, clap::Args)]
struct ServeArguments {
    #[command(flatten)]
    file: ConfigArgument,
    /// How log lines are written, whatever the configuration says.
    #[arg(long, value_enum)]
    log_format: Option<LogFormatArgument>,
}

#[derive(Debug, clap::Args)]
struct CheckArguments {
    #[command(flatten)]
    file: ConfigArgument,
    /// Also ask each URL of the node for its version and its chain.
    #[arg(long)]
    live: bool,
}

#[derive(Debug, clap::Args)]
struct DevArguments {
    /// Use the node that runs at this URL instead of starting one.
    #[arg(long, value_name = "URL")]
    node: Option<String>,
    /// Throw away what an earlier run left under .portcullis.
    #[arg(long)]
    fresh: bool,
}

#[derive(Debug, clap::Args)]
struct ExplainArguments {
    #[command(flatten)]
    file: ConfigArgument,
    /// A file with the body of the request; - reads it from standard input.
    #[arg(value_name = "REQUEST", default_value = "-")]
    request: PathBuf,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LogFormatArgument {
    Json,
    Text,
}

impl From<LogFormatArgument> for LogFormat {
    fn from(format: LogFormatArgument) -> Self {
        match format {
            LogFormatArgument::Json => Self::Json,
            LogFormatArgument::Text => Self::Text,
        }
    }
}

/// Runs the program with the process's arguments, and says how it ended.
pub fn run() -> ExitCode {
    match Arguments::parse().command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Dev(arguments) => dev::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
    }
}
