//! Certificates that are ordered and renewed by ACME (RFC 8555), for listeners with `domains`.
//!
//! In: the listeners' configurations, and the stored certificates. Out: a file for each set of
//! domains, which `http::certificates` reads like any other. [`Renewal`] takes the steps that
//! `schedule`, which has no I/O, decides. `order` speaks the protocol through `client`, `storage`
//! stores in the `folder` and with the fleet, `challenge` has the answers to challenges, `failure`
//! describes errors, `window` requests the authority's renewal times, and `http` serves port 80. At
//! most one order is under way among the processes that share a folder, or the instances of a
//! fleet.

mod challenge;
mod client;
mod failure;
mod folder;
mod http;
mod order;
mod schedule;
mod storage;
mod window;

pub use self::http::ChallengeServer;
use crate::config::{AcmeConfig, TlsConfig};
use crate::fetch::Roots;
use crate::fleet::Fleet;
use crate::http::certificates::{Certificates, OrderStatus};
use crate::http::tls::Identity;
use crate::io::clock::{self, since_1970};
use crate::secrets::SecretError;
use crate::secrets::certificates::CertificatesError;
use crate::telemetry::{Metrics, OrderOutcome};
use async_trait::async_trait;
use challenge::Answers;
use client::Client;
use failure::Failure;
use folder::{Progress, Receipt};
use futures_util::FutureExt as _;
use instant_acme::CertificateIdentifier;
use order::{Issued, Ordering};
use parking_lot::Mutex;
use pingora::server::ShutdownWatch;
use pingora::services::background::BackgroundService;
use portcullis_filters::certificate::{Own, Unfit};
use ring::rand::{SecureRandom as _, SystemRandom};
use schedule::{Chance, Class, Facts, LastIssue, Step};
use sha2::{Digest as _, Sha256};
use std::collections::{BTreeMap, HashMap};
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};
use storage::{Storage, StorageError};
use thiserror::Error;
use window::Windows;

/// Seconds between two checks of all certificates: the clock may be set, and another process that
/// shares the folder may have renewed.
const INTERVAL: u64 = 30;
/// Seconds to wait while another process orders.
const OTHER_PROCESS: u64 = 5;

/// Why an attempt failed whose panic is in the log.
const DEFECT: &str = "a defect of the program ended the attempt, see the log";
/// Why a certificate that came in time is no success.
const DUE_AGAIN: &str = "the certificate is due for renewal although it is new: the authority's \
                         clock or this one is wrong, or its renewal information";

/// A file of `[tls.acme]` that cannot be used.
#[derive(Debug, Error)]
pub enum AcmeFileError {
    /// The certificates that verify the directory.
    #[error("{0}")]
    Roots(#[from] CertificatesError),
    /// The key of the external account.
    #[error("{0}")]
    ExternalAccount(#[from] SecretError),
}

impl AcmeFileError {
    /// The configuration key that names the file.
    pub(crate) fn key(&self) -> &'static str {
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
    windows: Mutex<Windows>,
    /// Earliest next attempt by file, in memory in case the folder cannot be written.
    delays: Mutex<HashMap<PathBuf, u64>>,
}

/// The stored state of a set of domains.
struct Stored {
    /// The certificate, if it can be read.
    held: Option<Identity>,
    progress: Progress,
    last: Option<LastIssue>,
}

impl Stored {
    /// The certificate's digest in the form of [`Progress::renews`]; empty without one.
    fn digest(&self) -> String {
        self.held
            .as_ref()
            .map_or_else(String::new, |held| hex::encode(digest(held)))
    }

    /// Why the certificate may not be used; `None` without one.
    fn unfit(&self) -> Option<Unfit> {
        self.held.as_ref()?.judge(now()).err()
    }

    fn is_over(&self) -> bool {
        self.progress.is_over(&self.digest())
    }

    /// The progress of the renewal that is due next.
    fn progress(&self) -> Progress {
        self.progress.of(self.digest())
    }
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
            windows: Mutex::default(),
            delays: Mutex::default(),
        }
    }

    async fn run(&self) {
        self.storage.connected().await;
        let mut reloads = self.certificates.reloads();
        let mut is_asked = false;
        loop {
            let mut next = now().saturating_add(INTERVAL);
            let mut failed = 0;
            for ordered in self.ordered() {
                if is_asked {
                    self.forget_delay(&ordered).await;
                }
                let stepped = AssertUnwindSafe(self.step(&ordered)).catch_unwind().await;
                let (again, attempts) = match stepped {
                    Ok(stepped) => stepped,
                    Err(_) => self.panicked(&ordered).await,
                };
                next = next.min(again);
                failed = failed.max(attempts);
            }
            self.metrics.acme.failed_attempts(failed);
            let pause = Duration::from_secs(next.saturating_sub(now()).max(1));
            is_asked = tokio::time::timeout(pause, reloads.changed()).await.is_ok();
        }
    }

    /// A panic of a step is a failed attempt, so that it ends no later ones.
    async fn panicked(&self, ordered: &Ordered) -> (u64, u32) {
        self.certificates.challenges.clear();
        let stored = Stored {
            held: Identity::read_ordered(&ordered.tls).ok(),
            progress: Progress::read(&ordered.file),
            last: None,
        };
        let mut progress = stored.progress();
        self.failed(ordered, &mut progress, Failure::new(DEFECT));
        self.store(ordered, &progress).await;
        (now(), progress.failed)
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
                Err(failure) => log::warn!("challenges of another instance: {}", failure.cause),
            }
            known = answers;
        }
    }

    /// Permits an attempt at once after a reload: the operator may have fixed the cause.
    async fn forget_delay(&self, ordered: &Ordered) {
        self.delays.lock().remove(&ordered.file);
        // while another process has the lock, an attempt is under way
        if let Ok(Some(_lock)) = self.storage.lock().await {
            let stored = self.look(ordered).await;
            let progress = stored.progress();
            // a good certificate that is due again and again is not ordered once for each reload
            if (stored.held.is_none() || stored.unfit().is_some())
                && let Some(mut receipt) = self.storage.receipt(&ordered.file).await
            {
                receipt.last.early = 0;
                self.store_receipt(ordered, &receipt).await;
            }
            self.store(
                ordered,
                &Progress {
                    retry_at: None,
                    ..progress
                },
            )
            .await;
        }
    }

    /// Removes the progress of an earlier renewal, unless an order is under way.
    async fn clear(&self, ordered: &Ordered) {
        if let Ok(Some(_lock)) = self.storage.lock().await
            // another process may have begun one before this one had the lock
            && self.look(ordered).await.is_over()
        {
            self.store(ordered, &Progress::default()).await;
        }
    }

    async fn store(&self, ordered: &Ordered, progress: &Progress) {
        if let Err(error) = self.storage.store_progress(&ordered.file, progress).await {
            log::warn!("{error}");
        }
    }

    async fn store_receipt(&self, ordered: &Ordered, receipt: &Receipt) {
        if let Err(error) = self.storage.store_receipt(&ordered.file, receipt).await {
            log::warn!("{error}");
        }
    }

    /// The stored certificate, if it is good.
    fn own(&self, ordered: &Ordered) -> Option<Own> {
        let held = Identity::read_ordered(&ordered.tls).ok()?;
        held.judge(now()).ok()?;
        let window = window::identifier(held.certificate()).and_then(|certificate| {
            let windows = self.windows.lock();
            windows.known(&ordered.file, &certificate, now()).flatten()
        });
        Some(Own {
            validity: held.validity(),
            is_due: is_due(&held, window),
        })
    }

    /// Takes a certificate that another instance has renewed; returns the stored state.
    async fn look(&self, ordered: &Ordered) -> Stored {
        let look = async {
            let ours = self.own(ordered);
            self.storage.exchange(&ordered.tls, ours, now()).await?;
            self.storage.progress(&ordered.file).await
        };
        let found: Result<_, StorageError> = look.await;
        self.certificates.read_again(&ordered.file);
        let progress = found.unwrap_or_else(|error| {
            log::debug!("{error}");
            Progress::read(&ordered.file)
        });
        Stored {
            held: Identity::read_ordered(&ordered.tls).ok(),
            progress,
            last: self
                .storage
                .receipt(&ordered.file)
                .await
                .map(|receipt| receipt.last),
        }
    }

    /// Takes the step that is due for one certificate; returns the time of the next check and the
    /// number of failed attempts.
    async fn step(&self, ordered: &Ordered) -> (u64, u32) {
        let stored = self.look(ordered).await;
        let mut progress = stored.progress();
        match self.decide(ordered, &stored).await {
            Step::Keep(until) => {
                // otherwise an instance with an earlier window may be renewing this certificate
                if stored.is_over() {
                    self.clear(ordered).await;
                }
                self.report(ordered, &Progress::default(), until);
                (until, 0)
            }
            Step::Retry(at) => {
                if !progress.cause.is_empty() {
                    self.report(ordered, &progress, at);
                }
                (at, progress.failed)
            }
            Step::Rest(at) => {
                progress.failed = progress.failed.max(1);
                if progress.cause.is_empty() {
                    progress.cause = DUE_AGAIN.to_owned();
                }
                self.report(ordered, &progress, at);
                (at, progress.failed)
            }
            Step::Order => match self.storage.lock().await {
                Ok(Some(_lock)) => {
                    // another process may have renewed before this one had the lock
                    let stored = self.look(ordered).await;
                    let failed = match self.decide(ordered, &stored).await {
                        Step::Order => self.attempt(ordered, &stored).await,
                        _ => stored.progress().failed,
                    };
                    (now(), failed)
                }
                Ok(None) => (now().saturating_add(OTHER_PROCESS), progress.failed),
                Err(error) => {
                    // not stored: without the lock, it may be the progress of another process
                    self.failed(ordered, &mut progress, error.into());
                    (now().saturating_add(INTERVAL), progress.failed)
                }
            },
        }
    }

    async fn decide(&self, ordered: &Ordered, stored: &Stored) -> Step {
        // an unfit one is due, whatever its authority says
        let held = match &stored.held {
            Some(held) if stored.unfit().is_none() => Some(held),
            _ => None,
        };
        let window = match held {
            Some(held) => self.window(ordered, held).await,
            None => None,
        };
        let facts = Facts {
            held: held.map(Identity::validity),
            window,
            retry_at: stored
                .progress()
                .retry_at
                .max(self.delays.lock().get(&ordered.file).copied()),
            last: match stored.progress().order {
                Some(_) => None,
                None => stored.last,
            },
            chance: held.map_or(Chance(0), chance_of),
        };
        schedule::next(&facts, now())
    }
}

impl Renewal {
    /// The authority's window for renewing this certificate, if it suggests one.
    async fn window(&self, ordered: &Ordered, held: &Identity) -> Option<schedule::Window> {
        let certificate = window::identifier(held.certificate())?;
        if let Some(known) = self
            .windows
            .lock()
            .known(&ordered.file, &certificate, now())
        {
            return known;
        }
        // the first order creates the account
        let answer = match self.storage.has_account().await {
            true => match self.ordering(ordered, None).account().await {
                Ok(account) => window::ask(&account, &certificate).await,
                Err(_) => None,
            },
            false => None,
        };
        self.windows
            .lock()
            .learn(&ordered.file, certificate, answer, now())
    }

    fn ordering<'a>(
        &'a self,
        Ordered { file, tls }: &'a Ordered,
        replaces: Option<CertificateIdentifier<'static>>,
    ) -> Ordering<'a> {
        Ordering {
            config: &self.config,
            storage: &self.storage,
            client: &self.client,
            challenges: &self.certificates.challenges,
            domains: &tls.domains,
            file,
            replaces,
        }
    }

    /// Orders once and stores the result; returns the number of failed attempts.
    async fn attempt(&self, ordered: &Ordered, stored: &Stored) -> u32 {
        let mut progress = stored.progress();
        let replaces = stored.held.as_ref().and_then(|held| {
            let certificate = window::identifier(held.certificate())?;
            let known = self
                .windows
                .lock()
                .known(&ordered.file, &certificate, now());
            // only an authority with renewal information understands this
            known.flatten().map(|_| certificate)
        });
        let words = "it is being ordered".to_owned();
        self.certificates.report(
            &ordered.file,
            OrderStatus {
                words,
                has_failed: false,
            },
        );
        let ordering = self.ordering(ordered, replaces);
        let mut issued = ordering.run(&mut progress).await;
        if issued
            .as_ref()
            .is_err_and(|failure| failure.is_unknown_account)
            && self.storage.forget_account().await.is_ok()
        {
            log::warn!("the authority does not know the ACME account: another one is created");
            issued = ordering.run(&mut progress).await;
        }
        let installed = match issued {
            Ok(issued) => self.install(ordered, &mut progress, &issued).await,
            Err(failure) => Err(failure),
        };
        match installed {
            Ok(()) => 0,
            Err(failure) => {
                self.failed(ordered, &mut progress, failure);
                self.store(ordered, &progress).await;
                progress.failed
            }
        }
    }

    /// Replaces the last certificate, first on the disk, then for new handshakes.
    async fn install(
        &self,
        ordered: &Ordered,
        progress: &mut Progress,
        Issued { order, key, chain }: &Issued,
    ) -> Result<(), Failure> {
        let Ordered { file, tls } = ordered;
        // downloaded again, it would be no better
        let begun = progress.order.take();
        let issued = Identity::of_ordered(key, chain, tls).map_err(|why| {
            Failure::refused(&format!(
                "the certificate that was issued is unusable: {why}"
            ))
        })?;
        self.note(ordered, order, &issued).await;
        issued
            .judge(now())
            .map_err(|unfit| Failure::refused(&format!("a certificate was issued, but {unfit}")))?;
        if let Err(error) = self.storage.store_certificate(file, key, chain).await {
            progress.order = begun;
            return Err(error.into());
        }
        // its authority may want it renewed later
        if is_due(&issued, None) && is_due(&issued, self.window(ordered, &issued).await) {
            *progress = Progress {
                renews: hex::encode(digest(&issued)),
                failed: progress.failed,
                ..Progress::default()
            };
            self.certificates.read_again(file);
            return Err(Failure::refused(DUE_AGAIN));
        }
        // not earlier: after a crash before this, the same certificate is downloaded again
        self.store(ordered, &Progress::default()).await;
        self.certificates.read_again(file);
        self.metrics.acme.ordered(OrderOutcome::Issued);
        log::info!(domain = tls.domains[0], expires = issued.end(); "certificate issued");
        Ok(())
    }

    /// Remembers that a certificate was issued, once for each order.
    async fn note(&self, ordered: &Ordered, order: &str, issued: &Identity) {
        let before = self.storage.receipt(&ordered.file).await;
        if before.as_ref().is_some_and(|before| before.order == order) {
            return;
        }
        let validity = issued.validity();
        let lifetime = validity.not_after.saturating_sub(validity.not_before);
        let receipt = Receipt {
            order: order.to_owned(),
            last: LastIssue::then(before.map(|before| before.last), lifetime, now()),
        };
        self.store_receipt(ordered, &receipt).await;
    }

    /// Counts and reports an attempt that failed, and sets the time of the next one.
    fn failed(&self, ordered: &Ordered, progress: &mut Progress, failure: Failure) {
        let domain = &ordered.tls.domains[0];
        self.metrics.acme.ordered(match failure.class {
            Class::Refused => OrderOutcome::Refused,
            Class::Unreachable => OrderOutcome::Failed,
        });
        progress.failed = progress.failed.saturating_add(1);
        let Failure {
            class,
            cause,
            retry_after,
            ..
        } = failure;
        let at = schedule::retry_at(now(), progress.failed, class, retry_after, drawn());
        let attempt = progress.failed;
        let next = shown(at);
        log::warn!(domain = domain, attempt = attempt, next = next, cause = cause; "not issued");
        progress.retry_at = Some(at);
        progress.cause = cause;
        self.delays.lock().insert(ordered.file.clone(), at);
        self.report(ordered, progress, at);
    }

    /// Reports the time of the next attempt, and why the last one failed.
    fn report(&self, ordered: &Ordered, progress: &Progress, next: u64) {
        let status = match &*progress.cause {
            "" => OrderStatus::default(),
            cause => {
                let attempt = progress.failed + 1;
                let words = format!("{cause}; attempt {attempt} is at {}", shown(next));
                OrderStatus {
                    words,
                    has_failed: true,
                }
            }
        };
        self.certificates.report(&ordered.file, status);
    }
}

/// Whether a certificate is due for renewal.
fn is_due(held: &Identity, window: Option<schedule::Window>) -> bool {
    let facts = Facts {
        held: Some(held.validity()),
        window,
        retry_at: None,
        last: None,
        chance: chance_of(held),
    };
    schedule::due(&facts) <= now()
}

fn now() -> u64 {
    since_1970(SystemTime::now()).as_secs()
}

fn shown(at: u64) -> String {
    clock::rfc3339_of(i64::try_from(at.min(clock::LAST_SECOND)).unwrap_or_default())
}

/// The chance of a certificate: differs between certificates, and survives restarts.
fn chance_of(held: &Identity) -> Chance {
    Chance(
        digest(held)
            .iter()
            .take(4)
            .fold(0, |all, byte| all << 8 | u32::from(*byte)),
    )
}

fn digest(held: &Identity) -> [u8; 32] {
    Sha256::digest(held.certificate()).into()
}

/// Draws the chance for a delay. It is 0 if no random bytes are available; then all instances retry
/// at once.
fn drawn() -> Chance {
    let mut bytes = [0; 4];
    let _ = SystemRandom::new().fill(&mut bytes);
    Chance(u32::from_be_bytes(bytes))
}
