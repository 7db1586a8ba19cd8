//! `portcullis journal`: what the relay intended, and what came of it.
//!
//! Reads only, also while a relay runs. `list` and `show` are for people, `export` is one JSON
//! object per line, `verify` recomputes the chain of hashes.

use super::{CHECK_FAILED, INTERNAL, JournalArguments, JournalCommand, USAGE};
use crate::config::Config;
use crate::secrets;
use crate::store::{Entry, IntentId, Journal, PAGE, Store, StoreConfig, StoreError, Verified};
use std::io::{self, Write as _};
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

pub(super) fn run(arguments: &JournalArguments) -> ExitCode {
    let config = match Config::load(&arguments.file.config, std::env::vars_os()) {
        Ok(config) => config,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(USAGE);
        }
    };
    let (Some(_), Some(store)) = (&config.relay, &config.store) else {
        eprintln!("the configuration has no [relay]");
        return ExitCode::from(USAGE);
    };
    let password = match secrets::read_optional(store.password_file.as_deref()) {
        Ok(password) => password,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(USAGE);
        }
    };
    let store = StoreConfig::new(store, password.as_ref());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(Failed::Out).and_then(|runtime| {
        runtime.block_on(async {
            let journal = Store::open_read_only(&store).await?;
            let done = answer(&journal, &arguments.command).await;
            journal.close().await;
            done
        })
    });
    match done {
        Ok(code) => code,
        // whoever reads it has seen enough
        Err(Failed::Out(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("portcullis journal: {error}");
            ExitCode::from(INTERNAL)
        }
    }
}

enum Failed {
    Store(StoreError),
    Out(io::Error),
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Out(error) => error.fmt(f),
        }
    }
}

impl From<StoreError> for Failed {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<io::Error> for Failed {
    fn from(error: io::Error) -> Self {
        Self::Out(error)
    }
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
            let Some(intent) = journal.intent(id).await? else {
                eprintln!("portcullis journal: there is no intent {id}");
                return Ok(ExitCode::from(CHECK_FAILED));
            };
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
                    "{entries} entries, each as it was written; the last hash is {head}"
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
    let at = Duration::from_micros(u64::try_from(entry.at_us).unwrap_or_default());
    let at = humantime::format_rfc3339_millis(SystemTime::UNIX_EPOCH + at);
    let intent = entry.intent.map_or_else(|| "-".to_owned(), |id| id.to_string());
    let (seq, kind, operation, detail) =
        (entry.seq, entry.kind.name(), &entry.operation, &entry.detail);
    format!("{seq:>6}  {at}  {intent:>6}  {kind:<9}  {operation:<19}  {detail}")
}
