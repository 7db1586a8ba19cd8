//! `Retry-After`: RFC 9110, section 10.2.3.

use std::time::{Duration, SystemTime};

/// Parses the value of a `Retry-After` field, in seconds or as a date; `None` if it is neither, or
/// if the date is not after `now`.
pub fn parse_retry_after(value: &[u8], now: SystemTime) -> Option<Duration> {
    let text = str::from_utf8(value).ok()?.trim();
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        // a number that is too large is clamped by the caller, as any other
        return Some(Duration::from_secs(text.parse().unwrap_or(u64::MAX)));
    }
    let date = httpdate::parse_http_date(text).ok()?;
    date.duration_since(now).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retry_after_is_seconds_or_a_date() {
        let now = httpdate::parse_http_date("Fri, 31 Dec 1999 23:59:00 GMT").expect("a date");
        for (text, expected) in [
            ("120", Some(120)),
            (" 7 ", Some(7)),
            ("0", Some(0)),
            ("99999999999999999999999", Some(u64::MAX)),
            ("Fri, 31 Dec 1999 23:59:59 GMT", Some(59)),
            ("Fri, 31 Dec 1999 23:58:00 GMT", None),
            ("soon", None),
            ("+1", None),
            ("-1", None),
            ("", None),
        ] {
            let found = parse_retry_after(text.as_bytes(), now);
            assert_eq!(found, expected.map(Duration::from_secs), "{text}");
        }
    }
}
