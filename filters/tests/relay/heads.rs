//! Heads: who may speak, how often, where to, in which form.

use crate::request_heads::{head, headers, limiter};
use crate::support::{TOKEN, policy};
use portcullis_filters::client::ClientKey;
use portcullis_filters::limit::{Limiter, Millis, RateCheck, RateLimitStatus};
use portcullis_filters::operations::OperationKind;
use portcullis_filters::policy::{Admission, Admitted, Endpoint, RelayCall};
use portcullis_filters::verdict::Reason::{self, *};

/// The fields of a good call.
fn good() -> Vec<(&'static str, &'static str)> {
    const AUTHORIZATION: &str = "Bearer 0123456789abcdef0123456789abcdef";
    assert!(AUTHORIZATION.ends_with(TOKEN));
    vec![
        ("host", "relay"),
        ("authorization", AUTHORIZATION),
        ("content-type", "application/json"),
        ("content-length", "2"),
    ]
}

fn admit(method: &str, target: &str, fields: &[(&str, &str)]) -> Admission<RelayCall, ()> {
    let headers = headers(fields);
    let (limiter, head) = (limiter(10), head(method, target, &headers));
    policy().admit(&head, &limiter, Millis(0), |_| status(true), |_| Some(()))
}

/// Whether a client may send another wrong token; if not, for 42 seconds.
fn status<T>(admitted: bool) -> RateCheck<T> {
    RateCheck::Decided(RateLimitStatus {
        admitted,
        remaining: 0,
        reset_seconds: 42,
    })
}

fn refused<T>(admission: &Admission<RelayCall, (), T>) -> Option<Reason> {
    admission
        .verdict
        .as_ref()
        .err()
        .map(|refusal| refusal.reason)
}

#[test]
fn every_path_takes_its_method_and_no_other() {
    let operations = OperationKind::ALL.map(Endpoint::Operation);
    let endpoints = [Endpoint::Rpc, Endpoint::Ready]
        .into_iter()
        .chain(operations)
        .map(Some);
    for endpoint in endpoints.chain([None]) {
        let path = &*format!("/{}", endpoint.map_or("healthz", Endpoint::name));
        for method in ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "get", ""] {
            let admission = admit(method, path, &good());
            let gets = matches!(path, "/readyz" | "/healthz");
            let ok = if gets {
                matches!(method, "GET" | "HEAD")
            } else {
                method == "POST"
            };
            let expected = (!ok).then_some(WrongHttpMethod);
            assert_eq!(refused(&admission), expected, "{method} {path}");
            assert_eq!(Endpoint::at(path.as_bytes()), endpoint, "{method} {path}");
            if let Err(refusal) = admission.verdict {
                let allow = if gets { "GET, HEAD" } else { "POST" };
                assert_eq!(refusal.allow, Some(allow), "{method} {path}");
            }
        }
    }
    for path in [
        "/",
        "",
        "/RPC",
        "/rpc/",
        "/rpc?x",
        "//rpc",
        "/%72pc",
        "/mint-card/",
        "/metrics",
    ] {
        let admission = admit("POST", path, &good());
        assert_eq!(
            (refused(&admission), Endpoint::at(path.as_bytes())),
            (Some(NotFound), None),
            "{path}"
        );
    }
}

#[test]
fn only_the_route_is_judged_before_the_token() {
    let wrong = [
        ("content-type", "text/plain"),
        ("content-length", "99999999"),
    ];
    for path in ["/rpc", "/register"] {
        let admission = admit("POST", path, &wrong);
        assert_eq!(refused(&admission), Some(Unauthorized), "{path}");
        assert_eq!(
            admission.rate_limit, None,
            "the limit is for holders of a token: {path}"
        );
    }
    assert_eq!(refused(&admit("GET", "/readyz", &[])), Some(Unauthorized));
    assert!(matches!(
        admit("GET", "/healthz", &[]).verdict,
        Ok(Admitted::Health)
    ));
    assert_eq!(
        refused(&admit("POST", "/nothing", &[])),
        Some(NotFound),
        "the bare route needs none"
    );
    assert_eq!(refused(&admit("GET", "/rpc", &[])), Some(WrongHttpMethod));
}

#[test]
fn every_wrong_token_gets_the_same_refusal() {
    let [host, good_token, kind, length] = good()[..] else {
        panic!("four fields")
    };
    let mut messages = Vec::new();
    for token in [
        None,
        Some(("authorization", "")),
        Some(("authorization", "Bearer wrong")),
        Some(("authorization", "Basic 0123456789abcdef0123456789abcdef")),
    ] {
        let fields: Vec<_> = [host, kind, length].into_iter().chain(token).collect();
        let refusal = admit("POST", "/rpc", &fields)
            .verdict
            .expect_err("no token");
        assert_eq!(refusal.reason, Unauthorized, "{token:?}");
        messages.push(refusal.message);
    }
    messages.dedup();
    assert_eq!(messages.len(), 1, "one message for all: {messages:?}");
    let headers = headers(&[host, kind, length, good_token, good_token]);
    let (limiter, head) = (limiter(10), head("POST", "/rpc", &headers));
    let too_many = policy().admit(&head, &limiter, Millis(0), |_| status(false), |_| Some(()));
    let refusal = too_many.verdict.expect_err("two tokens");
    assert_eq!(refusal.reason, RateLimited, "too many wrong tokens");
    assert_eq!(refusal.retry_after, Some(42), "until another may be sent");
}

#[test]
fn a_good_token_is_never_refused_for_failures() {
    let headers = headers(&good());
    let (limiter, head) = (limiter(10), head("POST", "/rpc", &headers));
    let counted = |_| panic!("a good token is no failure");
    assert!(
        policy()
            .admit(&head, &limiter, Millis(0), counted, |_| Some(()))
            .verdict
            .is_ok()
    );
}

/// Decides nothing at once.
struct Undecided;

impl Limiter for Undecided {
    type Ticket = &'static str;

    fn check(&self, _: ClientKey, _: Millis) -> RateCheck<&'static str> {
        RateCheck::Pending("a request")
    }

    fn peek(&self, _: ClientKey, _: Millis) -> RateLimitStatus {
        panic!("the relay shows no status before it accepts a token")
    }
}

#[test]
fn a_pending_check_leaves_with_its_ticket() {
    let failed = |_| RateCheck::Pending("a wrong token");
    let [host, token, ..] = good()[..] else {
        panic!("four fields")
    };
    for (fields, verdict, ticket) in [
        (good(), None, "a request"),
        (vec![host, token], Some(UnsupportedMediaType), "a request"),
        (vec![host], Some(Unauthorized), "a wrong token"),
    ] {
        let headers = headers(&fields);
        let head = head("POST", "/rpc", &headers);
        let admission = policy().admit(&head, &Undecided, Millis(0), failed, |_| Some(()));
        assert_eq!(
            admission.rate_limit,
            Some(RateCheck::Pending(ticket)),
            "{fields:?}"
        );
        assert_eq!(refused(&admission), verdict, "{fields:?}");
    }
}

#[test]
fn the_rate_is_judged_before_the_headers() {
    let wrong: Vec<_> = good()
        .into_iter()
        .filter(|(name, _)| *name != "content-type")
        .collect();
    let headers = headers(&wrong);
    let (limiter, head, policy) = (limiter(2), head("POST", "/rpc", &headers), policy());
    let failed = |_| status(true);
    let admit = |slot: Option<()>| policy.admit(&head, &limiter, Millis(0), failed, |_| slot);
    assert_eq!(refused(&admit(Some(()))), Some(UnsupportedMediaType));
    assert_eq!(refused(&admit(None)), Some(TooManyInFlight));
    let third = admit(Some(()));
    assert_eq!(refused(&third), Some(RateLimited));
    assert!(
        third
            .rate_limit
            .is_some_and(|RateCheck::Decided(status)| !status.admitted)
    );
}

#[test]
fn the_headers_must_fit_a_json_body() {
    let without = |name: &'static str, field: (&'static str, &'static str)| {
        let others = good().into_iter().filter(move |(known, _)| *known != name);
        others.chain([field]).collect::<Vec<_>>()
    };
    for (fields, expected) in [
        (good(), None),
        (without("", ("expect", "100-continue")), None),
        (
            without("", ("expect", "a miracle")),
            Some(ExpectationFailed),
        ),
        (
            without(
                "content-type",
                ("content-type", "application/json; charset=utf-8"),
            ),
            None,
        ),
        (
            without("content-type", ("content-type", "application/vnd.api+json")),
            Some(UnsupportedMediaType),
        ),
        (
            without("content-type", ("content-type", "text/plain")),
            Some(UnsupportedMediaType),
        ),
        (
            without("", ("content-encoding", "gzip")),
            Some(UnsupportedEncoding),
        ),
        (
            without("", ("transfer-encoding", "chunked")),
            Some(ConflictingFraming),
        ),
        (without("content-length", ("content-length", "65536")), None),
        (
            without("content-length", ("content-length", "65537")),
            Some(BodyTooLarge),
        ),
        (without("host", ("x", "")), Some(InvalidRequest)),
    ] {
        assert_eq!(
            refused(&admit("POST", "/register", &fields)),
            expected,
            "{fields:?}"
        );
    }
    let [host, token, ..] = good()[..] else {
        panic!("four fields")
    };
    assert_eq!(
        refused(&admit("GET", "/readyz", &[host, token])),
        None,
        "no body, no type"
    );
    assert_eq!(
        refused(&admit("GET", "/readyz", &[token])),
        Some(InvalidRequest),
        "no host"
    );
}

#[test]
fn an_idempotency_key_is_one_visible_field() {
    let long = "k".repeat(128);
    let longer = "k".repeat(129);
    for (keys, expected) in [
        (&[][..], Ok(None)),
        (&["a"][..], Ok(Some("a"))),
        (&["f81d4fae-7dec-11d0"][..], Ok(Some("f81d4fae-7dec-11d0"))),
        (&[long.as_str()][..], Ok(Some(long.as_str()))),
        (&[longer.as_str()][..], Err(InvalidRequest)),
        (&[""][..], Err(InvalidRequest)),
        (&["a b"][..], Err(InvalidRequest)),
        (&["ä"][..], Err(InvalidRequest)),
        (&["a", "a"][..], Err(InvalidRequest)),
    ] {
        let fields: Vec<_> = good()
            .into_iter()
            .chain(keys.iter().map(|key| ("idempotency-key", *key)))
            .collect();
        let verdict = admit("POST", "/mint-card", &fields).verdict;
        let key = verdict
            .map_err(|refusal| refusal.reason)
            .map(|admitted| match admitted {
                Admitted::Call(pending) => pending.call.idempotency_key,
                other => panic!("{other:?} is no call"),
            });
        assert_eq!(key, expected.map(|key| key.map(str::to_owned)), "{keys:?}");
    }
}
