//! `portcullis journal`: the relay's intents and their outcomes.
//!
//! Only reads, and works while a relay runs. `list` and `show` are for people, `export` is one JSON
//! object per line, `verify` recomputes the chain of hashes, and compares it with an archive.

use super::archive::Archive;
use super::filter::FilterArguments;
use super::{ConfigArgument, STORE_CODES};
use clap::Subcommand;
use portcullis_base::io::clock;
use portcullis_base::secrets;
use portcullis_program::command::{CHECK_FAILED, Failure, INTERNAL, Outcome, block_on, written};
use portcullis_store::{
    Entry, EntryFilter, EntryKind, IntentId, Journal, Refusals, Store, StoreError, Verified,
};
use serde_json::json;
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
  # what was refused in the last hour: four of equal ones within a minute, and how many there were
  portcullis journal list --since 1h --state refused
".to_owned() + STORE_CODES)]
    List {
        /// How many entries.
        #[arg(long, default_value_t = 50, value_name = "COUNT")]
        last: u32,
        #[command(flatten)]
        filter: FilterArguments,
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
  # does it still contain every entry of an export?
  portcullis journal verify --contains journal.ndjson

Exit codes:
  0   every entry is unchanged
  1   an entry was changed or is missing
  2   usage, or an unusable configuration or file
  70  the store is unavailable, or of another version")]
    Verify {
        /// A hash that was the last one, or a file of `journal export`: exit code 1 unless the
        /// journal contains it.
        #[arg(long, value_name = "HASH|FILE")]
        contains: Option<String>,
    },
    /// Print every entry, one JSON object per line.
    #[command(after_help = "\
Examples:
  # for an archive
  portcullis journal export > journal.ndjson
  # what came since: 1234 is the last number in the archive
  portcullis journal export --after 1234 > later.ndjson
".to_owned() + STORE_CODES)]
    Export {
        #[command(flatten)]
        filter: FilterArguments,
    },
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let config = arguments.file.load()?;
    let (Some(_), Some(store)) = (&config.relay, &config.store) else {
        return Err(Failure::usage("the configuration has no [relay]"));
    };
    let archive = match &arguments.command {
        JournalCommand::Verify {
            contains: Some(archive),
        } => Archive::read(archive).map_err(Failure::usage)?,
        _ => Archive::default(),
    };
    let password = secrets::read_optional("store.password_file", store.password_file.as_deref())?;
    let done = block_on(async {
        let journal = Store::open_read_only(store, password.as_ref()).await?;
        let done = answer(&journal, &arguments.command, archive).await;
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

async fn answer(
    journal: &Journal,
    command: &JournalCommand,
    archive: Archive,
) -> Result<ExitCode, Failed> {
    let mut out = io::stdout().lock();
    match command {
        JournalCommand::List { last, filter } => {
            let filter = filter.at(journal.now_us().await?);
            list(journal, &filter, *last, &mut out).await?;
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
        JournalCommand::Export { filter } => {
            let filter = filter.at(journal.now_us().await?);
            export(journal, &filter, &mut out).await?;
        }
        JournalCommand::Verify { .. } => {
            let verified = verify(journal, archive, &mut out).await?;
            out.flush()?;
            return Ok(verified);
        }
    }
    out.flush()?;
    Ok(ExitCode::SUCCESS)
}

/// Prints the newest entries that the filter selects, oldest first; of refusals also how many there
/// were, where not all are entries.
async fn list(
    journal: &Journal,
    filter: &EntryFilter,
    last: u32,
    out: &mut impl io::Write,
) -> Result<(), Failed> {
    for entry in journal.newest_matching(filter, last).await? {
        writeln!(out, "{}", line(&entry))?;
    }
    if filter.kind != Some(EntryKind::Refused) {
        return Ok(());
    }
    let counted = journal.counted_refusals(filter.operation.as_deref(), filter.since_us);
    for refusals in counted.await?.iter().rev() {
        writeln!(out, "{}", counted_line(refusals))?;
    }
    Ok(())
}

/// Prints all entries that the filter selects as JSON, oldest first.
async fn export(
    journal: &Journal,
    filter: &EntryFilter,
    out: &mut impl io::Write,
) -> Result<(), Failed> {
    let mut after = filter.after;
    while let Some((page, next)) = journal.matching(filter, after).await? {
        for entry in &page {
            writeln!(out, "{}", entry.to_json())?;
        }
        after = next;
    }
    Ok(())
}

/// Verifies the chain, and that it contains the archive.
async fn verify(
    journal: &Journal,
    mut archive: Archive,
    out: &mut impl io::Write,
) -> Result<ExitCode, Failed> {
    let verified = journal.verify_each(|entry| archive.find(&entry.hash));
    match verified.await? {
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
    }
    match archive.compared() {
        Ok(None) => Ok(ExitCode::SUCCESS),
        Ok(Some(contained)) => {
            writeln!(out, "{contained}")?;
            Ok(ExitCode::SUCCESS)
        }
        Err(missing) => {
            writeln!(out, "MISSING: {missing}")?;
            Ok(ExitCode::from(CHECK_FAILED))
        }
    }
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

/// Equal refusals of a minute, in the form of an entry.
fn counted_line(refusals: &Refusals) -> String {
    let at = clock::rfc3339_millis(clock::at_us(refusals.last_us));
    let kind = EntryKind::Refused.name();
    let operation = &refusals.operation;
    let detail = json!({
        "count": refusals.count,
        "first": clock::rfc3339_millis(clock::at_us(refusals.first_us)),
        "reason": refusals.reason,
    });
    format!(
        "{0:>6}  {at}  {0:>6}  {kind:<9}  {operation:<19}  {detail}",
        "-"
    )
}
