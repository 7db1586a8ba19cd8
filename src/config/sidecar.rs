//! The sidecar's configuration: `[sidecar]` and a table for each of its subjects.
//!
//! In: the reader. Out: [`SidecarConfig`], with URLs checked and secrets as paths only: whoever
//! needs one reads it ([`crate::secrets`]).

use super::address::Listen;
use super::check::{LISTEN_FORM, WHY_TIMEOUTS};
use super::clients::{ClientsConfig, clients, paths};
use super::file::Reader;
use super::relay::optional_path;
use super::tls::{TlsConfig, tls, tls_paths};
use super::values::{distinct, duration, flag, text};
use http::{HeaderName, Uri};
use std::path::PathBuf;
use std::time::Duration;

/// Labels that hide a post: each costs a look-up.
const MAX_BLOCKED_LABELS: usize = 16;
/// Providers of one kind, all of which a health check asks at once.
const MAX_PROVIDERS: usize = 16;

/// `[sidecar]`: the service endpoints.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SidecarConfig {
    /// Where it listens.
    pub listen: Listen,
    /// The origin that its addresses begin with, without a slash at the end.
    pub base_url: String,
    /// What its connections are secured with, if they are.
    pub tls: Option<TlsConfig>,
    /// How much one client may ask.
    pub clients: ClientsConfig,
    /// The file of the token that shows details of the health check.
    pub operator_token_file: Option<PathBuf>,
    /// The feed generator.
    pub feeds: FeedsConfig,
    /// Who is signed in.
    pub session: SessionConfig,
    /// Age verification.
    pub age: AgeConfig,
    /// What crawlers may fetch.
    pub robots: RobotsConfig,
    /// What the health check asks.
    pub health: HealthConfig,
}

/// `[sidecar.feeds]`: the feed generator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FeedsConfig {
    /// The account that published the feeds.
    pub publisher_did: String,
    /// The feed generator itself.
    pub service_did: String,
    /// Where its privacy policy is.
    pub privacy_policy: Option<String>,
    /// Where its terms of service are.
    pub terms_of_service: Option<String>,
    /// Moderation labels that hide a post; at most 16.
    pub blocked_labels: Vec<String>,
}

/// `[sidecar.session]`: who is signed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionConfig {
    /// The platform, as its sessions name it.
    pub issuer: Option<String>,
    /// Whom its sessions are for.
    pub audience: String,
    /// Files of the secrets of HS256 sessions; none, one or two.
    pub hs256_secret_files: Vec<PathBuf>,
    /// Where the keys of ES256 and RS256 sessions are.
    pub jwks_url: Option<String>,
    /// Where did:plc documents are.
    pub plc_url: String,
    /// Whether did:web of localhost is an account: for development.
    pub localhost_dids: bool,
}

/// `[sidecar.age]`: age verification.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AgeConfig {
    /// Files of the verifier's secrets; none, one or two.
    pub webhook_secret_files: Vec<PathBuf>,
    /// The header of its signature.
    pub signature_header: HeaderName,
    /// The bands it may attest.
    pub age_bands: Vec<String>,
    /// Where a user goes to prove an age; `{subject_ref}` is filled in.
    pub verification_url: Option<String>,
    /// How long a session waits for the first event.
    pub session_lifetime: Duration,
    /// How long a verification holds that names no end.
    pub validity: Duration,
}

/// `[sidecar.robots]`: what crawlers may fetch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RobotsConfig {
    /// Whether they may fetch anything.
    pub indexing: bool,
    /// Paths that they may not fetch.
    pub disallow: Vec<String>,
    /// Crawlers that may fetch nothing.
    pub blocked_agents: Vec<String>,
}

/// `[sidecar.health]`: what the health check asks; what is left out is not configured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HealthConfig {
    /// The application platform.
    pub platform: Option<String>,
    /// Providers of card data.
    pub card_data: Vec<Provider>,
    /// The personal data server.
    pub pds: Option<String>,
    /// The e-mail service.
    pub email: Option<String>,
    /// The web push service.
    pub web_push: Option<String>,
    /// The podcast syndication service.
    pub podcast_syndication: Option<String>,
    /// Payment services.
    pub payments: Vec<Provider>,
}

/// A provider that has a name, for the operator only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// The name.
    pub name: String,
    /// The URL that is asked.
    pub url: String,
}

/// Reads `[sidecar]`.
pub(super) fn sidecar(reader: &mut Reader<'_>) -> SidecarConfig {
    let base_url = reader.take("sidecar.base_url", text(ORIGIN_FORM, origin));
    SidecarConfig {
        listen: reader.take("sidecar.listen", text(LISTEN_FORM, Listen::parse)),
        tls: tls(reader, tls_paths!("sidecar")),
        clients: clients(reader, paths!("sidecar")),
        operator_token_file: reader
            .take("sidecar.operator_token_file", text("a path", optional_path)),
        feeds: feeds(reader, &base_url),
        session: session(reader),
        age: age(reader),
        robots: robots(reader),
        health: health(reader),
        base_url,
    }
}

const ORIGIN_FORM: &str = "an origin such as \"https://cards.example\"";
const URL_FORM: &str = "an http:// or https:// URL without a user, or \"\"";
const DID_FORM: &str = "a DID such as \"did:plc:ewvi7nxzyoun6zhxrhs64oiz\", or \"\"";

fn feeds(reader: &mut Reader<'_>, base_url: &str) -> FeedsConfig {
    let service_did = reader.take("sidecar.feeds.service_did", text(DID_FORM, optional_did));
    let service_did = service_did.unwrap_or_else(|| did_of(base_url));
    let publisher_did = reader.take("sidecar.feeds.publisher_did", text(DID_FORM, optional_did));
    FeedsConfig {
        publisher_did: publisher_did.unwrap_or_else(|| service_did.clone()),
        service_did,
        privacy_policy: reader.take("sidecar.feeds.privacy_policy", text(URL_FORM, url)),
        terms_of_service: reader.take("sidecar.feeds.terms_of_service", text(URL_FORM, url)),
        blocked_labels: reader.take_list(
            "sidecar.feeds.blocked_labels",
            text("a label of at most 128 bytes", label),
            |labels| at_most(MAX_BLOCKED_LABELS, distinct(labels, Clone::clone)?),
        ),
    }
}

fn session(reader: &mut Reader<'_>) -> SessionConfig {
    SessionConfig {
        issuer: reader.take("sidecar.session.issuer", text("a text", optional)),
        audience: reader.take("sidecar.session.audience", text("a text", some)),
        hs256_secret_files: secret_files(reader, "sidecar.session.hs256_secret_files"),
        jwks_url: reader.take("sidecar.session.jwks_url", text(URL_FORM, url)),
        plc_url: reader.take("sidecar.session.plc_url", text(ORIGIN_FORM, some_url)),
        localhost_dids: reader.take("sidecar.session.localhost_dids", flag),
    }
}

fn age(reader: &mut Reader<'_>) -> AgeConfig {
    const MINUTE: Duration = Duration::from_secs(60);
    const YEARS: Duration = Duration::from_secs(10 * 365 * 24 * 3_600);
    AgeConfig {
        webhook_secret_files: secret_files(reader, "sidecar.age.webhook_secret_files"),
        signature_header: reader.take(
            "sidecar.age.signature_header",
            text("a header", |text| text.parse().map_err(|_| "it is no header's name".to_owned())),
        ),
        age_bands: reader.take_list(
            "sidecar.age.age_bands",
            text("a word of at most 64 letters, digits or _", band),
            |bands| match at_most(MAX_PROVIDERS, distinct(bands, Clone::clone)?)? {
                none if none.is_empty() => Err("expected at least one, found none".to_owned()),
                bands => Ok(bands),
            },
        ),
        verification_url: reader.take(
            "sidecar.age.verification_url",
            text("a URL with {subject_ref} in it, or \"\"", verification_url),
        ),
        session_lifetime: reader
            .take("sidecar.age.session_lifetime", duration(MINUTE..=YEARS, WHY_TIMEOUTS)),
        validity: reader.take("sidecar.age.validity", duration(MINUTE..=YEARS, WHY_TIMEOUTS)),
    }
}

fn robots(reader: &mut Reader<'_>) -> RobotsConfig {
    RobotsConfig {
        indexing: reader.take("sidecar.robots.indexing", flag),
        disallow: reader.take_list(
            "sidecar.robots.disallow",
            text("a path that begins with /", path),
            |paths| distinct(paths, Clone::clone),
        ),
        blocked_agents: reader.take_list(
            "sidecar.robots.blocked_agents",
            text("a crawler's product token", agent),
            |agents| distinct(agents, Clone::clone),
        ),
    }
}

fn health(reader: &mut Reader<'_>) -> HealthConfig {
    let mut one = |key| reader.take(key, text(URL_FORM, url));
    let (platform, pds) = (one("sidecar.health.platform"), one("sidecar.health.pds"));
    let (email, web_push) = (one("sidecar.health.email"), one("sidecar.health.web_push"));
    let podcast_syndication = one("sidecar.health.podcast_syndication");
    let mut several = |key| {
        reader.take_list(
            key,
            text("a name and a URL, such as \"tcg=https://api.example\"", provider),
            |providers: Vec<Provider>| {
                let names = providers.iter().map(|one| one.name.clone()).collect();
                distinct(names, Clone::clone)?;
                at_most(MAX_PROVIDERS, providers)
            },
        )
    };
    HealthConfig {
        platform,
        card_data: several("sidecar.health.card_data"),
        pds,
        email,
        web_push,
        podcast_syndication,
        payments: several("sidecar.health.payments"),
    }
}

/// None, one, or two while a secret is changed.
fn secret_files(reader: &mut Reader<'_>, key: &'static str) -> Vec<PathBuf> {
    let file = |text: &str| optional_path(text)?.ok_or_else(|| "it is empty".to_owned());
    reader.take_list(key, text("a path", file), |files| {
        at_most(2, distinct(files, |file| file.display().to_string())?)
    })
}

fn at_most<T>(most: usize, items: Vec<T>) -> Result<Vec<T>, String> {
    let count = items.len();
    if count > most { Err(format!("expected at most {most}, found {count}")) } else { Ok(items) }
}

fn optional(text: &str) -> Result<Option<String>, String> {
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

fn some(text: &str) -> Result<String, String> {
    optional(text)?.ok_or_else(|| "it is empty".to_owned())
}

fn parsed(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|_| "it is no URL")?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri.authority().map(|authority| authority.as_str()).unwrap_or_default();
    if !is_web || authority.is_empty() {
        return Err("the scheme is neither".to_owned());
    }
    // the parser drops a fragment
    if text.contains('#') {
        return Err("a fragment is for browsers".to_owned());
    }
    if authority.contains('@') {
        return Err("what opens a door belongs in no URL".to_owned());
    }
    Ok(uri)
}

fn url(text: &str) -> Result<Option<String>, String> {
    if text.is_empty() { Ok(None) } else { some_url(text).map(Some) }
}

fn some_url(text: &str) -> Result<String, String> {
    parsed(text).map(|_| text.trim_end_matches('/').to_owned())
}

/// Reads an origin as `sidecar.base_url` is read, or says what is expected.
pub fn parse_origin(text: &str) -> Result<String, String> {
    origin(text).map_err(|why| format!("expected {ORIGIN_FORM}: {why}"))
}

/// A scheme and a host, and nothing after them: XRPC clients would drop a path.
fn origin(text: &str) -> Result<String, String> {
    let uri = parsed(text)?;
    if uri.path() != "/" || uri.query().is_some() {
        return Err("an origin has no path".to_owned());
    }
    let host = uri.host().unwrap_or_default();
    let is_local = matches!(host, "localhost" | "127.0.0.1" | "[::1]");
    if uri.scheme_str() == Some("http") && !is_local {
        return Err("http:// is for this machine only: use https://".to_owned());
    }
    Ok(text.trim_end_matches('/').to_ascii_lowercase())
}

/// The did:web of an origin; a port's colon is escaped.
/// <https://w3c-ccg.github.io/did-method-web/#method-specific-identifier>
fn did_of(origin: &str) -> String {
    let host = origin.split_once("://").map_or(origin, |(_, host)| host);
    format!("did:web:{}", host.replace(':', "%3A"))
}

fn optional_did(text: &str) -> Result<Option<String>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let mut parts = text.splitn(3, ':');
    let is_did = parts.next() == Some("did")
        && parts.next().is_some_and(|method| {
            !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_lowercase())
        })
        && parts.next().is_some_and(|id| {
            let is_id = |byte: u8| byte.is_ascii_alphanumeric() || b"._:%-".contains(&byte);
            !id.is_empty() && id.bytes().all(is_id) && !id.ends_with([':', '%'])
        });
    if is_did { Ok(Some(text.to_owned())) } else { Err("it is none".to_owned()) }
}

fn label(text: &str) -> Result<String, String> {
    let is_label = !text.is_empty() && text.len() <= 128 && !text.contains(char::is_whitespace);
    if is_label { Ok(text.to_lowercase()) } else { Err("it is none".to_owned()) }
}

fn band(text: &str) -> Result<String, String> {
    let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
    let is_band = (1..=64).contains(&text.len()) && text.bytes().all(is_word);
    if is_band { Ok(text.to_owned()) } else { Err("it is none".to_owned()) }
}

fn verification_url(text: &str) -> Result<Option<String>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    if !text.contains("{subject_ref}") {
        return Err("{subject_ref} is not in it".to_owned());
    }
    parsed(&text.replace("{subject_ref}", "0")).map(|_| Some(text.to_owned()))
}

fn path(text: &str) -> Result<String, String> {
    let is_path = text.starts_with('/') && text.bytes().all(|byte| byte.is_ascii_graphic());
    if is_path { Ok(text.to_owned()) } else { Err("it does not".to_owned()) }
}

/// RFC 9309, section 2.2.1.
fn agent(text: &str) -> Result<String, String> {
    let is_token = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let is_agent = !text.is_empty() && text.bytes().all(is_token);
    if is_agent { Ok(text.to_owned()) } else { Err("letters, digits, - and _ only".to_owned()) }
}

fn provider(text: &str) -> Result<Provider, String> {
    let (name, url) = text.split_once('=').ok_or("there is no = in it")?;
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let name = name.trim();
    if !(1..=64).contains(&name.len()) || !name.bytes().all(is_letter) {
        return Err("a name has 1 to 64 letters, digits, - or _".to_owned());
    }
    Ok(Provider { name: name.to_owned(), url: some_url(url.trim())? })
}
