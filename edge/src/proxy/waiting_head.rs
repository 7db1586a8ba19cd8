//! The head of an admitted request, while it waits for its body or its answer.
//!
//! A head may have hundreds of fields, each of which takes more memory than its bytes. The policy
//! has judged all of them by now, so only those that are read later are kept.

use http::header::{CONTENT_LENGTH, ORIGIN};
use http::{HeaderName, HeaderValue};
use pingora::http::RequestHeader;
use portcullis_filters::head::TRACEPARENT;
use portcullis_filters::position::X_CHAIN_POSITION;
use std::mem;

/// A head with at most this many fields waits as it is: as many as a cached head has, which the
/// next request uses.
const FEW: usize = 32;

/// Drops the fields of a large head that are not read after its admission.
pub(super) fn shrink(header: &mut RequestHeader) {
    if header.headers.len() <= FEW {
        return;
    }
    if let Some(mut small) = copy_of(header) {
        *small.extensions_mut() = mem::take(header.extensions_mut());
        *header = small;
    }
}

/// Copies what is read later, in memory of its own: a clone would keep the whole read buffer alive.
fn copy_of(header: &RequestHeader) -> Option<RequestHeader> {
    let kept: [&HeaderName; 4] = [&CONTENT_LENGTH, &ORIGIN, &TRACEPARENT, &X_CHAIN_POSITION];
    let (method, path) = (header.method.as_str(), header.raw_path());
    let mut copy = RequestHeader::build_no_case(method, path, Some(kept.len())).ok()?;
    copy.set_version(header.version);
    for name in kept {
        for value in header.headers.get_all(name) {
            let value = HeaderValue::from_bytes(value.as_bytes()).ok()?;
            copy.append_header(name.clone(), value).ok()?;
        }
    }
    Some(copy)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::Version;

    #[test]
    fn a_large_head_keeps_what_is_read_later() {
        for (fields, kept) in [(FEW - 5, FEW), (FEW - 4, 5), (200, 5)] {
            let path = b"/rpc?\xff";
            let mut header = RequestHeader::build_no_case("POST", path, None).expect("a head");
            header.set_version(Version::HTTP_2);
            header.extensions_mut().insert(7_u8);
            for (name, value) in [
                ("content-length", "12"),
                ("origin", "https://app.test"),
                ("origin", "null"),
                ("traceparent", "00-x"),
                ("x-chain-position", "5"),
            ] {
                header.append_header(name, value).expect("a field");
            }
            for number in 0..fields {
                let name = format!("x-{}", number / 2);
                header.append_header(name, "v").expect("a field");
            }
            shrink(&mut header);
            assert_eq!(header.headers.len(), kept, "{fields} others");
            assert_eq!(header.headers["content-length"], "12");
            assert_eq!(header.headers.get_all("origin").iter().count(), 2);
            assert_eq!(
                (header.method.as_str(), header.raw_path(), header.version),
                ("POST", &path[..], Version::HTTP_2)
            );
            assert_eq!(header.extensions.get(), Some(&7_u8));
        }
    }
}
