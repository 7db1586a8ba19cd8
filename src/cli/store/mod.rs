//! `portcullis store`: migrate the tables; import, export and prune their content; forget a user;
//! back everything up.
//!
//! All commands except `migrate` work next to a running server. `import` and `export` use lines of
//! JSON (`conf/store/README.md` documents every type).

mod arguments;
mod backup;
mod import;

pub(super) use arguments::Arguments;

use arguments::{ExportArguments, ForgetArguments, NOT_EXPORTED, PruneArguments, StoreCommand};
use portcullis_base::config::{Config, LoadError, StoreConfig};
use portcullis_base::io::clock::now_us;
use portcullis_base::secrets::{self, Secret, SecretError};
use portcullis_program::command::{
    CHECK_FAILED, Failure, INTERNAL, Outcome, USAGE, block_on, output, written,
};
use portcullis_program::process::signals::StopSignals;
use portcullis_store::{
    AGE_EVENTS_KEPT, Chore, ChoreLock, ExportError, Exported, ImportError, ImportRules, Retention,
    Store, StoreError,
};
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;
use thiserror::Error;

/// Pruning waits 1 day longer than the webhook accepts an event, as clocks differ.
const MARGIN: Duration = Duration::from_secs(24 * 3_600);

pub(super) fn run(arguments: &Arguments) -> Outcome {
    match block_on(execute(arguments)).map_err(Failed::Out).flatten() {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Failed::Out(error)) => written("store", Err(error)),
        Err(failed) => Err(Failure(
            failed.code(),
            format!("portcullis store: {failed}"),
        )),
    }
}

/// Why a command failed.
#[derive(Debug, Error)]
enum Failed {
    #[error("{0}")]
    Config(#[from] LoadError),
    #[error("the configuration has no [store]")]
    NoStore,
    #[error("{0}")]
    Secret(#[from] SecretError),
    #[error("{0}: {1}")]
    File(PathBuf, io::Error),
    #[error("PostgreSQL has its own tool for backups, also while the server runs:\n  {0}")]
    Postgres(String),
    #[error("{0}:\n{1}")]
    Import(PathBuf, ImportError),
    #[error(
        "the rows are erased, but a process that reads the store keeps them in SQLite's log \
         (-wal): repeat the command when that has ended"
    )]
    InLog,
    #[error(
        "{} rows are left out, as they hold a value that no record can have: correct them, and \
         export again:\n  {}",
        .0.malformed,
        .0.rows.join("\n  ")
    )]
    LeftOut(Exported),
    #[error("{0}{hint}", hint = hint(.0))]
    Store(#[from] StoreError),
    #[error("{0}")]
    Out(#[from] io::Error),
}

impl Failed {
    fn code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::NoStore | Self::Secret(_) => USAGE,
            Self::File(..) | Self::Postgres(_) => USAGE,
            Self::Import(_, ImportError::Refused(..)) | Self::InLog | Self::LeftOut(_) => {
                CHECK_FAILED
            }
            Self::Import(..) | Self::Store(_) | Self::Out(_) => INTERNAL,
        }
    }
}

fn hint(error: &StoreError) -> &'static str {
    match error {
        StoreError::Version { found, known } if found < known => ": run `portcullis store migrate`",
        StoreError::Version { .. } => {
            ": run that version, or restore the backup that was made before its migration"
        }
        _ => "",
    }
}

impl From<ExportError> for Failed {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Store(error) => Self::Store(error),
            ExportError::Out(error) => Self::Out(error),
        }
    }
}

async fn execute(Arguments { file, command }: &Arguments) -> Result<(), Failed> {
    match command {
        StoreCommand::Migrate => {
            let config = file.load()?;
            let (config, password) = location(&config)?;
            // exclusive, as a process that has the store open expects the old tables
            Store::open(config, password.as_ref()).await?.close().await;
            Ok(writeln!(io::stdout(), "the tables are up to date")?)
        }
        StoreCommand::Import(arguments) => {
            let files = import::open(&arguments.content)?;
            let config = file.load()?;
            let sidecar = config
                .sidecar
                .as_ref()
                .map(|sidecar| &*sidecar.live.base_url);
            let base_url = arguments.base_url.as_deref().or(sidecar);
            let rules = ImportRules {
                base_url,
                now_us: now_us(),
            };
            with_store(&config, async |store| {
                import::run(store, files, rules).await
            })
            .await
        }
        StoreCommand::Export(arguments) => {
            let config = file.load()?;
            with_store(&config, async |store| export(store, arguments).await).await
        }
        StoreCommand::Backup(arguments) => {
            let config = file.load()?;
            let store = config.store.as_ref().ok_or(Failed::NoStore)?;
            backup::run(store, &arguments.to).await
        }
        StoreCommand::Prune(arguments) => {
            let config = file.load()?;
            prune_until_stopped(&config, arguments).await
        }
        StoreCommand::Forget(arguments) => {
            let config = file.load()?;
            with_store(&config, async |store| forget(store, arguments).await).await
        }
    }
}

/// Where the configured store is, and its password.
fn location(config: &Config) -> Result<(&StoreConfig, Option<Secret>), Failed> {
    let config = config.store.as_ref().ok_or(Failed::NoStore)?;
    let password = secrets::read_optional("store.password_file", config.password_file.as_deref());
    Ok((config, password?))
}

/// Runs `work` on the configured store, which other processes may have open, and closes it.
async fn with_store(
    config: &Config,
    work: impl AsyncFnOnce(&Store) -> Result<(), Failed>,
) -> Result<(), Failed> {
    let (config, password) = location(config)?;
    let store = Store::open_shared(config, password.as_ref()).await?;
    let done = work(&store).await;
    store.close().await;
    done
}

async fn export(store: &Store, arguments: &ExportArguments) -> Result<(), Failed> {
    let mut out = BufWriter::new(io::stdout().lock());
    let exported = store
        .content()
        .export(arguments.only.as_deref(), &mut out)
        .await?;
    out.flush()?;
    if arguments.only.is_none() {
        output::notice(format_args!("portcullis store: {NOT_EXPORTED}"));
    }
    if exported.malformed > 0 {
        return Err(Failed::LeftOut(exported));
    }
    Ok(())
}

/// Prunes once or, with `--every`, repeatedly. A failure of the store ends the command, so that its
/// supervisor notices.
async fn prune_until_stopped(config: &Config, arguments: &PruneArguments) -> Result<(), Failed> {
    let prune = || with_store(config, async |store| prune(store, arguments).await);
    let Some(interval) = arguments.every else {
        return prune().await;
    };
    let mut signals = StopSignals::install()?;
    loop {
        tokio::select! {
            pruned = prune() => pruned?,
            () = signals.wait() => return Ok(()),
        }
        tokio::select! {
            () = tokio::time::sleep(interval) => {}
            () = signals.wait() => return Ok(()),
        }
    }
}

async fn prune(store: &Store, arguments: &PruneArguments) -> Result<(), Failed> {
    let mut chore = ChoreLock::of(Chore::Pruning);
    if !chore.try_acquire(store).await? {
        output::notice("portcullis store: another process prunes this store: nothing was done");
        return Ok(());
    }
    let pruned = store
        .prune_by(&Retention {
            keys: arguments.keys_older_than,
            refusals: arguments.refusals_older_than,
            suggestions: arguments.suggestions_older_than,
            age_sessions: arguments.age_sessions_older_than,
            age_events: AGE_EVENTS_KEPT.saturating_add(MARGIN),
            feed_items: arguments.feed_items_older_than,
        })
        .await?;
    report([
        ("idempotency keys", pruned.keys),
        ("refusals", pruned.refusals),
        ("suggestions", pruned.suggestions),
        ("age sessions", pruned.age_sessions),
        ("age events", pruned.age_events),
        ("feed items", pruned.feed_items),
    ])
}

async fn forget(store: &Store, arguments: &ForgetArguments) -> Result<(), Failed> {
    let forgotten = store.forget(&arguments.user).await?;
    report([
        ("age_event", forgotten.age_event),
        ("age_session", forgotten.age_session),
        ("age_user", forgotten.age_user),
        ("follow", forgotten.follow),
        ("suggestion", forgotten.suggestion),
    ])?;
    if forgotten.is_in_log {
        Err(Failed::InLog)
    } else {
        Ok(())
    }
}

/// Prints how many rows were deleted.
fn report<const TABLES: usize>(deleted: [(&str, u64); TABLES]) -> Result<(), Failed> {
    let mut out = io::stdout().lock();
    for (what, rows) in deleted {
        writeln!(out, "{what:<16} {rows:>9} deleted")?;
    }
    Ok(())
}
