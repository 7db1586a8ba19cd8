//! Fetches from a server on loopback.

use super::*;
use crate::sidecar::stub;
use std::time::Instant;

fn slow(pieces: Vec<Vec<u8>>, pause: Duration) -> String {
    format!("http://127.0.0.1:{}/", stub::serve(pause, move |_| pieces.clone()))
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
        ("a fault", "HTTP/1.1 503 X\r\n\r\n".into(), Err(FetchError::Status(503))),
        ("cut", cut.into(), Err(FetchError::Unreachable)),
        ("a large head", head.into(), Err(FetchError::TooLarge)),
        ("no HTTP", "SSH-2.0-x\r\n\r\n".into(), Err(FetchError::Unreachable)),
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
    assert!((2..5).contains(&took.as_secs()), "three seconds, not {took:?}");
}

#[tokio::test]
async fn every_status_is_returned() {
    for code in [200, 204, 302, 404, 500, 503] {
        let answer =
            format!("HTTP/1.1 {code} X\r\nLocation: /elsewhere\r\nContent-Length: 0\r\n\r\n");
        let url = serve(answer);
        let found = status(&url, Trust::Operator, DOCUMENT_TIMEOUT).await;
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
        assert_eq!(fetched(&url, Trust::Public).await, Err(FetchError::Refused), "{url}");
    }
}

#[tokio::test]
async fn the_permit_is_dropped_when_the_work_ends() {
    let permit = std::sync::Arc::new(());
    let url = slow(vec![Vec::new()], Duration::from_millis(300));
    let fetch = document(&url, Trust::Operator, std::sync::Arc::clone(&permit));
    drop(tokio::time::timeout(Duration::from_millis(100), fetch).await);
    assert_eq!(std::sync::Arc::strong_count(&permit), 2, "the work goes on without its caller");
    while std::sync::Arc::strong_count(&permit) == 2 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}
