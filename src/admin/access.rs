//! Access to the operator's page.
//!
//! With a token: as a bearer token, or as the password of HTTP Basic, which browsers prompt for
//! (RFC 6750, section 2.1; RFC 7617). Without a token the listener is local, but other web pages
//! can reach it through the browser of their visitor (DNS rebinding, cross-site requests): so
//! `Host` must name this machine, and the request must come from the page itself or from a followed
//! link.

use crate::config::{AdminConfig, Listen};
use crate::secrets::{self, Secret, SecretError};
use arc_swap::ArcSwapOption;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::header::{AUTHORIZATION, HOST, HeaderMap, HeaderValue};
use portcullis_filters::bearer::Tokens;
use portcullis_filters::head::Head;
use std::net::{IpAddr, SocketAddr};
use std::slice;
use std::sync::Arc;

/// Longer credentials are refused: a token has at most 4 KiB.
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
    /// Its file is invalid.
    pub fn load(config: &AdminConfig) -> Result<Option<Tokens>, SecretError> {
        let file = config.token_file.as_ref();
        file.map(|file| secrets::tokens(slice::from_ref(file))).transpose()
    }

    /// For a listener at this address, which requires one of the tokens if there are some.
    pub fn new(listen: Listen, tokens: Option<Tokens>) -> Self {
        Self { tokens: ArcSwapOption::from(tokens.map(Arc::new)), listen }
    }

    /// Replaces the tokens, and returns whether there are new ones. A listener that is not local
    /// never loses its tokens.
    pub fn change(&self, tokens: Option<Tokens>) -> bool {
        let is_some = tokens.is_some();
        if is_some || self.listen.is_local() {
            self.tokens.store(tokens.map(Arc::new));
        }
        is_some
    }

    /// Whether the request has the token, if one is required.
    pub(super) fn holds_token(&self, head: &Head<'_>) -> bool {
        let tokens = self.tokens.load();
        let Some(tokens) = &*tokens else { return true };
        tokens.authorize(head)
            || credentials(head.headers).is_some_and(|pair| has_password(&pair, tokens))
    }

    /// Whether the request may see the page and its data.
    pub(super) fn check(&self, head: &Head<'_>) -> Result<(), Denied> {
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
        is_same_site(head.headers).then_some(()).ok_or(Denied::CrossSite)
    }
}

/// The user name and password of `Authorization: Basic`.
fn credentials(headers: &HeaderMap) -> Option<Secret> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?.as_bytes();
    let (scheme, encoded) = value.split_at_checked(b"Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") || encoded.len() > MAX_ENCODED {
        return None;
    }
    STANDARD.decode(encoded).ok().map(Secret::new)
}

/// Whether the password, which follows the first colon, is one of the tokens.
fn has_password(pair: &Secret, tokens: &Tokens) -> bool {
    let mut parts = pair.expose().splitn(2, |byte| *byte == b':');
    parts.nth(1).is_some_and(|password| tokens.contains(password))
}

/// Whether the only `Host` names the loopback interface or our own address. The port may be that of
/// a tunnel.
fn is_own_host(headers: &HeaderMap, listen: SocketAddr) -> bool {
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().filter(|_| hosts.next().is_none());
    let Some(host) = host.and_then(|host| host.to_str().ok()) else { return false };
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    };
    let literal = name.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(name);
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
    let from_here = matches!(field("sec-fetch-site"), None | Some(b"same-origin" | b"none"));
    let followed = field("sec-fetch-mode") == Some(b"navigate")
        && field("sec-fetch-dest") == Some(b"document");
    from_here || followed
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::secrets::Secret;
    use http::{HeaderName, Version};

    const TOKEN: &str = "operator-0123456789abcdef01234567";

    fn check(access: &Access, fields: &[(&str, &str)]) -> Result<(), Denied> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        let (version, headers) = (Version::HTTP_11, &headers);
        access.check(&Head { method: "GET", target: b"/", version, headers, raw: b"", peer: None })
    }

    fn listening(text: &str) -> Listen {
        Listen::Tcp(text.parse().unwrap())
    }

    #[test]
    fn without_a_token_the_host_names_this_machine() {
        let access = Access::new(listening("127.0.0.2:8083"), None);
        for (host, ok) in [
            ("127.0.0.1", true),
            ("127.0.0.1:8083", true),
            ("127.9.9.9:1", true),
            ("[::1]:8083", true),
            ("[::1]", true),
            ("[::ffff:127.0.0.1]:80", true),
            ("localhost", true),
            ("LocalHost:9000", true),
            ("localhost.", false),
            ("localhost.evil.example", false),
            ("evil.example", false),
            ("evil.example:8083", false),
            ("127.0.0.1.evil.example", false),
            ("10.0.0.1", false),
            ("0.0.0.0:8083", false),
            ("2130706433", false),
            ("", false),
            (":8083", false),
            ("localhost:80a", false),
        ] {
            let expected = if ok { Ok(()) } else { Err(Denied::Host) };
            assert_eq!(check(&access, &[("host", host)]), expected, "{host:?}");
        }
        let twice = [("host", "localhost"), ("host", "localhost")];
        assert_eq!(check(&access, &twice), Err(Denied::Host), "two hosts");
        assert_eq!(check(&access, &[]), Err(Denied::Host), "no host");
    }

    #[test]
    fn no_name_leads_to_a_unix_socket() {
        let access = Access::new(Listen::Unix("/run/portcullis.sock".into()), None);
        assert_eq!(check(&access, &[("host", "evil.example")]), Ok(()));
    }

    #[test]
    fn a_page_elsewhere_is_refused_whatever_name_it_uses() {
        let access = Access::new(listening("127.0.0.1:8083"), None);
        for (site, ok) in
            [("same-origin", true), ("none", true), ("same-site", false), ("cross-site", false)]
        {
            let fields = [("host", "localhost"), ("sec-fetch-site", site)];
            let expected = if ok { Ok(()) } else { Err(Denied::CrossSite) };
            assert_eq!(check(&access, &fields), expected, "{site}");
        }
        let cross = [("host", "localhost"), ("sec-fetch-site", "cross-site")];
        for (mode, dest, ok) in [
            ("navigate", "document", true),
            ("navigate", "iframe", false),
            ("no-cors", "script", false),
            ("no-cors", "document", false),
        ] {
            let fields = [cross[0], cross[1], ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
            let expected = if ok { Ok(()) } else { Err(Denied::CrossSite) };
            assert_eq!(check(&access, &fields), expected, "{mode} {dest}: a link is followed");
        }
    }

    #[test]
    fn with_a_token_it_opens_as_a_bearer_and_as_a_password_of_anybody() {
        let tokens = Tokens::new(&[Secret::new(TOKEN.into())]);
        let access = Access::new(listening("192.0.2.1:8083"), tokens);
        let basic = |text: &str| format!("Basic {}", STANDARD.encode(text));
        for (value, ok) in [
            (format!("Bearer {TOKEN}"), true),
            (basic(&format!("operator:{TOKEN}")), true),
            (basic(&format!(":{TOKEN}")), true),
            (basic(&format!("a:b:{TOKEN}")), false),
            (basic(TOKEN), false),
            (basic(&format!("{TOKEN}:")), false),
            (basic(&format!("operator:{TOKEN}x")), false),
            (format!("Basic {TOKEN}"), false),
            ("Basic ".to_owned(), false),
            (TOKEN.to_owned(), false),
        ] {
            let fields = [("authorization", &*value), ("host", "metrics.example")];
            let expected = if ok { Ok(()) } else { Err(Denied::Token) };
            assert_eq!(check(&access, &fields), expected, "{value}");
        }
        assert_eq!(check(&access, &[("host", "localhost")]), Err(Denied::Token), "none");
        let good = format!("Bearer {TOKEN}");
        let twice = [("authorization", &*good), ("authorization", &good)];
        assert_eq!(check(&access, &twice), Err(Denied::Token), "two");
    }

    #[test]
    fn a_listener_that_others_reach_never_loses_its_token() {
        let tokens = || Tokens::new(&[Secret::new(TOKEN.into())]);
        for (listen, expected) in
            [("192.0.2.1:8083", Err(Denied::Token)), ("127.0.0.1:8083", Ok(()))]
        {
            let access = Access::new(listening(listen), tokens());
            access.change(None);
            assert_eq!(check(&access, &[("host", "localhost")]), expected, "{listen}");
        }
    }
}
