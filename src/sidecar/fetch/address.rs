//! Which addresses are public: everybody's to connect to.
//!
//! From the registries of special-purpose addresses (RFC 6890). An IPv6 address that carries an
//! IPv4 address is what it carries.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// IPv4 networks that are not public.
const V4: [(Ipv4Addr, u32); 15] = [
    // "this network"
    (Ipv4Addr::new(0, 0, 0, 0), 8),
    // private
    (Ipv4Addr::new(10, 0, 0, 0), 8),
    (Ipv4Addr::new(172, 16, 0, 0), 12),
    (Ipv4Addr::new(192, 168, 0, 0), 16),
    // a carrier's own
    (Ipv4Addr::new(100, 64, 0, 0), 10),
    (Ipv4Addr::LOCALHOST, 8),
    // link-local, where clouds tell their machines who they are
    (Ipv4Addr::new(169, 254, 0, 0), 16),
    // protocols, and the relays of 6to4
    (Ipv4Addr::new(192, 0, 0, 0), 24),
    (Ipv4Addr::new(192, 88, 99, 0), 24),
    // benchmarks
    (Ipv4Addr::new(198, 18, 0, 0), 15),
    // documentation
    (Ipv4Addr::new(192, 0, 2, 0), 24),
    (Ipv4Addr::new(198, 51, 100, 0), 24),
    (Ipv4Addr::new(203, 0, 113, 0), 24),
    // multicast, reserved and broadcast
    (Ipv4Addr::new(224, 0, 0, 0), 4),
    (Ipv4Addr::new(240, 0, 0, 0), 4),
];
/// The only IPv6 network that is given to the public.
const V6: (Ipv6Addr, u32) = (Ipv6Addr::new(0x2000, 0, 0, 0, 0, 0, 0, 0), 3);
/// Networks inside of it that are not public.
const V6_SPECIAL: [(Ipv6Addr, u32); 4] = [
    // protocols: Teredo, benchmarks, identifiers
    (Ipv6Addr::new(0x2001, 0, 0, 0, 0, 0, 0, 0), 23),
    // documentation
    (Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0), 32),
    (Ipv6Addr::new(0x3fff, 0, 0, 0, 0, 0, 0, 0), 20),
    // 6to4, which nobody routes any more
    (Ipv6Addr::new(0x2002, 0, 0, 0, 0, 0, 0, 0), 16),
];
/// Where NAT64 maps IPv4 to: a network without IPv4 sees every IPv4 host there.
const NAT64: (Ipv6Addr, u32) = (Ipv6Addr::new(0x64, 0xff9b, 0, 0, 0, 0, 0, 0), 96);

/// Whether an address is public.
pub(super) fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => match address.to_ipv4_mapped() {
            Some(mapped) => is_public_v4(mapped),
            None if contains(NAT64, address) => {
                let [.., a, b, c, d] = address.octets();
                is_public_v4(Ipv4Addr::new(a, b, c, d))
            }
            None => contains(V6, address) && !V6_SPECIAL.iter().any(|net| contains(*net, address)),
        },
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    !V4.iter().any(|(net, bits)| (net.to_bits() ^ address.to_bits()) >> (32 - bits) == 0)
}

fn contains((net, bits): (Ipv6Addr, u32), address: Ipv6Addr) -> bool {
    (net.to_bits() ^ address.to_bits()) >> (128 - bits) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_that_are_everybodys_are_public() {
        for (address, public) in [
            ("8.8.8.8", true),
            ("1.1.1.1", true),
            ("100.63.255.255", true),
            ("100.128.0.0", true),
            ("172.15.255.255", true),
            ("172.32.0.0", true),
            ("192.0.1.1", true),
            ("198.17.255.255", true),
            ("198.20.0.0", true),
            ("223.255.255.255", true),
            ("0.0.0.0", false),
            ("0.1.2.3", false),
            ("10.0.0.1", false),
            ("100.64.0.1", false),
            ("100.127.255.255", false),
            ("127.0.0.1", false),
            ("127.255.255.255", false),
            ("169.254.169.254", false),
            ("172.16.0.1", false),
            ("172.31.255.255", false),
            ("192.0.0.1", false),
            ("192.0.2.1", false),
            ("192.88.99.1", false),
            ("192.168.1.1", false),
            ("198.18.0.1", false),
            ("198.19.255.255", false),
            ("198.51.100.1", false),
            ("203.0.113.1", false),
            ("224.0.0.1", false),
            ("239.255.255.250", false),
            ("240.0.0.1", false),
            ("255.255.255.255", false),
            ("2606:4700:4700::1111", true),
            ("2a00:1450::1", true),
            ("2001:4860:4860::8888", true),
            ("64:ff9b::808:808", true),
            ("::ffff:8.8.8.8", true),
            ("::", false),
            ("::1", false),
            // an IPv4 address in the old, "compatible" form
            ("::7f00:1", false),
            ("::808:808", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:169.254.169.254", false),
            ("::ffff:0:127.0.0.1", false),
            ("64:ff9b::7f00:1", false),
            ("64:ff9b::a00:1", false),
            ("64:ff9b:1::808:808", false),
            ("100::1", false),
            ("2001::1", false),
            ("2001:2::1", false),
            ("2001:10::1", false),
            ("2001:db8::1", false),
            ("2002:7f00:1::", false),
            ("2002:a00:1::1", false),
            ("3fff::1", false),
            ("5f00::1", false),
            ("fc00::1", false),
            ("fd00:ec2::254", false),
            ("fe80::1", false),
            ("fec0::1", false),
            ("ff02::1", false),
        ] {
            let ip: IpAddr = address.parse().expect("an address");
            assert_eq!(is_public(ip), public, "{address}");
        }
    }
}
