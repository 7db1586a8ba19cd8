//! Networks, and what is configured for the clients in them.
//!
//! In: networks with a value each, and an address. Out: the value of the most specific network that
//! contains the address. Networks nest or are disjoint, so they divide all addresses into ranges
//! with one value each; a lookup is a binary search. `client` and the policies use it.

use alloc::vec::Vec;
use core::net::IpAddr;

use ipnet::{IpNet, Ipv4Net};

/// A value for each of some networks. Without networks, a lookup reads one length.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkMap<T> {
    v4: Ranges<T>,
    v6: Ranges<T>,
}

impl<T> Default for NetworkMap<T> {
    fn default() -> Self {
        Self {
            v4: Ranges(Vec::new()),
            v6: Ranges(Vec::new()),
        }
    }
}

impl<T> NetworkMap<T> {
    /// Whether there are no networks.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.v4.0.is_empty() && self.v6.0.is_empty()
    }

    /// The value of the most specific network that contains this address; an IPv4-mapped address
    /// counts as IPv4.
    #[must_use]
    pub fn get(&self, address: IpAddr) -> Option<&T> {
        match address.to_canonical() {
            IpAddr::V4(v4) => self.v4.get(u128::from(v4.to_bits())),
            IpAddr::V6(v6) => self.v6.get(v6.to_bits()),
        }
    }
}

impl<T: Clone> FromIterator<(IpNet, T)> for NetworkMap<T> {
    /// Of two equal networks, the later one applies.
    fn from_iter<I: IntoIterator<Item = (IpNet, T)>>(networks: I) -> Self {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        for (network, value) in networks {
            match canonical(network) {
                IpNet::V4(network) => v4.push(Block {
                    first: u128::from(network.network().to_bits()),
                    last: u128::from(network.broadcast().to_bits()),
                    value,
                }),
                IpNet::V6(network) => v6.push(Block {
                    first: network.network().to_bits(),
                    last: network.broadcast().to_bits(),
                    value,
                }),
            }
        }
        Self {
            v4: Ranges::of(v4),
            v6: Ranges::of(v6),
        }
    }
}

/// Turns an IPv4-mapped network into IPv4, the form of all compared addresses:
/// `::ffff:10.0.0.0/104` is `10.0.0.0/8`.
#[must_use]
pub fn canonical(network: IpNet) -> IpNet {
    let IpNet::V6(v6) = network else {
        return network;
    };
    let as_v4 = v6
        .addr()
        .to_ipv4_mapped()
        .zip(v6.prefix_len().checked_sub(96));
    as_v4
        .and_then(|(address, length)| Ipv4Net::new(address, length).ok())
        .map_or(network, IpNet::V4)
}

/// The addresses of a network.
#[derive(Clone)]
struct Block<T> {
    first: u128,
    last: u128,
    value: T,
}

/// The first address of each range in ascending order, and the value up to the next one.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ranges<T>(Vec<(u128, Option<T>)>);

impl<T> Ranges<T> {
    fn get(&self, address: u128) -> Option<&T> {
        let following = self.0.partition_point(|(first, _)| *first <= address);
        let (_, value) = self.0.get(following.checked_sub(1)?)?;
        value.as_ref()
    }

    /// Begins a range. Another one that begins at this address is empty.
    fn begin(&mut self, first: u128, value: Option<T>) {
        if self.0.last().is_some_and(|(last, _)| *last == first) {
            self.0.pop();
        }
        debug_assert!(
            self.0.last().is_none_or(|(last, _)| *last < first),
            "ranges are in ascending order"
        );
        self.0.push((first, value));
    }
}

impl<T: Clone> Ranges<T> {
    fn of(mut blocks: Vec<Block<T>>) -> Self {
        // stable, so that of two equal networks the later one is inside the other
        blocks.sort_by_key(|block| (block.first, u128::MAX.saturating_sub(block.last)));
        let mut ranges = Self(Vec::new());
        let mut around = Vec::new();
        for block in blocks {
            ranges.close(&mut around, |outer| outer.last < block.first);
            ranges.begin(block.first, Some(block.value.clone()));
            around.push(block);
        }
        ranges.close(&mut around, |_| true);
        ranges
    }

    /// Ends the innermost networks, as long as they have ended.
    fn close(&mut self, around: &mut Vec<Block<T>>, has_ended: impl Fn(&Block<T>) -> bool) {
        while let Some(block) = around.pop_if(|block| has_ended(block)) {
            // after the last address of all there is no further range
            if let Some(next) = block.last.checked_add(1) {
                self.begin(next, around.last().map(|outer| outer.value.clone()));
            }
        }
    }
}

/// A set of networks: of trusted proxies, or of clients that are exempt or refused.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Networks(NetworkMap<()>);

impl Networks {
    /// Whether the set has no networks, so that it contains no address.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this address is in one of the networks; an IPv4-mapped one counts as IPv4.
    #[must_use]
    pub fn contains(&self, address: IpAddr) -> bool {
        self.0.get(address).is_some()
    }
}

impl From<&[IpNet]> for Networks {
    fn from(networks: &[IpNet]) -> Self {
        Self(networks.iter().map(|network| (*network, ())).collect())
    }
}

impl From<Vec<IpNet>> for Networks {
    fn from(networks: Vec<IpNet>) -> Self {
        Self::from(&*networks)
    }
}

#[cfg(test)]
mod tests {
    use core::net::{Ipv4Addr, Ipv6Addr};

    use proptest::prelude::*;

    use super::*;

    fn ip(text: &str) -> IpAddr {
        text.parse().unwrap()
    }

    fn net(text: &str) -> IpNet {
        text.parse().unwrap()
    }

    fn set(networks: &[&str]) -> Networks {
        networks
            .iter()
            .map(|text| net(text))
            .collect::<Vec<_>>()
            .into()
    }

    #[test]
    fn a_set_without_networks_is_empty() {
        assert!(set(&[]).is_empty());
        assert!(!set(&["192.0.2.0/24"]).is_empty());
        assert!(!set(&["2001:db8::/32"]).is_empty());
    }

    #[test]
    fn networks_may_be_mapped_ipv4() {
        let networks = set(&["::ffff:10.0.0.0/104", "2001:db8::/32"]);
        for (address, inside) in [
            ("10.1.2.3", true),
            ("11.1.2.3", false),
            ("::ffff:10.1.2.3", true),
        ] {
            assert_eq!(networks.contains(ip(address)), inside, "{address}");
        }
        let all_ipv6 = set(&["::/0"]);
        assert!(
            !all_ipv6.contains(ip("::ffff:10.1.2.3")),
            "::/0 is not all of IPv4"
        );
    }

    #[test]
    fn the_most_specific_network_applies() {
        let map: NetworkMap<&str> = [
            ("10.0.0.0/8", "outer"),
            ("0.0.0.0/0", "all"),
            ("10.1.0.0/16", "inner"),
            ("10.1.2.3/32", "one"),
            ("255.255.255.255/32", "last"),
            ("2001:db8::/32", "six"),
            ("ffff::/16", "end"),
        ]
        .into_iter()
        .map(|(network, name)| (net(network), name))
        .collect();
        for (address, name) in [
            ("9.255.255.255", Some("all")),
            ("10.0.0.0", Some("outer")),
            ("10.1.0.0", Some("inner")),
            ("10.1.2.2", Some("inner")),
            ("10.1.2.3", Some("one")),
            ("10.1.2.4", Some("inner")),
            ("10.1.255.255", Some("inner")),
            ("10.2.0.0", Some("outer")),
            ("10.255.255.255", Some("outer")),
            ("11.0.0.0", Some("all")),
            ("255.255.255.254", Some("all")),
            ("255.255.255.255", Some("last")),
            ("2001:db7:ffff:ffff:ffff:ffff:ffff:ffff", None),
            ("2001:db8::", Some("six")),
            ("2001:db9::", None),
            ("ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", Some("end")),
        ] {
            assert_eq!(map.get(ip(address)), name.as_ref(), "{address}");
        }
    }

    /// Networks that often nest or touch: few bits differ.
    fn network() -> impl Strategy<Value = IpNet> {
        let v4 = (0u8..4, 0u8..4, 0u8..=32).prop_map(|(a, d, length)| {
            let address = Ipv4Addr::from([a.wrapping_mul(85), 0, 0, d.wrapping_mul(85)]);
            IpNet::new(address.into(), length).unwrap().trunc()
        });
        let v6 = (0u16..4, 0u16..4, 0u8..=128).prop_map(|(a, h, length)| {
            let [a, h] = [a, h].map(|part| part.wrapping_mul(0x5555));
            let address = Ipv6Addr::from([a, 0, 0, 0, 0, 0xffff, 0, h]);
            IpNet::new(address.into(), length).unwrap().trunc()
        });
        prop_oneof![v4, v6]
    }

    /// The edges of a network, and the addresses next to them.
    fn around(network: IpNet) -> [IpAddr; 4] {
        let next = |address: IpAddr, up: bool| match address {
            IpAddr::V4(v4) if up => Ipv4Addr::from_bits(v4.to_bits().wrapping_add(1)).into(),
            IpAddr::V4(v4) => Ipv4Addr::from_bits(v4.to_bits().wrapping_sub(1)).into(),
            IpAddr::V6(v6) if up => Ipv6Addr::from_bits(v6.to_bits().wrapping_add(1)).into(),
            IpAddr::V6(v6) => Ipv6Addr::from_bits(v6.to_bits().wrapping_sub(1)).into(),
        };
        let [first, last] = [network.network(), network.broadcast()];
        [next(first, false), first, last, next(last, true)]
    }

    proptest! {
        #[test]
        fn a_lookup_equals_a_scan_of_all(networks in prop::collection::vec(network(), 0..12)) {
            let numbered = || networks.iter().copied().zip(0usize..);
            let map: NetworkMap<usize> = numbered().collect();
            for address in networks.iter().copied().flat_map(around) {
                let address = address.to_canonical();
                let scanned = numbered()
                    .filter(|(network, _)| canonical(*network).contains(&address))
                    .max_by_key(|(network, number)| (canonical(*network).prefix_len(), *number));
                let expected = scanned.map(|(_, number)| number);
                prop_assert_eq!(map.get(address).copied(), expected, "{}", address);
            }
        }
    }
}
