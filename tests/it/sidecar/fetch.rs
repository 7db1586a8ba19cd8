//! Fetches from a server on loopback, and the addresses that strangers may name.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use portcullis_base::fetch::address::is_public;
use portcullis_base::fetch::{FetchError, Trust, document, status};

use crate::support::sidecar::pieces;

fn slow(pieces: Vec<Vec<u8>>, pause: Duration) -> String {
    format!(
        "http://127.0.0.1:{}/",
        pieces::serve(pause, move |_| pieces.clone())
    )
}

fn serve(answer: impl Into<Vec<u8>>) -> String {
    slow(vec![answer.into()], Duration::ZERO)
}

async fn fetched(url: &str, trust: Trust) -> Result<Vec<u8>, FetchError> {
    document(url, trust, ()).await.map(|document| document.body)
}

#[tokio::test]
async fn a_document_has_at_most_64_kib() {
    let sized = |size: usize| {
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {size}\r\n\r\n");
        [head.into_bytes(), vec![b'x'; size]].concat()
    };
    let until_the_end = [b"HTTP/1.1 200 OK\r\n\r\n".to_vec(), vec![b'x'; 65_537]].concat();
    let redirect =
        "HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:9/\r\nContent-Length: 0\r\n\r\n";
    let cut = "HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nfour";
    let head = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(20_000));
    for (what, answer, expected) in [
        ("empty", sized(0), Ok(0)),
        ("as large as it may be", sized(65_536), Ok(65_536)),
        ("larger", sized(65_537), Err(FetchError::TooLarge)),
        ("of no known size", until_the_end, Err(FetchError::TooLarge)),
        ("a redirect", redirect.into(), Err(FetchError::Status(302))),
        (
            "a fault",
            "HTTP/1.1 503 X\r\n\r\n".into(),
            Err(FetchError::Status(503)),
        ),
        ("cut", cut.into(), Err(FetchError::Unreachable)),
        ("a large head", head.into(), Err(FetchError::TooLarge)),
        (
            "no HTTP",
            "SSH-2.0-x\r\n\r\n".into(),
            Err(FetchError::Unreachable),
        ),
        ("nothing", Vec::new(), Err(FetchError::Unreachable)),
    ] {
        let found = fetched(&serve(answer), Trust::Operator).await;
        assert_eq!(found.map(|body| body.len()), expected, "{what}");
    }
    let away = fetched("http://127.0.0.1:9/", Trust::Operator).await;
    assert_eq!(away, Err(FetchError::Unreachable), "nobody listens there");
}

#[tokio::test]
async fn the_deadline_covers_the_last_byte() {
    let drops = || {
        let head = b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n".to_vec();
        [vec![head], vec![b"x".to_vec(); 1000]].concat()
    };
    let slow = slow(drops(), Duration::from_millis(100));
    let silent = self::slow(vec![Vec::new()], Duration::from_secs(60));
    let start = Instant::now();
    let (slow, silent) = tokio::join!(
        fetched(&slow, Trust::Operator),
        status(&silent, Trust::Operator, Duration::from_millis(200)),
    );
    assert_eq!(slow, Err(FetchError::Timeout));
    assert_eq!(silent, Err(FetchError::Timeout));
    let took = start.elapsed();
    assert!(
        (2..5).contains(&took.as_secs()),
        "three seconds, not {took:?}"
    );
}

#[tokio::test]
async fn every_status_is_returned() {
    for code in [200, 204, 302, 404, 500, 503] {
        let answer =
            format!("HTTP/1.1 {code} X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n");
        let url = serve(answer);
        let found = status(&url, Trust::Operator, Duration::from_secs(3)).await;
        assert_eq!(found, Ok(code));
    }
}

#[tokio::test]
async fn strangers_urls_are_https_on_public_hosts() {
    let url = serve("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
    let port = url.rsplit(':').next().unwrap_or_default();
    assert_eq!(fetched(&url, Trust::Operator).await, Ok(Vec::new()));
    for url in [
        url.clone(),
        "http://example.com/".to_owned(),
        format!("https://127.0.0.1:{port}"),
        // a name that resolves to loopback
        format!("https://localhost:{port}"),
        format!("https://[::1]:{port}"),
        format!("https://[::ffff:127.0.0.1]:{port}"),
        "https://169.254.169.254/".to_owned(),
        "https://0/".to_owned(),
        "https://2130706433/".to_owned(),
        "https://0x7f.1/".to_owned(),
    ] {
        assert_eq!(
            fetched(&url, Trust::Public).await,
            Err(FetchError::Refused),
            "{url}"
        );
    }
}

#[tokio::test]
async fn the_permit_is_dropped_when_the_work_ends() {
    let permit = std::sync::Arc::new(());
    let url = slow(vec![Vec::new()], Duration::from_millis(300));
    let fetch = document(&url, Trust::Operator, std::sync::Arc::clone(&permit));
    drop(tokio::time::timeout(Duration::from_millis(100), fetch).await);
    assert_eq!(
        std::sync::Arc::strong_count(&permit),
        2,
        "the work goes on without its caller"
    );
    while std::sync::Arc::strong_count(&permit) == 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

const PUBLIC: &str = "8.8.8.8 1.1.1.1 100.63.255.255 100.128.0.0 172.15.255.255 172.32.0.0 \
    192.0.1.1 198.17.255.255 198.20.0.0 223.255.255.255 2606:4700:4700::1111 2a00:1450::1 \
    2001:4860:4860::8888 64:ff9b::808:808 ::ffff:8.8.8.8";
/// `::7f00:1` and `::808:808` are IPv4 addresses in the old, "compatible" form.
const SPECIAL: &str = "0.0.0.0 0.1.2.3 10.0.0.1 100.64.0.1 100.127.255.255 127.0.0.1 \
    127.255.255.255 169.254.169.254 172.16.0.1 172.31.255.255 192.0.0.1 192.0.2.1 192.88.99.1 \
    192.168.1.1 198.18.0.1 198.19.255.255 198.51.100.1 203.0.113.1 224.0.0.1 239.255.255.250 \
    240.0.0.1 255.255.255.255 :: ::1 ::7f00:1 ::808:808 ::ffff:127.0.0.1 \
    ::ffff:169.254.169.254 ::ffff:0:127.0.0.1 64:ff9b::7f00:1 64:ff9b::a00:1 \
    64:ff9b:1::808:808 100::1 2001::1 2001:2::1 2001:10::1 2001:db8::1 2002:7f00:1:: \
    2002:a00:1::1 3fff::1 5f00::1 fc00::1 fd00:ec2::254 fe80::1 fec0::1 ff02::1";

#[test]
fn special_purpose_addresses_are_not_public() {
    for (addresses, expected) in [(PUBLIC, true), (SPECIAL, false)] {
        for address in addresses.split_whitespace() {
            let ip: IpAddr = address.parse().expect("an address");
            assert_eq!(is_public(ip), expected, "{address}");
        }
    }
}
