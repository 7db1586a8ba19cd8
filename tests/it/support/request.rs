//! Requests as exact bytes, ready to be malformed.
//!
//! In: a body, and the differences from a well-behaved wallet. Out: the bytes of the request.
//! Nothing is recomputed: an explicit length is sent as it is, even if it is wrong.

/// The harmless request that most tests send.
pub(crate) const QUESTION: &str =
    r#"{"jsonrpc":"2.0","id":7,"method":"starknet_blockNumber","params":[]}"#;

/// A JSON-RPC request; id and params as JSON text.
pub(crate) fn rpc(id: &str, method: &str, params: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{params}}}"#)
}

/// `body` with spaces after it, up to exactly `size` bytes.
pub(crate) fn padded(body: &str, size: usize) -> Vec<u8> {
    let mut bytes = body.as_bytes().to_vec();
    bytes.resize(size, b' ');
    bytes
}

/// A request whose parts a test can replace.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    line: String,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
}

impl Request {
    /// A request without headers except `Host`.
    pub(crate) fn new(method: &str, target: &str) -> Self {
        let line = format!("{method} {target} HTTP/1.1");
        Self {
            line,
            headers: vec![("Host".into(), "edge.test".into())],
            body: Vec::new(),
        }
    }

    /// A well-behaved wallet's request: `POST /rpc` with a JSON body and its length.
    pub(crate) fn post(body: impl AsRef<[u8]>) -> Self {
        let body = body.as_ref().to_vec();
        let length = body.len().to_string();
        let mut request = Self::new("POST", "/rpc")
            .with("Content-Type", "application/json")
            .with("Content-Length", &length);
        request.body = body;
        request
    }

    /// A POST of a body in chunks of `size` bytes.
    pub(crate) fn post_chunked(body: impl AsRef<[u8]>, size: usize) -> Self {
        let mut request = Self::new("POST", "/rpc")
            .with("Content-Type", "application/json")
            .with("Transfer-Encoding", "chunked");
        request.body = chunked(body.as_ref(), size);
        request
    }

    /// Appends a header line.
    pub(crate) fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.into(), value.into()));
        self
    }

    /// Removes every line of this header.
    pub(crate) fn without(mut self, name: &str) -> Self {
        self.headers
            .retain(|(own, _)| !own.eq_ignore_ascii_case(name));
        self
    }

    /// Replaces the request line.
    pub(crate) fn line(mut self, line: &str) -> Self {
        self.line = line.into();
        self
    }

    /// Method, target and headers.
    pub(crate) fn parts(&self) -> (&str, &str, &[(String, String)]) {
        let mut words = self.line.split(' ');
        let (method, target) = (words.next(), words.next());
        (
            method.unwrap_or_default(),
            target.unwrap_or_default(),
            &self.headers,
        )
    }

    /// The head, including the empty line.
    pub(crate) fn head(&self) -> Vec<u8> {
        let mut head = format!("{}\r\n", self.line);
        for (name, value) in &self.headers {
            head.push_str(&format!("{name}: {value}\r\n"));
        }
        head.push_str("\r\n");
        head.into_bytes()
    }

    /// The body as it is sent.
    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Every byte of the request.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.head();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// `body` in chunks of `size` bytes, with the last chunk.
pub(crate) fn chunked(body: &[u8], size: usize) -> Vec<u8> {
    let mut wire = Vec::new();
    for chunk in body.chunks(size) {
        wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        wire.extend_from_slice(chunk);
        wire.extend_from_slice(b"\r\n");
    }
    wire.extend_from_slice(b"0\r\n\r\n");
    wire
}
