//! Request heads, and a limiter that counts their clients.

use http::{HeaderMap, HeaderName, HeaderValue, Version};
use portcullis_filters::head::Head;
use portcullis_filters::limit::{Quota, RateLimiter};
use std::hash::RandomState;
use std::num::NonZeroU32;

pub(crate) fn limiter(per_minute: u32) -> RateLimiter<RandomState> {
    let quota = Quota::per_minute(per_minute).expect("a quota");
    RateLimiter::new(quota, NonZeroU32::MIN, RandomState::new())
}

pub(crate) fn headers(fields: &[(&str, &str)]) -> HeaderMap {
    let mut headers = HeaderMap::new();
    for (name, value) in fields {
        let name = HeaderName::try_from(*name).expect("a name");
        headers.append(name, HeaderValue::from_str(value).expect("a value"));
    }
    headers
}

pub(crate) fn head<'a>(method: &'a str, target: &'a str, headers: &'a HeaderMap) -> Head<'a> {
    let peer = Some([192, 0, 2, 1].into());
    let (version, target, raw) = (Version::HTTP_11, target.as_bytes(), &b""[..]);
    Head {
        method,
        target,
        version,
        headers,
        raw,
        peer,
    }
}
