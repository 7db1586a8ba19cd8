//! `portcullis journal`: the relay's intents and their outcomes.
//!
//! Only reads, and works while a relay runs. `list` and `show` are for people, `export` is one JSON
//! object per line, `verify` recomputes the chains of hashes, and compares them with an archive.

use super::archive::Archive;
use super::filter::FilterArguments;
use super::{ConfigArgument, STORE_CODES};
use clap::Subcommand;
use portcullis_base::io::clock;
use portcullis_base::secrets;
use portcullis_program::command::{CHECK_FAILED, Failure, INTERNAL, Outcome, block_on, written};
use portcullis_store::{
    Chain, Entry, EntryFilter, EntryKind, IntentId, Journal, Refused, Store, StoreError, Verified,
};
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

Refusals are apart from the writes, with numbers of their own: --state refused.

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
  # what was refused in the last hour: equal refusals of a minute are one line
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
    /// Recompute the chains of hashes: exit code 1 when an entry was changed or is missing.
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
  portcullis journal export --after 1234 >> journal.ndjson
  # the refusals, except those of the last minute, which may still count more
  portcullis journal export --state refused > refused.ndjson
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

/// Prints the newest entries that the filter selects, oldest first.
async fn list(
    journal: &Journal,
    filter: &EntryFilter,
    last: u32,
    out: &mut impl io::Write,
) -> Result<(), Failed> {
    if filter.kind != Some(EntryKind::Refused) {
        for entry in journal.newest_matching(filter, last).await? {
            writeln!(out, "{}", line(&entry))?;
        }
        return Ok(());
    }
    let mut found: Vec<Refused> = Vec::new();
    while let Some(missing) = last.checked_sub(found.len() as u32).filter(|&n| n > 0) {
        let before = found.last().map_or(i64::MAX, |row| row.seq);
        let page = journal.refusals(filter, before, missing).await?;
        if page.is_empty() {
            break;
        }
        found.extend(page);
    }
    for row in found.iter().rev() {
        writeln!(out, "{}", refused_line(row))?;
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
    if filter.kind != Some(EntryKind::Refused) {
        return Ok(());
    }
    let mut after = filter.after;
    loop {
        let page = journal.refused(filter, after).await?;
        let Some(last) = page.last() else {
            return Ok(());
        };
        after = last.seq;
        for entry in &page {
            writeln!(out, "{}", entry.to_json())?;
        }
    }
}

/// Verifies both chains, and that they contain the archive.
async fn verify(
    journal: &Journal,
    mut archive: Archive,
    out: &mut impl io::Write,
) -> Result<ExitCode, Failed> {
    let writes = journal.verify_each(Chain::Writes, |entry| archive.find(&entry.hash));
    let whole = report(&writes.await?, ["entries", "entry"], out)?;
    let refusals = journal.verify_each(Chain::Refusals, |entry| archive.find(&entry.hash));
    let whole = report(&refusals.await?, ["entries of refusals", "refusal"], out)? && whole;
    if !whole {
        return Ok(ExitCode::from(CHECK_FAILED));
    }
    match archive.compared(&journal.pruned_refusals().await?) {
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

/// Prints the result for a chain, and returns whether it is whole.
fn report(
    verified: &Verified,
    [entries, entry]: [&str; 2],
    out: &mut impl io::Write,
) -> Result<bool, Failed> {
    match verified {
        Verified::Whole {
            entries: count,
            head,
        } => {
            writeln!(
                out,
                "{count} {entries}, all unchanged; the last hash is {head}"
            )?;
            Ok(true)
        }
        Verified::Broken { seq, why } => {
            writeln!(out, "BROKEN at {entry} {seq}: {why}")?;
            Ok(false)
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

fn refused_line(row: &Refused) -> String {
    let at = clock::rfc3339_millis(clock::at_us(row.last_us));
    let kind = EntryKind::Refused.name();
    let (seq, operation, detail) = (row.seq, &row.operation, &row.detail);
    format!(
        "{seq:>6}  {at}  {:>6}  {kind:<9}  {operation:<19}  {detail}",
        "-"
    )
}
