//! A server on loopback that answers by path, slowly enough for requests to meet.

use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

#[derive(Default)]
struct Shown {
    /// Status, media type and body.
    answers: HashMap<String, (u16, &'static str, String)>,
    requests: usize,
}

pub(super) struct Stub {
    pub(super) port: u16,
    shown: Arc<Mutex<Shown>>,
}

impl Stub {
    pub(super) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        let shown = Arc::<Mutex<Shown>>::default();
        let of_task = Arc::clone(&shown);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(answer(stream, Arc::clone(&of_task)));
            }
        });
        Self { port, shown }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Shows a document from now on.
    pub(super) fn show(&self, path: &str, document: &Value) {
        self.answer(path, 200, "application/json; charset=utf-8", &document.to_string());
    }

    pub(super) fn answer(&self, path: &str, status: u16, media_type: &'static str, body: &str) {
        let answer = (status, media_type, body.to_owned());
        self.shown.lock().expect("a lock").answers.insert(path.to_owned(), answer);
    }

    /// Every path is in trouble from now on.
    pub(super) fn fail(&self) {
        for answer in self.shown.lock().expect("a lock").answers.values_mut() {
            answer.0 = 503;
        }
    }

    /// Requests so far.
    pub(super) fn requests(&self) -> usize {
        self.shown.lock().expect("a lock").requests
    }
}

async fn answer(mut stream: TcpStream, shown: Arc<Mutex<Shown>>) {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let Ok(byte) = stream.read_u8().await else { return };
        head.push(byte);
    }
    let head = String::from_utf8_lossy(&head);
    let path = head.split(' ').nth(1).unwrap_or_default();
    let (status, media_type, body) = {
        let mut shown = shown.lock().expect("a lock");
        shown.requests += 1;
        shown.answers.get(path).cloned().unwrap_or((404, "text/plain", "not found".to_owned()))
    };
    tokio::time::sleep(Duration::from_millis(30)).await;
    let length = body.len();
    let answer = format!(
        "HTTP/1.1 {status} X\r\nContent-Type: {media_type}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n{body}"
    );
    drop(stream.write_all(answer.as_bytes()).await);
}
