//! Heads of the gateway and the sidecar: which paths they serve, what counts for the rate, and what
//! of a head goes on.

#[path = "support/heads.rs"]
mod request_heads;

use http::HeaderName;
use portcullis_filters::bearer::Tokens;
use portcullis_filters::client::TrustedProxies;
use portcullis_filters::hmac::Secrets;
use portcullis_filters::limit::{Millis, RateCheck};
use portcullis_filters::networks::Networks;
use portcullis_filters::policy::{
    Admission, Admitted, Authorization, Function, GatewayCall, GatewayPolicy, MAX_BODY,
    PendingCall, PublicDocument, RequestParts, SidecarPolicy,
};
use portcullis_filters::rpc::{BlockId, Method, MethodSet};
use portcullis_filters::secret::Secret;
use portcullis_filters::verdict::Reason::{self, *};
use portcullis_filters::webhook::{MAX_WEBHOOK_BODY, WebhookPolicy};
use request_heads::{head, headers, limiter};

const TOKEN: &str = "0123456789abcdef0123456789abcdef";
const HOST: (&str, &str) = ("host", "node.example");
const JSON: (&str, &str) = ("content-type", "application/json");
const QUOTA: u32 = 10;

fn gateway() -> GatewayPolicy {
    GatewayPolicy {
        methods: MethodSet::new(&Method::ALL),
        trusted_proxies: TrustedProxies::default(),
        blocked: Networks::default(),
        has_documents: false,
    }
}

fn sidecar() -> SidecarPolicy {
    let secret = || Secret::new(TOKEN.into());
    let secrets = Secrets::new(vec![secret()]).expect("a secret");
    SidecarPolicy {
        trusted_proxies: TrustedProxies::default(),
        exempt: Networks::default(),
        operator: Tokens::new(&[secret()]),
        webhook: Some(WebhookPolicy {
            secrets,
            age_bands: vec!["18_plus".into()],
        }),
        signature_header: HeaderName::from_static("x-signature"),
    }
}

fn read(method: &str, target: &str, fields: &[(&str, &str)]) -> Admission<GatewayCall, ()> {
    let headers = headers(fields);
    let policy = gateway();
    let judged = policy.judge(&head(method, target, &headers));
    policy.admit(&judged, &limiter(QUOTA), Millis(0), |_| Some(()))
}

fn serve_by(
    policy: &SidecarPolicy,
    method: &str,
    target: &str,
    fields: &[(&str, &str)],
) -> Admission<RequestParts, ()> {
    let headers = headers(fields);
    policy.admit(
        &head(method, target, &headers),
        &limiter(QUOTA),
        Millis(0),
        |_| Some(()),
    )
}

fn serve(method: &str, target: &str, fields: &[(&str, &str)]) -> Admission<RequestParts, ()> {
    serve_by(&sidecar(), method, target, fields)
}

fn refused<C, G>(admission: &Admission<C, G>) -> Option<Reason> {
    admission
        .verdict
        .as_ref()
        .err()
        .map(|refusal| refusal.reason)
}

fn remaining<C, G>(admission: &Admission<C, G>) -> Option<u32> {
    admission
        .rate_limit
        .map(|RateCheck::Decided(status)| status.remaining)
}

fn call<C, G>(admission: Admission<C, G>) -> PendingCall<C, G> {
    match admission.verdict {
        Ok(Admitted::Call(call)) => call,
        Ok(_) => panic!("it is no call"),
        Err(refusal) => panic!("{refusal:?}"),
    }
}

#[test]
fn the_gateway_counts_calls_only() {
    let called = read("POST", "/rpc", &[HOST, JSON]);
    assert_eq!(remaining(&called), Some(QUOTA - 1));
    assert_eq!(
        called.client.address,
        std::net::IpAddr::from([192, 0, 2, 1])
    );
    assert_eq!(call(called).max_body, MAX_BODY);
    let preflight = read("OPTIONS", "/rpc", &[HOST]);
    assert_eq!(remaining(&preflight), Some(QUOTA));
    assert!(matches!(preflight.verdict, Ok(Admitted::Preflight)));
    for method in ["GET", "HEAD"] {
        let health = read(method, "/healthz", &[HOST]);
        assert_eq!(remaining(&health), Some(QUOTA));
        assert!(matches!(health.verdict, Ok(Admitted::Health)));
    }
}

#[test]
fn the_gateway_answers_a_preflight_of_any_path() {
    const ORIGIN: (&str, &str) = ("origin", "https://wallet.example");
    const METHOD: (&str, &str) = ("access-control-request-method", "POST");
    for target in ["/rpc", "/rpc/v0_8", "/", "/healthz", "/docs"] {
        let preflight = read("OPTIONS", target, &[HOST, ORIGIN, METHOD]);
        assert_eq!(remaining(&preflight), Some(QUOTA), "{target}: it is free");
        assert!(
            matches!(preflight.verdict, Ok(Admitted::Preflight)),
            "{target}"
        );
    }
    let both = [HOST, ORIGIN, METHOD, ("transfer-encoding", "gzip")];
    assert_eq!(
        refused(&read("OPTIONS", "/other", &both)),
        Some(ConflictingFraming)
    );
    for (method, fields) in [
        ("OPTIONS", &[HOST][..]),
        ("OPTIONS", &[HOST, ORIGIN]),
        ("OPTIONS", &[HOST, METHOD]),
        ("POST", &[HOST, ORIGIN, METHOD]),
    ] {
        assert_eq!(
            refused(&read(method, "/other", fields)),
            Some(NotFound),
            "{method} {fields:?}"
        );
    }
}

#[test]
fn the_gateway_serves_documents_if_they_are_on() {
    let on = GatewayPolicy {
        has_documents: true,
        ..gateway()
    };
    let ask = |policy: &GatewayPolicy, method, target, fields: &[(&str, &str)]| {
        let headers = headers(fields);
        let judged = policy.judge(&head(method, target, &headers));
        policy.admit(&judged, &limiter(QUOTA), Millis(0), |_| Some(()))
    };
    for document in PublicDocument::ALL {
        let path = document.name();
        assert_eq!(
            refused(&ask(&gateway(), "GET", path, &[HOST])),
            Some(NotFound),
            "{path}: off"
        );
        for method in ["GET", "HEAD"] {
            let served = ask(&on, method, path, &[HOST]);
            assert_eq!(
                remaining(&served),
                Some(QUOTA - 1),
                "{path}: it counts as a call"
            );
            let PendingCall { call, max_body, .. } = call(served);
            assert_eq!(
                (call, max_body),
                (GatewayCall::Document(document), 0),
                "{method} {path}"
            );
        }
        for (method, fields, reason) in [
            ("POST", &[HOST][..], WrongHttpMethod),
            ("GET", &[], InvalidRequest),
            ("GET", &[HOST, ("content-length", "1")], BodyTooLarge),
        ] {
            let refusal = refused(&ask(&on, method, path, fields));
            assert_eq!(refusal, Some(reason), "{method} {path} {fields:?}");
        }
    }
    for path in ["/docs/", "/docs?x", "/docs/openapi/relay.yaml"] {
        assert_eq!(
            refused(&ask(&on, "GET", path, &[HOST])),
            Some(NotFound),
            "{path}"
        );
    }
    assert_eq!(
        call(ask(&on, "POST", "/rpc", &[HOST, JSON])).call,
        GatewayCall::Rpc
    );
}

#[test]
fn the_gateway_refuses_other_heads() {
    for (method, target, fields, reason) in [
        ("GET", "/rpc", &[HOST][..], WrongHttpMethod),
        ("POST", "/healthz", &[HOST], WrongHttpMethod),
        ("POST", "/", &[HOST, JSON], NotFound),
        ("POST", "/rpc/v0_8", &[HOST, JSON], NotFound),
        ("POST", "/rpc", &[HOST], UnsupportedMediaType),
        ("POST", "/rpc", &[JSON], InvalidRequest),
        (
            "POST",
            "/rpc",
            &[HOST, JSON, ("content-length", "65537")],
            BodyTooLarge,
        ),
    ] {
        assert_eq!(
            refused(&read(method, target, fields)),
            Some(reason),
            "{method} {target}"
        );
    }
    let hint = |target| {
        read("POST", target, &[HOST])
            .verdict
            .expect_err("no such path")
            .hint
    };
    assert!(
        hint("/rpc/v0_8").is_some(),
        "the path without a version is named"
    );
    assert!(hint("/elsewhere").is_none());
}

#[test]
fn the_gateway_knows_who_waits_for_100_continue() {
    let waits = ("expect", "100-continue");
    assert!(!call(read("POST", "/rpc", &[HOST, JSON])).expects_continue);
    assert!(call(read("POST", "/rpc", &[HOST, JSON, waits])).expects_continue);
}

#[test]
fn a_client_of_the_gateway_has_a_share_of_requests_in_flight() {
    let headers = headers(&[HOST, JSON]);
    let policy = gateway();
    let judged = policy.judge(&head("POST", "/rpc", &headers));
    let full = policy.admit(&judged, &limiter(QUOTA), Millis(0), |key| {
        assert_eq!(key, judged.client().key);
        None::<()>
    });
    assert_eq!(refused(&full), Some(TooManyInFlight));
}

#[test]
fn a_refused_read_names_another_way() {
    let policy = gateway();
    let refused = |method: &str| {
        let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}","params":[]}}"#);
        policy
            .inspect(body.as_bytes())
            .expect_err("it is no read of the gateway")
    };
    for (method, way) in [
        ("starknet_getBlockWithTxs", "tip"),
        (
            "starknet_getBlockWithReceipts",
            "starknet_getTransactionReceipt",
        ),
        ("starknet_blockHashAndNumber", "latest"),
        ("starknet_getBlockTransactionCount", "count"),
        (
            "starknet_getTransactionByBlockIdAndIndex",
            "starknet_getTransactionByHash",
        ),
        ("starknet_getStorageAt", "starknet_call"),
        ("starknet_simulateTransactions", "starknet_estimateFee"),
        ("starknet_addInvokeTransaction", "relay"),
        ("starknet_syncing", "timestamp"),
        ("starknet_subscribeNewHeads", "poll starknet_blockNumber"),
        ("eth_chainId", "starknet_chainId"),
        ("starknet_getnonce", "did you mean starknet_getNonce?"),
        ("xyzzy", "the methods are starknet_specVersion, "),
    ] {
        let refusal = refused(method);
        assert_eq!(refusal.reason, MethodNotAllowed, "{method}");
        let hint = refusal.hint.expect("a hint");
        assert!(hint.contains(way), "{method}: {hint}");
    }
    let message = |method| refused(method).message;
    assert_ne!(
        message("starknet_addDeclareTransaction"),
        message("starknet_syncing")
    );
}

#[test]
fn a_read_is_written_as_it_was_judged_or_at_a_block() {
    let body =
        br#"{"jsonrpc":"2.0","id":"x","method":"starknet_getNonce","params":["latest","0x01"]}"#;
    let policy = gateway();
    let permit = policy.inspect(body).expect("a read");
    assert_eq!(permit.id().as_str(), r#""x""#);
    assert_eq!(permit.method().name(), "starknet_getNonce");
    assert_eq!(permit.params().arguments().len(), 2);
    let read = permit.into_read();
    assert_eq!(
        (read.method().name(), read.params().arguments().len()),
        ("starknet_getNonce", 2)
    );
    let written = |call: &[u8]| String::from_utf8(call.to_vec()).expect("text");
    let latest = written(read.call().as_bytes());
    assert!(
        latest.contains(r#""latest""#) && latest.contains(r#""0x1""#),
        "{latest}"
    );
    let at = written(read.call_at(BlockId::Number(7)).as_bytes());
    assert_eq!(at, latest.replace(r#""latest""#, r#"{"block_number":7}"#));
}

#[test]
fn each_function_of_the_sidecar_has_its_path() {
    for (target, function) in [
        (
            "/xrpc/app.bsky.feed.describeFeedGenerator",
            Function::DescribeFeedGenerator,
        ),
        (
            "/xrpc/app.bsky.feed.getFeedSkeleton?feed=a",
            Function::GetFeedSkeleton,
        ),
        ("/.well-known/did.json", Function::DidDocument),
        ("/xrpc/_health", Function::XrpcHealth),
        ("/robots.txt", Function::SeoRobots),
        ("/sitemap.xml", Function::SeoSitemap),
        ("/functions/health-check?verbose", Function::HealthCheck),
        ("/functions/podcast-rss-feed", Function::PodcastRssFeed),
    ] {
        assert_eq!(Function::at(target.as_bytes()), Some(function), "{target}");
    }
    for function in Function::ALL {
        let target = format!("/functions/{}", function.name());
        let has_path = !matches!(function, Function::DidDocument | Function::XrpcHealth);
        let expected = has_path.then_some(function);
        assert_eq!(Function::at(target.as_bytes()), expected, "{target}");
    }
}

#[test]
fn the_sidecar_serves_its_paths_and_no_others() {
    for (method, target, reason) in [
        ("GET", "/xrpc/app.bsky.feed.getTimeline", UnknownMethod),
        ("GET", "/", NotFound),
        ("GET", "/xrpc", NotFound),
        ("GET", "/functions/did.json", NotFound),
        ("GET", "/functions/nothing", NotFound),
        ("POST", "/healthz", WrongHttpMethod),
        ("POST", "/robots.txt", WrongHttpMethod),
        (
            "PUT",
            "/functions/age-verification-session",
            WrongHttpMethod,
        ),
        ("GET", "/functions/age-verifier-webhook", WrongHttpMethod),
        (
            "OPTIONS",
            "/functions/age-verifier-webhook",
            WrongHttpMethod,
        ),
    ] {
        assert_eq!(
            refused(&serve(method, target, &[HOST])),
            Some(reason),
            "{method} {target}"
        );
    }
    for (method, target) in [
        ("GET", "/sitemap.xml?a=b"),
        ("HEAD", "/sitemap.xml"),
        ("POST", "/functions/age-verification-session"),
        ("POST", "/functions/age-verifier-webhook"),
    ] {
        let admission = serve(method, target, &[HOST]);
        assert_eq!(remaining(&admission), Some(QUOTA - 1), "it counts");
        let call = call(admission).call;
        assert_eq!(call.is_post, method == "POST", "{method} {target}");
        let is_webhook = call.function == Function::AgeVerifierWebhook;
        assert_eq!(call.function.is_for_pages(), !is_webhook, "{target}");
    }
    for target in ["/robots.txt", "/.well-known/did.json", "/xrpc/_health"] {
        let admission = serve("GET", target, &[HOST]);
        assert_eq!(remaining(&admission), Some(QUOTA), "a constant: {target}");
        assert!(call(admission).slot.is_none(), "nor does it take a place");
    }
    let preflight = serve("OPTIONS", "/robots.txt", &[HOST]);
    assert!(matches!(preflight.verdict, Ok(Admitted::Preflight)));
    assert_eq!(remaining(&preflight), Some(QUOTA));
    let health = serve("GET", "/healthz?x", &[HOST]);
    assert!(matches!(health.verdict, Ok(Admitted::Health)));
    assert_eq!(remaining(&health), Some(QUOTA));
}

#[test]
fn a_webhook_needs_a_secret() {
    let target = "/functions/age-verifier-webhook";
    let policy = SidecarPolicy {
        webhook: None,
        ..sidecar()
    };
    assert_eq!(
        refused(&serve_by(&policy, "POST", target, &[HOST])),
        Some(NotConfigured)
    );
    assert_eq!(
        refused(&serve_by(&policy, "GET", "/robots.txt", &[HOST])),
        None,
        "others do not"
    );
}

#[test]
fn the_bodies_and_queries_of_the_sidecar_are_bounded() {
    let sized = |target: &str, size: usize| {
        serve(
            "POST",
            target,
            &[HOST, ("content-length", &size.to_string())],
        )
    };
    for (target, most) in [
        ("/functions/age-verifier-webhook", MAX_WEBHOOK_BODY),
        ("/functions/age-verification-session", 1_024),
    ] {
        assert_eq!(
            refused(&sized(target, most + 1)),
            Some(BodyTooLarge),
            "{target}"
        );
        assert_eq!(call(sized(target, most)).max_body, most, "{target}");
    }
    let target = |length| format!("/sitemap.xml?{}", "q".repeat(length));
    let longest = call(serve("GET", &target(8_192), &[HOST])).call;
    assert_eq!(longest.query.len(), 8_192);
    assert_eq!(
        refused(&serve("GET", &target(8_193), &[HOST])),
        Some(InvalidRequest)
    );
    let short = call(serve("GET", "/sitemap.xml?page=1?2", &[HOST])).call;
    assert_eq!(&*short.query, b"page=1?2");
    assert!(
        call(serve("GET", "/sitemap.xml", &[HOST]))
            .call
            .query
            .is_empty()
    );
}

#[test]
fn a_function_sees_the_fields_that_it_needs() {
    let parts = |fields: &[(&str, &str)]| {
        let fields: Vec<_> = [HOST].into_iter().chain(fields.iter().copied()).collect();
        call(serve("GET", "/robots.txt", &fields)).call
    };
    let bare = parts(&[]);
    assert!(matches!(bare.authorization, Authorization::Absent) && !bare.is_operator);
    assert_eq!(
        (bare.if_none_match, bare.if_modified_since, bare.accept),
        (None, None, None)
    );
    let bearer = format!("Bearer {TOKEN}");
    let full = parts(&[
        ("authorization", &bearer),
        ("if-none-match", "\"a\""),
        ("if-none-match", "\"b\""),
        ("if-modified-since", "Wed, 25 Nov 2026 09:00:00 GMT"),
        ("accept", "text/plain"),
    ]);
    assert!(matches!(full.authorization, Authorization::Present(_)) && full.is_operator);
    assert_eq!(full.if_none_match.as_deref(), Some(&br#""a","b""#[..]));
    assert!(full.if_modified_since.is_some());
    assert_eq!(full.accept.as_deref(), Some(&b"text/plain"[..]));
    let twice = parts(&[("authorization", &bearer), ("authorization", &bearer)]);
    assert!(matches!(twice.authorization, Authorization::Duplicate) && !twice.is_operator);
}

#[test]
fn a_body_that_means_nothing_is_empty_or_an_empty_object() {
    let judge = |fields: &[(&str, &str)], body: &[u8]| {
        let fields: Vec<_> = [HOST].into_iter().chain(fields.iter().copied()).collect();
        let call = call(serve(
            "POST",
            "/functions/age-verification-session",
            &fields,
        ))
        .call;
        call.no_body(body).map_err(|refusal| refusal.reason)
    };
    let large = " ".repeat(1_025);
    for (fields, body, verdict) in [
        (&[][..], "", Ok(())),
        (&[JSON], "", Ok(())),
        (&[JSON], "{}", Ok(())),
        (&[JSON], " {\t\r\n} ", Ok(())),
        (&[], "{}", Err(UnsupportedMediaType)),
        (&[JSON], "{}{}", Err(InvalidRequest)),
        (&[JSON], "[]", Err(InvalidRequest)),
        (&[JSON], " ", Err(InvalidRequest)),
        (&[JSON], &large, Err(BodyTooLarge)),
    ] {
        assert_eq!(judge(fields, body.as_bytes()), verdict, "{body:?}");
    }
}
