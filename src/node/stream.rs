//! A connection to the node, in the clear or inside TLS.

use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// The bytes of a connection.
#[derive(Debug)]
pub(super) enum NodeStream {
    Plain(TcpStream),
    /// Boxed: the state of a session is large.
    Secured(Box<TlsStream<TcpStream>>),
}

impl NodeStream {
    /// Whether neither its end nor any bytes have arrived.
    pub(super) fn is_quiet(&mut self) -> bool {
        match self {
            Self::Plain(stream) => {
                let read = stream.try_read(&mut [0]);
                read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock)
            }
            // through the session, which may have messages of its own, such as tickets
            Self::Secured(stream) => {
                let mut byte = [0];
                let mut buffer = ReadBuf::new(&mut byte);
                let mut cx = Context::from_waker(Waker::noop());
                Pin::new(&mut **stream).poll_read(&mut cx, &mut buffer).is_pending()
            }
        }
    }
}

impl AsyncRead for NodeStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Secured(stream) => Pin::new(&mut **stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for NodeStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        data: &[u8],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, data),
            Self::Secured(stream) => Pin::new(&mut **stream).poll_write(cx, data),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Secured(stream) => Pin::new(&mut **stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Secured(stream) => Pin::new(&mut **stream).poll_shutdown(cx),
        }
    }
}
