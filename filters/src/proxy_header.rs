//! The header of the PROXY protocol, version 2: who connected to the balancer in front.
//!
//! In: the first [`PRELUDE`] bytes of a connection, then the block whose length they state. Out:
//! the address of the client, or none where the connection is the balancer's own. Source: "The
//! PROXY protocol", section 2.2,
//! <https://www.haproxy.org/download/2.6/doc/proxy-protocol.txt>. Only the source address is read:
//! the destination, both ports and the extensions (TLV) are skipped.

use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Bytes before the block: the signature, the version with the command, the family, the length.
pub const PRELUDE: usize = 16;
/// The longest block: 4 KiB with the prelude, as in nginx. Addresses take at most 216 bytes, and
/// the extensions of balancers a few hundred.
pub const MAX_BLOCK: usize = 4096 - PRELUDE;

const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// The beginning of a header of version 1, which is text.
const TEXT: &[u8] = b"PROXY ";

/// Why a header is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadHeader {
    /// The bytes are not a PROXY header.
    Absent,
    /// The header has version 1.
    Text,
    /// The version, command or family is unknown, or the block is too short for the addresses.
    Malformed,
    /// The client has no IP address, or uses datagrams.
    Unsupported,
    /// The block has more than [`MAX_BLOCK`] bytes.
    TooLarge,
}

/// The fixed part of a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prelude {
    source: Source,
    length: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Source {
    /// The balancer itself (LOCAL), or a client that it does not know (AF_UNSPEC).
    Balancer,
    V4,
    V6,
}

impl Prelude {
    /// Judges the first bytes of a connection; more may follow.
    ///
    /// # Errors
    /// Returns an error if no header begins like this.
    pub fn begins(bytes: &[u8]) -> Result<(), BadHeader> {
        let agrees = |with: &[u8]| bytes.iter().zip(with).all(|(byte, other)| byte == other);
        if bytes.starts_with(TEXT) {
            Err(BadHeader::Text)
        } else if agrees(SIGNATURE) || agrees(TEXT) {
            Ok(())
        } else {
            Err(BadHeader::Absent)
        }
    }

    /// Parses the fixed part.
    ///
    /// # Errors
    /// Returns why the header is refused.
    pub fn parse(bytes: &[u8; PRELUDE]) -> Result<Self, BadHeader> {
        Self::begins(bytes)?;
        let [.., version_and_command, family, high, low] = *bytes;
        let length = usize::from(u16::from_be_bytes([high, low]));
        let (source, addresses) = match (version_and_command, family) {
            // the family of LOCAL has no meaning
            (0x20, _) | (0x21, 0x00) => (Source::Balancer, 0),
            (0x21, 0x11) => (Source::V4, 12),
            (0x21, 0x21) => (Source::V6, 36),
            // A client of the balancer's Unix socket has no address to count by. Taken for the
            // balancer itself, it would be exempt from caps, and its X-Forwarded-For trusted.
            (0x21, 0x12 | 0x22 | 0x31 | 0x32) => return Err(BadHeader::Unsupported),
            _ => return Err(BadHeader::Malformed),
        };
        match length {
            _ if length < addresses => Err(BadHeader::Malformed),
            _ if length > MAX_BLOCK => Err(BadHeader::TooLarge),
            _ => Ok(Self { source, length }),
        }
    }

    /// The length of the block that follows, in bytes; at most [`MAX_BLOCK`].
    #[must_use]
    pub fn block(&self) -> usize {
        self.length
    }

    /// The client's address in that block; `None` if the connection is the balancer's own.
    ///
    /// # Errors
    /// Returns an error if the block does not have the stated length.
    pub fn client(&self, block: &[u8]) -> Result<Option<IpAddr>, BadHeader> {
        match (self.source, block) {
            _ if block.len() != self.length => Err(BadHeader::Malformed),
            (Source::Balancer, _) => Ok(None),
            (Source::V4, [a, b, c, d, ..]) => Ok(Some(Ipv4Addr::new(*a, *b, *c, *d).into())),
            (Source::V6, block) => {
                let source = block.first_chunk::<16>().ok_or(BadHeader::Malformed)?;
                Ok(Some(Ipv6Addr::from(*source).into()))
            }
            (Source::V4, _) => Err(BadHeader::Malformed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use BadHeader::{Absent, Malformed, Text, TooLarge, Unsupported};

    fn prelude(version_and_command: u8, family: u8, length: u16) -> [u8; PRELUDE] {
        let mut bytes = [0; PRELUDE];
        bytes[..12].copy_from_slice(SIGNATURE);
        (bytes[12], bytes[13]) = (version_and_command, family);
        bytes[14..].copy_from_slice(&length.to_be_bytes());
        bytes
    }

    #[test]
    fn the_source_is_the_client() {
        let v4: &[u8] = &[192, 0, 2, 9, 10, 0, 0, 1, 0x30, 0x39, 0x01, 0xbb];
        let v6: Ipv6Addr = "2001:db8::9".parse().unwrap();
        let v6 = [&v6.octets()[..], &[0xff; 20]].concat();
        let with_extensions = [v4, &[0x03, 0, 4, 1, 2, 3, 4]].concat();
        for (what, command, family, block, client) in [
            ("IPv4", 0x21, 0x11, v4, Some("192.0.2.9")),
            ("IPv6", 0x21, 0x21, &v6, Some("2001:db8::9")),
            (
                "IPv4 and extensions",
                0x21,
                0x11,
                &with_extensions,
                Some("192.0.2.9"),
            ),
            ("LOCAL", 0x20, 0x00, &[], None),
            ("LOCAL with addresses", 0x20, 0x11, v4, None),
            ("LOCAL of an unknown family", 0x20, 0xff, &[1], None),
            ("an unknown client", 0x21, 0x00, &[], None),
            (
                "an unknown client and extensions",
                0x21,
                0x00,
                &[4, 0, 0],
                None,
            ),
        ] {
            let length = u16::try_from(block.len()).unwrap();
            let parsed = Prelude::parse(&prelude(command, family, length)).expect(what);
            assert_eq!(parsed.block(), block.len(), "{what}");
            let client = client.map(|client| client.parse().unwrap());
            assert_eq!(parsed.client(block), Ok(client), "{what}");
            let short = &block[..block.len().saturating_sub(1)];
            let is_short = short.len() < block.len();
            assert_eq!(parsed.client(short).is_err(), is_short, "{what}, cut");
        }
    }

    #[test]
    fn everything_else_is_refused() {
        let max = u16::try_from(MAX_BLOCK).unwrap();
        for (what, bytes, expected) in [
            ("version 1", prelude(0x11, 0x11, 12), Err(Malformed)),
            ("version 3", prelude(0x31, 0x11, 12), Err(Malformed)),
            ("another command", prelude(0x22, 0x11, 12), Err(Malformed)),
            ("another family", prelude(0x21, 0x41, 12), Err(Malformed)),
            ("another transport", prelude(0x21, 0x13, 12), Err(Malformed)),
            (
                "no family with a transport",
                prelude(0x21, 0x01, 12),
                Err(Malformed),
            ),
            ("datagrams", prelude(0x21, 0x12, 12), Err(Unsupported)),
            ("a Unix socket", prelude(0x21, 0x31, 216), Err(Unsupported)),
            (
                "too short for IPv4",
                prelude(0x21, 0x11, 11),
                Err(Malformed),
            ),
            (
                "too short for IPv6",
                prelude(0x21, 0x21, 35),
                Err(Malformed),
            ),
            ("the largest", prelude(0x21, 0x11, max), Ok(())),
            ("one more", prelude(0x21, 0x11, max + 1), Err(TooLarge)),
            ("a large LOCAL", prelude(0x20, 0, u16::MAX), Err(TooLarge)),
            ("text", *b"PROXY TCP4 1.2.3", Err(Text)),
            ("HTTP/1", *b"POST /rpc HTTP/1", Err(Absent)),
            ("HTTP/2", *b"PRI * HTTP/2.0\r\n", Err(Absent)),
            ("TLS", [0x16; PRELUDE], Err(Absent)),
        ] {
            assert_eq!(Prelude::parse(&bytes).map(drop), expected, "{what}");
        }
    }

    #[test]
    fn each_byte_of_the_signature_counts() {
        for place in 0..SIGNATURE.len() {
            let mut bytes = prelude(0x21, 0x11, 12);
            assert_eq!(
                Prelude::begins(&bytes[..place]),
                Ok(()),
                "{place} bytes so far"
            );
            bytes[place] ^= 1;
            assert_eq!(
                Prelude::begins(&bytes[..=place]),
                Err(Absent),
                "byte {place}"
            );
        }
        for (bytes, expected) in [
            (&b""[..], Ok(())),
            (b"PROXY", Ok(())),
            (b"PROXY ", Err(Text)),
            (b"PO", Err(Absent)),
        ] {
            assert_eq!(Prelude::begins(bytes), expected, "{bytes:?}");
        }
    }
}
