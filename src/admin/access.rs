//! Who may look at the operator's page.
//!
//! With a token: whoever has it, as a bearer or as the password of HTTP Basic, which is how a
//! browser asks for one (RFC 6750, section 2.1; RFC 7617). Without one: whoever reaches the
//! listener, which then is a local one. A web page of somebody else reaches it, too, through its
//! visitor's browser: so the name that the browser was told must be one of this machine's, and the
//! request the page's own, or a person's who follows a link.

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

/// A credential that is longer is none: a token has at most 4 KiB.
const LONGEST: usize = 8 << 10;

/// Who may look.
pub struct Access {
    tokens: ArcSwapOption<Tokens>,
    listen: Listen,
}

/// Why somebody may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Denied {
    /// The token is missing or wrong.
    Token,
    /// The browser was led here under a name that is not this machine's.
    Name,
    /// Another web page asks.
    Elsewhere,
}

impl Access {
    /// Reads the token, if one is configured.
    ///
    /// # Errors
    /// Its file can not be used.
    pub fn load(config: &AdminConfig) -> Result<Option<Tokens>, SecretError> {
        let Some(file) = &config.token_file else { return Ok(None) };
        let token = secrets::read(file)?;
        let tokens = Tokens::new(slice::from_ref(&token)).ok_or_else(|| {
            SecretError::not(file, "a token: at least 32 visible ASCII characters on one line")
        })?;
        Ok(Some(tokens))
    }

    /// For a listener at this address; with tokens, only for whoever has one.
    pub fn new(listen: Listen, tokens: Option<Tokens>) -> Self {
        Self { tokens: ArcSwapOption::from(tokens.map(Arc::new)), listen }
    }

    /// Takes over other tokens, and says whether there are some. A listener that others can reach
    /// keeps the ones that it has rather than none.
    pub fn change(&self, tokens: Option<Tokens>) -> bool {
        let is_some = tokens.is_some();
        if is_some || self.listen.is_local() {
            self.tokens.store(tokens.map(Arc::new));
        }
        is_some
    }

    /// Whether this request shows the token, if one is asked for.
    pub(super) fn holds_token(&self, head: &Head<'_>) -> bool {
        let tokens = self.tokens.load();
        let Some(tokens) = &*tokens else { return true };
        tokens.authorize(head) || pair(head.headers).is_some_and(|pair| has_password(&pair, tokens))
    }

    /// Whether this request may see the page, or anything that the page asks for.
    pub(super) fn judge(&self, head: &Head<'_>) -> Result<(), Denied> {
        if !self.holds_token(head) {
            return Err(Denied::Token);
        }
        // a page elsewhere does not have the token, and no name leads to a Unix socket
        let is_open = self.tokens.load().is_none();
        if let Listen::Tcp(address) = &self.listen
            && is_open
            && !is_ours(head.headers, *address)
        {
            return Err(Denied::Name);
        }
        is_own(head.headers).then_some(()).ok_or(Denied::Elsewhere)
    }
}

/// The name and the password of a well-formed `Authorization: Basic`.
fn pair(headers: &HeaderMap) -> Option<Secret> {
    let mut values = headers.get_all(AUTHORIZATION).iter();
    let value = values.next().filter(|_| values.next().is_none())?.as_bytes();
    let (scheme, encoded) = value.split_at_checked(b"Basic ".len())?;
    if !scheme.eq_ignore_ascii_case(b"Basic ") || encoded.len() > LONGEST {
        return None;
    }
    STANDARD.decode(encoded).ok().map(Secret::new)
}

/// Whether what follows the first colon is one of the tokens: no name has a colon.
fn has_password(pair: &Secret, tokens: &Tokens) -> bool {
    let mut parts = pair.expose().splitn(2, |byte| *byte == b':');
    parts.nth(1).is_some_and(|password| tokens.contains(password))
}

/// Whether the only `Host` is a name of this machine's loopback, or where we listen. The port is
/// whatever a tunnel made of it.
fn is_ours(headers: &HeaderMap, listen: SocketAddr) -> bool {
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

/// Whether a browser asks for the page's own sake: <https://www.w3.org/TR/fetch-metadata/>. Who is
/// no browser does not say.
fn is_own(headers: &HeaderMap) -> bool {
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

    fn judged(access: &Access, fields: &[(&str, &str)]) -> Result<(), Denied> {
        let mut headers = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        let (version, headers) = (Version::HTTP_11, &headers);
        access.judge(&Head { method: "GET", target: b"/", version, headers, raw: b"", peer: None })
    }

    fn listening(text: &str) -> Listen {
        Listen::Tcp(text.parse().unwrap())
    }

    #[test]
    fn without_a_token_only_names_of_this_machine_lead_here() {
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
            let expected = if ok { Ok(()) } else { Err(Denied::Name) };
            assert_eq!(judged(&access, &[("host", host)]), expected, "{host:?}");
        }
        let twice = [("host", "localhost"), ("host", "localhost")];
        assert_eq!(judged(&access, &twice), Err(Denied::Name), "two hosts");
        assert_eq!(judged(&access, &[]), Err(Denied::Name), "no host");
    }

    #[test]
    fn no_name_leads_to_a_unix_socket() {
        let access = Access::new(Listen::Unix("/run/portcullis.sock".into()), None);
        assert_eq!(judged(&access, &[("host", "evil.example")]), Ok(()));
    }

    #[test]
    fn a_page_elsewhere_is_refused_whatever_name_it_uses() {
        let access = Access::new(listening("127.0.0.1:8083"), None);
        for (site, ok) in
            [("same-origin", true), ("none", true), ("same-site", false), ("cross-site", false)]
        {
            let fields = [("host", "localhost"), ("sec-fetch-site", site)];
            let expected = if ok { Ok(()) } else { Err(Denied::Elsewhere) };
            assert_eq!(judged(&access, &fields), expected, "{site}");
        }
        let cross = [("host", "localhost"), ("sec-fetch-site", "cross-site")];
        for (mode, dest, ok) in [
            ("navigate", "document", true),
            ("navigate", "iframe", false),
            ("no-cors", "script", false),
            ("no-cors", "document", false),
        ] {
            let fields = [cross[0], cross[1], ("sec-fetch-mode", mode), ("sec-fetch-dest", dest)];
            let expected = if ok { Ok(()) } else { Err(Denied::Elsewhere) };
            assert_eq!(judged(&access, &fields), expected, "{mode} {dest}: a link is followed");
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
            assert_eq!(judged(&access, &fields), expected, "{value}");
        }
        assert_eq!(judged(&access, &[("host", "localhost")]), Err(Denied::Token), "none");
        let good = format!("Bearer {TOKEN}");
        let twice = [("authorization", &*good), ("authorization", &good)];
        assert_eq!(judged(&access, &twice), Err(Denied::Token), "two");
    }

    #[test]
    fn a_listener_that_others_reach_never_loses_its_token() {
        let tokens = || Tokens::new(&[Secret::new(TOKEN.into())]);
        for (listen, expected) in
            [("192.0.2.1:8083", Err(Denied::Token)), ("127.0.0.1:8083", Ok(()))]
        {
            let access = Access::new(listening(listen), tokens());
            access.change(None);
            assert_eq!(judged(&access, &[("host", "localhost")]), expected, "{listen}");
        }
    }
}
