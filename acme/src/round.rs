//! Performs the actions of one round for one certificate, and decides nothing.
//!
//! In: an action that the filters decided. Out: its event. The right to order, the order and what
//! was downloaded end with the round.

use super::Ordered;
use super::client::Client;
use super::failure::clean;
use super::folder;
use super::order::{Answering, Session};
use super::storage::{Lock as StorageLock, Other, Storage, StorageError};
use super::window;
use portcullis_base::config::AcmeConfig;
use portcullis_edge::http::certificates::{Certificates, OrderStatus};
use portcullis_edge::http::tls::Identity;
use portcullis_filters::acme::schedule::Window;
use portcullis_filters::acme::{Action, Certificate, Event, Failure, Lock, Seen};
use portcullis_filters::chance::Chance;
use sha2::{Digest as _, Sha256};

/// One check of a certificate, from reading the stored state to the next due time.
pub(super) struct Round<'a> {
    ordered: &'a Ordered,
    storage: &'a Storage,
    certificates: &'a Certificates,
    session: Session<'a>,
    lock: Option<StorageLock>,
    /// The fleet's certificate with its key, in PEM.
    theirs: Option<String>,
    issued: Option<Issued>,
}

/// A certificate that was downloaded, with its key, both in PEM.
struct Issued {
    key: String,
    chain: String,
    identity: Identity,
}

impl<'a> Round<'a> {
    pub(super) fn new(
        ordered: &'a Ordered,
        storage: &'a Storage,
        certificates: &'a Certificates,
        config: &'a AcmeConfig,
        client: &'a Client,
    ) -> Self {
        Self {
            ordered,
            storage,
            certificates,
            session: Session {
                config,
                storage,
                client,
                challenges: &certificates.challenges,
                domains: &ordered.tls.domains,
                account: None,
                order: None,
                begun: None,
                answering: None::<Answering<'a>>,
            },
            lock: None,
            theirs: None,
            issued: None,
        }
    }

    /// When the certificate that was downloaded ends, as a date.
    pub(super) fn end(&self) -> Option<String> {
        Some(self.issued.as_ref()?.identity.end())
    }

    /// Performs an action.
    pub(super) async fn perform(&mut self, action: Action) -> Event {
        self.act(action).await.unwrap_or_else(Event::Failed)
    }

    async fn act(&mut self, action: Action) -> Result<Event, Failure> {
        if !matches!(action, Action::Prove(_) | Action::Poll(_)) {
            self.session.withdraw().await;
        }
        let file = &self.ordered.file;
        let storage = self.storage;
        match action {
            Action::Look => Ok(Event::Seen(Box::new(self.look().await))),
            Action::Take => {
                storage.take(file, self.theirs.as_deref().unwrap_or_default())?;
                let domain = &self.ordered.tls.domains[0];
                log::info!(domain = domain; "certificate of another instance taken");
                Ok(Event::Done)
            }
            Action::Share => done(storage.share(file).await),
            Action::AskWindow => Ok(Event::Window(self.window().await)),
            Action::Lock => Ok(self.lock().await?),
            Action::Store(progress) => noted(storage.store_progress(file, &progress).await),
            Action::StoreReceipt(receipt) => noted(storage.store_receipt(file, &receipt).await),
            Action::OpenAccount => {
                self.report_order();
                self.session.open().await
            }
            Action::ForgetAccount => {
                storage.forget_account().await?;
                log::warn!("the authority does not know the ACME account: another one is created");
                Ok(Event::Done)
            }
            Action::Resume(begun) => self.session.resume(begun).await,
            Action::Place => self.session.place(None).await,
            Action::PlaceReplacing => self.place_replacing().await,
            Action::Authorize => self.session.authorize().await,
            Action::Prove(challenge) => self.session.prove(challenge).await,
            Action::Poll(delay) => self.session.poll(delay).await,
            Action::Finalize => self.session.finalize().await,
            Action::FindCauses => self.session.causes().await,
            Action::Download => self.download().await,
            Action::Install => self.install().await,
            Action::Rest(_) => Ok(Event::Begin),
        }
    }

    async fn place_replacing(&mut self) -> Result<Event, Failure> {
        let held = Identity::read_ordered(&self.ordered.tls).ok();
        let replaces = held.and_then(|held| window::identifier(held.certificate()));
        self.session.place(replaces).await
    }

    fn report_order(&self) {
        let status = OrderStatus {
            words: "it is being ordered".to_owned(),
            has_failed: false,
        };
        self.certificates.report(&self.ordered.file, status);
    }

    async fn look(&mut self) -> Seen {
        let Ordered { file, tls } = self.ordered;
        // a certificate that another process of this folder has renewed
        self.certificates.read_again(file);
        let other = self.storage.other(file).await;
        let progress = match &other {
            Ok(_) => self.storage.progress(file).await,
            Err(_) => Ok(folder::progress(file)),
        };
        let progress = progress.unwrap_or_else(|error| {
            log::debug!("{error}");
            folder::progress(file)
        });
        let (differs, theirs) = match other {
            Ok(Other::Differs(theirs)) => (true, theirs),
            Ok(Other::Same) => (false, None),
            Err(error) => {
                log::debug!("{error}");
                (false, None)
            }
        };
        let identity = theirs.as_ref();
        let identity = identity.and_then(|text| Identity::of_ordered(text, text, tls).ok());
        self.theirs = theirs;
        Seen {
            ours: Identity::read_ordered(tls).ok().map(|held| facts(&held)),
            theirs: identity.map(|identity| facts(&identity)),
            differs,
            progress,
            receipt: self.storage.receipt(file).await,
            has_account: self.storage.has_account().await,
        }
    }

    async fn window(&self) -> Option<(Window, u64)> {
        let certificate = match &self.issued {
            Some(issued) => issued.identity.certificate().clone(),
            None => Identity::read_ordered(&self.ordered.tls)
                .ok()?
                .certificate()
                .clone(),
        };
        let certificate = window::identifier(&certificate)?;
        let account = self.session.account().await.ok()?;
        window::ask(&account, &certificate).await
    }

    async fn lock(&mut self) -> Result<Event, StorageError> {
        self.lock = self.storage.lock().await?;
        Ok(Event::Lock(match self.lock {
            Some(_) => Lock::Held,
            None => Lock::Other,
        }))
    }

    async fn download(&mut self) -> Result<Event, Failure> {
        let chain = self.session.download().await?;
        let begun = self.session.begun.as_ref();
        let key = begun.map(|begun| begun.key.clone()).unwrap_or_default();
        let identity = match Identity::of_ordered(&key, &chain, &self.ordered.tls) {
            Ok(identity) => identity,
            Err(why) => return Ok(Event::Issued(Err(clean(&why)))),
        };
        let certificate = facts(&identity);
        self.issued = Some(Issued {
            key,
            chain,
            identity,
        });
        Ok(Event::Issued(Ok(Box::new(certificate))))
    }

    /// Replaces the last certificate, first on the disk, then for new handshakes.
    async fn install(&self) -> Result<Event, Failure> {
        let file = &self.ordered.file;
        if let Some(Issued { key, chain, .. }) = &self.issued {
            self.storage.store_certificate(file, key, chain).await?;
            self.certificates.read_again(file);
        }
        Ok(Event::Done)
    }
}

fn done(result: Result<(), StorageError>) -> Result<Event, Failure> {
    Ok(result.map(|()| Event::Done)?)
}

fn noted(result: Result<(), StorageError>) -> Result<Event, Failure> {
    if let Err(error) = &result {
        log::warn!("{error}");
    }
    done(result)
}

fn facts(identity: &Identity) -> Certificate {
    let digest: [u8; 32] = Sha256::digest(identity.certificate()).into();
    Certificate {
        names: identity.names(),
        validity: identity.validity(),
        chain_bytes: identity.chain_bytes(),
        digest: hex::encode(digest),
        // differs between certificates, and survives restarts
        chance: Chance::from_bytes([digest[0], digest[1], digest[2], digest[3]]),
        id: window::identifier(identity.certificate()).map(|id| id.to_string()),
    }
}
