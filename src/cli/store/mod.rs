//! `portcullis store`: the tables, and what is in them, from the command line.
//!
//! All of it works beside a running server. `import` and `export` speak lines of JSON
//! (`conf/store/README.md` has every type); `prune` says what it forgot.

mod arguments;
mod import;

pub(super) use arguments::{HELP, StoreCommand};

use super::{CHECK_FAILED, ConfigArgument, INTERNAL, USAGE};
use crate::config::{self, Config, LoadError};
use crate::secrets::{self, Secret, SecretError};
use crate::store::{
    AGE_EVENTS_KEPT, ExportError, Forget, ImportError, Store, StoreConfig, StoreError,
};
use arguments::{ExportArguments, PruneArguments};
use std::io::{self, BufWriter, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// A day more than the webhook looks back, since clocks differ.
const MARGIN: Duration = Duration::from_secs(24 * 3_600);

pub(super) fn run(command: &StoreCommand) -> ExitCode {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let done = runtime.map_err(Failed::Out).and_then(|runtime| runtime.block_on(answer(command)));
    match done {
        Ok(()) => ExitCode::SUCCESS,
        // whoever reads it has seen enough
        Err(Failed::Out(error)) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(failed) => {
            eprintln!("portcullis store: {failed}");
            ExitCode::from(failed.code())
        }
    }
}

/// Why it was not done.
enum Failed {
    Config(LoadError),
    NoStore,
    Secret(SecretError),
    /// This file can not be read.
    File(PathBuf, io::Error),
    Import(PathBuf, ImportError),
    Store(StoreError),
    Out(io::Error),
}

impl Failed {
    fn code(&self) -> u8 {
        match self {
            Self::Config(_) | Self::NoStore | Self::Secret(_) | Self::File(..) => USAGE,
            Self::Import(_, ImportError::Refused(..)) => CHECK_FAILED,
            Self::Import(..) | Self::Store(_) | Self::Out(_) => INTERNAL,
        }
    }
}

impl std::fmt::Display for Failed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::NoStore => f.write_str("the configuration has nothing that uses a store"),
            Self::Secret(error) => error.fmt(f),
            Self::File(file, error) => write!(f, "{}: {error}", file.display()),
            Self::Import(file, error) => write!(f, "{}:\n{error}", file.display()),
            Self::Store(error @ StoreError::Version) => {
                write!(f, "{error}: run `portcullis store migrate`, unless a newer one made them")
            }
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

impl From<ExportError> for Failed {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::Store(error) => Self::Store(error),
            ExportError::Out(error) => Self::Out(error),
        }
    }
}

async fn answer(command: &StoreCommand) -> Result<(), Failed> {
    match command {
        StoreCommand::Migrate(file) => {
            let config = load(file)?;
            let (config, password) = place(&config)?;
            // alone: whoever has the store open expects the tables that are there
            let store = Store::open(&StoreConfig::new(config, password.as_ref())).await?;
            store.close().await;
            writeln!(io::stdout(), "the tables are up to date")?;
            Ok(())
        }
        StoreCommand::Import(arguments) => {
            let files = import::open(&arguments.content)?;
            let config = load(&arguments.file)?;
            let sidecar = config.sidecar.as_ref().map(|sidecar| &*sidecar.base_url);
            let base_url = arguments.base_url.as_deref().or(sidecar);
            let store = open(&config).await?;
            let done = import::run(&store, files, base_url).await;
            store.close().await;
            done
        }
        StoreCommand::Export(arguments) => {
            let store = open(&load(&arguments.file)?).await?;
            let done = export(&store, arguments).await;
            store.close().await;
            done
        }
        StoreCommand::Prune(arguments) => {
            let store = open(&load(&arguments.file)?).await?;
            let done = prune(&store, arguments).await;
            store.close().await;
            done
        }
    }
}

fn load(file: &ConfigArgument) -> Result<Config, Failed> {
    Config::load(&file.config, std::env::vars_os()).map_err(Failed::Config)
}

/// Where the configured store is, and the password to it.
fn place(config: &Config) -> Result<(&config::StoreConfig, Option<Secret>), Failed> {
    let config = config.store.as_ref().ok_or(Failed::NoStore)?;
    let password = secrets::read_optional(config.password_file.as_deref());
    Ok((config, password.map_err(Failed::Secret)?))
}

/// Opens the configured store, beside whoever uses it.
async fn open(config: &Config) -> Result<Store, Failed> {
    let (config, password) = place(config)?;
    Ok(Store::open_beside(&StoreConfig::new(config, password.as_ref())).await?)
}

async fn export(store: &Store, arguments: &ExportArguments) -> Result<(), Failed> {
    let mut out = BufWriter::new(io::stdout().lock());
    store.export(arguments.only.as_deref(), &mut out).await?;
    out.flush()?;
    Ok(())
}

async fn prune(store: &Store, arguments: &PruneArguments) -> Result<(), Failed> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // what is older than 1970 is not there
    let before = |age| i64::try_from(now.saturating_sub(age).as_micros()).unwrap_or(i64::MAX);
    let forgotten = store
        .forget(&Forget {
            keys_us: before(arguments.keys_older_than),
            suggestions_us: before(arguments.suggestions_older_than),
            age_sessions_us: before(arguments.age_sessions_older_than),
            age_events_us: before(AGE_EVENTS_KEPT.saturating_add(MARGIN)),
            feed_items_us: arguments.feed_items_older_than.map(before),
        })
        .await?;
    let mut out = io::stdout().lock();
    for (what, rows) in [
        ("idempotency keys", forgotten.keys),
        ("suggestions", forgotten.suggestions),
        ("age sessions", forgotten.age_sessions),
        ("age events", forgotten.age_events),
        ("feed items", forgotten.feed_items),
    ] {
        writeln!(out, "{what:<16} {rows:>9} forgotten")?;
    }
    Ok(())
}
