//! `[tls.acme]`: the authority that certificates are ordered from, and the domains they are for.

use std::path::PathBuf;

use sha2::{Digest as _, Sha256};

use super::Config;
use super::address::{Listen, NodeUrl, Scheme};
use super::reader::Reader;
use super::section::section;
use super::surface::{LISTEN_FORM, TlsConfig};
use super::values::{flag, list, only, optional_path, path, text};

const WHY_TERMS: &str = "it is your agreement with the authority: read its terms of service first";
const DIRECTORY_FORM: &str = "the https:// URL of an ACME directory";
const CONTACT_FORM: &str = "an email address such as \"ops@example.org\"";

section! {
    /// Certificates that are ordered and renewed by ACME (RFC 8555), for every listener with
    /// domains in its section [….tls]; unused without one.
    "tls.acme" AcmeConfig {
        /// Required. true: you accept the terms of service of the authority.
        /// Why: the account is yours, and nobody else can agree to the terms.
        terms_accepted: () = Required(true), only("true", WHY_TERMS);
        /// The directory of the authority, an https:// URL; the default is Let's Encrypt.
        /// Why: free, trusted by all clients, and without any registration.
        directory: String = Default("https://acme-v02.api.letsencrypt.org/directory"),
            text(DIRECTORY_FORM, directory);
        /// Email addresses that the authority may write to; [] for none.
        /// Why: most authorities no longer write, and the metrics report a missed renewal.
        contact: Vec<String> = Default([]),
            list(text(CONTACT_FORM, contact), 0..=5, "one is enough");
        /// The folder of the account, the certificates and their keys; created with mode 0700.
        /// Why: next to the store; a backup of it saves an order, and is as secret as the keys.
        folder: PathBuf = Default("acme"), text("a path", path);
        /// The key id of an external account binding; "" for none.
        /// Why: only commercial authorities require one.
        eab_key_id: Option<String> = Default(""), text("a key id", optional_key_id);
        /// The file with its HMAC key in base64url, as the authority shows it; "" for none.
        /// Why: secrets live in files; configurations are shown and shared.
        eab_key_file: Option<PathBuf> = Default(""), text("a path", optional_path), reconnect;
        /// The file of certificates (PEM) that verify the directory; "" for the public ones.
        /// Why: a private authority is not among those that programs trust.
        ca_file: Option<PathBuf> = Default(""), text("a path", optional_path);
        /// address:port of an HTTP listener for the challenge http-01, usually 0.0.0.0:80; "" for
        /// none. Without it, the authority must reach a TLS listener at port 443 (tls-alpn-01).
        /// Why: port 443 is enough where it is ours, and a listener that is not needed is closed.
        http_address: Option<Listen> = Default(""), text(LISTEN_FORM, optional_listen);
        /// Whether that listener redirects all other requests to https:// (308); false: 404.
        /// Why: people type a name without its scheme.
        http_redirect: bool = Default(true), flag;
    }
}

impl AcmeConfig {
    /// The file of the certificate for these domains, with its key. Another authority or another
    /// set of domains has another file, so a changed configuration never uses the wrong one.
    fn file(&self, domains: &[String]) -> PathBuf {
        let mut sorted: Vec<&str> = domains.iter().map(String::as_str).collect();
        sorted.sort_unstable();
        let of_all = digest(&format!("{} {}", self.directory, sorted.join(" ")));
        let first = sorted.first().copied().unwrap_or_default();
        self.folder.join(format!("{first}-{of_all}.pem"))
    }

    /// Sets the files of a listener with domains.
    fn fill(&self, tls: &mut TlsConfig) {
        tls.certificate_file = self.file(&tls.domains);
        tls.key_file.clone_from(&tls.certificate_file);
    }

    /// The file of the account.
    pub fn account_file(&self) -> PathBuf {
        self.folder
            .join(format!("account-{}.json", digest(&self.directory)))
    }
}

/// Eight hexadecimal digits that distinguish files.
fn digest(text: &str) -> String {
    let hash = Sha256::digest(text);
    hash.iter()
        .take(4)
        .map(|byte| format!("{byte:02x}"))
        .collect()
}

impl Config {
    /// The listeners with domains.
    fn ordered(&mut self) -> impl Iterator<Item = (&'static str, &mut TlsConfig)> {
        let Self {
            gateway,
            relay,
            sidecar,
            admin,
            ..
        } = self;
        let gateway = gateway.as_mut().and_then(|of| of.live.tls.as_mut());
        let relay = relay.as_mut().and_then(|of| of.live.tls.as_mut());
        let sidecar = sidecar.as_mut().and_then(|of| of.live.tls.as_mut());
        let admin = admin.as_mut().and_then(|of| of.live.tls.as_mut());
        let all = [
            ("gateway.tls.domains", gateway),
            ("relay.tls.domains", relay),
            ("sidecar.tls.domains", sidecar),
            ("admin.tls.domains", admin),
        ];
        all.into_iter()
            .filter_map(|(key, tls)| Some((key, tls.filter(|of| of.is_ordered())?)))
    }

    /// Restores `[tls.acme]` as it was at the start: its keys need a restart.
    pub fn keep_acme(&mut self, acme: AcmeConfig) {
        self.ordered().for_each(|(_, tls)| acme.fill(tls));
        self.acme = Some(acme);
    }
}

/// Sets the files of the listeners with domains, and checks what they need.
pub(super) fn certificates(config: &mut Config, reader: &mut Reader<'_>) {
    let acme = config.acme.clone();
    for (key, tls) in config.ordered() {
        match &acme {
            Some(acme) => acme.fill(tls),
            None => {
                let message = "expected a section [tls.acme] with terms_accepted = true: the \
                               certificate is ordered by ACME";
                reader.conflict(key, "tls.acme.terms_accepted", message.to_owned());
            }
        }
    }
    if let Some(acme) = acme
        && acme.eab_key_id.is_some() != acme.eab_key_file.is_some()
    {
        let message = "expected both tls.acme.eab_key_id and tls.acme.eab_key_file, or neither";
        reader.conflict(
            "tls.acme.eab_key_id",
            "tls.acme.eab_key_file",
            message.to_owned(),
        );
    }
}

/// Parses the URL of a directory, which has to be https (RFC 8555, section 6.1).
fn directory(text: &str) -> Result<String, String> {
    let url = NodeUrl::parse(text)?;
    match url.scheme {
        Scheme::Https => Ok(url.to_string()),
        Scheme::Http => Err("ACME requires https://".to_owned()),
    }
}

fn contact(text: &str) -> Result<String, String> {
    let text = text.strip_prefix("mailto:").unwrap_or(text);
    let is_part = |part: &str| {
        let symbol = |byte: u8| byte.is_ascii_graphic() && !b"?&%,;<>\"".contains(&byte);
        !part.is_empty() && part.bytes().all(symbol)
    };
    match text.split_once('@') {
        Some((local, host)) if is_part(local) && is_part(host) && !host.contains('@') => {
            Ok(format!("mailto:{text}"))
        }
        _ => Err(String::new()),
    }
}

fn optional_key_id(text: &str) -> Result<Option<String>, String> {
    match text {
        "" => Ok(None),
        _ if text.bytes().all(|byte| byte.is_ascii_graphic()) => Ok(Some(text.to_owned())),
        _ => Err(String::new()),
    }
}

fn optional_listen(text: &str) -> Result<Option<Listen>, String> {
    if text.is_empty() {
        Ok(None)
    } else {
        Listen::parse(text).map(Some)
    }
}
