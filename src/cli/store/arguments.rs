//! The arguments of `portcullis store`, and their help.

use crate::cli::{ConfigArgument, STORE_CODES, duration};
use clap::Subcommand;
use portcullis_base::config::parse_origin;
use portcullis_store::content_types;
use portcullis_store::syntax::{is_did, is_uuid};
use std::path::PathBuf;
use std::time::Duration;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # import content
  portcullis store import --config portcullis.toml content.ndjson
  # daily jobs
  portcullis store backup backup.sqlite
  portcullis store prune

Exit codes:
  0   success
  1   import: a file was refused; forget: a reader keeps erased rows in SQLite's log
  2   usage, or an unusable configuration or file
  70  the store is unavailable, or of another version")]
pub(in crate::cli) struct Arguments {
    #[command(flatten)]
    pub(super) file: ConfigArgument,
    #[command(subcommand)]
    pub(super) command: StoreCommand,
}

#[derive(Debug, Subcommand)]
pub(super) enum StoreCommand {
    /// Create the tables, or migrate them to this version.
    #[command(after_help = "\
Examples:
  # after an update, with the server stopped
  portcullis store migrate --config portcullis.toml
".to_owned() + STORE_CODES)]
    Migrate,
    /// Import content from files with one JSON object per line, each entirely or not at all.
    Import(ImportArguments),
    /// Write the content to standard output, in the format of import; no backup: the journal and
    /// the age verification are left out.
    Export(ExportArguments),
    /// Copy a whole SQLite store to a new file, also while a server runs.
    Backup(BackupArguments),
    /// Delete old rows that are no longer needed.
    Prune(PruneArguments),
    /// Erase the data of a user: age verification, follows and suggestions.
    Forget(ForgetArguments),
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # files in this order, each entirely or not at all
  portcullis store import --config portcullis.toml accounts.ndjson feeds.ndjson
  # from another program
  zcat content.ndjson.gz | portcullis store import --config portcullis.toml -

Exit codes:
  0   success
  1   a file was refused: its bad lines are listed, and nothing of it is stored
  2   usage, or an unusable configuration or file
  70  the store is unavailable, or of another version")]
pub(in crate::cli) struct ImportArguments {
    /// Origin of the podcast feeds, if it is not sidecar.base_url: new podcasts without a guid get
    /// one derived from it.
    #[arg(long, value_name = "URL", value_parser = parse_origin)]
    pub(super) base_url: Option<String>,
    /// The files; - is standard input.
    #[arg(value_name = "FILE", required = true)]
    pub(super) content: Vec<PathBuf>,
}

/// Names the data that an export lacks.
pub(super) const NOT_EXPORTED: &str = "the export has content only: no journal, intents, \
    idempotency keys or bindings of the relay, no age verification; `store backup` has all of it";

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # while the server runs
  portcullis store backup --config portcullis.toml backup.sqlite
  # verify the journal of the backup
  PORTCULLIS__STORE__URL=sqlite:backup.sqlite portcullis journal --config portcullis.toml verify

To restore it, stop the server, delete the -wal and -shm files of the database, replace the database
with the backup, and start. A PostgreSQL store is refused with the pg_dump command to run.

Exit codes:
  0   success: the file is complete and on the disk
  2   usage, an unusable configuration, PostgreSQL, or a file that exists or cannot be created
  70  the store is unavailable, or the disk is full")]
pub(in crate::cli) struct BackupArguments {
    /// The file to create, with mode 0600. It must not exist.
    #[arg(value_name = "TO")]
    pub(super) to: PathBuf,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # all content
  portcullis store export --config portcullis.toml > content.ndjson
  # of one type
  portcullis store export --config portcullis.toml --type podcast > podcasts.ndjson

Left out: the journal, intents, idempotency keys and bindings of the relay; age sessions, events and
the age status of users. Use `portcullis store backup` for these.
".to_owned() + STORE_CODES)]
pub(in crate::cli) struct ExportArguments {
    /// Only records of this type.
    #[arg(long = "type", value_name = "TYPE", value_parser = content_type)]
    pub(super) only: Option<String>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # a daily job
  portcullis store prune --config portcullis.toml
  # in a container, where nothing starts jobs; a signal ends it
  portcullis store prune --config portcullis.toml --every 24h
  # keep the posts of the last year only
  portcullis store prune --config portcullis.toml --feed-items-older-than 365d
".to_owned() + STORE_CODES)]
pub(in crate::cli) struct PruneArguments {
    /// Delete idempotency keys older than this.
    #[arg(long, value_name = "TIME", default_value = "7d", value_parser = duration)]
    pub(super) keys_older_than: Duration,
    /// Delete refusals older than this.
    #[arg(long, value_name = "TIME", default_value = "90d", value_parser = duration)]
    pub(super) refusals_older_than: Duration,
    /// Delete suggestions of snapshots older than this, except the newest of each viewer.
    #[arg(long, value_name = "TIME", default_value = "24h", value_parser = duration)]
    pub(super) suggestions_older_than: Duration,
    /// Delete unused age sessions that expired longer ago than this.
    #[arg(long, value_name = "TIME", default_value = "30d", value_parser = duration)]
    pub(super) age_sessions_older_than: Duration,
    /// Delete feed items older than this; none by default.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) feed_items_older_than: Option<Duration>,
    /// Prune again at this interval, until a signal or a failure.
    #[arg(long, value_name = "TIME", value_parser = duration)]
    pub(super) every: Option<Duration>,
}

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # at the request of a user
  portcullis store forget --config portcullis.toml 5b0b6f9e-0c55-4b0e-9d0a-6b8d4f1c2a77
  # an account without a user id
  portcullis store forget --config portcullis.toml did:plc:ewvi7nxzyoun6zhxrhs64oiz

Exit codes:
  0   success
  1   the rows are erased, but a reader keeps them in SQLite's log: repeat the command
  2   usage, or an unusable configuration or file
  70  the store is unavailable, or of another version")]
pub(in crate::cli) struct ForgetArguments {
    /// The user's id (a UUID) or DID; the account has both.
    #[arg(value_name = "USER", value_parser = user)]
    pub(super) user: String,
}

fn user(name: &str) -> Result<String, String> {
    let id = name.to_ascii_lowercase();
    let user = if is_uuid(&id) {
        Some(id)
    } else {
        is_did(name).then(|| name.to_owned())
    };
    user.ok_or_else(|| "expected a UUID or a DID".to_owned())
}

fn content_type(name: &str) -> Result<String, String> {
    let types: Vec<_> = content_types().collect();
    let expected = || format!("expected one of {}", types.join(", "));
    types
        .contains(&name)
        .then(|| name.to_owned())
        .ok_or_else(expected)
}
