//! A client that sends exact bytes and reads the responses to them.

use std::io::{self, ErrorKind, Read, Write};
use std::time::Duration;

/// How long any response may take on a slow machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// The start of a response.
const NEXT: &[u8] = b"HTTP/1.";

/// A final response.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) status: u16,
    /// Field lines as they came, names in lower case.
    fields: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Response {
    /// The value of a field.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        fields
            .find(|(own, _)| own == name)
            .map(|(_, value)| value.as_str())
    }

    /// Whether the server announces that it closes the connection.
    pub(crate) fn closes(&self) -> bool {
        self.field("connection")
            .is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// The id of a JSON-RPC response.
    pub(crate) fn id(&self) -> Option<String> {
        let body: serde_json::Value = serde_json::from_slice(&self.body).ok()?;
        body.get("id").map(serde_json::Value::to_string)
    }
}

/// A connection and the responses on it.
pub(crate) struct Client<S> {
    stream: S,
    unread: Vec<u8>,
    /// Bytes that are no response, from the first such to the end of the connection.
    stray: Vec<u8>,
}

impl<S: Read + Write> Client<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self {
            stream,
            unread: Vec::new(),
            stray: Vec::new(),
        }
    }

    /// The connection itself.
    pub(crate) fn stream(&self) -> &S {
        &self.stream
    }

    /// Sends these bytes, unless the peer does not want them.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let _refused_already = self.stream.write_all(bytes);
    }

    /// Bytes behind the last response: other judges respond in HTTP/0.9, or in chunks.
    pub(crate) fn stray(&self) -> &[u8] {
        &self.stray
    }

    /// The next final response; `None` at the end of the connection. A response to HEAD has no
    /// body; that of a server that closes may end early.
    pub(crate) fn next(&mut self, method: &str) -> Option<Response> {
        loop {
            let (response, length) = match self.take_head() {
                Ok(Some(head)) => head,
                Ok(None) if self.read() => continue,
                Ok(None) | Err(_) => {
                    while self.read() {}
                    self.stray.append(&mut self.unread);
                    return None;
                }
            };
            if response.status < 200 {
                continue;
            }
            let length = if method == "HEAD" { 0 } else { length };
            while self.unread.len() < length && !self.unread.starts_with(NEXT) && self.read() {}
            // in a stream any request may be HEAD, and no body begins like a response
            let length = if self.unread.starts_with(NEXT) {
                0
            } else {
                length
            };
            let body = self.unread.drain(..length.min(self.unread.len())).collect();
            return Some(Response { body, ..response });
        }
    }

    /// All responses until the end of the connection.
    pub(crate) fn rest(&mut self) -> Vec<Response> {
        std::iter::from_fn(|| self.next("")).collect()
    }

    /// Waits for more of a response, or for the end of the connection; false when the peer stays
    /// quiet for as long as the socket's timeout.
    pub(crate) fn is_readable(&mut self) -> bool {
        if !self.unread.is_empty() {
            return true;
        }
        let mut piece = [0; 4096];
        match self.stream.read(&mut piece) {
            Ok(length) => {
                self.unread.extend_from_slice(&piece[..length]);
                true
            }
            Err(error) => !matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    /// Takes the head of a response, with the length of its body, if it is whole.
    fn take_head(&mut self) -> Result<Option<(Response, usize)>, httparse::Error> {
        let mut fields = [httparse::EMPTY_HEADER; 64];
        let mut head = httparse::Response::new(&mut fields);
        let httparse::Status::Complete(end) = head.parse(&self.unread)? else {
            return Ok(None);
        };
        let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
        let fields: Vec<_> = head
            .headers
            .iter()
            .map(|field| (field.name.to_ascii_lowercase(), text(field.value)))
            .collect();
        let status = head.code.expect("a whole head");
        let response = Response {
            status,
            fields,
            body: Vec::new(),
        };
        let length = response
            .field("content-length")
            .map(|length| length.parse().unwrap());
        self.unread.drain(..end);
        Ok(Some((response, length.unwrap_or(0))))
    }

    /// Reads more; false at the end of the connection.
    fn read(&mut self) -> bool {
        let mut piece = [0; 4096];
        loop {
            match self.stream.read(&mut piece) {
                Ok(0) => return false,
                Ok(length) => {
                    self.unread.extend_from_slice(&piece[..length]);
                    return true;
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if is_reset(&error) => return false,
                Err(error) => panic!("no response in {PATIENCE:?}: {error}"),
            }
        }
    }
}

fn is_reset(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionReset | ErrorKind::BrokenPipe
    )
}
