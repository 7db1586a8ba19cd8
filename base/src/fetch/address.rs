//! Public addresses: those that anybody may connect to.
//!
//! From the registries of special-purpose addresses (RFC 6890). An IPv6 address that embeds an IPv4
//! address is judged by that one.

use ipnet::{Ipv4Net, Ipv6Net};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 networks that are not public.
const V4: [Ipv4Net; 15] = [
    v4(0, 0, 0, 8), // "this network"
    v4(127, 0, 0, 8),
    // private
    v4(10, 0, 0, 8),
    v4(172, 16, 0, 12),
    v4(192, 168, 0, 16),
    v4(100, 64, 0, 10),  // carriers
    v4(169, 254, 0, 16), // link-local: metadata services of clouds
    v4(192, 0, 0, 24),   // protocols
    v4(192, 88, 99, 24), // relays of 6to4
    v4(198, 18, 0, 15),  // benchmarks
    // documentation
    v4(192, 0, 2, 24),
    v4(198, 51, 100, 24),
    v4(203, 0, 113, 24),
    v4(224, 0, 0, 4), // multicast
    v4(240, 0, 0, 4), // reserved and broadcast
];
/// The only IPv6 network from which public addresses are allocated.
const V6: Ipv6Net = v6(0x2000, 0, 3);
/// Networks in [`V6`] that are not public.
const V6_SPECIAL: [Ipv6Net; 4] = [
    v6(0x2001, 0, 23),     // protocols: Teredo, benchmarks, identifiers
    v6(0x2001, 0xdb8, 32), // documentation
    v6(0x3fff, 0, 20),
    v6(0x2002, 0, 16), // 6to4, no longer routed
];
/// NAT64: a network without IPv4 maps every IPv4 host into it.
const NAT64: Ipv6Net = v6(0x64, 0xff9b, 96);

const fn v4(a: u8, b: u8, c: u8, bits: u8) -> Ipv4Net {
    Ipv4Net::new_assert(Ipv4Addr::new(a, b, c, 0), bits)
}

const fn v6(a: u16, b: u16, bits: u8) -> Ipv6Net {
    Ipv6Net::new_assert(Ipv6Addr::new(a, b, 0, 0, 0, 0, 0, 0), bits)
}

/// Whether an address is public.
pub fn is_public(address: IpAddr) -> bool {
    let is_public_v4 = |address: Ipv4Addr| !V4.iter().any(|net| net.contains(&address));
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => is_public_v4(mapped),
            None if NAT64.contains(&address) => {
                let [.., a, b, c, d] = address.octets();
                is_public_v4(Ipv4Addr::new(a, b, c, d))
            }
            None => V6.contains(&address) && !V6_SPECIAL.iter().any(|net| net.contains(&address)),
        },
    }
}
