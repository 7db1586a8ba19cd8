//! A request's head: a line with the peer's address, then the head as HTTP/1.1 sends it. The client
//! is the one that a plain walk finds; the gateway admits exactly the calls whose framing and media
//! type are certain; the relay admits nothing without its token.
#![no_main]

use http::{HeaderMap, HeaderName, HeaderValue, Version};
use libfuzzer_sys::fuzz_target;
use portcullis_filters::client::{Client, ClientKey, MAX_HOPS};
use portcullis_filters::head::Head;
use portcullis_filters::limit::{Millis, Quota, RateCheck, RateLimiter};
use portcullis_filters::policy::{Admitted, GatewayPolicy, RelayPolicy};
use portcullis_fuzz::{TOKEN, gateway, relay};
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::net::{IpAddr, Ipv4Addr, SocketAddrV4, SocketAddrV6};
use std::num::NonZeroU32;
use std::sync::LazyLock;

type Limiter = RateLimiter<BuildHasherDefault<DefaultHasher>>;

static GATEWAY: LazyLock<GatewayPolicy> = LazyLock::new(gateway);
static RELAY: LazyLock<RelayPolicy> = LazyLock::new(relay);
static LIMITER: LazyLock<Limiter> = LazyLock::new(|| {
    let quota = Quota::per_minute(Quota::MAX).expect("the largest");
    RateLimiter::new(quota, NonZeroU32::MIN, BuildHasherDefault::default())
});

type Fields<'a> = Vec<(&'a str, &'a [u8])>;

fuzz_target!(|data: &[u8]| {
    let Some(end) = data.iter().position(|byte| *byte == b'\n') else {
        return;
    };
    let (peer, raw) = data.split_at(end);
    let peer = std::str::from_utf8(peer)
        .ok()
        .and_then(|peer| peer.parse().ok());
    let raw = &raw[1..];
    let mut fields = [httparse::EMPTY_HEADER; 64];
    let mut request = httparse::Request::new(&mut fields);
    // without the body: the policies judge a head alone
    let Ok(httparse::Status::Complete(end)) = request.parse(raw) else {
        return;
    };
    let raw = &raw[..end];
    let fields: Fields<'_> = request
        .headers
        .iter()
        .map(|field| (field.name, field.value))
        .collect();
    let mut headers = HeaderMap::new();
    for (name, value) in &fields {
        let name = HeaderName::from_bytes(name.as_bytes()).expect("a name");
        let Ok(value) = HeaderValue::from_bytes(value) else {
            return;
        };
        headers.append(name, value);
    }
    let version = if request.version == Some(1) {
        Version::HTTP_11
    } else {
        Version::HTTP_10
    };
    let (method, target) = (
        request.method.expect("a method"),
        request.path.expect("a target"),
    );
    let (target, headers) = (target.as_bytes(), &headers);
    let head = Head {
        method,
        target,
        version,
        headers,
        raw,
        peer,
    };

    let client = plain_client(peer, &fields);
    let judged = GATEWAY.judge(&head);
    let admission = GATEWAY.admit(&judged, &*LIMITER, Millis(0), |_| Some(()));
    assert_eq!(admission.client, Client::at(client), "{fields:?}");
    assert_key(client, admission.client.key);
    let is_call = matches!(admission.verdict, Ok(Admitted::Call(_)));
    assert_eq!(
        is_call,
        is_plain_call(&head, &fields),
        "{method} {fields:?}"
    );

    let failed = |client| RateCheck::Decided(LIMITER.check(client, Millis(0)));
    let admission = RELAY.admit(&head, &*LIMITER, Millis(0), failed, |_| Some(()));
    if matches!(
        admission.verdict,
        Ok(Admitted::Call(_) | Admitted::Preflight)
    ) {
        let expected = format!("bearer {TOKEN}");
        let sent = values(&fields, "authorization");
        let [only] = sent.as_slice() else {
            panic!("one token: {sent:?}")
        };
        let (scheme, token) = only.split_at(expected.len() - TOKEN.len());
        assert!(
            scheme.trim_ascii().eq_ignore_ascii_case(b"bearer")
                && token.trim_ascii() == TOKEN.as_bytes()
        );
    }
});

fn values<'a>(fields: &Fields<'a>, name: &str) -> Vec<&'a [u8]> {
    let named = fields
        .iter()
        .filter(|(field, _)| field.eq_ignore_ascii_case(name));
    named.map(|(_, value)| value.trim_ascii()).collect()
}

/// One framing, one length that fits, one media type, no coding.
fn is_plain_call(head: &Head<'_>, fields: &Fields<'_>) -> bool {
    let is = |value: &[u8], text: &str| value.eq_ignore_ascii_case(text.as_bytes());
    let lengths = values(fields, "content-length");
    let length = lengths
        .first()
        .and_then(|text| std::str::from_utf8(text).ok()?.parse().ok());
    let framed = match values(fields, "transfer-encoding").as_slice() {
        [] => true,
        [one] => is(one, "chunked") && lengths.is_empty(),
        _ => false,
    };
    let typed = match values(fields, "content-type").as_slice() {
        [one] => one
            .split(|byte| *byte == b';')
            .next()
            .is_some_and(|essence| is(essence.trim_ascii(), "application/json")),
        _ => false,
    };
    let uncoded = match values(fields, "content-encoding").as_slice() {
        [] => true,
        [one] => is(one, "identity"),
        _ => false,
    };
    let old = head.version < Version::HTTP_11;
    let expected = match values(fields, "expect").as_slice() {
        [] => true,
        [one] => old || is(one, "100-continue"),
        _ => old,
    };
    let has_host = old || !values(fields, "host").is_empty();
    let routed = head.method == "POST" && head.target == b"/rpc";
    routed
        && framed
        && typed
        && uncoded
        && expected
        && has_host
        && length.unwrap_or(0_usize) <= 65_536
}

fn is_proxy(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(v4) => matches!(v4.octets()[0], 10 | 127),
        IpAddr::V6(v6) => v6.segments()[..2] == [0x2001, 0xdb8],
    }
}

/// The first hop from the right that is no proxy, else the leftmost; the peer if a hop on the way
/// is no address.
fn plain_client(peer: Option<IpAddr>, fields: &Fields<'_>) -> IpAddr {
    let peer = peer.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    if !is_proxy(peer) {
        return peer;
    }
    let named = fields
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("x-forwarded-for"));
    let values: Vec<&[u8]> = named.map(|(_, value)| *value).collect();
    let all = values.join(&b',');
    let hops: Vec<&[u8]> = match values.is_empty() {
        true => Vec::new(),
        false => all.split(|byte| *byte == b',').collect(),
    };
    let mut client = peer;
    for (place, hop) in hops.iter().rev().enumerate() {
        match plain_hop(hop) {
            Some(address) if place < MAX_HOPS => client = address,
            _ => return peer,
        }
        if !is_proxy(client) {
            break;
        }
    }
    client
}

fn plain_hop(hop: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(hop).ok()?.trim_matches([' ', '\t']);
    let bare = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let bracketed = bare.and_then(|text| text.parse().ok()).map(IpAddr::V6);
    let v4 = || {
        text.parse::<SocketAddrV4>()
            .ok()
            .map(|socket| IpAddr::V4(*socket.ip()))
    };
    let v6 = || {
        text.parse::<SocketAddrV6>()
            .ok()
            .map(|socket| IpAddr::V6(*socket.ip()))
    };
    let address = text.parse().ok().or(bracketed).or_else(v4).or_else(v6);
    address.filter(|_| !text.contains('%'))
}

/// IPv4 counts by address, IPv6 by /64.
fn assert_key(address: IpAddr, key: ClientKey) {
    let other = match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V6(v4.to_ipv6_mapped()),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() | u128::from(u64::MAX)).into()),
    };
    assert_eq!(ClientKey::of(other), key);
    let beyond = match address.to_canonical() {
        IpAddr::V4(v4) => IpAddr::V4((v4.to_bits() ^ 1).into()),
        IpAddr::V6(v6) => IpAddr::V6((v6.to_bits() ^ (1 << 64)).into()),
    };
    assert_ne!(ClientKey::of(beyond), key);
}
