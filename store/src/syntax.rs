//! The syntax of AT Protocol's identifiers, of URLs and texts.
//!
//! Stricter than the specifications where those allow two spellings of one value.

/// 2,047 bytes: the limit of sitemaps and of most clients.
const MAX_URL: usize = 2_047;
/// 700 bytes: a feed's cursor of 1 KiB holds one.
const MAX_AT_URI: usize = 700;
/// 256 bytes: `did:web:` and a full host name with its port.
const MAX_DID: usize = 256;

/// Whether this is a UUID in its canonical form: lower case, with hyphens.
pub fn is_uuid(text: &str) -> bool {
    let canonical = uuid::Uuid::try_parse(text)
        .ok()
        .map(|uuid| uuid.to_string());
    canonical.as_deref() == Some(text)
}

/// AT Protocol, "DID": `did:`, a method in lower case, an identifier.
pub fn is_did(text: &str) -> bool {
    let Some((method, id)) = text
        .strip_prefix("did:")
        .and_then(|rest| rest.split_once(':'))
    else {
        return false;
    };
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._:%-".contains(&byte);
    match method {
        "plc" => is_plc(id),
        _ => {
            let has_method = !method.is_empty() && method.bytes().all(|b| b.is_ascii_lowercase());
            let ends_well = !id.is_empty() && !id.ends_with([':', '%']);
            text.len() <= MAX_DID && has_method && ends_well && id.bytes().all(is_known)
        }
    }
}

/// The identifier of a `did:plc`: 24 characters of base32.
pub fn is_plc(id: &str) -> bool {
    id.len() == 24
        && id
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'2'..=b'7'))
}

/// AT Protocol, "Handle": a domain name of at least two labels in lower case, without port. The
/// last label starts with a letter: anything else could be resolved as an IPv4 address.
pub fn is_domain(text: &str) -> bool {
    let is_label = |label: &str| {
        let is_known = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-');
        (1..=63).contains(&label.len())
            && label.bytes().all(is_known)
            && !label.starts_with('-')
            && !label.ends_with('-')
    };
    let Some((_, last)) = text.rsplit_once('.') else {
        return false;
    };
    let is_named = last.starts_with(|letter: char| letter.is_ascii_lowercase());
    text.len() <= 253 && is_named && text.split('.').all(is_label)
}

/// AT Protocol, "AT URI", of a record. Its authority is a DID, as handles change owners.
pub fn is_at_uri(text: &str) -> bool {
    let Some(rest) = text.strip_prefix("at://") else {
        return false;
    };
    let parts: Vec<&str> = rest.split('/').collect();
    let [did, collection, key] = parts.as_slice() else {
        return false;
    };
    text.len() <= MAX_AT_URI && is_did(did) && is_nsid(collection) && is_record_key(key)
}

fn is_nsid(text: &str) -> bool {
    let Some((domain, name)) = text.rsplit_once('.') else {
        return false;
    };
    let is_name = |byte: u8| byte.is_ascii_alphanumeric();
    let is_named = name.starts_with(|letter: char| letter.is_ascii_alphabetic());
    let domain = domain.to_ascii_lowercase();
    let starts_well = domain.starts_with(|letter: char| letter.is_ascii_lowercase());
    let is_part = |part: &str| {
        !part.is_empty()
            && part
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
    };
    text.len() <= 317
        && is_named
        && name.bytes().all(is_name)
        && starts_well
        && domain.contains('.')
        && domain.split('.').all(is_part)
}

/// Whether the text is a record key of AT Protocol.
pub fn is_record_key(text: &str) -> bool {
    let is_known = |byte: u8| byte.is_ascii_alphanumeric() || b"._:~-".contains(&byte);
    (1..=512).contains(&text.len()) && text.bytes().all(is_known) && !matches!(text, "." | "..")
}

/// A URL with a host and without user information; non-ASCII is percent-encoded.
pub fn is_url(text: &str, schemes: &[&str]) -> bool {
    let Some(rest) = schemes.iter().find_map(|scheme| text.strip_prefix(scheme)) else {
        return false;
    };
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let (host, port) = match authority.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (authority, None),
    };
    let is_host_byte = |byte: u8| byte.is_ascii_alphanumeric() || b"-.[]:".contains(&byte);
    let is_port = port.is_none_or(|port| port.parse().is_ok_and(|port: u16| port > 0));
    text.len() <= MAX_URL
        && is_visible(text)
        && !text.contains(['"', '<', '>', '\\', '^', '`', '{', '|', '}'])
        && !host.is_empty()
        && host.bytes().all(is_host_byte)
        && is_port
}

/// A URL of this origin, without a fragment. Another port is another origin.
pub fn is_page_of(origin: &str, url: &str) -> bool {
    url.split_at_checked(origin.len())
        .is_some_and(|(start, rest)| {
            let is_ended = rest.is_empty() || rest.starts_with(['/', '?']);
            start.eq_ignore_ascii_case(origin) && is_ended && !rest.contains('#')
        })
}

pub(crate) fn is_email(text: &str) -> bool {
    let Some((local, domain)) = text.split_once('@') else {
        return false;
    };
    let has_parts = !local.is_empty() && domain.split('.').count() > 1;
    text.len() <= 254
        && is_visible(text)
        && has_parts
        && domain.split('.').all(|part| !part.is_empty())
        && !domain.contains('@')
}

/// BCP 47, the part that feeds use: a language and subtags.
pub(crate) fn is_language(text: &str) -> bool {
    let mut parts = text.split('-');
    let first = parts.next().unwrap_or_default();
    let is_first =
        matches!(first.len(), 2 | 3) && first.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_part = |part: &str| {
        matches!(part.len(), 1..=8) && part.bytes().all(|byte| byte.is_ascii_alphanumeric())
    };
    is_first && text.len() <= 35 && parts.all(is_part)
}

/// RFC 5870, the part that feeds use: `geo:` and two or three coordinates, without parameters.
pub(crate) fn is_geo(text: &str) -> bool {
    let Some(coordinates) = text.strip_prefix("geo:") else {
        return false;
    };
    matches!(coordinates.split(',').count(), 2 | 3) && coordinates.split(',').all(is_coordinate)
}

fn is_coordinate(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    [whole, fraction]
        .iter()
        .all(|digits| matches!(digits.len(), 1..=12) && is_decimal(digits))
}

/// The podcast namespace, "location": the type of an object of OpenStreetMap, its number and, after
/// `#`, its version.
pub(crate) fn is_osm(text: &str) -> bool {
    let Some(object) = text.strip_prefix(['N', 'W', 'R']) else {
        return false;
    };
    let (number, version) = object.split_once('#').unwrap_or((object, "1"));
    [number, version]
        .iter()
        .all(|digits| matches!(digits.len(), 1..=19) && is_decimal(digits))
}

fn is_decimal(text: &str) -> bool {
    text.bytes().all(|byte| byte.is_ascii_digit())
}

pub(crate) fn is_visible(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether a text is not blank, and has no control characters but tabs and line ends: PostgreSQL
/// stores no NUL, and XML allows no others.
pub(crate) fn is_text(text: &str) -> bool {
    let is_known = |letter: char| !letter.is_control() || matches!(letter, '\t' | '\n' | '\r');
    !text.trim().is_empty() && text.chars().all(is_known)
}

pub(crate) fn is_tag(text: &str) -> bool {
    let is_known = |letter: char| !letter.is_control() && letter != ',';
    !text.is_empty()
        && text.trim() == text
        && text.chars().all(is_known)
        && text.to_lowercase() == text
}
