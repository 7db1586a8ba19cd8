//! `[sidecar]` and a section for each of its subjects.
//!
//! URLs, DIDs and names are checked here; secrets stay paths ([`crate::secrets`] reads them).

use std::path::PathBuf;
use std::time::Duration;

use http::{HeaderName, Uri};
use ipnet::IpNet;

use super::address::Listen;
use super::key::Section;
use super::section::{keys, section};
use super::surface::{
    ClientsConfig, ClientsLive, LISTEN_FORM, TlsConfig, clients, live_clients, networks, tls,
};
use super::values::{
    Converted, Value, duration, flag, list, optional_path, path as file, text, then,
};
use super::{DAY, MINUTE, WHY_TIMEOUTS};

const YEARS: Duration = Duration::from_secs(10 * 365 * DAY.as_secs());
const WHY_LABELS: &str = "each costs a lookup";
const WHY_BANDS: &str = "one list for all sessions";
const WHY_PROVIDERS: &str = "a health check requests all of them at once";
const WHY_EXPECTED: &str = "a few for each service";
const WHY_SECRETS: &str = "two during a rotation";

const ORIGIN_FORM: &str = "an origin such as \"https://cards.example\"";
pub(super) const URL_FORM: &str = "an http:// or https:// URL without a user, or \"\"";
const DID_FORM: &str = "a DID such as \"did:plc:ewvi7nxzyoun6zhxrhs64oiz\", or \"\"";
const LABEL_FORM: &str = "a label of at most 128 bytes without spaces";
const BAND_FORM: &str = "a word of at most 64 letters, digits or _";
const HEADER_FORM: &str = "the name of a header";
const VERIFICATION_FORM: &str = "a URL that contains {subject_ref}, or \"\"";
const PATH_FORM: &str = "a path that begins with /, without spaces and #";
const AGENT_FORM: &str = "a crawler's product token of letters, digits, - and _";
const EXPECTED_FORM: &str = "a service and a status, such as \"platform=302\"";
/// The services that a health check requests.
const SERVICES: [&str; 7] = [
    "platform",
    "card_data",
    "pds",
    "email",
    "web_push",
    "podcast_syndication",
    "payments",
];
const PROVIDER_FORM: &str = "a name and a URL, such as \"tcg=https://api.example\"";

section! {
    /// The service endpoints, at `/functions/<name>`. Leave the section out to switch them off.
    "sidecar" SidecarConfig {
        /// address:port, or unix:/absolute/path.
        /// Why: loopback: a proxy in front has the public address and terminates TLS.
        listen: Listen = Default("127.0.0.1:8082"), text(LISTEN_FORM, Listen::parse);
    }
    with reader {
        /// The bounds of its clients.
        clients: ClientsConfig = clients(reader, "sidecar");
        /// All that a reload changes.
        live: SidecarLive = SidecarLive::read(&mut reader.live());
    }
}

section! {
    /// The part of `[sidecar]` that a reload changes.
    more live "sidecar" SidecarLive {
        /// Required. The public origin, without a slash at its end; http:// on loopback only.
        /// Why: feeds and sitemaps contain it, whatever the Host header says.
        base_url: String = Required("https://cards.example"), text(ORIGIN_FORM, origin);
        /// Compress public documents of 1 KiB and more for clients that accept gzip.
        /// Why: feeds and sitemaps shrink to a fifth; responses to one user stay uncompressed.
        gzip: bool = Default(true), flag;
        /// The file with a token (32 characters or more) for details of health-check; "" for none.
        /// Why: everyone else learns only whether the service is healthy.
        operator_token_file: Option<PathBuf> = Default(""), text("a path", optional_path);
        /// Clients that the rate limit does not count: networks or single addresses; [] for none.
        /// Why: Bluesky requests a feed for all its viewers from few addresses.
        exempt: Vec<IpNet> = Default([]), networks();
    }
    with reader {
        /// The limits of each client.
        clients: ClientsLive = live_clients(reader, "sidecar");
        /// TLS, unless its section is left out.
        tls: Option<TlsConfig> = tls(reader, "sidecar");
        /// The feed generator.
        feeds: FeedsLive = FeedsLive::read(reader);
        /// Who is signed in.
        session: SessionLive = SessionLive::read(reader);
        /// Age verification.
        age: AgeLive = AgeLive::read(reader);
        /// Podcasts.
        podcasts: PodcastsLive = PodcastsLive::read(reader);
        /// The paths that crawlers may fetch.
        robots: RobotsLive = RobotsLive::read(reader);
        /// The dependencies that the health check requests.
        health: HealthLive = HealthLive::read(reader);
    }
}

pub(super) const CLIENTS: Section = Section {
    path: "sidecar",
    about: &[],
    keys: keys! { "sidecar":
        /// Clients that the rate limiter tracks; when full, it forgets the least recently seen.
        /// Why: bounds the limiter's memory, even under a flood of addresses.
        max_clients = Default(100000);
        /// Every connection begins with a PROXY header (version 2) from one of trusted_proxies.
        /// Why: only for TCP balancers; a connection without the header is closed.
        proxy_protocol = Default(false);
    },
};

pub(super) const LIVE_CLIENTS: Section = Section {
    path: "sidecar",
    about: &[],
    keys: keys! { live "sidecar":
        /// Requests that each client (IPv4 address or IPv6 /64) may send in any 60 seconds.
        /// Why: a few hosts request for all their users: feeds, podcast apps, crawlers.
        requests_per_minute = Default(600);
        /// Concurrent requests of each client.
        /// Why: one crawler cannot take all connections to the store.
        max_in_flight_per_client = Default(64);
        /// Peers whose X-Forwarded-For is trusted: networks or single addresses; [] for none.
        /// Why: a proxy on this machine; any other peer could claim any address.
        trusted_proxies = Default(["127.0.0.0/8", "::1/128"]);
    },
};

section! {
    /// The feed generator.
    live "sidecar.feeds" FeedsLive {
        /// The account that published the feeds; "" is the service itself.
        /// Why: the service can publish its own feeds.
        publisher_did: String = Default(""), text(DID_FORM, did);
        /// The DID of the feed generator; "" is the did:web of sidecar.base_url.
        /// Why: did:web needs no registration.
        service_did: String = Default(""), text(DID_FORM, did);
        /// The URL of the privacy policy; "" for none.
        /// Why: clients show it where the product has one.
        privacy_policy: Option<String> = Default(""), text(URL_FORM, optional_url);
        /// The URL of the terms of service; "" for none.
        /// Why: clients show them where the product has any.
        terms_of_service: Option<String> = Default(""), text(URL_FORM, optional_url);
        /// Moderation labels that hide a post; at most 16.
        /// Why: labels by which the network's moderators remove, hide or flag posts.
        blocked_labels: Vec<String> =
            Default(["!hide", "!takedown", "spam", "csam", "scam", "impersonation"]),
            list(text(LABEL_FORM, label), 0..=16, WHY_LABELS);
    }
}

section! {
    /// Who is signed in; without a secret or a key set, nobody.
    live "sidecar.session" SessionLive {
        /// The iss of platform sessions; "" accepts any.
        /// Why: a secret or a key set belongs to one platform already.
        issuer: Option<String> = Default(""), text("a text", optional);
        /// The aud of platform sessions.
        /// Why: the platform writes this into the session of a signed-in user.
        audience: String = Default("authenticated"), text("a text", not_empty);
        /// Files with HS256 secrets: none, one, or two during a rotation.
        /// Why: a default secret would be public; two, so that a rotation signs nobody out.
        hs256_secret_files: Vec<PathBuf> = Default([]),
            list(text("a path", file), 0..=2, WHY_SECRETS);
        /// The URL of the key set for ES256, RS256 and EdDSA sessions; "" for none.
        /// Why: only the operator knows whose keys to trust.
        jwks_url: Option<String> = Default(""), text(URL_FORM, optional_url);
        /// The directory of did:plc documents.
        /// Why: the network's own directory.
        plc_url: String = Default("https://plc.directory"), text(ORIGIN_FORM, url);
        /// Accepts did:web:localhost%3APORT as an account, over http; for development only.
        /// Why: over http, anyone on the path can answer with keys of their own.
        localhost_dids: bool = Default(false), flag;
    }
}

section! {
    /// Age verification; without a secret no event is accepted.
    live "sidecar.age" AgeLive {
        /// Files with the verifier's secrets (32 bytes or more): none, one, or two in a rotation.
        /// Why: without a secret the webhook refuses every event.
        webhook_secret_files: Vec<PathBuf> = Default([]),
            list(text("a path", file), 0..=2, WHY_SECRETS);
        /// The header with the webhook's HMAC.
        /// Why: the contract's name; another verifier may use another.
        signature_header: HeaderName = Default("x-service-verifier-signature"),
            text(HEADER_FORM, header);
        /// The age bands that may be attested.
        /// Why: the bands that app stores distinguish.
        age_bands: Vec<String> = Default(["under_13", "13_15", "16_17", "18_plus"]),
            list(text(BAND_FORM, band), 1..=16, WHY_BANDS);
        /// The URL where a user proves an age, with {subject_ref} in it; "" for none.
        /// Why: the product can send its users there itself.
        verification_url: Option<String> = Default(""),
            text(VERIFICATION_FORM, verification_url);
        /// How long a session waits for its first event.
        /// Why: a day to find a document, and no reference stays open forever.
        session_lifetime: Duration = Default("24h"), duration(MINUTE..=YEARS, WHY_TIMEOUTS);
        /// How long a verification without an expiry is valid.
        /// Why: once a year is acceptable, and bands change with age.
        validity: Duration = Default("365d"), duration(MINUTE..=YEARS, WHY_TIMEOUTS);
    }
}

section! {
    /// Podcasts.
    live "sidecar.podcasts" PodcastsLive {
        /// Redirects apps from the feed of a podcast that has a new_feed_url to that URL (301).
        /// Why: a permanent redirect cannot be taken back; without it, apps read the tag alone.
        redirect_moved: bool = Default(false), flag;
        /// The WebSub hub that is pinged when an episode appears or changes; "" for none.
        /// Why: with a hub, apps show an episode within a minute; only the operator knows one.
        hub_url: Option<String> = Default(""), text(URL_FORM, exact_url);
    }
}

section! {
    /// The paths that crawlers may fetch.
    live "sidecar.robots" RobotsLive {
        /// false excludes every crawler, for staging.
        /// Why: the public site is meant to be found.
        indexing: bool = Default(true), flag;
        /// Beginnings of paths that crawlers may not fetch; $ is the end of one.
        /// Why: pages without content of their own; /auth alone would hide /authors.
        disallow: Vec<String> = Default([
            "/auth/", "/auth$", "/settings/", "/settings$", "/search/", "/search$", "/search?"
        ]),
            list(text(PATH_FORM, path), 0..=usize::MAX, "");
        /// Crawlers that may fetch nothing.
        /// Why: which crawlers to exclude is the product's decision.
        blocked_agents: Vec<String> = Default([]),
            list(text(AGENT_FORM, agent), 0..=usize::MAX, "");
    }
}

section! {
    /// Services that health-check requests by GET; "" is not configured.
    live "sidecar.health" HealthLive {
        /// The application platform; critical once it is configured.
        /// Why: only configured services are requested.
        platform: Option<String> = Default(""), text(URL_FORM, optional_url);
        /// Card data providers, each `name=URL`.
        /// Why: only configured services are requested.
        card_data: Vec<Provider> = Default([]), providers;
        /// The personal data server; its /xrpc/_health is requested.
        /// Why: only configured services are requested.
        pds: Option<String> = Default(""), text(URL_FORM, optional_url);
        /// The e-mail service.
        /// Why: only configured services are requested.
        email: Option<String> = Default(""), text(URL_FORM, optional_url);
        /// The web push service.
        /// Why: only configured services are requested.
        web_push: Option<String> = Default(""), text(URL_FORM, optional_url);
        /// The podcast syndication service.
        /// Why: only configured services are requested.
        podcast_syndication: Option<String> = Default(""), text(URL_FORM, optional_url);
        /// Payment services, each `name=URL`.
        /// Why: only configured services are requested.
        payments: Vec<Provider> = Default([]), providers;
        /// Statuses that are healthy, each `service=STATUS`; for other services any 2xx is.
        /// Why: a redirect often means a login or maintenance page; it is a warning.
        expect: Vec<Expected> = Default([]),
            list(text(EXPECTED_FORM, expected), 0..=64, WHY_EXPECTED);
    }
}

/// A status that means that a service is healthy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expected {
    /// The key of the service.
    pub service: &'static str,
    /// The status.
    pub status: u16,
}

/// A service with a name that only the operator sees.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Provider {
    /// The name.
    pub name: String,
    /// The URL to request.
    pub url: String,
}

fn providers(value: &Value<'_>) -> Converted<Vec<Provider>> {
    let providers = list(text(PROVIDER_FORM, provider), 0..=16, WHY_PROVIDERS);
    then(providers, |providers: Vec<Provider>| {
        let mut names: Vec<_> = providers.iter().map(|provider| &*provider.name).collect();
        names.sort_unstable();
        match names.windows(2).find(|pair| pair[0] == pair[1]) {
            Some(pair) => Err(format!("expected each name once, found {} twice", pair[0])),
            None => Ok(providers),
        }
    })(value)
}

fn expected(text: &str) -> Result<Expected, String> {
    let (name, status) = text.split_once('=').ok_or("there is no = in it")?;
    let service = SERVICES.into_iter().find(|service| *service == name.trim());
    let service = service.ok_or_else(|| format!("the services are {}", SERVICES.join(", ")))?;
    match status.trim().parse() {
        Ok(status @ 200..=599) => Ok(Expected { service, status }),
        _ => Err("a status is 200 to 599".to_owned()),
    }
}

fn provider(text: &str) -> Result<Provider, String> {
    let (name, location) = text.split_once('=').ok_or("there is no = in it")?;
    let name = name.trim();
    if !is_word(name, b"-_", 64) {
        return Err("a name has 1 to 64 letters, digits, - or _".to_owned());
    }
    Ok(Provider {
        name: name.to_owned(),
        url: url(location.trim())?,
    })
}

impl SidecarLive {
    /// Fills the DIDs that are left to their defaults.
    pub(super) fn fill_dids(&mut self) {
        let Self {
            feeds, base_url, ..
        } = self;
        if feeds.service_did.is_empty() {
            feeds.service_did = did_of(base_url);
        }
        if feeds.publisher_did.is_empty() {
            feeds.publisher_did.clone_from(&feeds.service_did);
        }
    }
}

/// The did:web of an origin; a port's colon is escaped.
/// <https://w3c-ccg.github.io/did-method-web/#method-specific-identifier>
fn did_of(origin: &str) -> String {
    let host = origin.split_once("://").map_or(origin, |(_, host)| host);
    format!("did:web:{}", host.replace(':', "%3A"))
}

/// Whether a text has 1 to `most` letters, digits or `others`.
fn is_word(text: &str, others: &[u8], most: usize) -> bool {
    let is_part = |byte: u8| byte.is_ascii_alphanumeric() || others.contains(&byte);
    (1..=most).contains(&text.len()) && text.bytes().all(is_part)
}

fn optional(text: &str) -> Result<Option<String>, String> {
    Ok(Some(text.to_owned()).filter(|text| !text.is_empty()))
}

fn not_empty(text: &str) -> Result<String, String> {
    optional(text)?.ok_or_else(|| "it is empty".to_owned())
}

fn uri(text: &str) -> Result<Uri, String> {
    let uri: Uri = text.parse().map_err(|_| "it is not a URL")?;
    let is_web = matches!(uri.scheme_str(), Some("http" | "https"));
    let authority = uri
        .authority()
        .map(|authority| authority.as_str())
        .unwrap_or_default();
    if !is_web || authority.is_empty() {
        return Err("the scheme is neither http:// nor https://".to_owned());
    }
    // the parser drops a fragment
    if text.contains('#') {
        return Err("a fragment is for browsers only".to_owned());
    }
    if authority.contains('@') {
        return Err("credentials do not belong in a URL".to_owned());
    }
    Ok(uri)
}

fn url(text: &str) -> Result<String, String> {
    uri(text).map(|_| text.trim_end_matches('/').to_owned())
}

fn optional_url(text: &str) -> Result<Option<String>, String> {
    if text.is_empty() {
        Ok(None)
    } else {
        url(text).map(Some)
    }
}

/// A URL or "", byte for byte: a hub compares URLs, and a path may end with a slash.
pub(super) fn exact_url(text: &str) -> Result<Option<String>, String> {
    let given = optional(text)?;
    given.map(|text| uri(&text).map(|_| text)).transpose()
}

/// Whether a valid URL is requested in cleartext from another machine.
pub(super) fn is_open_to_others(url: &str) -> bool {
    uri(url).is_ok_and(|uri| uri.scheme_str() == Some("http") && !is_local(&uri))
}

fn is_local(uri: &Uri) -> bool {
    matches!(uri.host(), Some("localhost" | "127.0.0.1" | "[::1]"))
}

/// Reads an origin in the form of `sidecar.base_url`.
pub fn parse_origin(text: &str) -> Result<String, String> {
    origin(text).map_err(|why| format!("expected {ORIGIN_FORM}: {why}"))
}

/// Parses a scheme and a host. Nothing may follow them: XRPC clients would drop a path.
fn origin(text: &str) -> Result<String, String> {
    let uri = uri(text)?;
    if uri.path() != "/" || uri.query().is_some() {
        return Err("an origin has no path and no query".to_owned());
    }
    if uri.scheme_str() == Some("http") && !is_local(&uri) {
        return Err("http:// is for this machine only; use https://".to_owned());
    }
    Ok(text.trim_end_matches('/').to_ascii_lowercase())
}

fn did(text: &str) -> Result<String, String> {
    let mut parts = text.splitn(3, ':');
    let [scheme, method, id] = [(); 3].map(|()| parts.next().unwrap_or_default());
    let is_method = !method.is_empty() && method.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_id = is_word(id, b"._:%-", usize::MAX) && !id.ends_with([':', '%']);
    let is_did = text.is_empty() || (scheme == "did" && is_method && is_id);
    is_did.then(|| text.to_owned()).ok_or_else(String::new)
}

fn label(text: &str) -> Result<String, String> {
    let is_label = (1..=128).contains(&text.len()) && !text.contains(char::is_whitespace);
    is_label
        .then(|| text.to_lowercase())
        .ok_or_else(String::new)
}

fn header(text: &str) -> Result<HeaderName, String> {
    text.parse().map_err(|_| String::new())
}

fn band(text: &str) -> Result<String, String> {
    is_word(text, b"_", 64)
        .then(|| text.to_owned())
        .ok_or_else(String::new)
}

fn verification_url(text: &str) -> Result<Option<String>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    if !text.contains("{subject_ref}") {
        return Err("it does not contain {subject_ref}".to_owned());
    }
    uri(&text.replace("{subject_ref}", "0")).map(|_| Some(text.to_owned()))
}

/// RFC 9309, section 2.2.2. A # would begin a comment, and the rule would forbid more.
fn path(text: &str) -> Result<String, String> {
    let is_printed = text.bytes().all(|byte| byte.is_ascii_graphic());
    if text.starts_with('/') && is_printed && !text.contains('#') {
        Ok(text.to_owned())
    } else {
        Err(String::new())
    }
}

/// RFC 9309, section 2.2.1.
fn agent(text: &str) -> Result<String, String> {
    is_word(text, b"-_", usize::MAX)
        .then(|| text.to_owned())
        .ok_or_else(String::new)
}
