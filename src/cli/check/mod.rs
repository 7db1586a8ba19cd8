//! `portcullis check`: reports everything that a start would refuse, in one run.
//!
//! Reads the configuration, the secrets and the certificates, opens the store without changing it,
//! pings the fleet's store, and binds each address for a moment. With `--live` it also requests
//! version and chain id from each URL of the node, through the policy and the client that serve
//! requests, tries every method that the program uses, compares the chains of the URLs, proves the
//! relay's pins, finds poolers and standbys of PostgreSQL, and checks the ACME authority. A start
//! needs none of that.

mod acme;
mod api;
mod folders;
mod live;
mod report;

use super::ConfigArgument;
use clap::builder::{PossibleValuesParser, TypedValueParser};
use portcullis_base::config::{
    Config, Draft, Errors, FleetConfig, Listen, LoadError, SidecarConfig, StoreConfig,
};
use portcullis_base::secrets::Secret;
use portcullis_edge::fleet::{self, FleetError};
use portcullis_edge::sidecar::{ROBOTS_KEY, seo_robots};
use portcullis_program::command::{Failure, Outcome, block_on};
use portcullis_program::process::listen;
use portcullis_program::process::loaded::{Loaded, StartSecrets};
use portcullis_program::process::port_owner::PortOwner;
use portcullis_store::{Examined, Store, Tables};
use report::{Finding, Format, Kind, Report, Status};
use std::io;
use std::time::{Duration, SystemTime};

#[derive(Debug, clap::Args)]
#[command(after_help = "\
Examples:
  # before a start or a reload
  portcullis check --config portcullis.toml
  # and is this the right node and the right chain?
  portcullis check --live
  # for a program: one JSON object
  portcullis check --format json > report.json

Exit codes:
  0   no mistakes; there may be notes
  1   mistakes, all of them reported
  2   usage
  70  internal error")]
pub(super) struct Arguments {
    #[command(flatten)]
    file: ConfigArgument,
    /// Also request version and chain id from each URL of the node, and prove the relay's pins.
    #[arg(long)]
    live: bool,
    /// Format of the report.
    #[arg(long, default_value = "text", value_parser = format())]
    format: Format,
}

fn format() -> impl TypedValueParser<Value = Format> {
    PossibleValuesParser::new(["text", "json"]).map(|name| match &*name {
        "json" => Format::Json,
        _ => Format::Text,
    })
}

pub(super) fn run(arguments: &Arguments) -> Outcome {
    let path = arguments.file.path()?;
    let report = Report::new(path.display().to_string(), arguments);
    match Draft::load(&path, std::env::vars_os()) {
        Ok(draft) => {
            let checked = block_on(check(&draft, arguments, report));
            checked.map_err(|error| Failure::internal(format_args!("portcullis check: {error}")))?
        }
        Err(error) => unreadable(error, report),
    }
    .finish()
}

fn unreadable(error: LoadError, mut report: Report) -> Report {
    match error {
        LoadError::Invalid { errors, .. } => mistakes(&errors, &mut report),
        error => report.add(Finding::failed(Kind::Configuration, "", error.to_string())),
    }
    report
}

fn mistakes(errors: &Errors, report: &mut Report) {
    for error in errors.iter() {
        report.add(Finding::of_key(Status::Failed, error));
    }
}

async fn check(draft: &Draft, arguments: &Arguments, mut report: Report) -> Report {
    let Draft {
        config,
        mistakes: found,
        ..
    } = draft;
    match found {
        Ok(()) => report.add(Finding::ok(
            Kind::Configuration,
            "configuration",
            "no mistakes",
        )),
        Err(errors) => mistakes(errors, &mut report),
    }
    for warning in &config.warnings {
        report.add(Finding::of_key(Status::Note, warning));
    }
    // skip the file of a wrong key: the operator meant another file
    let is_wrong = |key: &str| found.as_ref().is_err_and(|errors| errors.names(key));
    let loaded = files(config, is_wrong, &mut report);
    for (key, listen) in config.listeners() {
        if !is_wrong(key) {
            report.add(listener(key, listen));
        }
    }
    if let Some(config) = config.store.as_ref().filter(|_| !is_wrong("store.url")) {
        let password = match &loaded {
            Some((_, secrets)) => Some(secrets.store_password.as_ref()),
            // SQLite has no password
            None => config.is_for_one().then_some(None),
        };
        if let Some(password) = password {
            examine_store(&draft.config, password, arguments, &mut report).await;
        }
    }
    let credentials = loaded
        .as_ref()
        .and_then(|(_, secrets)| secrets.fleet.as_ref());
    if let Some((config, credentials)) = config.fleet.as_ref().zip(credentials)
        && !is_wrong("fleet.url")
    {
        // a start serves without it
        let away = if arguments.live {
            Status::Failed
        } else {
            Status::Note
        };
        report.add(fleet(config, fleet::ping(config, credentials).await, away));
    }
    acme::check(config, &mut report);
    folders::check(config, &mut report);
    if arguments.live && found.is_ok() {
        let roots = loaded
            .as_ref()
            .and_then(|(_, secrets)| secrets.acme.clone());
        acme::check_live(config, roots.unwrap_or_default(), &mut report).await;
        let relay = loaded.and_then(|(loaded, secrets)| loaded.relay.zip(secrets.keys));
        live::check(config, relay, &mut report).await;
    }
    report
}

/// Examines the store and, with `--live`, its server.
async fn examine_store(
    config: &Config,
    password: Option<&Secret>,
    arguments: &Arguments,
    report: &mut Report,
) {
    let Some(own) = &config.store else { return };
    let examined = Store::examine(own, password).await;
    let is_current = matches!(&examined, Ok(found) if found.tables == Tables::UpToDate);
    report.add(store(own, examined));
    if is_current && let Some(sidecar) = &config.sidecar {
        robots(sidecar, Store::open_to_read(own, password).await, report).await;
    }
    if arguments.live && !own.is_for_one() {
        // the relay holds session locks; the sidecar only needs a pooler with prepared statements
        let pooled = if config.relay.is_some() {
            Status::Failed
        } else {
            Status::Note
        };
        live::store(own, password, pooled, report).await;
    }
}

/// Reads secrets and certificates.
fn files(
    config: &Config,
    is_wrong: impl Fn(&str) -> bool,
    report: &mut Report,
) -> Option<(Loaded, StartSecrets)> {
    match Loaded::load_all(config) {
        Ok((loaded, secrets)) => {
            let message = "every secret and certificate can be used";
            report.add(Finding::ok(Kind::File, "files", message));
            for warning in loaded.identities.warnings(SystemTime::now()) {
                let (key, message) = warning.split_once(": ").unwrap_or(("", &warning));
                report.add(Finding::new(Kind::File, key, Status::Note, message));
            }
            Some((loaded, secrets))
        }
        Err(errors) => {
            for error in errors.0.into_iter().filter(|error| !is_wrong(&error.key)) {
                report.add(Finding::failed(Kind::File, &error.key, error.message));
            }
            None
        }
    }
}

/// Reports rules for crawlers that forbid pages of the sitemap. A store that fails meanwhile has a
/// finding of its own.
async fn robots(
    config: &SidecarConfig,
    opened: Result<Store, portcullis_store::StoreError>,
    report: &mut Report,
) {
    let Ok(store) = opened else { return };
    let found = seo_robots::conflicts(store.sitemap(), &config.live).await;
    for warning in found.into_iter().flatten() {
        report.add(Finding::new(
            Kind::Configuration,
            ROBOTS_KEY,
            Status::Note,
            warning,
        ));
    }
    store.close_connections().await;
}

/// Whether a start could bind the address. If the running service has it, that is only a note: it
/// is free once the service stops, and a reload or a handover does not bind it again.
fn listener(key: &str, listen: &Listen) -> Finding {
    let Err(error) = listen::check(listen) else {
        return Finding::ok(Kind::Listener, key, format!("{listen} is free"));
    };
    let owner = PortOwner::of(listen).filter(|_| error.kind() == io::ErrorKind::AddrInUse);
    if let Some(owner) = owner.filter(PortOwner::is_the_service) {
        let message = format!("{listen} is in use by {owner}: it is free once that stops");
        return Finding::new(Kind::Listener, key, Status::Note, message);
    }
    Finding::failed(Kind::Listener, key, listen::refusal(key, listen, &error))
}

/// Reports whether the fleet's store can be used, with the status `away` if it cannot.
fn fleet(
    config: &FleetConfig,
    pinged: Result<(Duration, usize), FleetError>,
    away: Status,
) -> Finding {
    const KEY: &str = "fleet.url";
    let url = &config.url;
    match pinged {
        Ok((took, 1)) => Finding::ok(Kind::Store, KEY, format!("{url} answers ({took:.0?})")),
        Ok((took, servers)) => {
            let message = format!("{url}: all {servers} servers of a cluster answer ({took:.0?})");
            Finding::ok(Kind::Store, KEY, message)
        }
        Err(error) => {
            let message = format!("{url}: {error}: a start serves as fleet.when_down says");
            Finding::new(Kind::Store, KEY, away, message)
        }
    }
}

/// PgBouncer's error for a connection like ours.
const POOLER: &str = "unsupported startup parameter";
const BEHIND_POOLER: &str = "; a pooler such as PgBouncer: connect to PostgreSQL itself";

fn store(
    config: &StoreConfig,
    examined: Result<Examined, portcullis_store::StoreError>,
) -> Finding {
    const KEY: &str = "store.url";
    let url = &config.url;
    let examined = match examined {
        Ok(examined) => examined,
        Err(error) => {
            let remedy = if error.to_string().contains(POOLER) {
                BEHIND_POOLER
            } else {
                ""
            };
            let message = format!("cannot open the store: {url}: {error}{remedy}");
            return Finding::failed(Kind::Store, KEY, message);
        }
    };
    let message = match examined.tables {
        Tables::None => format!("{url} has no tables yet: a start creates them"),
        Tables::UpToDate => format!("{url} has the tables of this version"),
        Tables::Older => format!("{url} has older tables: a start migrates them"),
    };
    match examined.in_use {
        Some(lock) => {
            let lock = lock.display();
            let message = format!("{message}; a running process holds {lock}");
            Finding::new(Kind::Store, KEY, Status::Note, message)
        }
        None if examined.tables == Tables::Older => {
            Finding::new(Kind::Store, KEY, Status::Note, message)
        }
        None => Finding::ok(Kind::Store, KEY, message),
    }
}
