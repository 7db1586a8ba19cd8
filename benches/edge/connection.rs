//! One end of an HTTP/1.1 connection that reads messages of known length.
//!
//! Both ends belong to the bench, so only the framing they use is supported. Shared by the small
//! node and the load clients.

use std::io;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpStream;

/// 16 KiB: the read size for a message of unknown length.
const STEP: usize = 16 << 10;

/// A connection and its read buffer.
pub(crate) struct Stream {
    /// The socket, public for writes.
    pub(crate) tcp: TcpStream,
    unread: Vec<u8>,
}

pub(crate) struct Message<'a> {
    /// Head and body.
    pub(crate) whole: &'a [u8],
    pub(crate) body: &'a [u8],
}

impl Stream {
    pub(crate) fn over(tcp: TcpStream) -> io::Result<Self> {
        tcp.set_nodelay(true)?;
        Ok(Self {
            tcp,
            unread: Vec::new(),
        })
    }

    /// The next message, or `None` if the connection ends first. `framed` returns the lengths of
    /// head and body once the head is complete.
    pub(crate) async fn message(
        &mut self,
        framed: impl Fn(&[u8]) -> Option<(usize, usize)>,
    ) -> Option<Message<'_>> {
        let mut known = None;
        loop {
            known = known.or_else(|| framed(&self.unread));
            let length = known.map_or(self.unread.len() + STEP, |(head, body)| head + body);
            if self.unread.len() >= length {
                let whole = &self.unread[..length];
                return Some(Message {
                    whole,
                    body: &whole[known?.0..],
                });
            }
            self.unread.reserve(length - self.unread.len());
            if self.tcp.read_buf(&mut self.unread).await.ok()? == 0 {
                return None;
            }
        }
    }

    /// Discards a message from the buffer.
    pub(crate) fn consume(&mut self, length: usize) {
        self.unread.drain(..length);
    }
}

/// The value of `Content-Length`; 0 if absent.
pub(crate) fn content_length(headers: &[httparse::Header<'_>]) -> usize {
    let named = headers
        .iter()
        .find(|header| header.name.eq_ignore_ascii_case("content-length"));
    let text = named.and_then(|header| std::str::from_utf8(header.value).ok());
    text.and_then(|text| text.trim().parse().ok()).unwrap_or(0)
}
