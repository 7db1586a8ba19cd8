//! Certificates that are ordered and renewed by ACME (RFC 8555), for listeners with `domains`.
//!
//! In: the listeners' configurations, and the stored certificates. Out: a file for each set of
//! domains, which `http::certificates` reads like any other. `filters::acme` decides; [`Renewal`]
//! has its actions performed by `round`, which speaks the protocol in `order` through `client`, and
//! stores by `storage` in the `folder` and with the fleet. `challenge` has the answers to
//! challenges, `failure` describes errors, `window` requests the authority's renewal times, and
//! `http` serves port 80. At most one order is under way among the processes that share a folder,
//! or the instances of a fleet.

mod challenge;
mod client;
mod failure;
mod folder;
mod http;
mod order;
mod round;
mod storage;
mod window;

pub use self::http::ChallengeServer;
use async_trait::async_trait;
use challenge::Answers;
use client::Client;
use futures_util::FutureExt as _;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use portcullis_base::config::{AcmeConfig, TlsConfig};
use portcullis_base::fetch::Roots;
use portcullis_base::io::clock::{self, since_1970};
use portcullis_base::secrets::SecretError;
use portcullis_base::secrets::certificates::CertificatesError;
use portcullis_base::secrets::chance::drawn;
use portcullis_base::telemetry::{Metrics, OrderOutcome};
use portcullis_edge::fleet::Fleet;
use portcullis_edge::http::certificates::{Certificates, OrderStatus};
use portcullis_filters::acme::{
    Action, Class, Ended, Event, Failure, Renewal as Decisions, Report, Rest,
};
use round::Round;
use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use storage::Storage;
use thiserror::Error;

/// Seconds between two checks of all certificates: the clock may be set, and another process that
/// shares the folder may have renewed.
const INTERVAL: u64 = 30;

/// A message that others can write to the folder of certificates; `None` if they cannot.
pub fn folder_exposure(config: &AcmeConfig) -> Option<String> {
    folder::Folder::new(config).exposure()
}

/// Why an attempt failed whose panic is in the log.
const DEFECT: &str = "a defect of the program ended the attempt, see the log";
/// A file of `[tls.acme]` that cannot be used.
#[derive(Debug, Error)]
pub enum AcmeFileError {
    /// The certificates that verify the directory are unusable.
    #[error("{0}")]
    Roots(#[from] CertificatesError),
    /// The key of the external account is unusable.
    #[error("{0}")]
    ExternalAccount(#[from] SecretError),
}

impl AcmeFileError {
    /// The configuration key that names the file.
    pub fn key(&self) -> &'static str {
        match self {
            Self::Roots(_) => "tls.acme.ca_file",
            Self::ExternalAccount(_) => "tls.acme.eab_key_file",
        }
    }
}

/// Loads the root certificates that verify the authority.
///
/// # Errors
/// A file of `[tls.acme]` cannot be used. The key of an external account is checked, too.
pub fn load(config: &AcmeConfig) -> Result<Roots, AcmeFileError> {
    if let Some(file) = &config.eab_key_file {
        order::external_account_key(file)?;
    }
    Ok(config
        .ca_file
        .as_deref()
        .map(Roots::read)
        .transpose()?
        .unwrap_or_default())
}

/// Orders and renews the certificates.
pub struct Renewal {
    config: AcmeConfig,
    storage: Storage,
    client: Client,
    certificates: Certificates,
    metrics: Arc<Metrics>,
}

/// A set of domains, and the file of their certificate.
struct Ordered {
    file: PathBuf,
    tls: TlsConfig,
}

#[async_trait]
impl BackgroundService for Renewal {
    async fn start(&self, mut shutdown: ShutdownWatch) {
        tokio::select! {
            _ = shutdown.changed() => {}
            () = self.run() => {}
            () = self.answer_for_others(), if self.storage.is_shared() => {}
        }
    }
}

impl Renewal {
    /// Orders for `certificates`, and shares the results with the instances of a fleet.
    pub fn new(
        config: &AcmeConfig,
        roots: Roots,
        certificates: Certificates,
        metrics: Arc<Metrics>,
        fleet: Option<Arc<Fleet>>,
    ) -> Self {
        Self {
            storage: Storage::new(config, fleet),
            config: config.clone(),
            client: Client::new(roots),
            certificates,
            metrics,
        }
    }

    async fn run(&self) {
        self.storage.connected().await;
        let mut reloads = self.certificates.reloads();
        let mut known: HashMap<PathBuf, Decisions> = HashMap::new();
        loop {
            let mut next = now().saturating_add(INTERVAL);
            let mut failed = 0;
            let all = self.ordered();
            known.retain(|file, _| all.iter().any(|ordered| ordered.file == *file));
            for ordered in &all {
                let decisions = known
                    .entry(ordered.file.clone())
                    .or_insert_with(|| self.decisions(ordered));
                let rest = self.round(ordered, decisions).await;
                next = next.min(rest.until);
                failed = failed.max(rest.failed);
            }
            self.metrics.acme.failed_attempts(failed);
            let pause = Duration::from_secs(next.saturating_sub(now()).max(1));
            if tokio::time::timeout(pause, reloads.changed()).await.is_ok() {
                known.values_mut().for_each(Decisions::hurry);
            }
        }
    }

    fn decisions(&self, ordered: &Ordered) -> Decisions {
        let decisions = Decisions::new(ordered.tls.domains.clone());
        match self.config.http_address {
            Some(_) => decisions.with_http(),
            None => decisions,
        }
    }

    /// Takes all steps that are due for one certificate.
    async fn round(&self, ordered: &Ordered, decisions: &mut Decisions) -> Rest {
        let (storage, certificates) = (&self.storage, &self.certificates);
        let mut round = Round::new(ordered, storage, certificates, &self.config, &self.client);
        let mut event = Event::Begin;
        loop {
            let action = match decisions.step(event, now(), drawn()) {
                Action::Rest(rest) => {
                    self.show(ordered, &rest, round.end());
                    return *rest;
                }
                action => action,
            };
            let performed = AssertUnwindSafe(round.perform(action)).catch_unwind().await;
            // a panic is a failed attempt, so that it ends no later ones
            event = performed.unwrap_or_else(|_| {
                self.certificates.challenges.clear();
                Event::Failed(Failure::new(DEFECT))
            });
        }
    }

    /// Returns each set of domains once, even if several listeners have it.
    fn ordered(&self) -> Vec<Ordered> {
        let all = self.certificates.ordered().into_iter();
        let by_file: BTreeMap<_, _> = all
            .map(|(_, tls)| (tls.certificate_file.clone(), tls))
            .collect();
        by_file
            .into_iter()
            .map(|(file, tls)| Ordered { file, tls })
            .collect()
    }

    /// Answers the challenges of other instances' orders: the authority may connect to any
    /// instance.
    async fn answer_for_others(&self) {
        let mut known = Answers::default();
        loop {
            tokio::time::sleep(storage::LOOK).await;
            if self.certificates.ordered().is_empty() {
                continue;
            }
            let Some(answers) = self.storage.announced().await.filter(|new| *new != known) else {
                continue;
            };
            match answers.pending() {
                Ok(_) if answers == Answers::default() => self.certificates.challenges.clear(),
                Ok(pending) => self.certificates.challenges.set(pending),
                Err(error) => log::warn!("challenges of another instance: {error}"),
            }
            known = answers;
        }
    }

    /// Counts, logs and reports how a round ended.
    fn show(&self, ordered: &Ordered, rest: &Rest, end: Option<String>) {
        let domain = &ordered.tls.domains[0];
        let status = match &rest.report {
            Some(Report::Failing { cause, attempt, at }) => Some(OrderStatus {
                words: format!("{cause}; attempt {attempt} is at {}", shown(*at)),
                has_failed: true,
            }),
            Some(Report::Fine) => Some(OrderStatus::default()),
            None => None,
        };
        match (rest.ended, &rest.report) {
            (Some(Ended::Issued), _) => {
                self.metrics.acme.ordered(OrderOutcome::Issued);
                log::info!(domain = domain, expires = end.unwrap_or_default();
                    "certificate issued");
            }
            (
                Some(Ended::Failed {
                    class,
                    is_abandoned,
                }),
                Some(Report::Failing { cause, at, .. }),
            ) => {
                self.metrics.acme.ordered(match class {
                    Class::Refused => OrderOutcome::Refused,
                    Class::Unreachable => OrderOutcome::Failed,
                });
                if is_abandoned {
                    log::info!(domain = domain; "ACME order abandoned");
                }
                let (attempt, next) = (rest.failed, shown(*at));
                log::warn!(domain = domain, attempt = attempt, next = next, cause = cause;
                    "not issued");
            }
            _ => {}
        }
        if let Some(status) = status {
            self.certificates.report(&ordered.file, status);
        }
    }
}

fn now() -> u64 {
    since_1970(SystemTime::now()).as_secs()
}

fn shown(at: u64) -> String {
    clock::rfc3339_of(i64::try_from(at.min(clock::LAST_SECOND)).unwrap_or_default())
}
