//! `Accept-Encoding`: whether a client takes gzip. RFC 9110, section 12.5.3.

use core::cmp::min;
use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

/// The weight of an element without one, in thousandths.
const WHOLE: u16 = 1000;

/// Whether a client accepts gzip and does not prefer the identity, the only other coding.
///
/// A malformed weight counts as 0. Without the field, which allows any coding, gzip counts as not
/// accepted: clients that decode gzip send the field.
pub fn accepts_gzip(headers: &HeaderMap) -> bool {
    let (mut gzip, mut identity, mut any) = (None, None, None);
    for field in headers.get_all(ACCEPT_ENCODING) {
        for element in field.as_bytes().split(|byte| *byte == b',') {
            let mut parts = element.splitn(2, |byte| *byte == b';').map(<[u8]>::trim_ascii);
            let coding = parts.next().unwrap_or_default();
            let listed = match () {
                () if is(coding, "gzip") || is(coding, "x-gzip") => &mut gzip,
                () if is(coding, "identity") => &mut identity,
                () if coding == b"*" => &mut any,
                () => continue,
            };
            let weight = parts.next().map_or(WHOLE, |text| weight(text).unwrap_or(0));
            // of a coding that is listed twice, the lesser
            *listed = Some(listed.map_or(weight, |other| min(other, weight)));
        }
    }
    let gzip = gzip.or(any).unwrap_or(0);
    gzip > 0 && gzip >= identity.unwrap_or(0)
}

fn is(coding: &[u8], name: &str) -> bool {
    coding.eq_ignore_ascii_case(name.as_bytes())
}

/// A weight in thousandths: `q=`, then 0 to 1 with up to three digits. RFC 9110, section 12.4.2.
fn weight(text: &[u8]) -> Option<u16> {
    let value = text.strip_prefix(b"q=").or_else(|| text.strip_prefix(b"Q="))?;
    let (whole, digits) = match value {
        [whole @ (b'0' | b'1')] => (whole, &[][..]),
        [whole @ (b'0' | b'1'), b'.', digits @ ..] if digits.len() <= 3 => (whole, digits),
        _ => return None,
    };
    let mut weight = u16::from(*whole == b'1');
    for at in 0..3 {
        let digit =
            digits.get(at).unwrap_or(&b'0').checked_sub(b'0').filter(|digit| *digit <= 9)?;
        weight = weight.saturating_mul(10).saturating_add(u16::from(digit));
    }
    (weight <= WHOLE).then_some(weight)
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn accepts(fields: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        for field in fields {
            headers.append(ACCEPT_ENCODING, HeaderValue::from_str(field).unwrap());
        }
        accepts_gzip(&headers)
    }

    #[test]
    fn gzip_is_accepted_by_its_weight() {
        for (field, accepted, why) in [
            ("gzip", true, "alone"),
            ("gzip, deflate, br, zstd", true, "as browsers send"),
            ("br, zstd, GZip", true, "in any case and place"),
            ("x-gzip", true, "its old name"),
            ("*", true, "any coding"),
            ("br;q=1.0, *;q=0.001", true, "any other coding"),
            ("gzip;q=1.000", true, "the longest weight"),
            (" gzip ; Q=0.5 ", true, "with space"),
            ("gzip;q=0.001", true, "the least weight"),
            ("identity;q=0.5, gzip;q=0.5", true, "as good as the identity"),
            ("identity;q=0, gzip", true, "and nothing else"),
            ("", false, "nothing"),
            (",,;,", false, "empty elements"),
            ("br, deflate, zstd", false, "other codings"),
            ("gzipped, notgzip, gzip-like", false, "other names"),
            ("gzip;q=0", false, "not acceptable"),
            ("gzip;q=0.000", false, "not acceptable, at length"),
            ("gzip;q=0, *", false, "any but gzip"),
            ("*;q=0", false, "none at all"),
            ("identity;q=0", false, "gzip is not listed"),
            ("identity, gzip;q=0.9", false, "the identity is preferred"),
            ("gzip, gzip;q=0", false, "it contradicts itself"),
            ("gzip;q=2", false, "beyond one"),
            ("gzip;q=1.001", false, "just beyond one"),
            ("gzip;q=0.0001", false, "too long"),
            ("gzip;q=-1", false, "negative"),
            ("gzip;q=", false, "no weight"),
            ("gzip;q=x", false, "not a number"),
            ("gzip;q=1;q=0", false, "two weights"),
            ("gzip;level=9", false, "another parameter"),
            ("gzip;", false, "an empty parameter"),
            ("\"gzip\"", false, "quoted"),
        ] {
            assert_eq!(accepts(&[field]), accepted, "{field:?}: {why}");
        }
    }

    #[test]
    fn several_fields_are_one_list() {
        assert!(accepts(&["br", "gzip"]));
        assert!(!accepts(&["gzip", "gzip;q=0"]));
        assert!(!accepts(&["identity", "gzip;q=0.1"]));
        assert!(!accepts(&[]), "no field");
    }
}
