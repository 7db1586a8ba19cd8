//! The command line: one file per subcommand.
//!
//! Exit codes: 0 fine, 1 a check failed, 2 usage or configuration, 70 internal. What `--help` and
//! the manual pages say beside the options is in `help.rs`.

mod check;
mod completions;
mod dev;
mod explain;
mod help;
mod journal;
mod man;
mod serve;
mod sign_webhook;
mod store;
mod token;

use crate::config::{LogFormat, parse_origin};
use crate::store::content_types;
use clap::{CommandFactory as _, FromArgMatches as _, Parser, Subcommand, ValueEnum};
use clap_complete::Shell;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

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
    /// Show, check by check, how the gateway or the relay would judge a request.
    Explain(ExplainArguments),
    /// Read the relay's journal; works while a relay runs.
    Journal(JournalArguments),
    /// Fill, show and tidy up what is stored; works while a server runs.
    #[command(subcommand)]
    Store(StoreCommand),
    /// Sign the body of a webhook, as the age verifier does.
    SignWebhook(SignWebhookArguments),
    /// Make a fresh relay token.
    #[command(subcommand)]
    Token(TokenCommand),
    /// Write what a shell needs to complete this command line.
    Completions {
        /// The shell.
        shell: Shell,
    },
    /// Write the manual pages.
    Man {
        /// A folder for a page of each command; without it, this program's goes to standard output.
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
    },
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
    /// Also ask each URL of the node for its version and its chain, and prove the relay's pins.
    #[arg(long)]
    live: bool,
}

#[derive(Debug, clap::Args)]
struct DevArguments {
    /// Use the node that runs at this URL instead of starting one.
    #[arg(long, value_name = "URL")]
    node: Option<String>,
    /// Where keys, token, configuration and store are kept.
    #[arg(long, value_name = "DIR", default_value = ".portcullis")]
    state: PathBuf,
    /// Throw away what an earlier run left there.
    #[arg(long)]
    fresh: bool,
    /// Make the network and write the configuration, for `portcullis serve`; run nothing.
    #[arg(long, requires = "node")]
    prepare: bool,
    /// Leave V2 verification to be activated by POST /require-v2.
    #[arg(long)]
    without_v2: bool,
}

#[derive(Debug, clap::Args)]
struct ExplainArguments {
    #[command(flatten)]
    file: ConfigArgument,
    /// Judge as the relay would at this path, such as /rpc or /mint-card.
    #[arg(long, value_name = "PATH")]
    relay: Option<String>,
    /// A file with the body of the request; - reads it from standard input.
    #[arg(value_name = "REQUEST", default_value = "-")]
    request: PathBuf,
}

#[derive(Debug, clap::Args)]
struct JournalArguments {
    #[command(flatten)]
    file: ConfigArgument,
    #[command(subcommand)]
    command: JournalCommand,
}

#[derive(Debug, Subcommand)]
enum JournalCommand {
    /// The newest entries.
    List {
        /// How many.
        #[arg(long, default_value_t = 50, value_name = "COUNT")]
        last: u32,
    },
    /// One intent, and what came of it.
    Show {
        /// Its number, as `list` shows it.
        intent: i64,
    },
    /// Recompute the chain of hashes: exit code 1 when an entry was changed or is missing.
    Verify,
    /// Every entry, one JSON object per line.
    Export,
}

#[derive(Debug, Subcommand)]
enum StoreCommand {
    /// Create the tables, or bring them up to date.
    Migrate(ConfigArgument),
    /// Take content in: files of one JSON object per line, each of them whole or not at all.
    Import(ImportArguments),
    /// Write the content to standard output, as import takes it.
    Export(ExportArguments),
    /// Forget what is old and not needed any more.
    Prune(PruneArguments),
}

#[derive(Debug, clap::Args)]
struct ImportArguments {
    #[command(flatten)]
    file: ConfigArgument,
    /// Where the feeds of podcasts are, if not at sidecar.base_url: makes the guid of a new one
    /// that has none.
    #[arg(long, value_name = "URL", value_parser = parse_origin)]
    base_url: Option<String>,
    /// The files; - is standard input.
    #[arg(value_name = "FILE", required = true)]
    content: Vec<PathBuf>,
}

#[derive(Debug, clap::Args)]
struct ExportArguments {
    #[command(flatten)]
    file: ConfigArgument,
    /// Records of this type only.
    #[arg(long = "type", value_name = "TYPE", value_parser = content_type)]
    only: Option<String>,
}

#[derive(Debug, clap::Args)]
struct PruneArguments {
    #[command(flatten)]
    file: ConfigArgument,
    /// Idempotency keys, by their age.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = duration)]
    keys_older_than: Duration,
    /// Suggestions, by the age of their snapshot; the newest of each viewer stays.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration)]
    suggestions_older_than: Duration,
    /// Age sessions that were never used, by the time since they expired.
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = duration)]
    age_sessions_older_than: Duration,
    /// Feed items, by their age; none unless this is given.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    feed_items_older_than: Option<Duration>,
}

#[derive(Debug, clap::Args)]
struct SignWebhookArguments {
    /// The file of the secret.
    #[arg(long, value_name = "FILE")]
    secret_file: PathBuf,
    /// A file with the body; - reads it from standard input.
    #[arg(value_name = "BODY", default_value = "-")]
    body: PathBuf,
}

#[derive(Debug, Subcommand)]
enum TokenCommand {
    /// Write 32 random bytes in hexadecimal to a new file of mode 0600.
    New {
        /// The file.
        file: PathBuf,
    },
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

fn content_type(name: &str) -> Result<String, String> {
    let types: Vec<_> = content_types().collect();
    let expected = || format!("expected one of {}", types.join(", "));
    types.contains(&name).then(|| name.to_owned()).ok_or_else(expected)
}

fn duration(text: &str) -> Result<Duration, String> {
    let duration = humantime::parse_duration(text);
    duration.map_err(|_| "expected a number and its unit, such as 90d or 12h".to_owned())
}

/// Runs the program with the process's arguments, and says how it ended.
pub fn run() -> ExitCode {
    let matches = help::with_examples(Arguments::command()).get_matches();
    let arguments = Arguments::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    match arguments.command {
        Command::Serve(arguments) => serve::run(&arguments),
        Command::Check(arguments) => check::run(&arguments),
        Command::Dev(arguments) => dev::run(&arguments),
        Command::Explain(arguments) => explain::run(&arguments),
        Command::Journal(arguments) => journal::run(&arguments),
        Command::Store(command) => store::run(&command),
        Command::SignWebhook(arguments) => sign_webhook::run(&arguments),
        Command::Token(command) => token::run(&command),
        Command::Completions { shell } => completions::run(shell),
        Command::Man { folder } => man::run(folder.as_deref()),
    }
}
