//! The start of a connection behind a balancer, against a second reading of the PROXY protocol, and
//! read in pieces: where the pieces end changes nothing.
#![no_main]

use libfuzzer_sys::fuzz_target;
use portcullis_filters::proxy_header::{BadHeader, MAX_BLOCK, PRELUDE, Prelude};
use std::net::IpAddr;

fuzz_target!(|bytes: &[u8]| {
    let read = read(bytes);
    assert_eq!(read.as_ref().ok(), reference(bytes).as_ref());
    // an early refusal stays with more bytes, and has the same reason
    for cut in 0..bytes.len().min(PRELUDE) {
        if let Err(why) = Prelude::begins(&bytes[..cut]) {
            assert_eq!(Prelude::begins(bytes), Err(why));
        }
    }
});

/// The client, and the bytes of the header.
fn read(bytes: &[u8]) -> Result<(Option<IpAddr>, usize), Option<BadHeader>> {
    let prelude = bytes.first_chunk::<PRELUDE>().ok_or(None)?;
    let prelude = Prelude::parse(prelude)?;
    let end = PRELUDE + prelude.block();
    let client = prelude.client(bytes.get(PRELUDE..end).ok_or(None)?)?;
    Ok((client, end))
}

fn reference(bytes: &[u8]) -> Option<(Option<IpAddr>, usize)> {
    let rest = bytes.strip_prefix(b"\x0d\x0a\x0d\x0a\x00\x0d\x0a\x51\x55\x49\x54\x0a")?;
    let (version, command) = (rest.first()? >> 4, rest.first()? & 0xf);
    let (family, transport) = (rest.get(1)? >> 4, rest.get(1)? & 0xf);
    let length = usize::from(*rest.get(2)?) * 256 + usize::from(*rest.get(3)?);
    let block = rest.get(4..)?.get(..length)?;
    let client = match (version, command, family, transport) {
        (2, 0, ..) | (2, 1, 0, 0) => None,
        (2, 1, 1, 1) if length >= 12 => Some(<[u8; 4]>::try_from(&block[..4]).unwrap().into()),
        (2, 1, 2, 1) if length >= 36 => Some(<[u8; 16]>::try_from(&block[..16]).unwrap().into()),
        _ => return None,
    };
    (length <= MAX_BLOCK).then_some((client, length + 16))
}
