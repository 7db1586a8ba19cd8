//! The program's reading of a stream: its own parser of heads and bodies and its own policy,
//! without a connection.

#[path = "../../edge/src/http/http1/message/mod.rs"]
#[expect(dead_code, reason = "the program uses more of it")]
mod message;

use ::http::header::{EXPECT, HOST, TRANSFER_ENCODING};
use ::http::{HeaderMap, Version};
use bytes::{Bytes, BytesMut};
use message::{BodyReader, Decoded, MAX_FIELDS, end_of_head, parse, start_of_head};
use pingora::http::RequestHeader;
use portcullis_filters::client::{ClientKey, TrustedProxies};
use portcullis_filters::head::Head;
use portcullis_filters::limit::{Limiter, Millis, Quota, RateCheck, RateLimitStatus, RateLimiter};
use portcullis_filters::networks::Networks;
use portcullis_filters::policy::{Admitted, GatewayPolicy};
use portcullis_filters::rpc::{Method, MethodSet};
use portcullis_filters::verdict::Reason;
use std::convert::Infallible;
use std::hash::{BuildHasherDefault, DefaultHasher};
use std::num::NonZeroU32;
use std::sync::LazyLock;

/// The default of `gateway.connections.header_size`.
const HEADER_SIZE: usize = 16 << 10;
const _: () = assert!(MAX_FIELDS == 256, "the generator stays below it");

/// A request as a reader sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    pub(crate) method: String,
    /// In origin form: proxies strip the authority of an absolute target.
    pub(crate) target: Vec<u8>,
    pub(crate) body: Vec<u8>,
}

impl Request {
    /// A request with its target in any form.
    pub(crate) fn new(method: &str, target: &[u8], body: &[u8]) -> Self {
        let (method, body) = (method.to_owned(), body.to_vec());
        Self {
            method,
            target: origin_form(target),
            body,
        }
    }
}

fn origin_form(target: &[u8]) -> Vec<u8> {
    let scheme = target.windows(3).position(|bytes| bytes == b"://");
    let is_absolute = |at: &usize| target[..*at].iter().all(u8::is_ascii_alphabetic);
    let Some(scheme) = scheme.filter(is_absolute) else {
        return target.to_vec();
    };
    let rest = &target[scheme + 3..];
    let path = rest
        .iter()
        .position(|byte| matches!(byte, b'/' | b'?'))
        .unwrap_or(rest.len());
    match rest.get(path) {
        Some(b'/') => rest[path..].to_vec(),
        _ => [b"/", &rest[path..]].concat(),
    }
}

/// A request that the program reads whole.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Accepted {
    pub(crate) request: Request,
    pub(crate) version: Version,
    /// Where it ends in the stream.
    pub(crate) end: usize,
    /// The status of the program's response.
    pub(crate) status: u16,
    /// The JSON-RPC id of a response with a result.
    pub(crate) id: Option<String>,
    /// Whether another request may follow on the connection.
    pub(crate) persists: bool,
}

/// How the program's reading of a stream ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Nothing is left of the stream.
    Whole,
    /// The last request is not whole.
    Incomplete,
    /// Its framing, or that it needs no reading, ends the connection with this status.
    Refused(u16),
    /// The client ends the connection after the last request.
    Closed,
}

/// The program's reading of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Reading {
    pub(crate) accepted: Vec<Accepted>,
    pub(crate) ending: Ending,
}

/// Reads a stream of which `step` bytes arrive at a time.
pub(crate) fn read(stream: &[u8], step: usize) -> Reading {
    let (mut accepted, mut at) = (Vec::new(), 0);
    let ending = loop {
        match next_request(stream, at, step) {
            Ok((request, client)) => {
                at = request.end;
                accepted.push(request);
                if client == Client::Closes {
                    break Ending::Closed;
                }
            }
            Err(ending) => break ending,
        }
    };
    Reading { accepted, ending }
}

#[derive(PartialEq)]
enum Client {
    Continues,
    Closes,
}

fn next_request(stream: &[u8], at: usize, step: usize) -> Result<(Accepted, Client), Ending> {
    let rest = &stream[at..];
    let Some(start) = start_of_head(rest) else {
        return Err(Ending::Whole);
    };
    let size = head_size(rest, step)?;
    let head = Bytes::copy_from_slice(&rest[start..size]);
    let parsed = parse(&head).map_err(refused)?;
    let fields = &parsed.header.headers;
    let verdict = verdict_on(&parsed.header, &head);
    let is_certain = fields.contains_key(HOST) && !fields.contains_key(TRANSFER_ENCODING);
    let is_read = match verdict {
        Verdict::Call => true,
        Verdict::Status(_) if is_certain => {
            parsed.body == BodyReader::DONE || !fields.contains_key(EXPECT)
        }
        Verdict::Status(status) => return Err(Ending::Refused(status)),
    };
    if !is_read {
        return Err(Ending::Refused(verdict.status()));
    }
    let decoded = decode(parsed.body, &rest[size..], step);
    let (body, length) = decoded.map_err(|ending| match verdict {
        Verdict::Call => ending,
        // answered, although the end of its body cannot be found
        Verdict::Status(status) => Ending::Refused(status),
    })?;
    let (status, id) = match verdict {
        Verdict::Call => answer_to(&body),
        Verdict::Status(status) => (status, None),
    };
    let client = if parsed.keeps_alive {
        Client::Continues
    } else {
        Client::Closes
    };
    let accepted = Accepted {
        request: Request::new(
            parsed.header.method.as_str(),
            parsed.header.raw_path(),
            &body,
        ),
        version: parsed.header.version,
        end: at + size + length,
        status,
        id,
        persists: client == Client::Continues && is_certain,
    };
    Ok((accepted, client))
}

fn refused(reason: Reason) -> Ending {
    Ending::Refused(reason.status())
}

/// Where the head ends, searched as the bytes arrive.
fn head_size(rest: &[u8], step: usize) -> Result<usize, Ending> {
    let mut searched = 0;
    for arrived in (0..rest.len())
        .step_by(step)
        .map(|at| (at + step).min(rest.len()))
    {
        match end_of_head(&rest[..arrived], searched) {
            Some(end) if end <= HEADER_SIZE => return Ok(end),
            None if arrived < HEADER_SIZE => searched = arrived.saturating_sub(2),
            _ => return Err(refused(Reason::HeaderTooLarge)),
        }
    }
    Err(Ending::Incomplete)
}

/// The body, and the bytes that it takes in the stream.
fn decode(mut reader: BodyReader, rest: &[u8], step: usize) -> Result<(Vec<u8>, usize), Ending> {
    let (mut buffer, mut body) = (BytesMut::new(), Vec::new());
    let mut pieces = rest.chunks(step);
    let mut arrived = 0;
    loop {
        match reader.decode(&mut buffer) {
            Ok(Decoded::Piece(piece)) => body.extend_from_slice(&piece),
            Ok(Decoded::End) => return Ok((body, arrived - buffer.len())),
            Ok(Decoded::Incomplete) => {
                let piece = pieces.next().ok_or(Ending::Incomplete)?;
                arrived += piece.len();
                buffer.extend_from_slice(piece);
            }
            Err(_) => return Err(refused(Reason::ConflictingFraming)),
        }
    }
}

/// The policy's verdict on a head.
enum Verdict {
    /// The body is read.
    Call,
    /// It is answered without its body.
    Status(u16),
}

impl Verdict {
    fn status(&self) -> u16 {
        match self {
            Self::Call => 200,
            Self::Status(status) => *status,
        }
    }
}

struct Unlimited(RateLimiter<BuildHasherDefault<DefaultHasher>>);

impl Limiter for Unlimited {
    type Ticket = Infallible;

    fn check(&self, client: ClientKey, now: Millis) -> RateCheck<Infallible> {
        RateCheck::Decided(self.peek(client, now))
    }

    fn peek(&self, client: ClientKey, now: Millis) -> RateLimitStatus {
        self.0.peek(client, now)
    }
}

static LIMITER: LazyLock<Unlimited> = LazyLock::new(|| {
    let quota = Quota::per_minute(Quota::MAX).expect("the largest");
    Unlimited(RateLimiter::new(
        quota,
        NonZeroU32::MIN,
        BuildHasherDefault::default(),
    ))
});

static POLICY: LazyLock<GatewayPolicy> = LazyLock::new(|| GatewayPolicy {
    methods: MethodSet::new(&Method::ALL),
    trusted_proxies: TrustedProxies::default(),
    blocked: Networks::default(),
    has_documents: false,
});

fn verdict_on(header: &RequestHeader, raw: &[u8]) -> Verdict {
    let headers: &HeaderMap = &header.headers;
    let (method, target) = (header.method.as_str(), header.raw_path());
    let head = Head {
        method,
        target,
        version: header.version,
        headers,
        raw,
        peer: None,
    };
    let judged = POLICY.judge(&head);
    match POLICY
        .admit(&judged, &*LIMITER, Millis(0), |_| Some(()))
        .verdict
    {
        Ok(Admitted::Call(_)) => Verdict::Call,
        Ok(Admitted::Health) => Verdict::Status(200),
        Ok(Admitted::Preflight) => Verdict::Status(204),
        Err(refusal) => Verdict::Status(refusal.reason.status()),
    }
}

/// The status of a call with this body, and the id if it is answered with a result.
fn answer_to(body: &[u8]) -> (u16, Option<String>) {
    match POLICY.inspect(body) {
        Ok(permit) => (200, Some(permit.id().as_str().to_owned())),
        Err(refusal) => (refusal.reason.status(), None),
    }
}

#[test]
fn targets_are_compared_in_origin_form() {
    for (target, expected) in [
        ("/rpc", "/rpc"),
        ("http://x/rpc?a", "/rpc?a"),
        ("HTTP://x", "/"),
        ("http://x?a", "/?a"),
        ("/http://x/", "/http://x/"),
        ("*", "*"),
    ] {
        assert_eq!(
            origin_form(target.as_bytes()),
            expected.as_bytes(),
            "{target}"
        );
    }
}
