//! Access to the operator's page.
//!
//! With a token: as a bearer token, or as the password of HTTP Basic, which browsers prompt for
//! (RFC 6750, section 2.1; RFC 7617). Without a token the listener is local, but other web pages
//! can reach it through a visitor's browser (DNS rebinding, cross-site requests). So `Host` must
//! name this machine, and the request must come from the page itself or from a followed link.

use arc_swap::ArcSwapOption;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue};
use portcullis_base::config::{AdminLive, Listen};
use portcullis_base::secrets::{self, Secret, SecretErrors};
use portcullis_filters::bearer::Tokens;
use portcullis_filters::head::Head;
use std::net::{IpAddr, SocketAddr};
use std::slice;
use std::sync::Arc;

/// The longest credentials that are decoded; a token has at most 4 KiB.
const MAX_ENCODED: usize = 8 << 10;

/// Decides who may see the operator's page.
pub struct Access {
    tokens: ArcSwapOption<Tokens>,
    listen: Listen,
}

/// Why a request is denied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// The token is missing or wrong.
    Token,
    /// `Host` does not name this machine.
    Host,
    /// The request comes from another web page.
    CrossSite,
}

impl Access {
    /// Reads the token, if one is configured.
    ///
    /// # Errors
    /// Fails if the file is invalid.
    pub fn load(config: &AdminLive) -> Result<Option<Tokens>, SecretErrors> {
        match &config.token_file {
            Some(file) => secrets::tokens("admin.token_file", slice::from_ref(file)).map(Some),
            None => Ok(None),
        }
    }

    /// Guards a listener at this address, which requires one of the tokens if there are any.
    pub fn new(listen: Listen, tokens: Option<Tokens>) -> Self {
        Self {
            tokens: ArcSwapOption::from(tokens.map(Arc::new)),
            listen,
        }
    }

    /// Replaces the tokens. A listener that is not local never loses its tokens.
    pub fn change(&self, tokens: Option<Tokens>) {
        if tokens.is_some() || self.listen.is_local() {
            self.tokens.store(tokens.map(Arc::new));
        }
    }

    /// Whether the request has the token, if one is required.
    fn holds_token(&self, head: &Head<'_>) -> bool {
        let tokens = self.tokens.load();
        let Some(tokens) = &*tokens else { return true };
        tokens.authorize(head)
            || credentials(head.headers).is_some_and(|pair| has_password(&pair, tokens))
    }

    /// Checks that the request may see the page and its data.
    pub(super) fn check(&self, head: &Head<'_>) -> Result<(), Denied> {
        self.check_scrape(head)?;
        is_same_site(head.headers)
            .then_some(())
            .ok_or(Denied::CrossSite)
    }

    /// Checks that the request may see the metrics.
    pub(super) fn check_scrape(&self, head: &Head<'_>) -> Result<(), Denied> {
        if !self.holds_token(head) {
            return Err(Denied::Token);
        }
        // other pages do not know the token, and no host name leads to a Unix socket
        let is_open = self.tokens.load().is_none();
        if let Listen::Tcp(address) = &self.listen
            && is_open
            && !is_own_host(head.headers, *address)
        {
            return Err(Denied::Host);
        }
        Ok(())
    }
}

/// The user name and password of `Authorization: Basic`.
fn credentials(headers: &HeaderMap) -> Option<Secret> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values
        .next()
        .filter(|_| values.next().is_none())?
        .as_bytes();
    let (scheme, encoded) = value.split_at_checked(b"Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") || encoded.len() > MAX_ENCODED {
        return None;
    }
    STANDARD.decode(encoded).ok().map(Secret::new)
}

/// Whether the password, which follows the first colon, is one of the tokens.
fn has_password(pair: &Secret, tokens: &Tokens) -> bool {
    let mut parts = pair.expose().splitn(2, |byte| *byte == b':');
    parts
        .nth(1)
        .is_some_and(|password| tokens.contains(password))
}

/// Whether the only `Host` names the loopback interface or our own address. The port may be that of
/// a tunnel.
fn is_own_host(headers: &HeaderMap, listen: SocketAddr) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().filter(|_| hosts.next().is_none());
    let Some(host) = host.and_then(|host| host.to_str().ok()) else {
        return false;
    };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let literal = name
        .strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .unwrap_or(name);
    match literal.parse::<IpAddr>() {
        Ok(address) => {
            let address = address.to_canonical();
            address.is_loopback() || address == listen.ip().to_canonical()
        }
        Err(_) => name.eq_ignore_ascii_case("localhost"),
    }
}

/// Whether the request comes from the page or a followed link, by the fields that browsers send:
/// <https://www.w3.org/TR/fetch-metadata/>.
fn is_same_site(headers: &HeaderMap) -> bool {
    let field = |name| headers.get(name).map(HeaderValue::as_bytes);
    let from_here = matches!(
        field("sec-fetch-site"),
        None | Some(b"same-origin" | b"none")
    );
    let followed = field("sec-fetch-mode") == Some(b"navigate")
        && field("sec-fetch-dest") == Some(b"document");
    from_here || followed
}
