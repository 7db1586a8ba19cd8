//! `portcullis journal`: the relay's intents and their outcomes.
//!
//! Only reads, and works while a relay runs. `list` and `show` are for people, `export` is one JSON
//! object per line, `verify` recomputes the chain of hashes.

use super::{ConfigArgument, STORE_CODES};
use clap::Subcommand;
use portcullis_base::io::clock;
use portcullis_base::secrets;
use portcullis_program::command::{CHECK_FAILED, Failure, INTERNAL, Outcome, block_on, written};
use portcullis_store::{Entry, IntentId, Journal, PAGE, Store, StoreError, Verified};
use std::io::{self, Write as _};
use std::process::ExitCode;
use thiserror::Error;

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # the latest entries
  portcullis journal list --last 20
  # of another configuration: was anything changed afterwards?
  portcullis journal verify --config portcullis.toml

Exit codes:
  0   success
  1   verify: an entry was changed or is missing; show: no such intent
  2   usage, or an unusable configuration or file
  70  the store is unavailable, or of another version")]
pub(super) struct Arguments {
    #[command(flatten)]
    file: ConfigArgument,
    #[command(subcommand)]
    command: JournalCommand,
}

#[derive(Debug, Subcommand)]
enum JournalCommand {
    /// List the newest entries.
    #[command(after_help = "\
Examples:
  # the newest twenty
  portcullis journal list --last 20
".to_owned() + STORE_CODES)]
    List {
        /// How many entries.
        #[arg(long, default_value_t = 50, value_name = "COUNT")]
        last: u32,
    },
    /// Show one intent and its entries.
    #[command(after_help = "\
Examples:
  # an intent, by its number in the list
  portcullis journal show 17

Exit codes:
  0   success
  1   no such intent
  2   usage, or an unusable configuration or file
  70  the store is unavailable, or of another version")]
    Show {
        /// The intent's number in the list.
        intent: i64,
    },
    /// Recompute the chain of hashes: exit code 1 when an entry was changed or is missing.
    #[command(after_help = "\
Examples:
  # in a daily job: check the exit code
  portcullis journal verify

Exit codes:
  0   every entry is unchanged
  1   an entry was changed or is missing
  2   usage, or an unusable configuration or file
  70  the store is unavailable, or of another version")]
    Verify,
    /// Print every entry, one JSON object per line.
    #[command(after_help = "\
Examples:
  # for an archive
  portcullis journal export > journal.ndjson
".to_owned() + STORE_CODES)]
    Export,
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let config = arguments.file.load()?;
    let (Some(_), Some(store)) = (&config.relay, &config.store) else {
        return Err(Failure::usage("the configuration has no [relay]"));
    };
    let password = secrets::read_optional("store.password_file", store.password_file.as_deref())?;
    let done = block_on(async {
        let journal = Store::open_read_only(store, password.as_ref()).await?;
        let done = answer(&journal, &arguments.command).await;
        journal.close().await;
        done
    });
    match done.map_err(Failed::Out).flatten() {
        Ok(code) => Ok(code),
        Err(Failed::Out(error)) => written("journal", Err(error)),
        Err(error) => {
            let code = if matches!(error, Failed::NoIntent(_)) {
                CHECK_FAILED
            } else {
                INTERNAL
            };
            Err(Failure(code, format!("portcullis journal: {error}")))
        }
    }
}

#[derive(Debug, Error)]
enum Failed {
    #[error("{0}")]
    Store(#[from] StoreError),
    #[error("no intent {0}")]
    NoIntent(IntentId),
    #[error("{0}")]
    Out(#[from] io::Error),
}

async fn answer(journal: &Journal, command: &JournalCommand) -> Result<ExitCode, Failed> {
    let mut out = io::stdout().lock();
    match command {
        JournalCommand::List { last } => {
            for entry in journal.newest(*last).await? {
                writeln!(out, "{}", line(&entry))?;
            }
        }
        JournalCommand::Show { intent } => {
            let id = IntentId(*intent);
            let entries = journal.entries_of(id).await?;
            let intent = journal.intent(id).await?.ok_or(Failed::NoIntent(id))?;
            writeln!(out, "intent       {id}: {}", intent.operation)?;
            writeln!(out, "state        {}", intent.state.name())?;
            writeln!(out, "signer       {} nonce {}", intent.signer, intent.nonce)?;
            writeln!(out, "transaction  {}", intent.transaction_hash)?;
            writeln!(out, "chain        {}", intent.epoch)?;
            writeln!(out, "request      {}", intent.request)?;
            writeln!(out, "submitted    {}\n", intent.transaction)?;
            for entry in entries {
                writeln!(out, "{}", line(&entry))?;
            }
        }
        JournalCommand::Export => {
            let mut next = 1;
            loop {
                let page = journal.entries(next, PAGE).await?;
                let Some(last) = page.last() else { break };
                next = last.seq + 1;
                for entry in &page {
                    writeln!(out, "{}", entry.to_json())?;
                }
            }
        }
        JournalCommand::Verify => match journal.verify().await? {
            Verified::Whole { entries, head } => {
                writeln!(
                    out,
                    "{entries} entries, all unchanged; the last hash is {head}"
                )?;
            }
            Verified::Broken { seq, why } => {
                writeln!(out, "BROKEN at entry {seq}: {why}")?;
                return Ok(ExitCode::from(CHECK_FAILED));
            }
        },
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

fn line(entry: &Entry) -> String {
    let at = clock::rfc3339_millis(clock::at_us(entry.at_us));
    let intent = entry
        .intent
        .map_or_else(|| "-".to_owned(), |id| id.to_string());
    let (seq, kind, operation, detail) = (
        entry.seq,
        entry.kind.name(),
        &entry.operation,
        &entry.detail,
    );
    format!("{seq:>6}  {at}  {intent:>6}  {kind:<9}  {operation:<19}  {detail}")
}
