//! A TCP balancer that begins each connection with the bytes of a test: the header of the PROXY
//! protocol, right or wrong.

use std::net::{IpAddr, SocketAddr};

use tokio::io::{AsyncWriteExt as _, copy_bidirectional};
use tokio::net::TcpStream;

use crate::support::forward::listen;

/// The balancer's own connection: a health check.
pub(crate) const LOCAL: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00";

/// The header of a client at `address`, with these extensions.
pub(crate) fn header_with(address: &str, extensions: &[u8]) -> Vec<u8> {
    let (family, source) = match address.parse().expect("an address") {
        IpAddr::V4(v4) => (0x11, v4.octets().to_vec()),
        IpAddr::V6(v6) => (0x21, v6.octets().to_vec()),
    };
    // the destination, and both ports
    let block = [
        &*source,
        &vec![0xaa; source.len()],
        &[0x30, 0x39, 0x01, 0xbb],
        extensions,
    ];
    raw_header(0x21, family, &block.concat())
}

/// The header of a client at `address`.
pub(crate) fn header(address: &str) -> Vec<u8> {
    header_with(address, &[])
}

/// A header of this command, family and block.
pub(crate) fn raw_header(command: u8, family: u8, block: &[u8]) -> Vec<u8> {
    let length = u16::try_from(block.len())
        .expect("a short block")
        .to_be_bytes();
    [
        b"\r\n\r\n\0\r\nQUIT\n",
        &[command, family][..],
        &length,
        block,
    ]
    .concat()
}

/// Forwards every connection to `edge`, behind `first`: the address of its listener.
pub(crate) fn before(edge: SocketAddr, first: Vec<u8>) -> SocketAddr {
    listen(move |mut client| {
        let first = first.clone();
        async move {
            let Ok(mut edge) = TcpStream::connect(edge).await else {
                return;
            };
            // an edge that refuses the header is gone: the client sees how it ends
            let _refused = edge.write_all(&first).await;
            let _ended = copy_bidirectional(&mut client, &mut edge).await;
        }
    })
}
