//! One order at an authority, from its account to the certificate: RFC 8555, section 7.4.
//!
//! In: the domains, and what an earlier attempt stored. Out: a certificate with its key, or a
//! [`Failure`]. A begun order is finished rather than repeated: its URL and its key are stored
//! before it is validated.

use super::challenge::Answers;
use super::client::Client;
use super::failure::{self, Failure};
use super::folder::{Begun, Progress};
use super::schedule::{self, Stuck};
use super::storage::Storage;
use crate::config::AcmeConfig;
use crate::http::challenges::Challenges;
use crate::io::clock::since_1970;
use crate::secrets;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeStatus,
    ChallengeType, Error, ExternalAccountKey, Identifier, NewAccount, NewOrder, Order, OrderStatus,
    RetryPolicy,
};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Time for an authority to validate or to sign; after it, the next attempt continues the order.
const PATIENCE: RetryPolicy = RetryPolicy::new()
    .initial_delay(Duration::from_millis(250))
    .timeout(Duration::from_secs(120));

/// An order for a certificate.
pub(super) struct Ordering<'a> {
    pub(super) config: &'a AcmeConfig,
    pub(super) storage: &'a Storage,
    pub(super) client: &'a Client,
    pub(super) challenges: &'a Challenges,
    pub(super) domains: &'a [String],
    /// The file of the certificate.
    pub(super) file: &'a Path,
    /// The certificate that this one replaces, for an authority with renewal information.
    pub(super) replaces: Option<CertificateIdentifier<'static>>,
}

/// A certificate with its key, both in PEM.
pub(super) struct Issued {
    /// The URL of its order.
    pub(super) order: String,
    pub(super) key: String,
    pub(super) chain: String,
}

/// An order after an attempt that failed.
enum Kept {
    /// The authority did not show it.
    Unseen,
    Seen {
        status: String,
        is_final: bool,
        /// In seconds since 1970.
        expires: Option<u64>,
    },
}

/// Answers challenges until it is dropped.
struct Answering<'a>(&'a Challenges);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

impl Ordering<'_> {
    /// Takes all remaining steps.
    pub(super) async fn run(&self, progress: &mut Progress) -> Result<Issued, Failure> {
        let account = self.account().await?;
        let before = progress.order.clone();
        let (mut order, begun) = match self.open(&account, progress).await {
            Ok(opened) => opened,
            Err(failure) => {
                self.keep_or_abandon(progress, before, Kept::Unseen).await?;
                return Err(failure);
            }
        };
        let expires = self.client.order_expires();
        let finished = self.finish(&mut order, &begun, progress.failed).await;
        if let Err(failure) = &finished {
            let status = order.state().status;
            let kept = Kept::Seen {
                status: format!("{status:?}"),
                // an invalid order cannot be continued; a refused proof has made it invalid
                is_final: status == OrderStatus::Invalid
                    || failure.is_final && status != OrderStatus::Pending,
                expires,
            };
            self.keep_or_abandon(progress, before, kept).await?;
        }
        finished
    }

    /// Keeps the order for the next attempt, or forgets it.
    async fn keep_or_abandon(
        &self,
        progress: &mut Progress,
        before: Option<Begun>,
        kept: Kept,
    ) -> Result<(), Failure> {
        let Some(begun) = &mut progress.order else {
            return Ok(());
        };
        let status_before = match before {
            Some(before) if before.url == begun.url => Some(before.status),
            _ => None,
        };
        let (is_final, expires) = match kept {
            Kept::Unseen => {
                begun.unchanged = begun.unchanged.saturating_add(1);
                (false, None)
            }
            Kept::Seen {
                status,
                is_final,
                expires,
            } => {
                begun.unchanged = match status_before {
                    Some(before) if before == status => begun.unchanged.saturating_add(1),
                    _ => 1,
                };
                begun.status = status;
                (is_final, expires)
            }
        };
        let stuck = Stuck {
            is_final,
            unchanged: begun.unchanged,
            expires,
        };
        if schedule::is_abandoned(stuck, since_1970(SystemTime::now()).as_secs()) {
            log::info!(domain = self.domains[0]; "ACME order abandoned");
            progress.order = None;
        }
        Ok(self.storage.store_progress(self.file, progress).await?)
    }

    /// Returns the stored account, or creates one.
    pub(super) async fn account(&self) -> Result<Account, Failure> {
        const DO: &str = "account";
        let builder = || Account::builder_with_http(Box::new(self.client.clone()));
        if let Some(credentials) = self.storage.account::<AccountCredentials>().await? {
            let account = builder().from_credentials(credentials).await;
            return account.map_err(|error| self.failed(error, DO));
        }
        let binding = self.external_account()?;
        let contact: Vec<_> = self.config.contact.iter().map(String::as_str).collect();
        let new = NewAccount {
            contact: &contact,
            // the configuration is refused without it
            terms_of_service_agreed: true,
            only_return_existing: false,
        };
        let directory = self.config.directory.clone();
        let created = builder().create(&new, directory, binding.as_ref()).await;
        let (account, credentials) = created.map_err(|error| self.failed(error, DO))?;
        self.storage.store_account(&credentials).await?;
        log::info!(authority = self.config.directory; "ACME account created");
        Ok(account)
    }

    /// The key that binds the account to one of the authority's customers.
    fn external_account(&self) -> Result<Option<ExternalAccountKey>, Failure> {
        let Some((id, file)) = self
            .config
            .eab_key_id
            .as_ref()
            .zip(self.config.eab_key_file.as_ref())
        else {
            return Ok(None);
        };
        let key = external_account_key(file).map_err(|error| Failure::new(&error.to_string()))?;
        Ok(Some(ExternalAccountKey::new(id.clone(), key.expose())))
    }

    /// Resumes the begun order if the authority still has it; otherwise creates one.
    async fn open(
        &self,
        account: &Account,
        progress: &mut Progress,
    ) -> Result<(Order, Begun), Failure> {
        if let Some(begun) = progress.order.clone() {
            match account.order(begun.url.clone()).await {
                Ok(mut order) => {
                    if order.state().status != OrderStatus::Invalid {
                        log::info!(domain = self.domains[0]; "ACME order resumed");
                        return Ok((order, begun));
                    }
                }
                // it has expired, or belongs to another account
                Err(Error::Api(problem)) if failure::is_gone(&problem) => {}
                Err(error) => return Err(self.failed(error, "order")),
            }
        }
        let names = self.domains.iter().cloned().map(Identifier::Dns);
        let names: Vec<_> = names.collect();
        let mut new = NewOrder::new(&names);
        if let Some(replaces) = self.replaces.clone().filter(|_| progress.failed == 0) {
            new = new.replaces(replaces);
        }
        let key = KeyPair::generate().map_err(|error| Failure::new(&error.to_string()))?;
        let ordered = account.new_order(&new).await;
        let order = ordered.map_err(|error| self.failed(error, "new order"))?;
        let begun = Begun {
            url: order.url().to_owned(),
            key: key.serialize_pem(),
            status: String::new(),
            unchanged: 0,
        };
        progress.order = Some(begun.clone());
        self.storage.store_progress(self.file, progress).await?;
        log::info!(domain = self.domains[0]; "ACME order begun");
        Ok((order, begun))
    }

    async fn finish(
        &self,
        order: &mut Order,
        begun: &Begun,
        failed: u32,
    ) -> Result<Issued, Failure> {
        if order.state().status == OrderStatus::Pending {
            self.authorize(order, failed).await?;
        }
        if order.state().status == OrderStatus::Ready {
            let request = self.signing_request(&begun.key)?;
            let finalized = order.finalize_csr(&request).await;
            finalized.map_err(|error| self.failed(error, "finalize"))?;
        }
        let chain = order.poll_certificate(&PATIENCE).await;
        let chain = chain.map_err(|error| self.failed(error, "certificate"))?;
        Ok(Issued {
            order: begun.url.clone(),
            key: begun.key.clone(),
            chain,
        })
    }

    /// Proves each domain that is not proven yet.
    async fn authorize(&self, order: &mut Order, failed: u32) -> Result<(), Failure> {
        let kind = self.challenge(failed);
        let mut answers = Answers::default();
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization =
                authorization.map_err(|error| self.failed(error, "authorization"))?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let domain = authorization.identifier().to_string();
            let challenge = authorization.challenge(kind.clone());
            let challenge = challenge.ok_or_else(|| unsupported(&kind, &domain))?;
            let answer = challenge.key_authorization();
            match kind {
                ChallengeType::Http01 => {
                    answers
                        .http
                        .insert(challenge.token.clone(), answer.as_str().to_owned());
                }
                _ => {
                    answers
                        .tls
                        .insert(domain, answer.digest().as_ref().to_vec());
                }
            }
        }
        self.challenges.set(answers.pending()?);
        let _answering = Answering(self.challenges);
        self.storage.announce(&answers).await?;
        let proven = self.prove(order, &kind).await;
        self.storage.withdraw().await;
        proven
    }

    /// Has the authority validate the proofs.
    async fn prove(&self, order: &mut Order, kind: &ChallengeType) -> Result<(), Failure> {
        let mut authorizations = order.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization =
                authorization.map_err(|error| self.failed(error, "authorization"))?;
            let is_pending = authorization.status == AuthorizationStatus::Pending;
            let challenge = authorization
                .challenge(kind.clone())
                .filter(|challenge| is_pending && challenge.status == ChallengeStatus::Pending);
            if let Some(mut challenge) = challenge {
                challenge
                    .set_ready()
                    .await
                    .map_err(|error| self.failed(error, "challenge"))?;
            }
        }
        match order.poll_ready(&PATIENCE).await {
            Ok(OrderStatus::Ready) => Ok(()),
            Ok(_) => Err(self.refused(order, None).await),
            Err(Error::Api(problem)) if order.state().status == OrderStatus::Invalid => {
                Err(self.refused(order, Some(failure::words(&problem))).await)
            }
            Err(error) => Err(self.failed(error, "validation")),
        }
    }

    /// The challenge type of this attempt. It alternates after failures if both types can be
    /// answered.
    fn challenge(&self, failed: u32) -> ChallengeType {
        match self.config.http_address.is_some() && failed.is_multiple_of(2) {
            true => ChallengeType::Http01,
            false => ChallengeType::TlsAlpn01,
        }
    }

    /// Why the authority rejected the order: its problem for each domain, or else `of_order`.
    async fn refused(&self, order: &mut Order, of_order: Option<String>) -> Failure {
        let mut causes = Vec::new();
        let mut authorizations = order.authorizations();
        while let Some(Ok(mut authorization)) = authorizations.next().await {
            let domain = authorization.identifier().to_string();
            let Ok(state) = authorization.refresh().await else {
                continue;
            };
            let problems = state
                .challenges
                .iter()
                .filter_map(|challenge| challenge.error.as_ref());
            causes.extend(problems.map(|of| format!("{domain}: {}", failure::words(of))));
        }
        let causes = match causes.is_empty() {
            true => of_order.unwrap_or_else(|| "the order is invalid".to_owned()),
            false => causes.join("; "),
        };
        let retry_after = self.client.retry_after();
        Failure {
            retry_after,
            ..Failure::refused(&format!("validation: {causes}"))
        }
    }

    /// Creates the certificate signing request for the domains with this key, in DER.
    fn signing_request(&self, key: &str) -> Result<Vec<u8>, Failure> {
        let made = || {
            let key = KeyPair::from_pem(key)?;
            let mut params = CertificateParams::new(self.domains)?;
            params.distinguished_name = DistinguishedName::new();
            Ok(params.serialize_request(&key)?.der().to_vec())
        };
        made().map_err(|error: rcgen::Error| Failure::new(&error.to_string()))
    }

    fn failed(&self, error: Error, do_what: &str) -> Failure {
        Failure::of(error, do_what, self.client.retry_after())
    }
}

/// Reads the HMAC key of an external account.
///
/// # Errors
/// The file cannot be read, or is not base64url.
pub(super) fn external_account_key(file: &Path) -> Result<secrets::Secret, secrets::SecretError> {
    let text = secrets::read(file)?;
    let text = text.expose().trim_ascii();
    let unpadded = text
        .strip_suffix(b"==")
        .or(text.strip_suffix(b"="))
        .unwrap_or(text);
    match BASE64_URL_SAFE_NO_PAD.decode(unpadded) {
        Ok(key) if !key.is_empty() => Ok(secrets::Secret::new(key)),
        _ => Err(secrets::SecretError::not(file, "the HMAC key in base64url")),
    }
}

fn unsupported(kind: &ChallengeType, domain: &str) -> Failure {
    let name = match kind {
        ChallengeType::Http01 => "http-01",
        _ => "tls-alpn-01",
    };
    Failure::refused(&format!(
        "{domain}: the authority does not offer the challenge {name}"
    ))
}
