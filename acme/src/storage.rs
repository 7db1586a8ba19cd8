//! Stores certificates, orders and the account: in the folder, and in a fleet also in its store.
//!
//! The folder of an instance always has its certificates, so it starts without the store. In a
//! fleet the store decides which instance orders, how far the order is and which certificate is the
//! newest; the folder has copies, in case the store loses everything. Writes go to the store first,
//! so that another instance can continue when this one dies.

use super::challenge::Answers;
use super::folder::{self, Folder, FolderLock};
use portcullis_base::config::AcmeConfig;
use portcullis_edge::fleet::{Fleet, FleetError};
use portcullis_filters::acme::{Failure, Progress, Receipt};
use serde::de::{DeserializeOwned, IgnoredAny};
use serde::{Deserialize, Serialize};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use thiserror::Error;
use tokio::runtime::Handle;
use tokio::task::JoinHandle;
use tokio::time::sleep;

/// Interval at which an instance polls for the challenges of others.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// Time within which every instance that can reach the store has polled.
const ANNOUNCED: Duration = Duration::from_millis(2_500);
/// Expiry of announced answers, in case the instance dies. An order takes less.
const CHALLENGES: Duration = Duration::from_secs(600);
/// Expiry of the lock, in case the instance that orders dies.
const LOCK_LIFE: Duration = Duration::from_secs(30);
const EXTEND_EVERY: Duration = Duration::from_secs(10);

/// Time between two checks, at the start, whether the fleet's store answers.
const CONNECTING: Duration = Duration::from_millis(20);

const ORDERING: &str = "acme: the instance that orders";
const ANSWERS: &str = "acme: answers to challenges";

/// The folder cannot be written, or the fleet's store cannot be used.
#[derive(Debug, Error)]
pub(super) enum StorageError {
    #[error("tls.acme.folder cannot be written: {0}")]
    Folder(#[from] io::Error),
    #[error("the fleet's store is unavailable: {0}")]
    Fleet(#[from] FleetError),
}

impl From<StorageError> for Failure {
    fn from(error: StorageError) -> Self {
        Self::new(&error.to_string())
    }
}

/// Certificates, orders and the account.
pub(super) struct Storage {
    folder: Folder,
    account: PathBuf,
    fleet: Option<Arc<Fleet>>,
}

/// The fleet's certificate, compared with the one here.
pub(super) enum Other {
    /// It is the same, or there is no fleet.
    Same,
    /// It is another one; `None` if it is missing or no text.
    Differs(Option<String>),
}

/// The right to order, released on drop.
pub(super) enum Lock {
    Folder(#[expect(dead_code, reason = "it is held until it is dropped")] FolderLock),
    Fleet(#[expect(dead_code, reason = "it is held until it is dropped")] FleetLock),
}

/// The right to order in a fleet, extended every [`EXTEND_EVERY`] until it is dropped.
pub(super) struct FleetLock {
    fleet: Arc<Fleet>,
    holding: JoinHandle<()>,
}

impl FleetLock {
    fn new(fleet: &Arc<Fleet>) -> Self {
        let holder = Arc::clone(fleet);
        let holding = tokio::spawn(async move {
            loop {
                sleep(EXTEND_EVERY).await;
                // after a failure, the next attempt may still be in time
                let _held = holder.lock(ORDERING, LOCK_LIFE).await;
            }
        });
        Self {
            fleet: Arc::clone(fleet),
            holding,
        }
    }
}

impl Drop for FleetLock {
    fn drop(&mut self) {
        self.holding.abort();
        let fleet = Arc::clone(&self.fleet);
        // without a runtime or an answer, the lock expires
        if let Ok(runtime) = Handle::try_current() {
            runtime.spawn(async move { fleet.unlock(ORDERING).await });
        }
    }
}

impl Storage {
    pub(super) fn new(config: &AcmeConfig, fleet: Option<Arc<Fleet>>) -> Self {
        Self {
            folder: Folder::new(config),
            account: config.account_file(),
            fleet,
        }
    }

    /// Acquires the right to order; `None` while another process holds it.
    pub(super) async fn lock(&self) -> Result<Option<Lock>, StorageError> {
        match &self.fleet {
            None => Ok(self.folder.lock()?.map(Lock::Folder)),
            Some(fleet) => {
                self.folder.create()?;
                let is_held = fleet.lock(ORDERING, LOCK_LIFE).await?;
                Ok(is_held.then(|| Lock::Fleet(FleetLock::new(fleet))))
            }
        }
    }

    /// The account; `None` before the first order.
    pub(super) async fn account<T>(&self) -> Result<Option<T>, StorageError>
    where
        T: DeserializeOwned,
    {
        let shared = self.shared("account", &self.account).await?;
        Ok(shared.or_else(|| folder::read(&self.account)))
    }

    /// Whether there is an account.
    pub(super) async fn has_account(&self) -> bool {
        matches!(self.account::<IgnoredAny>().await, Ok(Some(_)))
    }

    /// Stores the account.
    pub(super) async fn store_account(&self, account: &impl Serialize) -> Result<(), StorageError> {
        let shared = self.set_value("account", &self.account, account).await;
        folder::write(&self.account, account)?;
        shared
    }

    /// Removes the account, which the authority no longer knows.
    pub(super) async fn forget_account(&self) -> Result<(), StorageError> {
        folder::remove(&self.account)?;
        self.remove_value("account", &self.account).await
    }

    /// The progress of the certificate in this file.
    pub(super) async fn progress(&self, certificate: &Path) -> Result<Progress, StorageError> {
        let shared = self.shared("order", certificate).await?;
        Ok(shared.unwrap_or_else(|| folder::progress(certificate)))
    }

    /// Stores the progress of the certificate in this file.
    pub(super) async fn store_progress(
        &self,
        certificate: &Path,
        progress: &Progress,
    ) -> Result<(), StorageError> {
        let shared = match progress.is_empty() {
            true => self.remove_value("order", certificate).await,
            false => self.set_value("order", certificate, progress).await,
        };
        folder::store_progress(certificate, progress)?;
        shared
    }

    /// The record of the last certificate that was issued for this file.
    pub(super) async fn receipt(&self, certificate: &Path) -> Option<Receipt> {
        // without an answer of the fleet's store there is no order either
        let shared = self.shared("last", certificate).await.ok().flatten();
        shared.or_else(|| folder::read(&folder::receipt(certificate)))
    }

    /// Stores what is known of the last certificate.
    pub(super) async fn store_receipt(
        &self,
        certificate: &Path,
        receipt: &Receipt,
    ) -> Result<(), StorageError> {
        let shared = self.set_value("last", certificate, receipt).await;
        folder::write(&folder::receipt(certificate), receipt)?;
        shared
    }

    /// Stores a certificate with its key, both in PEM. If the fleet's store does not answer,
    /// [`Self::share`] shares it later.
    pub(super) async fn store_certificate(
        &self,
        file: &Path,
        key: &str,
        chain: &str,
    ) -> Result<(), StorageError> {
        let text = format!("{key}\n{chain}");
        if let Err(error) = self.set_text("certificate", file, text.as_bytes()).await {
            log::warn!("the certificate is shared later: {error}");
        }
        Ok(folder::write_text(file, text.as_bytes())?)
    }

    /// The fleet's content for this file, if it is another one than the file's.
    pub(super) async fn other(&self, file: &Path) -> Result<Other, StorageError> {
        let Some(fleet) = &self.fleet else {
            return Ok(Other::Same);
        };
        let shared = fleet.value(&name("certificate", file)).await?;
        if shared.is_some() && shared == folder::read_text(file).ok() {
            return Ok(Other::Same);
        }
        let text = shared.and_then(|text| String::from_utf8(text).ok());
        Ok(Other::Differs(text))
    }

    /// Writes the fleet's content to the file.
    pub(super) fn take(&self, file: &Path, text: &str) -> Result<(), StorageError> {
        self.folder.create()?;
        Ok(folder::write_text(file, text.as_bytes())?)
    }

    /// Shares the content of the file with the fleet.
    pub(super) async fn share(&self, file: &Path) -> Result<(), StorageError> {
        self.set_text("certificate", file, &folder::read_text(file)?)
            .await
    }

    /// Lets all instances answer these challenges, and returns when they do.
    pub(super) async fn announce(&self, answers: &Answers) -> Result<(), StorageError> {
        let Some(fleet) = self
            .fleet
            .as_ref()
            .filter(|_| *answers != Answers::default())
        else {
            return Ok(());
        };
        let answers = serde_json::to_vec(answers).map_err(io::Error::from)?;
        fleet.set_value(ANSWERS, &answers, Some(CHALLENGES)).await?;
        sleep(ANNOUNCED).await;
        Ok(())
    }

    /// Withdraws the challenges that [`Self::announce`] shared with the fleet.
    pub(super) async fn withdraw(&self) {
        if let Some(fleet) = &self.fleet {
            // without an answer, they expire
            let _withdrawn = fleet.remove_value(ANSWERS).await;
        }
    }

    /// The answers that an instance has announced; `None` if they cannot be read.
    pub(super) async fn announced(&self) -> Option<Answers> {
        match self.fleet.as_ref()?.value(ANSWERS).await.ok()? {
            Some(answers) => serde_json::from_slice(&answers).ok(),
            None => Some(Answers::default()),
        }
    }

    /// Returns once it is known whether the fleet's store answers.
    pub(super) async fn connected(&self) {
        while self
            .fleet
            .as_ref()
            .is_some_and(|fleet| fleet.is_connecting())
        {
            sleep(CONNECTING).await;
        }
    }

    pub(super) fn is_shared(&self) -> bool {
        self.fleet.is_some()
    }

    async fn shared<T>(&self, what: &str, file: &Path) -> Result<Option<T>, StorageError>
    where
        T: for<'de> Deserialize<'de>,
    {
        let Some(fleet) = &self.fleet else {
            return Ok(None);
        };
        let value = fleet.value(&name(what, file)).await?;
        Ok(value.and_then(|value| serde_json::from_slice(&value).ok()))
    }

    async fn set_value(
        &self,
        what: &str,
        file: &Path,
        value: &impl Serialize,
    ) -> Result<(), StorageError> {
        self.set_text(
            what,
            file,
            &serde_json::to_vec(value).map_err(io::Error::from)?,
        )
        .await
    }

    async fn set_text(&self, what: &str, file: &Path, text: &[u8]) -> Result<(), StorageError> {
        let Some(fleet) = &self.fleet else {
            return Ok(());
        };
        Ok(fleet.set_value(&name(what, file), text, None).await?)
    }

    async fn remove_value(&self, what: &str, file: &Path) -> Result<(), StorageError> {
        let Some(fleet) = &self.fleet else {
            return Ok(());
        };
        Ok(fleet.remove_value(&name(what, file)).await?)
    }
}

/// The name of a shared value, with that of the file, which is unique per authority and domains.
fn name(what: &str, file: &Path) -> String {
    let file = file.file_name().unwrap_or_default();
    format!("acme: {what} {}", file.to_string_lossy())
}
