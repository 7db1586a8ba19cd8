//! A server of key sets and DID documents, slow enough for requests to overlap.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::Value;

use crate::support::sidecar::pieces::serve;

/// Status, media type and body.
type Answer = (u16, &'static str, String);

pub(super) struct Stub {
    pub(super) port: u16,
    answers: Arc<Mutex<HashMap<String, Answer>>>,
    requests: Arc<Mutex<usize>>,
}

impl Stub {
    pub(super) fn start() -> Self {
        let answers = Arc::<Mutex<HashMap<String, Answer>>>::default();
        let requests = Arc::<Mutex<usize>>::default();
        let (shown, counted) = (Arc::clone(&answers), Arc::clone(&requests));
        let port = serve(Duration::from_millis(30), move |path| {
            *counted.lock() += 1;
            let missing = || (404, "text/plain", "not found".to_owned());
            let (status, media_type, body) =
                shown.lock().get(path).cloned().unwrap_or_else(missing);
            let head = format!("HTTP/1.1 {status} X\r\nContent-Type: {media_type}\r\n");
            let rest = format!(
                "Content-Length: {}\r\nConnection: close\r\n\r\n",
                body.len()
            );
            vec![[head, rest, body].concat().into()]
        });
        Self {
            port,
            answers,
            requests,
        }
    }

    pub(super) fn url(&self, path: &str) -> String {
        format!("http://127.0.0.1:{}{path}", self.port)
    }

    /// Serves a document from now on.
    pub(super) fn show(&self, path: &str, document: &Value) {
        self.answer(
            path,
            200,
            "application/json; charset=utf-8",
            &document.to_string(),
        );
    }

    pub(super) fn answer(&self, path: &str, status: u16, media_type: &'static str, body: &str) {
        self.answers
            .lock()
            .insert(path.to_owned(), (status, media_type, body.to_owned()));
    }

    /// Answers 503 to every path from now on.
    pub(super) fn fail(&self) {
        self.answers
            .lock()
            .values_mut()
            .for_each(|answer| answer.0 = 503);
    }

    /// Requests so far.
    pub(super) fn requests(&self) -> usize {
        *self.requests.lock()
    }
}
