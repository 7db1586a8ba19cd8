//! A client that sends exact bytes and reads responses strictly.
//!
//! In: raw bytes, or a [`Request`] that spells them out. Out: one [`Response`] at a time, or how
//! the connection broke. It never retries, never follows redirects, and never waits longer than
//! [`PATIENCE`]. `response` defines the accepted syntax; the response of a surface is checked
//! against its document.

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use crate::support::documents::{self, Document, SentRequest};
use crate::support::request::Request;
use crate::support::response::{Framing, Response, chunk_size, content_length, parse_head};

/// The timeout of every wait in a test.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

/// Why no response could be read.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) enum Broken {
    /// The connection ended first, after these bytes of a response.
    Ended(Vec<u8>),
    /// The connection was reset first.
    Reset(Vec<u8>),
    /// No bytes arrived within [`PATIENCE`].
    Silent,
    /// The bytes are not HTTP/1.1.
    Malformed(String),
}

pub(crate) struct Client {
    stream: TcpStream,
    unread: Vec<u8>,
    /// The document of the surface at the other end, if it is one.
    document: Option<&'static Document>,
    /// Requests without a response so far; empty if they were sent through another handle.
    sent: VecDeque<SentRequest>,
}

impl Client {
    /// Connects, with a timeout on all reads and writes.
    pub(crate) fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("the edge listens");
        Self {
            document: documents::at(address),
            ..Self::over(stream)
        }
    }

    /// A client over an existing connection.
    pub(crate) fn over(stream: TcpStream) -> Self {
        stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout above zero is valid");
        stream
            .set_write_timeout(Some(PATIENCE))
            .expect("a timeout above zero is valid");
        stream.set_nodelay(true).expect("the socket is open");
        Self {
            stream,
            unread: Vec::new(),
            document: None,
            sent: VecDeque::new(),
        }
    }

    /// Sends these bytes; returns false if the peer has closed the connection.
    pub(crate) fn send(&mut self, bytes: impl AsRef<[u8]>) -> bool {
        let sent = SentRequest::of(bytes.as_ref());
        // bytes that do not start a request continue the previous one
        if sent != SentRequest::Unclear || self.sent.is_empty() {
            self.sent.push_back(sent);
        }
        self.stream.write_all(bytes.as_ref()).is_ok()
    }

    /// Closes the write half.
    pub(crate) fn finish(&mut self) {
        let _ended_already = self.stream.shutdown(Shutdown::Write);
    }

    /// A second handle, to send while this one reads.
    pub(crate) fn writer(&self) -> TcpStream {
        self.stream.try_clone().expect("a socket can be cloned")
    }

    /// Sends a request and reads its response.
    pub(crate) fn ask(&mut self, request: &Request) -> Response {
        self.send(request.bytes());
        self.response()
    }

    /// Reads the next response, interim ones included; panics on failure.
    pub(crate) fn response(&mut self) -> Response {
        match self.read_response(true) {
            Ok(response) => response,
            Err(broken) => panic!("no answer: {broken:?}"),
        }
    }

    /// Reads the response to a `HEAD`, or a response head only: no body is read, whatever its
    /// length.
    pub(crate) fn response_to_head(&mut self) -> Response {
        match self.read_response(false) {
            Ok(response) => response,
            Err(broken) => panic!("no answer: {broken:?}"),
        }
    }

    /// The next chunk of a body whose head was read separately; the last chunk is empty.
    pub(crate) fn chunk(&mut self) -> Vec<u8> {
        match self.take_chunk() {
            Ok(chunk) => chunk,
            Err(broken) => panic!("no chunk: {broken:?}"),
        }
    }

    /// Reads the next response, or returns why there is none.
    pub(crate) fn try_response(&mut self) -> Result<Response, Broken> {
        self.read_response(true)
    }

    /// Asserts that the connection ends without another byte.
    pub(crate) fn ends(&mut self, why: &str) {
        match self.rest() {
            Ok(rest) | Err(Broken::Reset(rest)) => {
                assert!(
                    rest.is_empty(),
                    "{why}: {:?}",
                    String::from_utf8_lossy(&rest)
                );
            }
            Err(broken) => panic!("{why}: {broken:?}"),
        }
    }

    /// Waits this long for data; returns true if no data arrived and the connection is open.
    pub(crate) fn silent_for(&mut self, time: Duration) -> bool {
        self.stream
            .set_read_timeout(Some(time))
            .expect("a timeout above zero is valid");
        let silent = self.unread.is_empty() && self.fill() == Err(Broken::Silent);
        self.stream
            .set_read_timeout(Some(PATIENCE))
            .expect("a timeout above zero is valid");
        silent
    }

    /// Sends byte after byte with this pause between them, until a response begins, the connection
    /// ends, or all bytes are sent.
    pub(crate) fn drip(&mut self, bytes: &[u8], pause: Duration) {
        for byte in bytes {
            if !self.send([*byte]) || !self.silent_for(pause) {
                return;
            }
        }
    }

    /// Reads to the end of the connection.
    pub(crate) fn rest(&mut self) -> Result<Vec<u8>, Broken> {
        loop {
            match self.fill() {
                Ok(()) => {}
                Err(Broken::Ended(rest)) => return Ok(rest),
                Err(broken) => return Err(broken),
            }
        }
    }

    fn read_response(&mut self, may_have_body: bool) -> Result<Response, Broken> {
        let end = self.find(b"\r\n\r\n")?;
        let head: Vec<u8> = self.unread.drain(..end + 4).collect();
        let mut response = parse_head(&head[..end]).map_err(Broken::Malformed)?;
        if !may_have_body {
            response.framing = Framing::Bodiless;
        }
        response.body = match response.framing {
            Framing::Bodiless => Vec::new(),
            Framing::Length => {
                let length = content_length(&response.headers).map_err(Broken::Malformed)?;
                self.take(length)?
            }
            Framing::Chunked => self.take_chunks()?,
            Framing::Close => self.rest()?,
        };
        if response.status < 200 {
            return Ok(response);
        }
        let sent = self.sent.pop_front().unwrap_or_default();
        if let Some(document) = self.document {
            let body = response.decoded();
            document.judge(
                &sent,
                &Response {
                    body,
                    ..response.clone()
                },
            );
        }
        Ok(response)
    }

    fn take_chunks(&mut self) -> Result<Vec<u8>, Broken> {
        let mut body = Vec::new();
        loop {
            let mut chunk = self.take_chunk()?;
            if chunk.is_empty() {
                return Ok(body);
            }
            body.append(&mut chunk);
        }
    }

    fn take_chunk(&mut self) -> Result<Vec<u8>, Broken> {
        let end = self.find(b"\r\n")?;
        let line: Vec<u8> = self.unread.drain(..end + 2).collect();
        let size = chunk_size(&line[..end]).map_err(Broken::Malformed)?;
        let mut chunk = self.take(size + 2)?;
        if chunk.split_off(size) != b"\r\n" {
            return Err(Broken::Malformed(
                "a chunk does not end where it said".into(),
            ));
        }
        Ok(chunk)
    }

    fn take(&mut self, count: usize) -> Result<Vec<u8>, Broken> {
        while self.unread.len() < count {
            self.fill()?;
        }
        Ok(self.unread.drain(..count).collect())
    }

    fn find(&mut self, wanted: &[u8]) -> Result<usize, Broken> {
        loop {
            if let Some(at) = self
                .unread
                .windows(wanted.len())
                .position(|seen| seen == wanted)
            {
                return Ok(at);
            }
            self.fill()?;
        }
    }

    fn fill(&mut self) -> Result<(), Broken> {
        let mut chunk = vec![0; 64 * 1024];
        match self.stream.read(&mut chunk) {
            Ok(0) => Err(Broken::Ended(std::mem::take(&mut self.unread))),
            Ok(count) => {
                self.unread.extend_from_slice(&chunk[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => Ok(()),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(Broken::Silent),
            Err(_) => Err(Broken::Reset(std::mem::take(&mut self.unread))),
        }
    }
}
