//! The requests of one order at an authority, from its account to the certificate: RFC 8555,
//! section 7.4.
//!
//! In: an action that the filters decided. Out: its event, or a [`Failure`]. The order, its answers
//! to challenges and its certificate are in memory until the [`Session`] ends.

use super::challenge::Answers;
use super::client::Client;
use super::failure::{clean, failure, words};
use super::storage::Storage;
use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use instant_acme::{
    Account, AccountCredentials, AuthorizationStatus, CertificateIdentifier, ChallengeStatus,
    ChallengeType, Error, ExternalAccountKey, Identifier, NewAccount, NewOrder, Order,
};
use portcullis_base::config::AcmeConfig;
use portcullis_base::secrets;
use portcullis_edge::http::challenges::Challenges;
use portcullis_filters::acme::{Begun, Challenge, Event, Failure, OrderStatus};
use rcgen::{CertificateParams, DistinguishedName, KeyPair};
use std::path::Path;
use std::time::Duration;

/// An order for a certificate.
pub(super) struct Session<'a> {
    pub(super) config: &'a AcmeConfig,
    pub(super) storage: &'a Storage,
    pub(super) client: &'a Client,
    pub(super) challenges: &'a Challenges,
    pub(super) domains: &'a [String],
    pub(super) account: Option<Account>,
    pub(super) order: Option<Order>,
    pub(super) begun: Option<Begun>,
    pub(super) answering: Option<Answering<'a>>,
}

/// Answers challenges until it is dropped.
pub(super) struct Answering<'a>(&'a Challenges);

impl Drop for Answering<'_> {
    fn drop(&mut self) {
        self.0.clear();
    }
}

/// Why an action that needs an order has none.
const NO_ORDER: &str = "order: there is none";

impl<'a> Session<'a> {
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

    /// Opens the authority's account, which the later steps use.
    pub(super) async fn open(&mut self) -> Result<Event, Failure> {
        self.account = Some(self.account().await?);
        Ok(Event::Done)
    }

    fn opened(&self) -> Result<&Account, Failure> {
        self.account
            .as_ref()
            .ok_or(Failure::new("account: there is none"))
    }

    /// Fetches a begun order.
    pub(super) async fn resume(&mut self, begun: Begun) -> Result<Event, Failure> {
        let account = self.opened()?;
        let found = account.order(begun.url.clone()).await;
        self.order = Some(found.map_err(|error| self.failed(error, "order"))?);
        self.begun = Some(begun);
        let event = self.seen("order")?;
        if !matches!(&event, Event::Order(order) if order.status == OrderStatus::Invalid) {
            log::info!(domain = self.domains[0]; "ACME order resumed");
        }
        Ok(event)
    }

    /// Places an order with a new key.
    pub(super) async fn place(
        &mut self,
        replaces: Option<CertificateIdentifier<'static>>,
    ) -> Result<Event, Failure> {
        let account = self.opened()?;
        let names = self.domains.iter().cloned().map(Identifier::Dns);
        let names: Vec<_> = names.collect();
        let mut new = NewOrder::new(&names);
        if let Some(replaces) = replaces {
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
        self.order = Some(order);
        self.begun = Some(begun.clone());
        let Event::Order(order) = self.seen("new order")? else {
            return Err(Failure::new(NO_ORDER));
        };
        log::info!(domain = self.domains[0]; "ACME order begun");
        Ok(Event::Placed(begun, order))
    }

    /// The order as the last response shows it.
    fn seen(&self, do_what: &str) -> Result<Event, Failure> {
        let order = self.client.order().ok_or_else(|| {
            Failure::malformed(&format!("{do_what}: the authority's response is no order"))
        })?;
        Ok(Event::Order(order))
    }

    /// Fetches the authorizations.
    pub(super) async fn authorize(&mut self) -> Result<Event, Failure> {
        let (order, client) = (self.order.as_mut(), self.client);
        let mut authorizations = order.ok_or(Failure::new(NO_ORDER))?.authorizations();
        let mut all = Vec::new();
        while let Some(authorization) = authorizations.next().await {
            authorization.map_err(|error| failure(error, "authorization", client.retry_after()))?;
            all.push(client.authorization().ok_or_else(|| {
                Failure::malformed("authorization: the authority's response is none")
            })?);
        }
        Ok(Event::Authorizations(all))
    }

    /// Answers the pending challenges of this type, and has them validated.
    pub(super) async fn prove(&mut self, challenge: Challenge) -> Result<Event, Failure> {
        let kind = match challenge {
            Challenge::Http01 => ChallengeType::Http01,
            Challenge::TlsAlpn01 => ChallengeType::TlsAlpn01,
        };
        let answers = self.answers(&kind).await?;
        let pending = answers
            .pending()
            .map_err(|error| Failure::new(&error.to_string()))?;
        self.challenges.set(pending);
        self.answering = Some(Answering(self.challenges));
        self.storage.announce(&answers).await?;
        let (order, client) = (self.order.as_mut(), self.client);
        let mut authorizations = order.ok_or(Failure::new(NO_ORDER))?.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization
                .map_err(|error| failure(error, "authorization", client.retry_after()))?;
            let is_pending = authorization.status == AuthorizationStatus::Pending;
            let challenge = authorization
                .challenge(kind.clone())
                .filter(|challenge| is_pending && challenge.status == ChallengeStatus::Pending);
            if let Some(mut challenge) = challenge {
                let ready = challenge.set_ready().await;
                ready.map_err(|error| failure(error, "challenge", client.retry_after()))?;
            }
        }
        Ok(Event::Done)
    }

    async fn answers(&mut self, kind: &ChallengeType) -> Result<Answers, Failure> {
        let mut answers = Answers::default();
        let (order, client) = (self.order.as_mut(), self.client);
        let mut authorizations = order.ok_or(Failure::new(NO_ORDER))?.authorizations();
        while let Some(authorization) = authorizations.next().await {
            let mut authorization = authorization
                .map_err(|error| failure(error, "authorization", client.retry_after()))?;
            if authorization.status != AuthorizationStatus::Pending {
                continue;
            }
            let domain = authorization.identifier().to_string();
            let Some(challenge) = authorization.challenge(kind.clone()) else {
                continue;
            };
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
        Ok(answers)
    }

    /// Ends the answers to challenges, if there are any.
    pub(super) async fn withdraw(&mut self) {
        if self.answering.take().is_some() {
            self.storage.withdraw().await;
        }
    }

    /// Fetches the order after `delay`.
    pub(super) async fn poll(&mut self, delay: Duration) -> Result<Event, Failure> {
        tokio::time::sleep(delay).await;
        let order = self.order.as_mut().ok_or(Failure::new(NO_ORDER))?;
        let refreshed = order.refresh().await.map(|_| ());
        refreshed.map_err(|error| self.failed(error, "order"))?;
        self.seen("order")
    }

    /// Sends the signing request.
    pub(super) async fn finalize(&mut self) -> Result<Event, Failure> {
        let begun = self.begun.as_ref().ok_or(Failure::new(NO_ORDER))?;
        let request = self.signing_request(&begun.key)?;
        let order = self.order.as_mut().ok_or(Failure::new(NO_ORDER))?;
        let finalized = order.finalize_csr(&request).await;
        finalized.map_err(|error| self.failed(error, "finalize"))?;
        self.seen("finalize")
    }

    /// Fetches the certificate chain in PEM.
    pub(super) async fn download(&mut self) -> Result<String, Failure> {
        let order = self.order.as_mut().ok_or(Failure::new(NO_ORDER))?;
        let chain = order.certificate().await;
        let chain = chain.map_err(|error| self.failed(error, "certificate"))?;
        chain.ok_or(Failure::malformed("certificate: there is none"))
    }

    /// Why the authority rejected the order: its problem for each domain, or else that of the
    /// order.
    pub(super) async fn causes(&mut self) -> Result<Event, Failure> {
        let order = self.order.as_mut().ok_or(Failure::new(NO_ORDER))?;
        let of_order = order.state().error.as_ref().map(words);
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
            causes.extend(problems.map(|of| format!("{domain}: {}", words(of))));
        }
        if causes.is_empty() {
            causes.extend(of_order);
        }
        Ok(Event::Causes(clean(&causes.join("; "))))
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
        failure(error, do_what, self.client.retry_after())
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
