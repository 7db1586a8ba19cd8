//! The client of a request.
//!
//! In: the socket's peer, the `X-Forwarded-For` values and the trusted proxies. Out: a [`Client`]:
//! one address for the log and one [`ClientKey`] to count by.
//!
//! The header is read from the right, the end that our own proxies wrote, up to the first hop that
//! is not one of them. Nothing here allocates or resolves a name. Next: `limit`, which counts by
//! the key.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::networks::Networks;

/// The most hops of `X-Forwarded-For` that are read; no honest chain of proxies is longer.
pub const MAX_HOPS: usize = 64;

/// The key that requests are counted by: one IPv4 address, or one IPv6 /64.
///
/// An IPv4 address is the key `0x0000_0000_aabb_ccdd`. The /64s with such a prefix lie in `::/8`,
/// which the IETF has reserved (RFC 4291), so no client's network shares a key with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientKey(u64);

impl ClientKey {
    /// The key of an address; an IPv4-mapped one (`::ffff:a.b.c.d`) counts as IPv4.
    #[must_use]
    pub fn of(address: IpAddr) -> Self {
        match address.to_canonical() {
            IpAddr::V4(v4) => Self(u64::from(v4.to_bits())),
            IpAddr::V6(v6) => {
                let [a, b, c, d, e, f, g, h, ..] = v6.octets();
                Self(u64::from_be_bytes([a, b, c, d, e, f, g, h]))
            }
        }
    }

    /// The counted address; for an IPv6 network, its first one.
    #[must_use]
    pub fn address(self) -> IpAddr {
        match u32::try_from(self.0) {
            Ok(v4) => IpAddr::V4(Ipv4Addr::from_bits(v4)),
            Err(_) => IpAddr::V6(Ipv6Addr::from_bits(u128::from(self.0) << 64)),
        }
    }
}

/// The networks whose `X-Forwarded-For` is trusted.
pub type TrustedProxies = Networks;

/// The client of one request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Client {
    /// The address; never IPv4-mapped.
    pub address: IpAddr,
    /// The key that its requests are counted by.
    pub key: ClientKey,
}

impl Client {
    /// The client with this address.
    #[must_use]
    pub fn at(address: IpAddr) -> Self {
        let address = address.to_canonical();
        Self {
            address,
            key: ClientKey::of(address),
        }
    }

    /// The client that sent a request.
    ///
    /// `peer` is the other end of the socket, or the client that its PROXY header names; `None` is
    /// a Unix socket and counts as `127.0.0.1`.
    /// `forwarded` holds the values of all `X-Forwarded-For` headers in their order, each a list
    /// with commas. An untrusted peer is the client, whatever the header says. Otherwise the client
    /// is the first untrusted hop from the right, or the leftmost if all are trusted. A malformed
    /// hop on the way, or more than [`MAX_HOPS`], falls back to the peer.
    #[must_use]
    pub fn identify<'a>(
        peer: Option<IpAddr>,
        forwarded: impl DoubleEndedIterator<Item = &'a [u8]>,
        trusted: &TrustedProxies,
    ) -> Self {
        let peer = peer.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
        if !trusted.contains(peer) {
            return Self::at(peer);
        }
        let hops = forwarded
            .rev()
            .flat_map(|value| value.rsplit(|byte| *byte == b','));
        let mut client = peer;
        for (place, hop) in hops.enumerate() {
            match parse_hop(hop) {
                Some(address) if place < MAX_HOPS => client = address,
                _ => return Self::at(peer),
            }
            if !trusted.contains(client) {
                break;
            }
        }
        Self::at(client)
    }

    /// This client's address as the log shows it.
    #[must_use]
    pub fn shown(&self, shown: Shown) -> impl fmt::Display + use<> {
        ShownAddress {
            address: self.address,
            shown,
        }
    }
}

/// Parses one hop: an address, alone or with a port, and blanks around it.
fn parse_hop(hop: &[u8]) -> Option<IpAddr> {
    let text = str::from_utf8(hop).ok()?.trim_matches([' ', '\t']);
    if let Some(rest) = text.strip_prefix('[') {
        let (address, port) = rest.split_once(']')?;
        let port_fits = port.is_empty() || is_port(port.strip_prefix(':')?);
        return address
            .parse::<Ipv6Addr>()
            .ok()
            .filter(|_| port_fits)
            .map(IpAddr::V6);
    }
    if let Ok(address) = text.parse() {
        return Some(address);
    }
    let (address, port) = text.split_once(':')?;
    address
        .parse::<Ipv4Addr>()
        .ok()
        .filter(|_| is_port(port))
        .map(IpAddr::V4)
}

fn is_port(text: &str) -> bool {
    // `u16` alone would also accept `+80`
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// How much of a client's address the log shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    /// The whole address.
    Full,
    /// The network: `192.0.2.0/24` for IPv4, `2001:db8::/48` for IPv6.
    Truncated,
}

struct ShownAddress {
    address: IpAddr,
    shown: Shown,
}

impl fmt::Display for ShownAddress {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.shown, self.address) {
            (Shown::Full, address) => address.fmt(out),
            (Shown::Truncated, IpAddr::V4(v4)) => {
                let [a, b, c, _] = v4.octets();
                write!(out, "{}/24", Ipv4Addr::from([a, b, c, 0]))
            }
            (Shown::Truncated, IpAddr::V6(v6)) => {
                let [a, b, c, ..] = v6.segments();
                write!(out, "{}/48", Ipv6Addr::from([a, b, c, 0, 0, 0, 0, 0]))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ipnet::IpNet;
    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn trusting(networks: &[&str]) -> TrustedProxies {
        networks
            .iter()
            .map(|text| text.parse().unwrap())
            .collect::<Vec<IpNet>>()
            .into()
    }

    fn identify(peer: &str, headers: &[&str], trusted: &TrustedProxies) -> IpAddr {
        let peer = (peer != "unix").then(|| ip(peer));
        Client::identify(peer, headers.iter().map(|value| value.as_bytes()), trusted).address
    }

    #[test]
    fn the_client_is_the_rightmost_untrusted_hop() {
        let trusted = trusting(&["127.0.0.0/8", "::1/128", "10.0.0.0/8", "2001:db8:aa::/48"]);
        let cases: &[(&str, &str, &[&str], &str)] = &[
            ("no header", "127.0.0.1", &[], "127.0.0.1"),
            (
                "an untrusted peer is not believed",
                "192.0.2.9",
                &["198.51.100.1"],
                "192.0.2.9",
            ),
            ("one hop", "127.0.0.1", &["198.51.100.1"], "198.51.100.1"),
            (
                "a hop that the client made up",
                "127.0.0.1",
                &["1.1.1.1, 192.0.2.1"],
                "192.0.2.1",
            ),
            (
                "trusted hops are passed",
                "::1",
                &["1.1.1.1,192.0.2.1,10.9.9.9"],
                "192.0.2.1",
            ),
            (
                "several headers are one list",
                "::1",
                &["1.1.1.1", "192.0.2.1", "10.1.1.1"],
                "192.0.2.1",
            ),
            (
                "all trusted: the leftmost",
                "127.0.0.1",
                &["10.0.0.7, 10.0.0.8"],
                "10.0.0.7",
            ),
            (
                "a Unix socket is loopback",
                "unix",
                &["192.0.2.1"],
                "192.0.2.1",
            ),
            ("a Unix socket without a header", "unix", &[], "127.0.0.1"),
            (
                "a mapped peer is IPv4",
                "::ffff:10.0.0.1",
                &["192.0.2.1"],
                "192.0.2.1",
            ),
            (
                "a mapped hop is IPv4",
                "::1",
                &["192.0.2.1, ::ffff:10.0.0.1"],
                "192.0.2.1",
            ),
            (
                "a mapped client is shown as IPv4",
                "::1",
                &["::ffff:192.0.2.1"],
                "192.0.2.1",
            ),
            ("blanks and tabs", "::1", &["\t 192.0.2.1 \t"], "192.0.2.1"),
            ("a port", "::1", &["192.0.2.1:65535"], "192.0.2.1"),
            ("IPv6", "::1", &["2001:db8::1"], "2001:db8::1"),
            ("IPv6 in brackets", "::1", &["[2001:db8::1]"], "2001:db8::1"),
            (
                "IPv6 with a port",
                "::1",
                &["[2001:db8::1]:443"],
                "2001:db8::1",
            ),
            (
                "IPv6 of a trusted network",
                "::1",
                &["192.0.2.1, [2001:db8:aa::5]:1"],
                "192.0.2.1",
            ),
            (
                "rubbish left of the client",
                "::1",
                &["rubbish, , 192.0.2.1"],
                "192.0.2.1",
            ),
            (
                "rubbish left of all headers",
                "::1",
                &["\u{fffd}", "192.0.2.1"],
                "192.0.2.1",
            ),
        ];
        for (what, peer, headers, client) in cases {
            assert_eq!(identify(peer, headers, &trusted), ip(client), "{what}");
        }
    }

    #[test]
    fn a_malformed_hop_falls_back_to_the_peer() {
        let trusted = trusting(&["10.0.0.0/8"]);
        let malformed = [
            "",
            " ",
            "unknown",
            "_hidden",
            "localhost",
            "192.0.2",
            "192.0.2.256",
            "192.0.2.01",
            "192.0.2.1:",
            "192.0.2.1:+80",
            "192.0.2.1:65536",
            "192.0.2.1:80:80",
            "192.0.2.1 80",
            "192.0.2.1/32",
            "[192.0.2.1]",
            "[192.0.2.1]:80",
            "\"192.0.2.1\"",
            "for=192.0.2.1",
            "[2001:db8::1",
            "2001:db8::1]",
            "[2001:db8::1]80",
            "[2001:db8::1]:",
            "[]",
            "[]:80",
            "[2001:db8::1]:x",
            "fe80::1%1",
            "[fe80::1%1]:80",
            "2001:db8:::1",
            "\u{a0}192.0.2.1",
            "192.0.2.1\r",
            "192.0.2.1\0",
            "\u{ff11}92.0.2.1",
        ];
        for hop in malformed {
            for list in [
                hop.to_owned(),
                format!("192.0.2.1, {hop}"),
                format!("{hop}, 10.0.0.2"),
            ] {
                let client = identify("10.0.0.1", &[&list], &trusted);
                assert_eq!(client, ip("10.0.0.1"), "{list:?} can't be read");
            }
        }
        let not_utf8: &[u8] = b"192.0.2.1\xff";
        let client = Client::identify(Some(ip("10.0.0.1")), [not_utf8].into_iter(), &trusted);
        assert_eq!(client.address, ip("10.0.0.1"), "bytes that are no text");
    }

    #[test]
    fn over_64_hops_fall_back_to_the_peer() {
        let trusted = trusting(&["10.0.0.0/8"]);
        for (proxies, client) in [(63, "192.0.2.1"), (64, "10.0.0.1"), (5000, "10.0.0.1")] {
            let list = format!("192.0.2.1{}", ",10.0.0.2".repeat(proxies));
            assert_eq!(
                identify("10.0.0.1", &[&list], &trusted),
                ip(client),
                "{proxies} proxies"
            );
        }
        let only_proxies = format!("10.0.0.3{}", ",10.0.0.2".repeat(63));
        assert_eq!(
            identify("10.0.0.1", &[&only_proxies], &trusted),
            ip("10.0.0.3"),
            "64 proxies"
        );
    }

    #[test]
    fn a_key_is_one_ipv4_or_ipv6_64() {
        let cases = [
            ("192.0.2.1", 0xc000_0201),
            ("::ffff:192.0.2.1", 0xc000_0201),
            ("255.255.255.255", 0xffff_ffff),
            ("2001:db8:1:2::", 0x2001_0db8_0001_0002),
            ("2001:db8:1:2:ffff:ffff:ffff:ffff", 0x2001_0db8_0001_0002),
            ("2001:db8:1:3::", 0x2001_0db8_0001_0003),
        ];
        for (address, key) in cases {
            assert_eq!(ClientKey::of(ip(address)), ClientKey(key), "{address}");
        }
    }

    #[test]
    fn a_key_restores_its_first_address() {
        for (address, counted) in [
            ("192.0.2.1", "192.0.2.1"),
            ("::ffff:192.0.2.1", "192.0.2.1"),
            ("0.0.0.0", "0.0.0.0"),
            ("2001:db8:1:2:ffff::9", "2001:db8:1:2::"),
        ] {
            assert_eq!(
                ClientKey::of(ip(address)).address(),
                ip(counted),
                "{address}"
            );
        }
    }

    #[test]
    fn the_log_shows_the_address_or_its_network() {
        let cases = [
            ("192.0.2.77", Shown::Full, "192.0.2.77"),
            ("192.0.2.77", Shown::Truncated, "192.0.2.0/24"),
            ("::ffff:192.0.2.77", Shown::Truncated, "192.0.2.0/24"),
            ("2001:db8:1:2::3", Shown::Full, "2001:db8:1:2::3"),
            ("2001:db8:1:2::3", Shown::Truncated, "2001:db8:1::/48"),
        ];
        for (address, shown, text) in cases {
            assert_eq!(
                Client::at(ip(address)).shown(shown).to_string(),
                text,
                "{address}"
            );
        }
    }

    proptest! {
        #[test]
        fn any_address_is_read_back_in_every_spelling(address: IpAddr, port: u16) {
            let spellings = match address {
                IpAddr::V4(v4) => [format!("{v4}"), format!(" {v4}:{port}\t"), format!("{v4} ")],
                IpAddr::V6(v6) => [format!("{v6}"), format!("[{v6}]"), format!("[{v6}]:{port}")],
            };
            for spelling in spellings {
                prop_assert_eq!(parse_hop(spelling.as_bytes()), Some(address), "{}", spelling);
            }
        }

        #[test]
        fn hops_left_of_the_client_are_ignored(
            rubbish: Vec<Vec<u8>>, client: Ipv4Addr, proxies in 0usize..60,
        ) {
            let trusted = trusting(&["2001:db8::/32"]);
            let list = format!("{client}{}", ", 2001:db8::1".repeat(proxies));
            let mut headers: Vec<&[u8]> = rubbish.iter().map(Vec::as_slice).collect();
            headers.push(list.as_bytes());
            let found = Client::identify(Some(ip("2001:db8::2")), headers.into_iter(), &trusted);
            prop_assert_eq!(found, Client::at(IpAddr::V4(client)));
        }

        #[test]
        fn an_untrusted_peer_is_the_client(
            peer: Ipv4Addr, headers: Vec<Vec<u8>>,
        ) {
            let peer = IpAddr::V4(peer);
            let values = headers.iter().map(Vec::as_slice);
            let found = Client::identify(Some(peer), values, &TrustedProxies::default());
            prop_assert_eq!(found.address, peer);
        }
    }
}
