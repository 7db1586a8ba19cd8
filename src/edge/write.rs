//! A reply on the wire: the headers that every answer carries, and the body within its deadline.

use super::Context;
use crate::config::CorsOrigins;
use crate::deadline::within;
use crate::gateway::Settings;
use crate::reply::Reply;
use bytes::Bytes;
use http::HeaderValue;
use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ALLOW, CACHE_CONTROL, CONTENT_LENGTH,
    CONTENT_TYPE, HeaderName, RETRY_AFTER, VARY, X_CONTENT_TYPE_OPTIONS,
};
use pingora_core::Error;
use pingora_core::ErrorType::WriteTimedout;
use pingora_core::protocols::http::ServerSession;
use pingora_http::ResponseHeader;
use portcullis_filters::limit::Standing;
use std::time::Duration;

const X_REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const RATE_LIMIT: HeaderName = HeaderName::from_static("ratelimit");
const RATE_LIMIT_POLICY: HeaderName = HeaderName::from_static("ratelimit-policy");
const EXPOSED: &str = "RateLimit, RateLimit-Policy, Retry-After, X-Request-Id";

/// Writes a reply whole, or fails when the client does not take it within `timeout`; then nothing
/// more can be sent on the connection.
pub(super) async fn reply(
    session: &mut ServerSession,
    settings: &Settings,
    reply: Reply,
    context: &Context,
    timeout: Duration,
) -> pingora_core::Result<()> {
    let header = header(settings, &reply, context)?;
    let write = async {
        session.write_response_header(Box::new(header)).await?;
        let [head, payload, tail] = reply.body;
        let pieces = !payload.is_empty();
        session.write_response_body(head, !pieces).await?;
        if pieces {
            session.write_response_body(payload, false).await?;
            session.write_response_body(tail, true).await?;
        }
        Ok(())
    };
    within(timeout, write)
        .await
        .unwrap_or_else(|| Error::e_explain(WriteTimedout, "the client does not read"))
}

fn header(
    settings: &Settings,
    reply: &Reply,
    context: &Context,
) -> pingora_core::Result<ResponseHeader> {
    let mut header = ResponseHeader::build_no_case(reply.status, Some(16))?;
    let mut add = |name: HeaderName, value: HeaderValue| header.insert_header(name, value);
    add(CACHE_CONTROL, HeaderValue::from_static("no-store"))?;
    add(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"))?;
    add(X_REQUEST_ID, context.request_id.clone())?;
    if let Some(media_type) = reply.media_type {
        add(CONTENT_TYPE, HeaderValue::from_static(media_type))?;
    }
    // 204 has no body and no length: RFC 9110, section 8.6
    if reply.status != 204 {
        add(CONTENT_LENGTH, HeaderValue::from(reply.length()))?;
    }
    if let Some(Standing { remaining, reset_seconds, .. }) = context.standing {
        add(RATE_LIMIT_POLICY, settings.quota_header.clone())?;
        add(RATE_LIMIT, rate_limit(remaining, reset_seconds))?;
    }
    if let Some(allow) = reply.allow {
        add(ALLOW, HeaderValue::from_static(allow))?;
    }
    if let Some(seconds) = reply.retry_after {
        add(RETRY_AFTER, HeaderValue::from(seconds))?;
    }
    if let Some(origin) = &context.cross_origin {
        cross_origin(&mut header, &settings.cors, origin, reply.status == 204)?;
    }
    Ok(header)
}

/// Lets a page of `origin` read the answer: <https://fetch.spec.whatwg.org/#http-cors-protocol>,
/// without credentials.
fn cross_origin(
    header: &mut ResponseHeader,
    cors: &CorsOrigins,
    origin: &HeaderValue,
    is_preflight: bool,
) -> pingora_core::Result<()> {
    let mut add = |name: HeaderName, value: HeaderValue| header.insert_header(name, value);
    match cors {
        CorsOrigins::Any => add(ACCESS_CONTROL_ALLOW_ORIGIN, HeaderValue::from_static("*"))?,
        CorsOrigins::List(origins) => {
            add(VARY, HeaderValue::from_static("origin"))?;
            if !origins.iter().any(|listed| listed == origin) {
                return Ok(());
            }
            add(ACCESS_CONTROL_ALLOW_ORIGIN, origin.clone())?;
        }
    }
    if is_preflight {
        let headers = HeaderValue::from_static("Content-Type, X-Request-Id");
        add(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("POST"))?;
        add(ACCESS_CONTROL_ALLOW_HEADERS, headers)?;
        add(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"))
    } else {
        add(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(EXPOSED))
    }
}

/// `RateLimit`: what is left of the quota, and when the oldest counted request leaves the window.
fn rate_limit(remaining: u32, reset_seconds: u32) -> HeaderValue {
    let mut text = Vec::with_capacity(32);
    text.extend_from_slice(b"\"minute\";r=");
    text.extend_from_slice(remaining.to_string().as_bytes());
    text.extend_from_slice(b";t=");
    text.extend_from_slice(reset_seconds.to_string().as_bytes());
    HeaderValue::from_maybe_shared(Bytes::from(text))
        .expect("digits, letters and ASCII punctuation are a header value")
}
