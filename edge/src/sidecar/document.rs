//! Documents and conditional requests (RFC 9110, section 13).
//!
//! A document depends on stored data alone, never on the time of the request, so that equal content
//! has equal bytes and an equal `ETag`.

use crate::reply::coding::{Coding, gzip_etag};
use crate::reply::{Body, Reply};
use bytes::Bytes;
use portcullis_base::io::MemoryPermit;
use portcullis_base::io::clock::{self, LAST_SECOND};
use portcullis_base::io::gzip::{GzipForm, MIN_BODY};
use portcullis_filters::policy::RequestParts;
use sha2::{Digest, Sha256};
use std::borrow::Cow;
use std::sync::Arc;
use std::time::SystemTime;

/// A document, ready to send.
#[derive(Debug, Clone)]
pub struct Document {
    /// The body.
    pub body: Bytes,
    /// `Content-Type`.
    pub media_type: &'static str,
    /// A strong `ETag` of the body.
    pub etag: String,
    /// `Last-Modified`, in microseconds since 1970.
    pub modified_us: Option<i64>,
    /// The memory of the body, if it was reserved in a pool.
    pub memory: Option<Arc<MemoryPermit>>,
    /// The gzip form of the body, made for the first client that accepts it.
    gzip: GzipForm,
}

/// The gzip form is derived from the body, so it is not compared; nor is the memory.
impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            body,
            media_type,
            etag,
            modified_us,
            memory: _,
            gzip: _,
        } = self;
        (body, media_type, etag, modified_us)
            == (
                &other.body,
                &other.media_type,
                &other.etag,
                &other.modified_us,
            )
    }
}

impl Document {
    pub(super) fn new(body: Bytes, media_type: &'static str, modified_us: Option<i64>) -> Self {
        let etag = etag(&[&body]);
        let gzip = GzipForm::of(body.len());
        Self {
            body,
            media_type,
            etag,
            modified_us,
            memory: None,
            gzip,
        }
    }

    /// The response: the document, or 304 if the client has it.
    pub(super) fn reply(
        &self,
        request: &RequestParts,
        cache_control: impl Into<Cow<'static, str>>,
    ) -> Reply {
        let is_large = self.body.len() >= MIN_BODY;
        let coding = if is_large {
            Coding::Negotiable
        } else {
            Coding::Only
        };
        let mut reply = validated(request, cache_control, &self.etag, self.modified_us, coding);
        if reply.status == 200 {
            reply.gzip = self.gzip.clone();
            reply.media_type = Some(self.media_type);
            // as a payload it is sent without a copy
            reply.body = Body::framed(Bytes::new(), self.body.clone(), b"");
            reply.memory = self.memory.clone();
        }
        reply
    }
}

/// The head of a response with validators: 200, or 304 if the client has the document (RFC 9110,
/// section 15.4.5). A time in the future is no `Last-Modified` (section 8.8.2.1): once corrected,
/// it would stay the later one.
pub(super) fn validated(
    request: &RequestParts,
    cache_control: impl Into<Cow<'static, str>>,
    etag: &str,
    modified_us: Option<i64>,
    coding: Coding,
) -> Reply {
    let [if_none_match, since] =
        [&request.if_none_match, &request.if_modified_since].map(|field| {
            field
                .as_deref()
                .and_then(|value| str::from_utf8(value).ok())
        });
    let named = if_none_match
        .filter(|_| coding == Coding::Negotiable)
        .and_then(|list| {
            let tags = [etag.to_owned(), gzip_etag(etag.as_bytes())];
            tags.into_iter()
                .find(|tag| list.trim() != "*" && lists(list, tag))
        });
    let modified_us = modified_us.filter(|us| seconds(*us) <= seconds(clock::now_us()));
    let unchanged = named.is_some() || is_unchanged(if_none_match, since, etag, modified_us);
    let mut reply = Reply {
        status: if unchanged { 304 } else { 200 },
        cache_control: Some(cache_control.into()),
        coding: if named.is_some() {
            Coding::Selected
        } else {
            coding
        },
        ..Reply::default()
    };
    reply.field("etag", named.as_deref().unwrap_or(etag));
    if let Some(us) = modified_us {
        reply.field("last-modified", http_date(us));
    }
    reply
}

/// A strong `ETag` of some bytes.
pub fn etag(parts: &[&[u8]]) -> String {
    let digest = parts
        .iter()
        .fold(Sha256::new(), |digest, part| digest.chain_update(part));
    format!("\"{:x}\"", digest.finalize())
}

/// Whether a client that sent these two headers has the document. If there is an `If-None-Match`,
/// it decides alone; an `If-Modified-Since` that is not a date is ignored.
fn is_unchanged(
    if_none_match: Option<&str>,
    if_modified_since: Option<&str>,
    etag: &str,
    modified_us: Option<i64>,
) -> bool {
    if let Some(list) = if_none_match {
        return lists(list, etag);
    }
    let since = if_modified_since.and_then(|date| httpdate::parse_http_date(date.trim()).ok());
    matches!((since, modified_us), (Some(since), Some(us)) if instant(us) <= since)
}

/// Whether an `If-None-Match` lists a tag, weak or strong. An incomplete tag at its end is ignored.
fn lists(list: &str, etag: &str) -> bool {
    let mut rest = list.trim();
    if rest == "*" {
        return true;
    }
    loop {
        rest = rest.trim_start_matches([' ', '\t', ',']);
        let tag = rest.strip_prefix("W/").unwrap_or(rest);
        // a tag may contain a comma, but not a quote
        let Some(end) = tag.strip_prefix('"').and_then(|tag| tag.find('"')) else {
            return false;
        };
        let (tag, after) = tag.split_at(end + 2);
        if tag == etag {
            return true;
        }
        rest = after;
    }
}

/// A stored instant in the format of HTTP and RSS, in whole seconds.
pub fn http_date(us: i64) -> String {
    clock::http_date(seconds(us))
}

/// Converts a stored instant to whole seconds since 1970, clamped to the range of dates.
pub(super) fn seconds(us: i64) -> i64 {
    us.div_euclid(1_000_000).clamp(0, LAST_SECOND.cast_signed())
}

fn instant(us: i64) -> SystemTime {
    clock::at_second(seconds(us))
}
